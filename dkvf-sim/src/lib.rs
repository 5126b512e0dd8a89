//! A deterministic simulator of whole clusters: the unchanged servers, clients and stores of protocols in virtual time.
//!
//! One seed is one run. [`run()`] takes [`Options`] and gives an [`Outcome`]: the history that clients saw, hashes of
//! it and of the final state, what failed, and measurements. [`Simulation`] is the machine below it, for tests that
//! want to drive.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`options`], [`outcome`], [`trace`] | what goes in and what comes out |
//! | [`world`] | latencies, clocks, processors |
//! | `queue` | the events to come |
//! | `machine` | hosts and the servers on them |
//! | `wire`, `link` | connections, and the session layer between servers |
//! | `servers`, `outputs`, `crash`, `faults` | what servers do, and what is done to them |
//! | `clients`, `connections` | sessions, their connections, and those of links |
//! | `disk` | journals, and what survives a crash |
//! | [`simulation`] | the machine: one event after the other |
//! | `run` | the phases of a run |
//! | [`measure`] | visibility and staleness |
//! | [`render`] | traces as pictures |
//! | [`shrink`] | the smallest run that fails in the same way |
//! | [`anomalies`] | which anomalies a protocol lets happen |
//!
//! # What is simulated, and what is not
//! Messages are not encoded. Acknowledgements between servers take no time and cost nothing, so a link keeps what its
//! receiver has not taken. A connection between servers is one direction: a cut of A to B does not break B to A.
//! Clients sit next to their replica and are cut off from a server only by its crash. Memory, threads and kernels are
//! not there.

pub mod anomalies;
mod clients;
pub mod conformance;
mod connections;
mod crash;
mod disk;
mod faults;
mod link;
mod machine;
pub mod measure;
pub mod options;
pub mod outcome;
mod outputs;
mod queue;
mod random;
pub mod render;
mod run;
mod servers;
pub mod shrink;
pub mod simulation;
mod subject;
pub mod trace;
mod verdict;
mod wire;
pub mod world;

pub use options::{DiskModel, Durability, Faults, LinkOptions, Options};
pub use outcome::{Failure, FailureKind, MessageCount, MessageKind, Outcome, Recovery};
pub use run::run;
pub use simulation::Simulation;
pub use subject::Subject;
pub use trace::{Place, TraceEvent};
pub use world::{ClockOptions, CpuModel, Latency, LatencyError, Matrix, Ntp};
