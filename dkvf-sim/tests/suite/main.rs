//! The simulator's tests.

mod absence;
mod anomaly_matrix;
mod chatter;
mod clients;
mod common;
mod conformance;
mod determinism;
mod links;
mod random_faults;
mod shrinking;
