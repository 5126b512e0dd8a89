//! Histories as sessions of transactions, without real time.

use crate::history::{
    About, Action, History, KeyId, NO_CLOCK, Operation, Outcome, SiteId, Transaction, TxnId,
    ValueId,
};

/// Puts a history together that says nothing of time: all transactions overlap.
pub(super) struct Sessions {
    pub(super) history: History,
    site: SiteId,
}

impl Sessions {
    pub(super) fn new(workload: &str) -> Self {
        let mut history = History::new(About {
            workload: workload.to_owned(),
            clock: NO_CLOCK.to_owned(),
            ..About::default()
        });
        Sessions {
            site: history.site_id(""),
            history,
        }
    }

    /// Adds the next transaction of a session. One without operations says nothing.
    pub(super) fn push(
        &mut self,
        session: u32,
        is_committed: bool,
        operations: Vec<Operation>,
    ) -> Option<TxnId> {
        if operations.is_empty() {
            return None;
        }
        let transaction = Transaction {
            // Processes do one thing at a time, so each of these is one of its own.
            process: self.history.transactions().len() as u32,
            session,
            site: self.site,
            invoke_us: 0,
            complete_us: Some(1),
            outcome: match is_committed {
                true => Outcome::Ok,
                false => Outcome::Fail,
            },
        };
        Some(self.history.push(transaction, operations))
    }

    pub(super) fn key(&mut self, key: impl ToString) -> KeyId {
        self.history.key_id(key.to_string().as_bytes())
    }

    pub(super) fn value(&mut self, value: impl ToString) -> ValueId {
        self.history.value_id(value.to_string().as_bytes())
    }

    /// A read of a register, or a write of it; `None` is the initial version.
    pub(super) fn access(
        &mut self,
        is_write: bool,
        key: KeyId,
        value: Option<ValueId>,
    ) -> Operation {
        let action = match is_write {
            true => Action::Write(value),
            false => Action::Read(value),
        };
        Operation {
            key,
            action,
            version: None,
        }
    }
}

/// Whether 0 is the initial version in a format that cannot say so otherwise: it is unless somebody writes it.
pub(super) fn without_zero(mut history: History) -> History {
    let Some(zero) = history.find_value(b"0") else {
        return history;
    };
    let writes_zero = |operation: &Operation| operation.action == Action::Write(Some(zero));
    if !history.operations().iter().any(writes_zero) {
        history.change_actions(|action| match action {
            Action::Read(value) => Action::Read(value.filter(|&value| value != zero)),
            action => action,
        });
    }
    history
}
