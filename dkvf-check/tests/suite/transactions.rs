//! For each anomaly of transactions a history that has it, the models that it refutes, and those that allow it.

use dkvf_check::{
    Action, AnomalyKind, EdgeKind, Evidence, History, Model, OpId, Operation, Options, Order,
    Outcome, Scan, Stamps, Transaction, Verdict,
};

use crate::common::{changed, history};

/// The models of transactions, those that others include first.
const LADDER: [Model; 9] = [
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

/// All transactions run at the same time, and the version of the value n is n.
fn concurrent(text: &str) -> History {
    let history = history(text);
    changed(&history, |op, header, operation| {
        header.invoke_us = history.owner(op) as u64;
        header.complete_us = Some(1_000);
        operation.version = match operation.action {
            Action::Read(Some(value)) | Action::Write(Some(value)) => {
                let text = std::str::from_utf8(history.value(value)).expect("text");
                Some(text.parse().expect("a number"))
            }
            _ => None,
        };
    })
}

/// Lists: `"1: a l 1, r l 1 2"` appends to l and reads it.
fn lists(text: &str) -> History {
    let mut history = History::default();
    let site = history.site_id("");
    for (id, line) in (0..).zip(text.lines().map(str::trim).filter(|line| !line.is_empty())) {
        let (session, operations) = line.split_once(':').expect("session: operations");
        let session = session.parse().expect("a number");
        let operations: Vec<Operation> = operations
            .split(',')
            .map(|operation| {
                let words: Vec<&str> = operation.split_whitespace().collect();
                let [verb, key, elements @ ..] = &words[..] else {
                    panic!("{operation:?}")
                };
                let elements: Vec<_> = elements
                    .iter()
                    .map(|element| history.value_id(element.as_bytes()))
                    .collect();
                let action = match *verb {
                    "a" => Action::Append(elements[0]),
                    _ => Action::ReadList(history.list_id(&elements)),
                };
                Operation {
                    key: history.key_id(key.as_bytes()),
                    action,
                    version: None,
                }
            })
            .collect();
        let header = Transaction {
            process: session,
            session,
            site,
            invoke_us: id,
            complete_us: Some(1_000),
            outcome: Outcome::Ok,
        };
        history.push(header, operations);
    }
    history
}

fn check(history: &History, model: Model, evidence: Evidence) -> Verdict {
    model.check(history, &Options::with(evidence))
}

/// Exactly the models that imply one of `weakest` forbid the history, for this reason.
#[track_caller]
fn assert_refutes(
    (history, evidence): (&History, Evidence),
    weakest: &[Model],
    kind: AnomalyKind,
    operations: &[OpId],
) {
    for model in LADDER {
        let verdict = check(history, model, evidence);
        if !weakest.iter().any(|&weaker| model.implies(weaker)) {
            assert_eq!(
                verdict,
                Verdict::Satisfied,
                "{model}: {}",
                verdict.explain(history)
            );
            continue;
        }
        let Verdict::Violated(anomalies) = &verdict else {
            panic!("{model}: {verdict:?}")
        };
        let found: Vec<_> = anomalies
            .iter()
            .map(|anomaly| (anomaly.kind, &anomaly.operations[..]))
            .collect();
        assert_eq!(
            found,
            [(kind, operations)],
            "{model}: {}",
            verdict.explain(history)
        );
        let last = anomalies[0].because.last().expect("a reason");
        assert!(
            last.ends_with("a contradiction") || last.starts_with("nobody"),
            "{last}"
        );
    }
}

#[track_caller]
fn assert_white_box(text: &str, weakest: &[Model], kind: AnomalyKind, operations: &[OpId]) {
    assert_refutes(
        (&concurrent(text), Evidence::WhiteBox),
        weakest,
        kind,
        operations,
    );
}

#[test]
fn dirty_writes_refute_everything_but_committed_reads() {
    let text = "
        1: w x 1, w y 2
        2: w x 2, w y 1";
    assert_white_box(
        text,
        &[Model::ReadUncommitted],
        AnomalyKind::DirtyWrite,
        &[0, 2, 3, 1],
    );
}

#[test]
fn a_read_of_a_failed_transaction_refutes_committed_reads() {
    let mut failed = concurrent(
        "
        1: w x 1
        2: r x 1",
    );
    failed = changed(&failed, |op, header, _| {
        if op == 0 {
            header.outcome = Outcome::Fail;
        }
    });
    let evidence = Evidence::WhiteBox;
    assert_refutes(
        (&failed, evidence),
        &[Model::CommittedReads],
        AnomalyKind::AbortedRead,
        &[0, 1],
    );
}

#[test]
fn a_read_of_an_intermediate_value_refutes_committed_reads() {
    let text = "
        1: w x 1, w x 2
        2: r x 1";
    let history = concurrent(text);
    let intermediate = AnomalyKind::IntermediateRead;
    assert_refutes(
        (&history, Evidence::BlackBox),
        &[Model::CommittedReads],
        intermediate,
        &[0, 2, 1],
    );
}

#[test]
fn information_that_flows_in_a_circle_refutes_read_committed() {
    let text = "
        1: w x 1, r y 1
        2: w y 1, r x 1";
    let circle = AnomalyKind::CircularInformationFlow;
    assert_white_box(text, &[Model::ReadCommitted], circle, &[0, 3, 2, 1]);
}

#[test]
fn a_transaction_reads_what_it_wrote() {
    assert_white_box(
        "1: w x 1, r x",
        &[Model::ReadCommitted],
        AnomalyKind::InternalRead,
        &[0, 1],
    );
}

#[test]
fn a_transaction_does_not_read_what_it_writes_later() {
    assert_white_box(
        "1: r x 1, w x 1",
        &[Model::ReadCommitted],
        AnomalyKind::FutureRead,
        &[1, 0],
    );
}

#[test]
fn two_versions_in_one_transaction_refute_read_atomic() {
    let text = "
        1: w x 1
        2: w x 2
        3: r x 1, r x 2";
    assert_white_box(
        text,
        &[Model::ReadAtomic],
        AnomalyKind::NonRepeatableRead,
        &[2, 3],
    );
}

#[test]
fn a_part_of_a_transaction_refutes_read_atomic() {
    let text = "
        1: w x 1, w y 1
        2: r x 1, r y";
    assert_white_box(
        text,
        &[Model::ReadAtomic],
        AnomalyKind::FracturedRead,
        &[0, 2, 3, 1],
    );
}

#[test]
fn a_missed_cause_refutes_prefix_and_parallel_snapshots() {
    let text = "
        1: w x 1
        2: r x 1, w y 1
        3: r y 1, r x";
    assert_white_box(
        text,
        &[Model::Causal],
        AnomalyKind::CausalityViolation,
        &[0, 1, 2, 3, 4],
    );
}

#[test]
fn read_skew_refutes_prefix_and_parallel_snapshots() {
    let text = "
        1: w x 1, w y 1
        2: w y 2
        3: r x, r y 2";
    let weakest = [Model::Prefix, Model::Psi];
    assert_white_box(text, &weakest, AnomalyKind::ReadSkew, &[1, 2, 4, 3, 0]);
}

#[test]
fn a_lost_update_refutes_parallel_snapshots_but_not_prefixes() {
    let text = "
        1: r x, w x 1
        2: r x, w x 2";
    assert_white_box(text, &[Model::Psi], AnomalyKind::LostUpdate, &[1, 3, 2]);
}

#[test]
fn a_lost_update_is_one_whatever_the_order_of_versions() {
    assert_lost_update(&concurrent("1: r x, w x 1\n2: r x, w x 2"));
}

/// Both transactions read the same version and replace it, in an order that nobody knows.
#[track_caller]
fn assert_lost_update(history: &History) {
    for model in LADDER {
        let verdict = check(history, model, Evidence::BlackBox);
        if !model.implies(Model::Psi) {
            assert_eq!(verdict, Verdict::Satisfied, "{model}");
            continue;
        }
        let Verdict::Violated(anomalies) = &verdict else {
            panic!("{model}: {verdict:?}")
        };
        assert_eq!(
            anomalies[0].kind,
            AnomalyKind::LostUpdate,
            "{model}: {}",
            verdict.explain(history)
        );
        let mut operations = anomalies[0].operations.clone();
        operations.sort_unstable();
        assert_eq!(operations, [0, 1, 2, 3]);
    }
}

#[test]
fn an_argument_about_an_unknown_order_refutes_each_of_its_possibilities() {
    let history = concurrent("1: r x, w x 1\n2: r x, w x 2");
    let Verdict::Violated(anomalies) = check(&history, Model::Psi, Evidence::BlackBox) else {
        panic!()
    };
    assert_eq!(
        anomalies[0].because,
        [
            "suppose that T1 (#3) wrote x before T0 (#1): then T1 < T0, because T0 (#1) wrote a newer version of x \
             than T1 (#3); T0 < T1, because T1 (#3) wrote a newer version of x than the initial one that T0 (#0) \
             read, a contradiction",
            "suppose that T0 (#1) wrote x before T1 (#3): then T0 < T1, because T1 (#3) wrote a newer version of x \
             than T0 (#1); T1 < T0, because T0 (#1) wrote a newer version of x than the initial one that T1 (#2) \
             read, a contradiction",
            "however, one of these orders must be: a contradiction",
        ]
    );
    let kinds: Vec<EdgeKind> = anomalies[0].edges.iter().map(|edge| edge.kind).collect();
    let supposed_and_known = [EdgeKind::Inferred, EdgeKind::AntiDependency];
    assert_eq!(kinds, [supposed_and_known, supposed_and_known].concat());
}

const LONG_FORK: &str = "
    1: w x 1
    2: w y 1
    3: r x 1, r y
    4: r x, r y 1";

#[test]
fn a_long_fork_refutes_prefixes_but_not_parallel_snapshots() {
    for evidence in [Evidence::WhiteBox, Evidence::BlackBox] {
        let operations = [0, 2, 3, 1, 5, 4];
        let history = concurrent(LONG_FORK);
        assert_refutes(
            (&history, evidence),
            &[Model::Prefix],
            AnomalyKind::LongFork,
            &operations,
        );
    }
}

#[test]
fn anti_dependencies_that_are_not_adjacent_refute_snapshot_isolation() {
    let text = "
        1: w x 1, w y 1
        2: w y 2, r z
        3: w z 1, w v 1
        4: r v 1, r x";
    let operations = [1, 2, 3, 4, 5, 6, 7, 0];
    assert_white_box(
        text,
        &[Model::Si],
        AnomalyKind::NonadjacentCycle,
        &operations,
    );
}

#[test]
fn write_skew_refutes_serializability_but_not_snapshot_isolation() {
    let text = "
        1: r x, r y, w x 1
        2: r x, r y, w y 1";
    assert_white_box(
        text,
        &[Model::Serializable],
        AnomalyKind::WriteSkew,
        &[1, 5, 3, 2],
    );
}

#[test]
fn a_longer_circle_of_anti_dependencies_refutes_serializability() {
    let text = "
        1: r x, w y 1
        2: r y, w z 1
        3: r z, w x 1";
    let kind = AnomalyKind::AntiDependencyCycle;
    assert_white_box(text, &[Model::Serializable], kind, &[0, 5, 4, 3, 2, 1]);
}

#[test]
fn a_causal_reverse_refutes_only_strict_serializability() {
    let reverse = changed(
        &concurrent("1: w x 1\n2: w y 1\n3: r y 1, r x"),
        |op, header, _| {
            let times = [(0, 5), (10, 15), (3, 20)];
            let (invoke, complete) = times[op.min(2)];
            (header.invoke_us, header.complete_us) = (invoke, Some(complete));
        },
    );
    let kind = AnomalyKind::RealTimeViolation;
    assert_refutes(
        (&reverse, Evidence::WhiteBox),
        &[Model::StrictSerializable],
        kind,
        &[0, 1, 2, 3],
    );
}

#[test]
fn a_value_that_was_replaced_before_the_read_began_is_stale() {
    // One after the other, 10 us apart.
    let stale = history("1: w x 1\n2: r x");
    let kind = AnomalyKind::StaleRead;
    assert_refutes(
        (&stale, Evidence::Auto),
        &[Model::StrictSerializable],
        kind,
        &[0, 1],
    );
}

#[test]
fn a_history_may_be_allowed_without_the_order_of_sessions_and_forbidden_with_it() {
    let history = concurrent("1: w x 1\n1: r x");
    for model in [Model::Psi, Model::Prefix, Model::Si, Model::Serializable] {
        for (order, expected) in [
            (Order::None, "satisfied"),
            (Order::Session, "violated"),
            (Order::RealTime, "violated"),
        ] {
            let options = Options {
                order: Some(order),
                ..Options::default()
            };
            assert_eq!(
                model.check(&history, &options).name(),
                expected,
                "{model} {order}"
            );
        }
    }
    let Verdict::Violated(anomalies) = check(&history, Model::Psi, Evidence::Auto) else {
        panic!()
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::OwnWriteMissed);
    let kinds: Vec<EdgeKind> = anomalies[0].edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [EdgeKind::Session, EdgeKind::AntiDependency]);
}

#[test]
fn sequential_consistency_needs_one_order_of_all_operations() {
    // Each session sees its own write first: allowed for causal memory, not here.
    let text = "
        1: w x 1
        1: r y
        2: w y 1
        2: r x";
    let verdict = check(&history(text), Model::Sequential, Evidence::Auto);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(
        anomalies[0].because,
        [
            "#0 < #1, because #1 comes later in session 1",
            "#1 < #2, because #2 wrote a newer version of y than the initial one that #1 read",
            "#2 < #3, because #3 comes later in session 2",
            "however, #3 < #0, because #0 wrote a newer version of x than the initial one that #3 read: \
             a contradiction",
        ]
    );
    let several = check(&history(LONG_FORK), Model::Sequential, Evidence::Auto);
    assert_eq!(several.name(), "unknown");
}

#[test]
fn lists_that_do_not_continue_each_other_refute_read_uncommitted() {
    let history = lists(
        "
        1: a l 1
        2: a l 2
        3: r l 1 2
        4: r l 2 1",
    );
    let kind = AnomalyKind::IncompatibleOrder;
    assert_refutes(
        (&history, Evidence::Auto),
        &[Model::ReadUncommitted],
        kind,
        &[2, 3],
    );
}

#[test]
fn appends_of_two_transactions_that_interleave_are_dirty_writes() {
    let history = lists(
        "
        1: a l 1, a l 2
        2: a l 3
        3: r l 1 3 2",
    );
    let kind = AnomalyKind::DirtyWrite;
    assert_refutes(
        (&history, Evidence::Auto),
        &[Model::ReadUncommitted],
        kind,
        &[0, 1, 2, 3],
    );
}

#[test]
fn appends_that_nobody_observed_can_still_be_a_lost_update() {
    let history = lists(
        "
        1: r l, a l 1
        2: r l, a l 2",
    );
    assert_lost_update(&history);
}

#[test]
fn a_scan_reads_the_initial_version_of_what_it_does_not_return() {
    let mut history = concurrent("1: w x 1, w y 1");
    let header = Transaction {
        session: 2,
        ..history.transactions()[0]
    };
    let key = history.key_id(b"a");
    let row = (history.key_id(b"x"), history.value_id(b"1"));
    for (high, expected) in [(None, "violated"), (Some(b"y".to_vec()), "satisfied")] {
        let mut history = history.clone();
        let scan = Scan {
            low: b"a".to_vec(),
            high,
            rows: vec![row],
        };
        let action = Action::Scan(history.scan_id(scan));
        history.push(
            header,
            [Operation {
                key,
                action,
                version: None,
            }],
        );
        let verdict = check(&history, Model::Psi, Evidence::Auto);
        assert_eq!(verdict.name(), expected, "{}", verdict.explain(&history));
        if let Verdict::Violated(anomalies) = verdict {
            assert_eq!(anomalies[0].kind, AnomalyKind::FracturedRead);
            assert_eq!(anomalies[0].operations, [0, 2, 1]);
        }
    }
}

#[test]
fn a_compare_and_set_of_unknown_outcome_that_was_seen_has_read_what_it_expected() {
    let mut history = concurrent("1: w x 1\n2: r x 2");
    let (key, one, two) = (
        history.key_id(b"x"),
        history.value_id(b"1"),
        history.value_id(b"2"),
    );
    let header = Transaction {
        session: 3,
        complete_us: None,
        outcome: Outcome::Info,
        ..history.transactions()[0]
    };
    let action = Action::Cas {
        expected: Some(one),
        new: Some(two),
    };
    history.push(
        header,
        [Operation {
            key,
            action,
            version: None,
        }],
    );
    // A third one that also expected 1 and was acknowledged.
    let header = Transaction {
        session: 4,
        ..history.transactions()[0]
    };
    let three = history.value_id(b"3");
    let action = Action::Cas {
        expected: Some(one),
        new: Some(three),
    };
    let before = check(&history, Model::Psi, Evidence::BlackBox);
    assert_eq!(before, Verdict::Satisfied);
    history.push(
        header,
        [Operation {
            key,
            action,
            version: None,
        }],
    );
    let after = check(&history, Model::Psi, Evidence::BlackBox);
    let Verdict::Violated(anomalies) = after else {
        panic!("{after:?}")
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::LostUpdate);
}

#[test]
fn commit_stamps_order_versions() {
    let mut history = history("1: w x 1\n1: w x 2");
    assert_eq!(
        check(&history, Model::Psi, Evidence::Auto),
        Verdict::Satisfied
    );
    for (transaction, commit) in [(0, vec![4, 1]), (1, vec![3, 1])] {
        history.set_stamps(
            transaction,
            Stamps {
                start: Vec::new(),
                commit,
            },
        );
    }
    let verdict = check(&history, Model::Psi, Evidence::Auto);
    let Verdict::Violated(anomalies) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::DirtyWrite);
    assert_eq!(
        anomalies[0].because[1],
        "however, #1 < #0, because #0 wrote a newer version of x than #1, by the commit stamps that the protocol \
         reports: a contradiction"
    );
    // Stamps of which neither is less are no order.
    history.set_stamps(
        1,
        Stamps {
            start: Vec::new(),
            commit: vec![3, 2],
        },
    );
    assert_eq!(
        check(&history, Model::Psi, Evidence::Auto),
        Verdict::Satisfied
    );
}

#[test]
fn reports_that_contradict_each_other_are_no_order_of_versions() {
    let told = concurrent("1: w x 1\n2: w x 2\n3: r x 1");
    let equal = changed(&told, |_, _, operation| operation.version = Some(1));
    let other = changed(&told, |op, _, operation| {
        if op == 2 {
            operation.version = Some(7);
        }
    });
    let partly = changed(&told, |op, _, operation| {
        if op == 1 {
            operation.version = None;
        }
    });
    for (history, reason) in [
        (
            equal,
            "two values of key x are reported with the same version 0x1 (#0 and #1)",
        ),
        (
            other,
            "one version of key x is reported as 0x1 (#0) and as 0x7 (#2)",
        ),
        (partly, "the version of key x that #1 wrote is not known"),
    ] {
        let verdict = check(&history, Model::Si, Evidence::WhiteBox);
        assert_eq!(verdict, Verdict::Unknown(reason.to_owned()));
        assert_eq!(
            check(&history, Model::Si, Evidence::Auto),
            Verdict::Satisfied
        );
    }
}

#[test]
fn a_value_written_twice_leaves_the_verdict_open() {
    let history = concurrent("1: w x 1\n2: w x 1");
    let Verdict::Unknown(reason) = check(&history, Model::Si, Evidence::Auto) else {
        panic!()
    };
    assert!(
        reason.contains("the value 1 was written twice to key x (#0 and #1)"),
        "{reason}"
    );
}

#[test]
fn an_absence_after_a_deletion_is_known_only_by_its_version() {
    let unknown = history("1: w x 1\n2: w x\n3: r x");
    let Verdict::Unknown(reason) = check(&unknown, Model::Si, Evidence::Auto) else {
        panic!()
    };
    assert_eq!(
        reason,
        "key x was deleted (#1), so nobody knows which absence #2 read"
    );
    for (version, expected) in [(2, "satisfied"), (0, "violated")] {
        let told = changed(&unknown, |op, _, operation| {
            operation.version = Some([1, 2, version][op]);
        });
        let verdict = check(&told, Model::StrictSerializable, Evidence::WhiteBox);
        assert_eq!(verdict.name(), expected, "{}", verdict.explain(&told));
    }
}

#[test]
fn without_time_or_memory_the_verdict_is_open() {
    #[derive(Debug)]
    struct Over;
    impl dkvf_check::IsOver for Over {
        fn is_over(&self) -> bool {
            true
        }
    }
    let text: Vec<String> = (1..3_000)
        .map(|value| format!("{value}: w x {value}"))
        .collect();
    let history = history(&text.join("\n"));
    for (budget, reason) in [
        (
            dkvf_check::Budget::new(Some(&Over), usize::MAX),
            "the time limit was reached",
        ),
        (
            dkvf_check::Budget::new(None, 1 << 20),
            "does not fit in the memory limit of 1 MiB",
        ),
    ] {
        let options = Options {
            budget,
            ..Options::default()
        };
        let Verdict::Unknown(given) = Model::Si.check(&history, &options) else {
            panic!()
        };
        assert!(given.contains(reason), "{given}");
    }
}
