//! Byte strings stored once each and named by dense numbers.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// A set of byte strings, each with the dense number it was first seen under.
///
/// All strings lie in one buffer, so that a million short values cost their
/// bytes plus 12 to 16 each. The hash is a fixed function: equal inputs
/// give equal tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    /// End of string `i` in `bytes`; it starts where string `i - 1` ends.
    ends: Vec<usize>,
    table: HashTable<u32>,
}

impl Interner {
    /// The number of `string`, a new one if it was not seen before. Expected
    /// time is the length of the string.
    ///
    /// # Panics
    ///
    /// When more than `u32::MAX` different strings are added.
    pub(crate) fn intern(&mut self, string: &[u8]) -> u32 {
        if let Some(id) = self.find(string) {
            return id;
        }
        let hash = xxh3_64(string);
        let id = u32::try_from(self.ends.len()).expect("fewer than 2^32 strings");
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
        self.table.insert_unique(hash, id, |&other| {
            xxh3_64(slice(&self.bytes, &self.ends, other))
        });
        id
    }

    /// The number of `string` if it was seen before.
    pub(crate) fn find(&self, string: &[u8]) -> Option<u32> {
        let equal = |&id: &u32| slice(&self.bytes, &self.ends, id) == string;
        self.table.find(xxh3_64(string), equal).copied()
    }

    /// The string numbered `id`.
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity() + 8 * self.ends.capacity() + 5 * self.table.capacity()
    }

    /// How many different strings were added.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_number_and_numbers_are_dense() {
        let mut interner = Interner::default();
        for round in 0..2 {
            for i in 0..1000_u32 {
                assert_eq!(interner.intern(format!("key-{i}").as_bytes()), i, "{round}");
            }
        }
        assert_eq!(interner.intern(b""), 1000);
        assert_eq!(interner.get(1000), b"");
        assert_eq!(interner.get(17), b"key-17");
        assert_eq!(interner.len(), 1001);
    }
}
