//! CausalSpartan: causal consistency with a stable vector per replica and hybrid logical clocks, so that no write waits for a clock.
//!
//! **Promise.** Causal consistency with convergent conflict handling for sessions that stay with one replica; a read-only
//! transaction (ROT) sees one snapshot that contains the session's past. Skew costs neither correctness nor the latency of writes.
//!
//! **Cost**, for M replicas of N partitions. GET 2 messages; PUT 2 + (M-1), without any wait; ROT 2 + 2(P-1) for P partitions touched,
//! one round, after a wait only if the session has just read a remote version that is not stable yet. Metadata: 10 bytes
//! and one stamp per replica for a version; a vector of M stamps in every request and reply, two of them in PUT and ROT. In the
//! background as GentleRain, with vectors. A remote write becomes visible after one one-way delay and when its dependencies on other
//! replicas are stable; a replica that is far away delays only what depends on it.
//!
//! **Source.** M. Roohitavaf, M. Demirbas, S. Kulkarni, *CausalSpartan: Causal Consistency for Distributed Data Stores Using
//! Hybrid Logical Clocks* (SRDS 2017); lines `CS.*` are those of this project's specification.
//!
//! **Properties.** `heartbeat_interval` (10 ms), `dsv_computation_interval` (5 ms; DKVF's spelling
//! `dsv_comutation_interval` is read, too), `tree_fanout` (all partitions under partition 0).
//!
//! # Differences from the paper
//! - PUT carries the session's stable vector and merges it (`CS.S1`); see GentleRain for why.
//! - A version's own stamp is always among what its reader depends on (DKVF loses it when the writer had no dependencies).
//! - A dependency on the reader's own replica is no condition of visibility (`CS.S8`): what the replica has written is there.
//! - `ds` and `dsv` are dense: one entry per replica, 0 for none.
//! - ROT is variant A: the coordinator waits until the session's past is stable. The authors' code raises the stable vector by the
//!   dependencies instead, which declares stable what is not.
//! - A session's past further ahead than the run's drift bound is refused with `ClockDrift`, and so is a stable vector with an entry that this
//!   server has not received, as in GentleRain. A replicated stamp is never merged into the clock; the stamp of a snapshot
//!   is, unless it is beyond the bound: then the slice is refused, and the transaction ends with `ClockDrift`.
//! - Bounds of ROT as in GentleRain.
//! - Versions are dropped on writes to their key, as in GentleRain, by the oldest snapshot in use: a vector, which a kept version and
//!   its dependencies must not exceed in any entry.
//! - Resynchronisation and the removal of a dead replica are absent, and so is `Attach`: a session that changes its replica starts anew.

mod client;
mod server;

use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, PeerFlush, Protocol, ServerId, Sources, VersionKey};

pub use client::CausalSpartanClient;
pub use server::{CausalSpartanServer, Timer};

/// The messages.
pub mod metadata {
    #![expect(missing_docs, reason = "generated from causalspartan.proto")]
    include!(concat!(env!("OUT_DIR"), "/causalspartan.rs"));

    pub(super) use crate::causal::last_writer_wins;
}

/// The protocol.
pub struct CausalSpartan;

impl Protocol for CausalSpartan {
    const NAME: &'static str = "causalspartan";
    type Metadata = metadata::Metadata;
    type Server = CausalSpartanServer;
    type Client = CausalSpartanClient;
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
            paper: "Roohitavaf, Demirbas and Kulkarni, CausalSpartan, SRDS 2017",
            status: "GET, PUT, ROT (coordinator waits), version pruning; Resync and Attach absent. \
                     Checked: its models in the conformance suite (20 seeds per kind of faults) and on TCP runs; directed schedules",
            sources: Sources { server: include_str!("server.rs"), client: include_str!("client.rs"), metadata: include_str!("causalspartan.proto") },
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
