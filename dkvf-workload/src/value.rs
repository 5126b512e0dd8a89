//! Values that say who wrote them.
//!
//! The first 16 bytes of every value are its [`Tag`]; what follows is filler
//! that the counter of the tag selects.

use std::fmt;

use bytes::{BufMut, BytesMut};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Which write a value comes from: the session, and the number of the write in
/// that session. No two writes of a run share a tag, and so no two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The session, [`Tag::LOADED`] for a record of the load phase.
    pub session: u64,
    /// The number of the write; for a loaded record, the index of its key.
    pub counter: u64,
}

impl Tag {
    /// The session of all loaded records.
    pub const LOADED: u64 = u64::MAX;

    /// Length of the shortest value.
    pub const BYTES: usize = 16;

    /// Stands for a value that no workload wrote.
    pub const FOREIGN: Tag = Tag {
        session: Tag::LOADED,
        counter: u64::MAX,
    };

    /// The tag of the loaded record `index`.
    pub fn loaded(index: u64) -> Tag {
        Tag {
            session: Tag::LOADED,
            counter: index,
        }
    }

    /// Whether the value was written by the load phase.
    pub fn is_loaded(self) -> bool {
        self.session == Tag::LOADED && self != Tag::FOREIGN
    }

    /// The tag of `value`; `None` if it is shorter than [`Tag::BYTES`].
    pub fn parse(value: &[u8]) -> Option<Tag> {
        let (session, rest) = value.split_first_chunk()?;
        let (counter, _) = rest.split_first_chunk()?;
        Some(Tag {
            session: u64::from_be_bytes(*session),
            counter: u64::from_be_bytes(*counter),
        })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.session {
            Tag::LOADED => write!(f, "load-{}", self.counter),
            session => write!(f, "{session}-{}", self.counter),
        }
    }
}

/// Printable bytes that values are filled with, the same in every run.
pub(crate) struct Filler(Box<[u8]>);

impl Filler {
    /// Where a filling may start, so that neighbours differ in more than tags.
    const STARTS: usize = 256;

    /// Filler for values of at most `value_bytes_max`.
    pub(crate) fn new(value_bytes_max: usize) -> Self {
        let mut rng = Pcg64Mcg::new(0xda7a);
        let printable = |_| rng.random_range(b' '..=b'~');
        Filler((0..value_bytes_max + Self::STARTS).map(printable).collect())
    }

    /// Appends a value of `bytes` (at least [`Tag::BYTES`]) to `out`.
    pub(crate) fn write(&self, tag: Tag, bytes: usize, out: &mut BytesMut) {
        out.put_u64(tag.session);
        out.put_u64(tag.counter);
        let start = tag.counter as usize % Self::STARTS;
        out.put_slice(&self.0[start..start + bytes - Tag::BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_read_back_and_the_rest_is_filler() {
        let filler = Filler::new(100);
        let write = |tag, bytes| {
            let mut out = BytesMut::new();
            filler.write(tag, bytes, &mut out);
            out
        };
        let tag = Tag {
            session: 3,
            counter: 0x0102,
        };
        for bytes in [16, 17, 100] {
            let value = write(tag, bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(Tag::parse(&value), Some(tag));
            assert!(value[16..].iter().all(|byte| (b' '..=b'~').contains(byte)));
        }
        assert_eq!(
            write(tag, 16)[..],
            [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2]
        );
        assert_eq!(write(tag, 100), write(tag, 100));
        let next = Tag {
            counter: 0x0103,
            ..tag
        };
        assert_ne!(write(tag, 100)[16..], write(next, 100)[16..]);
    }

    #[test]
    fn short_values_have_no_tag() {
        assert_eq!(Tag::parse(&[0; 15]), None);
        assert_eq!(
            Tag::parse(&[0; 16]),
            Some(Tag {
                session: 0,
                counter: 0
            })
        );
    }

    #[test]
    fn tags_read_as_text() {
        assert_eq!(
            Tag {
                session: 3,
                counter: 1
            }
            .to_string(),
            "3-1"
        );
        assert_eq!(Tag::loaded(17).to_string(), "load-17");
        assert!(Tag::loaded(17).is_loaded());
        assert!(!Tag::FOREIGN.is_loaded());
    }
}
