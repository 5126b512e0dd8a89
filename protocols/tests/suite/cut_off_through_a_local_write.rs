//! T-S1: stable time that a reader has not heard of travels through a local write.

use dkvf_protocols::{causalspartan::CausalSpartan, gentlerain::GentleRain};

use crate::schedules;

#[test]
fn in_gentlerain() {
    assert_eq!(schedules::run::<GentleRain>("cut-off-through-a-local-write"), Ok(()));
}

#[test]
fn in_causalspartan() {
    assert_eq!(schedules::run::<CausalSpartan>("cut-off-through-a-local-write"), Ok(()));
}
