//! Formats of other tools: what is read, what is kept, what is refused.

use std::io::{Cursor, Write};

use dkvf_check::formats::{
    Format, LINE_BYTES_MAX, Loss, Losses, ReadError, detect, read, read_any, write,
};
use dkvf_check::{Action, DataType, History, Model, Options, Outcome, Stamps, Verdict};

/// A history in words: a line for each transaction, `session from..to outcome: operations`.
fn lines(history: &History) -> Vec<String> {
    let describe = |id: usize| {
        let transaction = &history.transactions()[id];
        let operations: Vec<String> = history
            .operations_of(id)
            .map(|op| history.action_text(op).to_string())
            .collect();
        let to = transaction
            .complete_us
            .map_or_else(String::new, |at| at.to_string());
        let outcome = match transaction.outcome {
            Outcome::Ok => "",
            Outcome::Fail => " failed",
            Outcome::Info => " unknown",
        };
        let (session, from) = (transaction.session, transaction.invoke_us);
        format!("{session} {from}..{to}{outcome}: {}", operations.join(", "))
    };
    (0..history.transactions().len()).map(describe).collect()
}

#[track_caller]
fn assert_reads(
    format: Format,
    file_name: &str,
    text: impl AsRef<[u8]>,
    expected: &[&str],
) -> History {
    let (detected, history) = read_any(text.as_ref(), file_name).unwrap();
    assert_eq!(detected, format);
    assert_eq!(lines(&history), expected);
    history
}

#[track_caller]
fn assert_malformed(format: Format, text: impl AsRef<[u8]>, at: u64, part: &str) {
    match read(format, text.as_ref()) {
        Err(ReadError::Malformed { line, reason }) => {
            assert_eq!(line, at, "{reason}");
            assert!(reason.contains(part), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

const EDN: &str = r#"; a history of Elle
{:index 0, :time 1000, :type :invoke, :process 0, :f :txn, :value [[:append 5 1] [:r "é\n" nil]]}
{:type :info, :process :nemesis, :f :start-partition, :value [:isolated {"n1" #{"n2"}}], :time 1500}
#jepsen.history.Op{:time 2999, :type :ok, :process 0, :f :txn, :value [[:append 5 1] [:r "é\n" [7 8]]]}
{:time 3000 :type :invoke :process 1 :f :txn :value ((:append 5 2))} #_{:type :bogus}
{:time 4000 :type :info :process 1 :f :txn :value [[:append 5 2]] :error [:timeout \a]}
{:time 5000 :type :invoke :process 2 :f :txn :value [[:r 5 nil]]}
{:time 6000 :type :ok :process 2 :f :txn :value [[:r 5 nil]]}
"#;

#[test]
fn transactions_of_elle_are_read() {
    let expected = [
        "0 1..2: appended 1 to 5, read é\\n = [7, 8]",
        "1 3..4 unknown: appended 2 to 5",
        "2 5..6: read 5 = []",
    ];
    assert_reads(Format::JepsenEdn, "history.edn", EDN, &expected);
    let events: Vec<&str> = EDN
        .lines()
        .filter(|line| line.starts_with(['{', '#']))
        .collect();
    let vector = format!("[{}]", events.join("\n "));
    assert_reads(Format::JepsenEdn, "", vector, &expected);
}

#[test]
fn registers_of_knossos_are_read_with_independent_keys_or_without() {
    let text = r#"[{:process 70, :type :invoke, :f :read, :value nil}
 {:process 75, :type :invoke, :f :write, :value 3}
 {:process 70, :type :ok, :f :read, :value nil}
 {:process 75, :type :ok, :f :write, :value 3}
 {:process 78, :type :invoke, :f :cas, :value [3 1]}
 {:process 78, :type :fail, :f :cas, :value [3 1]}
 {:process 79, :type :invoke, :f :cas, :value [9 [0 2]]}
 {:process 79, :type :info, :f :cas, :value :timed-out}
 {:process 80, :type :invoke, :f :read, :value [9 nil]}
 {:process 80, :type :ok, :f :read, :value [9 2]}
 {:process 81, :type :invoke, :f :acquire, :value nil}]"#;
    assert_reads(
        Format::JepsenEdn,
        "history.edn",
        text,
        &[
            "70 1..3: read x = initial",
            "75 2..4: wrote x = 3",
            "78 5..6 failed: set x from 3 to 1",
            "79 7..8 unknown: set 9 from 0 to 2",
            "80 9..10: read 9 = 2",
            "81 11.. unknown: acquired x",
        ],
    );
}

#[test]
fn json_of_jepsen_is_read_as_array_or_lines() {
    let events = [
        r#"{"index":0,"time":7000,"type":"invoke","process":3,"f":"txn","value":[["w",1,5],["r","a\u00e9\ud83d\ude00",null]]}"#,
        r#"{"type":"info","process":"nemesis","f":"kill","value":null,"time":7500}"#,
        r#"{"index":1,"time":9000,"type":"ok","process":3,"f":"txn","value":[["w",1,5],["r","a\u00e9\ud83d\ude00",true]]}"#,
    ];
    let expected = ["3 7..9: wrote 1 = 5, read aé😀 = true"];
    assert_reads(
        Format::JepsenJson,
        "history.json",
        events.join("\n"),
        &expected,
    );
    assert_reads(
        Format::JepsenJson,
        "h.json",
        format!("[{}]", events.join(",\n")),
        &expected,
    );
}

#[test]
fn the_log_of_early_jepsen_is_read() {
    let text = "INFO  jepsen.core - nodes up\n\
        INFO  jepsen.util - 4\t:invoke\t:read\tnil\n\
        2014-06-05 11:00:00 INFO  jepsen.util - 1\t:invoke\t:cas\t[2 4]\n\
        INFO  jepsen.util - :nemesis\t:info\t:start\t\"Cut off\"\n\
        INFO  jepsen.util - 4\t:ok\t:read\tnil\n\
        INFO  jepsen.util - 1\t:info\t:cas\t:timed-out\n\
        INFO  jepsen.util - 5\t:invoke\t:write\t1\n";
    let history = assert_reads(
        Format::JepsenLog,
        "etcd.log",
        text,
        &[
            "4 1..3: read x = initial",
            "1 2..4 unknown: set x from 2 to 4",
            "5 5.. unknown: wrote x = 1",
        ],
    );
    assert_eq!(DataType::of(&history), DataType::CasRegister);
}

#[test]
fn texts_of_porcupine_are_read_and_judged() {
    let text = r#"{:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}
{:process 0, :type :ok, :f :append, :key "0", :value "x 0 0 y"}
{:process 0, :type :invoke, :f :get, :key "7", :value nil}
{:process 0, :type :ok, :f :get, :key "7", :value ""}
{:process 0, :type :invoke, :f :put, :key "7", :value "a"}
{:process 0, :type :ok, :f :put, :key "7", :value "a"}
{:process 0, :type :invoke, :f :append, :key "7", :value "b"}
{:process 0, :type :ok, :f :append, :key "7", :value "b"}
{:process 0, :type :invoke, :f :get, :key "7", :value nil}
{:process 0, :type :ok, :f :get, :key "7", :value "ab"}
"#;
    let judged = |text: &str| {
        let (format, history) = read_any(text.as_bytes(), "c01.txt").unwrap();
        assert_eq!(format, Format::PorcupineKv);
        Model::Linearizable
            .check(&history, &Options::default())
            .name()
    };
    assert_eq!(judged(text), "satisfied");
    assert_eq!(judged(&text.replace("\"ab\"", "\"ba\"")), "violated");
}

#[test]
fn sessions_of_dbcop_are_read() {
    let expected = [
        "0 0..1: wrote 0 = 1, read 1 = initial",
        "0 0..1 failed: wrote 1 = 2",
        "1 0..1: read 0 = 1",
    ];
    let data = r#"[[{"events":[{"Write":{"variable":0,"version":1}},{"Read":{"variable":1,"version":null}}],"committed":true},
        {"events":[["w",1,2]],"committed":false},{"events":[],"committed":true}],
        [{"events":[["r",0,1]],"committed":true}]]"#;
    assert_reads(Format::DbcopJson, "h.json", data, &expected);
    let wrapped = format!(
        r#"{{"params":{{"id":0,"n_node":2}},"info":"generated","start":"now","end":"then","data":{data}}}"#
    );
    let history = assert_reads(Format::DbcopJson, "h.json", wrapped, &expected);
    assert!(!history.about.has_time());
    match Model::Linearizable.check(&history, &Options::default()) {
        Verdict::Unknown(reason) => assert!(reason.contains("when"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let text = "// by hand\n[0:=1 1==?] [1:=2]!\n\n---\n[0==1] // read\n";
    assert_reads(Format::DbcopHist, "h.hist", text, &expected);
}

#[test]
fn binary_files_of_dbcop_are_read() {
    let number = |number: u64| number.to_le_bytes().to_vec();
    let text = |text: &str| [number(text.len() as u64), text.as_bytes().to_vec()].concat();
    let event = |write: u8, key: u64, value: u64, success: u8| {
        [vec![write], number(key), number(value), vec![success]].concat()
    };
    let file = [
        [number(9), number(1), number(2), number(2), number(4)].concat(),
        [text("info"), text("2019-01-01"), text("2019-01-02")].concat(),
        number(1),
        number(2),
        [
            number(3),
            event(1, 7, 5, 1),
            event(0, 8, 0, 1),
            event(0, 8, 1, 0),
            vec![1],
        ]
        .concat(),
        [number(1), event(1, 8, 6, 1), vec![0]].concat(),
    ]
    .concat();
    assert_reads(
        Format::DbcopBincode,
        "history.bincode",
        &file,
        &[
            "0 0..1: wrote 7 = 5, read 8 = initial",
            "0 0..1 failed: wrote 8 = 6",
        ],
    );
    for length in 0..file.len() {
        assert!(
            read(Format::DbcopBincode, &file[..length]).is_err(),
            "{length}"
        );
    }
    let mut endless = file.clone();
    endless[40] = 0xff;
    assert_malformed(
        Format::DbcopBincode,
        &endless,
        1,
        "beyond the end of the file",
    );
}

#[test]
fn lines_of_polysi_are_put_together_to_transactions() {
    assert_reads(
        Format::PolysiText,
        "history.txt",
        "w(1,5,10,100)\nr(2,0,20,101)\nr(1,5,10,100)\nw(2,6,10,-1)\nr(2,6,20,102)\n",
        &[
            "0 0..1: wrote 1 = 5, read 1 = 5",
            "1 0..1: read 2 = initial",
            "0 0..1 failed: wrote 2 = 6",
            "1 0..1: read 2 = 6",
        ],
    );
    // Zero is a value like others where somebody writes it.
    assert_reads(
        Format::PolysiText,
        "history.txt",
        "w(1,0,1,1)\nr(1,0,2,2)\n",
        &["0 0..1: wrote 1 = 0", "1 0..1: read 1 = 0"],
    );
}

#[test]
fn stamps_of_chronos_are_read() {
    let text = r#"[
    {
        "tid": 67, "sid": 19,
        "sts": {"p": 1691420095436341, "l": 61},
        "cts": {"l": 18, "p": "1691420095659914"},
        "ops": [{"t": "w", "k": 7, "v": 2}, {"t": "READ", "k": 8, "v": 0}, {"t": "r", "k": 9}]
    },
    {"tid": 68, "sid": "19", "sts": {"p": 5, "l": 0}, "cts": {"p": 6, "l": 0},
     "ops": [{"t": "a", "k": 3, "v": 1}, {"t": "r", "k": 6, "v": [4, 5]}]}
]"#;
    let history = assert_reads(
        Format::TimekillerJson,
        "h.json",
        text,
        &[
            "0 0..1: wrote 7 = 2, read 8 = initial, read 9 = initial",
            "0 0..1: appended 1 to 3, read 6 = [4, 5]",
        ],
    );
    let stamps = Stamps {
        start: vec![1_691_420_095_436_341, 61],
        commit: vec![1_691_420_095_659_914, 18],
    };
    assert_eq!(history.stamps(0), Some(&stamps));
    let versions: Vec<_> = history.operations().iter().map(|op| op.version).collect();
    let place = 1_691_420_095_659_914_u128 << 64 | 18;
    assert_eq!(versions, [Some(place), None, None, Some(6 << 64), None]);
}

#[test]
fn compressed_files_are_read_as_they_are() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(EDN.as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    let (format, history) = read_any(&compressed[..], "history.edn.gz").unwrap();
    assert_eq!(format, Format::JepsenEdn);
    assert_eq!(lines(&history).len(), 3);
    let half = &compressed[..compressed.len() / 2];
    assert!(matches!(
        read(Format::JepsenEdn, half),
        Err(ReadError::Io(_))
    ));
}

#[test]
fn errors_name_line_and_reason() {
    let event = |rest: &str| {
        format!("{{:type :invoke, :process 0, :f :txn, :value [[:r 1 nil]]}}\n\n{rest}")
    };
    let cases: &[(&str, &str)] = &[
        (
            "{:type :ok, :process 1, :f :txn, :value []}",
            "did not invoke",
        ),
        (
            "{:type :invoke, :process 0, :f :txn, :value []}",
            "has not returned",
        ),
        (
            "{:type :begin, :process 1, :f :txn, :value []}",
            "\"begin\"",
        ),
        ("{:process 1, :f :txn, :value []}", "no type"),
        (
            "{:type :invoke, :process 1, :f :txn, :value 5}",
            "not a list",
        ),
        (
            "{:type :invoke, :process 1, :f :txn, :value [[:r 1]]}",
            "not of the form",
        ),
        (
            "{:type :invoke, :process 1, :f :txn, :value [[:push 1 2]]}",
            "\"push\"",
        ),
        (
            "{:type :invoke, :process 1, :f :txn, :value [[:r [1] 2]]}",
            "a key is",
        ),
        (
            "{:type :invoke, :process 1, :f :write, :value {}}",
            "a value is",
        ),
        (
            "{:type :invoke, :process -1, :f :write, :value 1}",
            "the process -1",
        ),
        (
            "{:type :ok, :process 0, :f :txn, :value [[:w 1 2]]}",
            "another operation",
        ),
        ("{:type :ok :process 0", "ends before"),
        ("{:type}", "without a value"),
        ("\"abc", "within a text"),
        ("\"\\q\"", "escape"),
        ("\"\\u12", "four digits"),
        ("]", "closes nothing"),
        ("5", "not a map"),
        ("# {}", "a # that"),
    ];
    for (text, reason) in cases {
        assert_malformed(Format::JepsenEdn, event(text), 3, reason);
    }
    let deep = "[".repeat(100);
    assert_malformed(Format::JepsenEdn, event(&deep), 3, "deeper than 32");
    let long = format!("{{:a \"{}\"}}", "x".repeat(LINE_BYTES_MAX));
    assert_malformed(
        Format::JepsenEdn,
        event(&long),
        3,
        "longer than 1048576 bytes",
    );
    assert_malformed(
        Format::JepsenEdn,
        "[{:type :invoke, :value []} \n",
        2,
        "ends before a ']'",
    );
    assert_malformed(Format::JepsenEdn, "[]\n[]", 2, "something follows");
    assert_malformed(Format::DbcopHist, "[x:=1]\n[x:=]\n", 2, "\"x:=\"");
    assert_malformed(Format::DbcopHist, "[x:=1\n", 1, "does not end with ]");
    assert_malformed(Format::DbcopHist, "[x-:=1]\n", 1, "x-:=1");
    assert_malformed(Format::PolysiText, "\nr(1,2,3)\n", 2, "not of the form");
    assert_malformed(
        Format::PolysiText,
        "r(1,1,1,1)\nr(1,1,2,1)\n",
        2,
        "of the sessions",
    );
    assert_malformed(Format::DbcopJson, "{\"info\":1}", 1, "no field data");
    assert_malformed(
        Format::DbcopJson,
        "[[\n{\"events\":[[\"w\",1,null]],\"committed\":true}]]",
        2,
        "not a number",
    );
    assert_malformed(Format::TimekillerJson, "[\n\n{\"tid\":1}]", 3, "no sts");
    assert_malformed(
        Format::JepsenLog,
        "x\nINFO jepsen.util - 1 :ok :read 5\n",
        2,
        "did not invoke",
    );
    let unknown = read_any(&b"hello"[..], "h").unwrap_err().to_string();
    assert!(
        unknown.contains("not recognised; name one of: native, "),
        "{unknown}"
    );
}

#[test]
fn empty_input_is_no_format() {
    assert_eq!(detect(b"", "x.edn"), Some(Format::JepsenEdn));
    assert_eq!(detect(b"", "x"), None);
    assert_eq!(
        detect(b"{\"h\":1,\"clock\":\"virtual-us\"}\n", "x.jsonl"),
        Some(Format::Native)
    );
}

/// A file of each format.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let history = read(
        Format::PolysiText,
        &b"w(1,5,1,1)\nr(2,0,1,1)\nr(1,5,2,2)\nw(2,6,2,2)\nw(1,7,2,3)\n"[..],
    )
    .unwrap();
    let mut stamped = history.clone();
    for id in 0..3 {
        let stamp = |time| vec![time, 0];
        stamped.set_stamps(
            id,
            Stamps {
                start: stamp(id as u64),
                commit: stamp(id as u64 + 1),
            },
        );
    }
    let mut samples: Vec<(Format, Vec<u8>)> = Format::ALL
        .into_iter()
        .filter(|&format| !matches!(format, Format::JepsenLog | Format::PorcupineKv))
        .map(|format| {
            let mut bytes = Vec::new();
            write(format, &stamped, &mut bytes).unwrap();
            (format, bytes)
        })
        .collect();
    samples.push((Format::JepsenEdn, EDN.as_bytes().to_vec()));
    let log = "INFO jepsen.util - 4 :invoke :cas [2 4]\nINFO jepsen.util - 4 :ok :cas [2 4]\n";
    samples.push((Format::JepsenLog, log.as_bytes().to_vec()));
    samples
}

#[test]
fn every_sample_is_recognised() {
    for (format, bytes) in samples() {
        let (detected, _) = read_any(&bytes[..], "").unwrap();
        assert_eq!(detected, format, "{}", String::from_utf8_lossy(&bytes));
    }
}

/// Repeatable numbers (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn no_damage_to_a_file_makes_a_reader_panic() {
    let mut state = 1;
    let mut refused = 0;
    for (format, bytes) in samples() {
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random(&mut state) % 4 {
                let at = random(&mut state) as usize % damaged.len();
                match random(&mut state) % 5 {
                    0 => damaged.truncate(at + 1),
                    1 => damaged[at] = random(&mut state) as u8,
                    2 => damaged[at] ^= 1 << (random(&mut state) % 8),
                    3 => damaged.insert(at, b"[]{}()\"\\#:,;0-"[random(&mut state) as usize % 14]),
                    _ => {
                        let to = random(&mut state) as usize % damaged.len();
                        let part = damaged[at.min(to)..at.max(to)].to_vec();
                        damaged.splice(at..at, part);
                    }
                }
            }
            refused += usize::from(read(format, &damaged[..]).is_err());
            let _ = read_any(&damaged[..], "");
            for other in [Format::Native, Format::JepsenEdn, Format::DbcopBincode] {
                let _ = read(other, &damaged[..]);
            }
        }
    }
    assert!(refused > 10_000, "{refused}");
}

/// A drawn history of transactions, in all that formats may have.
fn drawn(state: &mut u64, has_objects: bool) -> History {
    let mut history = History::default();
    for process in 0..3_u32 {
        let mut now_us = 0;
        for _ in 0..random(state) % 5 {
            let outcome = match random(state) % 6 {
                0 => Outcome::Fail,
                1 => Outcome::Info,
                _ => Outcome::Ok,
            };
            let transaction = dkvf_check::Transaction {
                process,
                session: process,
                site: history.site_id(""),
                invoke_us: now_us,
                complete_us: Some(now_us + 1 + random(state) % 3),
                outcome,
            };
            now_us += 5;
            let count = if has_objects {
                1
            } else {
                1 + random(state) % 3
            };
            let mut operations = Vec::new();
            for _ in 0..count {
                let mut value = || {
                    let text = ["5", "7", "a b", "-3", "\"é\n", "12345678901234567890"];
                    let text = text[random(state) as usize % text.len()];
                    history.value_id(text.as_bytes())
                };
                let (one, other) = (value(), value());
                let is_known = outcome == Outcome::Ok;
                let action = match (random(state) % 6, has_objects) {
                    (0, true) => Action::Acquire,
                    (1, true) => Action::Release,
                    (2, true) => Action::Cas {
                        expected: Some(one),
                        new: None,
                    },
                    (0, false) => Action::Append(one),
                    (1, false) if is_known => Action::ReadList(history.list_id(&[one, other])),
                    (3, _) => Action::Write(Some(one)),
                    (4, _) => Action::Write(None),
                    _ => Action::Read(Some(one).filter(|_| is_known)),
                };
                let key = ["1", "x", "k_2"][random(state) as usize % 3];
                operations.push(dkvf_check::Operation {
                    key: history.key_id(key.as_bytes()),
                    action,
                    version: None,
                });
            }
            history.push(transaction, operations);
        }
    }
    history
}

#[test]
fn formats_of_jepsen_keep_operations_outcomes_and_times() {
    let mut state = 2;
    for round in 0..400 {
        let history = drawn(&mut state, round % 2 == 0);
        for format in [Format::JepsenEdn, Format::JepsenJson] {
            let mut bytes = Vec::new();
            assert_eq!(
                write(format, &history, &mut bytes).unwrap(),
                Losses::default()
            );
            let copy = read(format, &bytes[..]).unwrap();
            let sorted = |history: &History| {
                let mut lines = lines(history);
                lines.sort();
                // In a history of lists, nil is the empty list.
                lines
                    .iter()
                    .map(|line| line.replace("= []", "= initial"))
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                sorted(&copy),
                sorted(&history),
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}

/// The reads and writes of what committed, and the writes of what failed, session by session.
fn register_lines(history: &History, keeps_failed: bool) -> Vec<String> {
    let mut kept: Vec<(u32, String)> = Vec::new();
    for (id, transaction) in history.transactions().iter().enumerate() {
        let is_known = |op: &usize| {
            transaction.outcome == Outcome::Ok || history.operations()[*op].action.is_write()
        };
        let operations = history.operations_of(id).filter(is_known);
        let operations: Vec<String> = operations
            .map(|op| history.action_text(op).to_string())
            .collect();
        let is_kept = transaction.outcome == Outcome::Ok
            || keeps_failed && transaction.outcome == Outcome::Fail;
        if is_kept && !operations.is_empty() {
            kept.push((
                transaction.session,
                format!("{:?} {}", transaction.outcome, operations.join(", ")),
            ));
        }
    }
    kept.sort_by_key(|&(session, _)| session);
    kept.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn formats_of_sessions_keep_what_committed_in_its_order() {
    let mut state = 3;
    for _ in 0..400 {
        let mut history = History::default();
        let site = history.site_id("");
        for i in 0..random(&mut state) % 12 {
            let outcome = if random(&mut state).is_multiple_of(5) {
                Outcome::Fail
            } else {
                Outcome::Ok
            };
            let session = random(&mut state) as u32 % 3;
            let transaction = dkvf_check::Transaction {
                process: session,
                session,
                site,
                invoke_us: 10 * i,
                complete_us: Some(10 * i + 5),
                outcome,
            };
            let mut operations = Vec::new();
            for _ in 0..1 + random(&mut state) % 3 {
                let number = 1 + random(&mut state) % 9;
                let value = Some(history.value_id(number.to_string().as_bytes()));
                let action = match random(&mut state) % 3 {
                    0 => Action::Write(value),
                    1 => Action::Read(value),
                    _ => Action::Read(None),
                };
                let key = history.key_id((random(&mut state) % 3).to_string().as_bytes());
                operations.push(dkvf_check::Operation {
                    key,
                    action,
                    version: None,
                });
            }
            let id = history.push(transaction, operations);
            history.set_stamps(
                id,
                Stamps {
                    start: vec![i, 0],
                    commit: vec![i, 1],
                },
            );
        }
        let formats = [
            (Format::DbcopJson, true),
            (Format::DbcopHist, true),
            (Format::DbcopBincode, true),
            (Format::PolysiText, false),
            (Format::TimekillerJson, false),
        ];
        for (format, keeps_failed) in formats {
            let mut bytes = Vec::new();
            let losses = write(format, &history, &mut bytes).unwrap();
            assert!(!losses.0.contains(&Loss::Names), "{format}: {losses}");
            let copy = read(format, &bytes[..]).unwrap();
            assert_eq!(
                register_lines(&copy, keeps_failed),
                register_lines(&history, keeps_failed),
                "{format}: {}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}

#[test]
fn what_is_lost_is_said() {
    let text = r#"{"h":1,"workload":"w","clock":"virtual-us","sites":["dc1"]}
{"t":0,"type":"invoke","process":1,"session":9,"site":"dc1","value":[["w","x","a"],["append","l",1]]}
{"t":1,"type":"ok","process":1,"value":[["w","x","a"],["append","l",1]],"wb":{"start":[1],"commit":[2],"order":{"x":4}}}
{"t":2,"type":"invoke","process":2,"value":[["w","x","b"]]}
{"t":3,"type":"fail","process":2,"value":[["w","x","b"]]}
{"t":4,"type":"invoke","process":3,"value":[["w","x","c"]]}
{"t":5,"type":"invoke","process":4,"value":[["w","x","d"]]}
{"t":6,"type":"invoke","process":5,"value":[["r","x",null]]}
{"t":7,"type":"ok","process":5,"value":[["r","x","d"]]}"#;
    let history = read(Format::Native, text.as_bytes()).unwrap();
    let losses = |format| {
        let mut bytes = Vec::new();
        let losses = write(format, &history, &mut bytes).unwrap();
        (
            losses.0.into_iter().collect::<Vec<_>>(),
            String::from_utf8(bytes).unwrap(),
        )
    };
    let (lost, bytes) = losses(Format::PolysiText);
    assert_eq!(
        lost,
        [
            Loss::UnknownOutcomes,
            Loss::FailedTransactions,
            Loss::RealTime,
            Loss::Sites,
            Loss::VersionOrder,
            Loss::Stamps,
            Loss::Names,
            Loss::Operations,
            Loss::About,
        ]
    );
    // What wrote `d` took effect, for it was read; what wrote `c` may not have.
    assert_eq!(bytes, "w(1,5,1,1)\nr(1,5,2,2)\nw(1,1,3,3)\n");
    assert_eq!(
        losses(Format::JepsenEdn).0,
        [
            Loss::Sessions,
            Loss::Sites,
            Loss::VersionOrder,
            Loss::Stamps,
            Loss::About
        ]
    );
    assert_eq!(losses(Format::Native).0, []);
    let (lost, bytes) = losses(Format::TimekillerJson);
    assert!(
        lost.contains(&Loss::Unstamped) && !lost.contains(&Loss::Stamps),
        "{lost:?}"
    );
    assert!(bytes.contains(r#""cts":{"l":0,"p":2}"#), "{bytes}");
    let error = write(Format::JepsenLog, &history, &mut Cursor::new(Vec::new())).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}
