//! `dkvf compare`: the main job. Protocols as real clusters under one workload, in one table.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use dkvf_bench::report::{Comparison, Latency, Machine, RunReport};
use dkvf_bench::run::{Finished, Observer, Placement, RunOptions, run as run_one};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::Protocol;
use dkvf_core::config::{Delay, Flush, PeerFlush};
use dkvf_core::net::cluster;
use dkvf_core::storage::ENGINES;
use dkvf_protocols::Visitor;
use dkvf_workload::WorkloadSpec;
use indicatif::ProgressBar;

use crate::signals::Interrupt;
use crate::{Ending, no_such_protocol, output, usage};

/// Runs protocols as real clusters on this machine under a workload, and prints one table.
#[derive(Args)]
#[command(after_help = "Examples:
  dkvf compare eventual cops gentlerain causalspartan --workload a --check
  dkvf compare eventual --workload workloads/workloadb -p requestdistribution=uniform --value-size 64 --storage memory,sled
  dkvf compare gentlerain causalspartan --delay 0_0-1_0=40 --skew 1_0=5 --target 20000 --json results.json")]
pub struct Arguments {
    /// The protocols; all of the library if none is named.
    #[arg(value_name = "PROTOCOL")]
    protocols: Vec<String>,
    /// a to f, amplified, or a YCSB property file.
    #[arg(long, value_name = "NAME|FILE", default_value = "a", help_heading = "Workload")]
    workload: String,
    /// Overrides a property of the workload.
    #[arg(short = 'p', value_name = "KEY=VALUE", action = ArgAction::Append, help_heading = "Workload")]
    properties: Vec<String>,
    /// Records to load [default: the workload's recordcount].
    #[arg(long, value_name = "N", help_heading = "Workload")]
    records: Option<u64>,
    /// Bytes of a value, at least 16 [default: the workload's fieldcount x fieldlength].
    #[arg(long, value_name = "BYTES", help_heading = "Workload")]
    value_size: Option<u64>,
    /// Share of reads, from 0 to 1; the rest are updates.
    #[arg(long, value_name = "X", help_heading = "Workload")]
    get_proportion: Option<f64>,
    /// Open loop: operations per second over all clients; latency counts from the intended start.
    #[arg(long, value_name = "OPS", help_heading = "Workload")]
    target: Option<f64>,
    /// Client sessions, bound to the replicas in turn.
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Workload")]
    clients: u32,
    /// Seconds to measure.
    #[arg(long, value_name = "S", default_value_t = 10.0, help_heading = "Workload")]
    seconds: f64,
    /// Seconds before, not measured.
    #[arg(long, value_name = "S", default_value_t = 2.0, help_heading = "Workload")]
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
    #[arg(long, value_name = "NAME", default_value = "memory", help_heading = "Cluster")]
    storage: String,
    /// Delays the link between two servers: FROM-TO=MS or FROM-TO=MS+JITTER, or a file with one such line each. `*` is every server.
    #[arg(long, value_name = "FROM-TO=MS|FILE", action = ArgAction::Append, help_heading = "Cluster")]
    delay: Vec<String>,
    /// Sets a server's clock ahead (behind if negative): NODE=MS.
    #[arg(long, value_name = "NODE=MS", action = ArgAction::Append, allow_hyphen_values = true, help_heading = "Cluster")]
    skew: Vec<String>,
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
    #[arg(long, value_name = "MODE", default_value = "adaptive", help_heading = "Cluster")]
    flush: String,
    /// When messages to other servers are written [default: as the protocol asks for].
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Cluster")]
    peer_flush: Option<PeerFlushName>,
    /// Records the history and checks it against what each protocol claims; exit status 1 if violated.
    #[arg(long, help_heading = "Check and output")]
    check: bool,
    /// Operations the recorder has room for; a checked run ends when it is full.
    #[arg(long, value_name = "N", default_value_t = 8_000_000, help_heading = "Check and output")]
    record_max: usize,
    /// Writes the checked histories here, one file per protocol.
    #[arg(long, value_name = "DIR", requires = "check", help_heading = "Check and output")]
    history: Option<PathBuf>,
    /// Writes results.json and YCSB's result lines here.
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
    let interrupt = Interrupt::listen()?;
    let data = ScratchDirectory::create()?;
    let protocols = chosen_protocols(arguments)?;
    let engines = chosen_engines(arguments)?;
    let workload = workload(arguments)?;
    for warning in &workload.warnings {
        eprintln!("dkvf: warning: {warning}");
    }
    let several_engines = engines.len() > 1;
    let mut finished = Vec::new();
    let mut failure = None;
    for protocol in &protocols {
        for engine in &engines {
            if interrupt.is_set() {
                break;
            }
            let options = options(arguments, &workload, engine, data.0.join(format!("{protocol}-{engine}")))?;
            let label = if several_engines { format!("{protocol} on {engine}") } else { protocol.clone() };
            let observer = Progress { label, bar: output::progress_bar(), interrupt: interrupt.clone(), last: Cell::new(0) };
            let outcome = dkvf_protocols::visit(protocol, RunWith(&options, &observer)).ok_or_else(|| no_such_protocol(protocol))?;
            observer.bar.finish_and_clear();
            match outcome {
                Ok(one) => finished.push(one),
                Err(_) if interrupt.is_set() => break,
                // What was measured so far is worth printing.
                Err(error) => failure = Some(error.context(format!("{protocol} on {engine}"))),
            }
        }
    }
    let runs: Vec<RunReport> = finished.iter().map(|one| one.report.clone()).collect();
    print(arguments, &finished, &Comparison { runs, seed: arguments.seed, commit: env!("DKVF_COMMIT").to_owned(), machine: Machine::this() })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(ending(&finished)),
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
    let has = |verdict: &str| finished.iter().filter_map(|one| one.report.check.as_ref()).any(|check| check.verdict == verdict);
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
        return Ok(dkvf_protocols::NAMES.iter().map(|name| (*name).to_owned()).collect());
    }
    match arguments.protocols.iter().find(|name| !dkvf_protocols::NAMES.contains(&name.as_str())) {
        Some(unknown) => Err(no_such_protocol(unknown)),
        None => Ok(arguments.protocols.clone()),
    }
}

fn chosen_engines(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let known: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
    if arguments.storage == "all" {
        return Ok(known.iter().map(|name| (*name).to_owned()).collect());
    }
    let chosen: Vec<String> = arguments.storage.split(',').map(|name| name.trim().to_owned()).collect();
    match chosen.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(usage(format!("there is no storage engine {unknown:?}; there are: {}, all", known.join(", ")))),
        None => Ok(chosen),
    }
}

fn workload(arguments: &Arguments) -> anyhow::Result<WorkloadSpec> {
    let mut overrides: Vec<(String, String)> = Vec::new();
    for property in &arguments.properties {
        overrides.push(key_value("-p", property)?);
    }
    let mut set = |key: &str, value: String| overrides.push((key.to_owned(), value));
    if let Some(records) = arguments.records {
        set("recordcount", records.to_string());
    }
    if let Some(bytes) = arguments.value_size {
        set("fieldcount", "1".to_owned());
        set("fieldlength", bytes.to_string());
    }
    if let Some(share) = arguments.get_proportion {
        if !(0.0..=1.0).contains(&share) {
            return Err(usage(format!("--get-proportion {share}: a share is from 0 to 1")));
        }
        for other in ["insertproportion", "scanproportion", "readmodifywriteproportion", "ampinsertproportion"] {
            set(other, "0".to_owned());
        }
        set("readproportion", share.to_string());
        set("updateproportion", (1.0 - share).to_string());
    }
    if let Some(target) = arguments.target {
        set("target", target.to_string());
    }
    // The run's length is `--seconds`, unless the user asks for a number of operations.
    if !arguments.properties.iter().any(|property| property.starts_with("operationcount=")) {
        set("operationcount", "0".to_owned());
    }
    let overrides = overrides.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    WorkloadSpec::load(&arguments.workload, overrides).map_err(|error| {
        let names: Vec<&str> = WorkloadSpec::builtin_names().collect();
        usage(format!("{error} (--workload takes one of {}, or a YCSB property file)", names.join(", ")))
    })
}

fn options(arguments: &Arguments, workload: &WorkloadSpec, engine: &str, data_directory: PathBuf) -> anyhow::Result<RunOptions> {
    let seconds = |name: &str, value: f64, least: f64| {
        if !value.is_finite() || value < least || value > 1e6 {
            return Err(usage(format!("--{name} {value}: give seconds from {least} to 1000000")));
        }
        Ok(Duration::from_secs_f64(value))
    };
    let mut duration = seconds("seconds", arguments.seconds, 0.01)?;
    if let Some(most) = workload.max_execution_time_s {
        duration = duration.min(Duration::from_secs(most.max(1)));
    }
    for (name, value, most) in [("replicas", u32::from(arguments.replicas), 64), ("partitions", u32::from(arguments.partitions), 1024), ("clients", arguments.clients, 100_000)] {
        if value == 0 || value > most {
            return Err(usage(format!("--{name} {value}: from 1 to {most}")));
        }
    }
    if usize::from(arguments.replicas) * usize::from(arguments.partitions) > 1024 {
        return Err(usage(format!("{} x {} servers are too many for one machine: at most 1024", arguments.replicas, arguments.partitions)));
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
            Some(PeerFlushName::Lazy) => PeerFlush::Lazy { us: PeerFlush::LAZY_US, bytes: PeerFlush::LAZY_BYTES },
        },
        delays: delays(arguments)?,
        skews: arguments.skew.iter().map(|text| skew(arguments, text)).collect::<anyhow::Result<_>>()?,
        properties: arguments.protocol_property.iter().map(|text| key_value("--protocol-property", text)).collect::<anyhow::Result<_>>()?,
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
        clients: arguments.clients,
        duration,
        warmup: seconds("warmup", arguments.warmup, 0.0)?,
        timeout: Duration::from_secs(10),
        seed: arguments.seed,
        check: arguments.check.then_some(arguments.record_max),
        history: arguments.history.clone(),
    })
}

fn flush(text: &str) -> anyhow::Result<Flush> {
    match text {
        "adaptive" => Ok(Flush::Adaptive),
        "every_message" => Ok(Flush::EveryMessage),
        us => match us.parse() {
            Ok(us) if us > 0 => Ok(Flush::Interval { us }),
            _ => Err(usage(format!("--flush {text}: adaptive, every_message, or microseconds between two writes"))),
        },
    }
}

fn key_value(option: &str, text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(usage(format!("{option} {text}: write KEY=VALUE"))),
    }
}

/// The servers that a name on the command line means.
fn servers(arguments: &Arguments, option: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let all = || (0..arguments.replicas).flat_map(|replica| (0..arguments.partitions).map(move |partition| format!("{replica}_{partition}")));
    if name == "*" {
        return Ok(all().collect());
    }
    match all().find(|known| known == name) {
        Some(known) => Ok(vec![known]),
        None => Err(usage(format!("{option}: there is no server {name:?}; servers are called REPLICA_PARTITION, from 0_0 to {}_{}", arguments.replicas - 1, arguments.partitions - 1))),
    }
}

fn delays(arguments: &Arguments) -> anyhow::Result<Vec<Delay>> {
    let mut delays = Vec::new();
    for text in &arguments.delay {
        if text.contains('=') {
            add_delay(arguments, "--delay", text, &mut delays)?;
            continue;
        }
        let lines = std::fs::read_to_string(text).map_err(|error| usage(format!("--delay {text}: {error}; write FROM-TO=MS or name a file with such lines")))?;
        for (number, line) in lines.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                add_delay(arguments, &format!("{text}:{}", number + 1), line, &mut delays)?;
            }
        }
    }
    Ok(delays)
}

fn add_delay(arguments: &Arguments, place: &str, text: &str, delays: &mut Vec<Delay>) -> anyhow::Result<()> {
    let wrong = || usage(format!("{place} {text}: write FROM-TO=MS or FROM-TO=MS+JITTER, in whole milliseconds up to 60000"));
    let (link, time) = text.split_once('=').ok_or_else(wrong)?;
    let (from, to) = link.split_once('-').ok_or_else(wrong)?;
    let (ms, jitter) = time.split_once('+').unwrap_or((time, "0"));
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|ms| *ms <= 60_000).ok_or_else(wrong);
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

fn skew(arguments: &Arguments, text: &str) -> anyhow::Result<(String, i64)> {
    let (node, ms) = key_value("--skew", text)?;
    let ms: f64 = ms.parse().ok().filter(|ms: &f64| ms.abs() <= 3.6e9).ok_or_else(|| usage(format!("--skew {text}: write NODE=MS, MS between -3600000000 and 3600000000")))?;
    servers(arguments, "--skew", &node)?;
    Ok((node, (ms * 1000.0) as i64))
}

fn print(arguments: &Arguments, finished: &[Finished], comparison: &Comparison) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.out {
        std::fs::create_dir_all(directory)?;
        output::write_json(&directory.join("results.json").display().to_string(), comparison)?;
        for one in finished {
            std::fs::write(directory.join(format!("{}-{}.ycsb", one.report.protocol, one.report.storage)), &one.ycsb)?;
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
            output::print(&format!("# {} on {}\n{}", one.report.protocol, one.report.storage, one.ycsb))?;
        }
        return Ok(());
    }
    output::print(&describe(comparison))
}

fn describe(comparison: &Comparison) -> String {
    let mut table = output::table(&["protocol", "storage", "ops/s", "get p50", "p99 us", "put p50", "p99 us", "visible p50", "p99 us", "msgs/op", "B/op", "failed", "check"]);
    for run in &comparison.runs {
        let latency = |name: &str| run.latency_us.get(name);
        let cell = |latency: Option<&Latency>, of: fn(&Latency) -> u64| latency.map_or("-".to_owned(), |latency| output::thousands(of(latency)));
        let put = latency("put").or(latency("scan")).or(latency("read_modify_write")).or(latency("amplified_insert"));
        let visible = |us: u64| if run.visibility_us.count == 0 { "-".to_owned() } else { output::thousands(us) };
        table.add_row([
            run.protocol.clone(),
            run.storage.clone(),
            output::thousands(run.throughput_ops_s as u64),
            cell(latency("get"), |latency| latency.p50),
            cell(latency("get"), |latency| latency.p99),
            cell(put, |latency| latency.p50),
            cell(put, |latency| latency.p99),
            visible(run.visibility_us.p50),
            visible(run.visibility_us.p99),
            format!("{:.2}", run.messages_per_op),
            format!("{:.0}", run.bytes_per_op),
            output::thousands(run.failed + run.unknown),
            run.check.as_ref().map_or("-".to_owned(), |check| check.verdict.clone()),
        ]);
    }
    let mut text = format!("{table}\n");
    if let Some(run) = comparison.runs.first() {
        text += &format!(
            "\nworkload {}, {} replicas x {} partitions, {} clients, {} records, {:.1} s, layout {}, durability {}, {} cpus\n",
            run.workload, run.replicas, run.partitions, run.clients, run.records, run.seconds, run.layout, run.durability, comparison.machine.cpus
        );
    }
    for run in &comparison.runs {
        for note in &run.notes {
            text += &format!("{}: {note}\n", run.protocol);
        }
        if let Some(check) = &run.check {
            text += &format!("{}: {} of {} operations: {}\n", run.protocol, check.model, output::thousands(check.operations as u64), check.verdict);
            if !check.explanation.is_empty() {
                text += &format!("{}\n", check.explanation);
            }
            if let Some(history) = &check.history {
                text += &format!("{}: history in {history}\n", run.protocol);
            }
        }
    }
    text
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
        let name = if self.label.starts_with(name) { "running" } else { name };
        self.bar.set_message(format!("{}: {name}", self.label));
        self.bar.set_length(total);
        self.bar.set_position(0);
        self.last.set(0);
    }

    fn done(&self, done: u64) {
        if done != self.last.replace(done) {
            self.bar.set_position(done);
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupt.is_set()
    }
}
