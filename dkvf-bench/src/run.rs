//! One run: start a cluster, load it, put load on it, check what was recorded.

mod check;
mod figures;
mod injector;
mod load;
mod loading;
mod patience;
mod window;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use dkvf_core::Protocol;
use dkvf_core::net::cluster::Layout;
use dkvf_core::net::status::Traffic;
use dkvf_workload::faults::Schedule;
use dkvf_workload::{Measurements, Report, Status, WorkloadSpec};

use self::check::{check, claimed_models};
use self::figures::{latencies, total, visibility};
use self::injector::Injector;
use self::load::Load;
use self::loading::load_records;
use self::patience::{Patience, wait_until_drained};
use self::window::run_window;
use crate::faults;
use crate::processes::Processes;
use crate::report::{CheckReport, RunReport};
use crate::target::{Embedded, ServerOptions, Target};
use crate::usage;
/// What to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The servers.
    pub servers: ServerOptions,
    /// Where they and the sessions run.
    pub placement: Placement,
    /// The workload; its `target` makes an open loop.
    pub workload: WorkloadSpec,
    /// Sessions, spread evenly over the replicas.
    pub clients: u32,
    /// Length of the measured window.
    pub duration: Duration,
    /// Time before it.
    pub warmup: Duration,
    /// Time from a request to "unknown".
    pub timeout: Duration,
    /// Seed of the workload.
    pub seed: u64,
    /// Record and check the history, of at most so many operations: a run ends early when they are full.
    pub check: Option<usize>,
    /// Where to write the history.
    pub history: Option<PathBuf>,
    /// What goes wrong, counted from the beginning of the warm-up; all of it ends with the window.
    pub faults: Schedule,
}

/// Where servers and sessions run.
#[derive(Clone, Debug)]
pub enum Placement {
    /// In this process.
    Embedded(Layout),
    /// Each server a process, started from this program.
    Processes(PathBuf),
}

/// What a run tells while it is under way.
pub trait Observer {
    /// A phase begins; `total` is what `done` will count up to, in its own units.
    fn phase(&self, name: &str, total: u64);
    /// Progress within the phase.
    fn done(&self, done: u64);
    /// How often the user asked to end early: the first time ends the run, keeping what was measured, and a second time its
    /// check as well.
    fn interrupts(&self) -> u32;
}

/// An observer that says nothing and never interrupts.
pub struct Silent;

impl Observer for Silent {
    fn phase(&self, _name: &str, _total: u64) {}
    fn done(&self, _done: u64) {}
    fn interrupts(&self) -> u32 {
        0
    }
}

/// The user ended the run before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted before anything was measured")]
pub struct Interrupted;

/// A run's result, and YCSB's lines for it.
pub struct Finished {
    /// The result.
    pub report: RunReport,
    /// The same as YCSB prints it.
    pub ycsb: String,
}

/// Runs `options` with protocol `P`.
///
/// # Errors
/// A server fails, the load phase fails, the workload asks for what the protocol does not offer, or there is a fault that
/// [`faults::refused`] refuses.
pub fn run<P: Protocol>(options: &RunOptions, observer: &dyn Observer) -> anyhow::Result<Finished> {
    let length = options.warmup + options.duration;
    if let Some((fault, why)) = faults::refused(&options.faults, &options.placement, length) {
        bail!("fault number {fault} of the schedule: {why}");
    }
    usage::reset_peak();
    match &options.placement {
        Placement::Embedded(layout) => measure::<P>(
            options,
            observer,
            &Embedded::<P>::start(&options.servers, *layout)?,
        ),
        Placement::Processes(program) => {
            observer.phase("starting", 0);
            let servers =
                Processes::start::<P>(&options.servers, program, &|| observer.interrupts() > 0)?;
            measure::<P>(options, observer, &servers)
        }
    }
}

fn measure<P: Protocol>(
    options: &RunOptions,
    observer: &dyn Observer,
    target: &dyn Target,
) -> anyhow::Result<Finished> {
    let load = Load::<P>::start(options, observer, target)?;
    let load_start = Instant::now();
    load_records(&load, options)?;
    let load_seconds = load_start.elapsed().as_secs_f64();
    let before = target.statuses()?;
    target.take_visibility()?;
    let mut injector = Injector::new(&options.faults, target)?;
    let window = run_window(&load, options, &mut injector)?;
    let all_operations = load.progress.operations().max(1) as f64;
    let patience = Patience::from_now(options, observer);
    let mut notes = injector.notes();
    if !options.faults.faults.is_empty() {
        observer.phase("healing", 0);
    }
    match injector.wait_until_healed(&patience) {
        // The check will be told so too.
        Err(error) if error.is::<Interrupted>() => {}
        healed => healed?,
    }
    let drained = match wait_until_drained(target, &patience) {
        Err(error) if error.is::<Interrupted>() => target.statuses()?,
        // Whatever the servers are up to, the user wants what was measured.
        Err(error) if observer.interrupts() > 0 => {
            notes.push(format!("messages and bytes are not known: {error:#}"));
            before.clone()
        }
        drained => drained?,
    };
    let traffic = if injector.has_crashed_a_server() {
        Traffic::default()
    } else {
        total(&drained) - total(&before)
    };
    let visibility = visibility(&target.take_visibility()?);
    let mut measurements = Measurements::new();
    let mut intended: Option<Measurements> = None;
    let (mut last_failure, mut lag_us) = (None, 0);
    for worker in 0..load.drivers.len() {
        let (report, lag): (Report, u64) = load.with_driver(worker, |local| {
            (local.driver.take_report(), local.pool.lag_us())
        })?;
        measurements.merge(&report.measurements);
        if let Some(part) = &report.intended {
            intended.get_or_insert_default().merge(part);
        }
        last_failure = report.last_failure.or(last_failure);
        lag_us = lag.max(lag_us);
    }
    let failed = measurements.count(Status::Error);
    let unknown = measurements.count(Status::Unknown);
    let not_found = measurements.count(Status::NotFound);
    let succeeded = measurements.count(Status::Ok) + not_found;
    if succeeded == 0 {
        if observer.interrupts() > 0 {
            return Err(Interrupted.into());
        }
        let why = last_failure.or(window.ended_early).unwrap_or_else(|| {
            "none ended within the measured window: try more --seconds".to_owned()
        });
        bail!(
            "no operation of workload {} succeeded: {why}",
            options.workload.name
        );
    }
    let throughput_ops_s = succeeded as f64 / window.seconds;
    if let Some(why) = window.ended_early {
        notes.push(why);
    } else if let Some(target) = options.workload.target_ops_s
        && throughput_ops_s < 0.95 * target
        // Few operations miss a low target by where the window happens to begin.
        && target * window.seconds > (succeeded + failed + unknown + u64::from(options.clients)) as f64
    {
        notes.push(format!("the target of {target} operations per second was not reached: latencies include the time in the backlog"));
    }
    if let (true, Some(why)) = (failed + unknown > 0, last_failure) {
        notes.push(format!(
            "{failed} operations failed and {unknown} are unknown; the last: {why}"
        ));
    }
    // Before the check, whose own memory is not the store's.
    let peak_rss_bytes = target.peak_rss_bytes();
    let check = match options.check {
        Some(_) if window.abandoned => Some(CheckReport::unknown(
            &claimed_models::<P>(),
            "interrupted while sessions were waiting for an answer",
        )),
        Some(_) => match check::<P>(
            &load,
            options,
            &injector.not_tolerated(P::claims().tolerates),
            &patience,
            &mut notes,
        ) {
            Err(error) if error.is::<Interrupted>() => Some(CheckReport::unknown(
                &claimed_models::<P>(),
                "interrupted before the check had ended",
            )),
            checked => Some(checked?),
        },
        None => None,
    };
    let messages = traffic.requests + traffic.replies + traffic.messages;
    let bytes = traffic.request_bytes + traffic.reply_bytes + traffic.message_bytes;
    let topology = target.topology();
    let run_time_ms = (window.seconds * 1000.0) as u64;
    let report = RunReport {
        protocol: P::NAME.to_owned(),
        workload: options.workload.name.clone(),
        replicas: topology.replicas(),
        partitions: topology.partitions(),
        clients: options.clients as usize,
        records: options.workload.record_count,
        storage: options.servers.storage.clone(),
        durability: "none".to_owned(),
        layout: target.layout().to_owned(),
        seconds: window.seconds,
        operations: succeeded,
        failed,
        unknown,
        not_found,
        throughput_ops_s,
        latency_us: latencies(intended.as_ref().unwrap_or(&measurements)),
        service_us: if intended.is_some() {
            latencies(&measurements)
        } else {
            BTreeMap::new()
        },
        visibility_us: visibility,
        messages_per_op: messages as f64 / all_operations,
        bytes_per_op: bytes as f64 / all_operations,
        periodic_messages_s: traffic.periodic as f64 / window.whole_seconds,
        server_cpu_s: window.server_cpu_s,
        client_cpu_s: window.client_cpu_s,
        generator_lag_us: lag_us,
        peak_rss_bytes,
        load_seconds,
        load_records_s: options.workload.insert_count as f64 / load_seconds.max(1e-6),
        notes,
        faults: injector.report(),
        check,
    };
    Ok(Finished {
        ycsb: measurements.ycsb_lines(run_time_ms, intended.as_ref()),
        report,
    })
}
