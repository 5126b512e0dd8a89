//! What came of runs, for scripts and for people.

use std::collections::BTreeMap;

use dkvf_bench::report::{Latency, Visibility};
use dkvf_sim::{MessageCount, MessageKind, Options, Outcome, Recovery, measure};
use dkvf_workload::OperationKind;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::judge::Judgement;
use crate::output;

/// The result of a command, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The protocol, or `bug:NAME`.
    pub protocol: String,
    /// One per seed, in their order.
    pub runs: Vec<RunReport>,
    /// Events per second of real time on one core, without checking; 0 if nothing was measured.
    pub events_per_second: f64,
    /// The violation that is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<Violation>,
    /// The source revision this program was built from.
    pub commit: String,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// Events that were processed.
    pub events: u64,
    /// Messages that were delivered.
    pub deliveries: u64,
    /// Virtual time at the end, in microseconds.
    pub virtual_us: u64,
    /// A hash of the servers' state and stores at the end, in hexadecimal digits: JSON's numbers have fewer.
    pub state_hash: String,
    /// A hash of the history.
    pub history_hash: String,
    /// Operations that succeeded.
    pub operations: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// `satisfied`, `violated`, `unknown` or `unchecked`.
    pub verdict: &'static str,
    /// What is wrong: a model, `failure` or `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<&'static str>,
    /// The same in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub explanation: String,
    /// The command that repeats the run.
    pub reproduce: String,
    /// Latencies by operation, in virtual microseconds.
    pub latency_us: BTreeMap<&'static str, Latency>,
    /// From the reply to a write until another replica shows it, in virtual microseconds.
    pub visibility_us: Visibility,
    /// Age of what reads returned, in virtual microseconds.
    pub staleness_us: Latency,
    /// Messages that were sent, by kind and name.
    pub messages: Vec<MessageReport>,
    /// Faults of the schedule.
    pub faults: usize,
    /// Crashes and what came of them.
    pub recovery: Recovery,
}

/// The messages of one name.
#[derive(Clone, Debug, Serialize)]
pub struct MessageReport {
    /// What they are.
    pub kind: MessageKind,
    /// Their name.
    pub name: &'static str,
    /// How many.
    #[serde(flatten)]
    pub count: MessageCount,
}

/// A violation and the smallest run that was found to show it.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the run that it was found in.
    pub seed: u64,
    /// What is wrong.
    pub defect: &'static str,
    /// The kind of anomaly, if it is one of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<&'static str>,
    /// The counterexample, in words.
    pub explanation: String,
    /// Clients, operations and faults of the smallest run.
    pub clients: u32,
    /// See above.
    pub operations: u64,
    /// See above.
    pub faults: usize,
    /// The command that repeats it.
    pub reproduce: String,
    /// Runs that were made to find it.
    pub shrink_runs: u64,
}

impl RunReport {
    /// Of an outcome.
    pub fn new(outcome: &Outcome, judgement: &Judgement, reproduce: String) -> Self {
        let visible = measure::total(&outcome.visibility.by_pair);
        let messages = outcome.messages.iter();
        RunReport {
            seed: outcome.seed,
            events: outcome.events,
            deliveries: outcome.deliveries,
            virtual_us: outcome.virtual_us,
            state_hash: format!("{:016x}", outcome.state_hash),
            history_hash: format!("{:016x}", outcome.history_hash()),
            operations: outcome.operations,
            failed: outcome.failed,
            unknown: outcome.unknown,
            verdict: judgement.verdict,
            defect: judgement.defect.map(|defect| defect.name()),
            explanation: judgement.text.clone(),
            reproduce,
            latency_us: latencies(outcome),
            visibility_us: visibility(&visible),
            staleness_us: Latency::from(&measure::total(&outcome.staleness.by_pair)),
            messages: messages
                .map(|((kind, name), count)| MessageReport {
                    kind: *kind,
                    name,
                    count: *count,
                })
                .collect(),
            faults: outcome.schedule.faults.len(),
            recovery: outcome.recovery,
        }
    }

    /// The line that equal arguments repeat, character by character.
    pub fn line(&self) -> String {
        format!(
            "seed {}: events {}, virtual {}.{:06} s, state {}, history {}, verdict {}",
            self.seed,
            self.events,
            self.virtual_us / 1_000_000,
            self.virtual_us % 1_000_000,
            self.state_hash,
            self.history_hash,
            self.verdict
        )
    }

    /// The measurements, for people.
    pub fn describe(&self, options: &Options) -> String {
        let mut text = format!(
            "{} replicas x {} partitions, {} clients, {} operations of workload {} on {} records\n",
            options.replicas,
            options.partitions,
            options.clients,
            output::thousands(options.operations),
            options.workload.name,
            output::thousands(options.workload.record_count),
        );
        text += &format!(
            "{} succeeded, {} failed, {} unknown; {} faults, {} crashes, {} servers came back with their state, {} empty\n\n",
            output::thousands(self.operations),
            output::thousands(self.failed),
            output::thousands(self.unknown),
            self.faults,
            self.recovery.crashes,
            self.recovery.recovered,
            self.recovery.replaced,
        );
        text + &self.times() + "\n" + &self.message_table() + "\n"
    }

    fn times(&self) -> String {
        let mut table = output::table(&["virtual us", "count", "mean", "p50", "p99", "max"]);
        let mut add = |name: &str, times: &Latency| {
            table.add_row([
                name.to_owned(),
                output::thousands(times.count),
                output::thousands(times.mean.round() as u64),
                output::thousands(times.p50),
                output::thousands(times.p99),
                output::thousands(times.max),
            ]);
        };
        for (name, latency) in &self.latency_us {
            add(name, latency);
        }
        add("stale by", &self.staleness_us);
        let Visibility { count, p50, p99 } = self.visibility_us;
        let dash = || "-".to_owned();
        table.add_row([
            "visible elsewhere".to_owned(),
            output::thousands(count),
            dash(),
            output::thousands(p50),
            output::thousands(p99),
            dash(),
        ]);
        format!("{table}\n")
    }

    fn message_table(&self) -> String {
        let mut table = output::table(&["messages", "kind", "count", "per operation", "bytes"]);
        let operations = (self.operations + self.failed + self.unknown).max(1) as f64;
        for MessageReport { kind, name, count } in &self.messages {
            let kind = match kind {
                MessageKind::Request => "request",
                MessageKind::Reply => "reply",
                MessageKind::Server => "server",
                MessageKind::Periodic => "periodic",
            };
            table.add_row([
                (*name).to_owned(),
                kind.to_owned(),
                output::thousands(count.messages),
                format!("{:.2}", count.messages as f64 / operations),
                output::thousands(count.bytes),
            ]);
        }
        format!("{table}\n")
    }
}

fn latencies(outcome: &Outcome) -> BTreeMap<&'static str, Latency> {
    let kinds = OperationKind::ALL.into_iter();
    let measured = kinds.filter_map(|kind| Some((kind, outcome.measurements.latency_us(kind)?)));
    measured
        .map(|(kind, histogram)| (kind_name(kind), Latency::from(histogram)))
        .collect()
}

/// As `compare` calls it.
fn kind_name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Read => "get",
        OperationKind::Update => "put",
        OperationKind::Insert => "insert",
        OperationKind::Scan => "scan",
        OperationKind::ReadModifyWrite => "read_modify_write",
        OperationKind::AmplifiedInsert => "amplified_insert",
        OperationKind::ReadOnly => "read_only",
    }
}

fn visibility(times: &Histogram<u64>) -> Visibility {
    Visibility {
        count: times.len(),
        p50: times.value_at_quantile(0.5),
        p99: times.value_at_quantile(0.99),
    }
}
