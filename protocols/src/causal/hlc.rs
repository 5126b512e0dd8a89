//! The hybrid logical clock (0.4): milliseconds in the upper 48 bits, a counter in the lower 16.

use dkvf_core::{Code, Context, Server, Step};
use serde::{Deserialize, Serialize};

/// A hybrid logical clock: as near to physical time as causality allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hlc(u64);

impl Hlc {
    /// The last stamp given or merged.
    pub fn last(self) -> u64 {
        self.0
    }

    /// A stamp after all before it, after everything in `after`, and not before the physical clock. The counter
    /// carries into the milliseconds, so that 2^16 events in one of them borrow the next.
    pub fn tick(&mut self, clock_us: u64, after: &[u64]) -> u64 {
        self.0 = (self.0 + 1).max(newest(after) + 1).max((clock_us / 1_000) << 16);
        self.0
    }

    /// Later stamps come after `stamp`, which must not drag this clock further ahead than the run allows.
    ///
    /// # Errors
    /// [`Code::ClockDrift`]; the clock is unchanged.
    pub fn merge<S: Server>(&mut self, cx: &mut Context<S>, stamp: u64) -> Step {
        refuse_hostile(cx, &[stamp])?;
        self.0 = self.0.max(stamp);
        Ok(())
    }
}

/// Refuses a vector of stamps from outside that has more entries than there are replicas, or one too far ahead of this node's clock.
///
/// # Errors
/// [`Code::Malformed`], [`Code::ClockDrift`].
pub fn refuse_hostile<S: Server>(cx: &mut Context<S>, stamps: &[u64]) -> Step {
    if stamps.len() > cx.topology().replicas() {
        return cx.refuse(Code::Malformed);
    }
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
    fn a_clock_that_is_set_back_ten_seconds_repeats_no_stamp() {
        let mut hlc = Hlc::default();
        let before = hlc.tick(NOW_US, &[]);
        assert_eq!(hlc.tick(NOW_US - 10_000_000, &[]), before + 1);
        assert_eq!(hlc.tick(NOW_US + 1_000, &[]), before + (1 << 16));
    }
}
