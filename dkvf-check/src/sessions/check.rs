//! From a history to a verdict.

use crate::causal::{
    Along, CausalOrder, Explainer, Forced, Route, Visible, by_key, cyclic_causality, missed,
    shortest,
};
use crate::check::{Budget, Options};
use crate::graph::{Step, Versions};
use crate::history::{History, KeyId};
use crate::model::{Model, Order};
use crate::prepass::{Committed, INIT, Node, Undecided};
use crate::verdict::{Anomaly, AnomalyKind, EdgeKind, Verdict};

use super::Guarantee;
use super::seen::Seen;
use super::versions::{Hop, VersionGraph, Why};
use super::window::{Newer, Window, Windows};

/// Judges a session guarantee.
///
/// A write whose outcome is unknown counts once somebody read its value. Takes O(n log n) time for n operations, except
/// that with k sessions writes-follow-reads and pipelined RAM take O(n k log n) at worst; where the order of versions
/// is not known, so much memory, too.
pub(crate) fn check(model: Model, history: &History, options: &Options) -> Verdict {
    match judge(model, history, options) {
        Ok(anomalies) if anomalies.is_empty() => Verdict::Satisfied,
        Ok(anomalies) => Verdict::Violated(anomalies),
        Err(undecided) => undecided.into(),
    }
}

fn judge(model: Model, history: &History, options: &Options) -> Result<Vec<Anomaly>, Undecided> {
    let budget = &options.budget;
    let guarantee = Guarantee::of(model).expect("invariant: a session guarantee");
    if options.order.unwrap_or(model.usual_order()) != Order::Session {
        let reason = format!(
            "{model} is about the order of sessions; there is no {model} without it or with real time"
        );
        return Err(Undecided(reason));
    }
    let committed = Committed::new(history, budget)?;
    let anomalies = committed.anomalies(Model::ReadCommitted);
    if !anomalies.is_empty() {
        return Ok(anomalies);
    }
    let versions = Versions::new(&committed, options.evidence, budget)?;
    // Only writes-follow-reads asks a transaction to be newer than what it read.
    let versions = match guarantee {
        Guarantee::WritesFollowReads => versions,
        _ => versions.without_chains(&committed),
    };
    let order = CausalOrder::new(&committed, Order::Session, budget)?;
    if guarantee == Guarantee::WritesFollowReads && !order.is_acyclic() {
        return cyclic_causality(&order, &versions, budget);
    }
    let seen = match guarantee {
        Guarantee::MonotonicReads | Guarantee::WritesFollowReads => {
            Seen::reads(&committed, budget)?
        }
        _ => Seen::writes(&committed),
    };
    let judge = Judge {
        guarantee,
        committed: &committed,
        versions: &versions,
        order: &order,
        seen: &seen,
        newest: newest(&committed, &versions, &seen),
        budget,
    };
    judge.anomalies()
}

/// By entry: the place of the entry with the newest version that its session knew by then, if the order is known.
fn newest(committed: &Committed, versions: &Versions, seen: &Seen) -> Vec<u32> {
    let mut newest = Vec::with_capacity(seen.len());
    for key in committed.history.keys() {
        let entries = seen.of(key);
        let place = |entry: u32| versions.place(committed, key, entries[entry as usize].writer);
        let mut best: Option<u32> = None;
        for (entry, pair) in (0..).zip(entries) {
            let is_same_session = |other: u32| {
                committed.session(entries[other as usize].at) == committed.session(pair.at)
            };
            best = best
                .filter(|&best| is_same_session(best) && place(best) >= place(entry))
                .or(Some(entry));
            newest.extend(best);
        }
    }
    newest
}

struct Judge<'a, 'h> {
    guarantee: Guarantee,
    committed: &'a Committed<'h>,
    versions: &'a Versions,
    order: &'a CausalOrder<'a, 'h>,
    seen: &'a Seen,
    newest: Vec<u32>,
    budget: &'a Budget<'a>,
}

impl Judge<'_, '_> {
    fn is_open(&self, key: KeyId) -> bool {
        !self.versions.rest(key).is_empty()
    }

    fn anomalies(&self) -> Result<Vec<Anomaly>, Undecided> {
        let mut graph = VersionGraph::new(self.committed, self.versions, self.seen, self.budget)?;
        let mut wrong: Vec<Hop> = Vec::new();
        if self.guarantee.orders_writes() {
            self.order_writes(&mut graph, &mut wrong)?;
        }
        self.transactions_are_atomic(&mut graph, &mut wrong)?;
        let windows = Windows {
            committed: self.committed,
            seen: self.seen,
            budget: self.budget,
        };
        windows.visit(self.guarantee, self.order, |newer, window| {
            self.ask(&mut graph, &mut wrong, newer, window)
        })?;
        if wrong.is_empty() {
            let cycles = graph.cycles(Verdict::ANOMALIES_MAX)?;
            return cycles
                .iter()
                .map(|cycle| self.explain_cycle(cycle))
                .collect();
        }
        self.explain(&wrong)
    }

    /// The writes of a session to a key are ordered.
    fn order_writes(
        &self,
        graph: &mut VersionGraph,
        wrong: &mut Vec<Hop>,
    ) -> Result<(), Undecided> {
        for key in self.committed.history.keys() {
            for pair in self.committed.writers(key).windows(2) {
                let (older, newer) = (pair[0].node, pair[1].node);
                if self.committed.session(older) == self.committed.session(newer) {
                    let hop = Hop {
                        older,
                        newer,
                        key,
                        why: Why::SameSession,
                    };
                    self.require(graph, wrong, hop)?;
                }
            }
        }
        Ok(())
    }

    /// What a transaction read, all its reads take into account.
    fn transactions_are_atomic(
        &self,
        graph: &mut VersionGraph,
        wrong: &mut Vec<Hop>,
    ) -> Result<(), Undecided> {
        for node in self
            .committed
            .nodes()
            .filter(|&node| self.committed.reads(node).len() > 1)
        {
            let reads = by_key(self.committed, node);
            let mut sources: Vec<Node> = reads.iter().map(|&(_, source)| source).collect();
            sources.sort_unstable();
            sources.dedup();
            for older in sources.into_iter().filter(|&source| source != INIT) {
                for (key, newer) in missed(self.committed, older, &reads, self.budget)? {
                    let hop = Hop {
                        older,
                        newer,
                        key,
                        why: Why::Read,
                    };
                    self.require(graph, wrong, hop)?;
                }
            }
        }
        Ok(())
    }

    fn require(
        &self,
        graph: &mut VersionGraph,
        wrong: &mut Vec<Hop>,
        hop: Hop,
    ) -> Result<(), Undecided> {
        if hop.newer != INIT && self.is_open(hop.key) {
            return graph.add(hop.key, hop.older, hop.newer, hop.why);
        }
        let place = |node| self.versions.place(self.committed, hop.key, node);
        if place(hop.older) > place(hop.newer) || hop.newer == INIT {
            self.note(wrong, hop);
        }
        Ok(())
    }

    /// Whether `newer` is newer than all that a window contains.
    fn ask(
        &self,
        graph: &mut VersionGraph,
        wrong: &mut Vec<Hop>,
        newer: Newer,
        window: Window,
    ) -> Result<(), Undecided> {
        if window.is_empty() {
            return Ok(());
        }
        if newer.writer != INIT && self.is_open(newer.key) {
            return graph.add_window(newer, window);
        }
        let last = self.seen.start(newer.key) + window.end - 1;
        let older = self.seen.of(newer.key)[self.newest[last] as usize].writer;
        if older == newer.writer {
            return Ok(());
        }
        let why = if newer.is_read {
            Why::Read
        } else {
            Why::Written
        };
        let hop = Hop {
            older,
            newer: newer.writer,
            key: newer.key,
            why,
        };
        self.require(graph, wrong, hop)
    }

    fn note(&self, wrong: &mut Vec<Hop>, hop: Hop) {
        let is_known = |other: &Hop| (other.newer, other.key) == (hop.newer, hop.key);
        if wrong.len() < Verdict::ANOMALIES_MAX && !wrong.iter().any(is_known) {
            wrong.push(hop);
        }
    }

    fn explainer(&self) -> Explainer<'_, '_, '_> {
        Explainer {
            order: self.order,
            versions: self.versions,
            visible: Visible::Guarantee(self.guarantee),
            budget: self.budget,
        }
    }

    /// What the known order of versions contradicts.
    fn explain(&self, wrong: &[Hop]) -> Result<Vec<Anomaly>, Undecided> {
        let mut anomalies = Vec::new();
        for &hop in wrong {
            let explainer = self.explainer();
            match hop.why {
                Why::Read => {
                    let forced = forced(hop);
                    let visibility = explainer.visibility(forced)?;
                    let kind = self.kind(&visibility);
                    anomalies.extend(explainer.missed_write(kind, forced, &visibility)?);
                }
                _ => {
                    let mut cycle = self.steps(hop)?;
                    cycle.push(Step {
                        from: hop.newer,
                        to: hop.older,
                        kind: EdgeKind::VersionOrder,
                        key: Some(hop.key),
                    });
                    let kind = match hop.why {
                        Why::SameSession => AnomalyKind::NonMonotonicWrite,
                        _ => self.guarantee.anomaly(),
                    };
                    anomalies.push(explainer.cycle(kind, cycle)?);
                }
            }
        }
        anomalies.sort_by_key(|anomaly: &Anomaly| anomaly.edges.len());
        Ok(anomalies)
    }

    /// What of pipelined RAM is violated by a read that sees a write along a path.
    fn kind(&self, visibility: &[Step]) -> AnomalyKind {
        match (self.guarantee, visibility) {
            (
                Guarantee::Pram,
                [
                    Step {
                        kind: EdgeKind::Session,
                        ..
                    },
                ],
            ) => AnomalyKind::OwnWriteMissed,
            (
                Guarantee::Pram,
                [
                    ..,
                    Step {
                        kind: EdgeKind::ReadsFrom,
                        ..
                    },
                ],
            ) => AnomalyKind::NonMonotonicWrite,
            _ => self.guarantee.anomaly(),
        }
    }

    fn explain_cycle(&self, cycle: &[Hop]) -> Result<Anomaly, Undecided> {
        let mut steps = Vec::new();
        for &hop in cycle {
            steps.extend(self.steps(hop)?);
        }
        self.explainer().cycle(self.guarantee.anomaly(), steps)
    }

    fn steps(&self, hop: Hop) -> Result<Vec<Step>, Undecided> {
        let step = |kind, key| Step {
            from: hop.older,
            to: hop.newer,
            kind,
            key,
        };
        Ok(match hop.why {
            Why::Known => vec![step(EdgeKind::VersionOrder, Some(hop.key))],
            Why::SameSession => vec![step(EdgeKind::Session, None)],
            Why::Read | Why::Part => vec![step(EdgeKind::Inferred, Some(hop.key))],
            Why::Written => {
                let route = (&Along::Causality, &Knowledge);
                let is_writer = |node| node == hop.newer;
                let path = shortest(
                    self.order,
                    route,
                    hop.older,
                    |_| true,
                    is_writer,
                    self.budget,
                )?;
                path.unwrap_or_default()
            }
        })
    }
}

fn forced(hop: Hop) -> Forced {
    Forced {
        older: hop.older,
        newer: hop.newer,
        key: hop.key,
    }
}

/// The paths from a write to one whose session had taken it into account.
struct Knowledge;

impl Route for Knowledge {
    const PHASES: usize = Guarantee::PHASES;

    fn step(&self, phase: usize, kind: EdgeKind) -> Option<usize> {
        Guarantee::WritesFollowReads.step(phase, kind)
    }

    fn may_end(&self, phase: usize) -> bool {
        phase == super::phase::READ || phase == super::phase::READ_BEFORE
    }
}
