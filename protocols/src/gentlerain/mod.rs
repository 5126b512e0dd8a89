//! GentleRain: causal consistency with one scalar stamp per version and one stable time per replica.
//!
//! **Promise.** Causal consistency with convergent conflict handling for sessions that stay with one replica; a read-only
//! transaction (ROTX) sees one snapshot that contains the session's past. Clocks are loosely synchronised: skew costs
//! time, never correctness.
//!
//! **Cost**, for M replicas of N partitions. GET 2 messages; PUT 2 + (M-1), and it waits until the server's clock has passed
//! everything the session has seen; ROTX 2 + 2(P-1) for P partitions touched, one round after a wait until the session's past is
//! stable. 10 bytes of metadata per version, 8 per request and reply (16 for PUT). In the background, per replica, heartbeats of at most
//! N(M-1) per `heartbeat_interval` when idle and 2(N-1) messages per `gst_computation_interval`. A remote write becomes
//! visible when the slowest server of any replica has been heard of: about the largest one-way delay, the skew and both intervals.
//!
//! **Source.** J. Du, C. Iorgulescu, A. Roy, W. Zwaenepoel, *GentleRain: Cheap and Scalable Causal Consistency with Physical
//! Clocks* (SoCC 2014); lines `GR.*` are those of this project's specification.
//!
//! **Properties.** `heartbeat_interval` (10 ms), `gst_computation_interval` (5 ms; DKVF's spelling
//! `gst_comutation_interval` is read, too), `tree_fanout` (all partitions under partition 0).
//!
//! # Differences from the paper
//! - PUT carries the session's stable time and merges it before anything else (`GR.S1`), and its reply returns the server's. Without
//!   that, a local write can be read by somebody who has not yet heard that its causes are stable.
//! - Stamps are strictly increasing per server (`GR.S3`), and a PUT waits until the clock is *after* the session's past (`GR.S2`), so that a
//!   heartbeat's promise holds and dependent writes never have equal stamps.
//! - A session's past further ahead than the run's drift bound is refused with `ClockDrift`, and so is a stable time that this server has not
//!   received: what was published never exceeds what every server of the replica has received, so no honest session has one.
//! - ROTX of more than 1,024 keys, or whose answer has more than 8 MiB, is `Malformed`. A slice can be refused, which ends the transaction; so
//!   does the request timeout, when a sibling is silent.
//! - Versions are dropped on writes to their key. The stabiliser carries, beside the stable time, the oldest snapshot in use: the minimum over the
//!   replica of every server's stable time and of the snapshots it coordinates. It never goes back, and no transaction starts
//!   before it; so the newest version up to it and everything newer is all that any snapshot can see.
//! - A server looks every half interval whether a heartbeat is due: with a timer as long as the interval, one that fires a little early
//!   would double it.
//! - GET-SNAPSHOT is absent: it is ROTX without the session's past. The two-round fallback for a long wait is absent: a
//!   ROTX that waits too long answers `Timeout`.
//! - Resynchronisation and the removal of a dead replica are absent: links are reliable for as long as both incarnations live, and while
//!   a server is down the stable time stands still.

mod client;
mod server;

use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, PeerFlush, Protocol, ServerId, Sources, VersionKey};

pub use client::GentleRainClient;
pub use server::{GentleRainServer, Timer};

/// The messages.
pub mod metadata {
    #![expect(missing_docs, reason = "generated from gentlerain.proto")]
    include!(concat!(env!("OUT_DIR"), "/gentlerain.rs"));

    pub(super) use crate::causal::last_writer_wins;
}

/// The protocol.
pub struct GentleRain;

impl Protocol for GentleRain {
    const NAME: &'static str = "gentlerain";
    type Metadata = metadata::Metadata;
    type Server = GentleRainServer;
    type Client = GentleRainClient;
    const VERSIONS: Versions = Versions::Multi;
    const PEER_FLUSH: PeerFlush = PeerFlush::Lazy;

    fn claims() -> Claims {
        Claims {
            models: &["causal", "convergence", "read-your-writes", "monotonic-reads"],
            order: Order::Session,
            entity_groups: false,
            // Where nothing is durable a server that crashes comes back empty, and its writes are lost.
            tolerates: &[Fault::Partition, Fault::Delay, Fault::Skew, Fault::CrashRecovered],
        }
    }

    fn about() -> About {
        About {
            guarantee: "causal+",
            paper: "Du et al., GentleRain, SoCC 2014",
            status: "GET, PUT, ROTX, version pruning; GET-SNAPSHOT, resync and removal of a dead replica absent. \
                     Checked: its models in the conformance suite (20 seeds per kind of faults) and on TCP runs; directed schedules",
            sources: Sources { server: include_str!("server.rs"), client: include_str!("client.rs"), metadata: include_str!("gentlerain.proto") },
        }
    }
}

impl dkvf_core::Record for metadata::Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        metadata::last_writer_wins(self.ut, self.sr)
    }

    fn detach(&mut self) {
        self.detach_bytes();
    }
}
