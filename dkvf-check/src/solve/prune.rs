//! Which pairs of versions have only one order that closes no forbidden cycle with what is known.

use crate::check::Budget;
use crate::graph::{Graph, Level, Rules, Scope};
use crate::prepass::Undecided;
use crate::verdict::EdgeKind;

use super::closure::Closure;
use super::pairs::{Claim, Pairs};

/// What is known of the pairs of versions.
pub(super) struct Decided {
    /// By pair: in which round it was decided, from 1, and whether the claim of the pair or its opposite holds.
    decisions: Vec<Option<(u32, bool)>>,
    rounds: u32,
}

/// How deciding ended.
pub(super) enum Outcome {
    /// The pairs that are left have two orders each, as far as one can tell.
    Open(Graph),
    /// Neither order of this pair is possible.
    Impossible(Claim),
    /// What was decided closes a forbidden cycle.
    Cyclic(Graph),
}

impl Decided {
    /// Nothing is decided.
    pub(super) fn none(pairs: &Pairs) -> Self {
        Decided {
            decisions: vec![None; pairs.claims.len()],
            rounds: 0,
        }
    }

    /// Decides what follows from `known`, round by round: each takes O(E V / 64) time for each group and the whole.
    pub(super) fn follow(
        &mut self,
        known: &Graph,
        pairs: &Pairs,
        rules: &Rules,
        budget: &Budget,
    ) -> Result<Outcome, Undecided> {
        loop {
            let graph = pairs.graph_with(known, self.claims(pairs));
            let Some(closures) = closures(&graph, pairs, rules, budget)? else {
                return Ok(Outcome::Cyclic(graph));
            };
            self.rounds += 1;
            let before = self.open_count();
            for (number, &claim) in pairs.claims.iter().enumerate() {
                if self.decisions[number].is_some() {
                    continue;
                }
                budget.spend(2)?;
                let relevant = || {
                    closures
                        .iter()
                        .filter(|(scope, _)| rules.is_in(*scope, claim.key))
                };
                let is_possible = |claim: Claim| {
                    !pairs.edges(claim).any(|(from, link)| {
                        relevant().any(|(_, closure)| closure.closes(from, link.to, link.kind))
                    })
                };
                let holds = match (is_possible(claim), is_possible(claim.opposite())) {
                    (true, true) => continue,
                    (false, false) => return Ok(Outcome::Impossible(claim)),
                    (holds, _) => holds,
                };
                self.decisions[number] = Some((self.rounds, holds));
            }
            if self.open_count() == before {
                return Ok(Outcome::Open(graph));
            }
        }
    }

    /// How many pairs are not decided.
    pub(super) fn open_count(&self) -> usize {
        self.decisions
            .iter()
            .filter(|decision| decision.is_none())
            .count()
    }

    /// The numbers of the pairs that are not decided.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        let numbers = 0..self.decisions.len();
        numbers.filter(|&number| self.decisions[number].is_none())
    }

    /// The claims that hold.
    pub(super) fn claims<'a>(&'a self, pairs: &'a Pairs) -> impl Iterator<Item = Claim> + 'a {
        self.claims_before(pairs, u32::MAX)
    }

    /// The claims that were decided before a round.
    pub(super) fn claims_before<'a>(
        &'a self,
        pairs: &'a Pairs,
        round: u32,
    ) -> impl Iterator<Item = Claim> + 'a {
        pairs
            .claims
            .iter()
            .zip(&self.decisions)
            .filter_map(move |(&claim, decision)| {
                let (decided, holds) = (*decision)?;
                (decided < round).then_some(if holds { claim } else { claim.opposite() })
            })
    }

    /// In which round the claim of a pair, or its opposite, was decided to hold.
    pub(super) fn round(&self, number: usize, is_claim: bool) -> Option<u32> {
        let (round, holds) = self.decisions[number]?;
        (holds == is_claim).then_some(round)
    }

    /// The round that was not finished.
    pub(super) fn last_round(&self) -> u32 {
        self.rounds
    }
}

/// The closure of each scope that the pairs belong to; `None` if one has a forbidden cycle.
fn closures(
    graph: &Graph,
    pairs: &Pairs,
    rules: &Rules,
    budget: &Budget,
) -> Result<Option<Vec<(Scope, Closure)>>, Undecided> {
    let mut closures = Vec::new();
    for scope in rules.scopes(pairs.claims.iter().map(|claim| claim.key)) {
        let level = rules.last_level(scope);
        let graph = graph.only(|key| rules.is_in(scope, key));
        let Some(closure) = Closure::new(&graph, level, budget)? else {
            return Ok(None);
        };
        if level == Level::OneAnti && has_anti_cycle(&graph, &closure) {
            return Ok(None);
        }
        closures.push((scope, closure));
    }
    Ok(Some(closures))
}

/// Whether an anti-dependency of the graph closes a cycle without another one. The product of the graph and an automaton
/// that counts has no such cycle.
fn has_anti_cycle(graph: &Graph, closure: &Closure) -> bool {
    (0..graph.vertex_count() as u32).any(|from| {
        let antis = graph
            .links(from)
            .iter()
            .filter(|link| link.kind == EdgeKind::AntiDependency);
        antis
            .into_iter()
            .any(|link| closure.closes(from, link.to, link.kind))
    })
}
