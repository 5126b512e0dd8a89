//! The typed store a protocol sees. See [`Store`].

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::{Record, StorageError, VersionKey};

/// A name space of keys within one node's store. Most protocols use [`Table::MAIN`] alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u8);

impl Table {
    /// The table that `Context`'s short forms use.
    pub const MAIN: Table = Table(0);
}

/// Log sequence number of a commit; `Lsn(0)` means "depends on nothing".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// How many versions of a key a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Versions {
    /// Only the newest, by [`Record::version`]; an older one written later is ignored.
    Single,
    /// All, until [`Store::prune`].
    Multi,
}

/// What an engine can do; asking for more is an error when the node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The content survives the process.
    pub persistent: bool,
    /// [`Store::sync`] makes the content survive a power failure.
    pub syncs: bool,
}

/// Figures of a store, for the control port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreStatus {
    /// Keys that have at least one version. An engine that cannot know without a scan reports what it wrote itself.
    pub keys: u64,
    /// Versions in all.
    pub versions: u64,
}

/// The visitor of [`Store::scan`]: receives a key and the newest version that satisfied the predicate,
/// or `None` for a key that has versions but no satisfying one.
pub type Visit<'a, R> = dyn FnMut(&[u8], Option<Cow<'_, R>>) -> ControlFlow<()> + 'a;

/// A node's typed store. Writes are visible to the same node at once; [`Store::commit`] closes an atomic
/// batch. Single-threaded: it belongs to one node.
pub trait Store<R: Record> {
    /// Inserts a version. An equal version that is already there is left as it is (idempotent).
    /// Returns whether the store changed.
    fn put(&mut self, table: Table, key: &[u8], record: R) -> Result<bool, StorageError>;

    /// The newest version of `key` that satisfies `satisfies`, tried from the newest to the oldest.
    fn latest(
        &self,
        table: Table,
        key: &[u8],
        satisfies: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Option<Cow<'_, R>>, StorageError>;

    /// Visits the versions of `key` newer than `than`, oldest first, until the visitor breaks.
    fn newer(
        &self,
        table: Table,
        key: &[u8],
        than: VersionKey,
        visit: &mut dyn FnMut(&R) -> ControlFlow<()>,
    ) -> Result<(), StorageError>;

    /// Visits the keys of `[from, to)` in byte order (`to = None`: to the end), each with its newest version satisfying
    /// `satisfies`; keys without such a version are visited with `None`.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        satisfies: &mut dyn FnMut(&R) -> bool,
        visit: &mut Visit<'_, R>,
    ) -> Result<(), StorageError>;

    /// Drops the versions of `key` that are older than the newest version satisfying `stable`; keeps everything
    /// when none does. Returns how many were dropped.
    fn prune(
        &mut self,
        table: Table,
        key: &[u8],
        stable: &mut dyn FnMut(&R) -> bool,
    ) -> Result<usize, StorageError>;

    /// Closes the batch of all writes since the last commit: after a crash either all or none of them are there.
    /// Consecutive per commit that had writes; returns the previous number if there was nothing to commit.
    fn commit(&mut self) -> Result<Lsn, StorageError>;

    /// Makes everything committed so far as durable as the engine can; blocking.
    fn sync(&mut self) -> Result<(), StorageError>;

    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Sizes, in O(1).
    fn status(&self) -> StoreStatus;
}
