//! T-S6: a cut-off that arrives late is merged, not assigned.

use dkvf_protocols::{causalspartan::CausalSpartan, gentlerain::GentleRain};

use crate::schedules;

#[test]
fn an_older_cut_off_that_arrives_last_moves_nothing_back() {
    assert_eq!(schedules::run::<GentleRain>("late-cut-off"), Ok(()));
    assert_eq!(schedules::run::<CausalSpartan>("late-cut-off"), Ok(()));
}
