//! docs/storage.md, "Write your own engine": a sorted map becomes an engine, and passes the suite.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use dkvf_storage::{
    Batch, Capabilities, Engine, EngineStore, EngineVisit, ServerId, StorageError, conformance,
};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A sorted map as an engine. Engines that are opened on one map share its content, as files would.
struct SortedMap(Rc<RefCell<Content>>);

impl Engine for SortedMap {
    fn location(&self) -> String {
        "a sorted map".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            syncs: false,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.0.borrow().get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut EngineVisit<'_>,
    ) -> Result<(), StorageError> {
        for (key, value) in self
            .0
            .borrow()
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
        {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StorageError> {
        let mut content = self.0.borrow_mut();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => content.insert(key.to_vec(), value.to_vec()),
                None => content.remove(key),
            };
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}

#[test]
fn an_engine_of_ones_own_conforms() {
    // The suite reopens what it has closed, so the maps outlive the engines.
    let maps = RefCell::new(BTreeMap::<String, Rc<RefCell<Content>>>::new());
    conformance::check(|case, versions| {
        let content = maps.borrow_mut().entry(case.into()).or_default().clone();
        Box::new(EngineStore::open(Box::new(SortedMap(content)), ServerId(0), versions).unwrap())
    });
}
