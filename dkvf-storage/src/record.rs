//! What a protocol stores: keys, values, records and the order of their versions.

use bytes::Bytes;

/// A key. Compared as bytes; at most [`crate::limits::KEY_BYTES_MAX`] long.
pub type Key = Bytes;
/// A value, opaque to the framework; at most [`crate::limits::VALUE_BYTES_MAX`] long.
pub type Value = Bytes;

/// A node of the cluster: a dense index in descriptor order.
///
/// It lives in this crate because [`Record::version`] needs it: some protocols number versions per node.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The dense index, for use with vectors.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The place of a version in the order of its key's versions.
///
/// Two records of one key with equal version keys are the same version. The big-endian bytes of the
/// number order as the number does, so that every ordered engine can keep versions in its key.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct VersionKey(pub u128);

impl VersionKey {
    /// The usual last-writer-wins order: by stamp, ties by origin (docs/protocols/README.md, 0.5).
    pub fn stamped(stamp: u64, origin: u64) -> Self {
        VersionKey((u128::from(stamp) << 64) | u128::from(origin))
    }
}

/// A stored version: the protocol's `Record` message.
pub trait Record: prost::Message + Default + Clone + 'static {
    /// The comparator of this protocol, seen from `node`: a larger key is a newer version.
    fn version(&self, node: ServerId) -> VersionKey;

    /// Copies every byte string of the record into an allocation of its own, so that a stored
    /// record does not keep the network buffer it was decoded from alive.
    fn detach(&mut self);
}
