//! The storage driver of the framework: typed stores of versioned records over pluggable engines.
//!
//! There are two layers. A protocol sees a [`Store`] of its own record type: versions in the order of
//! the protocol's comparator ([`Record::version`]), the newest version satisfying a predicate, ordered
//! scans, pruning, and commits numbered by [`Lsn`]. Below it an [`Engine`] is an ordered map of bytes.
//! [`MemoryStore`] implements the upper layer natively and encodes nothing; every other engine gets it
//! through [`EngineStore`]. [`open()`] picks by name, so no protocol knows which engine it runs on.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `record` | keys, values, nodes, version keys, the [`Record`] trait |
//! | `store` | the [`Store`] trait and its vocabulary |
//! | [`limits`] | the largest key, value and record |
//! | `error` | [`StorageError`] |
//! | `memory` | [`MemoryStore`] |
//! | `engine` | the [`Engine`] trait and its [`Batch`] |
//! | `layout` | how the adapter writes tables, keys and versions as engine keys |
//! | `adapter` | [`EngineStore`]: a store over any engine |
//! | `marker`, `watermark` | the two files that let a directory say what it is and what it must contain |
//! | `sled_engine` | [`SledEngine`] |
//! | `open` | [`open()`], the list of [`ENGINES`] |
//! | [`conformance`] | the suite that every engine passes |
//!
//! # Example
//!
//! ```
//! use dkvf_storage::conformance::TestRecord;
//! use dkvf_storage::{MemoryStore, ServerId, Store, Table, Versions};
//!
//! # fn main() -> Result<(), dkvf_storage::StorageError> {
//! let mut store = MemoryStore::new(ServerId(0), Versions::Multi);
//! store.put(Table::MAIN, b"k", TestRecord::new(1, 0, "old"))?;
//! store.put(Table::MAIN, b"k", TestRecord::new(2, 0, "new"))?;
//! store.commit()?;
//! let seen_at_1 = store.latest(Table::MAIN, b"k", &mut |r| r.stamp <= 1)?;
//! assert_eq!(seen_at_1.unwrap().value, "old");
//! # Ok(())
//! # }
//! ```

mod adapter;
pub mod conformance;
mod engine;
mod error;
mod layout;
pub mod limits;
mod marker;
mod memory;
mod open;
mod record;
mod sled_engine;
mod store;
mod watermark;

pub use adapter::EngineStore;
pub use engine::{Batch, Engine, EngineVisit};
pub use error::StorageError;
pub use memory::MemoryStore;
pub use open::{ENGINES, EngineInfo, StoreOptions, open};
pub use record::{Key, Record, ServerId, Value, VersionKey};
pub use sled_engine::SledEngine;
pub use store::{Capabilities, Lsn, Store, StoreStatus, Table, Versions, Visit};
