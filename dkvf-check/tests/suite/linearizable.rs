//! Linearizability: what the definition says, on small histories of all kinds and on published mistakes.

use std::collections::BTreeMap;

use dkvf_check::{
    Action, AnomalyKind, Budget, DataType, Evidence, History, IsOver, KeyId, Model, Operation,
    Options, Outcome, Scan, Transaction, TxnId, Verdict,
};

use crate::common::changed;

fn check(history: &History, datatype: Option<DataType>) -> Verdict {
    let options = Options {
        datatype,
        ..Options::default()
    };
    Model::Linearizable.check(history, &options)
}

/// Repeatable numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// When transactions happen in a drawn history.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sessions {
    /// Sessions go on, often in the instant in which they were answered.
    Long,
    /// Every transaction is a session of its own.
    Single,
}

/// A history of up to `most` transactions which `draw` fills.
fn draw_history(
    random: &mut Random,
    most: u64,
    sessions: Sessions,
    mut draw: impl FnMut(&mut Random, &mut History, u64) -> Vec<(KeyId, Action)>,
) -> History {
    let mut history = History::default();
    let site = history.site_id("");
    let mut next_session = 4;
    let mut clients = [(0, 0_u64), (1, 1), (2, 0)];
    for i in 0..2 + random.below(most - 1) {
        let (session, now_us) = &mut clients[random.below(3) as usize];
        let invoke_us = *now_us + random.below(3);
        let complete_us = invoke_us + random.below(5);
        let outcome = match random.below(10) {
            0 => Outcome::Fail,
            1 | 2 => Outcome::Info,
            _ => Outcome::Ok,
        };
        let transaction = Transaction {
            process: *session,
            session: *session,
            site,
            invoke_us,
            complete_us: Some(complete_us),
            outcome,
        };
        *now_us = complete_us;
        if outcome == Outcome::Info || sessions == Sessions::Single {
            *session = next_session;
            next_session += 1;
        }
        let operations: Vec<Operation> = draw(random, &mut history, i)
            .into_iter()
            .map(|(key, action)| Operation {
                key,
                action,
                version: None,
            })
            .collect();
        history.push(transaction, operations);
    }
    history
}

/// Reads and writes of one register; no value is written twice.
fn unique_register(random: &mut Random) -> History {
    draw_history(random, 7, Sessions::Long, |random, history, i| {
        let key = history.key_id(b"x");
        let action = match random.below(5) {
            0 | 1 => Action::Write(Some(history.value_id(i.to_string().as_bytes()))),
            2 => Action::Read(None),
            _ => {
                let value = random.below(i + 2);
                Action::Read(Some(history.value_id(value.to_string().as_bytes())))
            }
        };
        vec![(key, action)]
    })
}

/// Reads, writes and swaps of one register with two values.
fn repeated_register(random: &mut Random) -> History {
    draw_history(random, 7, Sessions::Long, |random, history, _| {
        let key = history.key_id(b"x");
        let mut value = || match random.below(3) {
            0 => None,
            value => Some(history.value_id(value.to_string().as_bytes())),
        };
        let (one, other) = (value(), value());
        let action = match random.below(5) {
            0 | 1 => Action::Read(one),
            2 => Action::Cas {
                expected: one,
                new: other,
            },
            _ => Action::Write(one),
        };
        vec![(key, action)]
    })
}

fn lists(random: &mut Random) -> History {
    draw_history(random, 6, Sessions::Long, |random, history, i| {
        let key = history.key_id(b"x");
        let element = history.value_id(i.to_string().as_bytes());
        if random.chance(50) {
            return vec![(key, Action::Append(element))];
        }
        let elements: Vec<_> = (0..i)
            .filter(|_| random.chance(50))
            .map(|i| history.value_id(i.to_string().as_bytes()))
            .collect();
        vec![(key, Action::ReadList(history.list_id(&elements)))]
    })
}

fn texts(random: &mut Random) -> History {
    draw_history(random, 6, Sessions::Long, |random, history, _| {
        let key = history.key_id(b"x");
        let text = |random: &mut Random, length: u64| -> String {
            (0..random.below(length + 1))
                .map(|_| if random.chance(50) { 'a' } else { 'b' })
                .collect()
        };
        let action = match random.below(4) {
            0 => Action::Write(Some(history.value_id(text(random, 1).as_bytes()))),
            1 => Action::Append(history.value_id(text(random, 1).as_bytes())),
            _ => match text(random, 3).as_str() {
                "" => Action::Read(None),
                text => Action::Read(Some(history.value_id(text.as_bytes()))),
            },
        };
        vec![(key, action)]
    })
}

fn locks(random: &mut Random) -> History {
    draw_history(random, 7, Sessions::Long, |random, history, _| {
        let action = if random.chance(50) {
            Action::Acquire
        } else {
            Action::Release
        };
        vec![(history.key_id(b"lock"), action)]
    })
}

/// Transactions of up to three operations on three keys, scans among them.
fn transactions(random: &mut Random) -> History {
    draw_history(random, 5, Sessions::Single, |random, history, _| {
        let operations = 1 + random.below(3);
        (0..operations)
            .map(|_| {
                let key = history.key_id([b"x", b"y", b"z"][random.below(3) as usize]);
                let value = match random.below(3) {
                    0 => None,
                    value => Some(history.value_id(value.to_string().as_bytes())),
                };
                let action = match (random.below(8), value) {
                    (0, Some(value)) => {
                        let scan = Scan {
                            low: b"x".to_vec(),
                            high: Some(b"z".to_vec()),
                            rows: vec![(key, value)],
                        };
                        Action::Scan(history.scan_id(scan))
                    }
                    (1..=4, value) => Action::Read(value),
                    (_, value) => Action::Write(value),
                };
                (key, action)
            })
            .collect()
    })
}

/// What a key holds, as the definition of its data type has it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Bytes(Option<Vec<u8>>),
    List(Vec<Vec<u8>>),
}

/// All linearizations, one after another: the definition itself.
struct Oracle<'h> {
    history: &'h History,
    datatype: DataType,
    keys: Vec<KeyId>,
}

impl Oracle<'_> {
    fn allows(history: &History, datatype: DataType) -> bool {
        let operations = history.operations().iter();
        let scanned = operations.clone().filter_map(|op| match op.action {
            Action::Scan(scan) => Some(history.scan(scan).rows.iter().map(|&(key, _)| key)),
            _ => None,
        });
        let mut keys: Vec<KeyId> = operations
            .map(|op| op.key)
            .chain(scanned.flatten())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let oracle = Oracle {
            history,
            datatype,
            keys,
        };
        let left: Vec<TxnId> = (0..history.transactions().len())
            .filter(|&id| history.transactions()[id].outcome != Outcome::Fail)
            .collect();
        oracle.search(&left, &BTreeMap::new())
    }

    fn returned(&self, id: TxnId) -> Option<u64> {
        let transaction = self.history.transactions()[id];
        (transaction.outcome == Outcome::Ok).then_some(transaction.complete_us?)
    }

    fn precedes(&self, a: TxnId, b: TxnId) -> bool {
        let (first, second) = (
            self.history.transactions()[a],
            self.history.transactions()[b],
        );
        self.returned(a).is_some_and(|returned| {
            returned < second.invoke_us
                || returned == second.invoke_us
                    && first.session == second.session
                    && (first.invoke_us, a) < (second.invoke_us, b)
        })
    }

    fn search(&self, left: &[TxnId], state: &BTreeMap<KeyId, Content>) -> bool {
        if left.iter().all(|&id| self.returned(id).is_none()) {
            return true;
        }
        left.iter().any(|&id| {
            if left
                .iter()
                .any(|&other| other != id && self.precedes(other, id))
            {
                return false;
            }
            let rest: Vec<TxnId> = left.iter().copied().filter(|&other| other != id).collect();
            let mut state = state.clone();
            self.apply(id, &mut state) && self.search(&rest, &state)
        })
    }

    fn apply(&self, id: TxnId, state: &mut BTreeMap<KeyId, Content>) -> bool {
        let is_known = self.returned(id).is_some();
        let mut operations = self.history.operations_of(id);
        operations.all(|op| self.apply_one(op, is_known, state))
    }

    fn apply_one(&self, op: usize, is_known: bool, state: &mut BTreeMap<KeyId, Content>) -> bool {
        let history = self.history;
        let Operation { key, action, .. } = history.operations()[op];
        let bytes = |value: Option<_>| value.map(|value| history.value(value).to_vec());
        let empty = match self.datatype {
            DataType::ListAppend => Content::List(Vec::new()),
            DataType::Kv => Content::Bytes(Some(Vec::new())),
            _ => Content::Bytes(None),
        };
        let content = |value: Option<_>| match (self.datatype, bytes(value)) {
            (DataType::Kv, None) => Content::Bytes(Some(Vec::new())),
            (_, bytes) => Content::Bytes(bytes),
        };
        let scanned = state.clone();
        let held = state.entry(key).or_insert(empty.clone());
        match action {
            Action::Read(value) => !is_known || *held == content(value),
            Action::Write(value) => {
                *held = content(value);
                true
            }
            Action::Cas { expected, new } => {
                let matches = *held == content(expected);
                if matches {
                    *held = content(new);
                }
                matches
            }
            Action::Append(value) => {
                let new = history.value(value);
                match held {
                    Content::List(list) => list.push(new.to_vec()),
                    Content::Bytes(text) => text.get_or_insert_default().extend(new),
                }
                true
            }
            Action::ReadList(list) => {
                let elements = history.list(list).iter();
                let elements = elements
                    .map(|&value| history.value(value).to_vec())
                    .collect();
                !is_known || *held == Content::List(elements)
            }
            Action::Acquire | Action::Release => {
                let taken = Content::Bytes(Some(b"taken".to_vec()));
                let (from, to) = match action {
                    Action::Acquire => (empty, taken),
                    _ => (taken, empty),
                };
                let matches = *held == from;
                *held = to;
                matches
            }
            Action::Scan(scan) => {
                let scan = history.scan(scan);
                let is_within = |key: &&KeyId| {
                    let bytes = history.key(**key);
                    bytes >= &scan.low[..] && scan.high.as_deref().is_none_or(|high| bytes < high)
                };
                let mut keys = self.keys.iter().filter(is_within);
                !is_known
                    || keys.all(|key| {
                        let row = scan.rows.iter().find(|(row, _)| row == key);
                        let expected = content(row.map(|&(_, value)| value));
                        *scanned.get(key).unwrap_or(&empty) == expected
                    })
            }
        }
    }
}

/// The history in which only the transactions of some operations happened.
fn only(history: &History, operations: &[usize]) -> History {
    let kept: Vec<TxnId> = operations.iter().map(|&op| history.owner(op)).collect();
    changed(history, |op, transaction, _| {
        if !kept.contains(&history.owner(op)) {
            transaction.outcome = Outcome::Fail;
        }
    })
}

#[track_caller]
fn compare_with_oracle(datatype: DataType, histories: u64, draw: impl Fn(&mut Random) -> History) {
    let mut violated = 0;
    for seed in 0..histories {
        let history = draw(&mut Random(seed));
        let verdict = check(&history, Some(datatype));
        let allowed = Oracle::allows(&history, datatype);
        match verdict {
            Verdict::Satisfied => assert!(allowed, "seed {seed}: {history:?}"),
            Verdict::Violated(anomalies) => {
                violated += 1;
                assert!(!allowed, "seed {seed}: {}", anomalies[0].explain(&history));
                for anomaly in anomalies {
                    assert!(
                        !Oracle::allows(&only(&history, &anomaly.operations), datatype),
                        "seed {seed}: {}",
                        anomaly.explain(&history)
                    );
                }
            }
            Verdict::Unknown(reason) => panic!("seed {seed}: {reason}"),
        }
    }
    let share = violated * 100 / histories;
    assert!((5..=95).contains(&share), "{share} % are violated");
}

#[test]
fn registers_of_unique_values_are_judged_as_defined() {
    compare_with_oracle(DataType::Register, 4000, unique_register);
}

#[test]
fn the_search_agrees_with_the_zones() {
    for seed in 0..4000 {
        let history = unique_register(&mut Random(seed));
        let zones = check(&history, Some(DataType::Register));
        let search = check(&history, Some(DataType::Kv));
        assert_eq!(
            zones.name(),
            search.name(),
            "seed {seed}: {}",
            zones.explain(&history)
        );
    }
}

#[test]
fn registers_with_compare_and_set_are_judged_as_defined() {
    compare_with_oracle(DataType::CasRegister, 3000, repeated_register);
}

#[test]
fn lists_are_judged_as_defined() {
    compare_with_oracle(DataType::ListAppend, 2000, lists);
}

#[test]
fn texts_are_judged_as_defined() {
    compare_with_oracle(DataType::Kv, 2000, texts);
}

#[test]
fn locks_are_judged_as_defined() {
    compare_with_oracle(DataType::Mutex, 2000, locks);
}

#[test]
fn transactions_on_several_registers_are_one_step() {
    compare_with_oracle(DataType::MultiRegister, 2000, transactions);
}

/// A history in words, one transaction of one operation a line: `session from..to op key [value]`. Without an end the
/// outcome is unknown.
fn script(text: &str) -> History {
    let mut history = History::default();
    let site = history.site_id("");
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [session, time, verb, key, ref values @ ..] = words[..] else {
            panic!("{line}");
        };
        let (from, to) = time.split_once("..").expect("from..to");
        let mut value = |i: usize| {
            values
                .get(i)
                .map(|value| history.value_id(value.as_bytes()))
        };
        let action = match verb {
            "r" => Action::Read(value(0)),
            "w" => Action::Write(value(0)),
            "cas" => Action::Cas {
                expected: value(0),
                new: value(1),
            },
            "acquire" => Action::Acquire,
            "release" => Action::Release,
            _ => panic!("{line}"),
        };
        let session = session.parse().expect("a session");
        let complete_us = to.parse().ok();
        let transaction = Transaction {
            process: session,
            session,
            site,
            invoke_us: from.parse().expect("a time"),
            complete_us,
            outcome: complete_us.map_or(Outcome::Info, |_| Outcome::Ok),
        };
        let operation = Operation {
            key: history.key_id(key.as_bytes()),
            action,
            version: None,
        };
        history.push(transaction, [operation]);
    }
    history
}

#[track_caller]
fn assert_violated(text: &str, kind: AnomalyKind, operations: &[usize]) -> String {
    let history = script(text);
    match check(&history, None) {
        Verdict::Violated(anomalies) => {
            let explanation = anomalies[0].explain(&history).to_string();
            assert_eq!(anomalies[0].kind, kind, "{explanation}");
            assert_eq!(anomalies[0].operations, operations, "{explanation}");
            explanation
        }
        other => panic!("{}", other.explain(&history)),
    }
}

#[track_caller]
fn assert_satisfied(text: &str) {
    let history = script(text);
    let verdict = check(&history, None);
    assert_eq!(verdict, Verdict::Satisfied, "{}", verdict.explain(&history));
}

#[test]
fn r1_a_deposed_leader_that_answers_from_its_memory_is_caught() {
    let text = assert_violated(
        "1 0..10 w x 1
         1 20..30 r x 1
         2 40..50 w x 2
         1 60..70 r x 1",
        AnomalyKind::StaleRead,
        &[0, 2, 3],
    );
    assert!(
        text.ends_with("However, 1 was replaced before #3 was invoked: a contradiction."),
        "{text}"
    );
}

#[test]
fn r2_a_lease_that_outlives_a_pause_is_caught() {
    assert_violated(
        "1 0..10 w x 1
         1 12..90 r x 1
         2 40..50 w x 2
         3 60..70 r x 1",
        AnomalyKind::StaleRead,
        &[0, 2, 3],
    );
}

#[test]
fn r4_a_write_that_resurfaces_after_repair_is_caught() {
    assert_violated(
        "1 0..10 w x 1
         1 20.. w x 2
         2 30..40 r x 1
         2 50..60 w x 3
         2 70..80 r x 2
         2 85..90 r x 3",
        AnomalyKind::NotLinearizable,
        &[1, 3, 4, 5],
    );
    // Without the last read the write of unknown outcome may have happened late.
    assert_satisfied(
        "1 0..10 w x 1
         1 20.. w x 2
         2 30..40 r x 1
         2 50..60 w x 3
         2 70..80 r x 2",
    );
}

#[test]
fn r6_a_dirty_read_in_the_middle_of_a_chain_is_caught() {
    assert_violated(
        "1 0..10 w x 1
         1 20..90 w x 2
         2 30..40 r x 2
         3 50..60 r x 1",
        AnomalyKind::StaleRead,
        &[0, 1, 2, 3],
    );
}

#[test]
fn r8_a_lock_that_two_hold_is_caught() {
    assert_violated(
        "1 0..10 acquire lock
         1 20..30 release lock
         2 40..50 acquire lock
         2 60..70 release lock
         1 80..90 acquire lock
         2 100..110 acquire lock
         1 120..130 release lock",
        AnomalyKind::NotLinearizable,
        &[4, 5],
    );
}

#[test]
fn two_values_that_take_turns_refute_each_other() {
    let text = assert_violated(
        "1 0..100 w x 7
         2 0..100 w x 9
         3 10..20 r x 7
         3 30..40 r x 9
         3 50..60 r x 7",
        AnomalyKind::NotLinearizable,
        &[0, 1, 2, 3, 4],
    );
    assert!(
        text.contains("x = 7 must have been current from t=20 us, when #2 returned, to t=50 us, when #4 was invoked."),
        "{text}"
    );
}

#[test]
fn a_session_is_in_order_even_within_an_instant() {
    assert_violated(
        "1 0..5 w x 1
         1 5..10 r x",
        AnomalyKind::NotLinearizable,
        &[0, 1],
    );
    assert_satisfied(
        "1 0..5 w x 1
         2 5..10 r x",
    );
}

#[test]
fn a_lost_swap_is_shown_with_the_operations_it_takes() {
    assert_violated(
        "1 0..10 w x 1
         2 12..14 r x 1
         1 20..30 cas x 1 2
         2 25..32 cas x 1 3
         1 40..50 r x 2",
        AnomalyKind::NotLinearizable,
        &[0, 2, 3],
    );
}

#[test]
fn what_nobody_wrote_is_named() {
    assert_violated("1 0..10 r x 5", AnomalyKind::ThinAirRead, &[0]);
    assert_violated(
        "1 0..10 w x 1
         1 20..30 cas x 1 2
         2 40..50 r x 5",
        AnomalyKind::ThinAirRead,
        &[2],
    );
    assert_violated(
        "1 0..10 r x 5
         2 20..30 w x 5",
        AnomalyKind::NotLinearizable,
        &[0, 1],
    );
}

#[test]
fn a_value_of_a_failed_write_is_named() {
    let history = script("1 0..10 w x 5\n2 20..30 r x 5");
    let history = changed(&history, |op, transaction, _| {
        if op == 0 {
            transaction.outcome = Outcome::Fail;
        }
    });
    match check(&history, None) {
        Verdict::Violated(anomalies) => assert_eq!(anomalies[0].kind, AnomalyKind::AbortedRead),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_initial_value_counts_as_written() {
    let history = script("1 0..10 r x 0\n1 20..30 w x 1\n1 40..50 r x 1");
    let options = |initial: &str| Options {
        initial: Some(initial.as_bytes().to_vec()),
        ..Options::default()
    };
    let verdict = |initial| {
        Model::Linearizable
            .check(&history, &options(initial))
            .name()
    };
    assert_eq!(verdict("0"), "satisfied");
    assert_eq!(verdict("5"), "violated");
    let texts = Options {
        datatype: Some(DataType::Kv),
        ..options("0")
    };
    assert_eq!(
        Model::Linearizable.check(&history, &texts),
        Verdict::Satisfied
    );
}

#[test]
fn actions_that_the_data_type_has_not_leave_it_open() {
    let history = script("1 0..10 cas x 1 2");
    match check(&history, Some(DataType::Register)) {
        Verdict::Unknown(reason) => assert_eq!(
            reason,
            "a register is not set x from 1 to 2 (#0): name another data type"
        ),
        other => panic!("{other:?}"),
    }
}

/// Swaps that all overlap, whose only order is found late.
fn hard(swaps: usize) -> History {
    let mut text = String::new();
    for i in 0..swaps {
        text += &format!("{i} 0..1000 w x {}\n", i % 3);
    }
    for i in 0..swaps {
        text += &format!("{} 0..1000 cas x {} {}\n", i + swaps, i, i + 1);
    }
    script(&format!("{text}99 2000..2001 r x nothing"))
}

#[derive(Debug)]
struct Over;

impl IsOver for Over {
    fn is_over(&self) -> bool {
        true
    }
}

#[test]
fn past_the_budget_a_verdict_is_unknown() {
    let history = hard(12);
    let verdict = |budget| {
        let options = Options {
            budget,
            ..Options::default()
        };
        Model::Linearizable.check(&history, &options)
    };
    match verdict(Budget::new(Some(&Over), usize::MAX)) {
        Verdict::Unknown(reason) => assert_eq!(reason, "key x: the time limit was reached"),
        other => panic!("{other:?}"),
    }
    match verdict(Budget::new(None, 1 << 20)) {
        Verdict::Unknown(reason) => assert!(reason.contains("memory limit"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_order_that_the_protocol_reports_must_agree_with_time() {
    let history = script("1 0..10 w x 1\n2 20..30 w x 2\n3 40..50 r x 2");
    let white_box = |versions: [Option<u128>; 3]| {
        let history = changed(&history, |op, _, operation| {
            operation.version = versions[op]
        });
        let verdict = Model::Linearizable.check(&history, &Options::with(Evidence::WhiteBox));
        verdict.explain(&history).to_string()
    };
    assert_eq!(white_box([Some(1), Some(2), Some(2)]), "satisfied");
    assert_eq!(white_box([Some(1), None, Some(2)]), "satisfied");
    let violated = white_box([Some(2), Some(1), None]);
    assert!(
        violated.ends_with("However, #0 of the newer one returned before #2 of the older one was invoked: a contradiction."),
        "{violated}"
    );
    assert_eq!(
        white_box([None, Some(2), None]),
        "unknown: key x: the protocol does not report the version of #0"
    );
    assert!(white_box([Some(2), Some(2), None]).contains("one version for 1 and 2"));
}
