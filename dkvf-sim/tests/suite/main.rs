//! The simulator's tests.

mod absence;
mod anomaly_matrix;
mod chatter;
mod clients;
mod clocks;
mod common;
mod conformance;
mod determinism;
mod durability;
mod hosts;
mod links;
mod random_faults;
mod rendering;
mod shrinking;
