//! One protocol on every storage engine: the engine is a name in the configuration, and no protocol knows which it is.
//!
//! `cargo run --release -p storage-engines`

use std::time::Duration;

use dkvf_bench::run::{Placement, RunOptions, Silent, run};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::net::cluster::Layout;
use dkvf_core::storage::ENGINES;
use dkvf_protocols::eventual::Eventual;
use dkvf_workload::WorkloadSpec;

fn main() -> anyhow::Result<()> {
    for engine in ENGINES {
        let scratch = ScratchDirectory::create()?;
        let options = RunOptions {
            servers: ServerOptions::new(2, 3, engine.name, scratch.0.clone()),
            placement: Placement::Embedded(Layout::ReplicaLocal),
            workload: WorkloadSpec::load("a", [("operationcount", "100000")])?,
            clients: 32,
            duration: Duration::from_secs(10),
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(5),
            seed: 1,
            check: None,
            history: None,
            faults: Default::default(),
        };
        let report = run::<Eventual>(&options, &Silent)?.report;
        println!(
            "{:>8}: {:>9.0} operations per second  ({})",
            engine.name, report.throughput_ops_s, engine.summary
        );
    }
    Ok(())
}
