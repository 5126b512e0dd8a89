//! The memory store passes the suite.

use dkvf_storage::{MemoryStore, ServerId, conformance};

#[test]
fn memory_conforms() {
    conformance::check(|_case, versions| Box::new(MemoryStore::new(ServerId(0), versions)));
}
