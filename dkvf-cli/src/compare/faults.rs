//! `--faults`: a schedule from a file, or drawn from the seed.

use std::path::Path;

use dkvf_bench::faults::{possible, refusal, refused};
use dkvf_bench::report::FaultReport;
use dkvf_bench::run::RunOptions;
use dkvf_core::Topology;
use dkvf_workload::faults::{FaultKind, FaultKinds, NemesisOptions, Schedule, ScheduleFile};

use crate::usage;

/// Most faults that a table's footer tells one by one.
const DESCRIBED_MAX: usize = 6;

/// The schedule that `text` asks for, in a run with these options.
///
/// # Errors
/// Neither a file nor kinds of faults, a mistake in the file, or a fault that is not possible in this run.
pub(super) fn schedule(text: &str, seed: u64, options: &RunOptions) -> anyhow::Result<Schedule> {
    let servers = &options.servers;
    let topology = Topology::grid(servers.replicas, servers.partitions);
    match text.parse::<FaultKinds>() {
        Ok(kinds) => random(text, kinds, seed, options, &topology),
        Err(unknown) if !Path::new(text).exists() => Err(usage(format!(
            "--faults {text}: {unknown}; and there is no such file"
        ))),
        Err(_) => from_file(Path::new(text), options, &topology),
    }
}

fn from_file(path: &Path, options: &RunOptions, topology: &Topology) -> anyhow::Result<Schedule> {
    let file = ScheduleFile::read(path, topology).map_err(usage)?;
    let length = options.warmup + options.duration;
    match refused(&file.schedule, &options.placement, length) {
        Some((fault, why)) => Err(usage(format!("{}: {why}", file.place(fault)))),
        None => Ok(file.schedule),
    }
}

fn random(
    text: &str,
    kinds: FaultKinds,
    seed: u64,
    options: &RunOptions,
    topology: &Topology,
) -> anyhow::Result<Schedule> {
    let can = possible(&options.placement);
    let (kept, left_out): (Vec<FaultKind>, Vec<FaultKind>) =
        kinds.iter().partition(|kind| can.contains(*kind));
    let why = left_out
        .first()
        .and_then(|kind| refusal(*kind, &options.placement));
    if let (true, Some(why)) = (kept.is_empty(), why) {
        return Err(usage(format!("--faults {text}: {why}")));
    }
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|kind| kind.name()).collect();
        eprintln!(
            "dkvf: note: --faults {text}: not possible in this run and left out: {}",
            names.join(", ")
        );
    }
    let horizon_us = (options.warmup + options.duration).as_micros() as u64;
    let kinds = kept.into_iter().collect();
    Ok(Schedule::random(
        &NemesisOptions::new(kinds, seed, horizon_us),
        topology,
    ))
}

/// What went wrong, in a line.
pub(super) fn describe(faults: &[FaultReport]) -> String {
    let described: Vec<String> = faults.iter().take(DESCRIBED_MAX).map(one).collect();
    let more = faults.len() - described.len();
    format!(
        "{} fault{}: {}{}",
        faults.len(),
        if faults.len() == 1 { "" } else { "s" },
        described.join(", "),
        if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        }
    )
}

fn one(report: &FaultReport) -> String {
    let name = report.fault["fault"].as_str().unwrap_or_default();
    let at_s = report.begun_ms / 1000.0;
    match report.ended_ms {
        Some(ended_ms) => {
            let for_s = (ended_ms - report.begun_ms) / 1000.0;
            format!("{name} at {at_s:.2} s for {for_s:.2} s")
        }
        None => format!("{name} at {at_s:.2} s"),
    }
}
