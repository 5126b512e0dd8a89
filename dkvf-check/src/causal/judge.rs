//! From a history to a verdict.

use crate::check::{Budget, Evidence, Options};
use crate::graph::{self, Link, Step, Versions, components};
use crate::history::History;
use crate::model::{Model, Order};
use crate::prepass::{Committed, INIT, Node, Rows, Undecided};
use crate::verdict::{Anomaly, AnomalyKind, EdgeKind, Verdict};

use super::clocks::Clocks;
use super::explain::{Explainer, Visible};
use super::forced::{Forced, Forces, LatestWriters};
use super::memory::{Unexplained, unexplained};
use super::order::{CausalOrder, link};
use super::path::{Along, AnyRoute, shortest};
use super::saturate::saturate;

/// Judges causal consistency in one of its forms, or read atomicity.
///
/// Where the order of versions is known it must agree; where it is not, some order must explain all reads. With n
/// operations and k sessions, causal consistency takes O(n k) time at worst; causal memory takes
/// O(n<sup>3</sup> k / 64) time and O(n<sup>2</sup>) bits; the others O(n log n) for transactions of bounded size.
pub(crate) fn check(model: Model, history: &History, options: &Options) -> Verdict {
    match judge(model, history, options) {
        Ok(anomalies) if anomalies.is_empty() => Verdict::Satisfied,
        Ok(anomalies) => Verdict::Violated(anomalies),
        Err(undecided) => undecided.into(),
    }
}

fn judge(model: Model, history: &History, options: &Options) -> Result<Vec<Anomaly>, Undecided> {
    let budget = &options.budget;
    if model == Model::CausalMemory && !history.is_single() {
        let reason = "causal memory is defined for single operations; check causal";
        return Err(Undecided(reason.to_owned()));
    }
    let committed = Committed::new(history, budget)?;
    // What read atomicity forbids within a transaction, every form of causality forbids.
    let anomalies = committed.anomalies(Model::ReadAtomic);
    if !anomalies.is_empty() {
        return Ok(anomalies);
    }
    let evidence = match model {
        // Without convergence there is no order of versions to compare with.
        Model::CausalWeak | Model::CausalMemory => Evidence::BlackBox,
        _ => options.evidence,
    };
    let versions = Versions::new(&committed, evidence, budget)?;
    let order = options.order.unwrap_or(model.usual_order());
    if model == Model::ReadAtomic && versions.is_complete() {
        return graph::anomalies_of(model, order, &committed, &versions, budget);
    }
    if order == Order::RealTime {
        let reason =
            format!("{model} is not defined with real time; its orders are none and session");
        return Err(Undecided(reason));
    }
    let judge = Judge {
        order: &CausalOrder::new(&committed, order, budget)?,
        committed: &committed,
        versions: &versions,
        budget,
    };
    judge.anomalies(model)
}

/// The anomalies that operations are that are their own causes; there are some if `order` is not acyclic.
pub(crate) fn cyclic_causality(
    order: &CausalOrder,
    versions: &Versions,
    budget: &Budget,
) -> Result<Vec<Anomaly>, Undecided> {
    let judge = Judge {
        order,
        committed: order.committed,
        versions,
        budget,
    };
    judge.cycles(
        AnomalyKind::CyclicCausality,
        Visible::Cause,
        &order.links(&[]),
    )
}

struct Judge<'a, 'h> {
    order: &'a CausalOrder<'a, 'h>,
    committed: &'a Committed<'h>,
    versions: &'a Versions,
    budget: &'a Budget<'a>,
}

impl<'a, 'h> Judge<'a, 'h> {
    fn anomalies(&self, model: Model) -> Result<Vec<Anomaly>, Undecided> {
        if !self.order.is_acyclic() {
            return cyclic_causality(self.order, self.versions, self.budget);
        }
        match model {
            Model::ReadAtomic => self.atomic(),
            Model::Causal => self.convergent(),
            Model::CausalWeak => self.weak(),
            Model::CausalMemory => self.memory(),
            _ => unreachable!("invariant: the caller knows which models are judged here"),
        }
    }

    /// Read atomicity.
    fn atomic(&self) -> Result<Vec<Anomaly>, Undecided> {
        let kind = AnomalyKind::FracturedRead;
        let mut forces = Forces::new(self.committed, self.versions);
        saturate(self.order, &mut forces, self.budget)?;
        let forces = forces.finish();
        let anomalies = self.missed_writes(kind, Visible::Cause, &forces.stale)?;
        if !anomalies.is_empty() {
            return Ok(anomalies);
        }
        self.cycles(kind, Visible::Cause, &self.arbitration(&forces.open)?)
    }

    /// CCv.
    fn convergent(&self) -> Result<Vec<Anomaly>, Undecided> {
        let clocks = self.clocks()?;
        let forces = self.causally_forced(&clocks)?;
        let kind = AnomalyKind::CausalityViolation;
        let anomalies = self.missed_writes(kind, Visible::Cause, &forces.stale)?;
        if !anomalies.is_empty() {
            return Ok(anomalies);
        }
        let links = self.arbitration(&forces.open)?;
        if self.components(&links).is_empty() {
            return Ok(Vec::new());
        }
        let replaced = self.replaced(&clocks, &forces.open)?;
        let anomalies = self.missed_writes(kind, Visible::Cause, &replaced)?;
        if !anomalies.is_empty() {
            return Ok(anomalies);
        }
        self.cycles(AnomalyKind::ConflictOrderCycle, Visible::Cause, &links)
    }

    /// CC: for each read an order of its own may explain what it returned.
    fn weak(&self) -> Result<Vec<Anomaly>, Undecided> {
        let clocks = self.clocks()?;
        let forces = self.causally_forced(&clocks)?;
        let mut missed = forces.stale;
        missed.extend(self.replaced(&clocks, &forces.open)?);
        let anomalies =
            self.missed_writes(AnomalyKind::CausalityViolation, Visible::Cause, &missed)?;
        if !anomalies.is_empty() {
            return Ok(anomalies);
        }
        // What clients saw of the order of a list is no matter of explanation.
        self.cycles(
            AnomalyKind::ConflictOrderCycle,
            Visible::Cause,
            &self.arbitration(&[])?,
        )
    }

    /// CM.
    fn memory(&self) -> Result<Vec<Anomaly>, Undecided> {
        let anomalies = self.weak()?;
        // Without session order a session is a single operation, and that is explained.
        if !anomalies.is_empty() || !self.order.has_sessions {
            return Ok(anomalies);
        }
        let Some(Unexplained { session, forced }) = unexplained(self.order, self.budget)? else {
            return Ok(Vec::new());
        };
        let kind = AnomalyKind::UnexplainedSession;
        let visible = Visible::Session(session, &forced);
        match forced.last() {
            Some(last) if last.newer == INIT => self.missed_writes(kind, visible, &[*last]),
            _ => self.cycles(kind, visible, &self.order.links(&forced)),
        }
    }

    /// What of the writers is in each causal past.
    fn clocks(&self) -> Result<Clocks<'_, 'a, 'h>, Undecided> {
        let is_writer = |node| !self.committed.writes(node).is_empty();
        Clocks::new(self.order, is_writer, self.budget)
    }

    /// For each read and each session, the latest writer of the key that is in the causal past of the read.
    fn causally_forced(&self, clocks: &Clocks) -> Result<Forces<'a, 'h>, Undecided> {
        let latest = LatestWriters::new(clocks, self.committed, self.budget)?;
        let mut forces = Forces::new(self.committed, self.versions);
        clocks.visit(self.budget, |visit| {
            for read in self.committed.reads(visit.node) {
                latest.unknown_to_source(&visit, read, self.budget, |older| {
                    let forced = Forced {
                        older,
                        newer: read.from,
                        key: read.key,
                    };
                    forces.add(forced, self.budget)
                })?;
            }
            Ok(())
        })?;
        Ok(forces.finish())
    }

    /// Of `forced`, those whose newer version is a cause of the older one, so that whoever read it missed a write.
    fn replaced(&self, clocks: &Clocks, forced: &[Forced]) -> Result<Vec<Forced>, Undecided> {
        let mut replaced = Vec::new();
        clocks.visit(self.budget, |visit| {
            let first = forced.partition_point(|forced| forced.older < visit.node);
            let of_node = forced[first..]
                .iter()
                .take_while(|forced| forced.older == visit.node);
            for &forced in of_node {
                self.budget.spend(1)?;
                let place = clocks.chains.place(forced.newer);
                if visit.past.count(clocks.chains.chain(forced.newer)) >= place {
                    replaced.push(forced);
                }
            }
            Ok(())
        })?;
        Ok(replaced)
    }

    /// Causality, the known order of versions, and what reads force.
    fn arbitration(&self, forced: &[Forced]) -> Result<Rows<Link>, Undecided> {
        let edges = self.committed.writer_count() + 3 * self.committed.node_count() + forced.len();
        self.budget.reserve(edges * 2 * size_of::<(Node, Link)>())?;
        self.budget.spend(edges)?;
        let mut edges = self.order.edges(forced);
        for key in self.committed.history.keys() {
            let order = self.versions.order(key);
            let next = |to| link(to, EdgeKind::VersionOrder, Some(key));
            edges.extend(order.windows(2).map(|pair| (pair[0], next(pair[1]))));
            if let Some(&last) = order.last() {
                edges.extend(
                    self.versions
                        .rest(key)
                        .iter()
                        .map(|&rest| (last, next(rest))),
                );
            }
        }
        Ok(Rows::new(self.committed.node_count(), &edges))
    }

    fn components(&self, links: &Rows<Link>) -> Vec<Vec<Node>> {
        components(links.len(), |node, edge| {
            let link = links.row(node as usize).get(edge as usize)?;
            Some((link.to != node).then_some(link.to))
        })
    }

    fn explainer<'e>(&'e self, visible: Visible<'e>) -> Explainer<'e, 'a, 'h> {
        Explainer {
            order: self.order,
            versions: self.versions,
            visible,
            budget: self.budget,
        }
    }

    /// Explains the shortest of `missed`, one for each version that was returned instead.
    fn missed_writes(
        &self,
        kind: AnomalyKind,
        visible: Visible,
        missed: &[Forced],
    ) -> Result<Vec<Anomaly>, Undecided> {
        let explainer = self.explainer(visible);
        let mut told = Vec::new();
        let mut returned: Vec<(Node, crate::history::KeyId)> = Vec::new();
        for &forced in missed {
            if returned.contains(&(forced.newer, forced.key)) {
                continue;
            }
            returned.push((forced.newer, forced.key));
            let visibility = explainer.visibility(forced)?;
            told.extend(explainer.missed_write(kind, forced, &visibility)?);
            if told.len() == Verdict::ANOMALIES_MAX {
                break;
            }
        }
        told.sort_by_key(|anomaly: &Anomaly| anomaly.edges.len());
        Ok(told)
    }

    /// A shortest cycle of each strongly connected component of `links`; empty if there is none.
    fn cycles(
        &self,
        kind: AnomalyKind,
        visible: Visible,
        links: &Rows<Link>,
    ) -> Result<Vec<Anomaly>, Undecided> {
        /// Starts of a search for a shorter cycle: it is wanted to be read, and is not worth minutes.
        const SEARCHES_MAX: usize = 64;
        let explainer = self.explainer(visible);
        let mut anomalies = Vec::new();
        for component in self.components(links).iter().take(Verdict::ANOMALIES_MAX) {
            let is_inside = |node| component.binary_search(&node).is_ok();
            // A cycle is longer than causality, unless it is all causality.
            let starts_cycle = |&&node: &&Node| {
                let mut links = links.row(node as usize).iter();
                links.any(|link| link.kind != EdgeKind::Session && is_inside(link.to))
            };
            let mut best: Option<Vec<Step>> = None;
            for &start in component.iter().filter(starts_cycle).take(SEARCHES_MAX) {
                let along = (&Along::Links(links), &AnyRoute);
                let cycle = shortest(
                    self.order,
                    along,
                    start,
                    is_inside,
                    |node| node == start,
                    self.budget,
                )?;
                let is_shorter =
                    |cycle: &Vec<Step>| best.as_ref().is_none_or(|best| cycle.len() < best.len());
                best = cycle.filter(is_shorter).or(best);
            }
            if let Some(cycle) = best {
                anomalies.push(explainer.cycle(kind, cycle)?);
            }
        }
        Ok(anomalies)
    }
}
