//! Counterexamples are shrunk to what they need.

use dkvf_check::{
    AnomalyKind, Evidence, History, Ladder, Minimal, Model, Options, Order, Verdict, minimise,
};

use crate::common::{Script, history};

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
        ladder.summary(&skew, Model::Serializable, Order::Session, &anomalies[0]),
        "serializable violated (G2-item, write-skew). strict-serializable falls with it. Holds up to: si. \
         2 of 2 transactions involved. Order included: session."
    );
}
