//! COPS: causal consistency by explicit dependencies. A replica shows a write when it has applied the writes it depends on.
//!
//! **Promise.** Causal consistency with convergent conflict handling for sessions that stay with one replica. Needs no clock.
//!
//! **Cost**, for M replicas of N partitions. GET 2 messages; PUT 2 + (M-1)(1 + 2·L(1-1/N)ρ) with L nearest dependencies, of which the share
//! ρ comes from another replica than the one where they are checked. 8 bytes of metadata per version, a key and 8 bytes per dependency
//! in PUT and Replicate. A write is visible elsewhere after one one-way delay, one round inside the replica if it has dependencies
//! there, and the wait for the slowest of them.
//!
//! **Source.** W. Lloyd, M. Freedman, M. Kaminsky, D. Andersen, *Don't Settle for Eventual: Scalable Causal Consistency for Wide-Area
//! Storage with COPS* (SOSP 2011); lines `CO.*` are those of this project's specification.
//!
//! # Differences from the paper
//! - A dependency check waits for exactly the version asked for (`CO.S4`). That a *newer* version of the key is there does not mean that what the older
//!   one depends on is, and nearest dependencies rely on that.
//! - A session depends on every *version* it has read since its last write (`CO.C1`). The newest one of a key is not enough: a concurrent
//!   older one that was read before it has causes of its own.
//! - An update keeps the *set* of missing dependencies, and `DepOk` names the version. With a count, a check that is sent
//!   again and answered twice would stand for two dependencies.
//! - `DepCheck` carries no key: the sender knows the server, and a server never gives a version number twice.
//! - A session's word moves Lamport time at most to one step per 16 µs since 1970 (`CO.S1`): an honest session never gets there, and a
//!   hostile one does not use the 48 bits up. Beyond, its dependencies are not merged, which costs nothing: every version of the key in
//!   its past was applied by this server, so the new one is later. Nobody is refused before the last stamp is given.
//! - Dependency checks are sent again to a sibling that was replaced, not every 2 s: a link
//!   loses nothing while both incarnations live.
//! - A write with more than 65,536 dependencies, or one of a replica that does not exist, is `Malformed`; an update of another replica than its
//!   sender's is dropped.
//! - COPS-GT (`get_trans`), the checkpoint `GCT` and the flag `never_depend` are absent. So a session that only reads remembers
//!   every distinct version until its next write.

mod client;
mod server;

use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, PeerFlush, Protocol, ServerId, Sources, VersionKey};

pub use client::CopsClient;
pub use server::CopsServer;

/// The messages.
pub mod metadata {
    #![expect(missing_docs, reason = "generated from cops.proto")]
    include!(concat!(env!("OUT_DIR"), "/cops.rs"));

    pub(super) use super::version;
}

/// The protocol.
pub struct Cops;

impl Protocol for Cops {
    const NAME: &'static str = "cops";
    type Metadata = metadata::Metadata;
    type Server = CopsServer;
    type Client = CopsClient;
    const VERSIONS: Versions = Versions::Single;
    // A write becomes visible only after its checks were answered, one hop per link of a chain of dependent writes.
    const PEER_FLUSH: PeerFlush = PeerFlush::Eager;

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
            paper: "Lloyd et al., COPS, SOSP 2011",
            status: "GET, PUT, exact dependency checks; COPS-GT, GCT and never_depend absent. \
                     Checked: its models in the conformance suite (20 seeds per kind of faults) and on TCP runs; directed schedules",
            sources: Sources { server: include_str!("server.rs"), client: include_str!("client.rs"), metadata: include_str!("cops.proto") },
        }
    }
}

impl dkvf_core::Record for metadata::Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        version(self.ver)
    }

    fn detach(&mut self) {
        self.detach_bytes();
    }
}

/// The order of versions: the origin is in the lower bits already.
fn version(ver: u64) -> VersionKey {
    crate::causal::last_writer_wins(ver >> 16, (ver & 0xffff) as u32)
}
