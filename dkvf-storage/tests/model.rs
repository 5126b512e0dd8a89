//! Random sequences of operations against a map of maps.

mod map_engine;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dkvf_storage::conformance::{TestRecord, TestStore};
use dkvf_storage::{
    EngineStore, Lsn, MemoryStore, ServerId, StoreOptions, Table, VersionKey, Versions,
};
use map_engine::MapEngine;
use proptest::prelude::*;

const KEYS: [&[u8]; 7] = [b"", b"\x00", b"\x00\xff", b"k", b"k\x00", b"k\xff", b"\xff"];
const TABLES: [Table; 2] = [Table::MAIN, Table(255)];

#[derive(Clone, Debug)]
enum Operation {
    Put {
        table: Table,
        key: &'static [u8],
        stamp: u64,
        origin: u64,
        value: u8,
    },
    Prune {
        table: Table,
        key: &'static [u8],
        cut: u64,
    },
    Latest {
        table: Table,
        key: &'static [u8],
        cut: u64,
    },
    Newer {
        table: Table,
        key: &'static [u8],
        than: u64,
    },
    Scan {
        table: Table,
        from: &'static [u8],
        to: Option<&'static [u8]>,
        cut: u64,
    },
    Commit,
    Sync,
    /// Drops the store and opens it again, where that is possible.
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let table = || prop::sample::select(&TABLES[..]);
    let key = || prop::sample::select(&KEYS[..]);
    let stamp = 0..8u64;
    prop_oneof![
        8 => (table(), key(), stamp.clone(), 0..2u64, any::<u8>())
            .prop_map(|(table, key, stamp, origin, value)| Operation::Put { table, key, stamp, origin, value }),
        2 => (table(), key(), stamp.clone()).prop_map(|(table, key, cut)| Operation::Prune { table, key, cut }),
        2 => (table(), key(), stamp.clone()).prop_map(|(table, key, cut)| Operation::Latest { table, key, cut }),
        2 => (table(), key(), stamp.clone()).prop_map(|(table, key, than)| Operation::Newer { table, key, than }),
        2 => (table(), key(), prop::option::of(key()), stamp)
            .prop_map(|(table, from, to, cut)| Operation::Scan { table, from, to, cut }),
        2 => Just(Operation::Commit),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Reopen),
    ]
}

type Chain = BTreeMap<VersionKey, TestRecord>;

/// The reference: everything a store has to be, in the simplest form.
#[derive(Clone, Default)]
struct Model {
    chains: BTreeMap<(Table, Vec<u8>), Chain>,
    lsn: u64,
    dirty: bool,
}

impl Model {
    fn put(&mut self, versions: Versions, table: Table, key: &[u8], record: &TestRecord) -> bool {
        let version = VersionKey::stamped(record.stamp, record.origin);
        let chain = self.chains.entry((table, key.to_vec())).or_default();
        let ignored = match versions {
            Versions::Multi => chain.contains_key(&version),
            Versions::Single => chain
                .last_key_value()
                .is_some_and(|(newest, _)| *newest >= version),
        };
        if ignored {
            return false;
        }
        if versions == Versions::Single {
            chain.clear();
        }
        chain.insert(version, record.clone());
        self.dirty = true;
        true
    }

    fn prune(&mut self, table: Table, key: &[u8], cut: u64) -> usize {
        let Some(chain) = self.chains.get_mut(&(table, key.to_vec())) else {
            return 0;
        };
        let Some(kept) = chain
            .iter()
            .rev()
            .find(|(_, r)| r.stamp <= cut)
            .map(|(version, _)| *version)
        else {
            return 0;
        };
        let before = chain.len();
        chain.retain(|version, _| *version >= kept);
        self.dirty |= chain.len() < before;
        before - chain.len()
    }

    fn latest(&self, table: Table, key: &[u8], cut: u64) -> Option<TestRecord> {
        let chain = self.chains.get(&(table, key.to_vec()))?;
        chain.values().rev().find(|r| r.stamp <= cut).cloned()
    }

    fn newer(&self, table: Table, key: &[u8], than: VersionKey) -> Vec<TestRecord> {
        let chain = self.chains.get(&(table, key.to_vec()));
        chain
            .into_iter()
            .flatten()
            .filter(|(version, _)| **version > than)
            .map(|(_, r)| r.clone())
            .collect()
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        cut: u64,
    ) -> Vec<(Vec<u8>, Option<TestRecord>)> {
        let keys = self
            .chains
            .keys()
            .filter(|(t, key)| *t == table && &**key >= from && to.is_none_or(|to| &**key < to));
        keys.map(|(_, key)| (key.clone(), self.latest(table, key, cut)))
            .collect()
    }

    fn commit(&mut self) -> Lsn {
        self.lsn += u64::from(std::mem::take(&mut self.dirty));
        Lsn(self.lsn)
    }

    fn sizes(&self) -> (u64, u64) {
        (
            self.chains.len() as u64,
            self.chains.values().map(|chain| chain.len() as u64).sum(),
        )
    }
}

fn newer(store: &TestStore, table: Table, key: &[u8], than: VersionKey) -> Vec<TestRecord> {
    let mut visited = Vec::new();
    store
        .newer(table, key, than, &mut |record| {
            visited.push(record.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    visited
}

fn scan(
    store: &TestStore,
    table: Table,
    from: &[u8],
    to: Option<&[u8]>,
    cut: u64,
) -> Vec<(Vec<u8>, Option<TestRecord>)> {
    let mut visited = Vec::new();
    store
        .scan(
            table,
            from,
            to,
            &mut |r| r.stamp <= cut,
            &mut |key, record| {
                visited.push((key.to_vec(), record.map(|record| record.into_owned())));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    visited
}

/// Runs the operations on a store and on the model. `reopen` opens the same store once more.
fn run(
    versions: Versions,
    operations: &[Operation],
    reopen: impl Fn() -> TestStore,
) -> Result<(), TestCaseError> {
    let mut store = reopen();
    let persistent = store.capabilities().persistent;
    let mut model = Model::default();
    let mut committed = model.clone();
    for operation in operations {
        match *operation {
            Operation::Put {
                table,
                key,
                stamp,
                origin,
                value,
            } => {
                let record = TestRecord::new(stamp, origin, vec![value]);
                let expected = model.put(versions, table, key, &record);
                prop_assert_eq!(store.put(table, key, record).unwrap(), expected);
            }
            Operation::Prune { table, key, cut } => {
                let dropped = store.prune(table, key, &mut |r| r.stamp <= cut).unwrap();
                prop_assert_eq!(dropped, model.prune(table, key, cut));
            }
            Operation::Latest { table, key, cut } => {
                let found = store.latest(table, key, &mut |r| r.stamp <= cut).unwrap();
                prop_assert_eq!(
                    found.map(|found| found.into_owned()),
                    model.latest(table, key, cut)
                );
            }
            Operation::Newer { table, key, than } => {
                let than = VersionKey::stamped(than, 0);
                prop_assert_eq!(
                    newer(&store, table, key, than),
                    model.newer(table, key, than)
                );
            }
            Operation::Scan {
                table,
                from,
                to,
                cut,
            } => {
                prop_assert_eq!(
                    scan(&store, table, from, to, cut),
                    model.scan(table, from, to, cut)
                );
            }
            Operation::Commit => {
                prop_assert_eq!(store.commit().unwrap(), model.commit());
                committed = model.clone();
            }
            Operation::Sync => store.sync().unwrap(),
            Operation::Reopen if persistent => {
                drop(store);
                store = reopen();
                model = committed.clone();
            }
            Operation::Reopen => {}
        }
        let status = store.status();
        prop_assert_eq!((status.keys, status.versions), model.sizes());
    }
    for table in TABLES {
        prop_assert_eq!(
            scan(&store, table, b"", None, u64::MAX),
            model.scan(table, b"", None, u64::MAX)
        );
        for key in KEYS {
            prop_assert_eq!(
                newer(&store, table, key, VersionKey(0)),
                model.newer(table, key, VersionKey(0))
            );
        }
    }
    Ok(())
}

fn versions() -> impl Strategy<Value = Versions> {
    prop::sample::select(&[Versions::Single, Versions::Multi][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn memory_behaves_like_the_model(
        versions in versions(),
        operations in prop::collection::vec(operation(), 0..80),
    ) {
        run(versions, &operations, || Box::new(MemoryStore::new(ServerId(0), versions)))?;
    }

    #[test]
    fn the_adapter_behaves_like_the_model(
        versions in versions(),
        operations in prop::collection::vec(operation(), 0..80),
    ) {
        let engine = MapEngine::default();
        run(versions, &operations, || {
            Box::new(EngineStore::open(Box::new(engine.clone()), ServerId(0), versions).unwrap())
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn sled_behaves_like_the_model(
        versions in versions(),
        operations in prop::collection::vec(operation(), 0..80),
    ) {
        let root = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine: "sled".into(),
            directory: Some(root.path().into()),
            node: ServerId(0),
            versions,
            properties: BTreeMap::new(),
        };
        run(versions, &operations, || dkvf_storage::open(&options).unwrap())?;
    }
}
