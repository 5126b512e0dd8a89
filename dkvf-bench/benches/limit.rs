//! The framework beside a bare tokio echo, measured in turn in one process.
//!
//! `cargo bench -p dkvf-bench --bench limit [-- --rounds N --seconds S --sessions 8,32,256 --peer-flush eager]`
//!
//! For each number of sessions and each mix, in both layouts: a round of bare echo (same frame size, connections and
//! requests in flight), then the eventual protocol on memory, N rounds, medians. Its last line is
//! `limit: get RATIO mixed RATIO`: framework over bare at 32 sessions, layout replica-local, 95:5 and 50:50.
//! It prints what it found and judges nothing.

use std::time::Duration;

use dkvf_bench::echo::{self, EchoLayout, EchoOptions};
use dkvf_bench::run::{Placement, RunOptions, Silent, run};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::config::PeerFlush;
use dkvf_core::net::cluster::Layout;
use dkvf_protocols::eventual::Eventual;
use dkvf_workload::WorkloadSpec;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Two replicas of three partitions: a connection per server and session worker that calls it.
const CONNECTIONS: usize = 6;
const FRAME_BYTES: usize = 100;
const MIXES: [(f64, &str); 3] = [(0.95, "95:5"), (0.5, "50:50"), (0.05, "5:95")];

struct Arguments {
    rounds: usize,
    seconds: f64,
    sessions: Vec<usize>,
    peer_flush: PeerFlush,
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments()?;
    println!(
        "{} rounds of {} s each, medians; thousand operations per second; bare = tokio echo, {FRAME_BYTES}-byte frames, {CONNECTIONS} connections",
        arguments.rounds, arguments.seconds
    );
    println!(
        "{:>8} {:>14} {:>6} {:>9} {:>9} {:>7} {:>9} {:>9}",
        "sessions", "layout", "mix", "bare", "eventual", "ratio", "p50 us", "p99 us"
    );
    let mut last_line = [0.0; 2];
    for &sessions in &arguments.sessions {
        for (layout, echo_layout, name) in [
            (Layout::Split, EchoLayout::Split, "split"),
            (Layout::ReplicaLocal, EchoLayout::Paired, "replica-local"),
        ] {
            for (mix, (share, mix_name)) in MIXES.into_iter().enumerate() {
                let mut rounds = Vec::new();
                for round in 0..arguments.rounds {
                    let bare = echo::run(EchoOptions {
                        layout: echo_layout,
                        connections: CONNECTIONS,
                        in_flight: sessions,
                        frame_bytes: FRAME_BYTES,
                        duration: Duration::from_secs_f64(arguments.seconds),
                    })?;
                    let ours = framework(&arguments, sessions, layout, share, round as u64)?;
                    rounds.push((bare, ours));
                }
                let bare = median(rounds.iter().map(|(bare, _)| *bare));
                let ours = median(rounds.iter().map(|(_, ours)| ours.0));
                let ratio = median(rounds.iter().map(|(bare, ours)| ours.0 / bare));
                let p50 = median(rounds.iter().map(|(_, ours)| ours.1 as f64));
                let p99 = median(rounds.iter().map(|(_, ours)| ours.2 as f64));
                println!(
                    "{sessions:>8} {name:>14} {mix_name:>6} {:>9.1} {:>9.1} {ratio:>7.2} {p50:>9.0} {p99:>9.0}",
                    bare / 1e3,
                    ours / 1e3
                );
                if sessions == 32 && layout == Layout::ReplicaLocal && mix < 2 {
                    last_line[mix] = ratio;
                }
            }
        }
    }
    println!("limit: get {:.2} mixed {:.2}", last_line[0], last_line[1]);
    Ok(())
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut arguments = Arguments {
        rounds: 3,
        seconds: 2.0,
        sessions: vec![8, 32, 256],
        peer_flush: PeerFlush::Protocol,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| anyhow::anyhow!("{word} needs a value"))
        };
        match word.as_str() {
            // Cargo says so to every benchmark.
            "--bench" => {}
            "--rounds" => arguments.rounds = value()?.parse()?,
            "--seconds" => arguments.seconds = value()?.parse()?,
            "--sessions" => {
                arguments.sessions = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, _>>()?
            }
            "--peer-flush" => {
                arguments.peer_flush = match value()?.as_str() {
                    "eager" => PeerFlush::Eager,
                    _ => PeerFlush::Lazy {
                        us: PeerFlush::LAZY_US,
                        bytes: PeerFlush::LAZY_BYTES,
                    },
                }
            }
            other => anyhow::bail!("{other}: see the head of this file"),
        }
    }
    Ok(arguments)
}

/// Throughput, and median and 99th percentile of GET.
fn framework(
    arguments: &Arguments,
    sessions: usize,
    layout: Layout,
    get_share: f64,
    seed: u64,
) -> anyhow::Result<(f64, u64, u64)> {
    let scratch = ScratchDirectory::create()?;
    let [gets, puts] = [get_share, 1.0 - get_share].map(|share| share.to_string());
    let overrides = [
        ("recordcount", "10000"),
        ("operationcount", "0"),
        ("fieldcount", "1"),
        ("fieldlength", "64"),
        ("readproportion", &gets),
        ("updateproportion", &puts),
    ];
    let options = RunOptions {
        servers: ServerOptions {
            peer_flush: arguments.peer_flush,
            ..ServerOptions::new(2, 3, "memory", scratch.0.clone())
        },
        placement: Placement::Embedded(layout),
        workload: WorkloadSpec::load("a", overrides)?,
        clients: sessions as u32,
        duration: Duration::from_secs_f64(arguments.seconds),
        warmup: Duration::from_millis(300),
        timeout: Duration::from_secs(10),
        seed,
        check: None,
        history: None,
    };
    let report = run::<Eventual>(&options, &Silent)?.report;
    let get = report.latency_us.get("get").copied().unwrap_or_default();
    Ok((report.throughput_ops_s, get.p50, get.p99))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
