//! What a server says about itself over its control port.

use serde::{Deserialize, Serialize};

use crate::node::NodeStatus;

/// The answer to `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub server: String,
    /// The protocol it runs.
    pub protocol: String,
    /// Its replica.
    pub replica: u16,
    /// Its partition.
    pub partition: u16,
    /// Changes when it is restarted empty.
    pub incarnation: String,
    /// Since its process started, in milliseconds.
    pub uptime_ms: u64,
    /// Whether it serves.
    pub running: bool,
    /// Why it stopped by itself, if it did.
    pub failure: Option<String>,
    /// Client connections.
    pub client_connections: usize,
    /// Its links to other servers.
    pub links: Vec<LinkStatus>,
    /// Its node.
    pub node: NodeStatus,
    /// What it sent and received since it started.
    pub traffic: Traffic,
}

/// One link to another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The other server.
    pub peer: String,
    /// Whether the outgoing direction is connected.
    pub connected: bool,
    /// Frames that the peer has not taken yet.
    pub kept_frames: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// The most that is kept (`channel_capacity`).
    pub capacity_bytes: u64,
    /// Whether clients are refused because it is nearly full.
    pub congested: bool,
    /// Connections made so far.
    pub connections: u64,
    /// Frames taken from the peer's present incarnation.
    pub taken_frames: u64,
}

/// Messages and bytes, counted exactly: machine-independent costs of a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests of clients.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
    /// Replies to clients.
    pub replies: u64,
    /// Their bytes.
    pub reply_bytes: u64,
    /// Messages sent to other servers, without the periodic ones.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Heartbeats, cut-offs and the like sent to other servers.
    pub periodic: u64,
    /// Their bytes.
    pub periodic_bytes: u64,
}

impl std::ops::Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            requests: self.requests + other.requests,
            request_bytes: self.request_bytes + other.request_bytes,
            replies: self.replies + other.replies,
            reply_bytes: self.reply_bytes + other.reply_bytes,
            messages: self.messages + other.messages,
            message_bytes: self.message_bytes + other.message_bytes,
            periodic: self.periodic + other.periodic,
            periodic_bytes: self.periodic_bytes + other.periodic_bytes,
        }
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    /// What was added since `earlier`.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            requests: self.requests - earlier.requests,
            request_bytes: self.request_bytes - earlier.request_bytes,
            replies: self.replies - earlier.replies,
            reply_bytes: self.reply_bytes - earlier.reply_bytes,
            messages: self.messages - earlier.messages,
            message_bytes: self.message_bytes - earlier.message_bytes,
            periodic: self.periodic - earlier.periodic,
            periodic_bytes: self.periodic_bytes - earlier.periodic_bytes,
        }
    }
}
