//! sled passes the suite, and takes the largest records.

use std::collections::BTreeMap;
use std::path::Path;

use dkvf_storage::conformance::{self, TestRecord, TestStore};
use dkvf_storage::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use dkvf_storage::{ServerId, StoreOptions, Table, Versions, open};

fn open_in(directory: &Path, versions: Versions) -> TestStore {
    let options = StoreOptions {
        engine: "sled".into(),
        directory: Some(directory.into()),
        node: ServerId(0),
        versions,
        properties: BTreeMap::from([("cache_mib".into(), "8".into())]),
    };
    open(&options).unwrap()
}

#[test]
fn sled_conforms() {
    let root = tempfile::tempdir().unwrap();
    conformance::check(|case, versions| open_in(&root.path().join(case), versions));
}

#[test]
fn the_largest_record_survives_reopening() {
    let root = tempfile::tempdir().unwrap();
    let key = vec![b'k'; KEY_BYTES_MAX];
    let record = TestRecord::new(1, 0, vec![7; VALUE_BYTES_MAX]);
    let mut store = open_in(root.path(), Versions::Multi);
    store.put(Table::MAIN, &key, record.clone()).unwrap();
    store.commit().unwrap();
    store.sync().unwrap();
    drop(store);

    let store = open_in(root.path(), Versions::Multi);
    let found = store
        .latest(Table::MAIN, &key, &mut |_| true)
        .unwrap()
        .unwrap();
    assert!(*found == record);
}

#[test]
fn a_directory_is_free_as_soon_as_its_store_is_dropped() {
    let root = tempfile::tempdir().unwrap();
    for stamp in 1..=20 {
        let mut store = open_in(root.path(), Versions::Single);
        store
            .put(
                Table::MAIN,
                b"k",
                TestRecord::new(stamp, 0, vec![stamp as u8; 300_000]),
            )
            .unwrap();
        store.commit().unwrap();
    }
}
