//! What the tests of the runtime share: a toy protocol, nodes on loopback, a client that writes any bytes, and a proxy
//! that breaks connections.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod alone;
pub mod proxy;
pub mod raw;
pub mod site;
pub mod toy;

use std::time::{Duration, Instant};

/// Time after which something that should happen counts as not happening: far more than it ever takes.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. The only way in which these tests wait.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "this never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
