//! What every store has to do, as a suite that the author of an engine calls from a test.
//!
//! ```
//! use dkvf_storage::{MemoryStore, ServerId, conformance};
//!
//! conformance::check(|_case, versions| Box::new(MemoryStore::new(ServerId(0), versions)));
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{Lsn, Record, ServerId, StorageError, Store, Table, VersionKey, Versions};

/// The record of the suite: a value with a stamp and an origin, newest stamp first.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TestRecord {
    /// Time of the version.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Breaks ties between equal stamps.
    #[prost(uint64, tag = "2")]
    pub origin: u64,
    /// What was written.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
}

impl TestRecord {
    /// A record.
    pub fn new(stamp: u64, origin: u64, value: impl Into<Bytes>) -> Self {
        TestRecord {
            stamp,
            origin,
            value: value.into(),
        }
    }
}

impl Record for TestRecord {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey::stamped(self.stamp, self.origin)
    }

    fn detach(&mut self) {
        self.value = Bytes::copy_from_slice(&self.value);
    }
}

/// The store under test.
pub type TestStore = Box<dyn Store<TestRecord>>;

/// Keys in byte order that are easily confused: empty, prefixes of each other, with 00 and FF.
const AWKWARD_KEYS: [&[u8]; 12] = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\x00\x01",
    b"ab",
    b"a\xff",
    b"\xff",
    b"\xff\xff",
];

/// Runs the suite and panics at the first violation, naming it.
///
/// `open(case, versions)` opens the store named `case`: a new one the first time, and for a persistent
/// engine the same one again once the store of the previous call was dropped.
pub fn check(open: impl Fn(&str, Versions) -> TestStore) {
    for versions in [Versions::Single, Versions::Multi] {
        let fresh = |case: &str| open(&format!("{case}_{versions:?}"), versions);
        a_new_store_is_empty(fresh("new"));
        the_newest_version_wins_whatever_the_order_of_arrival(&fresh);
        a_version_put_twice_is_stored_once(fresh("twice"));
        ties_are_broken_by_the_version_key(fresh("ties"));
        awkward_keys_stay_apart_and_in_order(fresh("awkward"));
        tables_are_separate(fresh("tables"));
        scans_respect_their_bounds(fresh("bounds"));
        scans_visit_keys_without_a_satisfying_version(fresh("hopeless"));
        scans_see_keys_put_between_them(fresh("growing"));
        visitors_can_break(fresh("break"));
        empty_and_large_values_come_back(fresh("sizes"));
        oversized_keys_and_records_are_refused(fresh("oversized"));
        commits_are_numbered_consecutively(fresh("numbers"));
        stored_records_hold_no_foreign_buffer(fresh("buffer"));
        if fresh("capabilities").capabilities().persistent {
            committed_writes_survive_reopening(&fresh);
            uncommitted_writes_do_not_survive_reopening(&fresh);
        }
    }
    let multi = |case: &str| open(case, Versions::Multi);
    latest_skips_versions_that_do_not_satisfy(multi("predicate"));
    newer_visits_oldest_first(multi("newer"));
    pruning_keeps_the_newest_stable_version_and_all_newer(multi("prune"));
    long_chains_stay_in_order(multi("long"));
    if multi("multi_capabilities").capabilities().persistent {
        pruned_versions_stay_away_after_reopening(&multi);
    }
    a_single_version_store_keeps_one_version(open("one", Versions::Single));
}

fn a_new_store_is_empty(mut store: TestStore) {
    assert_eq!(latest(&store, b"k"), None, "latest in a new store");
    assert!(scan(&store, b"", None).is_empty(), "scan of a new store");
    assert!(newer(&store, b"k", 0).is_empty(), "newer in a new store");
    assert_eq!(
        store.prune(Table::MAIN, b"k", &mut |_| true).unwrap(),
        0,
        "prune in a new store"
    );
    assert_eq!(sizes(&store), (0, 0), "sizes of a new store");
}

fn the_newest_version_wins_whatever_the_order_of_arrival(fresh: &dyn Fn(&str) -> TestStore) {
    for order in [
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [3, 1, 2],
        [3, 2, 1],
    ] {
        let mut store = fresh(&format!("arrival{order:?}"));
        for stamp in order {
            put(&mut store, b"k", stamp);
        }
        assert_eq!(
            latest(&store, b"k"),
            Some(record(3)),
            "newest after arrival in order {order:?}"
        );
    }
}

fn a_version_put_twice_is_stored_once(mut store: TestStore) {
    for commit_between in [false, true] {
        let stamp = if commit_between { 3 } else { 1 };
        assert!(
            put(&mut store, b"k", stamp),
            "a new version changes the store"
        );
        assert!(
            put(&mut store, b"k", stamp + 1),
            "a newer version changes the store"
        );
        if commit_between {
            store.commit().unwrap();
        }
        let before = sizes(&store);
        for again in [stamp, stamp + 1] {
            let other = TestRecord::new(again, 0, "another value under the same version");
            let changed = store.put(Table::MAIN, b"k", other).unwrap();
            assert!(!changed, "an equal version changes nothing");
        }
        assert_eq!(sizes(&store), before, "sizes after an equal version");
        assert_eq!(
            latest(&store, b"k"),
            Some(record(stamp + 1)),
            "the first of two equal versions stays"
        );
    }
}

fn ties_are_broken_by_the_version_key(mut store: TestStore) {
    for origin in [1, 2, 0] {
        store
            .put(
                Table::MAIN,
                b"k",
                TestRecord::new(7, origin, vec![origin as u8]),
            )
            .unwrap();
    }
    assert_eq!(
        latest(&store, b"k").unwrap().origin,
        2,
        "the larger version key is newer"
    );
}

fn awkward_keys_stay_apart_and_in_order(mut store: TestStore) {
    let numbered: Vec<(u64, &[u8])> = (1..).zip(AWKWARD_KEYS).collect();
    for &(stamp, key) in numbered.iter().rev() {
        put(&mut store, key, stamp);
    }
    for state in ["uncommitted", "committed"] {
        for &(stamp, key) in &numbered {
            assert_eq!(
                latest(&store, key),
                Some(record(stamp)),
                "latest of {state} key {}",
                key.escape_ascii()
            );
            assert_eq!(
                newer(&store, key, 0),
                [stamp],
                "versions of {state} key {}",
                key.escape_ascii()
            );
        }
        assert_eq!(
            scanned_keys(&store, b"", None),
            AWKWARD_KEYS,
            "order of a scan, {state}"
        );
        store.commit().unwrap();
    }
}

fn tables_are_separate(mut store: TestStore) {
    let tables = [Table(0), Table(1), Table(254), Table(255)];
    for (stamp, table) in (1..).zip(tables) {
        store.put(table, b"k", record(stamp)).unwrap();
    }
    store.commit().unwrap();
    for (stamp, table) in (1..).zip(tables) {
        let found = store
            .latest(table, b"k", &mut |_| true)
            .unwrap()
            .unwrap()
            .into_owned();
        assert_eq!(found, record(stamp), "latest in {table:?}");
        let mut visited = 0;
        store
            .scan(table, b"", None, &mut |_| true, &mut |_, _| {
                visited += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(visited, 1, "keys of {table:?}");
    }
    assert!(
        store
            .latest(Table(2), b"k", &mut |_| true)
            .unwrap()
            .is_none(),
        "a table never written to is empty"
    );
    assert_eq!(sizes(&store), (4, 4), "sizes count all tables");
}

fn scans_respect_their_bounds(mut store: TestStore) {
    for key in AWKWARD_KEYS {
        put(&mut store, key, 1);
    }
    store.commit().unwrap();
    let between: [&[u8]; 4] = [b"\x00\x01", b"a\x00\x00", b"aa", b"z"];
    let bounds: BTreeSet<&[u8]> = AWKWARD_KEYS.into_iter().chain(between).collect();
    for &from in &bounds {
        for to in bounds.iter().map(|to| Some(*to)).chain([None]) {
            let expected: Vec<_> = AWKWARD_KEYS
                .into_iter()
                .filter(|key| *key >= from && to.is_none_or(|to| *key < to))
                .map(<[u8]>::to_vec)
                .collect();
            let shown = (from.escape_ascii(), to.map(<[u8]>::escape_ascii));
            assert_eq!(
                scanned_keys(&store, from, to),
                expected,
                "scan of {shown:?}"
            );
        }
    }
}

fn scans_visit_keys_without_a_satisfying_version(mut store: TestStore) {
    for (key, stamp) in [(b"a", 9), (b"b", 1), (b"c", 9), (b"d", 9)] {
        put(&mut store, key, stamp);
        if key == b"b" {
            store.commit().unwrap();
        }
    }
    let expected = [
        (b"a".to_vec(), None),
        (b"b".to_vec(), Some(1)),
        (b"c".to_vec(), None),
        (b"d".to_vec(), None),
    ];
    assert_eq!(
        scan_where(&store, b"", None, |r| r.stamp < 5),
        expected,
        "scan with a predicate"
    );
}

fn scans_see_keys_put_between_them(mut store: TestStore) {
    put(&mut store, b"b", 1);
    assert_eq!(
        scanned_keys(&store, b"", None),
        [b"b"],
        "scan after one put"
    );
    put(&mut store, b"a", 1);
    put(&mut store, b"b", 2);
    assert_eq!(
        scan(&store, b"", None),
        [(b"a".to_vec(), Some(1)), (b"b".to_vec(), Some(2))],
        "scan after more puts"
    );
}

fn visitors_can_break(mut store: TestStore) {
    // Before each key the newest version does not satisfy; half of the keys have an older one that does.
    for (index, key) in (0..).zip([b"a", b"b", b"c", b"d"]) {
        put(&mut store, key, 10);
        put(&mut store, key, index % 2 * 10 + 1);
        if index == 1 {
            store.commit().unwrap();
        }
    }
    for take in 1..=4 {
        let mut visited = Vec::new();
        store
            .scan(
                Table::MAIN,
                b"",
                None,
                &mut |r| r.stamp < 5,
                &mut |key, _| {
                    visited.push(key.to_vec());
                    if visited.len() == take {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                },
            )
            .unwrap();
        assert_eq!(
            visited,
            [b"a", b"b", b"c", b"d"][..take],
            "scan that breaks after {take}"
        );
    }
    let mut visited = 0;
    store
        .newer(Table::MAIN, b"a", VersionKey(0), &mut |_| {
            visited += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(visited, 1, "newer that breaks at once");
}

fn empty_and_large_values_come_back(mut store: TestStore) {
    const LARGE_BYTES: usize = 1024 * 1024;
    let large: Vec<u8> = (0..LARGE_BYTES).map(|i| (i % 251) as u8).collect();
    let records = [
        (b"e", TestRecord::default()),
        (b"l", TestRecord::new(1, 0, large)),
    ];
    for (key, record) in &records {
        store.put(Table::MAIN, *key, record.clone()).unwrap();
    }
    for state in ["uncommitted", "committed"] {
        for (key, record) in &records {
            // Not `assert_eq`, which would print the megabyte.
            assert!(
                latest(&store, *key).as_ref() == Some(record),
                "{state} {} value",
                key.escape_ascii()
            );
        }
        store.commit().unwrap();
        store.sync().unwrap();
    }
}

fn oversized_keys_and_records_are_refused(mut store: TestStore) {
    let longest = vec![0; KEY_BYTES_MAX];
    assert!(put(&mut store, &longest, 1), "the longest key");
    store.commit().unwrap();
    assert_eq!(
        latest(&store, &longest),
        Some(record(1)),
        "latest of the longest key"
    );

    let before = sizes(&store);
    let refused = store.put(Table::MAIN, &vec![0; KEY_BYTES_MAX + 1], record(1));
    assert!(
        matches!(refused, Err(StorageError::KeyTooLong { .. })),
        "a key that is too long: {refused:?}"
    );
    let refused = store.put(
        Table::MAIN,
        b"k",
        TestRecord::new(1, 0, vec![0; RECORD_BYTES_MAX]),
    );
    assert!(
        matches!(refused, Err(StorageError::RecordTooLarge { .. })),
        "a record that is too large"
    );
    assert_eq!(sizes(&store), before, "sizes after refused puts");
}

fn commits_are_numbered_consecutively(mut store: TestStore) {
    assert_eq!(store.commit().unwrap(), Lsn(0), "nothing was ever written");
    put(&mut store, b"k", 2);
    put(&mut store, b"l", 2);
    assert_eq!(store.commit().unwrap(), Lsn(1), "two writes are one commit");
    assert_eq!(store.commit().unwrap(), Lsn(1), "nothing was written since");
    put(&mut store, b"k", 2);
    assert_eq!(
        store.commit().unwrap(),
        Lsn(1),
        "an equal version is no write"
    );
    put(&mut store, b"k", 3);
    assert_eq!(store.commit().unwrap(), Lsn(2), "one more write");
}

fn stored_records_hold_no_foreign_buffer(mut store: TestStore) {
    let buffer = Bytes::from(vec![7; 100]);
    for key in [b"a", b"b"] {
        for stamp in [2, 3, 1] {
            store
                .put(
                    Table::MAIN,
                    key,
                    TestRecord::new(stamp, 0, buffer.slice(10..20)),
                )
                .unwrap();
        }
    }
    assert!(
        buffer.is_unique(),
        "a stored record shares no memory with the buffer it came from"
    );
}

fn committed_writes_survive_reopening(fresh: &dyn Fn(&str) -> TestStore) {
    let mut store = fresh("reopen");
    for (stamp, key) in (1..).zip(AWKWARD_KEYS) {
        put(&mut store, key, stamp);
    }
    store.commit().unwrap();
    put(&mut store, b"a", 100);
    store.commit().unwrap();
    store.sync().unwrap();
    let (before, expected) = (sizes(&store), scan(&store, b"", None));
    drop(store);

    let mut store = fresh("reopen");
    assert_eq!(scan(&store, b"", None), expected, "content after reopening");
    assert_eq!(sizes(&store), before, "sizes after reopening");
    assert_eq!(
        store.commit().unwrap(),
        Lsn(2),
        "number of the last commit after reopening"
    );
    put(&mut store, b"a", 101);
    assert_eq!(
        store.commit().unwrap(),
        Lsn(3),
        "numbers go on after reopening"
    );
}

fn uncommitted_writes_do_not_survive_reopening(fresh: &dyn Fn(&str) -> TestStore) {
    let mut store = fresh("uncommitted");
    put(&mut store, b"committed", 1);
    store.commit().unwrap();
    put(&mut store, b"committed", 2);
    put(&mut store, b"uncommitted", 2);
    store.sync().unwrap();
    drop(store);

    let mut store = fresh("uncommitted");
    assert_eq!(
        scan(&store, b"", None),
        [(b"committed".to_vec(), Some(1))],
        "content is that of the last commit"
    );
    assert_eq!(sizes(&store), (1, 1), "sizes are those of the last commit");
    assert_eq!(
        store.commit().unwrap(),
        Lsn(1),
        "the number is that of the last commit"
    );
}

fn latest_skips_versions_that_do_not_satisfy(mut store: TestStore) {
    for stamp in [5, 1, 9, 3] {
        put(&mut store, b"k", stamp);
    }
    for (cut, expected) in [
        (0, None),
        (1, Some(1)),
        (4, Some(3)),
        (5, Some(5)),
        (100, Some(9)),
    ] {
        let mut tried = Vec::new();
        let found = store.latest(Table::MAIN, b"k", &mut |r| {
            tried.push(r.stamp);
            r.stamp <= cut
        });
        assert_eq!(
            found.unwrap().map(|r| r.stamp),
            expected,
            "newest version up to {cut}"
        );
        let in_order: Vec<_> = [9, 5, 3, 1]
            .into_iter()
            .filter(|stamp| expected.is_none_or(|e| *stamp >= e))
            .collect();
        assert_eq!(
            tried, in_order,
            "versions are tried from the newest, up to {cut}"
        );
    }
}

fn newer_visits_oldest_first(mut store: TestStore) {
    for stamp in [5, 1, 9, 3] {
        put(&mut store, b"k", stamp);
        put(&mut store, b"other", stamp + 1);
        if stamp == 1 {
            store.commit().unwrap();
        }
    }
    for (than, expected) in [
        (0, vec![1, 3, 5, 9]),
        (3, vec![5, 9]),
        (4, vec![5, 9]),
        (9, vec![]),
        (u64::MAX, vec![]),
    ] {
        assert_eq!(
            newer(&store, b"k", than),
            expected,
            "versions newer than {than}"
        );
    }
}

fn pruning_keeps_the_newest_stable_version_and_all_newer(mut store: TestStore) {
    for stamp in [1, 3, 5, 7, 9] {
        put(&mut store, b"k", stamp);
        put(&mut store, b"k\x00", stamp);
    }
    store.commit().unwrap();
    let mut prune = |cut: u64, dropped: usize, left: &[u64]| {
        let found = store
            .prune(Table::MAIN, b"k", &mut |r| r.stamp <= cut)
            .unwrap();
        assert_eq!(found, dropped, "versions dropped by pruning up to {cut}");
        assert_eq!(
            newer(&store, b"k", 0),
            left,
            "versions left by pruning up to {cut}"
        );
    };
    prune(0, 0, &[1, 3, 5, 7, 9]);
    prune(1, 0, &[1, 3, 5, 7, 9]);
    prune(6, 2, &[5, 7, 9]);
    prune(6, 0, &[5, 7, 9]);
    prune(100, 2, &[9]);
    assert_eq!(
        newer(&store, b"k\x00", 0),
        [1, 3, 5, 7, 9],
        "other keys are not pruned"
    );
    assert_eq!(sizes(&store), (2, 6), "sizes after pruning");
    assert!(put(&mut store, b"k", 5), "a pruned version is new again");
    assert_eq!(
        newer(&store, b"k", 0),
        [5, 9],
        "versions after putting a pruned one again"
    );
}

fn long_chains_stay_in_order(mut store: TestStore) {
    const LENGTH: u64 = 500;
    // 7 and 500 have no common divisor: every stamp once, in no order.
    for i in 0..LENGTH {
        put(&mut store, b"k", i * 7 % LENGTH + 1);
    }
    let expected: Vec<_> = (1..=LENGTH).collect();
    assert_eq!(newer(&store, b"k", 0), expected, "a long chain");
}

fn pruned_versions_stay_away_after_reopening(multi: &dyn Fn(&str) -> TestStore) {
    let mut store = multi("prune_reopen");
    for stamp in 1..=5 {
        put(&mut store, b"k", stamp);
    }
    store.commit().unwrap();
    store
        .prune(Table::MAIN, b"k", &mut |r| r.stamp <= 3)
        .unwrap();
    assert_eq!(store.commit().unwrap(), Lsn(2), "pruning is a write");
    drop(store);

    let store = multi("prune_reopen");
    assert_eq!(
        newer(&store, b"k", 0),
        [3, 4, 5],
        "versions after pruning and reopening"
    );
    assert_eq!(sizes(&store), (1, 3), "sizes after pruning and reopening");
}

fn a_single_version_store_keeps_one_version(mut store: TestStore) {
    assert!(put(&mut store, b"k", 5), "the first version");
    assert!(!put(&mut store, b"k", 4), "an older version is ignored");
    store.commit().unwrap();
    assert!(
        !put(&mut store, b"k", 3),
        "an older version is ignored after a commit"
    );
    assert!(put(&mut store, b"k", 6), "a newer version replaces");
    assert_eq!(
        newer(&store, b"k", 0),
        [6],
        "versions in a single-version store"
    );
    assert_eq!(
        store.prune(Table::MAIN, b"k", &mut |_| true).unwrap(),
        0,
        "there is nothing to prune"
    );
    assert_eq!(sizes(&store), (1, 1), "sizes of a single-version store");
}

/// The record that [`put`] writes.
fn record(stamp: u64) -> TestRecord {
    TestRecord::new(stamp, 0, format!("value of {stamp}"))
}

fn put(store: &mut TestStore, key: &[u8], stamp: u64) -> bool {
    store.put(Table::MAIN, key, record(stamp)).unwrap()
}

fn latest(store: &TestStore, key: &[u8]) -> Option<TestRecord> {
    store
        .latest(Table::MAIN, key, &mut |_| true)
        .unwrap()
        .map(|record| record.into_owned())
}

/// The stamps of the versions with a stamp over `than`.
fn newer(store: &TestStore, key: &[u8], than: u64) -> Vec<u64> {
    let mut stamps = Vec::new();
    let than = VersionKey::stamped(than, 0);
    store
        .newer(Table::MAIN, key, than, &mut |record| {
            stamps.push(record.stamp);
            ControlFlow::Continue(())
        })
        .unwrap();
    stamps
}

/// Keys and the stamps of their newest satisfying versions.
fn scan_where(
    store: &TestStore,
    from: &[u8],
    to: Option<&[u8]>,
    satisfies: impl Fn(&TestRecord) -> bool,
) -> Vec<(Vec<u8>, Option<u64>)> {
    let mut visited = Vec::new();
    store
        .scan(
            Table::MAIN,
            from,
            to,
            &mut |record| satisfies(record),
            &mut |key, record| {
                visited.push((key.to_vec(), record.map(|record| record.stamp)));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    visited
}

fn scan(store: &TestStore, from: &[u8], to: Option<&[u8]>) -> Vec<(Vec<u8>, Option<u64>)> {
    scan_where(store, from, to, |_| true)
}

fn scanned_keys(store: &TestStore, from: &[u8], to: Option<&[u8]>) -> Vec<Vec<u8>> {
    scan(store, from, to)
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

/// Keys and versions.
fn sizes(store: &TestStore) -> (u64, u64) {
    let status = store.status();
    (status.keys, status.versions)
}
