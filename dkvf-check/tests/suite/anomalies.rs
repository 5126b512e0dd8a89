//! For each anomaly a history that has it and a neighbour that has not.

use crate::common::{Script, changed, value};
use dkvf_check::{
    Action, AnomalyKind, Budget, Evidence, History, Model, OpId, Options, Outcome, Verdict,
};

fn convergence(history: &History, evidence: Evidence) -> Verdict {
    Model::Convergence.check(history, &Options::with(evidence))
}

fn monotonic_reads(history: &History, evidence: Evidence) -> Verdict {
    Model::MonotonicReads.check(history, &Options::with(evidence))
}

fn read_your_writes(history: &History, evidence: Evidence) -> Verdict {
    Model::ReadYourWrites.check(history, &Options::with(evidence))
}

fn script(write: impl FnOnce(&mut Script)) -> History {
    let mut script = Script::default();
    write(&mut script);
    script.history
}

/// The history with the versions that each value is said to have.
fn with_versions(history: &History, versions: &[(&str, u128)]) -> History {
    changed(history, |_, _, op| {
        let text = value(op).map(|value| history.value(value));
        op.version = versions
            .iter()
            .find(|(value, _)| Some(value.as_bytes()) == text)
            .map(|&(_, version)| version);
    })
}

fn with_outcome(history: &History, changed_id: OpId, outcome: Outcome) -> History {
    changed(history, |id, transaction, _| {
        if id == changed_id {
            transaction.outcome = outcome;
        }
    })
}

#[track_caller]
fn assert_violated(verdict: &Verdict, kind: AnomalyKind, operations: &[OpId]) {
    match verdict {
        Verdict::Violated(anomalies) => {
            assert_eq!(anomalies.len(), 1, "{anomalies:?}");
            assert_eq!(anomalies[0].kind, kind);
            assert_eq!(anomalies[0].operations, operations);
            assert!(!anomalies[0].because.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_unknown(verdict: &Verdict, part_of_reason: &str) {
    match verdict {
        Verdict::Unknown(reason) => assert!(reason.contains(part_of_reason), "{reason}"),
        other => panic!("{other:?}"),
    }
}

// Values that make no sense under any model.

#[test]
fn a_value_that_nobody_wrote_is_thin_air() {
    let mut history = script(|s| {
        s.w(1, "a");
        s.r(2, "b");
    });
    for model in Model::ALL {
        assert_violated(
            &model.check(&history, &Options::default()),
            AnomalyKind::ThinAirRead,
            &[1],
        );
    }
    // The same value on another key does not explain it.
    let mut elsewhere = Script { history };
    elsewhere.write(3, "", "y", "b");
    history = elsewhere.history;
    assert_violated(
        &read_your_writes(&history, Evidence::Auto),
        AnomalyKind::ThinAirRead,
        &[1],
    );
}

#[test]
fn a_value_whose_write_failed_must_not_be_read() {
    let history = script(|s| {
        s.w(1, "a");
        s.r(2, "a");
    });
    assert_eq!(
        monotonic_reads(&history, Evidence::Auto),
        Verdict::Satisfied
    );
    assert_violated(
        &monotonic_reads(&with_outcome(&history, 0, Outcome::Fail), Evidence::Auto),
        AnomalyKind::AbortedRead,
        &[0, 1],
    );
    assert_eq!(
        monotonic_reads(&with_outcome(&history, 0, Outcome::Info), Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn a_repeated_value_leaves_the_verdict_open() {
    let history = script(|s| {
        s.w(1, "a");
        s.w(2, "a");
    });
    assert_unknown(
        &read_your_writes(&history, Evidence::Auto),
        "the value a was written twice to key x (#0 and #1)",
    );
}

// Read your writes.

#[test]
fn the_initial_version_after_an_own_write_is_a_violation() {
    let history = script(|s| {
        s.w(1, "a");
        s.r(1, "");
    });
    for history in [&history, &with_versions(&history, &[("a", 1)])] {
        assert_violated(
            &read_your_writes(history, Evidence::Auto),
            AnomalyKind::OwnWriteMissed,
            &[0, 1],
        );
    }
    // Another session owes nothing to that write, nor does a read before it.
    let other = script(|s| {
        s.r(1, "");
        s.w(1, "a");
        s.r(2, "");
    });
    assert_eq!(read_your_writes(&other, Evidence::Auto), Verdict::Satisfied);
}

#[test]
fn an_own_write_is_missed_when_the_version_order_says_so() {
    let history = script(|s| {
        s.w(2, "old");
        s.w(1, "new");
        s.r(1, "old");
    });
    assert_eq!(
        read_your_writes(&history, Evidence::Auto),
        Verdict::Satisfied,
        "clients cannot tell that old is older"
    );
    let told = with_versions(&history, &[("old", 1), ("new", 2)]);
    let verdict = read_your_writes(&told, Evidence::Auto);
    assert_violated(&verdict, AnomalyKind::OwnWriteMissed, &[1, 2, 0]);
    assert_eq!(
        verdict.explain(&told).to_string(),
        "violated\n\
         own-write-missed on key x\n  \
         #1 session 1 wrote x = new (version 0x2) [10..15 us]\n  \
         #2 session 1 read x = old (version 0x1) [20..25 us]\n  \
         #0 session 2 wrote x = old (version 0x1) [0..5 us]\n  \
         #1 < #2, because #2 comes later in session 1\n  \
         however, #2 < #1, because #1 wrote a newer version of x than the one that #2 read, \
         as the protocol reports: a contradiction"
    );
    assert_eq!(
        read_your_writes(&told, Evidence::BlackBox),
        Verdict::Satisfied
    );
    let agrees = with_versions(&history, &[("old", 3), ("new", 2)]);
    assert_eq!(
        read_your_writes(&agrees, Evidence::WhiteBox),
        Verdict::Satisfied
    );
}

#[test]
fn two_sessions_that_each_miss_their_own_write_contradict_each_other() {
    let history = script(|s| {
        s.w(1, "a");
        s.w(2, "b");
        s.r(1, "b");
        s.r(2, "a");
    });
    let verdict = read_your_writes(&history, Evidence::Auto);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::OwnWriteMissed);
    let mut operations = anomalies[0].operations.clone();
    operations.sort_unstable();
    assert_eq!(operations, [0, 1, 2, 3]);
    assert_eq!(anomalies[0].because.len(), 4);
    let text = verdict.explain(&history).to_string();
    assert!(
        text.contains("#0 < #1, because #2 read what #1 wrote to x although it comes after #0"),
        "{text}"
    );
    assert!(text.ends_with(": a contradiction"), "{text}");

    let one_direction = script(|s| {
        s.w(1, "a");
        s.w(2, "b");
        s.r(1, "b");
        s.r(2, "b");
    });
    assert_eq!(
        read_your_writes(&one_direction, Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn an_older_own_write_is_allowed_once_but_not_in_both_orders() {
    // Without monotonic writes the arbitration may put the second write first.
    let once = script(|s| {
        s.w(1, "a");
        s.w(1, "b");
        s.r(1, "a");
    });
    assert_eq!(read_your_writes(&once, Evidence::Auto), Verdict::Satisfied);
    let both = script(|s| {
        s.w(1, "a");
        s.w(1, "b");
        s.r(1, "a");
        s.r(1, "b");
    });
    assert_eq!(read_your_writes(&both, Evidence::Auto).name(), "violated");
}

#[test]
fn many_own_writes_before_a_foreign_read_all_precede_it() {
    // "c" must follow a and b, yet its own session reads a after writing c.
    let history = script(|s| {
        s.w(1, "a");
        s.w(1, "b");
        s.r(1, "c");
        s.w(2, "c");
        s.r(2, "a");
    });
    let verdict = read_your_writes(&history, Evidence::Auto);
    assert_eq!(verdict.name(), "violated");
    let text = verdict.explain(&history).to_string();
    assert!(
        text.contains("#0 < #3, because #2 read what #3 wrote to x although it comes after #0"),
        "{text}"
    );
    // Reading an own write afterwards is no contradiction: the foreign one
    // need not be remembered.
    let legal = script(|s| {
        s.w(2, "c");
        s.w(1, "a");
        s.w(1, "b");
        s.r(1, "c");
        s.r(1, "a");
    });
    assert_eq!(read_your_writes(&legal, Evidence::Auto), Verdict::Satisfied);
}

#[test]
fn own_writes_after_an_own_read_are_remembered_too() {
    let history = script(|s| {
        s.w(2, "c");
        s.w(1, "a");
        s.w(1, "b");
        s.r(1, "c");
        s.r(1, "a");
        s.w(1, "d");
        s.w(3, "e");
        s.r(1, "e");
        s.r(3, "d");
    });
    let verdict = read_your_writes(&history, Evidence::Auto);
    assert_eq!(verdict.name(), "violated");
    let text = verdict.explain(&history).to_string();
    assert!(
        text.contains("#6 < #5, because #8 read what #5 wrote to x although it comes after #6"),
        "{text}"
    );
}

#[test]
fn an_unknown_write_binds_its_session_only_once_it_was_read() {
    let history = script(|s| {
        s.w(1, "a");
        s.r(1, "");
    });
    let unread = with_outcome(&history, 0, Outcome::Info);
    assert_eq!(
        read_your_writes(&unread, Evidence::Auto),
        Verdict::Satisfied
    );
    let mut read = Script { history: unread };
    read.r(2, "a");
    assert_violated(
        &read_your_writes(&read.history, Evidence::Auto),
        AnomalyKind::OwnWriteMissed,
        &[0, 1],
    );
    for outcome in [Outcome::Fail, Outcome::Info] {
        assert_eq!(
            read_your_writes(&with_outcome(&history, 1, outcome), Evidence::Auto),
            Verdict::Satisfied,
            "a read without an answer constrains nothing"
        );
    }
}

#[test]
fn keys_do_not_mix() {
    let history = script(|s| {
        s.w(1, "a");
        s.read(1, "", "y", "");
    });
    assert_eq!(
        read_your_writes(&history, Evidence::Auto),
        Verdict::Satisfied
    );
    assert_eq!(
        monotonic_reads(&history, Evidence::Auto),
        Verdict::Satisfied
    );
}

// Monotonic reads.

#[test]
fn the_initial_version_after_a_written_one_is_a_violation() {
    let history = script(|s| {
        s.w(2, "a");
        s.r(1, "");
        s.r(1, "a");
        s.r(1, "");
    });
    for history in [&history, &with_versions(&history, &[("a", 1)])] {
        assert_violated(
            &monotonic_reads(history, Evidence::Auto),
            AnomalyKind::NonMonotonicRead,
            &[0, 2, 3],
        );
    }
    assert_eq!(
        read_your_writes(&history, Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn going_back_to_a_version_left_behind_is_a_violation() {
    let history = script(|s| {
        s.w(2, "a");
        s.w(3, "b");
        s.r(1, "a");
        s.r(1, "b");
        s.r(1, "a");
    });
    let verdict = monotonic_reads(&history, Evidence::Auto);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}");
    };
    let mut operations = anomalies[0].operations.clone();
    operations.sort_unstable();
    assert_eq!(operations, [0, 1, 2, 3, 4]);
    assert_violated(
        &monotonic_reads(
            &with_versions(&history, &[("a", 1), ("b", 2)]),
            Evidence::Auto,
        ),
        AnomalyKind::NonMonotonicRead,
        &[1, 3, 4, 0],
    );
}

#[test]
fn sessions_that_see_two_writes_in_both_orders_contradict_each_other() {
    let history = script(|s| {
        s.w(3, "a");
        s.w(4, "b");
        s.r(1, "a");
        s.r(1, "b");
        s.r(2, "b");
        s.r(2, "a");
    });
    assert_eq!(monotonic_reads(&history, Evidence::Auto).name(), "violated");
    assert_violated(
        &monotonic_reads(
            &with_versions(&history, &[("a", 1), ("b", 2)]),
            Evidence::WhiteBox,
        ),
        AnomalyKind::NonMonotonicRead,
        &[1, 4, 5, 0],
    );
    let same_order = changed(&history, |id, _, op| {
        if let 4 | 5 = id {
            op.action = history.operations()[id - 2].action;
        }
    });
    assert_eq!(
        monotonic_reads(&same_order, Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn the_order_within_a_session_is_that_of_time_not_of_the_file() {
    let mut s = Script::default();
    s.w(2, "a");
    let late = s.r(1, "a");
    let early = s.r(1, "");
    let swapped = changed(&s.history, |id, transaction, _| {
        if id == late {
            transaction.invoke_us = 100;
        } else if id == early {
            transaction.invoke_us = 50;
        }
    });
    assert_eq!(
        monotonic_reads(&s.history, Evidence::Auto).name(),
        "violated"
    );
    assert_eq!(
        monotonic_reads(&swapped, Evidence::Auto),
        Verdict::Satisfied
    );
}

// Evidence.

/// Two versions of one key, both of which were read.
fn two_versions() -> History {
    script(|s| {
        s.w(1, "a");
        s.w(2, "b");
        s.r(3, "a");
        s.r(4, "b");
    })
}

#[test]
fn contradictory_witnesses_leave_a_white_box_verdict_open() {
    let history = changed(&two_versions(), |id, _, op| op.version = Some(id as u128));
    assert_unknown(
        &monotonic_reads(&history, Evidence::WhiteBox),
        "one version of key x is reported as 0x0 (#0) and as 0x2 (#2)",
    );
    for evidence in [Evidence::Auto, Evidence::BlackBox] {
        assert_eq!(monotonic_reads(&history, evidence), Verdict::Satisfied);
    }
}

#[test]
fn two_values_of_one_version_leave_a_white_box_verdict_open() {
    let history = with_versions(&two_versions(), &[("a", 7), ("b", 7)]);
    assert_unknown(
        &monotonic_reads(&history, Evidence::WhiteBox),
        "same version 0x7",
    );
}

#[test]
fn white_box_evidence_asks_for_every_version() {
    let history = two_versions();
    assert_unknown(
        &monotonic_reads(&history, Evidence::WhiteBox),
        "the version of key x that #0 wrote is not known",
    );
    let by_readers = changed(&history, |id, _, op| {
        op.version = (id >= 2).then_some(id as u128);
    });
    assert_eq!(
        monotonic_reads(&by_readers, Evidence::WhiteBox),
        Verdict::Satisfied,
        "one witness is enough"
    );
}

#[test]
fn an_incomplete_history_is_never_judged() {
    let mut history = script(|s| {
        s.w(1, "a");
        s.r(1, "");
    });
    history.mark_incomplete("the recorder was full after 2 operations");
    for model in Model::ALL {
        assert_unknown(
            &model.check(&history, &Options::default()),
            "recorder was full",
        );
    }
}

// Convergence.

/// Two sites, one write at dc1, final reads with the given answers.
fn finals(dc1: &str, dc2: &str) -> History {
    script(|s| {
        s.write(1, "dc1", "x", "a");
        s.write(2, "dc2", "x", "b");
        s.read(1, "dc1", "x", dc1);
        s.read(2, "dc2", "x", dc2);
    })
}

#[test]
fn replicas_that_answer_alike_have_converged() {
    assert_eq!(
        convergence(&finals("a", "a"), Evidence::Auto),
        Verdict::Satisfied
    );
    assert_eq!(
        convergence(&finals("b", "b"), Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn replicas_that_answer_differently_have_diverged() {
    let history = finals("a", "b");
    let verdict = convergence(&history, Evidence::Auto);
    assert_violated(&verdict, AnomalyKind::Divergence, &[2, 3]);
    let text = verdict.explain(&history).to_string();
    assert!(
        text.ends_with("  dc1 answers a (#2)\n  dc2 answers b (#3)"),
        "{text}"
    );
}

#[test]
fn an_acknowledged_write_must_survive() {
    let history = finals("", "");
    assert_violated(
        &convergence(&history, Evidence::Auto),
        AnomalyKind::LostWrite,
        &[0, 2],
    );
    let unknown = changed(&history, |_, transaction, op| {
        if let Action::Write(_) = op.action {
            transaction.outcome = Outcome::Info;
        }
    });
    assert_eq!(
        convergence(&unknown, Evidence::Auto),
        Verdict::Satisfied,
        "writes of unknown outcome may never have happened"
    );
    let mut seen = Script { history: unknown };
    let read = seen.read(3, "dc1", "x", "b");
    let seen_early = changed(&seen.history, |id, transaction, _| {
        if id == read {
            transaction.invoke_us = 12;
        }
    });
    assert_violated(
        &convergence(&seen_early, Evidence::Auto),
        AnomalyKind::LostWrite,
        &[1, 2],
    );
}

#[test]
fn the_last_state_is_the_newest_version_where_the_order_is_known() {
    let history = finals("a", "a");
    let newest = with_versions(&history, &[("a", 2), ("b", 1)]);
    assert_eq!(convergence(&newest, Evidence::Auto), Verdict::Satisfied);
    let lost = with_versions(&history, &[("a", 1), ("b", 2)]);
    assert_violated(
        &convergence(&lost, Evidence::Auto),
        AnomalyKind::LostWrite,
        &[1, 2],
    );
    assert_eq!(convergence(&lost, Evidence::BlackBox), Verdict::Satisfied);
}

#[test]
fn every_site_must_answer_for_every_key() {
    let mut s = Script {
        history: finals("a", "a"),
    };
    s.history.site_id("dc3");
    assert_unknown(
        &convergence(&s.history, Evidence::Auto),
        "site \"dc3\" did not answer a read of key x",
    );
    let mut s = Script {
        history: finals("a", "a"),
    };
    s.read(1, "dc1", "y", "");
    assert_unknown(
        &convergence(&s.history, Evidence::Auto),
        "site \"dc2\" did not answer a read of key y",
    );
    s.read(2, "dc2", "y", "");
    assert_eq!(convergence(&s.history, Evidence::Auto), Verdict::Satisfied);
}

#[test]
fn only_reads_after_the_last_write_are_final_and_the_last_one_counts() {
    let mut s = Script {
        history: finals("a", "b"),
    };
    s.read(1, "dc1", "x", "b");
    assert_eq!(
        convergence(&s.history, Evidence::Auto),
        Verdict::Satisfied,
        "dc1 caught up"
    );
    s.write(1, "dc1", "y", "c");
    s.read(1, "dc1", "y", "c");
    s.read(2, "dc2", "y", "c");
    assert_unknown(
        &convergence(&s.history, Evidence::Auto),
        "site \"dc1\" did not answer a read of key x after the last write",
    );
}

#[test]
fn anomalies_are_named_up_to_a_bound() {
    let history = script(|s| {
        for key in 0..100 {
            s.write(1, "", &key.to_string(), "a");
            s.read(1, "", &key.to_string(), "");
        }
    });
    match read_your_writes(&history, Evidence::Auto) {
        Verdict::Violated(anomalies) => assert_eq!(anomalies.len(), Verdict::ANOMALIES_MAX),
        other => panic!("{other:?}"),
    }
}

// Budgets.

/// Sessions take turns: each reads what the one before it wrote, then writes.
fn relay(sessions: u32, turns: u64) -> History {
    let mut script = Script::default();
    for turn in 0..turns {
        let session = (turn % u64::from(sessions)) as u32;
        let before = turn.checked_sub(1).map(|before| before.to_string());
        script.r(session, &before.unwrap_or_default());
        script.w(session, &turn.to_string());
    }
    script.history
}

#[test]
fn writes_follow_reads_gives_up_where_what_it_must_compare_does_not_fit_in_memory() {
    // About a million pairs of a write and what a session had read before it.
    let history = relay(64, 6_400);
    let judge = |evidence, memory_bytes| {
        let options = Options {
            budget: Budget::new(None, memory_bytes),
            ..Options::with(evidence)
        };
        Model::WritesFollowReads.check(&history, &options)
    };
    assert_unknown(
        &judge(Evidence::BlackBox, 16 << 20),
        "memory limit of 16 MiB",
    );
    assert_eq!(judge(Evidence::BlackBox, 256 << 20), Verdict::Satisfied);

    // With the order of versions each write is compared at once.
    let places: Vec<String> = (0..6_400).map(|turn| turn.to_string()).collect();
    let versions: Vec<(&str, u128)> = places.iter().map(String::as_str).zip(1..).collect();
    let reported = with_versions(&history, &versions);
    let options = Options {
        budget: Budget::new(None, 16 << 20),
        ..Options::with(Evidence::WhiteBox)
    };
    assert_eq!(
        Model::WritesFollowReads.check(&reported, &options),
        Verdict::Satisfied
    );
}
