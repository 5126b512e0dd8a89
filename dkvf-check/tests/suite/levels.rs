//! The models of transactions against their definitions, on thousands of small random histories.

use dkvf_check::{Evidence, Model, Options, Order, Outcome, Verdict};

use crate::drafts::{self, Draft, Orders, Shape};
use crate::oracle;

const ORDERS: [Order; 3] = [Order::None, Order::Session, Order::RealTime];

const TRANSACTIONS: [Model; 9] = [
    Model::ReadUncommitted,
    Model::CommittedReads,
    Model::ReadCommitted,
    Model::ReadAtomic,
    Model::Prefix,
    Model::Psi,
    Model::Si,
    Model::Serializable,
    Model::StrictSerializable,
];

const REGISTERS: Shape = Shape {
    txns: 5,
    steps: 4,
    sessions: 3,
    keys: 3,
    lists: false,
};

/// Counts how often a comparison met each answer, so that a test which compares nothing fails.
#[derive(Default)]
struct Tally {
    satisfied: usize,
    violated: usize,
}

impl Tally {
    fn compare(
        &mut self,
        (draft, seed): (&Draft, u64),
        versions: Option<&Orders>,
        (model, order): (Model, Order),
        evidence: Evidence,
    ) {
        let history = draft.history(versions);
        let options = Options {
            order: Some(order),
            ..Options::with(evidence)
        };
        let verdict = model.check(&history, &options);
        let expected = oracle::allows(draft, model, order, versions);
        let expected = if expected { "satisfied" } else { "violated" };
        if verdict.name() != expected {
            let lines: Vec<String> = (0..history.operations().len())
                .map(|op| history.describe(op).to_string())
                .collect();
            panic!(
                "seed {seed}: {model} with order {order} is {expected} by its definition, not {}\n{}",
                verdict.explain(&history),
                lines.join("\n"),
            );
        }
        match &verdict {
            Verdict::Violated(anomalies) => {
                self.violated += 1;
                let alone = only(draft, &anomalies[0].operations);
                let history = alone.history(versions);
                let again = model.check(&history, &options);
                assert_eq!(
                    again.name(),
                    "violated",
                    "seed {seed}: {model} with order {order}, for {}",
                    anomalies[0].explain(&draft.history(versions))
                );
            }
            _ => self.satisfied += 1,
        }
    }

    fn assert_balanced(&self, what: &str) {
        let Tally {
            satisfied,
            violated,
        } = self;
        let fewest = (satisfied + violated) / 100;
        assert!(
            *satisfied.min(violated) > fewest,
            "{what}: {satisfied} satisfied and {violated} violated are too one-sided"
        );
    }
}

/// The operations of a counterexample and nothing else. Unknown transactions among them were seen to take effect.
fn only(draft: &Draft, operations: &[usize]) -> Draft {
    let mut draft = draft.clone();
    let mut op = 0;
    for txn in &mut draft.txns {
        txn.steps.retain(|_| {
            op += 1;
            operations.contains(&(op - 1))
        });
        if txn.outcome == Outcome::Info {
            txn.outcome = Outcome::Ok;
            txn.complete = u64::MAX;
        }
    }
    draft.txns.retain(|txn| !txn.steps.is_empty());
    draft
}

fn compare_white_box(models: &[Model], shape: Shape, seeds: std::ops::Range<u64>) {
    let mut tallies: Vec<Tally> = models.iter().map(|_| Tally::default()).collect();
    for seed in seeds {
        let (draft, truth) = drafts::random(seed, shape);
        for versions in [&truth, &drafts::shuffled(seed, &truth)] {
            for (&model, tally) in models.iter().zip(&mut tallies) {
                for order in ORDERS {
                    tally.compare(
                        (&draft, seed),
                        Some(versions),
                        (model, order),
                        Evidence::WhiteBox,
                    );
                }
            }
        }
    }
    for (model, tally) in models.iter().zip(&tallies) {
        tally.assert_balanced(model.name());
    }
}

#[test]
fn levels_with_a_known_order_of_versions_are_what_their_definitions_say() {
    compare_white_box(&TRANSACTIONS, REGISTERS, 0..3_000);
}

/// The models that the search for an order of versions decides.
const SEARCHED: [Model; 8] = [
    Model::ReadUncommitted,
    Model::CommittedReads,
    Model::ReadCommitted,
    Model::Prefix,
    Model::Psi,
    Model::Si,
    Model::Serializable,
    Model::StrictSerializable,
];

fn compare_black_box(models: &[Model], shape: Shape, seeds: std::ops::Range<u64>) {
    let mut tallies: Vec<Tally> = models.iter().map(|_| Tally::default()).collect();
    for seed in seeds {
        let (draft, _) = drafts::random(seed, shape);
        for (&model, tally) in models.iter().zip(&mut tallies) {
            for order in ORDERS {
                tally.compare((&draft, seed), None, (model, order), Evidence::BlackBox);
            }
        }
    }
    for (model, tally) in models.iter().zip(&tallies) {
        tally.assert_balanced(model.name());
    }
}

#[test]
fn levels_without_an_order_of_versions_are_what_their_definitions_say() {
    // Read uncommitted is the first; nobody can observe that it is violated.
    compare_black_box(&SEARCHED[1..], REGISTERS, 0..2_000);
}

#[test]
fn levels_of_lists_are_what_their_definitions_say() {
    compare_black_box(
        &SEARCHED,
        Shape {
            lists: true,
            ..REGISTERS
        },
        0..2_000,
    );
}

#[test]
fn sequential_consistency_without_an_order_is_what_its_definition_says() {
    let single = Shape {
        txns: 6,
        steps: 1,
        sessions: 3,
        keys: 2,
        lists: false,
    };
    compare_black_box(&[Model::Sequential], single, 0..3_000);
}

#[test]
fn sequential_consistency_with_a_known_order_is_what_its_definition_says() {
    let single = Shape {
        txns: 6,
        steps: 1,
        sessions: 3,
        keys: 2,
        lists: false,
    };
    compare_white_box(&[Model::Sequential], single, 0..3_000);
}
