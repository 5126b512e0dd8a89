//! Causal consistency and the session guarantees against their definitions, on thousands of small random histories.

use dkvf_check::{Evidence, History, Model, Options, Order, Outcome, Verdict};

use crate::causal_oracle::Facts;
use crate::common::changed;
use crate::drafts::{self, Draft, Orders, Shape};

const SINGLE: Shape = Shape {
    txns: 7,
    steps: 1,
    sessions: 3,
    keys: 2,
    lists: false,
};

const TRANSACTIONS: Shape = Shape {
    txns: 5,
    steps: 4,
    sessions: 3,
    keys: 3,
    lists: false,
};

const GUARANTEES: [Model; 5] = [
    Model::ReadYourWrites,
    Model::MonotonicReads,
    Model::MonotonicWrites,
    Model::WritesFollowReads,
    Model::Pram,
];

struct Case<'a> {
    seed: u64,
    draft: &'a Draft,
    versions: Option<&'a Orders>,
    order: Order,
}

impl Case<'_> {
    /// Compares the checker with the definition; whether the model allows the history.
    fn compare(&self, model: Model) -> bool {
        let evidence = match self.versions {
            Some(_) => Evidence::WhiteBox,
            None => Evidence::BlackBox,
        };
        let history = self.draft.history(self.versions);
        let options = Options {
            order: Some(self.order),
            ..Options::with(evidence)
        };
        let verdict = model.check(&history, &options);
        let facts = Facts::new(self.draft, self.versions);
        let is_allowed =
            facts.is_some_and(|facts| facts.allows(model, self.order == Order::Session));
        let expected = if is_allowed { "satisfied" } else { "violated" };
        assert!(
            verdict.name() == expected,
            "seed {}: {model} with order {} is {expected} by its definition, not {}\n{}",
            self.seed,
            self.order,
            verdict.explain(&history),
            text(&history),
        );
        if let Verdict::Violated(anomalies) = verdict {
            let anomaly = &anomalies[0];
            assert!(!anomaly.because.is_empty(), "seed {}", self.seed);
            assert_stands_alone(self, model, &history, &anomaly.operations);
        }
        is_allowed
    }
}

fn text(history: &History) -> String {
    let lines = (0..history.operations().len()).map(|op| history.describe(op).to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// The transactions of a counterexample are a violation of their own, when others keep only their writes.
fn assert_stands_alone(case: &Case, model: Model, history: &History, operations: &[usize]) {
    let named: Vec<usize> = operations.iter().map(|&op| history.owner(op)).collect();
    let alone = changed(history, |op, transaction, _| {
        let is_write = history.operations()[op].action.is_write();
        match (is_write, named.contains(&history.owner(op))) {
            (false, false) if history.is_single() => transaction.outcome = Outcome::Info,
            // An unknown write may count only for a read that is dropped here.
            (true, true) if transaction.outcome == Outcome::Info => {
                transaction.outcome = Outcome::Ok
            }
            _ => {}
        }
    });
    let evidence = match case.versions {
        Some(_) => Evidence::Auto,
        None => Evidence::BlackBox,
    };
    let options = Options {
        order: Some(case.order),
        ..Options::with(evidence)
    };
    let verdict = model.check(&alone, &options);
    assert_eq!(
        verdict.name(),
        "violated",
        "seed {}: {model}, operations {operations:?} are no counterexample\n{}",
        case.seed,
        text(history),
    );
}

/// Compares `models` on histories of `shape`, black-box and white-box, with the order that the generator used and with
/// another one.
fn compare(models: &[Model], shape: Shape, order: Order, seeds: std::ops::Range<u64>) {
    let total = seeds.end - seeds.start;
    let mut violations = vec![0; models.len()];
    for seed in seeds {
        let (draft, orders) = drafts::random(seed, shape);
        let other = drafts::shuffled(seed, &orders);
        for versions in [None, Some(&orders), Some(&other)] {
            let case = Case {
                seed,
                draft: &draft,
                versions,
                order,
            };
            for (model, violations) in models.iter().zip(&mut violations) {
                *violations += u64::from(!case.compare(*model));
            }
        }
    }
    for (model, violations) in models.iter().zip(violations) {
        let share = violations * 100 / (3 * total);
        assert!(
            (5..95).contains(&share),
            "{model}: {share} % of the histories are violations"
        );
    }
}

#[test]
fn causal_consistency_of_single_operations_is_what_its_definition_says() {
    let models = [Model::Causal, Model::CausalWeak, Model::CausalMemory];
    compare(&models, SINGLE, Order::Session, 0..2_000);
}

#[test]
fn causal_consistency_of_transactions_is_what_its_definition_says() {
    for order in [Order::Session, Order::None] {
        compare(
            &[Model::Causal, Model::CausalWeak],
            TRANSACTIONS,
            order,
            3_000..4_500,
        );
    }
}

#[test]
fn session_guarantees_of_single_operations_are_what_their_definitions_say() {
    compare(&GUARANTEES, SINGLE, Order::Session, 5_000..7_500);
}

#[test]
fn session_guarantees_of_transactions_are_what_their_definitions_say() {
    compare(&GUARANTEES, TRANSACTIONS, Order::Session, 8_000..10_000);
}

/// The models of this file and those between them, weakest first.
const LADDER: [Model; 12] = [
    Model::CommittedReads,
    Model::ReadUncommitted,
    Model::ReadCommitted,
    Model::ReadAtomic,
    Model::ReadYourWrites,
    Model::MonotonicReads,
    Model::MonotonicWrites,
    Model::WritesFollowReads,
    Model::Pram,
    Model::CausalWeak,
    Model::CausalMemory,
    Model::Causal,
];

#[test]
fn whoever_violates_a_model_violates_those_that_include_it() {
    let mut consequences = 0;
    for seed in 20_000..23_000 {
        let shape = if seed % 2 == 0 { SINGLE } else { TRANSACTIONS };
        let (draft, orders) = drafts::random(seed, shape);
        let other = drafts::shuffled(seed, &orders);
        for (versions, evidence) in [
            (None, Evidence::BlackBox),
            (Some(&orders), Evidence::WhiteBox),
            (Some(&other), Evidence::WhiteBox),
        ] {
            let history = draft.history(versions);
            let verdicts = LADDER.map(|model| model.check(&history, &Options::with(evidence)));
            for (model, verdict) in LADDER.iter().zip(&verdicts) {
                for (weaker, violated) in LADDER.iter().zip(&verdicts) {
                    if model.implies(*weaker) && violated.name() == "violated" {
                        consequences += usize::from(model != weaker);
                        assert!(
                            verdict.name() != "satisfied",
                            "seed {seed}: {weaker} is violated, yet {model} is not\n{}",
                            text(&history),
                        );
                    }
                }
            }
        }
    }
    assert!(consequences > 1_000, "{consequences}");
}
