//! Eventual consistency: last writer wins, ties by origin.
//!
//! **Promise.** If writes stop and messages are delivered, all replicas return the same version of every key: the one
//! with the largest `(ts, origin)`. A session that stays with one replica also reads its own writes, and never reads
//! backwards on one key. Nothing is promised across keys.
//!
//! **Cost.** GET 2 messages, PUT 2 + (M-1) for M replicas; 10 bytes of metadata per version; a write is visible elsewhere
//! after one one-way delay.
//!
//! **Source.** The baseline of M. Roohitavaf and S. Kulkarni, *DKVF: A Framework for Rapid Prototyping and Evaluating Distributed
//! Key-value Stores* (arXiv 1801.05064); lines `EV.*` are those of this project's specification.
//!
//! # Differences from the paper
//! - A stamp is above that of the version it overwrites (`EV.S1`), so that a session never loses its own write to a fast clock.
//! - Every version carries its origin, so that equal stamps order equally everywhere (DKVF leaves it 0).
//! - SCAN is not in the paper: each partition scans what it holds, at most 10,000 rows, and the client merges.
//! - An update of another replica than its sender's is dropped, and no stamp is given after the last one.
//! - Anti-entropy is absent: links are reliable for as long as both incarnations live.

mod client;
mod server;

use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, PeerFlush, Protocol, ServerId, Sources, VersionKey};

pub use client::EventualClient;
pub use server::EventualServer;

/// The messages.
pub mod metadata {
    #![expect(missing_docs, reason = "generated from eventual.proto")]
    include!(concat!(env!("OUT_DIR"), "/eventual.rs"));

    pub(super) use crate::causal::last_writer_wins;
}

/// The protocol.
pub struct Eventual;

impl Protocol for Eventual {
    const NAME: &'static str = "eventual";
    type Metadata = metadata::Metadata;
    type Server = EventualServer;
    type Client = EventualClient;
    const VERSIONS: Versions = Versions::Single;
    const PEER_FLUSH: PeerFlush = PeerFlush::Lazy;

    fn claims() -> Claims {
        Claims {
            models: &["convergence", "read-your-writes", "monotonic-reads"],
            order: Order::Session,
            entity_groups: false,
            // Where nothing is durable a server that crashes comes back empty, and its writes are lost.
            tolerates: &[Fault::Partition, Fault::Delay, Fault::Skew, Fault::CrashRecovered],
        }
    }

    fn about() -> About {
        About {
            guarantee: "eventual",
            paper: "Roohitavaf and Kulkarni, DKVF, arXiv 1801.05064",
            status: "GET, PUT, SCAN; anti-entropy absent. \
                     Checked: its models in the conformance suite (20 seeds per kind of faults) and on TCP runs",
            sources: Sources { server: include_str!("server.rs"), client: include_str!("client.rs"), metadata: include_str!("eventual.proto") },
        }
    }
}

impl dkvf_core::Record for metadata::Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        metadata::last_writer_wins(self.ts, self.origin)
    }

    fn detach(&mut self) {
        self.detach_bytes();
    }
}
