//! Load on real clusters: runs, their reports, and what the benchmarks share.
//!
//! - [`run`]: one run, from starting a cluster to the verdict on its history
//! - [`target`]: the cluster in this process; [`processes`]: each server as a process
//! - [`faults`]: what can go wrong on purpose in a cluster on TCP
//! - [`report`]: the result as JSON
//! - [`usage`]: CPU and memory
//! - [`echo`]: the bare tokio echo that bounds what a framework can reach

pub mod echo;
pub mod faults;
pub mod processes;
pub mod report;
pub mod run;
pub mod target;
pub mod usage;
