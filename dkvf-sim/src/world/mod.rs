//! What surrounds the servers: distances, clocks, processors.

mod clock;
mod cpu;
mod latency;
mod regions;

pub use clock::{ClockOptions, Ntp, START_US};
pub(crate) use clock::Clock;
pub use cpu::CpuModel;
pub(crate) use cpu::Cpu;
pub use latency::{Latency, LatencyError, Matrix};
