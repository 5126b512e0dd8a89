//! What handling costs: service times, and the queue before a processor.

use serde::{Deserialize, Serialize};

/// Time a processor needs, in nanoseconds. All zero, the default: servers are infinitely fast.
///
/// `dkvf calibrate` measures these figures on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuModel {
    /// To receive and handle one message or timer.
    pub per_message_ns: u64,
    /// Per byte of a message that is received.
    pub per_byte_ns: u64,
    /// Per read or write of the store.
    pub per_storage_access_ns: u64,
    /// To send one message.
    pub per_send_ns: u64,
}

/// What a slow node takes per event where the run has no cost model, in nanoseconds, times the factor.
const SLOW_EVENT_NS: u64 = 10_000;

impl CpuModel {
    /// The cost of one event.
    #[inline]
    pub fn cost_ns(&self, bytes: u64, storage_accesses: u64, sends: u64) -> u64 {
        self.per_message_ns
            + self.per_byte_ns * bytes
            + self.per_storage_access_ns * storage_accesses
            + self.per_send_ns * sends
    }

    /// Whether everything is free.
    pub fn is_free(&self) -> bool {
        *self == CpuModel::default()
    }
}

/// One processor: it does one thing after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    model: CpuModel,
    free: bool,
    busy_until_ns: u64,
    slow: u32,
}

impl Cpu {
    pub(crate) fn new(model: CpuModel) -> Self {
        Cpu {
            model,
            free: model.is_free(),
            busy_until_ns: 0,
            slow: 1,
        }
    }

    /// Everything takes `factor` times as long from now on.
    pub(crate) fn set_slow(&mut self, factor: u32) {
        self.slow = factor.max(1);
    }

    /// Forgets what it was doing.
    pub(crate) fn reset(&mut self) {
        self.busy_until_ns = 0;
    }

    /// Whether it can begin something within the microsecond `now_us`. Costs are finer than the clock of the
    /// simulation, so it may do several things in one.
    #[inline]
    pub(crate) fn is_idle(&self, now_us: u64) -> bool {
        self.busy_until_ns / 1_000 <= now_us
    }

    /// When it can begin something.
    #[inline]
    pub(crate) fn idle_at_us(&self) -> u64 {
        self.busy_until_ns / 1_000
    }

    /// It does something that begins at `now_us` or when it is done with the former. Returns when that is done.
    #[inline]
    pub(crate) fn work(
        &mut self,
        now_us: u64,
        bytes: u64,
        storage_accesses: u64,
        sends: u64,
    ) -> u64 {
        if self.free && self.slow == 1 {
            return now_us;
        }
        let cost_ns = if self.free {
            SLOW_EVENT_NS
        } else {
            self.model.cost_ns(bytes, storage_accesses, sends)
        };
        let begin_ns = self.busy_until_ns.max(now_us * 1_000);
        self.busy_until_ns = begin_ns + cost_ns * u64::from(self.slow);
        self.busy_until_ns.div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages every 10 us at a server that needs 15.5 us for each: the `n`-th, from 0, waits 5.5 n us.
    #[test]
    fn an_overloaded_processor_falls_behind_by_the_difference() {
        let mut cpu = Cpu::new(CpuModel {
            per_message_ns: 10_000,
            per_byte_ns: 50,
            per_storage_access_ns: 500,
            per_send_ns: 0,
        });
        for n in 0..100 {
            let done = cpu.work(10 * n, 100, 1, 7);
            assert_eq!(done, (15_500 * (n + 1)).div_ceil(1_000));
        }
        assert!(!cpu.is_idle(1_549));
        assert!(cpu.is_idle(1_550));
        assert_eq!(cpu.idle_at_us(), 1_550);
    }

    #[test]
    fn a_processor_that_keeps_up_has_no_queue() {
        let mut cpu = Cpu::new(CpuModel {
            per_message_ns: 400,
            ..CpuModel::default()
        });
        // Two messages in one microsecond are handled in it; the third one begins in it, too.
        assert_eq!(cpu.work(7, 0, 0, 0), 8);
        assert!(cpu.is_idle(7));
        assert_eq!(cpu.work(7, 0, 0, 0), 8);
        assert!(cpu.is_idle(7));
        assert_eq!(cpu.work(7, 0, 0, 0), 9);
        assert!(!cpu.is_idle(7));
        assert_eq!(cpu.work(20, 0, 0, 0), 21);
    }

    #[test]
    fn a_slow_processor_takes_a_multiple_and_a_free_one_something() {
        let mut cpu = Cpu::new(CpuModel {
            per_message_ns: 1_000,
            ..CpuModel::default()
        });
        cpu.set_slow(30);
        assert_eq!(cpu.work(0, 0, 0, 0), 30);
        let mut free = Cpu::new(CpuModel::default());
        assert_eq!(free.work(5, 1_000, 9, 9), 5);
        free.set_slow(3);
        assert_eq!(free.work(5, 1_000, 9, 9), 35);
        free.set_slow(1);
        assert_eq!(free.work(50, 1_000, 9, 9), 50);
    }
}
