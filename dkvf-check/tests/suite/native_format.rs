//! The native format keeps what a history says, and refuses what it is not.

use std::io::{BufReader, Cursor};

use dkvf_check::native::{self, LINE_BYTES_MAX, ReadError};
use dkvf_check::{
    About, Action, History, Operation, Outcome, Scan, Stamps, Transaction, TxnId, ValueId,
};
use proptest::prelude::*;

const HEADER: &str = r#"{"h":1,"clock":"virtual-us"}"#;

fn read(text: impl AsRef<[u8]>) -> Result<History, ReadError> {
    native::read(BufReader::with_capacity(16, Cursor::new(text.as_ref())))
}

fn read_after_header(lines: &[&str]) -> Result<History, ReadError> {
    read(format!("{HEADER}\n{}", lines.join("\n")))
}

#[track_caller]
fn assert_malformed(result: Result<History, ReadError>, at: u64, part: &str) {
    match result {
        Err(ReadError::Malformed { line, reason }) => {
            assert_eq!(line, at, "{reason}");
            assert!(reason.contains(part), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// What a transaction says once names are resolved.
type Facts = (
    (u32, u32, String),
    Vec<(String, Option<u128>)>,
    (u64, Option<u64>, Outcome),
    Option<Stamps>,
);

fn facts(history: &History) -> Vec<Facts> {
    let mut ids: Vec<TxnId> = (0..history.transactions().len()).collect();
    ids.sort_by_key(|&id| {
        let transaction = &history.transactions()[id];
        (transaction.invoke_us, transaction.process)
    });
    ids.into_iter()
        .map(|id| {
            let transaction = &history.transactions()[id];
            let site = history.site(transaction.site).to_owned();
            let operations = history.operations_of(id).map(|op| {
                let text = format!("{} {:?}", history.action_text(op), names(history, op));
                (text, history.operations()[op].version)
            });
            (
                (transaction.process, transaction.session, site),
                operations.collect(),
                (
                    transaction.invoke_us,
                    transaction.complete_us,
                    transaction.outcome,
                ),
                history.stamps(id).cloned(),
            )
        })
        .collect()
}

/// The bytes that an operation names, which its text may show alike.
fn names(history: &History, op: usize) -> Vec<Option<Vec<u8>>> {
    let Operation { key, action, .. } = history.operations()[op];
    let bytes = |value: Option<ValueId>| value.map(|value| history.value(value).to_vec());
    let mut names = vec![Some(history.key(key).to_vec())];
    match action {
        Action::Read(value) | Action::Write(value) => names.push(bytes(value)),
        Action::Cas { expected, new } => names.extend([bytes(expected), bytes(new)]),
        Action::Append(value) => names.push(bytes(Some(value))),
        Action::ReadList(list) => {
            names.extend(history.list(list).iter().map(|&value| bytes(Some(value))));
        }
        Action::Acquire | Action::Release => {}
        Action::Scan(scan) => {
            let Scan { low, high, rows } = history.scan(scan);
            names.extend([Some(low.clone()), high.clone()]);
            for &(key, value) in rows {
                names.extend([Some(history.key(key).to_vec()), bytes(Some(value))]);
            }
        }
    }
    names
}

#[derive(Clone, Debug)]
struct DrawnOperation {
    verb: u8,
    key: Vec<u8>,
    values: Vec<Vec<u8>>,
    version: Option<u128>,
}

#[derive(Clone, Debug)]
struct Drawn {
    operations: Vec<DrawnOperation>,
    stamps: Option<(Vec<u64>, Vec<u64>)>,
    gap_us: u64,
    takes_us: u64,
    outcome: Outcome,
    site: u8,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z0-9\"\\\\ é\n-]{0,8}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..6),
    ]
}

fn drawn_operation() -> impl Strategy<Value = DrawnOperation> {
    let version = prop_oneof![
        (0..100_u128).prop_map(|v| v),
        any::<u128>(),
        Just((1 << 53) + 1)
    ];
    let values = proptest::collection::vec(bytes(), 0..3);
    let drawn = (0..8_u8, bytes(), values, proptest::option::of(version));
    drawn.prop_map(|(verb, key, values, version)| DrawnOperation {
        verb,
        key,
        values,
        version,
    })
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let outcome = prop_oneof![Just(Outcome::Ok), Just(Outcome::Fail), Just(Outcome::Info)];
    let stamp = || proptest::collection::vec(any::<u64>(), 0..3);
    (
        proptest::collection::vec(drawn_operation(), 1..4),
        proptest::option::of((stamp(), stamp())),
        0..3_u64,
        0..3_u64,
        outcome,
        0..3_u8,
    )
        .prop_map(
            |(operations, stamps, gap_us, takes_us, outcome, site)| Drawn {
                operations,
                stamps,
                gap_us,
                takes_us,
                outcome,
                site,
            },
        )
}

fn action(history: &mut History, drawn: &DrawnOperation, outcome: Outcome) -> Action {
    let values: Vec<ValueId> = drawn
        .values
        .iter()
        .map(|value| history.value_id(value))
        .collect();
    let value = |i: usize| values.get(i).copied();
    let is_known = outcome == Outcome::Ok;
    match (drawn.verb, value(0)) {
        (0, Some(value)) => Action::Append(value),
        (1, value) => Action::Write(value),
        (2, expected) => Action::Cas {
            expected,
            new: value(1),
        },
        (3, _) => Action::Acquire,
        (4, _) => Action::Release,
        (5, _) => {
            let rows = drawn.values.iter().zip(&values).filter(|_| is_known);
            let rows = rows.map(|(end, &value)| {
                let key = [&drawn.key[..], end].concat();
                (history.key_id(&key), value)
            });
            let rows = rows.collect();
            let scan = Scan {
                low: drawn.key.clone(),
                high: drawn.version.map(|_| [&drawn.key[..], &[0xff; 9]].concat()),
                rows,
            };
            Action::Scan(history.scan_id(scan))
        }
        (6, _) if is_known => Action::ReadList(history.list_id(&values)),
        (_, value) => Action::Read(value.filter(|_| is_known)),
    }
}

/// Each list is one process, whose transactions follow each other.
fn history(processes: Vec<Vec<Drawn>>, about: About) -> History {
    let mut history = History::new(about);
    for (process, transactions) in (0_u32..).zip(processes) {
        let mut now_us = 0;
        for drawn in transactions {
            // Transactions of one process and one microsecond have no order that
            // `facts` could sort by, so they are kept apart.
            let invoke_us = now_us + 1 + drawn.gap_us;
            let complete_us = invoke_us + drawn.takes_us;
            now_us = complete_us;
            let transaction = Transaction {
                process,
                session: process / 2,
                site: history.site_id(&format!("dc{}", drawn.site)),
                invoke_us,
                complete_us: Some(complete_us),
                outcome: drawn.outcome,
            };
            let mut versions: std::collections::BTreeMap<Vec<u8>, Option<u128>> =
                Default::default();
            let operations: Vec<Operation> = drawn
                .operations
                .iter()
                .map(|operation| Operation {
                    key: history.key_id(&operation.key),
                    action: action(&mut history, operation, drawn.outcome),
                    // The format names one version for each key of a transaction.
                    version: *versions
                        .entry(operation.key.clone())
                        .or_insert(operation.version),
                })
                .collect();
            let id = history.push(transaction, operations);
            if let Some((start, commit)) = drawn.stamps
                && !(start.is_empty() && commit.is_empty())
            {
                history.set_stamps(id, Stamps { start, commit });
            }
        }
    }
    history
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        processes in proptest::collection::vec(proptest::collection::vec(drawn(), 0..6), 0..5),
        seed in proptest::option::of(any::<u64>()),
        incomplete in proptest::option::of("[a-z ]{1,9}"),
    ) {
        let about = About {
            workload: "a".to_owned(),
            clock: "monotonic".to_owned(),
            claims: vec!["causal".to_owned()],
            seed,
        };
        let mut original = history(processes, about);
        if let Some(reason) = incomplete {
            original.mark_incomplete(reason);
        }
        let mut bytes = Vec::new();
        native::write(&original, &mut bytes).unwrap();
        let copy = read(&bytes).unwrap();
        prop_assert_eq!(&copy.about, &original.about);
        prop_assert_eq!(copy.sites(), original.sites());
        prop_assert_eq!(copy.incomplete(), original.incomplete());
        prop_assert_eq!(facts(&copy), facts(&original));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = read([HEADER.as_bytes(), b"\n", &bytes].concat());
    }
}

#[test]
fn the_layout_is_that_of_the_documentation() {
    let mut script = crate::common::Script::default();
    script.write(3, "dc1", "x", "3-1");
    script.read(4, "dc2", "x", "");
    let history = crate::common::changed(&script.history, |id, _, operation| {
        operation.version = (id == 0).then_some(1 << 60);
    });
    let mut bytes = Vec::new();
    native::write(&history, &mut bytes).unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        r#"{"h":1,"workload":"","initial":null,"clock":"-us","claims":[],"sites":["dc1","dc2"]}
{"i":0,"t":0,"type":"invoke","process":3,"session":3,"site":"dc1","f":"txn","value":[["w","x","3-1"]]}
{"i":1,"t":5,"type":"ok","process":3,"f":"txn","value":[["w","x","3-1"]],"wb":{"order":{"x":"1152921504606846976"}}}
{"i":2,"t":10,"type":"invoke","process":4,"session":4,"site":"dc2","f":"txn","value":[["r","x",null]]}
{"i":3,"t":15,"type":"ok","process":4,"f":"txn","value":[["r","x",null]]}
"#
    );
}

#[test]
fn operations_that_take_no_time_stay_in_order() {
    let mut script = crate::common::Script::default();
    for i in 0..50 {
        script.w(i % 2, &i.to_string());
        script.r(i % 2, &i.to_string());
    }
    let history = crate::common::changed(&script.history, |id, transaction, _| {
        let now_us = id as u64 / 40;
        (transaction.invoke_us, transaction.complete_us) = (now_us, Some(now_us));
    });
    let mut bytes = Vec::new();
    native::write(&history, &mut bytes).unwrap();
    let copy = read(&bytes).unwrap();
    let of_session = |history: &History, session| -> Vec<_> {
        let operations = 0..history.operations().len();
        let own = operations.filter(|&op| history.transaction_of(op).session == session);
        own.map(|op| history.action_text(op).to_string()).collect()
    };
    for session in 0..2 {
        assert_eq!(of_session(&copy, session), of_session(&history, session));
    }
}

#[test]
fn numbers_other_units_and_foreign_events_are_understood() {
    let text = r#"{"h":1,"workload":"rw-register","initial":0,"clock":"virtual-ns","claims":["PSI@site"],"seed":4711}

{"i":0,"t":1200,"type":"invoke","process":3,"site":"dc1","f":"txn","value":[["r",5,null]]}
{"t":2000,"type":"info","process":"nemesis","f":"partition","value":["dc1","dc2"]}
{"i":9,"t":1950,"type":"ok","process":3,"f":"txn","value":[["r",5,0]],"wb":{"txid":"dc1-88","order":{"5":17,"6":1}}}
{"i":10,"t":3000,"type":"invoke","process":4,"value":[["w",5,12]],"extra":true}"#;
    let history = read(text.replace('\n', "\r\n")).unwrap();
    let ([first, second], [read, write]) = (history.transactions(), history.operations()) else {
        panic!("{history:?}");
    };
    assert_eq!(history.key(read.key), b"5");
    assert_eq!((first.invoke_us, first.complete_us), (1, Some(1)));
    assert_eq!((read.action, read.version), (Action::Read(None), Some(17)));
    assert_eq!((first.process, first.session), (3, 3));
    assert_eq!(second.outcome, Outcome::Info);
    assert_eq!(second.complete_us, None);
    assert_eq!(history.action_text(1).to_string(), "wrote 5 = 12");
    assert!(write.version.is_none());
}

#[test]
fn malformed_headers_are_refused() {
    assert_malformed(read(""), 1, "the header is missing");
    assert_malformed(read("\n\n"), 1, "the header is missing");
    assert_malformed(read("hello"), 1, "not a JSON object");
    assert_malformed(read(r#"{"t":1}"#), 1, "missing field `h`");
    assert_malformed(read(r#"{"h":2,"clock":"x-us"}"#), 1, "version 2");
    assert_malformed(read(r#"{"h":1,"clock":"sundial"}"#), 1, "\"sundial\"");
}

#[test]
fn a_file_with_too_many_sites_is_refused() {
    let header = |sites: usize| {
        let names: Vec<String> = (0..sites).map(|site| format!("\"s{site}\"")).collect();
        format!(r#"{{"h":1,"clock":"x-us","sites":[{}]}}"#, names.join(","))
    };
    assert!(read(header(1024)).is_ok());
    assert_malformed(read(header(1025)), 1, "more than 1024 sites");
    let one_more = r#"{"t":1,"type":"invoke","process":1,"site":"x","value":[["r","k",null]]}"#;
    assert_malformed(
        read(format!("{}\n{one_more}\n", header(1024))),
        2,
        "more than 1024 sites",
    );
}

#[test]
fn malformed_lines_are_refused_with_number_and_reason() {
    let invoke = r#"{"t":5,"type":"invoke","process":1,"value":[["w","x","a"]]}"#;
    let cases: &[(&[&str], u64, &str)] = &[
        (&["{"], 2, "EOF"),
        (&["[1]"], 2, "not a JSON object"),
        (
            &[r#"{"t":-1,"type":"ok","process":1,"value":[]}"#],
            2,
            "invalid value",
        ),
        (
            &[r#"{"t":1,"type":"ok","process":4294967296,"value":[]}"#],
            2,
            "invalid value",
        ),
        (
            &[r#"{"t":1,"type":"start","process":1,"value":[["r","x",null]]}"#],
            2,
            "\"start\"",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"f":"cas","value":[["r","x",null]]}"#],
            2,
            "f is \"cas\"",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r","x"]]}"#],
            2,
            "not of the form",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["push","x",1]]}"#],
            2,
            "\"push\"",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["append","x",null]]}"#],
            2,
            "null is appended",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r",null,null]]}"#],
            2,
            "neither a string",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r",{"hex":"0"},null]]}"#],
            2,
            "hex",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r",{"hex":"zz"},null]]}"#],
            2,
            "hex",
        ),
        (&[invoke, invoke], 3, "has not returned"),
        (
            &[r#"{"t":6,"type":"ok","process":1,"value":[["w","x","a"]]}"#],
            2,
            "did not invoke",
        ),
        (
            &[
                invoke,
                r#"{"t":6,"type":"ok","process":1,"value":[["w","y","a"]]}"#,
            ],
            3,
            "another operation",
        ),
        (
            &[
                invoke,
                r#"{"t":6,"type":"ok","process":1,"value":[["r","x","a"]]}"#,
            ],
            3,
            "another operation",
        ),
        (
            &[
                invoke,
                r#"{"t":6,"type":"ok","process":1,"value":[["w","x","b"]]}"#,
            ],
            3,
            "another operation",
        ),
        (
            &[
                invoke,
                r#"{"t":4,"type":"ok","process":1,"value":[["w","x","a"]]}"#,
            ],
            3,
            "before it was invoked",
        ),
        (
            &[
                invoke,
                r#"{"t":6,"type":"ok","process":1,"value":[["w","x","a"]],"wb":{"order":{"x":-1}}}"#,
            ],
            3,
            "not a version",
        ),
        (
            &[
                invoke,
                r#"{"t":6,"type":"ok","process":1,"value":[["w","x","a"]],"wb":{"order":{"x":"1e9"}}}"#,
            ],
            3,
            "not a version",
        ),
    ];
    for (lines, line, reason) in cases {
        assert_malformed(read_after_header(lines), *line, reason);
    }
    assert_malformed(
        read(
            "{\"h\":1,\"clock\":\"-ms\"}\n{\"t\":18446744073709551615,\"type\":\"invoke\",\"process\":1,\"value\":[[\"r\",\"x\",null]]}",
        ),
        2,
        "out of range",
    );
}

#[test]
fn an_endless_line_is_refused_before_it_fills_the_memory() {
    let mut text = format!("{HEADER}\n").into_bytes();
    text.resize(text.len() + 4 * LINE_BYTES_MAX, b' ');
    assert_malformed(read(&text), 2, "longer than 1048576 bytes");
}

#[test]
fn errors_read_as_a_sentence() {
    let error = read("{}").unwrap_err();
    assert!(error.to_string().starts_with("line 1: "), "{error}");
}
