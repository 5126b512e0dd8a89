//! What came of a simulation.

use std::collections::BTreeMap;
use std::fmt;

use dkvf_check::History;
use dkvf_workload::Measurements;
use dkvf_workload::faults::Schedule;
use serde::{Deserialize, Serialize};

use crate::measure::{Staleness, Visibility};
use crate::trace::TraceEvent;
use crate::verdict;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Events that were processed.
    pub events: u64,
    /// Messages that were delivered: requests, replies and messages between servers.
    pub deliveries: u64,
    /// Virtual time at the end, in microseconds.
    pub virtual_us: u64,
    /// A hash of the state and the stores of all servers at the end.
    pub state_hash: u64,
    /// Operations that succeeded, also those that found nothing.
    pub operations: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// What clients asked and were answered, final reads included.
    pub history: History,
    /// Why the run is no good, whatever its history says.
    pub failure: Option<Failure>,
    /// How long writes took to become visible elsewhere.
    pub visibility: Visibility,
    /// How old what reads returned was.
    pub staleness: Staleness,
    /// Messages sent, by kind and name.
    pub messages: BTreeMap<(MessageKind, &'static str), MessageCount>,
    /// Latencies of the operations, in virtual time.
    pub measurements: Measurements,
    /// What happened, if a trace was asked for.
    pub trace: Vec<TraceEvent>,
    /// The faults, also those that were drawn.
    pub schedule: Schedule,
    /// Crashes, recoveries and what they cost.
    pub recovery: Recovery,
}

impl Outcome {
    /// A hash of the history in its native format. O(n log n) for n operations, and of the same order as the run itself:
    /// for those who show or compare it.
    pub fn history_hash(&self) -> u64 {
        verdict::hash(&self.history)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageKind {
    /// Client to server.
    Request,
    /// Server to client.
    Reply,
    /// Server to server.
    Server,
    /// Server to server, superfluous when a newer one comes: heartbeats and cut-offs.
    Periodic,
}

/// How many messages there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCount {
    /// Their number.
    pub messages: u64,
    /// Their encoded length in all.
    pub bytes: u64,
}

/// What crashes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Servers that stopped.
    pub crashes: u64,
    /// Servers that came back with their state.
    pub recovered: u64,
    /// Servers that came back empty.
    pub replaced: u64,
    /// Journal entries that were replayed.
    pub replayed: u64,
    /// Journal entries that were lost.
    pub lost: u64,
    /// Of these: torn ones, which recovery noticed.
    pub torn: u64,
    /// Messages for a former incarnation, or in its links, that were dropped.
    pub dropped: u64,
}

/// A run that is no good, whatever its history says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The server's name, if it is one server's.
    pub node: Option<String>,
    /// When, in virtual microseconds.
    pub at_us: u64,
    /// What it is.
    pub kind: FailureKind,
    /// What happened, in words.
    pub text: String,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// A node stopped: a rule of the framework or an invariant of the protocol is broken, or a reserve is exhausted.
    Stopped,
    /// Something still waits after everything has come to rest.
    Parked,
    /// The cluster does not come to rest.
    Restless,
    /// The records could not be loaded.
    Load,
    /// Replaying a server's inputs did not give the same state: its text is not deterministic.
    Replay,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at {}.{:06} s",
            self.at_us / 1_000_000,
            self.at_us % 1_000_000
        )?;
        if let Some(node) = &self.node {
            write!(f, ", server {node}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Counts messages. There are few names, and the same text has mostly the same address.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    entries: Vec<(MessageKind, &'static str, MessageCount)>,
}

impl Counts {
    #[inline]
    pub(crate) fn add(&mut self, kind: MessageKind, name: &'static str, bytes: u64) {
        let place = self
            .entries
            .iter()
            .position(|(k, n, _)| *k == kind && std::ptr::eq(*n, name));
        let place = place.unwrap_or_else(|| {
            self.entries.push((kind, name, MessageCount::default()));
            self.entries.len() - 1
        });
        let count = &mut self.entries[place].2;
        count.messages += 1;
        count.bytes += bytes;
    }

    pub(crate) fn by_name(&self) -> BTreeMap<(MessageKind, &'static str), MessageCount> {
        let mut all: BTreeMap<_, MessageCount> = BTreeMap::new();
        for (kind, name, count) in &self.entries {
            let sum = all.entry((*kind, *name)).or_default();
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
        all
    }
}
