//! `dkvf compare`: the main job. Protocols as real clusters under one workload, in one table.

mod faults;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Args, ValueEnum};
use dkvf_bench::report::{CheckReport, Comparison, Latency, Machine, RunFailure, RunReport};
use dkvf_bench::run::{Finished, Interrupted, Observer, Placement, RunOptions, run as run_one};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::Protocol;
use dkvf_core::config::{Delay, Durability, Flush, PeerFlush};
use dkvf_core::net::cluster;
use dkvf_core::storage::ENGINES;
use dkvf_protocols::Visitor;
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::Schedule;
use indicatif::ProgressBar;

use crate::output::{self, Shape};
use crate::signals::Interrupt;
use crate::workload::{WorkloadArguments, key_value};
use crate::{Ending, no_such_protocol, usage};

/// Client sessions where nobody says how many.
const CLIENTS_DEFAULT: u32 = 32;
/// Fewest operations that a recorder has room for: with less a run ends before it has begun.
const RECORD_MIN: usize = 1_000;

/// Runs protocols as real clusters on this machine under a workload, and prints one table.
#[derive(Args)]
#[command(
    after_help = "Ctrl-C ends the run and checks and prints what it has measured; a second one skips the check, a third prints nothing.
Exit status: 0 done, or all checked claims hold; 1 a claim is violated, or a run failed; 2 could not tell, or not all runs were made.
A claim that a protocol does not make under the faults of the run is not judged: that is `could not tell`.

Examples:
  dkvf compare eventual cops gentlerain causalspartan --workload a --check
  dkvf compare eventual --workload workloads/workloadb -p requestdistribution=uniform --value-size 64 --storage memory,sled
  dkvf compare eventual --processes --faults partition,pause --check
  dkvf compare gentlerain causalspartan --delay 0_0-1_0=40 --skew 1_0=5 --target 20000 --json results.json"
)]
pub struct Arguments {
    /// The protocols; all of the library if none is named.
    #[arg(value_name = "PROTOCOL")]
    protocols: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArguments,
    /// Client sessions, bound to the replicas in turn [default: -p threadcount, or 32].
    #[arg(long, value_name = "N", help_heading = "Workload")]
    clients: Option<u32>,
    /// Seconds to measure; -p operationcount=N may end it earlier.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 10.0,
        allow_negative_numbers = true,
        help_heading = "Workload"
    )]
    seconds: f64,
    /// Seconds before, not measured.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 2.0,
        allow_negative_numbers = true,
        help_heading = "Workload"
    )]
    warmup: f64,
    /// Seed of the workload.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,
    /// Full copies of the data.
    #[arg(long, value_name = "R", default_value_t = 2, help_heading = "Cluster")]
    replicas: u16,
    /// Parts of the key space.
    #[arg(long, value_name = "P", default_value_t = 3, help_heading = "Cluster")]
    partitions: u16,
    /// Storage engines, separated by commas, or all: one run each.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "memory",
        help_heading = "Cluster"
    )]
    storage: String,
    /// When a write counts as done; this version offers `none` only.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "none",
        help_heading = "Cluster"
    )]
    durability: Durability,
    /// Delays the link between two servers: FROM-TO=MS or FROM-TO=MS+JITTER, or a file with one such line each. `*` is every server.
    #[arg(long, value_name = "FROM-TO=MS|FILE", action = ArgAction::Append, help_heading = "Cluster")]
    delay: Vec<String>,
    /// Sets a server's clock ahead (behind if negative): NODE=MS; `*` is every server.
    #[arg(long, value_name = "NODE=MS", action = ArgAction::Append, allow_hyphen_values = true, help_heading = "Cluster")]
    skew: Vec<String>,
    /// What goes wrong: a file (docs/faults.md), or none, crash, partition, delay, skew, pause, all, drawn from the seed.
    /// Crashes and pauses need --processes.
    #[arg(
        long,
        value_name = "KINDS|FILE",
        default_value = "none",
        help_heading = "Cluster"
    )]
    faults: String,
    /// A property of the protocols, such as heartbeat_interval=20.
    #[arg(long, value_name = "KEY=VALUE", action = ArgAction::Append, help_heading = "Cluster")]
    protocol_property: Vec<String>,
    /// Which thread runs what: a worker per replica with its clients, or servers and clients apart.
    #[arg(long, value_enum, default_value_t = LayoutName::ReplicaLocal, help_heading = "Cluster")]
    layout: LayoutName,
    /// Starts each server as a process of its own.
    #[arg(long, help_heading = "Cluster")]
    processes: bool,
    /// When output is written: adaptive, every_message, or microseconds between two writes.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "adaptive",
        help_heading = "Cluster"
    )]
    flush: String,
    /// When messages to other servers are written [default: as the protocol asks for].
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Cluster")]
    peer_flush: Option<PeerFlushName>,
    /// Records the history and checks it against what each protocol claims; exit status 1 if violated.
    #[arg(long, help_heading = "Check and output")]
    check: bool,
    /// Operations the recorder has room for; a checked run ends when it is full.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8_000_000,
        help_heading = "Check and output"
    )]
    record_max: usize,
    /// Writes the checked histories here, as PROTOCOL-STORAGE.jsonl.
    #[arg(
        long,
        value_name = "DIR",
        requires = "check",
        help_heading = "Check and output"
    )]
    history: Option<PathBuf>,
    /// Writes results.json here, and YCSB's result lines as PROTOCOL-STORAGE.ycsb.
    #[arg(long, value_name = "DIR", help_heading = "Check and output")]
    out: Option<PathBuf>,
    /// Writes the results as JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE", help_heading = "Check and output")]
    json: Option<String>,
    /// Prints the results as YCSB's own lines instead of the table.
    #[arg(long, help_heading = "Check and output")]
    ycsb: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutName {
    ReplicaLocal,
    Split,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PeerFlushName {
    Eager,
    Lazy,
}

/// Runs the command.
///
/// # Errors
/// Wrong arguments, or a run that failed.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let protocols = chosen_protocols(arguments)?;
    let engines = chosen_engines(arguments)?;
    let workload = workload(arguments)?;
    for warning in &workload.warnings {
        eprintln!("dkvf: warning: {warning}");
    }
    let data = ScratchDirectory::create()?;
    let options = |protocol: &str, engine: &str| {
        options(
            arguments,
            &workload,
            engine,
            data.0.join(format!("{protocol}-{engine}")),
        )
    };
    // Whatever is wrong with the arguments is said before the first run and not after the last.
    let any_run = options("", "")?;
    check_open_files(arguments, &any_run)?;
    let faults = faults::schedule(&arguments.faults, arguments.seed, &any_run)?;
    prepare_outputs(arguments)?;
    let interrupt = Interrupt::listen(3)?;
    let planned: Vec<(&str, &str)> = protocols
        .iter()
        .flat_map(|protocol| {
            engines
                .iter()
                .map(move |engine| (protocol.as_str(), engine.as_str()))
        })
        .collect();
    let mut finished = Vec::new();
    let mut failures = Vec::new();
    for (protocol, engine) in &planned {
        if interrupt.count() > 0 {
            break;
        }
        let label = if engines.len() > 1 {
            format!("{protocol} on {engine}")
        } else {
            (*protocol).to_owned()
        };
        let observer = Progress {
            label,
            bar: output::progress_bar(),
            interrupt: interrupt.clone(),
            last: Cell::new(0),
        };
        let options = RunOptions {
            faults: faults.clone(),
            ..options(protocol, engine)?
        };
        let outcome = dkvf_protocols::visit(protocol, RunWith(&options, &observer))
            .ok_or_else(|| no_such_protocol(protocol))?;
        observer.bar.finish_and_clear();
        match outcome {
            Ok(one) => finished.push(one),
            Err(error) if error.is::<Interrupted>() => break,
            // What the other protocols measure is worth printing.
            Err(error) => {
                eprintln!("dkvf: {protocol} on {engine}: {error:#}");
                failures.push(RunFailure {
                    protocol: (*protocol).to_owned(),
                    storage: (*engine).to_owned(),
                    error: format!("{error:#}"),
                });
            }
        }
    }
    let runs: Vec<RunReport> = finished.iter().map(|one| one.report.clone()).collect();
    let (all_made, failed) = (
        finished.len() + failures.len() == planned.len(),
        !failures.is_empty(),
    );
    print(
        arguments,
        &finished,
        &Comparison {
            runs,
            failures,
            seed: arguments.seed,
            commit: env!("DKVF_COMMIT").to_owned(),
            machine: Machine::this(),
        },
    )?;
    if !all_made {
        eprintln!(
            "dkvf: interrupted: {} of {} runs measured",
            finished.len(),
            planned.len()
        );
    }
    Ok(match ending(&finished) {
        _ if failed => Ending::Violated,
        Ending::Done if !all_made => Ending::Unknown,
        ending => ending,
    })
}

/// Makes the folders and files that results go to.
fn prepare_outputs(arguments: &Arguments) -> anyhow::Result<()> {
    for (option, directory) in [("--history", &arguments.history), ("--out", &arguments.out)] {
        if let Some(directory) = directory {
            std::fs::create_dir_all(directory).map_err(|error| {
                usage(format!(
                    "{option} {}: cannot create it: {error}",
                    directory.display()
                ))
            })?;
        }
    }
    if let Some(file) = arguments.json.as_deref().filter(|file| *file != "-") {
        // Not emptied: older results stay until there are new ones.
        let opened = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file);
        opened.map_err(|error| usage(format!("--json {file}: cannot write it: {error}")))?;
    }
    Ok(())
}

/// Sockets take file descriptors, and two per pair of servers are many: better said at once than by every link that fails.
fn check_open_files(arguments: &Arguments, options: &RunOptions) -> anyhow::Result<()> {
    let servers = u64::from(options.servers.replicas) * u64::from(options.servers.partitions);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    // Per server: its links, both directions of each and here also both ends; listeners; clients; files of an engine.
    let (ends, per_process) = if arguments.processes {
        (2, 1)
    } else {
        (2 * servers, servers)
    };
    let needed = ends * (servers - 1) + (3 + 2 * threads + 16) * per_process + 64;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| {
        line.strip_prefix("Max open files")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    match limit {
        Some(limit) if needed > limit => Err(usage(format!(
            "{servers} servers may need {needed} open files, and this process may have {limit}: choose fewer --replicas or --partitions, {}or raise `ulimit -n`",
            if arguments.processes {
                ""
            } else {
                "or --processes, "
            }
        ))),
        _ => Ok(()),
    }
}

struct RunWith<'a>(&'a RunOptions, &'a Progress);

impl Visitor for RunWith<'_> {
    type Output = anyhow::Result<Finished>;

    fn visit<P: Protocol>(self) -> anyhow::Result<Finished> {
        run_one::<P>(self.0, self.1)
    }
}

/// The worst verdict of all runs.
fn ending(finished: &[Finished]) -> Ending {
    let has = |verdict: &str| {
        finished
            .iter()
            .filter_map(|one| one.report.check.as_ref())
            .any(|check| check.verdict == verdict)
    };
    if has("violated") {
        Ending::Violated
    } else if has("unknown") {
        Ending::Unknown
    } else {
        Ending::Done
    }
}

fn chosen_protocols(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    if arguments.protocols.is_empty() {
        return Ok(dkvf_protocols::NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .collect());
    }
    match arguments
        .protocols
        .iter()
        .find(|name| !dkvf_protocols::NAMES.contains(&name.as_str()))
    {
        Some(unknown) => Err(no_such_protocol(unknown)),
        None => Ok(without_repetitions(arguments.protocols.iter().cloned())),
    }
}

/// Results are named after protocol and storage: the same twice would overwrite itself.
fn without_repetitions(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut chosen = Vec::new();
    for name in names {
        if !chosen.contains(&name) {
            chosen.push(name);
        }
    }
    chosen
}

fn chosen_engines(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let known: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
    if arguments.storage == "all" {
        return Ok(known.iter().map(|name| (*name).to_owned()).collect());
    }
    let chosen = without_repetitions(
        arguments
            .storage
            .split(',')
            .map(|name| name.trim().to_owned()),
    );
    match chosen.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(usage(format!(
            "there is no storage engine {unknown:?}; there are: {}, all",
            known.join(", ")
        ))),
        None => Ok(chosen),
    }
}

fn workload(arguments: &Arguments) -> anyhow::Result<WorkloadSpec> {
    // The run's length is `--seconds`, unless the user asks for a number of operations.
    arguments.workload.spec(&[("operationcount", "0")])
}

fn options(
    arguments: &Arguments,
    workload: &WorkloadSpec,
    engine: &str,
    data_directory: PathBuf,
) -> anyhow::Result<RunOptions> {
    let seconds = |name: &str, value: f64, least: f64| {
        if !value.is_finite() || value < least || value > 1e6 {
            return Err(usage(format!(
                "--{name} {value}: give seconds from {least} to 1000000"
            )));
        }
        Ok(Duration::from_secs_f64(value))
    };
    let mut duration = seconds("seconds", arguments.seconds, 0.01)?;
    if let Some(most) = workload.max_execution_time_s {
        duration = duration.min(Duration::from_secs(most.max(1)));
    }
    let asked_threads = arguments
        .workload
        .sets("threadcount")
        .then_some(workload.thread_count);
    let clients = arguments
        .clients
        .or(asked_threads)
        .unwrap_or(CLIENTS_DEFAULT);
    for (name, value, most) in [
        ("replicas", u32::from(arguments.replicas), 64),
        ("partitions", u32::from(arguments.partitions), 1024),
        ("clients", clients, 100_000),
    ] {
        if value == 0 || value > most {
            return Err(usage(format!("--{name} {value}: from 1 to {most}")));
        }
    }
    if usize::from(arguments.replicas) * usize::from(arguments.partitions) > 1024 {
        return Err(usage(format!(
            "{} x {} servers are too many for one machine: at most 1024",
            arguments.replicas, arguments.partitions
        )));
    }
    if arguments.check && arguments.record_max < RECORD_MIN {
        return Err(usage(format!(
            "--record-max {}: at least {RECORD_MIN}",
            arguments.record_max
        )));
    }
    if arguments.durability != Durability::None {
        return Err(usage(format!(
            "--durability {}: this version offers `none` only",
            arguments.durability
        )));
    }
    if arguments.processes && arguments.layout == LayoutName::Split {
        return Err(usage(
            "--layout split: with --processes servers and clients are always apart; leave one of the two out",
        ));
    }
    let servers = ServerOptions {
        replicas: arguments.replicas,
        partitions: arguments.partitions,
        storage: engine.to_owned(),
        data_directory,
        flush: flush(&arguments.flush)?,
        peer_flush: match arguments.peer_flush {
            None => PeerFlush::Protocol,
            Some(PeerFlushName::Eager) => PeerFlush::Eager,
            Some(PeerFlushName::Lazy) => PeerFlush::Lazy {
                us: PeerFlush::LAZY_US,
                bytes: PeerFlush::LAZY_BYTES,
            },
        },
        delays: delays(arguments)?,
        skews: arguments
            .skew
            .iter()
            .map(|text| skew(arguments, text))
            .collect::<anyhow::Result<Vec<_>>>()?
            .concat(),
        properties: arguments
            .protocol_property
            .iter()
            .map(|text| key_value("--protocol-property", text))
            .collect::<anyhow::Result<_>>()?,
    };
    Ok(RunOptions {
        servers,
        placement: if arguments.processes {
            Placement::Processes(std::env::current_exe()?)
        } else {
            Placement::Embedded(match arguments.layout {
                LayoutName::ReplicaLocal => cluster::Layout::ReplicaLocal,
                LayoutName::Split => cluster::Layout::Split,
            })
        },
        workload: workload.clone(),
        clients,
        duration,
        warmup: seconds("warmup", arguments.warmup, 0.0)?,
        timeout: Duration::from_secs(10),
        seed: arguments.seed,
        check: arguments.check.then_some(arguments.record_max),
        history: arguments.history.clone(),
        faults: Schedule::default(),
    })
}

fn flush(text: &str) -> anyhow::Result<Flush> {
    match text {
        "adaptive" => Ok(Flush::Adaptive),
        "every_message" => Ok(Flush::EveryMessage),
        us => match us.parse() {
            Ok(us) if us > 0 => Ok(Flush::Interval { us }),
            _ => Err(usage(format!(
                "--flush {text}: adaptive, every_message, or microseconds between two writes"
            ))),
        },
    }
}

/// The servers that a name on the command line means.
fn servers(arguments: &Arguments, option: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let all = || {
        (0..arguments.replicas).flat_map(|replica| {
            (0..arguments.partitions).map(move |partition| format!("{replica}_{partition}"))
        })
    };
    if name == "*" {
        return Ok(all().collect());
    }
    match all().find(|known| known == name) {
        Some(known) => Ok(vec![known]),
        None => Err(usage(format!(
            "{option}: there is no server {name:?}; servers are called REPLICA_PARTITION, from 0_0 to {}_{}",
            arguments.replicas - 1,
            arguments.partitions - 1
        ))),
    }
}

fn delays(arguments: &Arguments) -> anyhow::Result<Vec<Delay>> {
    let mut delays = Vec::new();
    for text in &arguments.delay {
        if text.contains('=') {
            add_delay(arguments, "--delay", text, &mut delays)?;
            continue;
        }
        let lines = std::fs::read_to_string(text).map_err(|error| {
            usage(format!(
                "--delay {text}: {error}; write FROM-TO=MS or name a file with such lines"
            ))
        })?;
        for (number, line) in lines.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                add_delay(
                    arguments,
                    &format!("{text}:{}", number + 1),
                    line,
                    &mut delays,
                )?;
            }
        }
    }
    Ok(delays)
}

fn add_delay(
    arguments: &Arguments,
    place: &str,
    text: &str,
    delays: &mut Vec<Delay>,
) -> anyhow::Result<()> {
    let wrong = || {
        usage(format!(
            "{place} {text}: write FROM-TO=MS or FROM-TO=MS+JITTER, in whole milliseconds up to 60000"
        ))
    };
    let (link, time) = text.split_once('=').ok_or_else(wrong)?;
    let (from, to) = link.split_once('-').ok_or_else(wrong)?;
    let (ms, jitter) = time.split_once('+').unwrap_or((time, "0"));
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .ok()
            .filter(|ms| *ms <= 60_000)
            .ok_or_else(wrong)
    };
    let (ms, jitter) = (number(ms)?, number(jitter)?);
    for from in servers(arguments, place, from.trim())? {
        for to in servers(arguments, place, to.trim())? {
            if from != to {
                delays.retain(|delay| delay.from != from || delay.to != to);
                delays.push(Delay::new(&from, &to, ms, jitter));
            }
        }
    }
    Ok(())
}

fn skew(arguments: &Arguments, text: &str) -> anyhow::Result<Vec<(String, i64)>> {
    let (node, ms) = key_value("--skew", text)?;
    let ms: f64 = ms
        .parse()
        .ok()
        .filter(|ms: &f64| ms.abs() <= 3.6e9)
        .ok_or_else(|| {
            usage(format!(
                "--skew {text}: write NODE=MS, MS between -3600000000 and 3600000000"
            ))
        })?;
    let skew_us = (ms * 1000.0) as i64;
    let nodes = servers(arguments, "--skew", &node)?;
    Ok(nodes.into_iter().map(|node| (node, skew_us)).collect())
}

fn print(
    arguments: &Arguments,
    finished: &[Finished],
    comparison: &Comparison,
) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.out {
        output::write_json(
            &directory.join("results.json").display().to_string(),
            comparison,
        )?;
        for one in finished {
            let file = directory.join(format!(
                "{}-{}.ycsb",
                one.report.protocol, one.report.storage
            ));
            std::fs::write(&file, &one.ycsb)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    if let Some(target) = &arguments.json {
        output::write_json(target, comparison)?;
    }
    if arguments.json.as_deref() == Some("-") || finished.is_empty() {
        return Ok(());
    }
    if arguments.ycsb {
        for one in finished {
            output::print(&format!(
                "# {} on {}\n{}",
                one.report.protocol, one.report.storage, one.ycsb
            ))?;
        }
        return Ok(());
    }
    output::print(&describe(comparison))
}

/// The kinds of operations in the order of their columns, with the heading of each.
const KINDS: [(&str, &str); 6] = [
    ("get", "get"),
    ("put", "put"),
    ("scan", "scan"),
    ("read_modify_write", "rmw"),
    ("amplified_insert", "amp"),
    ("read_only", "rot"),
];

fn describe(comparison: &Comparison) -> String {
    let runs = &comparison.runs;
    let kinds: Vec<(&str, &str)> = KINDS
        .into_iter()
        .filter(|(name, _)| runs.iter().any(|run| run.latency_us.contains_key(*name)))
        .collect();
    let mut header: Vec<String> = ["protocol", "storage", "ops/s"].map(str::to_owned).into();
    for heading in kinds.iter().map(|(_, heading)| *heading).chain(["visible"]) {
        header.extend([format!("{heading} p50"), "p99 us".to_owned()]);
    }
    header.extend(["msgs/op", "B/op", "failed", "check"].map(str::to_owned));
    let mut table = output::table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for run in runs {
        let mut row = vec![
            run.protocol.clone(),
            run.storage.clone(),
            output::thousands(run.throughput_ops_s.round() as u64),
        ];
        for (name, _) in &kinds {
            let cell = |of: fn(&Latency) -> u64| {
                run.latency_us
                    .get(*name)
                    .map_or("-".to_owned(), |latency| output::thousands(of(latency)))
            };
            row.extend([cell(|latency| latency.p50), cell(|latency| latency.p99)]);
        }
        let visible = |us: u64| {
            if run.visibility_us.count == 0 {
                "-".to_owned()
            } else {
                output::thousands(us)
            }
        };
        row.extend([
            visible(run.visibility_us.p50),
            visible(run.visibility_us.p99),
            format!("{:.2}", run.messages_per_op),
            format!("{:.0}", run.bytes_per_op),
            output::thousands(run.failed + run.unknown),
            run.check.as_ref().map_or("-".to_owned(), |check| {
                match check.not_claimed_under.as_slice() {
                    [] => check.verdict.clone(),
                    _ => "not claimed".to_owned(),
                }
            }),
        ]);
        table.add_row(row);
    }
    let mut text = format!("{table}\n");
    if let Some(run) = runs.first() {
        text += &format!(
            "\nworkload {}, {} replicas x {} partitions, {} clients, {} records, {:.2} s, layout {}, durability {}, {} cpus\n",
            run.workload,
            run.replicas,
            run.partitions,
            run.clients,
            run.records,
            run.seconds,
            run.layout,
            run.durability,
            comparison.machine.cpus
        );
    }
    for run in runs {
        text += &remarks(
            run,
            runs.iter()
                .filter(|other| other.protocol == run.protocol)
                .count()
                > 1,
        );
    }
    text
}

/// What there is to say about a run beside its row.
fn remarks(run: &RunReport, several_engines: bool) -> String {
    let label = if several_engines {
        format!("{} on {}", run.protocol, run.storage)
    } else {
        run.protocol.clone()
    };
    let loaded = output::thousands(run.records);
    let mut text = format!(
        "{label}: loaded {loaded} records in {:.2} s, {} per second\n",
        run.load_seconds,
        output::thousands(run.load_records_s as u64)
    );
    if !run.faults.is_empty() {
        text += &format!("{label}: {}\n", faults::describe(&run.faults));
    }
    for note in &run.notes {
        text += &format!("{label}: {note}\n");
    }
    if let Some(check) = &run.check {
        text += &format!(
            "{label}: {} of {} operations: {}\n",
            check.model,
            output::thousands(check.operations as u64),
            verdict(check)
        );
        if !check.explanation.is_empty() {
            text += &format!("{}\n", check.explanation);
        }
        if let Some(history) = &check.history {
            text += &format!("{label}: history in {history}\n");
        }
    }
    text
}

fn verdict(check: &CheckReport) -> String {
    match check.not_claimed_under.as_slice() {
        [] => check.verdict.clone(),
        faults => format!("not claimed under {}", faults.join(", ")),
    }
}

/// The progress bar of a run, and its ear for Ctrl-C.
struct Progress {
    label: String,
    bar: ProgressBar,
    interrupt: Interrupt,
    last: Cell<u64>,
}

impl Observer for Progress {
    fn phase(&self, name: &str, total: u64) {
        let shape = match name {
            "loading" => Shape::Speed,
            _ if total == 0 => Shape::Wait,
            _ => Shape::Bar,
        };
        self.bar.reset();
        self.bar.set_style(shape.style());
        self.bar.set_length(total);
        self.bar.set_message(format!("{}: {name}", self.label));
        self.last.set(0);
    }

    fn done(&self, done: u64) {
        if done != self.last.replace(done) {
            self.bar.set_position(done);
        }
    }

    fn interrupts(&self) -> u32 {
        self.interrupt.count()
    }
}
