//! The native format keeps what a history says, and refuses what it is not.

use std::io::{BufReader, Cursor};

use dkvf_check::native::{self, LINE_BYTES_MAX, ReadError};
use dkvf_check::{About, History, Kind, Operation, Outcome};
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

/// What an operation says once names are resolved.
type Facts = (
    (u32, u32, String),
    (Kind, Vec<u8>, Option<Vec<u8>>, Option<u128>),
    (u64, Option<u64>, Outcome),
);

fn facts(history: &History) -> Vec<Facts> {
    let mut operations: Vec<&Operation> = history.operations().iter().collect();
    operations.sort_by_key(|op| (op.invoke_us, op.process));
    operations
        .into_iter()
        .map(|op| {
            let value = op.value.map(|value| history.value(value).to_vec());
            (
                (op.process, op.session, history.site(op.site).to_owned()),
                (op.kind, history.key(op.key).to_vec(), value, op.version),
                (op.invoke_us, op.complete_us, op.outcome),
            )
        })
        .collect()
}

#[derive(Clone, Debug)]
struct Drawn {
    is_write: bool,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    version: Option<u128>,
    gap_us: u64,
    takes_us: u64,
    outcome: Outcome,
    site: u8,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let bytes = || {
        prop_oneof![
            "[a-z0-9\"\\\\ é\n-]{0,8}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..6),
        ]
    };
    let version = prop_oneof![
        (0..100_u128).prop_map(|v| v),
        any::<u128>(),
        Just((1 << 53) + 1)
    ];
    let outcome = prop_oneof![Just(Outcome::Ok), Just(Outcome::Fail), Just(Outcome::Info)];
    (
        any::<bool>(),
        bytes(),
        proptest::option::of(bytes()),
        proptest::option::of(version),
        0..3_u64,
        0..3_u64,
        outcome,
        0..3_u8,
    )
        .prop_map(
            |(is_write, key, value, version, gap_us, takes_us, outcome, site)| Drawn {
                is_write,
                key,
                value,
                version,
                gap_us,
                takes_us,
                outcome,
                site,
            },
        )
}

/// Each list is one process, whose operations follow each other.
fn history(processes: Vec<Vec<Drawn>>, about: About) -> History {
    let mut history = History::new(about);
    for (process, operations) in (0_u32..).zip(processes) {
        let mut now_us = 0;
        for drawn in operations {
            let kind = if drawn.is_write {
                Kind::Write
            } else {
                Kind::Read
            };
            let value = match (kind, drawn.outcome) {
                (Kind::Write, _) => drawn.value.or(Some(b"v".to_vec())),
                (Kind::Read, Outcome::Ok) => drawn.value,
                (Kind::Read, _) => None,
            };
            // Operations of one process and one microsecond have no order that
            // `facts` could sort by, so they are kept apart.
            let invoke_us = now_us + 1 + drawn.gap_us;
            let complete_us = invoke_us + drawn.takes_us;
            now_us = complete_us;
            let operation = Operation {
                process,
                session: process / 2,
                site: history.site_id(&format!("dc{}", drawn.site)),
                kind,
                key: history.key_id(&drawn.key),
                value: value.map(|value| history.value_id(&value)),
                version: drawn.version,
                invoke_us,
                complete_us: Some(complete_us),
                outcome: drawn.outcome,
            };
            history.push(operation);
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
    script.op(3, "dc1", Kind::Write, "x", "3-1");
    script.op(4, "dc2", Kind::Read, "x", "");
    let history = crate::common::changed(&script.history, |id, op| {
        op.version = (id == 0).then_some(1 << 60);
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
    let history = crate::common::changed(&script.history, |id, op| {
        let now_us = id as u64 / 40;
        (op.invoke_us, op.complete_us) = (now_us, Some(now_us));
    });
    let mut bytes = Vec::new();
    native::write(&history, &mut bytes).unwrap();
    let copy = read(&bytes).unwrap();
    let of_session = |history: &History, session| -> Vec<_> {
        let operations = history.operations().iter();
        let own = operations.filter(|op| op.session == session);
        own.map(|op| (op.kind, history.value(op.value.unwrap()).to_vec()))
            .collect()
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
    let [first, second] = history.operations() else {
        panic!("{history:?}");
    };
    assert_eq!(history.key(first.key), b"5");
    assert_eq!((first.invoke_us, first.complete_us), (1, Some(1)));
    assert_eq!((first.value, first.version), (None, Some(17)));
    assert_eq!((first.process, first.session), (3, 3));
    assert_eq!(second.outcome, Outcome::Info);
    assert_eq!(second.complete_us, None);
    assert_eq!(
        second.value.map(|value| history.value(value)),
        Some(&b"12"[..])
    );
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
            &[r#"{"t":1,"type":"invoke","process":1,"value":[]}"#],
            2,
            "transaction of 0 elements",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r","x",null],["r","y",null]]}"#],
            2,
            "transaction of 2 elements",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["r","x"]]}"#],
            2,
            "not of the form",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["append","x",1]]}"#],
            2,
            "\"append\"",
        ),
        (
            &[r#"{"t":1,"type":"invoke","process":1,"value":[["w","x",null]]}"#],
            2,
            "write without a value",
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
            "value differs",
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
