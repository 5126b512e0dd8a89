//! The search for an order of versions: a SAT solver proposes one, and each forbidden cycle it has is a clause.

use batsat::{Callbacks, Lit, Solver, SolverInterface, SolverOpts, lbool};

use crate::check::Budget;
use crate::graph::{Graph, Part, Rules, Step, suspects};
use crate::model::Order;
use crate::prepass::Undecided;

use super::pairs::{Claim, Pairs};
use super::prune::Decided;

/// Cycles that are looked for in each component of a proposal.
const CYCLES_A_PROPOSAL: usize = 16;

/// What a search found.
pub(super) enum Found {
    /// An order of versions that closes no forbidden cycle.
    Order,
    /// Every order closes one of these cycles.
    None(Vec<Vec<Step>>),
}

/// Ends a search when its budget does.
struct Limit<'a>(&'a Budget<'a>);

impl Callbacks for Limit<'_> {
    fn stop(&self) -> bool {
        self.0.spend(1 << 10).is_err()
    }
}

/// A search for an order of the pairs that are left.
pub(super) struct Search<'a, 'h> {
    pairs: &'a Pairs<'a, 'h>,
    /// What is known.
    graph: &'a Graph,
    rules: &'a Rules<'a>,
    order: Order,
    budget: &'a Budget<'a>,
    solver: Solver<Limit<'a>>,
    /// Pairs that are left, ascending, each with the literal of its claim.
    literals: Vec<(usize, Lit)>,
    /// The cycles found so far, each with the literal that switches its clause on.
    cycles: Vec<(Lit, Vec<Step>)>,
}

impl<'a, 'h> Search<'a, 'h> {
    pub(super) fn new(
        pairs: &'a Pairs<'a, 'h>,
        decided: &Decided,
        graph: &'a Graph,
        (rules, order): (&'a Rules, Order),
        budget: &'a Budget<'a>,
    ) -> Self {
        let mut solver = Solver::new(SolverOpts::default(), Limit(budget));
        let literal = |number| (number, Lit::new(solver.new_var_default(), true));
        let literals = decided.open().map(literal).collect();
        Search {
            pairs,
            graph,
            rules,
            order,
            budget,
            solver,
            literals,
            cycles: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Found, Undecided> {
        loop {
            let switches: Vec<Lit> = self.cycles.iter().map(|&(switch, _)| switch).collect();
            match self.solver.solve_limited(&switches) {
                answer if answer == lbool::FALSE => return Ok(Found::None(self.core())),
                answer if answer == lbool::TRUE => {}
                _ => {
                    self.budget.spend(usize::MAX)?;
                    return Err(Undecided("the SAT solver gave up".to_owned()));
                }
            }
            let cycles = self.forbidden_cycles()?;
            if cycles.is_empty() {
                return Ok(Found::Order);
            }
            for cycle in cycles {
                self.forbid(cycle);
            }
        }
    }

    /// Cycles of the order that the solver proposes.
    fn forbidden_cycles(&self) -> Result<Vec<Vec<Step>>, Undecided> {
        let proposed = self.literals.iter().map(|&(number, literal)| {
            let claim = self.pairs.claims[number];
            let holds = self.solver.value_lit(literal) == lbool::TRUE;
            if holds { claim } else { claim.opposite() }
        });
        let graph = self.pairs.graph_with(self.graph, proposed);
        let mut cycles = Vec::new();
        for component in suspects(&graph, self.rules.all_levels(), self.budget)? {
            let part = Part::new(&graph, component);
            cycles.extend(
                self.rules
                    .several(&part, self.order, CYCLES_A_PROPOSAL, self.budget)?,
            );
        }
        Ok(cycles)
    }

    /// Not all claims of a cycle hold.
    fn forbid(&mut self, cycle: Vec<Step>) {
        let claims = cycle.iter().filter_map(|step| self.pairs.claim_of(step));
        let mut clause: Vec<Lit> = claims
            .filter_map(|claim| self.literal(claim))
            .map(|literal| !literal)
            .collect();
        clause.sort_unstable();
        clause.dedup();
        let switch = Lit::new(self.solver.new_var_default(), true);
        clause.push(!switch);
        self.solver.add_clause_reuse(&mut clause);
        self.cycles.push((switch, cycle));
    }

    /// The literal of a claim about a pair that is left.
    fn literal(&self, claim: Claim) -> Option<Lit> {
        let (number, is_canonical) = self.pairs.number(claim)?;
        let place = self
            .literals
            .binary_search_by_key(&number, |&(number, _)| number)
            .ok()?;
        let literal = self.literals[place].1;
        Some(if is_canonical { literal } else { !literal })
    }

    /// Cycles that cannot all be avoided, none of which can be left out unless the budget ends before that is known.
    fn core(mut self) -> Vec<Vec<Step>> {
        let mut core = self.solver.unsat_core().to_vec();
        let is_switch =
            |core: &[Lit], switch: Lit| core.contains(&switch) || core.contains(&!switch);
        let mut needed: Vec<Lit> = self
            .cycles
            .iter()
            .map(|&(switch, _)| switch)
            .filter(|&switch| is_switch(&core, switch))
            .collect();
        let mut place = 0;
        while place < needed.len() {
            let mut fewer = needed.clone();
            fewer.remove(place);
            if self.solver.solve_limited(&fewer) == lbool::FALSE {
                core = self.solver.unsat_core().to_vec();
                needed = fewer;
                needed.retain(|&switch| is_switch(&core, switch));
            } else {
                place += 1;
            }
        }
        let is_needed = |switch: &Lit| needed.contains(switch);
        let cycles = self
            .cycles
            .into_iter()
            .filter(|(switch, _)| is_needed(switch));
        cycles.map(|(_, cycle)| cycle).collect()
    }
}
