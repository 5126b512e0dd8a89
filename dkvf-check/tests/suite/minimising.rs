//! Counterexamples are shrunk to what they need.

use dkvf_check::{
    Action, Anomaly, AnomalyKind, Evidence, History, Ladder, Minimal, Model, Options, Order,
    Verdict, minimise,
};

use crate::common::{Script, history};
use crate::drafts::{self, Random, Shape};

/// What is left of a history that violates `model`.
fn minimal(history: &History, model: Model) -> Option<Minimal> {
    let options = Options::with(Evidence::Auto);
    let verdict = model.check(history, &options);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}");
    };
    minimise(history, model, &options, &anomalies[0])
}

#[test]
fn the_shortest_history_that_violates_the_model_is_left() {
    let mut script = Script::default();
    for round in 0..40 {
        script.w(round % 3, &format!("noise-{round}"));
        script.r(4, &format!("noise-{round}"));
    }
    script.write(1, "", "y", "mine");
    script.w(2, "last");
    script.read(1, "", "y", "");
    let whole = script.history;
    let minimal = minimal(&whole, Model::ReadYourWrites).unwrap();
    assert_eq!(minimal.operations, [80, 82]);
    assert_eq!(minimal.anomaly.kind, AnomalyKind::OwnWriteMissed);
    assert_eq!(minimal.anomaly.operations, [0, 1]);
    for (part, &whole_id) in minimal.operations.iter().enumerate() {
        assert_eq!(
            minimal.history.action_text(part).to_string(),
            whole.action_text(whole_id).to_string()
        );
    }
}

#[test]
fn operations_that_the_violation_does_not_need_leave_their_transactions() {
    let whole = history(
        "1: w x a, w y a, w z a
         2: r z a, r x a, r y
         3: r x a, w z b",
    );
    let minimal = minimal(&whole, Model::ReadAtomic).unwrap();
    assert_eq!(minimal.operations, [1, 2, 3, 5]);
}

#[test]
fn a_read_is_never_left_without_its_write() {
    // Of the reads of session 2 only the last two contradict each other.
    let whole = history(
        "1: w x a
         1: w x b
         2: r x a
         3: w y c
         2: r x b
         2: r x a",
    );
    let minimal = minimal(&whole, Model::MonotonicReads).unwrap();
    let verdict = Model::MonotonicReads.check(&minimal.history, &Options::default());
    assert_eq!(verdict, Verdict::Violated(vec![minimal.anomaly.clone()]));
    assert_eq!(minimal.anomaly.kind, AnomalyKind::NonMonotonicRead);
    assert_eq!(minimal.operations, [0, 1, 2, 4, 5]);
}

#[test]
fn final_answers_mean_something_only_in_the_whole() {
    let mut script = Script::default();
    script.write(1, "dc1", "x", "a");
    script.write(2, "dc2", "x", "b");
    script.read(1, "dc1", "x", "a");
    script.read(2, "dc2", "x", "b");
    assert!(minimal(&script.history, Model::Convergence).is_none());
}

const SHAPE: Shape = Shape {
    txns: 8,
    steps: 4,
    sessions: 3,
    keys: 3,
    lists: false,
};

const MODELS: [Model; 5] = [
    Model::ReadAtomic,
    Model::Causal,
    Model::Psi,
    Model::Si,
    Model::Serializable,
];

/// Random histories with the verdicts of a model, without and with the order of versions.
fn judged() -> impl Iterator<Item = (u64, Model, History, Verdict)> {
    let seeds = (0..200).map(|seed| (seed, MODELS[seed as usize % MODELS.len()]));
    seeds.flat_map(|(seed, model)| {
        let (draft, orders) = drafts::random(seed, SHAPE);
        [None, Some(&orders)].map(|orders| {
            let history = draft.history(orders);
            let verdict = model.check(&history, &Options::default());
            (seed, model, history, verdict)
        })
    })
}

#[test]
fn what_is_left_is_violated_and_nothing_more_can_be_left_out() {
    let mut shrunk = 0;
    for (seed, model, history, verdict) in judged() {
        let Verdict::Violated(anomalies) = verdict else {
            continue;
        };
        let options = Options::default();
        let minimal = minimise(&history, model, &options, &anomalies[0]);
        let minimal = minimal.unwrap_or_else(|| panic!("seed {seed}, {model}"));
        let again = model.check(&minimal.history, &options);
        assert_eq!(again.name(), "violated", "seed {seed}, {model}");
        let twice = minimise(&minimal.history, model, &options, &minimal.anomaly).unwrap();
        assert_eq!(
            twice.operations.len(),
            minimal.operations.len(),
            "seed {seed}, {model}"
        );
        shrunk += u32::from(minimal.operations.len() < history.operations().len());
    }
    assert!(shrunk > 50, "{shrunk}");
}

#[test]
fn no_part_of_an_allowed_history_is_violated() {
    let mut tried = 0;
    for (seed, model, history, verdict) in judged() {
        if verdict != Verdict::Satisfied {
            continue;
        }
        let mut random = Random(seed);
        for _ in 0..8 {
            let named = (0..history.operations().len()).filter(|_| random.once_in(2));
            let invented = Anomaly {
                kind: AnomalyKind::WriteSkew,
                key: String::new(),
                operations: named.collect(),
                edges: Vec::new(),
                because: Vec::new(),
            };
            let part = minimise(&history, model, &Options::default(), &invented);
            assert!(part.is_none(), "seed {seed}, {model}: {part:?}");
            tried += 1;
        }
    }
    assert!(tried > 400, "{tried}");
}

#[test]
fn texts_that_are_appended_to_are_not_taken_apart() {
    let mut script = Script::default();
    for (key, text) in [("x", "a"), ("x", "b")] {
        let value = script.value(text).unwrap();
        script.op(1, "", key, Action::Append(value));
    }
    script.r(2, "b");
    assert!(minimal(&script.history, Model::Linearizable).is_none());
}

#[test]
fn a_ladder_says_what_holds_and_what_falls() {
    let skew = history(
        "1: r x, r y, w x a
         2: r x, r y, w y b",
    );
    let mut ladder = Ladder::default();
    let models = [
        Model::ReadAtomic,
        Model::Causal,
        Model::Psi,
        Model::Si,
        Model::Serializable,
    ];
    for model in models {
        let verdict = match model {
            Model::Serializable => Model::Serializable.check(&skew, &Options::default()),
            _ => Verdict::Satisfied,
        };
        ladder.add(model, verdict);
    }
    assert_eq!(ladder.strongest_held(), [Model::Si]);
    assert_eq!(ladder.weakest_refuted(), [Model::Serializable]);
    assert_eq!(
        ladder.refuted_by(Model::StrictSerializable),
        Some(Model::Serializable)
    );
    assert_eq!(ladder.refuted_by(Model::Si), None);
    let Some((_, Verdict::Violated(anomalies))) = ladder.results().last() else {
        panic!("{ladder:?}");
    };
    assert_eq!(
        ladder.summary(
            Model::Serializable,
            Order::Session,
            (&skew, &anomalies[0]),
            &skew
        ),
        "serializable violated (G2-item, write-skew). strict-serializable falls with it. Holds up to: si. \
         2 of 2 transactions involved. Order included: session."
    );
}
