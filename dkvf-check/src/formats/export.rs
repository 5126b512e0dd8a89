//! Sessions of reads and writes of registers with numbers as values, for formats that have nothing else.

use crate::history::{Action, History, KeyId, Outcome, TxnId, ValueId};

use super::losses::{Loss, Losses};

/// A transaction that a format keeps.
pub(super) struct Exported {
    pub(super) transaction: TxnId,
    pub(super) is_committed: bool,
    pub(super) accesses: Vec<Access>,
}

/// A read or write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) is_write: bool,
    pub(super) key: KeyId,
    /// `None` is the initial version.
    pub(super) value: Option<u64>,
}

/// What of a history a format keeps.
pub(super) struct Export {
    /// The transactions of each session, in its order.
    pub(super) sessions: Vec<Vec<Exported>>,
    keys: Vec<u64>,
    words: Option<Vec<String>>,
}

/// What a format can say.
#[derive(Clone, Copy, Default)]
pub(super) struct Ability {
    /// That a transaction failed.
    pub(super) failed: bool,
    /// That a value is 0; otherwise 0 is the initial version.
    pub(super) zero: bool,
    /// Keys of letters, digits and underscores; otherwise keys are numbers.
    pub(super) words: bool,
}

impl Export {
    /// Numbers keys and values, unless they are numbers.
    pub(super) fn new(history: &History, ability: Ability, losses: &mut Losses) -> Self {
        losses.add_common(history);
        losses.add_if(history.about.has_time(), Loss::RealTime);
        let kept = losses.kept(history, ability.failed);
        let keys = numbers(history.keys().map(|key| history.key(key)), true);
        let values = history.value_ids().map(|value| history.value(value));
        let values = numbers(values, ability.zero);
        let words = ability.words.then(|| words(history)).flatten();
        let is_named = keys.is_some() || words.is_some();
        losses.add_if(!is_named || values.is_none(), Loss::Names);
        let mut ids: Vec<TxnId> = (0..kept.len()).filter(|&id| kept[id]).collect();
        let transaction = |id: TxnId| &history.transactions()[id];
        ids.sort_by_key(|&id| (transaction(id).session, transaction(id).invoke_us));
        let number = |value: ValueId| match &values {
            Some(numbers) => numbers[value.index()],
            None => value.index() as u64 + 1,
        };
        let sessions = ids.chunk_by(|&a, &b| transaction(a).session == transaction(b).session);
        let sessions = sessions
            .map(|session| {
                session
                    .iter()
                    .map(|&id| Exported {
                        transaction: id,
                        is_committed: transaction(id).outcome != Outcome::Fail,
                        accesses: accesses(history, id, number, losses),
                    })
                    .filter(|exported| !exported.accesses.is_empty())
                    .collect()
            })
            .collect();
        let keys = keys.unwrap_or_else(|| (1..=history.key_count() as u64).collect());
        Export {
            sessions,
            keys,
            words,
        }
    }

    pub(super) fn key(&self, key: KeyId) -> u64 {
        self.keys[key.index()]
    }

    /// The key as a word, where a format has words.
    pub(super) fn word(&self, key: KeyId) -> String {
        match &self.words {
            Some(words) => words[key.index()].clone(),
            None => self.key(key).to_string(),
        }
    }
}

/// The keys, if they all are words.
fn words(history: &History) -> Option<Vec<String>> {
    let word = |key: KeyId| {
        let word = str::from_utf8(history.key(key)).ok()?;
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (!word.is_empty() && word.chars().all(is_letter)).then(|| word.to_owned())
    };
    history.keys().map(word).collect()
}

/// The reads and writes of a transaction. What a transaction of unknown outcome read is not known.
fn accesses(
    history: &History,
    id: TxnId,
    number: impl Fn(ValueId) -> u64,
    losses: &mut Losses,
) -> Vec<Access> {
    let outcome = history.transactions()[id].outcome;
    let mut accesses = Vec::new();
    for op in history.operations_of(id) {
        let operation = history.operations()[op];
        let (is_write, value) = match operation.action {
            Action::Read(value) if outcome == Outcome::Ok => (false, value),
            Action::Write(Some(value)) => (true, Some(value)),
            Action::Read(_) => continue,
            _ => {
                losses.0.insert(Loss::Operations);
                continue;
            }
        };
        accesses.push(Access {
            is_write,
            key: operation.key,
            value: value.map(&number),
        });
    }
    accesses
}

/// The names as numbers, if they all are that.
fn numbers<'n>(names: impl Iterator<Item = &'n [u8]>, zero: bool) -> Option<Vec<u64>> {
    let number = |name: &[u8]| {
        let text = str::from_utf8(name).ok()?;
        let number: u64 = text.parse().ok()?;
        (number.to_string() == text && (zero || number > 0)).then_some(number)
    };
    names.map(number).collect()
}
