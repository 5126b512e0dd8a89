//! The session checkers against the definitions, on small random histories.
//!
//! The oracle tries every order of the committed writes of a key. It shares no
//! code with the checkers, not even the pre-pass.

use crate::common::changed;
use dkvf_check::{
    Evidence, History, Kind, Operation, Outcome, ValueId, Verdict, monotonic_reads,
    read_your_writes,
};

const HISTORIES: u64 = 6_000;

/// SplitMix64: a few lines, and equal everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Up to 12 operations of up to 4 sessions on one key. Reads return any value
/// whose write did not fail, also one written later.
fn random_history(seed: u64) -> History {
    let mut random = Random(seed);
    let sessions = 1 + random.below(4);
    let length = 2 + random.below(11);
    let writes_of_ten = 2 + random.below(6);
    let kinds: Vec<bool> = (0..length)
        .map(|_| random.below(10) < writes_of_ten)
        .collect();
    let mut history = History::default();
    let site = history.site_id("");
    let key = history.key_id(b"x");

    let mut writes = 0;
    let mut readable = Vec::new();
    let mut operations = Vec::new();
    for (invoke_us, &is_write) in (0..).zip(&kinds) {
        let outcome = match random.below(12) {
            0 => Outcome::Fail,
            1 => Outcome::Info,
            _ => Outcome::Ok,
        };
        // Five writes are 120 orders: enough to be interesting.
        let kind = if is_write && writes < 5 {
            Kind::Write
        } else {
            Kind::Read
        };
        let mut value = None;
        if kind == Kind::Write {
            writes += 1;
            let written = history.value_id(format!("v{writes}").as_bytes());
            value = Some(written);
            if outcome != Outcome::Fail {
                readable.push(written);
            }
        }
        let session = u32::try_from(random.below(sessions)).unwrap();
        operations.push(Operation {
            process: session,
            session,
            site,
            kind,
            key,
            value,
            version: None,
            invoke_us,
            complete_us: Some(invoke_us),
            outcome,
        });
    }
    for mut operation in operations {
        if operation.kind == Kind::Read {
            let choice = random.below(readable.len() as u64 * 4 + 1) as usize;
            operation.value = readable.get(choice % (readable.len() + 1)).copied();
        }
        history.push(operation);
    }
    history
}

/// Acknowledged writes, and unknown ones that a successful read returned.
fn committed(history: &History) -> Vec<ValueId> {
    let operations = history.operations();
    let was_read = |value| {
        operations
            .iter()
            .any(|op| op.kind == Kind::Read && op.outcome == Outcome::Ok && op.value == Some(value))
    };
    operations
        .iter()
        .filter(|op| op.kind == Kind::Write)
        .filter_map(|op| Some((op.outcome, op.value?)))
        .filter(|&(outcome, value)| match outcome {
            Outcome::Ok => true,
            Outcome::Info => was_read(value),
            Outcome::Fail => false,
        })
        .map(|(_, value)| value)
        .collect()
}

fn orders(values: &[ValueId]) -> Vec<Vec<ValueId>> {
    let [first, rest @ ..] = values else {
        return vec![Vec::new()];
    };
    let mut result = Vec::new();
    for order in orders(rest) {
        for place in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(place, *first);
            result.push(longer);
        }
    }
    result
}

/// The definition: in the order, every value that a read must take into account
/// is the one it returned or comes before it.
fn allowed(history: &History, order: &[ValueId], remembered: Kind) -> bool {
    // The initial version comes before all, place 0.
    let place = |value: Option<ValueId>| match value {
        None => Some(0),
        Some(value) => order.iter().position(|&v| v == value).map(|i| i + 1),
    };
    let operations = history.operations();
    operations.iter().enumerate().all(|(i, read)| {
        if read.kind != Kind::Read || read.outcome != Outcome::Ok {
            return true;
        }
        operations[..i]
            .iter()
            .filter(|op| op.session == read.session && op.kind == remembered)
            .filter(|op| op.kind == Kind::Write || op.outcome == Outcome::Ok)
            .filter_map(|op| place(op.value))
            .all(|known| Some(known) <= place(read.value))
    })
}

fn with_order(history: &History, order: &[ValueId]) -> History {
    changed(history, |id, op| {
        let value = history.operations()[id].value;
        op.version = order
            .iter()
            .position(|&v| Some(v) == value)
            .map(|place| place as u128 + 100);
    })
}

fn compare_with_oracle(check: fn(&History, Evidence) -> Verdict, remembered: Kind) {
    let mut violations = 0;
    for seed in 0..HISTORIES {
        let history = random_history(seed);
        let mut any_order_allowed = false;
        for order in orders(&committed(&history)) {
            let is_allowed = allowed(&history, &order, remembered);
            any_order_allowed |= is_allowed;
            let verdict = check(&with_order(&history, &order), Evidence::WhiteBox);
            assert_eq!(
                verdict == Verdict::Satisfied,
                is_allowed,
                "white-box, seed {seed}: {}",
                verdict.explain(&history)
            );
        }
        let verdict = check(&history, Evidence::BlackBox);
        assert_eq!(
            verdict == Verdict::Satisfied,
            any_order_allowed,
            "black-box, seed {seed}: {}",
            verdict.explain(&history)
        );
        if let Verdict::Violated(anomalies) = &verdict {
            violations += 1;
            assert_counterexample_stands_alone(&history, &anomalies[0].operations, check);
        }
    }
    let share = violations * 100 / HISTORIES;
    assert!(
        (10..90).contains(&share),
        "{share} % of the histories are violations: too one-sided to test anything"
    );
}

/// The operations of a counterexample, with the writes they speak of, are a
/// violation of their own.
fn assert_counterexample_stands_alone(
    history: &History,
    operations: &[usize],
    check: fn(&History, Evidence) -> Verdict,
) {
    let alone = changed(history, |id, op| {
        match (op.kind, operations.contains(&id)) {
            (Kind::Read, false) => op.outcome = Outcome::Info,
            // An unknown write may count only for a read that is dropped here.
            (Kind::Write, true) => op.outcome = Outcome::Ok,
            _ => {}
        }
    });
    let verdict = check(&alone, Evidence::BlackBox);
    assert_eq!(verdict.name(), "violated", "{}", verdict.explain(&alone));
}

#[test]
fn read_your_writes_is_what_its_definition_says() {
    compare_with_oracle(read_your_writes, Kind::Write);
}

#[test]
fn monotonic_reads_is_what_its_definition_says() {
    compare_with_oracle(monotonic_reads, Kind::Read);
}
