//! The simulator's tests.

mod absence;
mod chatter;
mod common;
mod determinism;
mod links;
mod random_faults;
