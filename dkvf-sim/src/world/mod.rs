//! What surrounds the servers: distances, clocks, processors.

mod clock;
mod cpu;
mod latency;
mod matrix;
mod regions;

pub(crate) use clock::Clock;
pub use clock::{ClockOptions, Ntp, START_US};
pub(crate) use cpu::Cpu;
pub use cpu::CpuModel;
pub use latency::{Latency, LatencyError};
pub use matrix::Matrix;
