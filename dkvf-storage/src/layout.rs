//! How [`EngineStore`](crate::EngineStore) writes tables, keys and versions as keys of an ordered engine.
//!
//! ```text
//! meta    00
//! entry   01  table  escaped key  00 00  complement of the version, 16 bytes big-endian
//! ```
//!
//! In the escaped key each 00 is written 00 FF. So the terminator 00 00 sorts before every
//! continuation of a key, which keeps the byte order of the keys even where one is a prefix of
//! another, and no entry of one key lies between entries of another. The complement puts the newest
//! version first. A single-version store writes version 0 for all, so that a key has one place.
//!
//! A value is the 4-byte checksum (little-endian) and the encoded record. The checksum covers the
//! engine key too, so that a record that turns up under another key is noticed.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{Table, VersionKey};

/// The engine key of the adapter's own figures.
pub(crate) const META: &[u8] = &[0x00];
/// The first engine key that can be an entry.
pub(crate) const ENTRIES_FROM: &[u8] = &[ENTRY];
/// The first engine key after all entries.
pub(crate) const ENTRIES_TO: &[u8] = &[ENTRY + 1];

const ENTRY: u8 = 0x01;
const VERSION_BYTES: usize = size_of::<u128>();
const CHECKSUM_BYTES: usize = size_of::<u32>();
/// Bytes of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 64;

/// What all entries of `key` begin with; sorts before them and after all entries of smaller keys.
pub(crate) fn prefix(table: Table, key: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(key.len() + 4 + VERSION_BYTES);
    prefix.extend([ENTRY, table.0]);
    for &byte in key {
        prefix.push(byte);
        if byte == 0x00 {
            prefix.push(0xff);
        }
    }
    prefix.extend([0x00, 0x00]);
    prefix
}

/// The first engine key after all entries with `prefix`.
pub(crate) fn prefix_end(mut prefix: Vec<u8>) -> Vec<u8> {
    prefix.pop();
    prefix.push(0x01);
    prefix
}

/// The first engine key after all entries of `table`.
pub(crate) fn table_end(table: Table) -> Vec<u8> {
    match table.0.checked_add(1) {
        Some(next) => vec![ENTRY, next],
        None => ENTRIES_TO.to_vec(),
    }
}

/// The engine key of a version of `key`.
pub(crate) fn entry(table: Table, key: &[u8], version: VersionKey) -> Vec<u8> {
    let mut entry = prefix(table, key);
    entry.extend((!version.0).to_be_bytes());
    entry
}

/// The prefix of an entry, which says table and key; `None` if it is not an entry.
pub(crate) fn key_prefix(entry: &[u8]) -> Option<&[u8]> {
    let (prefix, _) = entry.split_last_chunk::<VERSION_BYTES>()?;
    let shaped = prefix.len() >= 4 && prefix[0] == ENTRY && prefix.ends_with(&[0x00, 0x00]);
    shaped.then_some(prefix)
}

/// The key whose entries begin with `prefix`, as [`key_prefix`] gave it.
pub(crate) fn key(prefix: &[u8]) -> Vec<u8> {
    let escaped = &prefix[2..prefix.len() - 2];
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        key.push(byte);
        if byte == 0x00 {
            bytes.next();
        }
    }
    key
}

/// Table and key of an entry for a message, the key as escaped text.
pub(crate) fn describe(entry: &[u8]) -> (u8, String) {
    let (table, key) = match key_prefix(entry) {
        Some(prefix) => (prefix[1], key(prefix)),
        None => (entry.get(1).copied().unwrap_or_default(), entry.to_vec()),
    };
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let ellipsis = if shown.len() < key.len() { "..." } else { "" };
    (table, format!("{}{ellipsis}", shown.escape_ascii()))
}

/// The value to store under `key`: checksum and content.
pub(crate) fn seal(key: &[u8], content: &impl prost::Message) -> Vec<u8> {
    let encoded = content.encode_to_vec();
    let mut value = Vec::with_capacity(CHECKSUM_BYTES + encoded.len());
    value.extend(checksum(key, &encoded));
    value.extend(encoded);
    value
}

/// The content of a value stored under `key`; `None` if the checksum does not match.
pub(crate) fn unseal<'v>(key: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
    let (sum, content) = value.split_first_chunk()?;
    (*sum == checksum(key, content)).then_some(content)
}

fn checksum(key: &[u8], content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = xxh3_64_with_seed(content, xxh3_64(key)).to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_sort_by_key_then_newest_first() {
        let keys: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x00\x00",
            b"\x00\xff",
            b"a",
            b"a\x00",
            b"a\x01",
            b"\xff",
        ];
        let versions = [u128::MAX, 1 << 64, 1, 0];
        let mut entries = Vec::new();
        for table in [Table(0), Table(1), Table(255)] {
            for key in keys {
                entries.extend(versions.map(|version| entry(table, key, VersionKey(version))));
            }
        }
        assert!(entries.is_sorted_by(|a, b| a < b));
        assert!(entries.last().unwrap() < &table_end(Table(255)));
    }

    #[test]
    fn an_entry_gives_back_its_key() {
        for original in [
            &b""[..],
            b"\x00",
            b"\x00\xff\x00",
            b"plain",
            b"\xff\x00\x00",
        ] {
            let entry = entry(Table(7), original, VersionKey(42));
            assert_eq!(key(key_prefix(&entry).unwrap()), original);
        }
    }

    #[test]
    fn what_is_no_entry_has_no_prefix() {
        let whole = entry(Table(0), b"", VersionKey(0));
        assert!(key_prefix(&whole).is_some());
        for cut in 1..=whole.len() {
            assert_eq!(key_prefix(&whole[..whole.len() - cut]), None);
        }
        assert_eq!(
            key_prefix(&[&[ENTRY, 0x00, 0x00][..], &[0x00; VERSION_BYTES]].concat()),
            None
        );
        assert_eq!(key_prefix(&[META, &whole[1..]].concat()), None);
    }

    #[test]
    fn a_value_moved_to_another_key_does_not_unseal() {
        let sealed = seal(b"k", &7u64);
        assert!(unseal(b"k", &sealed).is_some());
        assert!(unseal(b"l", &sealed).is_none());
        assert!(unseal(b"k", &sealed[..3]).is_none());
    }
}
