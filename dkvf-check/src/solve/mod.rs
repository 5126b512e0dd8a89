//! Models of transactions where the order of versions is not known: is there one that the model allows?
//!
//! What follows from the known dependencies is decided first; a SAT solver looks for the rest (VERIFICATION, section
//! 3.7; PolySI, VLDB 2023; Viper, EuroSys 2023). The question is NP-complete (Biswas and Enea, OOPSLA 2019), so the
//! budget may end the search.

mod argue;
mod closure;
mod lazy;
mod pairs;
mod prune;

use crate::check::Budget;
use crate::graph::{Graph, Level, Narrator, Rules, Step, Versions};
use crate::model::Order;
use crate::prepass::{Committed, Undecided};
use crate::verdict::Verdict;

use argue::Argument;
use lazy::{Found, Search};
use pairs::Pairs;
use prune::{Decided, Outcome};

/// Judges a history whose known dependencies close no cycle that `rules` forbid.
pub(crate) fn check(
    rules: &Rules,
    order: Order,
    committed: &Committed,
    versions: &Versions,
    budget: &Budget,
) -> Result<Verdict, Undecided> {
    if matches!(rules.last_level(None), Level::Writes | Level::Flow) {
        // Without anti-dependencies any order that agrees with the known dependencies will do.
        return Ok(Verdict::Satisfied);
    }
    let pairs = Pairs::new(committed, versions, budget)?;
    let mut decided = Decided::none(&pairs);
    let known = Graph::new(committed, versions, order, budget)?;
    let result = judge(&pairs, &mut decided, &known, (rules, order), budget);
    let left = decided.open_count();
    let undecided = |Undecided(reason): Undecided| {
        let all = pairs.claims.len();
        Undecided(format!(
            "{reason}; the order of {left} of {all} pairs of versions is left to be decided"
        ))
    };
    let conclusion = result.map_err(undecided)?;
    let argument = Argument {
        committed,
        narrator: Narrator {
            committed,
            versions,
        },
        pairs: &pairs,
        known: &known,
        decided: &decided,
        rules,
        order,
        budget,
    };
    let anomaly = match conclusion {
        Conclusion::Allowed => return Ok(Verdict::Satisfied),
        Conclusion::Impossible(claim) => argument.impossible(claim)?,
        Conclusion::Cyclic(graph) => argument.cyclic(&graph)?,
        Conclusion::NoOrder(cycles) => argument.no_order(cycles)?,
    };
    Ok(Verdict::Violated(vec![anomaly]))
}

enum Conclusion {
    Allowed,
    Impossible(pairs::Claim),
    Cyclic(Graph),
    NoOrder(Vec<Vec<Step>>),
}

fn judge(
    pairs: &Pairs,
    decided: &mut Decided,
    known: &Graph,
    (rules, order): (&Rules, Order),
    budget: &Budget,
) -> Result<Conclusion, Undecided> {
    let graph = match decided.follow(known, pairs, rules, budget)? {
        Outcome::Open(graph) => graph,
        Outcome::Impossible(claim) => return Ok(Conclusion::Impossible(claim)),
        Outcome::Cyclic(graph) => return Ok(Conclusion::Cyclic(graph)),
    };
    let search = Search::new(pairs, decided, &graph, (rules, order), budget);
    Ok(match search.run()? {
        Found::Order => Conclusion::Allowed,
        Found::None(cycles) => Conclusion::NoOrder(cycles),
    })
}
