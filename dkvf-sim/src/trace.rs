//! What happened in a simulation, for pictures and for people.

use serde::{Deserialize, Serialize};

/// One thing that happened. Times are virtual microseconds since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// A message was delivered, or will never be.
    Message {
        /// The sender.
        from: Place,
        /// The receiver.
        to: Place,
        /// The name of the message's variant.
        name: String,
        /// When it left.
        sent_us: u64,
        /// When it was handled; `None`: it was lost with an incarnation it was for.
        delivered_us: Option<u64>,
    },
    /// An operation of a client ended, as far as its client knows.
    Operation {
        /// The session, as in the history.
        session: u32,
        /// The replica it is bound to.
        replica: u16,
        /// `read` or `write`.
        kind: String,
        /// The key.
        key: String,
        /// The value read or written; `None`: nothing was found.
        value: Option<String>,
        /// When it began.
        start_us: u64,
        /// When it ended; `None`: its outcome is not known.
        end_us: Option<u64>,
        /// Whether it certainly failed.
        failed: bool,
    },
    /// A fault began or ended.
    Fault {
        /// When.
        at_us: u64,
        /// The fault in words.
        text: String,
        /// Whether it began; otherwise it ended.
        begins: bool,
    },
    /// A server stopped.
    Crash {
        /// The server's name.
        node: String,
        /// When.
        at_us: u64,
    },
    /// A server started again.
    Restart {
        /// The server's name.
        node: String,
        /// When.
        at_us: u64,
        /// Whether it has its state back; otherwise it is empty and a new incarnation.
        recovered: bool,
    },
    /// A server was told about a peer.
    Peer {
        /// The server's name.
        node: String,
        /// The peer's name.
        peer: String,
        /// `down`, `up` or `replaced`.
        state: String,
        /// When.
        at_us: u64,
    },
}

/// Who sends or receives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A server, by its name.
    Server(String),
    /// A client session, by its number in the history.
    Client(u32),
}

impl TraceEvent {
    /// Gives the clients of a message the numbers that `name` has for theirs.
    pub(crate) fn rename_clients(&mut self, name: impl Fn(u32) -> Option<u32>) {
        let TraceEvent::Message { from, to, .. } = self else {
            return;
        };
        for place in [from, to] {
            if let Place::Client(number) = place {
                *number = name(*number).unwrap_or(*number);
            }
        }
    }

    /// When it began.
    pub fn begin_us(&self) -> u64 {
        match self {
            TraceEvent::Message { sent_us, .. } => *sent_us,
            TraceEvent::Operation { start_us, .. } => *start_us,
            TraceEvent::Fault { at_us, .. }
            | TraceEvent::Crash { at_us, .. }
            | TraceEvent::Restart { at_us, .. }
            | TraceEvent::Peer { at_us, .. } => *at_us,
        }
    }
}
