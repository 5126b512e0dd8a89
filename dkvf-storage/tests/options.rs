//! What `open` accepts and refuses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dkvf_storage::conformance::TestRecord;
use dkvf_storage::{ENGINES, ServerId, StorageError, StoreOptions, Versions, open};

fn options(engine: &str, directory: Option<PathBuf>, properties: &[(&str, &str)]) -> StoreOptions {
    StoreOptions {
        engine: engine.into(),
        directory,
        node: ServerId(3),
        versions: Versions::Multi,
        properties: BTreeMap::from_iter(
            properties
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string())),
        ),
    }
}

fn error(options: &StoreOptions) -> StorageError {
    open::<TestRecord>(options)
        .err()
        .expect("these options are refused")
}

#[test]
fn every_listed_engine_opens_with_the_capabilities_it_lists() {
    let root = tempfile::tempdir().unwrap();
    for engine in ENGINES {
        let store = open::<TestRecord>(&options(
            engine.name,
            Some(root.path().join(engine.name)),
            &[],
        ))
        .unwrap();
        assert_eq!(store.capabilities(), engine.capabilities, "{}", engine.name);
    }
}

#[test]
fn an_unknown_engine_is_answered_with_the_known_ones() {
    let message = error(&options("papyrus", None, &[])).to_string();
    for expected in ["papyrus", "memory", "sled"] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn unknown_properties_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for (engine, property) in [("memory", "cache_mib"), ("sled", "cache_mb")] {
        let error = error(&options(
            engine,
            Some(root.path().into()),
            &[(property, "1")],
        ));
        assert!(
            matches!(&error, StorageError::UnsupportedOption { option, .. } if option == property),
            "{error}"
        );
    }
}

#[test]
fn a_cache_size_is_a_positive_number_of_mib() {
    let root = tempfile::tempdir().unwrap();
    for value in ["0", "-1", "1.5", "64MiB", "", "18446744073709551615"] {
        let error = error(&options(
            "sled",
            Some(root.path().into()),
            &[("cache_mib", value)],
        ));
        assert!(
            matches!(error, StorageError::UnsupportedOption { .. }),
            "{value}: {error}"
        );
    }
    open::<TestRecord>(&options(
        "sled",
        Some(root.path().into()),
        &[("cache_mib", "1")],
    ))
    .unwrap();
}

#[test]
fn an_engine_on_disk_needs_a_directory() {
    assert!(matches!(
        error(&options("sled", None, &[])),
        StorageError::NoDirectory { engine: "sled" }
    ));
}

#[test]
fn memory_leaves_its_directory_alone() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("unused");
    open::<TestRecord>(&options("memory", Some(directory.clone()), &[])).unwrap();
    assert!(!directory.exists());
}
