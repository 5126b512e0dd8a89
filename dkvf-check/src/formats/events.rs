//! Histories as invocations and completions of processes, which is how most tools record them.

use std::collections::BTreeMap;

use crate::history::{Action, History, Operation, Outcome, SiteId, Stamps, Transaction, TxnId};

use super::SITES_MAX;

/// Puts events together to transactions.
#[derive(Default)]
pub(super) struct Events {
    pub(super) history: History,
    transactions: Vec<(Transaction, Vec<Operation>)>,
    stamps: Vec<(TxnId, Stamps)>,
    /// By process: the transaction it waits for.
    open: BTreeMap<u32, TxnId>,
}

/// A process begins.
pub(super) struct Invocation {
    pub(super) process: u32,
    pub(super) session: u32,
    pub(super) site: SiteId,
    pub(super) at_us: u64,
    pub(super) operations: Vec<Operation>,
}

/// A process learns how its transaction ended, or gives up.
pub(super) struct Completion {
    pub(super) process: u32,
    pub(super) at_us: u64,
    pub(super) outcome: Outcome,
    /// `None` if it only says how it ended.
    pub(super) operations: Option<Vec<Operation>>,
    pub(super) stamps: Stamps,
}

impl Events {
    pub(super) fn new(history: History) -> Self {
        Events {
            history,
            ..Events::default()
        }
    }

    /// The site called `name`; a file cannot make more of them than a history has room for.
    pub(super) fn site(&mut self, name: &str) -> Result<SiteId, String> {
        let known = self.history.sites();
        if known.len() >= SITES_MAX && !known.iter().any(|site| site == name) {
            return Err(format!("more than {SITES_MAX} sites"));
        }
        Ok(self.history.site_id(name))
    }

    pub(super) fn is_waiting(&self, process: u32) -> bool {
        self.open.contains_key(&process)
    }

    pub(super) fn invoke(&mut self, invocation: Invocation) -> Result<(), String> {
        let process = invocation.process;
        let id = self.transactions.len();
        if let Some(open) = self.open.insert(process, id) {
            return Err(format!(
                "process {process} invokes an operation although operation {open} has not returned"
            ));
        }
        let transaction = Transaction {
            process,
            session: invocation.session,
            site: invocation.site,
            invoke_us: invocation.at_us,
            complete_us: None,
            outcome: Outcome::Info,
        };
        self.transactions.push((transaction, invocation.operations));
        Ok(())
    }

    pub(super) fn complete(&mut self, completion: Completion) -> Result<(), String> {
        let process = completion.process;
        let Some(id) = self.open.remove(&process) else {
            return Err(format!(
                "process {process} completes an operation that it did not invoke"
            ));
        };
        let (transaction, operations) = &mut self.transactions[id];
        if completion.at_us < transaction.invoke_us {
            return Err("the operation returns before it was invoked".to_owned());
        }
        if let Some(completed) = completion.operations {
            if !same_request(&self.history, operations, &completed) {
                return Err(format!(
                    "process {process} completes another operation than the one it invoked"
                ));
            }
            let is_ok = completion.outcome == Outcome::Ok;
            for (operation, completed) in operations.iter_mut().zip(completed) {
                operation.version = completed.version;
                if is_ok {
                    operation.action = completed.action;
                }
            }
        }
        transaction.complete_us = Some(completion.at_us);
        transaction.outcome = completion.outcome;
        if completion.stamps != Stamps::default() {
            self.stamps.push((id, completion.stamps));
        }
        Ok(())
    }

    /// Changes every operation once all are known.
    pub(super) fn for_each_operation(
        &mut self,
        mut change: impl FnMut(&mut History, &mut Operation),
    ) {
        for (_, operations) in &mut self.transactions {
            for operation in operations {
                change(&mut self.history, operation);
            }
        }
    }

    /// All operations that were invoked.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.transactions
            .iter()
            .flat_map(|(_, operations)| operations)
    }

    /// What did not return has an unknown outcome.
    pub(super) fn into_history(mut self) -> History {
        for (transaction, operations) in self.transactions {
            self.history.push(transaction, operations);
        }
        for (id, stamps) in self.stamps {
            self.history.set_stamps(id, stamps);
        }
        self.history
    }
}

/// Whether two descriptions of a transaction differ in nothing but what it returned.
fn same_request(history: &History, invoked: &[Operation], completed: &[Operation]) -> bool {
    let same = |(a, b): (&Operation, &Operation)| {
        let action = match (a.action, b.action) {
            (Action::Scan(a), Action::Scan(b)) => history.scan(a).low == history.scan(b).low,
            (a, b) => a == b || is_read(a) && is_read(b),
        };
        a.key == b.key && action
    };
    invoked.len() == completed.len() && invoked.iter().zip(completed).all(same)
}

fn is_read(action: Action) -> bool {
    matches!(action, Action::Read(_) | Action::ReadList(_))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Invoke,
    Complete,
}

/// All events by time. Within a process the order is that of the program even where a transaction takes no time, because
/// the sort is stable. Takes O(n log n) time.
pub(super) fn events_by_time(history: &History) -> Vec<(u64, TxnId, Phase)> {
    let transactions = history.transactions();
    let mut ids: Vec<TxnId> = (0..transactions.len()).collect();
    ids.sort_by_key(|&id| (transactions[id].process, transactions[id].invoke_us));
    let mut events = Vec::with_capacity(2 * ids.len());
    for id in ids {
        let transaction = &transactions[id];
        events.push((transaction.invoke_us, id, Phase::Invoke));
        if let Some(complete_us) = transaction.complete_us {
            events.push((complete_us, id, Phase::Complete));
        }
    }
    events.sort_by_key(|&(t, ..)| t);
    events
}
