//! Load on real clusters: runs, their reports, and what the benchmarks share.
//!
//! - [`run`]: one run, from starting a cluster to the verdict on its history
//! - [`target`]: the cluster, in this process or as processes
//! - [`report`]: the result as JSON
//! - [`usage`]: CPU and memory
//! - [`echo`]: the bare tokio echo that bounds what a framework can reach

pub mod echo;
pub mod report;
pub mod run;
pub mod target;
pub mod usage;
