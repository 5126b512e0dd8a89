//! `dkvf calibrate`: what work costs a server of this machine, for the simulator.

mod fit;

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use dkvf_bench::report::Machine;
use dkvf_bench::run::{Interrupted, Observer, Placement, RunOptions, run as run_one};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::net::cluster::Layout;
use dkvf_protocols::eventual::Eventual;
use dkvf_sim::CpuModel;
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::Schedule;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use self::fit::{Fit, Sample, fit, median};
use crate::output::{self, Shape};
use crate::signals::Interrupt;
use crate::{Ending, usage};

/// Bytes of a request or an update beside its value: the key of 20 to 24 bytes, stamp and frame.
const MESSAGE_BYTES: f64 = 40.0;
/// Client sessions: enough that the servers are always busy.
const CLIENTS: u32 = 64;
/// Records, few enough to stay in caches as the records of a simulated workload would.
const RECORDS: &str = "1000";

/// Measures what work costs on this machine, for the simulator.
#[derive(Args)]
#[command(
    after_help = "Runs the eventual protocol on loopback TCP with several mixes and value sizes, servers and clients on threads of their
own, and fits a cost per message, byte and storage access to the CPU time of the servers. Nothing else should run meanwhile.
What the model leaves out is in docs/simulator.md.

Examples:
  dkvf calibrate --out cpu.json
  dkvf sim gentlerain --cpu cpu.json --clients 64 --ops 20000"
)]
pub struct Arguments {
    /// Seconds of each run.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Runs of each kind, of which the middle one counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Writes the model as JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
}

/// A kind of run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Kind {
    replicas: u16,
    /// Whether all operations are writes; otherwise all are reads.
    writes: bool,
    value_bytes: u32,
}

/// Reads of large values are not among them: the model counts the bytes that a server receives.
const KINDS: [Kind; 5] = [
    Kind {
        replicas: 1,
        writes: false,
        value_bytes: 16,
    },
    Kind {
        replicas: 1,
        writes: true,
        value_bytes: 16,
    },
    Kind {
        replicas: 1,
        writes: true,
        value_bytes: 4_096,
    },
    Kind {
        replicas: 2,
        writes: true,
        value_bytes: 16,
    },
    Kind {
        replicas: 2,
        writes: true,
        value_bytes: 4_096,
    },
];

/// The file that is written. `dkvf sim --cpu` reads `cpu` of it.
#[derive(Serialize)]
struct Calibration {
    cpu: CpuModel,
    /// The mean of what the model is wrong by in a run, in percent of what was measured.
    residual_percent: f64,
    measured: Vec<Measured>,
    commit: String,
    machine: Machine,
}

/// The middle run of a kind.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    kind: Kind,
    #[serde(flatten)]
    per_operation: Sample,
    /// The largest of the repeated runs in percent of the least.
    spread_percent: f64,
}

/// The cost model in a file of [`run`].
///
/// # Errors
/// It is no such file.
pub fn read(text: &str) -> Result<CpuModel, serde_json::Error> {
    #[derive(Deserialize)]
    struct File {
        cpu: CpuModel,
    }
    serde_json::from_str::<File>(text).map(|file| file.cpu)
}

/// Runs the command.
///
/// # Errors
/// Wrong arguments, a run that fails, or a file that cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    if !(0.05..=600.0).contains(&arguments.seconds) {
        return Err(usage(format!(
            "--seconds {}: from 0.05 to 600",
            arguments.seconds
        )));
    }
    let interrupt = Interrupt::listen(2)?;
    let bar = output::progress_bar();
    bar.set_style(Shape::Bar.style());
    bar.set_length(KINDS.len() as u64 * u64::from(arguments.repeats));
    bar.set_message("calibrating");
    let progress = Progress { bar, interrupt };
    let mut measured = Vec::new();
    for kind in KINDS {
        match measure(kind, arguments, &progress) {
            Ok(one) => measured.push(one),
            Err(error) if error.is::<Interrupted>() || progress.interrupt.count() > 0 => {
                eprintln!("dkvf: interrupted: nothing is written");
                return Ok(Ending::Unknown);
            }
            Err(error) => return Err(error),
        }
    }
    progress.bar.finish_and_clear();
    let samples: Vec<Sample> = measured.iter().map(|one| one.per_operation).collect();
    let Fit {
        costs_ns: [message, byte, access],
        residual,
    } = fit(&samples);
    let calibration = Calibration {
        cpu: CpuModel {
            per_message_ns: message.round() as u64,
            per_byte_ns: byte.round() as u64,
            per_storage_access_ns: access.round() as u64,
            per_send_ns: 0,
        },
        residual_percent: 100.0 * residual,
        measured,
        commit: env!("DKVF_COMMIT").to_owned(),
        machine: Machine::this(),
    };
    if let Some(target) = &arguments.out {
        output::write_json(target, &calibration)?;
    }
    if arguments.out.as_deref() != Some("-") {
        output::print(&describe(&calibration))?;
    }
    Ok(Ending::Done)
}

/// The middle of the repeated runs of a kind.
fn measure(kind: Kind, arguments: &Arguments, progress: &Progress) -> anyhow::Result<Measured> {
    let mut costs_ns = Vec::new();
    let mut sample = None;
    for repeat in 0..arguments.repeats {
        if progress.interrupt.count() > 0 {
            return Err(Interrupted.into());
        }
        let one = measure_once(kind, arguments.seconds, u64::from(repeat) + 1, progress)?;
        costs_ns.push(one.cpu_ns);
        sample = Some(one);
        progress.bar.inc(1);
    }
    let least = costs_ns.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = costs_ns.iter().copied().fold(0.0, f64::max);
    let sample = sample.context("invariant: there is at least one run")?;
    Ok(Measured {
        kind,
        per_operation: Sample {
            cpu_ns: median(costs_ns).unwrap_or(sample.cpu_ns),
            ..sample
        },
        spread_percent: 100.0 * (largest / least - 1.0),
    })
}

fn measure_once(
    kind: Kind,
    seconds: f64,
    seed: u64,
    progress: &Progress,
) -> anyhow::Result<Sample> {
    let share = |is_it: bool| if is_it { "1" } else { "0" };
    let value_bytes = kind.value_bytes.to_string();
    let properties = [
        ("readproportion", share(!kind.writes)),
        ("updateproportion", share(kind.writes)),
        ("valuesize", &value_bytes),
        ("recordcount", RECORDS),
        ("operationcount", "0"),
    ];
    let data = ScratchDirectory::create()?;
    let options = RunOptions {
        servers: ServerOptions::new(kind.replicas, 1, "memory", data.0.clone()),
        placement: Placement::Embedded(Layout::Split),
        workload: WorkloadSpec::load("a", properties)?,
        clients: CLIENTS,
        duration: Duration::from_secs_f64(seconds),
        warmup: Duration::from_secs_f64(seconds / 4.0),
        timeout: Duration::from_secs(10),
        seed,
        check: None,
        history: None,
        faults: Schedule::default(),
    };
    let report = run_one::<Eventual>(&options, progress)?.report;
    let operations = report.operations as f64;
    if operations == 0.0 || report.server_cpu_s == 0.0 {
        anyhow::bail!(
            "nothing was measured: the run is too short, or this system does not count CPU time by thread (/proc)"
        );
    }
    let value_bytes = if kind.writes {
        f64::from(kind.value_bytes)
    } else {
        0.0
    };
    // A request and its reply are two of the messages that are counted, and every update is received once.
    let updates = (report.messages_per_op - 2.0).max(0.0);
    let messages = 1.0 + updates;
    Ok(Sample {
        messages,
        bytes: messages * (MESSAGE_BYTES + value_bytes),
        // A write looks at the newest version first; each other replica writes, too.
        accesses: if kind.writes { 2.0 + updates } else { 1.0 },
        cpu_ns: report.server_cpu_s * 1e9 / operations,
    })
}

fn describe(calibration: &Calibration) -> String {
    let mut table = output::table(&[
        "run",
        "messages/op",
        "bytes/op",
        "accesses/op",
        "CPU ns/op",
        "spread %",
    ]);
    for Measured {
        kind,
        per_operation,
        spread_percent,
    } in &calibration.measured
    {
        let mix = if kind.writes { "writes" } else { "reads" };
        table.add_row([
            format!(
                "{mix} of {} bytes, {} replicas",
                kind.value_bytes, kind.replicas
            ),
            format!("{:.2}", per_operation.messages),
            format!("{:.0}", per_operation.bytes),
            format!("{:.2}", per_operation.accesses),
            format!("{:.0}", per_operation.cpu_ns),
            format!("{spread_percent:.0}"),
        ]);
    }
    let CpuModel {
        per_message_ns,
        per_byte_ns,
        per_storage_access_ns,
        ..
    } = calibration.cpu;
    format!(
        "{table}\n\nper message {per_message_ns} ns (received and answered), per byte {per_byte_ns} ns, per storage access {per_storage_access_ns} ns\nthe model is off by {:.0} % of a run on the average\n",
        calibration.residual_percent
    )
}

/// The progress bar, and the ear for Ctrl-C.
struct Progress {
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Observer for Progress {
    fn phase(&self, _name: &str, _total: u64) {}

    fn done(&self, _done: u64) {}

    fn interrupts(&self) -> u32 {
        self.interrupt.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_is_read_as_it_is_written() {
        let cpu = CpuModel {
            per_message_ns: 3_000,
            per_byte_ns: 1,
            per_storage_access_ns: 200,
            per_send_ns: 0,
        };
        let calibration = Calibration {
            cpu,
            residual_percent: 3.5,
            measured: Vec::new(),
            commit: String::new(),
            machine: Machine::this(),
        };
        assert_eq!(
            read(&serde_json::to_string(&calibration).unwrap()).unwrap(),
            cpu
        );
        assert!(read("{}").unwrap_err().to_string().contains("cpu"));
        assert!(read(r#"{"cpu":{"per_mesage_ns":1}}"#).is_err());
    }
}
