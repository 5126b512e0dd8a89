//! A directory that is not what it should be gives an error that says so: never a panic, never a store
//! with less in it than was synced.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use dkvf_storage::conformance::{TestRecord, TestStore};
use dkvf_storage::{Lsn, ServerId, StorageError, StoreOptions, Table, VersionKey, Versions, open};

const NODE: ServerId = ServerId(1);
const MARKER: &str = "dkvf-storage.json";

/// Offsets tried per kind of damage in the log.
const PLACES: usize = 8;
/// A value of this size gets a file of its own.
const TOO_LARGE_FOR_THE_LOG: usize = 200_000;
/// What a damaged stretch is as long as: a disk block.
const BLOCK_BYTES: usize = 4096;

fn open_as(
    directory: &Path,
    node: ServerId,
    versions: Versions,
) -> Result<TestStore, StorageError> {
    open(&StoreOptions {
        engine: "sled".into(),
        directory: Some(directory.into()),
        node,
        versions,
        properties: BTreeMap::new(),
    })
}

fn open_in(directory: &Path) -> Result<TestStore, StorageError> {
    open_as(directory, NODE, Versions::Multi)
}

fn error_in(directory: &Path) -> StorageError {
    open_in(directory).err().expect("the directory is refused")
}

type Content = Vec<(Vec<u8>, Vec<TestRecord>)>;

/// All keys with all their versions.
fn content(store: &TestStore) -> Result<Content, StorageError> {
    let mut keys = Vec::new();
    store.scan(Table::MAIN, b"", None, &mut |_| true, &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    let versions = |key: &[u8]| {
        let mut versions = Vec::new();
        store.newer(Table::MAIN, key, VersionKey(0), &mut |record| {
            versions.push(record.clone());
            ControlFlow::Continue(())
        })?;
        Ok(versions)
    };
    keys.into_iter()
        .map(|key| Ok((key.clone(), versions(&key)?)))
        .collect()
}

/// A record under one of five hundred keys.
fn write(store: &mut TestStore, stamp: u64, bytes: usize) {
    let key = format!("key{}", stamp % 500);
    let record = TestRecord::new(stamp, 0, vec![stamp as u8; bytes]);
    store.put(Table::MAIN, key.as_bytes(), record).unwrap();
}

/// A cleanly closed store in `directory` with small records in several segments of sled's log.
fn fill(directory: &Path) -> Content {
    fill_with(directory, &[300; 2000])
}

/// A cleanly closed store in `directory` with records of these sizes, and its content.
fn fill_with(directory: &Path, sizes: &[usize]) -> Content {
    let mut store = open_in(directory).unwrap();
    for (stamp, bytes) in (1..).zip(sizes) {
        write(&mut store, stamp, *bytes);
        if stamp.is_multiple_of(20) {
            store.commit().unwrap();
        }
    }
    store.commit().unwrap();
    drop(store);
    // sled writes a snapshot when it opens a log.
    content(&open_in(directory).unwrap()).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The files in `directory` whose name begins with `prefix`.
fn files(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(prefix)
        })
        .collect();
    files.sort();
    files
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut,
    FlippedBit,
    Zeroes,
    Noise,
}

impl Damage {
    const ALL: [Damage; 4] = [
        Damage::Cut,
        Damage::FlippedBit,
        Damage::Zeroes,
        Damage::Noise,
    ];

    fn apply(self, text: &mut Vec<u8>, at: usize) {
        let block = at..text.len().min(at + BLOCK_BYTES);
        match self {
            Damage::Cut => text.truncate(at),
            Damage::FlippedBit => text[at] ^= 0x10,
            Damage::Zeroes => text[block].fill(0),
            Damage::Noise => {
                for (i, byte) in text[block].iter_mut().enumerate() {
                    *byte = (i * 167 + 13) as u8;
                }
            }
        }
    }
}

/// Damages `file` of copies of `good` in all ways at so many places and opens each copy twice: both
/// times there is an error or the whole content. Returns how many openings noticed.
fn check_damages(
    good: &Path,
    expected: &Content,
    file: &Path,
    places: usize,
    prepare: impl Fn(&Path),
) -> usize {
    let text = fs::read(file).unwrap();
    let relative = file.strip_prefix(good).unwrap();
    let mut noticed = 0;
    for (place, damage) in (0..places).flat_map(|place| Damage::ALL.map(|damage| (place, damage))) {
        let at = place * text.len() / places;
        let scratch = tempfile::tempdir().unwrap();
        copy(good, scratch.path());
        prepare(scratch.path());
        let mut damaged = text.clone();
        damage.apply(&mut damaged, at);
        fs::write(scratch.path().join(relative), damaged).unwrap();

        for attempt in ["first", "second"] {
            match open_in(scratch.path()).and_then(|store| content(&store)) {
                Ok(found) => {
                    assert!(
                        found == *expected,
                        "silent loss: {}, {damage:?} at {at}, {attempt} opening",
                        relative.display()
                    );
                }
                Err(_) => noticed += 1,
            }
        }
    }
    noticed
}

#[test]
fn a_damaged_log_is_an_error_or_does_no_harm() {
    let root = tempfile::tempdir().unwrap();
    let expected = fill(root.path());
    let log = root.path().join("db");
    let noticed = check_damages(root.path(), &expected, &log, PLACES, |_| {});
    assert!(noticed > PLACES, "the damages do damage");
    // Without its snapshot sled believes the log, however little of it is left.
    let noticed = check_damages(root.path(), &expected, &log, PLACES, |directory| {
        for snapshot in files(directory, "snap") {
            fs::remove_file(snapshot).unwrap();
        }
    });
    assert!(noticed > PLACES, "the damages do damage");
}

#[test]
fn other_damaged_files_of_sled_are_an_error_or_do_no_harm() {
    let root = tempfile::tempdir().unwrap();
    let expected = fill_with(root.path(), &[300, TOO_LARGE_FOR_THE_LOG, 300]);
    let blobs = files(&root.path().join("blobs"), "");
    for group in [
        files(root.path(), "conf"),
        files(root.path(), "snap"),
        blobs,
    ] {
        let noticed: usize = group
            .iter()
            .map(|file| check_damages(root.path(), &expected, file, 1, |_| {}))
            .sum();
        assert!(noticed > 0, "the damages to {group:?} do damage");
    }
}

#[test]
fn missing_files_are_an_error_or_do_no_harm() {
    let root = tempfile::tempdir().unwrap();
    let good = root.path().join("good");
    let expected = fill_with(&good, &[300, TOO_LARGE_FOR_THE_LOG, 300]);
    for file in files(&good, "")
        .into_iter()
        .chain(files(&good.join("blobs"), ""))
        .filter(|path| path.is_file())
    {
        let relative = file.strip_prefix(&good).unwrap();
        let directory = root.path().join("copy");
        copy(&good, &directory);
        fs::remove_file(directory.join(relative)).unwrap();
        if let Ok(found) = open_in(&directory).and_then(|store| content(&store)) {
            assert!(
                found == expected,
                "silent loss: without {}",
                relative.display()
            );
        }
        fs::remove_dir_all(directory).unwrap();
    }
    fs::remove_file(good.join("db")).unwrap();
    assert!(
        matches!(error_in(&good), StorageError::Damaged { .. }),
        "without the log"
    );
    assert!(!good.join("db").exists(), "no new log hides the loss");
}

#[test]
fn a_crash_keeps_whole_commits_up_to_the_last_sync_at_least() {
    let root = tempfile::tempdir().unwrap();
    let mut store = open_in(&root.path().join("running")).unwrap();
    let mut synced = Lsn(0);
    let mut states = vec![content(&store).unwrap()];
    for stamp in 1..=200 {
        write(&mut store, stamp, 300);
        let lsn = store.commit().unwrap();
        states.push(content(&store).unwrap());
        if stamp.is_multiple_of(40) {
            store.sync().unwrap();
            synced = lsn;
        }
        if stamp.is_multiple_of(25) {
            // What another process would find if this one were killed now.
            let directory = root.path().join(stamp.to_string());
            copy(&root.path().join("running"), &directory);
            let mut survivor = open_in(&directory).unwrap();
            let last = survivor.commit().unwrap();
            assert!(
                synced <= last && last <= lsn,
                "synced {synced:?}, found {last:?}, committed {lsn:?}"
            );
            assert!(
                content(&survivor).unwrap() == states[last.0 as usize],
                "the content is that of {last:?}"
            );
        }
    }
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("thesis.tex"), "chapter 1").unwrap();
    let error = error_in(root.path());
    assert!(
        matches!(&error, StorageError::ForeignDirectory { .. }),
        "{error}"
    );
    assert_eq!(files(root.path(), ""), [root.path().join("thesis.tex")]);
}

#[test]
fn a_file_in_place_of_the_directory_is_an_error_with_its_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("occupied");
    fs::write(&path, "").unwrap();
    assert!(error_in(&path).to_string().contains("occupied"));
}

#[test]
fn a_creation_that_was_interrupted_can_be_repeated() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("dkvf-storage.json.draft"), "{\"form").unwrap();
    open_in(root.path()).unwrap();
    open_in(root.path()).unwrap();
}

#[test]
fn garbage_in_the_marker_is_an_error_with_its_name() {
    let root = tempfile::tempdir().unwrap();
    fill_with(root.path(), &[300]);
    for text in [
        &b""[..],
        b"\xff\xfe\x00",
        b"{}",
        b"[1]",
        b"{\"format\":1}",
        b"{\"format\":-1}",
    ] {
        fs::write(root.path().join(MARKER), text).unwrap();
        let error = error_in(root.path());
        assert!(
            matches!(&error, StorageError::UnreadableMarker { .. }),
            "{}: {error}",
            text.escape_ascii()
        );
        assert!(error.to_string().contains(MARKER), "{error}");
    }
}

#[test]
fn a_store_of_another_kind_is_an_error_that_names_the_difference() {
    let root = tempfile::tempdir().unwrap();
    let expected = fill_with(root.path(), &[300]);
    let path = root.path().join(MARKER);
    let marker = fs::read_to_string(&path).unwrap();
    let edits = [
        ("sled", "papyrus", "engine"),
        ("\"format\":1", "\"format\":2,\"new\":0", "format"),
    ];
    for (from, to, expected) in edits {
        let edited = marker.replace(from, to);
        assert_ne!(edited, marker);
        fs::write(&path, edited).unwrap();
        let error = error_in(root.path());
        assert!(
            matches!(&error, StorageError::WrongMarker { what, .. } if *what == expected),
            "{error}"
        );
    }
    fs::write(&path, marker).unwrap();

    let error = open_as(root.path(), NODE, Versions::Single).err().unwrap();
    assert!(
        matches!(
            &error,
            StorageError::WrongMarker {
                what: "versions",
                ..
            }
        ),
        "{error}"
    );
    let error = open_as(root.path(), ServerId(2), Versions::Multi)
        .err()
        .unwrap();
    assert!(
        matches!(&error, StorageError::WrongMarker { what: "node", .. }),
        "{error}"
    );
    assert!(
        content(&open_in(root.path()).unwrap()).unwrap() == expected,
        "the refused openings changed nothing"
    );
}

#[test]
fn a_directory_in_use_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let store = open_in(root.path()).unwrap();
    assert!(matches!(error_in(root.path()), StorageError::InUse { .. }));
    drop(store);
    open_in(root.path()).unwrap();
}

#[test]
fn a_damaged_number_of_synced_batches_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    fill_with(root.path(), &[300]);
    let path = root.path().join("dkvf-storage.synced");
    let text = fs::read(&path).unwrap();
    for damaged in [&text[..7], &text[1..], &[0; 16]] {
        fs::write(&path, damaged).unwrap();
        assert!(
            matches!(error_in(root.path()), StorageError::Damaged { .. }),
            "{damaged:?}"
        );
    }
}
