//! The default store. See [`MemoryStore`].

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use smallvec::SmallVec;

use crate::store::Visit;
use crate::{
    Capabilities, Lsn, Record, ServerId, StorageError, Store, StoreStatus, Table, VersionKey,
    Versions, limits,
};

/// Short keys lie in the map itself.
type InlineKey = SmallVec<[u8; 24]>;

/// The versions of a key, oldest first: a new version is mostly the newest, and appending it costs
/// the same however long an unpruned chain has grown.
type Chain<R> = SmallVec<[R; 1]>;

/// A store in the memory of the process; nothing is encoded and nothing survives.
///
/// A read or write of one key is one hash lookup, and a binary search in the key's versions when the
/// version is not the newest. The hash has a fixed seed, so that runs repeat; it does not resist keys
/// chosen to collide.
///
/// The first [`Store::scan`] of a table sorts its keys, O(n log n), and from then on each *new* key
/// of that table costs O(log n) more: only those who scan pay for the order.
pub struct MemoryStore<R> {
    node: ServerId,
    versions: Versions,
    tables: Vec<Content<R>>,
    status: StoreStatus,
    lsn: Lsn,
    /// Whether something was written since the last commit.
    dirty: bool,
}

/// One table.
struct Content<R> {
    chains: HashMap<InlineKey, Chain<R>, FixedState>,
    /// The keys in order, once a scan has asked for them. Keys are never removed.
    order: OnceCell<BTreeSet<InlineKey>>,
}

impl<R> Default for Content<R> {
    fn default() -> Self {
        Content {
            chains: HashMap::default(),
            order: OnceCell::new(),
        }
    }
}

impl<R: Record> MemoryStore<R> {
    /// An empty store of `node`.
    pub fn new(node: ServerId, versions: Versions) -> Self {
        MemoryStore {
            node,
            versions,
            tables: Vec::new(),
            status: StoreStatus::default(),
            lsn: Lsn::default(),
            dirty: false,
        }
    }

    fn chain(&self, table: Table, key: &[u8]) -> &[R] {
        self.tables
            .get(usize::from(table.0))
            .and_then(|content| content.chains.get(key))
            .map_or(&[], |chain| chain)
    }
}

impl<R: Record> Store<R> for MemoryStore<R> {
    fn put(&mut self, table: Table, key: &[u8], mut record: R) -> Result<bool, StorageError> {
        limits::check(key, &record)?;
        let index = usize::from(table.0);
        if self.tables.len() <= index {
            self.tables.resize_with(index + 1, Content::default);
        }
        let content = &mut self.tables[index];
        let node = self.node;
        let version = record.version(node);
        match content.chains.entry_ref(key) {
            EntryRef::Vacant(vacant) => {
                record.detach();
                vacant.insert_with_key(InlineKey::from_slice(key), SmallVec::from_buf([record]));
                if let Some(order) = content.order.get_mut() {
                    order.insert(InlineKey::from_slice(key));
                }
                self.status.keys += 1;
                self.status.versions += 1;
            }
            EntryRef::Occupied(mut occupied) => {
                let chain = occupied.get_mut();
                let Some(at) = insertion_point(chain, version, node) else {
                    return Ok(false);
                };
                match self.versions {
                    Versions::Multi => {
                        record.detach();
                        chain.insert(at, record);
                        self.status.versions += 1;
                    }
                    Versions::Single if at == 0 => return Ok(false),
                    Versions::Single => {
                        record.detach();
                        chain[0] = record;
                    }
                }
            }
        }
        self.dirty = true;
        Ok(true)
    }

    fn latest(
        &self,
        table: Table,
        key: &[u8],
        satisfies: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Option<Cow<'_, R>>, StorageError> {
        Ok(newest_satisfying(self.chain(table, key), satisfies).map(Cow::Borrowed))
    }

    fn newer(
        &self,
        table: Table,
        key: &[u8],
        than: VersionKey,
        visit: &mut dyn FnMut(&R) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let chain = self.chain(table, key);
        let first = chain.partition_point(|record| record.version(self.node) <= than);
        // A break is the visitor's own wish and nobody else's news.
        let _ = chain[first..].iter().try_for_each(visit);
        Ok(())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        satisfies: &mut dyn FnMut(&R) -> bool,
        visit: &mut Visit<'_, R>,
    ) -> Result<(), StorageError> {
        let Some(content) = self.tables.get(usize::from(table.0)) else {
            return Ok(());
        };
        // `BTreeSet::range` panics on a range that ends before it begins.
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let order = content
            .order
            .get_or_init(|| content.chains.keys().cloned().collect());
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        for key in order.range::<[u8], _>((Bound::Included(from), to)) {
            let found = newest_satisfying(&content.chains[key], satisfies).map(Cow::Borrowed);
            if visit(key, found).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn prune(
        &mut self,
        table: Table,
        key: &[u8],
        stable: &mut dyn FnMut(&R) -> bool,
    ) -> Result<usize, StorageError> {
        let chain = self
            .tables
            .get_mut(usize::from(table.0))
            .and_then(|content| content.chains.get_mut(key));
        let Some(chain) = chain else { return Ok(0) };
        let dropped = chain.iter().rposition(stable).unwrap_or(0);
        chain.drain(..dropped);
        self.status.versions -= dropped as u64;
        self.dirty |= dropped > 0;
        Ok(dropped)
    }

    fn commit(&mut self) -> Result<Lsn, StorageError> {
        if std::mem::take(&mut self.dirty) {
            self.lsn.0 += 1;
        }
        Ok(self.lsn)
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn status(&self) -> StoreStatus {
        self.status
    }
}

/// What [`MemoryStore`] can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    persistent: false,
    syncs: false,
};

fn newest_satisfying<'c, R>(
    chain: &'c [R],
    satisfies: &mut dyn FnMut(&R) -> bool,
) -> Option<&'c R> {
    chain.iter().rev().find(|record| satisfies(record))
}

/// Where `version` belongs in the chain; `None` if it is there.
fn insertion_point<R: Record>(chain: &[R], version: VersionKey, node: ServerId) -> Option<usize> {
    let (newest, older) = chain.split_last()?;
    match newest.version(node).cmp(&version) {
        Ordering::Less => Some(chain.len()),
        Ordering::Equal => None,
        Ordering::Greater => older
            .binary_search_by_key(&version, |record| record.version(node))
            .err(),
    }
}
