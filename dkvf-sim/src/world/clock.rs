//! The clocks of a host: functions of true time, so that an idle host costs no event.

use dkvf_core::Now;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// True time at the start of a simulation, in microseconds since 1970.
pub const START_US: u64 = 1_700_000_000_000_000;
/// No clock is faster or slower by more than this, in millionths.
const RATE_PPM_MAX: i32 = 900_000;
/// NTP's daemon changes the rate of a clock by at most this, in millionths.
const SLEW_PPM_MAX: i64 = 500;
/// An offset beyond this is corrected at once, as NTP's daemon does, in microseconds.
const STEP_THRESHOLD_US: i64 = 128_000;

/// How wrong the clocks of hosts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOptions {
    /// A physical clock is at the start up to this far from true time, in microseconds.
    pub skew_us: u64,
    /// The clocks of a host, physical and monotonic, are up to this much too fast or slow, in millionths.
    pub drift_ppm: u32,
    /// Correction of the physical clocks.
    pub ntp: Option<Ntp>,
}

/// A correction in the manner of NTP: every interval the clock is compared with true time, and its rate changed by at
/// most 500 ppm so that the difference would be gone by the next time. More than 128 ms is corrected by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ntp {
    /// Time between two comparisons, in microseconds, at least 1,000.
    pub interval_us: u64,
    /// A comparison is wrong by up to this, in microseconds.
    pub error_us: u64,
}

/// The two clocks of a host.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The physical clock shows `START_US + t + offset_us + (t - since_us) * rate_ppm / 10^6` at `t >= since_us`.
    since_us: u64,
    offset_us: i64,
    rate_ppm: i32,
    /// The rate without corrections.
    drift_ppm: i32,
    slew_ppm: i32,
    monotonic_ppm: i32,
    ntp: Option<(Ntp, u64)>,
    random: Pcg64Mcg,
}

impl Clock {
    pub(crate) fn new(options: &ClockOptions, mut random: Pcg64Mcg) -> Self {
        let skew_us = options.skew_us.min(i64::MAX as u64 / 4) as i64;
        let drift_ppm = (options.drift_ppm.min(RATE_PPM_MAX as u32)) as i32;
        // Always drawn, so that one option does not shift what another draws.
        let (offset, drift, monotonic): (f64, f64, f64) =
            (random.random(), random.random(), random.random());
        let within =
            |share: f64, bound: i64| libm::round((2.0 * share - 1.0) * bound as f64) as i64;
        let drift_ppm_drawn = within(drift, i64::from(drift_ppm)) as i32;
        Clock {
            since_us: 0,
            offset_us: within(offset, skew_us),
            rate_ppm: drift_ppm_drawn,
            drift_ppm: drift_ppm_drawn,
            slew_ppm: 0,
            monotonic_ppm: within(monotonic, i64::from(drift_ppm)) as i32,
            ntp: options.ntp.map(|ntp| {
                let ntp = Ntp {
                    interval_us: ntp.interval_us.max(1_000),
                    ..ntp
                };
                (ntp, ntp.interval_us)
            }),
            random,
        }
    }

    /// Both clocks at true time `t_us`; calls come in the order of time.
    #[inline]
    pub(crate) fn read(&mut self, t_us: u64) -> Now {
        self.correct(t_us);
        Now {
            clock_us: self.physical(t_us),
            monotonic_us: self.monotonic(t_us),
        }
    }

    #[inline]
    fn physical(&self, t_us: u64) -> u64 {
        let passed = t_us.saturating_sub(self.since_us);
        (START_US + t_us).saturating_add_signed(self.offset_us + scaled(passed, self.rate_ppm))
    }

    #[inline]
    pub(crate) fn monotonic(&self, t_us: u64) -> u64 {
        t_us.saturating_add_signed(scaled(t_us, self.monotonic_ppm))
    }

    /// When the monotonic clock shows `monotonic_us`, in true time.
    #[inline]
    pub(crate) fn when_monotonic(&self, monotonic_us: u64) -> u64 {
        inverse(monotonic_us, self.monotonic_ppm)
    }

    /// When the physical clock shows `clock_us`, at `now_us` or later; earlier than that if its course may change
    /// before.
    #[inline]
    pub(crate) fn when_physical(&mut self, now_us: u64, clock_us: u64) -> u64 {
        self.correct(now_us);
        if self.physical(now_us) >= clock_us {
            return now_us;
        }
        let at_since = (START_US + self.since_us).saturating_add_signed(self.offset_us);
        let passed = inverse(clock_us.saturating_sub(at_since), self.rate_ppm);
        let t_us = self.since_us.saturating_add(passed);
        let course_changes_us = self.ntp.map_or(u64::MAX, |(_, next_us)| next_us);
        t_us.min(course_changes_us).max(now_us)
    }

    /// The physical clock jumps.
    pub(crate) fn step(&mut self, now_us: u64, by_us: i64) {
        self.rebase(now_us);
        self.offset_us = self.offset_us.saturating_add(by_us);
    }

    /// The physical clock runs too fast by `ppm`, corrections apart.
    pub(crate) fn set_drift(&mut self, now_us: u64, ppm: i32) {
        self.rebase(now_us);
        self.drift_ppm = ppm.clamp(-RATE_PPM_MAX, RATE_PPM_MAX);
        self.set_rate();
    }

    /// The rate without corrections, in millionths.
    pub(crate) fn drift_ppm(&self) -> i32 {
        self.drift_ppm
    }

    fn set_rate(&mut self) {
        self.rate_ppm = (self.drift_ppm + self.slew_ppm).clamp(-RATE_PPM_MAX, RATE_PPM_MAX);
    }

    /// Starts a new piece of the clock's course at `t_us`.
    fn rebase(&mut self, t_us: u64) {
        self.correct(t_us);
        self.start_piece(t_us);
    }

    fn start_piece(&mut self, t_us: u64) {
        self.offset_us += scaled(t_us.saturating_sub(self.since_us), self.rate_ppm);
        self.since_us = t_us.max(self.since_us);
    }

    /// Makes the comparisons that were due until `t_us`.
    fn correct(&mut self, t_us: u64) {
        while let Some((ntp, next_us)) = self.ntp.filter(|(_, next_us)| *next_us <= t_us) {
            self.start_piece(next_us);
            let error = ntp.error_us.min(i64::MAX as u64 / 4) as i64;
            let measured_us = self
                .offset_us
                .saturating_add(self.random.random_range(-error..=error));
            if measured_us.abs() > STEP_THRESHOLD_US {
                self.offset_us -= measured_us;
                self.slew_ppm = 0;
            } else {
                let wanted_ppm = -measured_us * 1_000_000 / ntp.interval_us as i64;
                self.slew_ppm = wanted_ppm.clamp(-SLEW_PPM_MAX, SLEW_PPM_MAX) as i32;
            }
            self.set_rate();
            self.ntp = Some((ntp, next_us + ntp.interval_us));
        }
    }
}

/// `us * ppm / 10^6`, rounded down.
fn scaled(us: u64, ppm: i32) -> i64 {
    if ppm == 0 {
        return 0;
    }
    (i128::from(us) * i128::from(ppm)).div_euclid(1_000_000) as i64
}

/// The least `t` for which `t + scaled(t, ppm)` reaches `us`.
fn inverse(us: u64, ppm: i32) -> u64 {
    if ppm == 0 {
        return us;
    }
    let reached = |t: u64| t.saturating_add_signed(scaled(t, ppm)) >= us;
    let mut t = (u128::from(us) * 1_000_000 / (1_000_000 + i128::from(ppm)) as u128)
        .min(u128::from(u64::MAX)) as u64;
    while t > 0 && reached(t - 1) {
        t -= 1;
    }
    while t < u64::MAX && !reached(t) {
        t += 1;
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn clock(skew_us: u64, drift_ppm: u32, ntp: Option<Ntp>, index: u64) -> Clock {
        Clock::new(
            &ClockOptions {
                skew_us,
                drift_ppm,
                ntp,
            },
            stream(1, "clock", index),
        )
    }

    fn offset_us(clock: &mut Clock, t_us: u64) -> i64 {
        clock.read(t_us).clock_us as i64 - (START_US + t_us) as i64
    }

    #[test]
    fn a_perfect_clock_shows_true_time() {
        let mut clock = clock(0, 0, None, 0);
        assert_eq!(
            clock.read(12_345),
            Now {
                clock_us: START_US + 12_345,
                monotonic_us: 12_345
            }
        );
    }

    #[test]
    fn offsets_and_drifts_are_spread_within_their_bounds() {
        let (mut offsets, mut drifts, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..200 {
            let mut clock = clock(5_000, 100, None, index);
            let offset = offset_us(&mut clock, 0);
            offsets.push(offset);
            drifts.push(offset_us(&mut clock, 1_000_000_000) - offset);
            rates.push(clock.read(1_000_000_000).monotonic_us as i64 - 1_000_000_000);
        }
        for (values, bound) in [(offsets, 5_000), (drifts, 100_000), (rates, 100_000)] {
            assert!(
                values.iter().all(|value| value.abs() <= bound),
                "{values:?}"
            );
            assert!(values.iter().any(|value| *value > bound / 2), "{values:?}");
            assert!(values.iter().any(|value| *value < -bound / 2), "{values:?}");
        }
    }

    #[test]
    fn a_step_moves_the_physical_clock_only_and_a_drift_counts_from_its_beginning() {
        let mut clock = clock(0, 0, None, 0);
        clock.step(1_000, -300);
        assert_eq!(offset_us(&mut clock, 2_000), -300);
        clock.set_drift(1_000_000, 200);
        assert_eq!(offset_us(&mut clock, 1_000_000), -300);
        assert_eq!(offset_us(&mut clock, 2_000_000), -100);
        clock.set_drift(2_000_000, 0);
        assert_eq!(offset_us(&mut clock, 9_000_000), -100);
        assert_eq!(clock.read(9_000_000).monotonic_us, 9_000_000);
    }

    #[test]
    fn waiting_ends_in_the_first_microsecond_in_which_a_clock_shows_the_time() {
        for index in 0..50 {
            let mut clock = clock(10_000, 900, None, index);
            for ahead_us in [1, 7, 1_000, 123_457, 60_000_000] {
                let now_us = 1_000_003 * (index + 1);
                let target_us = clock.read(now_us).clock_us + ahead_us;
                let then_us = clock.when_physical(now_us, target_us);
                assert!(
                    clock.physical(then_us) >= target_us && clock.physical(then_us - 1) < target_us
                );
                let target_us = clock.monotonic(now_us) + ahead_us;
                let then_us = clock.when_monotonic(target_us);
                assert!(
                    clock.monotonic(then_us) >= target_us
                        && clock.monotonic(then_us - 1) < target_us
                );
            }
        }
    }

    #[test]
    fn a_time_that_has_passed_is_now() {
        let mut clock = clock(0, 0, None, 0);
        assert_eq!(clock.when_physical(500, START_US + 100), 500);
    }

    #[test]
    fn ntp_pulls_a_clock_back_and_keeps_it_near_in_spite_of_its_drift() {
        let ntp = Ntp {
            interval_us: 16_000_000,
            error_us: 500,
        };
        for index in 0..20 {
            let mut clock = clock(100_000, 100, Some(ntp), index);
            // 100 ms at 500 - 100 ppm take 250 s.
            for t_s in 600..1_200 {
                let offset_us = offset_us(&mut clock, t_s * 1_000_000);
                assert!(
                    offset_us.abs() < 8_000,
                    "clock {index} at {t_s} s: {offset_us}"
                );
            }
        }
    }

    #[test]
    fn ntp_steps_what_is_far_off() {
        let ntp = Ntp {
            interval_us: 1_000_000,
            error_us: 0,
        };
        let mut clock = clock(0, 0, Some(ntp), 0);
        clock.step(0, 10_000_000);
        assert_eq!(offset_us(&mut clock, 999_999), 10_000_000);
        assert_eq!(offset_us(&mut clock, 1_000_000), 0);
    }

    #[test]
    fn a_clock_is_the_same_however_often_it_is_read() {
        let ntp = Ntp {
            interval_us: 1_000_000,
            error_us: 500,
        };
        let (mut often, mut once) = (
            clock(50_000, 300, Some(ntp), 3),
            clock(50_000, 300, Some(ntp), 3),
        );
        for t_us in (0..30_000_000).step_by(77_777) {
            often.read(t_us);
        }
        assert_eq!(often.read(31_000_000), once.read(31_000_000));
    }
}
