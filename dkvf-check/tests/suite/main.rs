//! Tests of the public interface, one file per subject.

mod anomalies;
mod brute_force;
mod common;
mod native_format;
