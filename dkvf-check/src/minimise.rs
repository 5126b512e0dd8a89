//! The smallest part of a history that still violates a model.
//!
//! Delta debugging (Zeller and Hildebrandt 2002) over transactions, then over operations. A part must not violate the
//! model for the reason that something is missing from it. So a read is dropped together with any write of the value that it
//! returned, and what then remains is valid if the whole was: nothing that is left says anything about what was dropped.
//! What is found is checked again as a history of its own.

use crate::check::Options;
use crate::history::{Action, History, KeyId, OpId, Scan, TxnId, ValueId};
use crate::linear::DataType;
use crate::model::Model;
use crate::verdict::{Anomaly, Verdict};

/// A part of a history that violates a model, and from which nothing that was tried can be dropped.
#[derive(Clone, Debug)]
pub struct Minimal {
    /// The part. Its operations and transactions have numbers of their own.
    pub history: History,
    /// By operation of the part: its number in the whole.
    pub operations: Vec<OpId>,
    /// What is wrong with the part, in its numbers.
    pub anomaly: Anomaly,
}

/// Fewer checks than this are made of parts.
const CHECKS_MAX: usize = 400;
/// The parts that are checked have together at most this many times the operations of the whole, beside [`CHECKED_MIN`].
const CHECKED_SHARE: usize = 8;
/// The parts that are checked may have together this many operations in any case.
const CHECKED_MIN: usize = 1 << 16;
/// Single operations are dropped from parts of at most this many.
const OPERATIONS_MAX: usize = 64;

/// Shrinks `history` while `model` is violated, beginning with the transactions of `anomaly`, which a check of the whole
/// returned.
///
/// `None` if no part can be judged: final answers after the last write ([`Model::Convergence`]), locks, scans and texts
/// that are appended to mean something only in the whole; or if the budget is used up before a part is found. Makes at
/// most 400 checks, of about 8 times the operations of the whole together.
pub fn minimise(
    history: &History,
    model: Model,
    options: &Options,
    anomaly: &Anomaly,
) -> Option<Minimal> {
    if !has_parts(history, model, options) {
        return None;
    }
    let mut shrinking = Shrinking {
        history,
        model,
        options,
        writers: writers(history),
        checks: CHECKS_MAX,
        operations: CHECKED_MIN + CHECKED_SHARE * history.operations().len(),
    };
    let start = starts(history, anomaly);
    let start = start.into_iter().find_map(|part| shrinking.violated(&part));
    let found = shrinking.drop_transactions(start?);
    Some(shrinking.drop_operations(found))
}

/// Whether a part of the history means the same as within the whole: reads name what they saw, and no absence counts.
fn has_parts(history: &History, model: Model, options: &Options) -> bool {
    let datatype = options.datatype.unwrap_or_else(|| DataType::of(history));
    let mut actions = history.operations().iter().map(|op| op.action);
    model != Model::Convergence
        && !matches!(datatype, DataType::Kv | DataType::Mutex)
        && !actions.any(|action| matches!(action, Action::Scan(_)))
}

/// Where to begin: the transactions of the anomaly, all that touch its keys, the whole.
fn starts(history: &History, anomaly: &Anomaly) -> [Vec<OpId>; 3] {
    let edges = anomaly.edges.iter().flat_map(|edge| [edge.from, edge.to]);
    let named = anomaly.operations.iter().copied().chain(edges);
    let mut transactions: Vec<TxnId> = named.map(|op| history.owner(op)).collect();
    transactions.sort_unstable();
    transactions.dedup();
    let operations = transactions.iter();
    let operations: Vec<OpId> = operations
        .flat_map(|&txn| history.operations_of(txn))
        .collect();
    let mut keys: Vec<KeyId> = operations
        .iter()
        .map(|&op| history.operations()[op].key)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let all = 0..history.operations().len();
    let on_keys = |&op: &OpId| keys.binary_search(&history.operations()[op].key).is_ok();
    [
        operations,
        all.clone().filter(on_keys).collect(),
        all.collect(),
    ]
}

/// A version of a key, as far as clients know.
type Version = (KeyId, Option<ValueId>);

/// Every write with what it wrote, sorted by that.
fn writers(history: &History) -> Vec<(Version, OpId)> {
    let operations = history.operations().iter().enumerate();
    let mut writers: Vec<(Version, OpId)> = operations
        .filter_map(|(id, op)| match op.action {
            Action::Write(value) | Action::Cas { new: value, .. } => Some(((op.key, value), id)),
            Action::Append(value) => Some(((op.key, Some(value)), id)),
            _ => None,
        })
        .collect();
    writers.sort_unstable();
    writers
}

struct Shrinking<'h> {
    history: &'h History,
    model: Model,
    options: &'h Options<'h>,
    writers: Vec<(Version, OpId)>,
    /// How many checks may still be made, and of how many operations together.
    checks: usize,
    operations: usize,
}

impl Shrinking<'_> {
    /// Checks the part with these operations, without the reads whose writes are not among them; `None` if it is
    /// allowed, or if nobody can tell.
    fn violated(&mut self, part: &[OpId]) -> Option<Minimal> {
        let part = self.explained(part);
        self.checks = self.checks.checked_sub(1)?;
        self.operations = self.operations.checked_sub(part.len())?;
        let history = restricted(self.history, &part);
        match self.model.check(&history, self.options) {
            Verdict::Violated(anomalies) => Some(Minimal {
                anomaly: anomalies.into_iter().next()?,
                operations: part,
                history,
            }),
            _ => None,
        }
    }

    /// The operations of `part` that need nothing outside of it.
    fn explained(&self, part: &[OpId]) -> Vec<OpId> {
        let mut kept = vec![false; self.history.operations().len()];
        for &op in part {
            kept[op] = true;
        }
        let mut part = part.to_vec();
        loop {
            let before = part.len();
            part.retain(|&op| {
                kept[op] = self.sources(op).all(|source| kept[source]);
                kept[op]
            });
            if part.len() == before {
                return part;
            }
        }
    }

    /// All writes of the values that an operation returned or relied on. Several may have written one.
    fn sources(&self, op: OpId) -> impl Iterator<Item = OpId> {
        let operation = self.history.operations()[op];
        let list: &[ValueId] = match operation.action {
            Action::ReadList(list) => self.history.list(list),
            _ => &[],
        };
        let value = match operation.action {
            Action::Read(value)
            | Action::Cas {
                expected: value, ..
            } => Some(value),
            _ => None,
        };
        let values = list.iter().copied().map(Some).chain(value);
        values.flat_map(move |value| self.writers_of((operation.key, value)))
    }

    fn writers_of(&self, version: Version) -> impl Iterator<Item = OpId> {
        let from = self
            .writers
            .partition_point(|&(written, _)| written < version);
        let writers = self.writers[from..].iter();
        let same = writers.take_while(move |&&(written, _)| written == version);
        same.map(|&(_, op)| op)
    }

    /// Drops halves, quarters and so on of the transactions, until no single one can be dropped.
    fn drop_transactions(&mut self, mut found: Minimal) -> Minimal {
        let mut size = self.transactions(&found).len().div_ceil(2);
        while size > 0 {
            let mut dropped = false;
            let mut at = 0;
            loop {
                let transactions = self.transactions(&found);
                let Some(chunk) = transactions.get(at..transactions.len().min(at + size)) else {
                    break;
                };
                if chunk.is_empty() || chunk.len() == transactions.len() {
                    break;
                }
                let in_chunk = |op: &OpId| chunk.binary_search(&self.history.owner(*op)).is_ok();
                let rest = found.operations.iter().copied();
                let rest: Vec<OpId> = rest.filter(|op| !in_chunk(op)).collect();
                match self.violated(&rest) {
                    Some(smaller) => (found, dropped) = (smaller, true),
                    None => at += size,
                }
            }
            // Dropping one transaction may make another one superfluous.
            if size > 1 || !dropped {
                size /= 2;
            }
        }
        found
    }

    fn transactions(&self, found: &Minimal) -> Vec<TxnId> {
        let operations = found.operations.iter();
        let mut transactions: Vec<TxnId> = operations.map(|&op| self.history.owner(op)).collect();
        transactions.dedup();
        transactions
    }

    /// Drops single operations of a small part.
    fn drop_operations(&mut self, mut found: Minimal) -> Minimal {
        let mut at = 0;
        while found.operations.len() <= OPERATIONS_MAX && at < found.operations.len() {
            let mut rest = found.operations.clone();
            rest.remove(at);
            match self.violated(&rest) {
                Some(smaller) => found = smaller,
                None => at += 1,
            }
        }
        found
    }
}

/// The history of these operations, which are in ascending order. Transactions without any are left out.
fn restricted(history: &History, operations: &[OpId]) -> History {
    let mut part = History::new(history.about.clone());
    for site in history.sites() {
        part.site_id(site);
    }
    for group in operations.chunk_by(|&a, &b| history.owner(a) == history.owner(b)) {
        let mut copies = Vec::with_capacity(group.len());
        for &op in group {
            let mut operation = history.operations()[op];
            operation.key = part.key_id(history.key(operation.key));
            operation.action = action(history, operation.action, &mut part);
            copies.push(operation);
        }
        let owner = history.owner(group[0]);
        let id = part.push(history.transactions()[owner], copies);
        if let Some(stamps) = history.stamps(owner) {
            part.set_stamps(id, stamps.clone());
        }
    }
    part
}

/// `action` of `history` with the names that `part` gives.
fn action(history: &History, action: Action, part: &mut History) -> Action {
    let mut named = |value: ValueId| part.value_id(history.value(value));
    match action {
        Action::Read(value) => Action::Read(value.map(named)),
        Action::Write(value) => Action::Write(value.map(named)),
        Action::Cas { expected, new } => Action::Cas {
            expected: expected.map(&mut named),
            new: new.map(&mut named),
        },
        Action::Append(value) => Action::Append(named(value)),
        Action::ReadList(list) => {
            let elements: Vec<ValueId> = history
                .list(list)
                .iter()
                .map(|&value| named(value))
                .collect();
            Action::ReadList(part.list_id(&elements))
        }
        Action::Scan(scan) => {
            let Scan { low, high, rows } = history.scan(scan).clone();
            let rows = rows.into_iter().map(|(key, value)| {
                let key = part.key_id(history.key(key));
                (key, part.value_id(history.value(value)))
            });
            let rows = rows.collect();
            Action::Scan(part.scan_id(Scan { low, high, rows }))
        }
        Action::Acquire => Action::Acquire,
        Action::Release => Action::Release,
    }
}
