//! What verdicts on several models say together.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::history::{History, TxnId};
use crate::model::{Model, Order};
use crate::verdict::{Anomaly, AnomalyKind, Verdict};

/// Verdicts on one history, by model.
#[derive(Clone, Debug, Default)]
pub struct Ladder {
    results: Vec<(Model, Verdict)>,
}

impl Ladder {
    /// The verdicts that are known so far.
    pub fn results(&self) -> &[(Model, Verdict)] {
        &self.results
    }

    /// Adds the verdict on a model.
    pub fn add(&mut self, model: Model, verdict: Verdict) {
        self.results.push((model, verdict));
    }

    /// A violated model that `model` includes, so that `model` is violated, too.
    pub fn refuted_by(&self, model: Model) -> Option<Model> {
        self.named("violated")
            .find(|&weaker| is_above(model, weaker))
    }

    /// The satisfied models that no other satisfied one includes.
    pub fn strongest_held(&self) -> Vec<Model> {
        let held: Vec<Model> = self.named("satisfied").collect();
        let is_top = |model: &&Model| !held.iter().any(|other| is_above(*other, **model));
        held.iter().filter(is_top).copied().collect()
    }

    /// The violated models that include no other violated one.
    pub fn weakest_refuted(&self) -> Vec<Model> {
        let refuted: Vec<Model> = self.named("violated").collect();
        let is_bottom = |model: &&Model| !refuted.iter().any(|other| is_above(**model, *other));
        refuted.iter().filter(is_bottom).copied().collect()
    }

    fn named(&self, verdict: &'static str) -> impl Iterator<Item = Model> {
        let results = self.results.iter();
        results
            .filter(move |(_, other)| other.name() == verdict)
            .map(|&(model, _)| model)
    }

    /// One line about a violation of `model`: what it is, which models fall with it, which hold, and how much of the
    /// `whole` history is involved. The anomaly comes with the history that its numbers are of, the whole one or a part;
    /// `order` is the one that was included.
    pub fn summary(
        &self,
        model: Model,
        order: Order,
        (found_in, anomaly): (&History, &Anomaly),
        whole: &History,
    ) -> String {
        let mut line = format!("{model} violated ({}).", kind_text(anomaly.kind));
        let stronger: Vec<Model> = Model::ALL
            .into_iter()
            .filter(|other| other.includes().contains(&model))
            .collect();
        // Writing to a string does not fail.
        let _ = match stronger.as_slice() {
            [] => Ok(()),
            [one] if !Model::ALL.into_iter().any(|other| is_above(other, *one)) => {
                write!(line, " {one} falls with it.")
            }
            some => write!(line, " {} and stronger fall with it.", list(some)),
        };
        let held: Vec<Model> = self.strongest_held();
        let held: Vec<Model> = held
            .into_iter()
            .filter(|held| !is_above(*held, model))
            .collect();
        if !held.is_empty() {
            let _ = write!(line, " Holds up to: {}.", list(&held));
        }
        let operations = anomaly.operations.iter();
        let involved: BTreeSet<TxnId> = operations.map(|&op| found_in.owner(op)).collect();
        let total = whole.transactions().len();
        let unit = if whole.is_single() {
            "operations"
        } else {
            "transactions"
        };
        let _ = write!(line, " {} of {total} {unit} involved.", involved.len());
        let _ = write!(line, " Order included: {order}.");
        line
    }
}

/// Whether a history that violates `weaker`, another model, violates `model`.
fn is_above(model: Model, weaker: Model) -> bool {
    model != weaker && model.implies(weaker)
}

fn list(models: &[Model]) -> String {
    models
        .iter()
        .map(|model| model.name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The name of an anomaly, after the one that Adya gave to its kind of cycle.
fn kind_text(kind: AnomalyKind) -> String {
    let adya = match kind {
        AnomalyKind::DirtyWrite => "G0, ",
        AnomalyKind::AbortedRead => "G1a, ",
        AnomalyKind::IntermediateRead => "G1b, ",
        AnomalyKind::CircularInformationFlow => "G1c, ",
        AnomalyKind::ReadSkew => "G-single, ",
        AnomalyKind::LongFork | AnomalyKind::NonadjacentCycle => "G-nonadjacent, ",
        AnomalyKind::WriteSkew | AnomalyKind::AntiDependencyCycle => "G2-item, ",
        _ => "",
    };
    format!("{adya}{}", kind.name())
}
