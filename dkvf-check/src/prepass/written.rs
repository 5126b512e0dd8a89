//! Who wrote which value.

use crate::check::Budget;
use crate::history::{Action, History, KeyId, OpId, ValueId};

use super::{Rows, Undecided};

/// Every write that was attempted, by key and value.
pub(super) struct Written {
    /// By value: the operations that wrote it, ascending by key.
    by_value: Rows<u32>,
    /// Deletions, ascending by key.
    deletions: Vec<(KeyId, u32)>,
    /// By operation: whether its transaction wrote the key again.
    overwritten: Vec<bool>,
    /// By key.
    contents: Vec<Contents>,
}

/// What the values of a key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Unknown,
    Register,
    List,
}

/// What an operation leaves in its key; the outer `None` is nothing new.
fn written(action: Action) -> Option<Option<ValueId>> {
    match action {
        Action::Write(value) | Action::Cas { new: value, .. } => Some(value),
        Action::Append(element) => Some(Some(element)),
        _ => None,
    }
}

impl Written {
    /// Undecided if values are not unique or a key holds more than one kind of data.
    pub(super) fn new(history: &History, budget: &Budget) -> Result<Self, Undecided> {
        let operations = history.operations();
        budget.reserve(operations.len() * 24 + history.value_count() * 8 + history.key_count())?;
        let (mut values, mut deletions) = (Vec::new(), Vec::new());
        for (op, operation) in operations.iter().enumerate() {
            match written(operation.action) {
                Some(Some(value)) => values.push((value.index() as u32, op as u32)),
                Some(None) => deletions.push((operation.key, op as u32)),
                None => {}
            }
        }
        deletions.sort_unstable();
        let mut by_value = Rows::new(history.value_count(), &values);
        for value in 0..by_value.len() {
            let row = by_value.row_mut(value);
            row.sort_unstable_by_key(|&op| (operations[op as usize].key, op));
            let same = |pair: &&[u32]| {
                operations[pair[0] as usize].key == operations[pair[1] as usize].key
            };
            if let Some(pair) = row.windows(2).find(same) {
                return Err(written_twice(history, pair[0] as OpId, pair[1] as OpId));
            }
        }
        Ok(Written {
            by_value,
            deletions,
            overwritten: overwritten(history),
            contents: contents(history)?,
        })
    }

    /// The operation that wrote `value` to `key`.
    pub(super) fn find(&self, history: &History, key: KeyId, value: ValueId) -> Option<OpId> {
        let row = self.by_value.row(value.index());
        let key_of = |&op: &u32| history.operations()[op as usize].key;
        let place = row.binary_search_by_key(&key, key_of).ok()?;
        Some(row[place] as OpId)
    }

    /// The operations that deleted `key`.
    pub(super) fn deletions(&self, key: KeyId) -> impl Iterator<Item = OpId> {
        let start = self.deletions.partition_point(|&(other, _)| other < key);
        self.deletions[start..]
            .iter()
            .take_while(move |&&(other, _)| other == key)
            .map(|&(_, op)| op as OpId)
    }

    /// Whether the transaction of a write wrote its key again.
    pub(super) fn is_overwritten(&self, write: OpId) -> bool {
        self.overwritten[write]
    }

    /// Whether clients append to the key.
    pub(super) fn is_list(&self, key: KeyId) -> bool {
        self.contents[key.index()] == Contents::List
    }
}

fn written_twice(history: &History, first: OpId, second: OpId) -> Undecided {
    let operation = &history.operations()[first];
    let value = written(operation.action).flatten();
    Undecided(format!(
        "the value {} was written twice to key {} (#{first} and #{second}); written values must be unique",
        history.value_text(value),
        history.key_text(operation.key),
    ))
}

fn overwritten(history: &History) -> Vec<bool> {
    let mut result = vec![false; history.operations().len()];
    // By key: the last transaction that wrote it, plus one.
    let mut last_writer = vec![0; history.key_count()];
    for transaction in 0..history.transactions().len() {
        let stamp = transaction as u32 + 1;
        for op in history.operations_of(transaction).rev() {
            let operation = &history.operations()[op];
            if operation.action.is_write() {
                let writer = &mut last_writer[operation.key.index()];
                result[op] = *writer == stamp;
                *writer = stamp;
            }
        }
    }
    result
}

fn contents(history: &History) -> Result<Vec<Contents>, Undecided> {
    let mut contents = vec![Contents::Unknown; history.key_count()];
    for (op, operation) in history.operations().iter().enumerate() {
        let used_as = match operation.action {
            Action::Read(_) | Action::Write(_) | Action::Cas { .. } => Contents::Register,
            Action::Append(_) | Action::ReadList(_) => Contents::List,
            Action::Scan(_) => continue,
            Action::Acquire | Action::Release => {
                return Err(Undecided(format!(
                    "#{op} is an operation on a lock; this model is defined for registers and lists"
                )));
            }
        };
        let content = &mut contents[operation.key.index()];
        if *content != Contents::Unknown && *content != used_as {
            return Err(Undecided(format!(
                "key {} is used as a register and as a list (#{op})",
                history.key_text(operation.key),
            )));
        }
        *content = used_as;
    }
    Ok(contents)
}
