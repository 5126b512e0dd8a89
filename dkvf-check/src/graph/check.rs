//! From a history to a verdict.

use crate::check::{Budget, Options};
use crate::history::History;
use crate::model::{Model, Order};
use crate::prepass::{Committed, Undecided};
use crate::solve;
use crate::verdict::{Anomaly, EdgeKind, Verdict};

use super::components::components;
use super::explain::Narrator;
use super::level::Level;
use super::rules::{Forbidden, Rules, Scope};
use super::search::Part;
use super::{Graph, Versions, fractured};

/// Judges a model of transactions.
pub(crate) fn check(model: Model, history: &History, options: &Options) -> Verdict {
    judge(model, history, options).unwrap_or_else(Verdict::from)
}

fn judge(model: Model, history: &History, options: &Options) -> Result<Verdict, Undecided> {
    if model == Model::Sequential && !history.is_single() {
        return Err(Undecided(
            "sequential consistency is defined for single operations; check serializable"
                .to_owned(),
        ));
    }
    let committed = Committed::new(history, &options.budget)?;
    let anomalies = committed.anomalies(model);
    if !anomalies.is_empty() {
        return Ok(Verdict::Violated(anomalies));
    }
    if model == Model::CommittedReads {
        return Ok(Verdict::Satisfied);
    }
    let order = match model {
        Model::StrictSerializable => Order::RealTime,
        _ => options.order.unwrap_or(model.usual_order()),
    };
    let versions = Versions::new(&committed, options.evidence, &options.budget)?;
    let versions = match model {
        Model::ReadUncommitted => versions.without_chains(&committed),
        _ => versions,
    };
    let rules = Rules::new(model, history, options.groups)?;
    let anomalies = cycles(&rules, order, &committed, &versions, &options.budget)?;
    if !anomalies.is_empty() {
        return Ok(Verdict::Violated(anomalies));
    }
    if versions.is_complete() {
        return Ok(Verdict::Satisfied);
    }
    solve::check(&rules, order, &committed, &versions, &options.budget)
}

/// What in the known order of versions refutes `model`, at most [`Verdict::ANOMALIES_MAX`].
pub(crate) fn anomalies_of(
    model: Model,
    order: Order,
    committed: &Committed,
    versions: &Versions,
    budget: &Budget,
) -> Result<Vec<Anomaly>, Undecided> {
    let rules = Rules::new(model, committed.history, None)?;
    cycles(&rules, order, committed, versions, budget)
}

/// The forbidden cycles, one of each component, at most [`Verdict::ANOMALIES_MAX`].
fn cycles(
    rules: &Rules,
    order: Order,
    committed: &Committed,
    versions: &Versions,
    budget: &Budget,
) -> Result<Vec<Anomaly>, Undecided> {
    let graph = Graph::new(committed, versions, order, budget)?;
    let narrator = Narrator {
        committed,
        versions,
    };
    let mut anomalies = Vec::new();
    for component in suspects(&graph, rules.all_levels(), budget)? {
        let part = Part::new(&graph, component);
        let Some(Forbidden {
            scope,
            level,
            cycle,
        }) = rules.worst(&part, order, budget)?
        else {
            continue;
        };
        let anomaly = narrator.anomaly(level, cycle);
        anomalies.push(with_scope(anomaly, rules, scope));
        if anomalies.len() == Verdict::ANOMALIES_MAX {
            break;
        }
    }
    if rules.model == Model::ReadAtomic && anomalies.is_empty() {
        for cycle in fractured::cycles(committed, versions, order, budget)? {
            anomalies.push(narrator.anomaly(Level::OneAnti, cycle));
        }
    }
    Ok(anomalies)
}

/// Says which group an anomaly belongs to.
pub(crate) fn with_scope(mut anomaly: Anomaly, rules: &Rules, scope: Scope) -> Anomaly {
    if let Some(name) = rules.name(scope) {
        let sentence = format!("within group {name}, which must be snapshot isolated:");
        anomaly.because.insert(0, sentence);
    }
    anomaly
}

/// The components in which there may be a cycle that one of `levels` contains.
pub(crate) fn suspects(
    graph: &Graph,
    levels: &[Level],
    budget: &Budget,
) -> Result<Vec<Vec<u32>>, Undecided> {
    let is_possible = |kind: EdgeKind| {
        levels
            .iter()
            .any(|level| (0..level.states()).any(|state| level.step(state, kind).is_some()))
    };
    budget.reserve(graph.vertex_count() * 24)?;
    budget.spend(graph.vertex_count())?;
    Ok(components(graph.vertex_count(), |vertex, edge| {
        let link = graph.links(vertex).get(edge as usize)?;
        Some(is_possible(link.kind).then_some(link.to))
    }))
}
