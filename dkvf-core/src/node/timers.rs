//! The timers of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Timers by name. Times are microseconds on the node's monotonic clock.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    armed: BTreeMap<T, Armed>,
    due: BTreeSet<(u64, T)>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    due_us: u64,
    period_us: Option<u64>,
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn new() -> Self {
        Timers {
            armed: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    pub(crate) fn start(&mut self, now_us: u64, timer: T, delay: Duration, periodic: bool) {
        self.cancel(timer);
        // At least a microsecond, so that a periodic timer of no length cannot fire for ever at one instant.
        let delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX).max(1);
        self.arm(
            timer,
            Armed {
                due_us: now_us.saturating_add(delay_us),
                period_us: periodic.then_some(delay_us),
            },
        );
    }

    pub(crate) fn cancel(&mut self, timer: T) {
        if let Some(armed) = self.armed.remove(&timer) {
            self.due.remove(&(armed.due_us, timer));
        }
    }

    fn arm(&mut self, timer: T, armed: Armed) {
        self.armed.insert(timer, armed);
        self.due.insert((armed.due_us, timer));
    }

    /// The longest period of a periodic timer.
    pub(crate) fn longest_period(&self) -> Option<u64> {
        self.armed
            .values()
            .filter_map(|armed| armed.period_us)
            .max()
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| *due_us)
    }

    /// Takes the next timer that is due. A periodic one is armed again before its handler runs, so that nothing a
    /// handler does can silently end it; periods that were missed are skipped.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<T> {
        let (due_us, timer) = *self.due.first()?;
        if due_us > now_us {
            return None;
        }
        let armed = self.armed[&timer];
        self.cancel(timer);
        if let Some(period_us) = armed.period_us {
            let next_us = due_us.saturating_add(period_us);
            let due_us = if next_us > now_us {
                next_us
            } else {
                now_us.saturating_add(period_us)
            };
            self.arm(timer, Armed { due_us, ..armed });
        }
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_periodic_timer_fires_once_per_period_and_skips_missed_ones() {
        let mut timers = Timers::new();
        timers.start(0, 'a', ms(10), true);
        assert_eq!(timers.pop(9_999), None);
        assert_eq!(timers.pop(10_000), Some('a'));
        assert_eq!(timers.pop(10_000), None);
        assert_eq!(timers.next_due(), Some(20_000));
        assert_eq!(timers.pop(55_000), Some('a'));
        assert_eq!(timers.next_due(), Some(65_000));
    }

    #[test]
    fn a_single_timer_fires_once_and_a_cancelled_one_never() {
        let mut timers = Timers::new();
        timers.start(0, 'a', ms(1), false);
        timers.start(0, 'b', ms(1), true);
        timers.cancel('b');
        assert_eq!(timers.pop(5_000), Some('a'));
        assert_eq!(timers.pop(5_000), None);
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn starting_again_replaces_and_equal_times_fire_in_name_order() {
        let mut timers = Timers::new();
        timers.start(0, 'b', ms(1), false);
        timers.start(0, 'a', ms(9), false);
        timers.start(0, 'a', ms(1), false);
        assert_eq!(timers.pop(9_000), Some('a'));
        assert_eq!(timers.pop(9_000), Some('b'));
        assert_eq!(timers.pop(9_000), None);
    }

    #[test]
    fn a_period_of_zero_does_not_fire_for_ever_at_one_instant() {
        let mut timers = Timers::new();
        timers.start(0, 'a', ms(0), true);
        assert_eq!(timers.pop(5), Some('a'));
        assert_eq!(timers.pop(5), None);
    }
}
