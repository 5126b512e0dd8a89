//! The operations of sessions.

use std::collections::BTreeSet;

use dkvf_workload::{
    NamedKey, Operation, OperationKind, Record, Session, Tag, TaggedValue, Workload, WorkloadSpec,
};

fn workload(overrides: &[(&str, &str)], seed: u64, sessions: u32) -> Workload {
    let spec = WorkloadSpec::load("a", overrides.iter().copied()).unwrap();
    Workload::new(spec, seed, sessions)
}

const EVERY_KIND: &[(&str, &str)] = &[
    ("recordcount", "100"),
    ("insertproportion", "0.2"),
    ("scanproportion", "0.2"),
    ("readmodifywriteproportion", "0.2"),
    ("ampinsertproportion", "0.1"),
    ("ampfactor", "5"),
    ("rotxproportion", "0.1"),
    ("rotxkeynumber", "4"),
    ("maxscanlength", "10"),
    ("valuesize", "40"),
];

fn take(session: &mut Session, operations: usize) -> Vec<Operation> {
    (0..operations).map(|_| session.next_operation()).collect()
}

fn inserts(operation: &Operation) -> &[Record] {
    match operation {
        Operation::Insert(record) => std::slice::from_ref(record),
        Operation::AmplifiedInsert(records) => records,
        _ => &[],
    }
}

/// The key of an operation on a record that exists.
fn existing(operation: &Operation) -> Option<&NamedKey> {
    match operation {
        Operation::Read { key }
        | Operation::Update { key, .. }
        | Operation::ReadModifyWrite { key, .. }
        | Operation::Scan { from: key, .. } => Some(key),
        Operation::Insert(_) | Operation::AmplifiedInsert(_) | Operation::ReadOnly { .. } => None,
    }
}

fn values(operation: &Operation) -> Vec<&TaggedValue> {
    match operation {
        Operation::Update { value, .. } | Operation::ReadModifyWrite { value, .. } => vec![value],
        _ => inserts(operation)
            .iter()
            .map(|record| &record.value)
            .collect(),
    }
}

#[test]
fn operations_are_a_function_of_seed_and_session() {
    let run = |seed, session| take(&mut workload(EVERY_KIND, seed, 4).session(session), 500);
    assert_eq!(run(1, 2), run(1, 2));
    assert_ne!(run(1, 2), run(2, 2));
    assert_ne!(run(1, 2), run(1, 3));
}

#[test]
fn the_first_operations_of_a_seed_never_change() {
    let mut session = workload(&[("valuesize", "16")], 42, 2).session(1);
    let text: Vec<String> = take(&mut session, 6)
        .iter()
        .map(|operation| {
            let key = str::from_utf8(&existing(operation).unwrap().bytes).unwrap();
            let tags: Vec<_> = values(operation)
                .iter()
                .map(|v| v.tag.to_string())
                .collect();
            format!("{} {key} {}", operation.kind().name(), tags.join(" "))
        })
        .collect();
    assert_eq!(text, FIRST_OPERATIONS);
}

const FIRST_OPERATIONS: [&str; 6] = [
    "READ user899463647179981130 ",
    "READ user4530051731311543989 ",
    "UPDATE user7118824590470993170 1-1",
    "READ user2754896992342218699 ",
    "UPDATE user6048332312871132958 1-2",
    "UPDATE user3589717997875816989 1-3",
];

#[test]
fn kinds_occur_as_often_as_their_weights_say() {
    let workload = workload(EVERY_KIND, 3, 1);
    let mut session = workload.session(0);
    let mut counts = [0_u32; OperationKind::ALL.len()];
    for operation in take(&mut session, 50_000) {
        counts[operation.kind() as usize] += 1;
    }
    for (kind, expected) in OperationKind::ALL
        .into_iter()
        .zip([0.5, 0.5, 0.2, 0.2, 0.2, 0.1, 0.1])
    {
        let share = f64::from(counts[kind as usize]) / 50_000.0;
        assert!((share - expected / 1.8).abs() < 0.01, "{kind:?}: {share}");
    }
}

#[test]
fn a_read_only_transaction_names_no_key_twice() {
    let workload = workload(EVERY_KIND, 5, 1);
    let mut most = 0;
    for operation in take(&mut workload.session(0), 5_000) {
        if let Operation::ReadOnly { keys } = operation {
            assert!(keys.is_sorted_by(|a, b| a.index < b.index), "{keys:?}");
            most = most.max(keys.len());
        }
    }
    assert_eq!(most, 4);
}

#[test]
fn a_kind_without_weight_never_occurs() {
    let spec = WorkloadSpec::builtin("f").unwrap();
    let mut session = Workload::new(spec, 1, 1).session(0);
    for operation in take(&mut session, 10_000) {
        assert!(matches!(
            operation,
            Operation::Read { .. } | Operation::ReadModifyWrite { .. }
        ));
    }
}

#[test]
fn no_two_sessions_insert_or_load_the_same_key() {
    let workload = workload(EVERY_KIND, 9, 7);
    let mut indexes = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for session in 0..7 {
        for record in workload.load(session) {
            assert!(indexes.insert(record.key.index));
            assert!(keys.insert(record.key.bytes));
        }
    }
    assert!(indexes.iter().copied().eq(0..100), "all records are loaded");
    for session in 0..7 {
        for operation in take(&mut workload.session(session), 300) {
            for record in inserts(&operation) {
                assert!(indexes.insert(record.key.index), "{record:?}");
                assert!(keys.insert(record.key.bytes.clone()));
            }
        }
    }
    assert!(indexes.len() > 500);
}

#[test]
fn sessions_of_equal_progress_leave_no_gap() {
    let workload = workload(
        &[
            ("readproportion", "0"),
            ("updateproportion", "0"),
            ("ampinsertproportion", "1"),
            ("ampfactor", "10"),
        ],
        1,
        3,
    );
    let mut indexes: Vec<u64> = (0..3)
        .flat_map(|session| take(&mut workload.session(session), 4))
        .flat_map(|operation| inserts(&operation).to_vec())
        .map(|record| record.key.index)
        .collect();
    indexes.sort_unstable();
    assert!(indexes.into_iter().eq(1000..1120));
}

#[test]
fn a_session_asks_only_for_records_that_are_loaded_or_its_own() {
    for distribution in [
        "uniform",
        "zipfian",
        "latest",
        "hotspot",
        "sequential",
        "exponential",
    ] {
        let overrides = [
            EVERY_KIND,
            &[
                ("requestdistribution", distribution),
                ("insertstart", "40"),
                ("insertcount", "30"),
            ],
        ]
        .concat();
        let mut session = workload(&overrides, 5, 3).session(2);
        let mut known: BTreeSet<u64> = (40..70).collect();
        let mut own_reads = 0;
        for operation in take(&mut session, 2000) {
            if let Some(key) = existing(&operation) {
                assert!(known.contains(&key.index), "{distribution}: {}", key.index);
                own_reads += u32::from(key.index >= 100);
            }
            for record in inserts(&operation) {
                assert!(record.key.index >= 100, "inserts follow recordcount");
                known.insert(record.key.index);
            }
        }
        assert!(own_reads > 0, "{distribution}: new records are read too");
    }
}

#[test]
fn latest_reads_the_own_last_insert_most() {
    let spec = WorkloadSpec::builtin("d").unwrap();
    let mut session = Workload::new(spec, 1, 2).session(1);
    let mut newest = None;
    let (mut reads, mut hits) = (0, 0);
    for operation in take(&mut session, 20_000) {
        match (existing(&operation), newest) {
            (Some(key), Some(newest)) => {
                reads += 1;
                hits += u32::from(key.index == newest);
            }
            _ => {
                newest = inserts(&operation)
                    .first()
                    .map(|record| record.key.index)
                    .or(newest)
            }
        }
    }
    let share = f64::from(hits) / f64::from(reads);
    assert!((0.1..0.2).contains(&share), "{share}");
}

#[test]
fn every_value_is_unique_and_begins_with_its_tag() {
    let workload = workload(EVERY_KIND, 1, 2);
    let mut seen = BTreeSet::new();
    for record in (0..2).flat_map(|session| workload.load(session)) {
        assert_eq!(record.value.tag, Tag::loaded(record.key.index));
        assert_eq!(Tag::parse(&record.value.bytes), Some(record.value.tag));
        assert!(seen.insert(record.value.tag));
    }
    for number in 0..2 {
        for operation in take(&mut workload.session(number), 1000) {
            for value in values(&operation) {
                assert_eq!(value.tag.session, u64::from(number));
                assert_eq!(Tag::parse(&value.bytes), Some(value.tag));
                assert_eq!(value.bytes.len(), 40);
                assert!(seen.insert(value.tag), "{:?}", value.tag);
            }
        }
    }
}

#[test]
fn values_of_varying_length_stay_within_their_bounds() {
    for law in ["uniform", "zipfian"] {
        let overrides = [
            ("fieldlengthdistribution", law),
            ("fieldcount", "2"),
            ("fieldlength", "20"),
        ];
        let workload = workload(&overrides, 1, 1);
        let lengths: BTreeSet<usize> = take(&mut workload.session(0), 5000)
            .iter()
            .flat_map(values)
            .map(|value| value.bytes.len())
            .collect();
        assert_eq!(lengths.first(), Some(&16), "{law}: a tag needs room");
        assert!(lengths.len() > 15, "{law}: {lengths:?}");
        assert!(lengths.last() <= Some(&40), "{law}");
    }
}

#[test]
fn scans_are_as_long_as_asked_for() {
    let spec = WorkloadSpec::builtin("e").unwrap();
    let mut session = Workload::new(spec, 1, 1).session(0);
    let counts: BTreeSet<u32> = take(&mut session, 5000)
        .iter()
        .filter_map(|operation| match operation {
            Operation::Scan { count, .. } => Some(*count),
            _ => None,
        })
        .collect();
    assert!(counts.into_iter().eq(1..=100));
}

#[test]
fn the_load_phase_names_records_as_ycsb_does() {
    let workload = workload(&[("recordcount", "4")], 1, 1);
    let mut load = workload.load(0);
    assert_eq!(load.size_hint(), (4, Some(4)));
    let names: Vec<_> = load.by_ref().map(|record| record.key.bytes).collect();
    assert_eq!(
        names,
        [
            "user6284781860667377211",
            "user8517097267634966620",
            "user1820151046732198393",
            "user4052466453699787802",
        ]
    );
    assert_eq!(load.next(), None);
}

#[test]
fn operations_are_shared_out_to_the_last_one() {
    let workload = workload(&[("operationcount", "10")], 1, 4);
    let shares: Vec<_> = (0..4)
        .map(|session| workload.operations_of(session))
        .collect();
    assert_eq!(shares, [Some(3), Some(3), Some(2), Some(2)]);
    let unlimited = self::workload(&[("operationcount", "0")], 1, 4);
    assert_eq!(unlimited.operations_of(0), None);
}
