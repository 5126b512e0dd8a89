//! The hybrid logical clock (0.4): milliseconds in the upper 48 bits, a counter in the lower 16.

use dkvf_core::config::NodeConfig;
use dkvf_core::{Context, Server, Step};
use serde::{Deserialize, Serialize};

use super::refuse_longer;

/// A hybrid logical clock: as near to physical time as causality allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hlc {
    last: u64,
    max_drift_us: u64,
}

impl Hlc {
    /// A clock that nobody may drag further ahead of physical time than the run allows.
    pub fn new(config: &NodeConfig) -> Self {
        Hlc { last: 0, max_drift_us: config.max_drift_ms.saturating_mul(1_000) }
    }

    /// The last stamp given or merged.
    pub fn last(self) -> u64 {
        self.last
    }

    /// A stamp after all before it, after everything in `after`, and not before the physical clock. The counter
    /// carries into the milliseconds, so that 2^16 events in one of them borrow the next.
    pub fn tick(&mut self, clock_us: u64, after: &[u64]) -> u64 {
        self.last = (self.last + 1).max(newest(after) + 1).max((clock_us / 1_000) << 16);
        self.last
    }

    /// Later stamps come after `stamp`. False, and nothing changes, if it would drag this clock further ahead than the run allows.
    #[must_use = "false: later stamps may come before `stamp`"]
    pub fn merge(&mut self, clock_us: u64, stamp: u64) -> bool {
        let in_reach = stamp <= self.last || (stamp >> 16) * 1_000 <= clock_us.saturating_add(self.max_drift_us);
        if in_reach {
            self.last = self.last.max(stamp);
        }
        in_reach
    }
}

/// Refuses a vector of stamps from outside that has more entries than there are replicas, or one too far ahead of this node's clock.
///
/// # Errors
/// [`Malformed`](dkvf_core::Code::Malformed), [`ClockDrift`](dkvf_core::Code::ClockDrift).
pub fn refuse_hostile<S: Server>(cx: &mut Context<S>, stamps: &[u64]) -> Step {
    refuse_longer(cx, stamps, cx.topology().replicas())?;
    cx.refuse_drift((newest(stamps) >> 16) * 1_000)
}

fn newest(stamps: &[u64]) -> u64 {
    stamps.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_700_000_000_000_000;
    const NOW: u64 = (NOW_US / 1_000) << 16;

    #[test]
    fn seventy_thousand_ticks_in_one_millisecond_are_all_different_and_borrow_the_next_one() {
        let mut hlc = Hlc::default();
        for n in 0..70_000 {
            assert_eq!(hlc.tick(NOW_US, &[]), NOW + n);
        }
        assert_eq!(hlc.last() >> 16, (NOW >> 16) + 1, "one millisecond ahead");
        assert_eq!(hlc.tick(NOW_US + 2_000, &[]), NOW + (2 << 16), "and the physical clock takes over again");
    }

    #[test]
    fn a_stamp_is_after_its_past_and_not_before_the_physical_clock() {
        let mut hlc = Hlc::default();
        assert_eq!(hlc.tick(NOW_US, &[NOW - 5, NOW - 9]), NOW, "an old past costs nothing");
        assert_eq!(hlc.tick(NOW_US, &[NOW + 500, 3]), NOW + 501);
        assert_eq!(hlc.tick(NOW_US, &[NOW + 500]), NOW + 502, "strictly increasing");
    }

    #[test]
    fn a_merged_stamp_comes_before_later_ones_unless_it_is_too_far_ahead() {
        let mut hlc = Hlc { last: 0, max_drift_us: 1_000_000 };
        assert!(hlc.merge(NOW_US, NOW + (1_000 << 16)));
        assert!(!hlc.merge(NOW_US, NOW + (1_001 << 16)) && !hlc.merge(NOW_US, u64::MAX));
        assert_eq!(hlc.tick(NOW_US, &[]), NOW + (1_000 << 16) + 1);
    }

    #[test]
    fn a_clock_that_is_set_back_ten_seconds_repeats_no_stamp() {
        let mut hlc = Hlc::default();
        let before = hlc.tick(NOW_US, &[]);
        assert_eq!(hlc.tick(NOW_US - 10_000_000, &[]), before + 1);
        assert_eq!(hlc.tick(NOW_US + 1_000, &[]), before + (1 << 16));
    }
}
