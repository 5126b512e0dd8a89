//! Causal consistency and the session guarantees against their definitions, on thousands of small random histories.

use std::collections::BTreeMap;

use dkvf_check::{Evidence, History, Model, Options, Order, Outcome, Verdict};

use crate::causal_oracle::Facts;
use crate::common::changed;
use crate::drafts::{self, Draft, Orders, Random, Shape, Step, Txn, Value};

const SINGLE: Shape = Shape {
    txns: 7,
    steps: 1,
    sessions: 3,
    keys: 2,
    lists: false,
};

/// Sessions that meet on one key read it often enough to go backwards.
const ONE_KEY: Shape = Shape {
    txns: 8,
    steps: 1,
    sessions: 2,
    keys: 1,
    lists: false,
};

const TRANSACTIONS: Shape = Shape {
    txns: 5,
    steps: 4,
    sessions: 3,
    keys: 3,
    lists: false,
};

/// What is read in one transaction is written on in another one.
const SHORT_TRANSACTIONS: Shape = Shape {
    txns: 8,
    steps: 2,
    sessions: 3,
    keys: 2,
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

/// Compares `models` on histories of `shapes` in turn, black-box and white-box, with the order that the generator used
/// and with another one. Fails if a model allows, or forbids, hardly any history by one kind of evidence.
fn compare(models: &[Model], shapes: &[Shape], order: Order, seeds: std::ops::Range<u64>) {
    /// Of a hundred histories. Monotonic writes of single operations ask for nothing that sessions do not, so clients
    /// see them violated only where a value makes no sense.
    const SHARE_MIN: u64 = 1;
    let total = seeds.end - seeds.start;
    // By kind of evidence and model.
    let mut violations = [(); 3].map(|()| vec![0; models.len()]);
    for seed in seeds {
        let shape = shapes[seed as usize % shapes.len()];
        let (draft, orders) = drafts::random(seed, shape);
        let other = drafts::shuffled(seed, &orders);
        let evidence = [None, Some(&orders), Some(&other)];
        for (versions, violations) in evidence.into_iter().zip(&mut violations) {
            let case = Case {
                seed,
                draft: &draft,
                versions,
                order,
            };
            for (model, violations) in models.iter().zip(violations) {
                *violations += u64::from(!case.compare(*model));
            }
        }
    }
    for violations in violations {
        for (model, violations) in models.iter().zip(violations) {
            let share = violations * 100 / total;
            assert!(
                (SHARE_MIN..=100 - SHARE_MIN).contains(&share),
                "{model}: {share} % of the histories are violations"
            );
        }
    }
}

#[test]
fn causal_consistency_of_single_operations_is_what_its_definition_says() {
    let models = [Model::Causal, Model::CausalWeak, Model::CausalMemory];
    compare(&models, &[SINGLE], Order::Session, 0..2_000);
}

/// A session that writes, and another one that reads all kinds of things and writes once. What its reads force often
/// makes other reads force more.
fn writer_and_reader(seed: u64) -> Draft {
    let mut random = Random(seed);
    let mut key = || random.below(3) as usize;
    let mut steps: Vec<(u32, Step)> = (1..=3)
        .map(|value| (0, Step::Write(key(), value)))
        .collect();
    steps.push((1, Step::Write(key(), 4)));
    for _ in 0..4 {
        let key = random.below(3) as usize;
        let writes = steps.iter().filter(|(_, step)| step.key() == key);
        let written = writes.filter_map(|(_, step)| step.written());
        let values: Vec<Value> = std::iter::once(0).chain(written).collect();
        let value = values[random.below(values.len() as u64) as usize];
        let place = 3 + random.below(steps.len() as u64 - 2) as usize;
        steps.insert(place, (1, Step::Read(key, value)));
    }
    let transaction = |(session, step): (u32, Step), invoke| Txn {
        session,
        invoke,
        complete: invoke + 5,
        outcome: Outcome::Ok,
        steps: vec![step],
    };
    let txns = steps.into_iter().zip((0..).step_by(10));
    Draft {
        txns: txns
            .map(|(step, invoke)| transaction(step, invoke))
            .collect(),
        keys: 3,
    }
}

#[test]
fn causal_memory_of_a_session_that_knows_another_is_what_its_definition_says() {
    let mut violations = 0;
    for seed in 0..20_000 {
        let draft = writer_and_reader(seed);
        let case = Case {
            seed,
            draft: &draft,
            versions: None,
            order: Order::Session,
        };
        violations += usize::from(!case.compare(Model::CausalMemory));
    }
    assert!((2_000..18_000).contains(&violations), "{violations}");
}

#[test]
fn causal_consistency_of_transactions_is_what_its_definition_says() {
    for order in [Order::Session, Order::None] {
        compare(
            &[Model::Causal, Model::CausalWeak],
            &[TRANSACTIONS],
            order,
            3_000..4_500,
        );
    }
}

#[test]
fn session_guarantees_of_single_operations_are_what_their_definitions_say() {
    compare(
        &GUARANTEES,
        &[SINGLE, ONE_KEY],
        Order::Session,
        5_000..7_500,
    );
}

#[test]
fn session_guarantees_of_transactions_are_what_their_definitions_say() {
    compare(
        &GUARANTEES,
        &[TRANSACTIONS, SHORT_TRANSACTIONS],
        Order::Session,
        8_000..12_000,
    );
}

/// Lets a session continue as another one after an unknown outcome: real time would not order what follows after it,
/// but session order does.
fn restart(draft: &mut Draft) {
    let sessions = draft.txns.iter().map(|txn| txn.session + 1);
    let mut next = sessions.max().unwrap_or(0);
    for place in 0..draft.txns.len() {
        let (before, later) = draft.txns.split_at_mut(place + 1);
        let session = before[place].session;
        if before[place].outcome == Outcome::Info {
            let rest = later.iter_mut().filter(|txn| txn.session == session);
            rest.for_each(|txn| txn.session = next);
            next += 1;
        }
    }
}

#[test]
fn whoever_violates_a_model_violates_those_that_include_it() {
    // By a model and one that it directly includes: the histories that violate both.
    let mut fallen: BTreeMap<(Model, Model), usize> = BTreeMap::new();
    for seed in 20_000..22_000 {
        let shape = if seed % 2 == 0 { SINGLE } else { TRANSACTIONS };
        let (mut draft, orders) = drafts::random(seed, shape);
        restart(&mut draft);
        let other = drafts::shuffled(seed, &orders);
        for (versions, evidence) in [
            (None, Evidence::BlackBox),
            (Some(&orders), Evidence::WhiteBox),
            (Some(&other), Evidence::WhiteBox),
        ] {
            let history = draft.history(versions);
            let verdict = |model: Model| model.check(&history, &Options::with(evidence)).name();
            let verdicts: BTreeMap<Model, &str> = Model::ALL
                .into_iter()
                .map(|model| (model, verdict(model)))
                .collect();
            for (model, verdict) in &verdicts {
                // Linearizability is judged by what clients saw, whatever the protocol reports.
                if *model == Model::Linearizable && versions.is_some() {
                    continue;
                }
                for weaker in model.includes() {
                    if verdicts[weaker] != "violated" {
                        continue;
                    }
                    assert!(
                        *verdict != "satisfied",
                        "seed {seed}: {weaker} is violated, yet {model} is not\n{}",
                        text(&history),
                    );
                    let count = fallen.entry((*model, *weaker)).or_default();
                    *count += usize::from(*verdict == "violated");
                }
            }
        }
    }
    for model in Model::ALL {
        for weaker in model.includes() {
            let count = fallen.get(&(model, *weaker)).copied().unwrap_or(0);
            assert!(count >= 20, "{model} and {weaker}: {count} histories");
        }
    }
}
