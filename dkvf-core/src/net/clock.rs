//! The real clocks of a worker. Everything else of the framework is given its time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Now;

/// Wall-clock time derived from the monotonic clock, so that an event costs one clock reading and both agree.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    start: Instant,
    start_wall_us: u64,
    skew_us: i64,
}

impl HostClock {
    /// A clock that is `skew_us` ahead of the machine's (behind if negative).
    pub fn new(skew_us: i64) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        HostClock {
            start: process_start(),
            start_wall_us: 0,
            skew_us,
        }
        .anchored(since_epoch.as_micros() as u64)
    }

    /// The same clock after a step of so many microseconds, back if negative. [`HostClock::monotonic_us`] does not step.
    pub(crate) fn stepped(mut self, by_us: i64) -> Self {
        self.skew_us = self.skew_us.saturating_add(by_us);
        self
    }

    fn anchored(mut self, wall_us: u64) -> Self {
        self.start_wall_us = wall_us.saturating_sub(self.monotonic_us());
        self
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let monotonic_us = self.monotonic_us();
        Now {
            clock_us: (self.start_wall_us + monotonic_us).saturating_add_signed(self.skew_us),
            monotonic_us,
        }
    }

    /// Microseconds since the process started: the same origin for all clocks of a process.
    pub fn monotonic_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

fn process_start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}
