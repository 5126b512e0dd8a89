//! A short notation for histories.

use dkvf_check::{Action, History, OpId, Operation, Outcome, Scan, Transaction, TxnId, ValueId};

/// Builds a history whose transactions follow one another in time, 10 us apart.
#[derive(Default)]
pub struct Script {
    pub history: History,
}

impl Script {
    /// The written value called `text`; `""` is the initial version.
    pub fn value(&mut self, text: &str) -> Option<ValueId> {
        (!text.is_empty()).then(|| self.history.value_id(text.as_bytes()))
    }

    /// An acknowledged transaction of `session`, which is bound to `site`.
    pub fn transaction(
        &mut self,
        session: u32,
        site: &str,
        operations: &[(&str, Action)],
    ) -> TxnId {
        let invoke_us = 10 * self.history.transactions().len() as u64;
        let transaction = Transaction {
            process: session,
            session,
            site: self.history.site_id(site),
            invoke_us,
            complete_us: Some(invoke_us + 5),
            outcome: Outcome::Ok,
        };
        let operations: Vec<Operation> = operations
            .iter()
            .map(|&(key, action)| Operation {
                key: self.history.key_id(key.as_bytes()),
                action,
                version: None,
            })
            .collect();
        self.history.push(transaction, operations)
    }

    /// A transaction of one operation.
    pub fn op(&mut self, session: u32, site: &str, key: &str, action: Action) -> OpId {
        let id = self.transaction(session, site, &[(key, action)]);
        self.history.operations_of(id).start
    }

    /// `session` wrote `value` to `key` at `site`.
    pub fn write(&mut self, session: u32, site: &str, key: &str, value: &str) -> OpId {
        let value = self.value(value);
        self.op(session, site, key, Action::Write(value))
    }

    /// `session` read `value` from `key` at `site`.
    pub fn read(&mut self, session: u32, site: &str, key: &str, value: &str) -> OpId {
        let value = self.value(value);
        self.op(session, site, key, Action::Read(value))
    }

    /// `session` wrote `value` to `x`.
    pub fn w(&mut self, session: u32, value: &str) -> OpId {
        self.write(session, "", "x", value)
    }

    /// `session` read `value` from `x`.
    pub fn r(&mut self, session: u32, value: &str) -> OpId {
        self.read(session, "", "x", value)
    }

    /// A transaction of `session` in words: `"r x 1, w y 2, w z"`; what is left
    /// out is the initial version.
    pub fn txn(&mut self, session: u32, text: &str) -> TxnId {
        let operations: Vec<(&str, Action)> = text
            .split(',')
            .map(|operation| {
                let mut words = operation.split_whitespace();
                let (verb, key) = (words.next(), words.next().expect("a key"));
                let value = self.value(words.next().unwrap_or_default());
                match verb {
                    Some("r") => (key, Action::Read(value)),
                    Some("w") => (key, Action::Write(value)),
                    _ => panic!("{operation:?} is neither a read nor a write"),
                }
            })
            .collect();
        self.transaction(session, "", &operations)
    }
}

/// A history of transactions in words, one line each: `"1: r x 1, w y 2"` is
/// one of session 1. Empty lines are passed over.
pub fn history(text: &str) -> History {
    let mut script = Script::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (session, operations) = line.split_once(':').expect("session: operations");
        script.txn(session.parse().expect("a number"), operations);
    }
    script.history
}

/// The value that a read returned, or that a write wrote.
pub fn value(operation: &Operation) -> Option<ValueId> {
    match operation.action {
        Action::Read(value) | Action::Write(value) | Action::Cas { new: value, .. } => value,
        Action::Append(value) => Some(value),
        Action::ReadList(_) | Action::Scan(_) | Action::Acquire | Action::Release => None,
    }
}

/// The same history with each operation and its transaction passed through
/// `change`. What becomes of a transaction is what its last operation made of
/// it. Names of values in `change` are those of `history`.
pub fn changed(
    history: &History,
    change: impl Fn(OpId, &mut Transaction, &mut Operation),
) -> History {
    let mut result = History::new(history.about.clone());
    for site in history.sites() {
        result.site_id(site);
    }
    for (id, transaction) in history.transactions().iter().enumerate() {
        let mut transaction = *transaction;
        let operations: Vec<Operation> = history
            .operations_of(id)
            .map(|op| {
                let mut operation = history.operations()[op];
                change(op, &mut transaction, &mut operation);
                Operation {
                    key: result.key_id(history.key(operation.key)),
                    action: translated(history, operation.action, &mut result),
                    ..operation
                }
            })
            .collect();
        let new = result.push(transaction, operations);
        if let Some(stamps) = history.stamps(id) {
            result.set_stamps(new, stamps.clone());
        }
    }
    result
}

/// An action of the history `from` in the names of `to`.
fn translated(from: &History, action: Action, to: &mut History) -> Action {
    let mut named = |value: ValueId| to.value_id(from.value(value));
    match action {
        Action::Read(value) => Action::Read(value.map(named)),
        Action::Write(value) => Action::Write(value.map(named)),
        Action::Cas { expected, new } => Action::Cas {
            expected: expected.map(&mut named),
            new: new.map(named),
        },
        Action::Append(value) => Action::Append(named(value)),
        Action::ReadList(list) => {
            let elements: Vec<ValueId> = from.list(list).iter().copied().map(named).collect();
            Action::ReadList(to.list_id(&elements))
        }
        Action::Acquire => Action::Acquire,
        Action::Release => Action::Release,
        Action::Scan(scan) => {
            let scan = from.scan(scan);
            let rows = scan
                .rows
                .iter()
                .map(|&(key, value)| {
                    let key = to.key_id(from.key(key));
                    (key, to.value_id(from.value(value)))
                })
                .collect();
            Action::Scan(to.scan_id(Scan {
                rows,
                ..scan.clone()
            }))
        }
    }
}
