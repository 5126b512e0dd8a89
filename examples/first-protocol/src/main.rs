//! The protocol of docs/tutorial.md as a complete program: a primary per partition, local reads that wait.
//!
//! `cargo run --release -p first-protocol` runs it as a cluster on loopback TCP under YCSB's workload a and checks
//! the recorded history against what it claims.

mod client;
mod metadata;
mod server;

use std::time::Duration;

use dkvf_bench::run::{Placement, RunOptions, Silent, run};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::net::cluster::Layout;
use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Order, Protocol, ServerId, Sources, VersionKey};
use dkvf_workload::WorkloadSpec;

struct Primary;

impl Protocol for Primary {
    const NAME: &'static str = "primary";
    type Metadata = metadata::Metadata;
    type Server = server::PrimaryServer;
    type Client = client::PrimaryClient;
    const VERSIONS: Versions = Versions::Single;

    fn claims() -> Claims {
        let models = &["convergence", "read-your-writes", "monotonic-reads"];
        Claims { models, order: Order::Session, entity_groups: false, tolerates: &[] }
    }

    fn about() -> About {
        let sources = Sources { server: include_str!("server.rs"), client: include_str!("client.rs"), metadata: include_str!("primary.proto") };
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

fn main() -> anyhow::Result<()> {
    let scratch = ScratchDirectory::create()?;
    let options = RunOptions {
        servers: ServerOptions::new(2, 3, "memory", scratch.0.clone()),
        placement: Placement::Embedded(Layout::ReplicaLocal),
        workload: WorkloadSpec::load("a", [("operationcount", "200000")])?,
        clients: 32,
        duration: Duration::from_secs(10),
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(5),
        seed: 1,
        check: Some(1_000_000),
        history: None,
    };
    let report = run::<Primary>(&options, &Silent)?.report;
    println!("{:.0} operations per second, {:.2} messages per operation", report.throughput_ops_s, report.messages_per_op);
    let check = report.check.ok_or_else(|| anyhow::anyhow!("the run was not checked"))?;
    println!("{} of {} operations: {}", check.model, check.operations, check.verdict);
    anyhow::ensure!(check.verdict == "satisfied", "{}", check.explanation);
    Ok(())
}
