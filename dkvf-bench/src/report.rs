//! The result of a run, as `dkvf compare --json` prints it.

use std::collections::BTreeMap;

use dkvf_check::Model;
use hdrhistogram::Histogram;
use serde::Serialize;

/// All runs of one `compare`.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// One per protocol and storage.
    pub runs: Vec<RunReport>,
    /// Runs that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<RunFailure>,
    /// The seed of the workload.
    pub seed: u64,
    /// The source revision this program was built from.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
}

/// A run without a result.
#[derive(Clone, Debug, Serialize)]
pub struct RunFailure {
    /// The protocol.
    pub protocol: String,
    /// The storage engine.
    pub storage: String,
    /// What went wrong.
    pub error: String,
}

/// Where a run took place.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The protocol.
    pub protocol: String,
    /// The workload's name or file.
    pub workload: String,
    /// Copies of the data.
    pub replicas: usize,
    /// Parts of the key space.
    pub partitions: usize,
    /// Sessions.
    pub clients: usize,
    /// Records loaded.
    pub records: u64,
    /// The storage engine.
    pub storage: String,
    /// The durability mode.
    pub durability: String,
    /// Which thread or process runs what.
    pub layout: String,
    /// Length of the measured window, in seconds.
    pub seconds: f64,
    /// Operations that succeeded within it.
    pub operations: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// Reads that found nothing; they count as operations.
    pub not_found: u64,
    /// Successful operations per second.
    pub throughput_ops_s: f64,
    /// Latencies by operation, in microseconds: in an open loop from the intended start.
    pub latency_us: BTreeMap<String, Latency>,
    /// In an open loop: latencies from when the request was really sent, in microseconds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub service_us: BTreeMap<String, Latency>,
    /// From a write's insertion at its origin until a reader elsewhere would see it, in microseconds.
    pub visibility_us: Visibility,
    /// Protocol messages per operation, without heartbeats and cut-offs.
    pub messages_per_op: f64,
    /// Their bytes per operation.
    pub bytes_per_op: f64,
    /// Heartbeats and cut-offs per second, over all servers.
    pub periodic_messages_s: f64,
    /// CPU seconds of the servers' threads within the window; with the sessions in layout replica-local.
    pub server_cpu_s: f64,
    /// CPU seconds of the load threads within the window; 0 if sessions run on the servers' threads.
    pub client_cpu_s: f64,
    /// The most that an open loop's request was sent too late, in microseconds.
    pub generator_lag_us: u64,
    /// Peak resident memory of this process, and of server processes.
    pub peak_rss_bytes: u64,
    /// Time of the load phase, in seconds, until every replica has all records.
    pub load_seconds: f64,
    /// Records loaded per second.
    pub load_records_s: f64,
    /// Anything people should know when they read the figures.
    pub notes: Vec<String>,
    /// What went wrong on purpose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultReport>,
    /// The verdict on the recorded history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckReport>,
}

/// A latency distribution, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Self {
        Latency {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p95: histogram.value_at_quantile(0.95),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// How long writes take to become visible elsewhere, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Visibility {
    /// Sampled writes and replicas.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

/// A fault that was carried out.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// The fault, as a line of a schedule file.
    #[serde(flatten)]
    pub fault: serde_json::Value,
    /// When it was there, in milliseconds since the clients started.
    pub begun_ms: f64,
    /// When it was over, unless it is one that does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<f64>,
}

/// The verdict on a recorded history.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The models, separated by commas.
    pub model: String,
    /// Models the protocol claims that no checker here judges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
    /// The worst verdict: `satisfied`, `violated` or `unknown`.
    pub verdict: String,
    /// Faults of the run under which the protocol does not claim the models: then they are not judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_claimed_under: Vec<String>,
    /// Operations in the history; 0 if it could not be completed.
    pub operations: usize,
    /// Why it is not satisfied, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub explanation: String,
    /// Time of the check, in seconds.
    pub seconds: f64,
    /// Where the history was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

impl CheckReport {
    /// A check that has come to no verdict.
    pub fn unknown(models: &[Model], explanation: &str) -> Self {
        let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
        CheckReport {
            model: names.join(","),
            unchecked: Vec::new(),
            verdict: "unknown".to_owned(),
            not_claimed_under: Vec::new(),
            operations: 0,
            explanation: explanation.to_owned(),
            seconds: 0.0,
            history: None,
        }
    }
}
