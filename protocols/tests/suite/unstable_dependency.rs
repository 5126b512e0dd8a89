//! T-S4: what a session depends on is not therefore stable.

use dkvf_protocols::causalspartan::CausalSpartan;

use crate::schedules;

#[test]
fn a_write_that_depends_on_an_eagerly_read_version_does_not_make_others_stable() {
    assert_eq!(schedules::run::<CausalSpartan>("unstable-dependency"), Ok(()));
}
