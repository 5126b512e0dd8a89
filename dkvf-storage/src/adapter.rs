//! The typed store over any engine. See [`EngineStore`].

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use crate::engine::{Batch, Engine, EngineVisit};
use crate::store::Visit;
use crate::{
    Capabilities, Lsn, Record, ServerId, StorageError, Store, StoreStatus, Table, VersionKey,
    Versions, layout, limits,
};

/// A [`Store`] over an [`Engine`]: records are encoded with prost and versions are ordered in the
/// engine's keys.
///
/// Writes gather in a batch that all reads see; [`Store::commit`] hands it to the engine in one atomic
/// step, together with the [`Lsn`] and the sizes. Dropping the store drops what was not committed.
///
/// A read of one key costs one engine scan over the versions it has to look at; a write costs one more
/// lookup. [`Store::newer`] holds the records it visits in memory, since engines scan newest first.
pub struct EngineStore<R> {
    engine: Box<dyn Engine>,
    node: ServerId,
    versions: Versions,
    /// Writes since the last commit.
    batch: Batch,
    /// The last commit, and the sizes including the batch.
    meta: Meta,
    record: PhantomData<fn() -> R>,
}

/// The adapter's own figures, part of every batch.
#[derive(Clone, PartialEq, prost::Message)]
struct Meta {
    #[prost(uint64, tag = "1")]
    lsn: u64,
    #[prost(uint64, tag = "2")]
    keys: u64,
    #[prost(uint64, tag = "3")]
    versions: u64,
}

impl<R: Record> EngineStore<R> {
    /// Opens the content of `engine` as a store of `node`.
    ///
    /// Reads every entry once, so that damage shows now and not in the middle of a run: a wrong checksum
    /// is [`StorageError::Corrupt`], a wrong number of entries [`StorageError::Damaged`].
    pub fn open(
        engine: Box<dyn Engine>,
        node: ServerId,
        versions: Versions,
    ) -> Result<Self, StorageError> {
        let meta = read_meta(&*engine)?;
        let store = EngineStore {
            engine,
            node,
            versions,
            batch: Batch::default(),
            meta,
            record: PhantomData,
        };
        store.verify()?;
        Ok(store)
    }

    /// Compares the entries with their checksums and with the sizes of the last commit.
    fn verify(&self) -> Result<(), StorageError> {
        let mut found = StoreStatus::default();
        let mut previous = Vec::new();
        self.engine.scan(
            layout::ENTRIES_FROM,
            layout::ENTRIES_TO,
            &mut |entry, value| {
                self.content(entry, value)?;
                let prefix = self.key_prefix(entry)?;
                found.versions += 1;
                if prefix != previous {
                    found.keys += 1;
                    previous = prefix.to_vec();
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        let expected = self.status();
        if found == expected {
            return Ok(());
        }
        let reason = format!(
            "{} keys with {} versions were committed, {} keys with {} versions are there",
            expected.keys, expected.versions, found.keys, found.versions
        );
        Err(StorageError::Damaged {
            location: self.engine.location(),
            reason,
        })
    }

    /// Visits the entries of `[from, to)`, engine and batch merged, in order.
    fn entries(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut EngineVisit<'_>,
    ) -> Result<(), StorageError> {
        let mut pending = self.batch.range(from, to).peekable();
        let mut flow = ControlFlow::Continue(());
        self.engine.scan(from, to, &mut |entry, value| {
            while let Some((written, value)) = pending.next_if(|(written, _)| *written < entry) {
                flow = visit_present(written, value, visit)?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            let value = match pending.next_if(|(written, _)| *written == entry) {
                Some((_, written)) => written,
                None => Some(value),
            };
            flow = visit_present(entry, value, visit)?;
            Ok(flow)
        })?;
        for (written, value) in pending {
            if flow.is_break() {
                break;
            }
            flow = visit_present(written, value, visit)?;
        }
        Ok(())
    }

    /// Visits the entries of a key, the newest version first.
    fn chain(
        &self,
        table: Table,
        key: &[u8],
        visit: &mut EngineVisit<'_>,
    ) -> Result<(), StorageError> {
        let from = layout::prefix(table, key);
        let to = layout::prefix_end(from.clone());
        self.entries(&from, &to, visit)
    }

    fn newest(&self, table: Table, key: &[u8]) -> Result<Option<VersionKey>, StorageError> {
        let newest = self.latest(table, key, &mut |_| true)?;
        Ok(newest.map(|record| record.version(self.node)))
    }

    fn contains(&self, entry: &[u8]) -> Result<bool, StorageError> {
        match self.batch.get(entry) {
            Some(written) => Ok(written.is_some()),
            None => Ok(self.engine.get(entry)?.is_some()),
        }
    }

    fn key_prefix<'e>(&self, entry: &'e [u8]) -> Result<&'e [u8], StorageError> {
        layout::key_prefix(entry).ok_or_else(|| self.corrupt(entry, "its key is not one of ours"))
    }

    fn content<'v>(&self, entry: &[u8], value: &'v [u8]) -> Result<&'v [u8], StorageError> {
        layout::unseal(entry, value)
            .ok_or_else(|| self.corrupt(entry, "the checksum does not match"))
    }

    fn decode(&self, entry: &[u8], value: &[u8]) -> Result<R, StorageError> {
        R::decode(self.content(entry, value)?)
            .map_err(|error| self.corrupt(entry, &error.to_string()))
    }

    fn corrupt(&self, entry: &[u8], reason: &str) -> StorageError {
        let (table, key) = layout::describe(entry);
        StorageError::Corrupt {
            location: self.engine.location(),
            table,
            key,
            reason: reason.into(),
        }
    }
}

impl<R: Record> Store<R> for EngineStore<R> {
    fn put(&mut self, table: Table, key: &[u8], record: R) -> Result<bool, StorageError> {
        limits::check(key, &record)?;
        let version = record.version(self.node);
        let entry = match self.versions {
            // One place per key, so that a newer version overwrites.
            Versions::Single => layout::entry(table, key, VersionKey::default()),
            Versions::Multi => layout::entry(table, key, version),
        };
        match (self.newest(table, key)?, self.versions) {
            (None, _) => {
                self.meta.keys += 1;
                self.meta.versions += 1;
            }
            (Some(newest), Versions::Single) => {
                if version <= newest {
                    return Ok(false);
                }
            }
            (Some(newest), Versions::Multi) => {
                if version == newest || (version < newest && self.contains(&entry)?) {
                    return Ok(false);
                }
                self.meta.versions += 1;
            }
        }
        let value = layout::seal(&entry, &record);
        self.batch.put(entry, value);
        Ok(true)
    }

    fn latest(
        &self,
        table: Table,
        key: &[u8],
        satisfies: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Option<Cow<'_, R>>, StorageError> {
        let mut found = None;
        self.chain(table, key, &mut |entry, value| {
            let record = self.decode(entry, value)?;
            if satisfies(&record) {
                found = Some(Cow::Owned(record));
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    fn newer(
        &self,
        table: Table,
        key: &[u8],
        than: VersionKey,
        visit: &mut dyn FnMut(&R) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let mut newest_first = Vec::new();
        self.chain(table, key, &mut |entry, value| {
            let record = self.decode(entry, value)?;
            if record.version(self.node) <= than {
                return Ok(ControlFlow::Break(()));
            }
            newest_first.push(record);
            Ok(ControlFlow::Continue(()))
        })?;
        // A break is the visitor's own wish and nobody else's news.
        let _ = newest_first.iter().rev().try_for_each(visit);
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
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let from = layout::prefix(table, from);
        let to = to.map_or_else(|| layout::table_end(table), |to| layout::prefix(table, to));
        // The key whose versions are being tried, and whether it was visited.
        let mut current = Vec::new();
        let mut visited = true;
        let mut flow = ControlFlow::Continue(());
        self.entries(&from, &to, &mut |entry, value| {
            let prefix = self.key_prefix(entry)?;
            if prefix != current {
                if !visited {
                    visited = true;
                    flow = visit(&layout::key(&current), None);
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
                current = prefix.to_vec();
                visited = false;
            }
            if !visited {
                let record = self.decode(entry, value)?;
                if satisfies(&record) {
                    visited = true;
                    flow = visit(&layout::key(&current), Some(Cow::Owned(record)));
                }
            }
            Ok(flow)
        })?;
        if !visited {
            // The last key: whether the visitor breaks makes no difference.
            let _ = visit(&layout::key(&current), None);
        }
        Ok(())
    }

    fn prune(
        &mut self,
        table: Table,
        key: &[u8],
        stable: &mut dyn FnMut(&R) -> bool,
    ) -> Result<usize, StorageError> {
        let mut found = false;
        let mut older = Vec::new();
        self.chain(table, key, &mut |entry, value| {
            if found {
                older.push(entry.to_vec());
            } else {
                found = stable(&self.decode(entry, value)?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let dropped = older.len();
        self.meta.versions -= dropped as u64;
        for entry in older {
            self.batch.delete(entry);
        }
        Ok(dropped)
    }

    fn commit(&mut self) -> Result<Lsn, StorageError> {
        if !self.batch.is_empty() {
            let next = Meta {
                lsn: self.meta.lsn + 1,
                ..self.meta
            };
            self.batch
                .put(layout::META.to_vec(), layout::seal(layout::META, &next));
            self.engine.apply(&self.batch)?;
            self.batch = Batch::default();
            self.meta = next;
        }
        Ok(Lsn(self.meta.lsn))
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.engine.sync()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            keys: self.meta.keys,
            versions: self.meta.versions,
        }
    }
}

fn read_meta(engine: &dyn Engine) -> Result<Meta, StorageError> {
    let Some(value) = engine.get(layout::META)? else {
        return Ok(Meta::default());
    };
    layout::unseal(layout::META, &value)
        .and_then(|content| prost::Message::decode(content).ok())
        .ok_or_else(|| StorageError::Damaged {
            location: engine.location(),
            reason: "the checksum of the last commit's number does not match".into(),
        })
}

fn visit_present(
    entry: &[u8],
    value: Option<&[u8]>,
    visit: &mut EngineVisit<'_>,
) -> Result<ControlFlow<()>, StorageError> {
    match value {
        Some(value) => visit(entry, value),
        None => Ok(ControlFlow::Continue(())),
    }
}
