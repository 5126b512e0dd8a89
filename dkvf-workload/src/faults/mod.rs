//! What goes wrong in a run, and when: the same [`Schedule`] drives a simulation and, as far as it can, a cluster on TCP.
//!
//! Faults act *below* the FIFO links: a link that was cut resumes where it stopped, and a server that comes back with
//! its state has lost nothing. The exceptions are named: a server that comes back empty, and [`Fault::Break`].
//!
//! A schedule is read from a file of JSON Lines ([`ScheduleFile::parse`], `docs/faults.md`), or drawn from a seed
//! ([`Schedule::random`]). [`Schedule::changes`] is what a host carries out, one after the other.

mod kinds;
pub mod links;
mod nemesis;
mod overlap;
mod read;
mod write;

use dkvf_core::ServerId;

pub use kinds::{FaultKind, FaultKinds, UnknownKind};
pub use nemesis::NemesisOptions;
pub use overlap::{Change, Conflict};
pub use read::{FAULTS_MAX, FILE_BYTES_MAX, LINKS_MAX, ScheduleError, ScheduleFile, TIME_US_MAX};

/// Faults in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Ascending by [`Timed::at_us`]; of equals the first comes first.
    pub faults: Vec<Timed>,
}

/// A fault and when it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Microseconds since the clients started.
    pub at_us: u64,
    /// How long it lasts, in microseconds; `None`: until another fault ends it, at the latest until the run heals. Of a
    /// crash: the time until the restart. A step of a clock has no length.
    pub for_us: Option<u64>,
    /// What happens.
    pub fault: Fault,
}

/// Links by their direction: from a sender to a receiver.
pub type Links = Vec<(ServerId, ServerId)>;

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server stops at once.
    Crash {
        /// The server.
        node: ServerId,
        /// What becomes of what it had written.
        disk: Disk,
    },
    /// A crashed server starts again before its time.
    Restart {
        /// The server.
        node: ServerId,
    },
    /// A server stands still: it loses nothing and notices nothing, and its clocks run on.
    Pause {
        /// The server.
        node: ServerId,
    },
    /// Nothing gets through, and connections break: a partition of the network is the set of links it cuts.
    Cut {
        /// The links.
        links: Links,
    },
    /// Everything takes longer.
    Delay {
        /// The links.
        links: Links,
        /// By how much, in microseconds.
        by_us: u64,
        /// And by up to as much more, at random, in microseconds.
        jitter_us: u64,
    },
    /// Nothing arrives until the end of the fault, and then everything does: no connection breaks.
    Hold {
        /// The links.
        links: Links,
    },
    /// A server works slower.
    Slow {
        /// The server.
        node: ServerId,
        /// How many times as long everything takes.
        factor: u32,
    },
    /// A physical clock jumps.
    Step {
        /// The server.
        node: ServerId,
        /// By how much, in microseconds. Back if negative.
        by_us: i64,
    },
    /// A physical clock runs at another speed.
    Drift {
        /// The server.
        node: ServerId,
        /// By how much, in millionths. Slower if negative.
        ppm: i32,
    },
    /// Writes fail: the server stops, and can start again when the fault is over.
    DiskFull {
        /// The server.
        node: ServerId,
    },
    /// Links break their promise: protocols may rely on it, so this is for those who want to see what happens then.
    Break {
        /// The links.
        links: Links,
        /// Of a thousand messages so many are lost.
        lose_permille: u16,
        /// Of a thousand messages so many come twice.
        repeat_permille: u16,
        /// Of a thousand messages so many overtake the one before.
        reorder_permille: u16,
    },
}

/// What a crash leaves of what a server had written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// All that was durable at the run's durability. What was not is lost as far as the seed says: nothing, a part or all
    /// of it; nobody was told about it.
    Kept,
    /// All that was durable and a torn last write, which recovery must notice.
    Torn,
    /// Nothing: the server comes back empty, as a new incarnation.
    Empty,
}
