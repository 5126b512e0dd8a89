//! What clients asked and what they were answered.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;

use crate::intern::Interner;

/// Index of an operation in [`History::operations`].
pub type OpId = usize;

/// Index of a transaction in [`History::transactions`].
pub type TxnId = usize;

/// A key of one [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

impl KeyId {
    /// Dense: less than [`History::key_count`].
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A written value of one [`History`]. The initial version of a key has no
/// `ValueId`: where one is optional, `None` is the initial version, which is
/// also what a read of an absent key returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(NonZero<u32>);

impl ValueId {
    /// Dense: less than [`History::value_count`].
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The value whose index is one less than `number`; `None`, the initial version, is 0.
    pub(crate) fn at(number: u32) -> Option<ValueId> {
        NonZero::new(number).map(ValueId)
    }
}

/// The site (replica) that a session was bound to when it issued an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(u16);

impl SiteId {
    /// Index in [`History::sites`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Elements of a list that a client read, in [`History::list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId(u32);

/// A range of keys that a client read, in [`History::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanId(u32);

/// What an operation does to its key. What it returns is part of it, and means something only if its transaction
/// succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Returns the value of the key; `None` is the initial version.
    Read(Option<ValueId>),
    /// Replaces the value of the key; `None` deletes it.
    Write(Option<ValueId>),
    /// Replaces the value if it is `expected`; its transaction failed if it is not.
    Cas {
        /// What the value must be.
        expected: Option<ValueId>,
        /// What it becomes.
        new: Option<ValueId>,
    },
    /// Adds an element at the end of the list.
    Append(ValueId),
    /// Returns the whole list.
    ReadList(ListId),
    /// Takes the lock.
    Acquire,
    /// Gives the lock back.
    Release,
    /// Returns the keys of a range; the operation's key is the lower end.
    Scan(ScanId),
}

impl Action {
    /// Whether it changes its key.
    pub fn is_write(self) -> bool {
        !matches!(
            self,
            Action::Read(_) | Action::ReadList(_) | Action::Scan(_)
        )
    }
}

/// A range of keys that a client read, and the rows it was given. Keys of the history in `[low, high)` that have no row
/// were not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The first key of the range.
    pub low: Vec<u8>,
    /// The first key beyond what was read; `None` is beyond all keys. A scan that stopped at a limit ends behind its last
    /// row.
    pub high: Option<Vec<u8>>,
    /// The rows.
    pub rows: Vec<(KeyId, ValueId)>,
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It certainly did not happen and never will.
    Fail,
    /// Unknown: a timeout, a lost connection, a crashed client. Its writes count as soon as a successful read returns one
    /// of their values; its reads constrain nothing.
    Info,
}

/// Operations that are one step of a client. A plain put or get is a transaction of one operation.
///
/// A session is sequential: its transactions are ordered by invocation time, ties by their place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The logical thread that issued it; one transaction at a time. After an
    /// [`Outcome::Info`] a client continues under a new process.
    pub process: u32,
    /// The session whose order the models speak of.
    pub session: u32,
    /// Where it was issued.
    pub site: SiteId,
    /// When the client began, in microseconds of the history's clock.
    pub invoke_us: u64,
    /// When the client learnt the outcome, in microseconds; `None` if it never did.
    pub complete_us: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}

/// What the protocol itself says about the place of a transaction: a snapshot and a commit stamp, as vectors that are
/// compared entry by entry. A scalar is a vector of one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The snapshot it read from; empty if unknown.
    pub start: Vec<u64>,
    /// Where it was committed; empty if unknown or if it wrote nothing.
    pub commit: Vec<u64>,
}

/// One read or write of one key within a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: KeyId,
    /// What it does and returns.
    pub action: Action,
    /// Place of the version read or written in the order that the protocol
    /// itself gives to the versions of the key, if it told; greater is newer.
    pub version: Option<u128>,
}

/// Where a history comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Name of the workload.
    pub workload: String,
    /// Kind of clock that stamped the events: `virtual` or `monotonic`; `none` if there was none.
    pub clock: String,
    /// Models that the protocol claims.
    pub claims: Vec<String>,
    /// Seed that the run is reproduced with.
    pub seed: Option<u64>,
}

/// The [`About::clock`] of a history whose times say nothing.
pub(crate) const NO_CLOCK: &str = "none";

impl About {
    /// Whether the times of the history are those of the run. Other formats may have none: then all transactions overlap,
    /// and no verdict that needs real time is possible.
    pub fn has_time(&self) -> bool {
        self.clock != NO_CLOCK
    }
}

/// A recorded run: operations, and the keys, values and sites they name.
///
/// Keys and values are interned, so a transaction of one operation takes about 100 bytes whatever their
/// length, and a few million of them fit in memory.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Where the history comes from; no checker depends on it.
    pub about: About,
    transactions: Vec<Transaction>,
    /// Where the operations of transaction `i` end; they start where those of `i - 1` end.
    ends: Vec<u32>,
    operations: Vec<Operation>,
    /// By operation: its transaction.
    owners: Vec<u32>,
    stamps: BTreeMap<TxnId, Stamps>,
    /// Lists end to end, and where each ends.
    elements: Vec<ValueId>,
    lists: Vec<u32>,
    scans: Vec<Scan>,
    keys: Interner,
    values: Interner,
    sites: Vec<String>,
    incomplete: Option<String>,
}

impl History {
    /// An empty history.
    pub fn new(about: About) -> Self {
        History {
            about,
            ..History::default()
        }
    }

    /// The name of `key` in this history.
    pub fn key_id(&mut self, key: &[u8]) -> KeyId {
        KeyId(self.keys.intern(key))
    }

    /// The name of the written value `value` in this history.
    pub fn value_id(&mut self, value: &[u8]) -> ValueId {
        let number = self.values.intern(value).wrapping_add(1);
        ValueId(NonZero::new(number).expect("fewer than 2^32 - 1 values"))
    }

    /// The name of the site called `site`. Declare every site that takes part,
    /// also one that never answers: [`Model::Convergence`](crate::Model::Convergence) then
    /// knows that it is missing. Time is linear in the number of sites.
    ///
    /// # Panics
    ///
    /// When there are more than 65,536 sites.
    pub fn site_id(&mut self, site: &str) -> SiteId {
        let known = self.sites.iter().position(|name| name == site);
        let index = known.unwrap_or_else(|| {
            self.sites.push(site.to_owned());
            self.sites.len() - 1
        });
        SiteId(u16::try_from(index).expect("at most 65,536 sites"))
    }

    /// Adds a transaction with its operations in program order. The order of transactions of one session that were
    /// invoked in the same microsecond is the order of these calls; beyond that the order does not matter.
    ///
    /// # Panics
    ///
    /// When there are 2^32 operations.
    pub fn push(
        &mut self,
        transaction: Transaction,
        operations: impl IntoIterator<Item = Operation>,
    ) -> TxnId {
        let id = self.transactions.len();
        self.transactions.push(transaction);
        self.operations.extend(operations);
        self.owners.resize(self.operations.len(), id as u32);
        let end = u32::try_from(self.operations.len()).expect("fewer than 2^32 operations");
        self.ends.push(end);
        id
    }

    /// Replaces the actions of all operations.
    pub(crate) fn change_actions(&mut self, change: impl Fn(Action) -> Action) {
        for operation in &mut self.operations {
            operation.action = change(operation.action);
        }
    }

    /// Adds what the protocol says about the place of a transaction.
    pub fn set_stamps(&mut self, transaction: TxnId, stamps: Stamps) {
        self.stamps.insert(transaction, stamps);
    }

    /// The name of a list of elements; equal lists may get different names.
    pub fn list_id(&mut self, elements: &[ValueId]) -> ListId {
        self.elements.extend_from_slice(elements);
        let end = u32::try_from(self.elements.len()).expect("fewer than 2^32 elements");
        self.lists.push(end);
        ListId(self.lists.len() as u32 - 1)
    }

    /// The name of a scan.
    pub fn scan_id(&mut self, scan: Scan) -> ScanId {
        self.scans.push(scan);
        ScanId(self.scans.len() as u32 - 1)
    }

    /// Says that operations are missing and why. Every verdict on an incomplete
    /// history is unknown; the first reason is kept.
    pub fn mark_incomplete(&mut self, reason: impl Into<String>) {
        self.incomplete.get_or_insert_with(|| reason.into());
    }

    /// Why operations are missing, if any are.
    pub fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// All transactions, in the order they were added.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// All operations, those of a transaction one after another.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operations of a transaction, in program order.
    pub fn operations_of(&self, transaction: TxnId) -> Range<OpId> {
        let start = transaction
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        start as OpId..self.ends[transaction] as OpId
    }

    /// The transaction of an operation.
    pub fn owner(&self, operation: OpId) -> TxnId {
        self.owners[operation] as TxnId
    }

    /// The transaction of an operation.
    pub fn transaction_of(&self, operation: OpId) -> &Transaction {
        &self.transactions[self.owner(operation)]
    }

    /// What the protocol says about the place of a transaction.
    pub fn stamps(&self, transaction: TxnId) -> Option<&Stamps> {
        self.stamps.get(&transaction)
    }

    /// The elements of a list, the first one first.
    pub fn list(&self, list: ListId) -> &[ValueId] {
        let index = list.0 as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.lists[before]);
        &self.elements[start as usize..self.lists[index] as usize]
    }

    /// A scan.
    pub fn scan(&self, scan: ScanId) -> &Scan {
        &self.scans[scan.0 as usize]
    }

    /// Whether every transaction has one operation: then people know them as operations.
    pub fn is_single(&self) -> bool {
        self.operations.len() == self.transactions.len()
    }

    /// The bytes of a key.
    pub fn key(&self, key: KeyId) -> &[u8] {
        self.keys.get(key.0)
    }

    /// The bytes of a value.
    pub fn value(&self, value: ValueId) -> &[u8] {
        self.values.get(value.0.get() - 1)
    }

    /// The name of a site.
    pub fn site(&self, site: SiteId) -> &str {
        &self.sites[site.index()]
    }

    /// The declared sites, in the order of their first mention.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// The name of the written value `value`, if it has one.
    pub(crate) fn find_value(&self, value: &[u8]) -> Option<ValueId> {
        self.values
            .find(value)
            .and_then(|index| ValueId::at(index + 1))
    }

    /// How many different keys are named.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The values, in the order of their first mention.
    pub(crate) fn value_ids(&self) -> impl Iterator<Item = ValueId> {
        (1..=self.values.len() as u32).filter_map(ValueId::at)
    }

    /// The keys, in the order of their first mention.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        (0..self.keys.len() as u32).map(KeyId)
    }

    /// How many different values are named.
    pub(crate) fn value_count(&self) -> usize {
        self.values.len()
    }

    /// A key as people write it: text as it is, other bytes escaped.
    pub(crate) fn key_text(&self, key: KeyId) -> String {
        escape(self.key(key))
    }

    /// A value as people write it; the initial version is `initial`.
    pub(crate) fn value_text(&self, value: Option<ValueId>) -> String {
        match value {
            Some(value) => escape(self.value(value)),
            None => "initial".to_owned(),
        }
    }

    /// What an operation does, without who and when: `wrote x = 3-1`.
    pub fn action_text(&self, id: OpId) -> impl fmt::Display + '_ {
        let Operation { key, action, .. } = self.operations[id];
        fmt::from_fn(move |f| {
            let key = self.key_text(key);
            match action {
                Action::Read(value) => write!(f, "read {key} = {}", self.value_text(value)),
                Action::Write(Some(value)) => {
                    write!(f, "wrote {key} = {}", self.value_text(Some(value)))
                }
                Action::Write(None) => write!(f, "deleted {key}"),
                Action::Cas { expected, new } => write!(
                    f,
                    "set {key} from {} to {}",
                    self.value_text(expected),
                    self.value_text(new)
                ),
                Action::Append(value) => {
                    write!(f, "appended {} to {key}", self.value_text(Some(value)))
                }
                Action::ReadList(list) => {
                    write!(f, "read {key} = [")?;
                    for (place, &value) in self.list(list).iter().enumerate() {
                        let comma = if place == 0 { "" } else { ", " };
                        write!(f, "{comma}{}", self.value_text(Some(value)))?;
                    }
                    f.write_str("]")
                }
                Action::Acquire => write!(f, "acquired {key}"),
                Action::Release => write!(f, "released {key}"),
                Action::Scan(scan) => {
                    let scan = self.scan(scan);
                    let high = scan.high.as_deref().map_or("…".into(), escape);
                    write!(f, "scanned {}..{high} = {{", escape(&scan.low))?;
                    for (place, &(key, value)) in scan.rows.iter().enumerate() {
                        let comma = if place == 0 { "" } else { ", " };
                        let (key, value) = (self.key_text(key), self.value_text(Some(value)));
                        write!(f, "{comma}{key} = {value}")?;
                    }
                    f.write_str("}")
                }
            }
        })
    }

    /// One line about an operation: who, where, what and when.
    pub fn describe(&self, id: OpId) -> impl fmt::Display + '_ {
        Description { history: self, id }
    }
}

fn escape(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

struct Description<'h> {
    history: &'h History,
    id: OpId,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = self.history;
        let op = &history.operations[self.id];
        let transaction = history.transaction_of(self.id);
        write!(f, "#{} session {}", self.id, transaction.session)?;
        match history.site(transaction.site) {
            "" => {}
            site => write!(f, " at {site}")?,
        }
        if !history.is_single() {
            write!(f, ", T{}", history.owner(self.id))?;
        }
        write!(f, " {}", history.action_text(self.id))?;
        if let Some(version) = op.version {
            write!(f, " (version {version:#x})")?;
        }
        write!(f, " [{}..", transaction.invoke_us)?;
        if let Some(complete_us) = transaction.complete_us {
            write!(f, "{complete_us}")?;
        }
        write!(f, " us]")?;
        match transaction.outcome {
            Outcome::Ok => Ok(()),
            Outcome::Fail => write!(f, ", failed"),
            Outcome::Info => write!(f, ", outcome unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_of_one_operation_takes_about_a_hundred_bytes() {
        // With its owner and its end, 4 bytes each.
        assert_eq!(size_of::<Transaction>() + size_of::<Operation>(), 40 + 48);
    }

    #[test]
    fn a_description_names_everything_a_reader_needs() {
        let mut history = History::default();
        let transaction = Transaction {
            process: 3,
            session: 2,
            site: history.site_id("dc1"),
            invoke_us: 10,
            complete_us: None,
            outcome: Outcome::Info,
        };
        let operation = Operation {
            key: history.key_id(b"x\n\xff"),
            action: Action::Write(Some(history.value_id(b"2-1"))),
            version: Some(0x2a),
        };
        history.push(transaction, [operation]);
        assert_eq!(
            history.describe(0).to_string(),
            "#0 session 2 at dc1 wrote x\\n\u{fffd} = 2-1 (version 0x2a) [10.. us], outcome unknown"
        );
    }

    #[test]
    fn operations_know_their_transaction_and_lists_their_elements() {
        let mut history = History::default();
        let transaction = Transaction {
            process: 0,
            session: 0,
            site: history.site_id(""),
            invoke_us: 0,
            complete_us: Some(1),
            outcome: Outcome::Ok,
        };
        let key = history.key_id(b"x");
        let values = [history.value_id(b"1"), history.value_id(b"2")];
        let (one, both) = (history.list_id(&values[..1]), history.list_id(&values));
        let operation = |action| Operation {
            key,
            action,
            version: None,
        };
        history.push(transaction, []);
        history.push(
            transaction,
            [one, both].map(Action::ReadList).map(operation),
        );
        history.push(transaction, [operation(Action::Append(values[0]))]);
        assert_eq!(
            [0, 1, 2].map(|id| history.operations_of(id)),
            [0..0, 0..2, 2..3]
        );
        assert_eq!([0, 1, 2].map(|op| history.owner(op)), [1, 1, 2]);
        assert_eq!(history.list(one), &values[..1]);
        assert_eq!(history.action_text(1).to_string(), "read x = [1, 2]");
    }

    #[test]
    fn the_first_reason_for_missing_operations_is_kept() {
        let mut history = History::default();
        assert_eq!(history.incomplete(), None);
        history.mark_incomplete("cap");
        history.mark_incomplete("other");
        assert_eq!(history.incomplete(), Some("cap"));
    }
}
