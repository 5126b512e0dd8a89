//! What a storage engine has to offer. See [`Engine`].

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::{Capabilities, StorageError};

/// The visitor of [`Engine::scan`]: receives a key and its value; an error ends the scan and is its result.
pub type EngineVisit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StorageError> + 'a;

/// An ordered map from bytes to bytes, with atomic batches.
///
/// [`EngineStore`](crate::EngineStore) turns it into a typed store; [`conformance::check`](crate::conformance::check)
/// is the test of both. It is the least that every engine has; asynchronous stability, checkpoints and
/// native versions join it when an engine offers them.
///
/// Keys are never empty: an engine may keep a figure of its own under the empty key.
pub trait Engine {
    /// Engine and place, for messages: `sled in /var/n1`.
    fn location(&self) -> String;

    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// Visits the keys of `[from, to)` in ascending byte order until the visitor breaks. The caller
    /// guarantees `from <= to`.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut EngineVisit<'_>)
    -> Result<(), StorageError>;

    /// Applies all writes of the batch or none, also across a crash; visible on return, durable after
    /// [`Engine::sync`]. Deleting an absent key is not an error.
    fn apply(&mut self, batch: &Batch) -> Result<(), StorageError>;

    /// Makes everything applied as durable as the engine can; blocking.
    fn sync(&mut self) -> Result<(), StorageError>;
}

/// Writes to be applied together: per key the last one, in key order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Batch {
    /// Writes `value` under `key`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.writes.insert(key, Some(value));
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }

    /// What the batch does to `key`: `None` if nothing, `Some(None)` if it removes it.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.writes.get(key).map(Option::as_deref)
    }

    /// The writes in key order; `None` removes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.writes
            .iter()
            .map(|(key, value)| (&**key, value.as_deref()))
    }

    /// The writes to the keys of `[from, to)` in key order; `from <= to`.
    pub fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.writes
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .map(|(key, value)| (&**key, value.as_deref()))
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}
