//! The smallest engine, shared by the tests of the adapter.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use dkvf_storage::{Batch, Capabilities, Engine, EngineVisit, StorageError};

/// An engine over a map that outlives it, so that it can be reopened. Clones share the content.
#[derive(Clone, Default)]
pub struct MapEngine {
    pub content: Rc<RefCell<BTreeMap<Vec<u8>, Vec<u8>>>>,
    /// While set, `apply` fails.
    pub disk_full: Rc<Cell<bool>>,
}

impl Engine for MapEngine {
    fn location(&self) -> String {
        "map".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            syncs: false,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.content.borrow().get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut EngineVisit<'_>,
    ) -> Result<(), StorageError> {
        let content = self.content.borrow();
        for (key, value) in content.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StorageError> {
        if self.disk_full.get() {
            return Err(StorageError::Engine {
                location: self.location(),
                action: "write",
                source: "full".into(),
            });
        }
        for (key, value) in batch.iter() {
            match value {
                Some(value) => self.content.borrow_mut().insert(key.into(), value.into()),
                None => self.content.borrow_mut().remove(key),
            };
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}
