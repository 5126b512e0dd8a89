//! The protocol of docs/tutorial.md: a primary per partition, and local reads that wait for what the session has seen.

mod client;
mod metadata;
mod server;

use std::time::Duration;

use dkvf_bench::report::RunReport;
use dkvf_bench::run::{Placement, RunOptions, Silent, run};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::config::Delay;
use dkvf_core::net::cluster::Layout;
use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, Protocol, ServerId, Sources, VersionKey};
use dkvf_workload::WorkloadSpec;

/// The protocol.
pub struct Primary;

impl Protocol for Primary {
    const NAME: &'static str = "primary";
    type Metadata = metadata::Metadata;
    type Server = server::PrimaryServer;
    type Client = client::PrimaryClient;
    const VERSIONS: Versions = Versions::Single;

    fn claims() -> Claims {
        let models = &["convergence", "read-your-writes", "monotonic-reads"];
        let tolerates = &[Fault::Partition, Fault::Delay, Fault::Skew, Fault::CrashRecovered];
        Claims { models, order: Order::Session, entity_groups: false, tolerates }
    }

    fn about() -> About {
        let sources = Sources {
            server: include_str!("server.rs"),
            client: include_str!("client.rs"),
            metadata: include_str!("primary.proto"),
        };
        About { guarantee: "session guarantees", paper: "docs/tutorial.md", status: "an example", sources }
    }
}

impl dkvf_core::Record for metadata::Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey::stamped(self.number, 0)
    }

    fn detach(&mut self) {
        self.detach_bytes();
    }
}

/// Runs the protocol as a cluster of 2 replicas of 3 partitions on loopback TCP, under `operations` operations of YCSB's
/// workload a, and checks what clients saw against what the protocol claims.
///
/// # Errors
/// A server or the load phase fails.
pub fn run_checked(operations: u64) -> anyhow::Result<RunReport> {
    let scratch = ScratchDirectory::create()?;
    let mut servers = ServerOptions::new(2, 3, "memory", scratch.0.clone());
    // Updates take five milliseconds to replica 1.
    servers.delays = (0..3).map(|n| Delay::new(format!("0_{n}"), format!("1_{n}"), 5, 0)).collect();
    let options = RunOptions {
        servers,
        placement: Placement::Embedded(Layout::ReplicaLocal),
        workload: WorkloadSpec::load("a", [("operationcount", operations.to_string().as_str())])?,
        clients: 32,
        duration: Duration::from_secs(10),
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(5),
        seed: 1,
        check: Some(1_000_000),
        history: None,
        faults: Default::default(),
    };
    Ok(run::<Primary>(&options, &Silent)?.report)
}
