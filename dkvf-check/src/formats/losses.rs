//! What a file of another format does not keep of a history.

use std::collections::BTreeSet;
use std::fmt;

use crate::history::{Action, History, KeyId, Outcome, Transaction, TxnId, ValueId};

/// Something that a history says and a file written from it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Which outcomes are unknown: such transactions are left out, unless what they wrote was read.
    UnknownOutcomes,
    /// Transactions that failed; they are left out.
    FailedTransactions,
    /// When operations were invoked and returned.
    RealTime,
    /// What is shorter than the unit of the format's clock, or the times while their order is kept.
    Times,
    /// Sessions other than processes.
    Sessions,
    /// Where sessions were bound to.
    Sites,
    /// The protocol's order of versions.
    VersionOrder,
    /// The protocol's stamps.
    Stamps,
    /// Keys or values: they are replaced by numbers.
    Names,
    /// Bytes that are no text: they are replaced.
    Bytes,
    /// Operations that the format does not have: they are left out.
    Operations,
    /// Transactions without stamps: they are left out.
    Unstamped,
    /// Workload, claims, seed, or that operations are missing.
    About,
}

impl Loss {
    /// It as a phrase.
    pub fn text(self) -> &'static str {
        match self {
            Loss::UnknownOutcomes => "unknown outcomes (left out, unless what they wrote was read)",
            Loss::FailedTransactions => "failed transactions (left out)",
            Loss::RealTime => "real time",
            Loss::Times => "times (their order is kept)",
            Loss::Sessions => "sessions other than processes",
            Loss::Sites => "sites",
            Loss::VersionOrder => "the protocol's order of versions",
            Loss::Stamps => "the protocol's stamps",
            Loss::Names => "names of keys and values (replaced by numbers)",
            Loss::Bytes => "bytes that are no text (replaced)",
            Loss::Operations => "operations that the format does not have (left out)",
            Loss::Unstamped => "transactions without stamps (left out)",
            Loss::About => "workload, claims and seed",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// All that is lost of one history; what the history does not have is not lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub BTreeSet<Loss>);

impl Losses {
    pub(super) fn add_if(&mut self, is_lost: bool, loss: Loss) {
        if is_lost {
            self.0.insert(loss);
        }
    }

    /// What all formats but ours lose.
    pub(super) fn add_common(&mut self, history: &History) {
        let transactions = history.transactions();
        let about = &history.about;
        self.add_if(
            history.sites().iter().any(|site| !site.is_empty()),
            Loss::Sites,
        );
        self.add_if(
            history.operations().iter().any(|op| op.version.is_some()),
            Loss::VersionOrder,
        );
        let is_stamped = (0..transactions.len()).any(|id| history.stamps(id).is_some());
        self.add_if(is_stamped, Loss::Stamps);
        let is_told = !about.workload.is_empty() || !about.claims.is_empty();
        let is_told = is_told || about.seed.is_some() || history.incomplete().is_some();
        self.add_if(is_told, Loss::About);
    }

    /// Which of the transactions a format keeps that has neither unknown outcomes nor, unless `keeps_failed`, failed ones:
    /// by transaction.
    pub(super) fn kept(&mut self, history: &History, keeps_failed: bool) -> Vec<bool> {
        let read = values_read(history);
        let wrote_what_was_read = |id: TxnId| {
            history.operations_of(id).any(|op| {
                let operation = history.operations()[op];
                written(operation.action)
                    .is_some_and(|value| read.contains(&(operation.key, value)))
            })
        };
        let keep = |(id, transaction): (TxnId, &Transaction)| match transaction.outcome {
            Outcome::Ok => true,
            Outcome::Fail => {
                self.add_if(!keeps_failed, Loss::FailedTransactions);
                keeps_failed
            }
            Outcome::Info => {
                self.0.insert(Loss::UnknownOutcomes);
                wrote_what_was_read(id)
            }
        };
        history
            .transactions()
            .iter()
            .enumerate()
            .map(keep)
            .collect()
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (place, loss) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{loss}")?;
        }
        Ok(())
    }
}

fn written(action: Action) -> Option<ValueId> {
    match action {
        Action::Write(value) | Action::Cas { new: value, .. } => value,
        Action::Append(value) => Some(value),
        _ => None,
    }
}

/// Keys with the values that successful transactions read.
fn values_read(history: &History) -> BTreeSet<(KeyId, ValueId)> {
    let mut read = BTreeSet::new();
    for (op, operation) in history.operations().iter().enumerate() {
        if history.transaction_of(op).outcome != Outcome::Ok {
            continue;
        }
        let key = operation.key;
        match operation.action {
            Action::Read(value)
            | Action::Cas {
                expected: value, ..
            } => {
                read.extend(value.map(|value| (key, value)));
            }
            Action::ReadList(list) => {
                read.extend(history.list(list).iter().map(|&value| (key, value)));
            }
            Action::Scan(scan) => read.extend(&history.scan(scan).rows),
            _ => {}
        }
    }
    read
}
