//! The adapter over the smallest engine passes the suite, and keeps its promises when the engine fails.

mod map_engine;

use std::cell::RefCell;
use std::collections::BTreeMap;

use dkvf_storage::conformance::{self, TestRecord};
use dkvf_storage::{EngineStore, Lsn, ServerId, StorageError, Store, Table, Versions};
use map_engine::MapEngine;

fn open(engine: &MapEngine) -> Result<EngineStore<TestRecord>, StorageError> {
    EngineStore::open(Box::new(engine.clone()), ServerId(0), Versions::Multi)
}

/// An engine with two committed versions of `k` and one of `l`.
fn filled_engine() -> MapEngine {
    let engine = MapEngine::default();
    let mut store = open(&engine).unwrap();
    for (key, stamp) in [(b"k", 1), (b"k", 2), (b"l", 1)] {
        store
            .put(Table::MAIN, key, TestRecord::new(stamp, 0, "value"))
            .unwrap();
    }
    store.commit().unwrap();
    engine
}

/// The engine's entries in order: `k` at 2, `k` at 1, `l` at 1; the first engine key is the adapter's own.
fn entry(engine: &MapEngine, index: usize) -> Vec<u8> {
    engine
        .content
        .borrow()
        .keys()
        .nth(index + 1)
        .unwrap()
        .clone()
}

#[test]
fn the_adapter_conforms() {
    let engines = RefCell::new(BTreeMap::<String, MapEngine>::new());
    conformance::check(|case, versions| {
        let engine = engines.borrow_mut().entry(case.into()).or_default().clone();
        Box::new(EngineStore::open(Box::new(engine), ServerId(0), versions).unwrap())
    });
}

#[test]
fn a_failed_commit_can_be_repeated() {
    let engine = MapEngine::default();
    let mut store = open(&engine).unwrap();
    store
        .put(Table::MAIN, b"k", TestRecord::new(1, 0, "value"))
        .unwrap();
    engine.disk_full.set(true);
    assert!(matches!(store.commit(), Err(StorageError::Engine { .. })));
    assert!(
        engine.content.borrow().is_empty(),
        "nothing of a failed commit is there"
    );
    assert!(
        store
            .latest(Table::MAIN, b"k", &mut |_| true)
            .unwrap()
            .is_some(),
        "the write is still visible"
    );

    engine.disk_full.set(false);
    assert_eq!(store.commit().unwrap(), Lsn(1));
    assert_eq!(open(&engine).unwrap().status(), store.status());
}

#[test]
fn a_changed_byte_is_noticed_at_opening_and_at_reading() {
    let engine = filled_engine();
    let store = open(&engine).unwrap();
    let victim = entry(&engine, 1);
    *engine
        .content
        .borrow_mut()
        .get_mut(&victim)
        .unwrap()
        .last_mut()
        .unwrap() ^= 1;

    let found = store
        .latest(Table::MAIN, b"k", &mut |_| true)
        .unwrap()
        .unwrap()
        .stamp;
    assert_eq!(found, 2, "the undamaged version is readable");
    let error = store
        .latest(Table::MAIN, b"k", &mut |r| r.stamp < 2)
        .unwrap_err();
    assert!(
        matches!(&error, StorageError::Corrupt { table: 0, key, .. } if key == "k"),
        "{error}"
    );
    let error = open(&engine).err().unwrap();
    assert!(
        matches!(&error, StorageError::Corrupt { table: 0, key, .. } if key == "k"),
        "{error}"
    );
}

#[test]
fn a_record_under_the_key_of_another_is_noticed() {
    let engine = filled_engine();
    let (newer, older) = (entry(&engine, 0), entry(&engine, 1));
    let moved = engine.content.borrow()[&newer].clone();
    engine.content.borrow_mut().insert(older, moved);
    assert!(matches!(open(&engine), Err(StorageError::Corrupt { .. })));
}

#[test]
fn a_missing_version_is_noticed_at_opening() {
    let engine = filled_engine();
    let victim = entry(&engine, 1);
    engine.content.borrow_mut().remove(&victim);
    assert!(matches!(open(&engine), Err(StorageError::Damaged { .. })));
}

#[test]
fn missing_or_changed_figures_are_noticed_at_opening() {
    let engine = filled_engine();
    let (key, figures) = engine.content.borrow_mut().pop_first().unwrap();
    assert!(
        matches!(open(&engine), Err(StorageError::Damaged { .. })),
        "without figures"
    );
    let changed = figures.iter().map(|byte| byte ^ 1).collect();
    engine.content.borrow_mut().insert(key, changed);
    assert!(
        matches!(open(&engine), Err(StorageError::Damaged { .. })),
        "with changed figures"
    );
}

#[test]
fn a_key_that_no_adapter_wrote_is_an_error() {
    let engine = filled_engine();
    let mut content = engine.content.borrow_mut();
    let (_, value) = content
        .last_key_value()
        .map(|(k, v)| (k.clone(), v.clone()))
        .unwrap();
    content.insert(vec![1, 0, b'x'], value);
    drop(content);
    assert!(matches!(open(&engine), Err(StorageError::Corrupt { .. })));
}
