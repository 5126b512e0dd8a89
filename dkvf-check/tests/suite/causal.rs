//! Histories that tell the forms of causal consistency apart, and those of published mistakes.

use crate::common::{changed, history, value};
use dkvf_check::{AnomalyKind, Evidence, History, Model, Options, Order, Verdict};

#[track_caller]
fn assert_satisfied(history: &History, models: &[Model]) {
    for model in models {
        let verdict = model.check(history, &Options::default());
        assert_eq!(
            verdict,
            Verdict::Satisfied,
            "{model}: {}",
            verdict.explain(history)
        );
    }
}

/// Returns the text of the last verdict.
#[track_caller]
fn assert_violated(history: &History, models: &[Model], kind: AnomalyKind) -> String {
    let mut text = String::new();
    for model in models {
        let verdict = model.check(history, &Options::default());
        text = verdict.explain(history).to_string();
        match verdict {
            Verdict::Violated(anomalies) => assert_eq!(anomalies[0].kind, kind, "{model}: {text}"),
            _ => panic!("{model}: {text}"),
        }
    }
    text
}

// The figures of Bouajjani, Enea, Guerraoui and Hamza (POPL 2017), section 3.

#[test]
fn sessions_that_order_two_writes_differently_keep_causal_memory_but_do_not_converge() {
    let history = history(
        "1: w x 1
         1: r x 2
         2: w x 2
         2: r x 1",
    );
    assert_satisfied(&history, &[Model::CausalMemory, Model::CausalWeak]);
    let text = assert_violated(&history, &[Model::Causal], AnomalyKind::ConflictOrderCycle);
    assert!(text.ends_with(": a contradiction"), "{text}");
}

#[test]
fn a_session_may_converge_without_an_order_of_its_own() {
    // Session 2 reads the initial z, so what it knows has x = 1 after x = 2; that puts y = 1 before its own write of y.
    let history = history(
        "1: w z 1
         1: w x 1
         1: w y 1
         2: w x 2
         2: r z
         2: r y 1
         2: r x 2",
    );
    assert_satisfied(&history, &[Model::Causal, Model::CausalWeak]);
    let text = assert_violated(
        &history,
        &[Model::CausalMemory],
        AnomalyKind::UnexplainedSession,
    );
    assert!(
        text.contains("#4 read") || text.contains("read what"),
        "{text}"
    );
}

#[test]
fn weak_causality_lets_a_session_change_its_mind_but_memory_and_convergence_do_not() {
    let history = history(
        "1: w x 1
         2: w x 2
         2: r x 1
         2: r x 2",
    );
    assert_satisfied(&history, &[Model::CausalWeak]);
    assert_violated(&history, &[Model::Causal], AnomalyKind::ConflictOrderCycle);
    assert_violated(
        &history,
        &[Model::CausalMemory],
        AnomalyKind::UnexplainedSession,
    );
}

#[test]
fn a_read_of_what_its_source_replaced_violates_every_form() {
    let history = history(
        "1: w x 1
         1: w y 1
         2: r y 1
         2: w x 2
         3: r x 2
         3: r x 1",
    );
    let models = [Model::CausalWeak, Model::CausalMemory, Model::Causal];
    let text = assert_violated(&history, &models, AnomalyKind::CausalityViolation);
    assert_eq!(
        text,
        "violated\n\
         causality-violation on key x\n  \
         #0 session 1 wrote x = 1 [0..5 us]\n  \
         #1 session 1 wrote y = 1 [10..15 us]\n  \
         #2 session 2 read y = 1 [20..25 us]\n  \
         #3 session 2 wrote x = 2 [30..35 us]\n  \
         #4 session 3 read x = 2 [40..45 us]\n  \
         #5 session 3 read x = 1 [50..55 us]\n  \
         #0 < #1, because #1 comes later in session 1\n  \
         #1 < #2, because #2 read what #1 wrote to y\n  \
         #2 < #3, because #3 comes later in session 2\n  \
         #3 < #4, because #4 read what #3 wrote to x\n  \
         #4 < #5, because #5 comes later in session 3\n  \
         however, #5 < #3, because #5 read what #0 wrote to x, which #3 replaced: a contradiction"
    );
}

// Published mistakes.

#[test]
fn a_read_of_what_its_own_future_writes_is_cyclic() {
    let history = history(
        "1: r x 2
         1: w y 1
         2: r y 1
         2: w x 2",
    );
    let models = [
        Model::CausalWeak,
        Model::CausalMemory,
        Model::Causal,
        Model::WritesFollowReads,
    ];
    assert_violated(&history, &models, AnomalyKind::CyclicCausality);
    assert_satisfied(
        &history,
        &[
            Model::ReadYourWrites,
            Model::MonotonicReads,
            Model::MonotonicWrites,
        ],
    );
}

#[test]
fn a_session_that_moves_to_a_replica_without_its_write_does_not_read_it() {
    let history = history(
        "1: w x 1
         1: r x",
    );
    assert_violated(
        &history,
        &[Model::ReadYourWrites, Model::Pram],
        AnomalyKind::OwnWriteMissed,
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::CausalityViolation);
    assert_satisfied(
        &history,
        &[
            Model::MonotonicReads,
            Model::MonotonicWrites,
            Model::WritesFollowReads,
        ],
    );
}

#[test]
fn a_session_that_moves_to_a_replica_that_lags_reads_backwards() {
    let history = history(
        "1: w x 1
         1: w x 2
         2: r x 2
         2: r x 1",
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::CausalityViolation);
    assert_violated(&history, &[Model::Pram], AnomalyKind::NonMonotonicRead);
    // Without monotonic writes the writer may have meant the other order.
    assert_satisfied(
        &history,
        &[
            Model::ReadYourWrites,
            Model::MonotonicReads,
            Model::MonotonicWrites,
        ],
    );
    let ordered = with_versions(&history, &[("1", 1), ("2", 2)]);
    assert_violated(
        &ordered,
        &[Model::MonotonicReads],
        AnomalyKind::NonMonotonicRead,
    );
}

/// What a skipped dependency check, a stable time that runs ahead, and a dropped entry of a dependency vector show.
fn dependency_missing() -> History {
    history(
        "1: w x 1
         2: r x 1
         2: w y 1
         3: r y 1
         3: r x",
    )
}

#[test]
fn a_write_that_is_applied_before_its_dependency_breaks_causality() {
    let history = dependency_missing();
    let models = [Model::CausalWeak, Model::CausalMemory, Model::Causal];
    let text = assert_violated(&history, &models, AnomalyKind::CausalityViolation);
    assert!(
        text.ends_with(
            "however, #4 < #0, because #0 wrote a newer version of x than the initial one that #4 read: a contradiction"
        ),
        "{text}"
    );
    // Session 3 asks for what its earlier read implied: that is monotonic reads and writes-follow-reads in one.
    assert_satisfied(&history, &[Model::WritesFollowReads, Model::Pram]);
}

#[test]
fn a_snapshot_that_misses_the_dependency_of_what_it_has_breaks_writes_follow_reads() {
    let history = history(
        "1: w x 1
         2: r x 1
         2: w y 1
         3: r y 1, r x",
    );
    assert_violated(
        &history,
        &[Model::WritesFollowReads],
        AnomalyKind::WriteBeforeItsCause,
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::CausalityViolation);
    assert_satisfied(&history, &[Model::Pram, Model::ReadAtomic]);
}

#[test]
fn writes_follow_reads_through_sessions_that_never_read_and_write_at_once() {
    let history = history(
        "1: w x 1
         2: r x 1
         2: w y 1
         3: r y 1
         3: w z 1
         4: r z 1, r x",
    );
    assert_violated(
        &history,
        &[Model::WritesFollowReads],
        AnomalyKind::WriteBeforeItsCause,
    );
}

#[test]
fn a_write_may_be_older_than_what_its_transaction_read_if_only_reads_are_monotonic() {
    // A clock that lags gives x = 2 the smaller stamp. Together with writes-follow-reads that is a contradiction.
    let history = history(
        "1: w x 1
         2: r x 1, w x 2
         3: r x 2
         3: r x 1",
    );
    assert_satisfied(
        &history,
        &[Model::MonotonicReads, Model::Pram, Model::WritesFollowReads],
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::CausalityViolation);
    let reported = changed(&history, |_, _, operation| {
        let text = value(operation).map(|value| history.value(value));
        operation.version = Some(if text == Some(b"2") { 2 } else { 1 });
    });
    assert_violated(
        &reported,
        &[Model::MonotonicReads],
        AnomalyKind::NonMonotonicRead,
    );
}

#[test]
fn a_dependency_on_two_sites_must_not_lose_one_of_them() {
    let history = history(
        "1: w x 1
         2: w y 1
         3: r x 1
         3: r y 1
         3: w z 1
         4: r z 1
         4: r y 1
         4: r x",
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::CausalityViolation);
}

#[test]
fn ties_that_two_sites_resolve_differently_do_not_converge() {
    let history = history(
        "1: w x 1
         2: w x 2
         3: r x 1
         3: r x 2
         4: r x 2
         4: r x 1",
    );
    assert_violated(&history, &[Model::Causal], AnomalyKind::ConflictOrderCycle);
    assert_violated(
        &history,
        &[Model::MonotonicReads],
        AnomalyKind::NonMonotonicRead,
    );
    assert_satisfied(&history, &[Model::CausalMemory]);
}

// Evidence and order.

/// The same with versions by value.
fn with_versions(history: &History, versions: &[(&str, u128)]) -> History {
    changed(history, |_, _, op| {
        let text = value(op).map(|value| history.value(value));
        let version = versions
            .iter()
            .find(|(value, _)| Some(value.as_bytes()) == text);
        op.version = version.map(|&(_, version)| version);
    })
}

#[test]
fn a_stale_read_shows_only_where_the_order_of_versions_is_known() {
    let history = history(
        "1: w x 1
         2: w x 2
         2: r x 1",
    );
    assert_satisfied(&history, &[Model::Causal]);
    let agrees = with_versions(&history, &[("1", 2), ("2", 1)]);
    assert_satisfied(&agrees, &[Model::Causal]);
    let stale = with_versions(&history, &[("1", 1), ("2", 2)]);
    assert_violated(&stale, &[Model::Causal], AnomalyKind::CausalityViolation);
    let black_box = Model::Causal.check(&stale, &Options::with(Evidence::BlackBox));
    assert_eq!(black_box, Verdict::Satisfied);
}

#[test]
fn an_order_of_versions_that_contradicts_causality_is_a_violation_without_any_stale_read() {
    let history = history(
        "1: w x 1
         1: w x 2",
    );
    let backwards = with_versions(&history, &[("1", 2), ("2", 1)]);
    assert_violated(
        &backwards,
        &[Model::Causal],
        AnomalyKind::ConflictOrderCycle,
    );
    assert_violated(
        &backwards,
        &[Model::MonotonicWrites, Model::Pram],
        AnomalyKind::NonMonotonicWrite,
    );
    assert_satisfied(&backwards, &[Model::CausalWeak, Model::ReadYourWrites]);
}

#[test]
fn without_session_order_only_reads_make_causes() {
    let history = history(
        "1: w x 1
         1: r x",
    );
    let options = Options {
        order: Some(Order::None),
        ..Options::default()
    };
    assert_eq!(Model::Causal.check(&history, &options), Verdict::Satisfied);
    let real_time = Options {
        order: Some(Order::RealTime),
        ..Options::default()
    };
    assert_eq!(Model::Causal.check(&history, &real_time).name(), "unknown");
}

#[test]
fn causal_memory_is_not_defined_for_transactions() {
    let history = history("1: w x 1, w y 1");
    let verdict = Model::CausalMemory.check(&history, &Options::default());
    assert_eq!(
        verdict,
        Verdict::Unknown("causal memory is defined for single operations; check causal".to_owned())
    );
}
