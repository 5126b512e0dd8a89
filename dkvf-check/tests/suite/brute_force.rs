//! The session checkers against the definitions, on small random histories.
//!
//! The oracle tries every order of the committed writes of a key. It shares no
//! code with the checkers, not even the pre-pass.

use crate::common::{changed, value};
use dkvf_check::{
    Action, Evidence, History, Model, Operation, Options, Outcome, Transaction, ValueId, Verdict,
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
    let mut history = History::default();
    let site = history.site_id("");
    let key = history.key_id(b"x");

    let mut writes = 0;
    let mut readable = Vec::new();
    let mut steps = Vec::new();
    for invoke_us in 0..length {
        let outcome = match random.below(12) {
            0 => Outcome::Fail,
            1 => Outcome::Info,
            _ => Outcome::Ok,
        };
        // Five writes are 120 orders: enough to be interesting.
        let is_write = random.below(10) < writes_of_ten && writes < 5;
        let written = is_write.then(|| {
            writes += 1;
            history.value_id(format!("v{writes}").as_bytes())
        });
        if outcome != Outcome::Fail {
            readable.extend(written);
        }
        let session = u32::try_from(random.below(sessions)).unwrap();
        let transaction = Transaction {
            process: session,
            session,
            site,
            invoke_us,
            complete_us: Some(invoke_us),
            outcome,
        };
        steps.push((transaction, written));
    }
    for (transaction, written) in steps {
        let action = match written {
            Some(_) => Action::Write(written),
            None => {
                let choice = random.below(readable.len() as u64 * 4 + 1) as usize;
                Action::Read(readable.get(choice % (readable.len() + 1)).copied())
            }
        };
        let operation = Operation {
            key,
            action,
            version: None,
        };
        history.push(transaction, [operation]);
    }
    history
}

/// Transactions of one operation with that operation, in program order.
fn steps(history: &History) -> Vec<(&Transaction, &Operation)> {
    history
        .transactions()
        .iter()
        .zip(history.operations())
        .collect()
}

/// Acknowledged writes, and unknown ones that a successful read returned.
fn committed(history: &History) -> Vec<ValueId> {
    let steps = steps(history);
    let was_read = |written| {
        steps.iter().any(|(transaction, op)| {
            transaction.outcome == Outcome::Ok && op.action == Action::Read(Some(written))
        })
    };
    steps
        .iter()
        .filter(|(_, op)| op.action.is_write())
        .filter_map(|(transaction, op)| Some((transaction.outcome, value(op)?)))
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
fn allowed(history: &History, order: &[ValueId], remembers_writes: bool) -> bool {
    // The initial version comes before all, place 0.
    let place = |value: Option<ValueId>| match value {
        None => Some(0),
        Some(value) => order.iter().position(|&v| v == value).map(|i| i + 1),
    };
    let steps = steps(history);
    steps.iter().enumerate().all(|(i, (transaction, read))| {
        if read.action.is_write() || transaction.outcome != Outcome::Ok {
            return true;
        }
        steps[..i]
            .iter()
            .filter(|(earlier, op)| {
                earlier.session == transaction.session && op.action.is_write() == remembers_writes
            })
            .filter(|(earlier, op)| op.action.is_write() || earlier.outcome == Outcome::Ok)
            .filter_map(|(_, op)| place(value(op)))
            .all(|known| Some(known) <= place(value(read)))
    })
}

fn with_order(history: &History, order: &[ValueId]) -> History {
    changed(history, |_, _, op| {
        op.version = order
            .iter()
            .position(|&v| Some(v) == value(op))
            .map(|place| place as u128 + 100);
    })
}

fn compare_with_oracle(model: Model, remembers_writes: bool) {
    let check = |history: &History, evidence| model.check(history, &Options::with(evidence));
    let mut violations = 0;
    for seed in 0..HISTORIES {
        let history = random_history(seed);
        let mut any_order_allowed = false;
        for order in orders(&committed(&history)) {
            let is_allowed = allowed(&history, &order, remembers_writes);
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
            assert_counterexample_stands_alone(&history, &anomalies[0].operations, model);
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
fn assert_counterexample_stands_alone(history: &History, operations: &[usize], model: Model) {
    let alone = changed(history, |id, transaction, op| {
        match (op.action.is_write(), operations.contains(&id)) {
            (false, false) => transaction.outcome = Outcome::Info,
            // An unknown write may count only for a read that is dropped here.
            (true, true) => transaction.outcome = Outcome::Ok,
            _ => {}
        }
    });
    let verdict = model.check(&alone, &Options::with(Evidence::BlackBox));
    assert_eq!(verdict.name(), "violated", "{}", verdict.explain(&alone));
}

#[test]
fn read_your_writes_is_what_its_definition_says() {
    compare_with_oracle(Model::ReadYourWrites, true);
}

#[test]
fn monotonic_reads_is_what_its_definition_says() {
    compare_with_oracle(Model::MonotonicReads, false);
}
