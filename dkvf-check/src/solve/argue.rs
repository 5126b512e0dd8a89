//! Why no order of versions is possible.

use std::collections::BTreeSet;

use crate::check::Budget;
use crate::graph::{Graph, Narrator, Part, Rules, Step, suspects, with_scope};
use crate::model::Order;
use crate::prepass::{Committed, Undecided};
use crate::verdict::Anomaly;

use super::pairs::{Claim, Pairs};
use super::prune::Decided;

/// Collects the cycles of an argument.
pub(super) struct Argument<'a, 'h> {
    pub(super) committed: &'a Committed<'h>,
    pub(super) narrator: Narrator<'a, 'h>,
    pub(super) pairs: &'a Pairs<'a, 'h>,
    /// What is known without any claim.
    pub(super) known: &'a Graph,
    pub(super) decided: &'a Decided,
    pub(super) rules: &'a Rules<'a>,
    pub(super) order: Order,
    pub(super) budget: &'a Budget<'a>,
}

/// A cycle, and the claims it refutes together.
struct Refutation {
    claims: Vec<Claim>,
    cycle: Vec<Step>,
}

impl Argument<'_, '_> {
    /// Neither order of a pair is possible.
    pub(super) fn impossible(&self, claim: Claim) -> Result<Anomaly, Undecided> {
        let round = self.decided.last_round();
        let both = [claim, claim.opposite()];
        let refutations = both.map(|claim| self.refute(claim, round));
        let refutations: Result<Vec<_>, _> = refutations.into_iter().collect();
        self.complete(refutations?)
    }

    /// Every order closes one of these cycles.
    pub(super) fn no_order(&self, cycles: Vec<Vec<Step>>) -> Result<Anomaly, Undecided> {
        let refutation = |cycle: Vec<Step>| {
            let claims = self.claims(&cycle);
            let open = claims
                .into_iter()
                .filter(|claim| self.round(*claim).is_none());
            Refutation {
                claims: open.collect(),
                cycle,
            }
        };
        self.complete(cycles.into_iter().map(refutation).collect())
    }

    /// What was decided closes a cycle in `graph`.
    pub(super) fn cyclic(&self, graph: &Graph) -> Result<Anomaly, Undecided> {
        let cycle = self.cycle(graph)?;
        self.complete(vec![Refutation {
            claims: Vec::new(),
            cycle,
        }])
    }

    /// The cycle that a claim closes with what was decided before a round.
    fn refute(&self, claim: Claim, round: u32) -> Result<Refutation, Undecided> {
        let before = self.decided.claims_before(self.pairs, round);
        let claims = before.chain(std::iter::once(claim));
        let graph = self.pairs.graph_with(self.known, claims);
        Ok(Refutation {
            claims: vec![claim],
            cycle: self.cycle(&graph)?,
        })
    }

    fn cycle(&self, graph: &Graph) -> Result<Vec<Step>, Undecided> {
        for component in suspects(graph, self.rules.all_levels(), self.budget)? {
            let part = Part::new(graph, component);
            if let Some(forbidden) = self.rules.worst(&part, self.order, self.budget)? {
                return Ok(forbidden.cycle);
            }
        }
        unreachable!("invariant: the closure of this graph showed a forbidden cycle");
    }

    /// Adds why each decided claim that the refutations use holds, and tells the whole.
    fn complete(&self, mut refutations: Vec<Refutation>) -> Result<Anomaly, Undecided> {
        let mut explained = BTreeSet::new();
        let mut place = 0;
        while let Some(refutation) = refutations.get(place) {
            place += 1;
            for claim in self.claims(&refutation.cycle) {
                let Some(round) = self.round(claim) else {
                    continue;
                };
                if explained.insert(claim) {
                    let reason = self.refute(claim.opposite(), round)?;
                    refutations.push(reason);
                }
            }
        }
        // What a refutation rests on comes first.
        refutations.reverse();
        Ok(self.tell(&refutations))
    }

    fn claims(&self, cycle: &[Step]) -> Vec<Claim> {
        let mut claims: Vec<Claim> = cycle
            .iter()
            .filter_map(|step| self.pairs.claim_of(step))
            .collect();
        claims.sort_unstable();
        claims.dedup();
        claims
    }

    /// In which round a claim was decided to hold.
    fn round(&self, claim: Claim) -> Option<u32> {
        let (number, is_canonical) = self.pairs.number(claim)?;
        self.decided.round(number, is_canonical)
    }

    fn tell(&self, refutations: &[Refutation]) -> Anomaly {
        let is_claimed = |step: &Step| self.pairs.claim_of(step).is_some();
        let parts = refutations.iter().map(|refutation| {
            let suppositions: Vec<String> = refutation
                .claims
                .iter()
                .map(|&claim| self.text(claim))
                .collect();
            (suppositions.join(" and "), &refutation.cycle[..])
        });
        let parts: Vec<(String, &[Step])> = parts.collect();
        let levels = self.rules.all_levels();
        let anomaly = self.narrator.contradiction(levels, &parts, is_claimed);
        let mut scopes = refutations
            .iter()
            .map(|refutation| self.rules.scope_of(&refutation.cycle));
        with_scope(anomaly, self.rules, scopes.find_map(|scope| scope))
    }

    fn text(&self, claim: Claim) -> String {
        let op = |node| {
            self.committed
                .write(node, claim.key)
                .map(|write| write.op())
        };
        format!(
            "{} wrote {} before {}",
            self.narrator.name_with(claim.first, op(claim.first)),
            self.committed.history.key_text(claim.key),
            self.narrator.name_with(claim.second, op(claim.second)),
        )
    }
}
