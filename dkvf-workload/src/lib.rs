//! Workloads in the manner of YCSB: what clients ask for, and what becomes of
//! it.
//!
//! A [`WorkloadSpec`] is read from a YCSB property file or is one of the
//! built-in workloads. A [`Workload`] turns it into operations: each client
//! session has its own [`Session`], whose operations are a function of the seed
//! and the number of the session. A [`Recorder`] keeps what happened, for the
//! checkers of `dkvf-check`; [`Measurements`] keep how long it took.
//!
//! Nothing here reads a clock, starts a thread or draws from the operating
//! system: whoever drives the sessions says what time it is.

mod distribution;
mod driver;
pub mod faults;
mod generator;
mod measure;
mod naming;
mod properties;
mod recorder;
mod spec;
mod value;

pub use distribution::{Chooser, Lengths, Requests, Zipf};
pub use driver::{Driver, NewSession, Progress, READERS, Report, Window};
pub use generator::{
    Load, NamedKey, Operation, OperationKind, Record, Session, TaggedValue, Workload,
};
pub use measure::{Measurements, Status};
pub use naming::{InsertOrder, KeyNaming};
pub use properties::{FILE_BYTES_MAX, Place, Properties, PropertyError};
pub use recorder::{Entry, Kind, Recorder};
pub use spec::{Mix, ValueSize, WorkloadSpec};
pub use value::Tag;
