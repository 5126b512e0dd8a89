//! The framework beside a bare tokio echo, measured in turn in one process.
//!
//! `cargo bench -p dkvf-bench --bench limit [-- --rounds N --seconds S --sessions 8,32,256 --peer-flush eager]`
//!
//! For each number of sessions and each mix a round is: the bare echo with its servers on one thread and its clients on
//! another, the bare echo on two threads that each have both, and the eventual protocol on memory in both layouts, in turn;
//! N rounds, medians. The first bare echo is the yardstick: `limit: get RATIO mixed RATIO`, the last line, is the
//! framework in layout replica-local over it at 32 sessions, 95:5 and 50:50. The second one shows how much of a ratio
//! is owed to the layout. Everything is printed and nothing judged.

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
        "{:>8} {:>6} {:>10} {:>11} {:>14} {:>9} {:>9} {:>11} {:>7} {:>7}",
        "sessions",
        "mix",
        "bare split",
        "bare paired",
        "layout",
        "eventual",
        "over bare",
        "over paired",
        "p50 us",
        "p99 us"
    );
    let mut last_line = [0.0; 2];
    for &sessions in &arguments.sessions {
        for (mix, (share, mix_name)) in MIXES.into_iter().enumerate() {
            let mut rounds = Vec::new();
            for round in 0..arguments.rounds {
                rounds.push(Round {
                    split: bare(&arguments, sessions, EchoLayout::Split)?,
                    paired: bare(&arguments, sessions, EchoLayout::Paired)?,
                    ours: [
                        framework(&arguments, sessions, Layout::Split, share, round as u64)?,
                        framework(
                            &arguments,
                            sessions,
                            Layout::ReplicaLocal,
                            share,
                            round as u64,
                        )?,
                    ],
                });
            }
            let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure));
            for (layout, name) in ["split", "replica-local"].into_iter().enumerate() {
                let ratio = of(&|round| round.ours[layout].0 / round.split);
                println!(
                    "{sessions:>8} {mix_name:>6} {:>10.1} {:>11.1} {name:>14} {:>9.1} {ratio:>9.2} {:>11.2} {:>7.0} {:>7.0}",
                    of(&|round| round.split) / 1e3,
                    of(&|round| round.paired) / 1e3,
                    of(&|round| round.ours[layout].0) / 1e3,
                    of(&|round| round.ours[layout].0 / round.paired),
                    of(&|round| round.ours[layout].1 as f64),
                    of(&|round| round.ours[layout].2 as f64),
                );
                if sessions == 32 && name == "replica-local" && mix < 2 {
                    last_line[mix] = ratio;
                }
            }
        }
    }
    println!("limit: get {:.2} mixed {:.2}", last_line[0], last_line[1]);
    Ok(())
}

/// Throughputs of one round; of the framework with the median and 99th percentile of GET, by layout.
struct Round {
    split: f64,
    paired: f64,
    ours: [(f64, u64, u64); 2],
}

fn bare(arguments: &Arguments, sessions: usize, layout: EchoLayout) -> anyhow::Result<f64> {
    echo::run(EchoOptions {
        layout,
        connections: CONNECTIONS,
        in_flight: sessions,
        frame_bytes: FRAME_BYTES,
        duration: Duration::from_secs_f64(arguments.seconds),
    })
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
        faults: Default::default(),
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
