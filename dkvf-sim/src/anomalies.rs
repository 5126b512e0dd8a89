//! Which anomalies a protocol lets happen: found by running small workloads that ask for them, under many schedules, and by
//! checkers that look at what clients saw. Nothing here is a table of what protocols promise.
//!
//! An anomaly of transactions can only be asked of clients that have transactions. A client that reads and writes single
//! keys shows those of single operations; one that also reads several keys as a snapshot shows those of read-only
//! transactions. For the others it is [`Cell::NotApplicable`].

use dkvf_check::{AnomalyKind, Model, Options as CheckOptions, Verdict};
use dkvf_core::Protocol;
use dkvf_workload::{Mix, Requests, ValueSize, WorkloadSpec};

use crate::conformance::offers_read_only;
use crate::options::Options;
use crate::world::{ClockOptions, Latency};
use crate::{Outcome, run};

/// What can go wrong between operations of several clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phenomenon {
    /// Writes of two transactions interleave (G0).
    DirtyWrite,
    /// A read returns what a failed write wrote, or a value that its transaction replaced itself (G1a, G1b).
    DirtyRead,
    /// A transaction reads a key twice, and another one's write comes between.
    NonRepeatableRead,
    /// Two transactions read the same version and both write the next.
    LostUpdate,
    /// Two transactions each write what the other one has read.
    WriteSkew,
    /// Two transactions see two independent writes in opposite orders.
    LongFork,
    /// A read misses a write in its causal past.
    CausalityViolation,
    /// A read returns a value that had been replaced before it was asked for.
    StaleRead,
}

/// What a client must offer to be asked for a phenomenon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offer {
    /// Reads and writes of single keys.
    Operations,
    /// Reads of several keys as one snapshot.
    Snapshots,
    /// Transactions that read and write.
    Transactions,
}

/// What became of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It did not happen in any of these runs.
    Forbidden {
        /// How many there were.
        runs: u64,
    },
    /// It happened.
    Observed(Observation),
    /// The protocol's clients cannot show it.
    NotApplicable,
}

/// Where a phenomenon was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The workload that asked for it.
    pub scenario: &'static str,
    /// The seed of the run.
    pub seed: u64,
    /// Its operations and the argument.
    pub text: String,
}

impl Phenomenon {
    /// All, in the order of the columns.
    pub const ALL: [Phenomenon; 8] = [
        Phenomenon::DirtyWrite,
        Phenomenon::DirtyRead,
        Phenomenon::NonRepeatableRead,
        Phenomenon::LostUpdate,
        Phenomenon::WriteSkew,
        Phenomenon::LongFork,
        Phenomenon::CausalityViolation,
        Phenomenon::StaleRead,
    ];

    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            Phenomenon::DirtyWrite => "dirty-write",
            Phenomenon::DirtyRead => "dirty-read",
            Phenomenon::NonRepeatableRead => "non-repeatable-read",
            Phenomenon::LostUpdate => "lost-update",
            Phenomenon::WriteSkew => "write-skew",
            Phenomenon::LongFork => "long-fork",
            Phenomenon::CausalityViolation => "causality-violation",
            Phenomenon::StaleRead => "stale-read",
        }
    }

    /// What a client must offer to be asked for it.
    pub fn needs(self) -> Offer {
        match self {
            Phenomenon::DirtyRead | Phenomenon::CausalityViolation | Phenomenon::StaleRead => {
                Offer::Operations
            }
            // A snapshot has each key once.
            Phenomenon::LongFork => Offer::Snapshots,
            Phenomenon::DirtyWrite
            | Phenomenon::NonRepeatableRead
            | Phenomenon::LostUpdate
            | Phenomenon::WriteSkew => Offer::Transactions,
        }
    }

    /// The weakest model that forbids it.
    fn model(self) -> Model {
        match self {
            Phenomenon::DirtyWrite => Model::ReadUncommitted,
            Phenomenon::DirtyRead => Model::CommittedReads,
            Phenomenon::NonRepeatableRead | Phenomenon::LostUpdate => Model::Psi,
            Phenomenon::WriteSkew => Model::Serializable,
            Phenomenon::LongFork => Model::Prefix,
            Phenomenon::CausalityViolation => Model::CausalWeak,
            Phenomenon::StaleRead => Model::Linearizable,
        }
    }

    /// Whether a violation of [`Phenomenon::model`] of this kind is it.
    fn is_it(self, kind: AnomalyKind) -> bool {
        use AnomalyKind as Kind;
        match self {
            Phenomenon::DirtyWrite => kind == Kind::DirtyWrite,
            Phenomenon::DirtyRead => matches!(kind, Kind::AbortedRead | Kind::IntermediateRead),
            Phenomenon::NonRepeatableRead => {
                matches!(kind, Kind::NonRepeatableRead | Kind::ReadSkew)
            }
            Phenomenon::LostUpdate => kind == Kind::LostUpdate,
            Phenomenon::WriteSkew => kind == Kind::WriteSkew,
            Phenomenon::LongFork => kind == Kind::LongFork,
            Phenomenon::CausalityViolation => {
                matches!(kind, Kind::CausalityViolation | Kind::CyclicCausality)
            }
            Phenomenon::StaleRead => matches!(kind, Kind::StaleRead | Kind::NotLinearizable),
        }
    }
}

impl Cell {
    /// `forbidden`, `observed` or `not-applicable`.
    pub fn name(&self) -> &'static str {
        match self {
            Cell::Forbidden { .. } => "forbidden",
            Cell::Observed(_) => "observed",
            Cell::NotApplicable => "not-applicable",
        }
    }
}

/// The row of protocol `P`: for each phenomenon of [`Phenomenon::ALL`] what became of it in up to `seeds` runs of each
/// scenario. The same on every machine.
///
/// # Errors
/// A run fails, or a checker cannot tell.
pub fn row<P: Protocol>(seeds: u64) -> anyhow::Result<Vec<Cell>> {
    let offer = if offers_read_only::<P>() {
        Offer::Snapshots
    } else {
        Offer::Operations
    };
    let cell = |phenomenon: Phenomenon| match phenomenon.needs() <= offer {
        true => ask::<P>(phenomenon, offer, seeds),
        false => Ok(Cell::NotApplicable),
    };
    Phenomenon::ALL.into_iter().map(cell).collect()
}

fn ask<P: Protocol>(phenomenon: Phenomenon, offer: Offer, seeds: u64) -> anyhow::Result<Cell> {
    let mut runs = 0;
    for scenario in SCENARIOS
        .iter()
        .filter(|scenario| scenario.needs <= offer && scenario.needs >= phenomenon.needs())
    {
        for seed in 0..seeds {
            let outcome = run::<P>(&(scenario.options)(seed))?;
            if let Some(text) = look(phenomenon, &outcome)? {
                return Ok(Cell::Observed(Observation {
                    scenario: scenario.name,
                    seed,
                    text,
                }));
            }
            runs += 1;
        }
    }
    Ok(Cell::Forbidden { runs })
}

/// The phenomenon in a run, in words.
fn look(phenomenon: Phenomenon, outcome: &Outcome) -> anyhow::Result<Option<String>> {
    if let Some(failure) = &outcome.failure {
        anyhow::bail!("seed {}: {failure}", outcome.seed);
    }
    match phenomenon
        .model()
        .check(&outcome.history, &CheckOptions::default())
    {
        Verdict::Satisfied => Ok(None),
        Verdict::Unknown(reason) => anyhow::bail!("{}: {reason}", phenomenon.name()),
        Verdict::Violated(anomalies) => {
            let found = anomalies
                .into_iter()
                .find(|anomaly| phenomenon.is_it(anomaly.kind));
            Ok(found.map(|anomaly| anomaly.explain(&outcome.history).to_string()))
        }
    }
}

/// A workload that asks for trouble.
struct Scenario {
    name: &'static str,
    needs: Offer,
    options: fn(u64) -> Options,
}

const SCENARIOS: [Scenario; 4] = [
    // A: w x. B: r x, w y. C: r y, r x. Three replicas, messages that take far longer than operations and are of very
    // different speed, keys on several partitions.
    Scenario {
        name: "causal-chain",
        needs: Offer::Operations,
        options: causal_chain,
    },
    // Writes that wait for a clock which is behind, and time out.
    Scenario {
        name: "failed-writes",
        needs: Offer::Operations,
        options: failed_writes,
    },
    // Writes at both replicas, and snapshots of both keys at each.
    Scenario {
        name: "long-fork",
        needs: Offer::Snapshots,
        options: long_fork,
    },
    // The same with more keys and three replicas, where what a snapshot needs arrives at different times.
    Scenario {
        name: "snapshots",
        needs: Offer::Snapshots,
        options: snapshots,
    },
];

/// Half of the operations write, the others read: so many of a hundred as snapshots.
fn workload(records: u64, snapshots: f64) -> WorkloadSpec {
    let mut spec = WorkloadSpec::builtin("a").expect("invariant: a built-in workload");
    spec.record_count = records;
    spec.insert_count = records;
    spec.value_size = ValueSize::Constant(16);
    spec.requests = Requests::Uniform;
    spec.read_only_keys = records.min(3) as u32;
    spec.mix = Mix {
        read: 50.0 - snapshots,
        update: 50.0,
        insert: 0.0,
        scan: 0.0,
        read_modify_write: 0.0,
        amplified_insert: 0.0,
        read_only: snapshots,
    };
    spec
}

fn cluster(seed: u64, workload: WorkloadSpec, replicas: u16) -> Options {
    let mut options = Options::new(seed, workload, 600);
    options.replicas = replicas;
    options.partitions = 2;
    options.clients = 3 * u32::from(replicas);
    options.latency = Latency::Uniform {
        mean_us: 5_000,
        spread_us: 5_000,
    };
    options
}

fn causal_chain(seed: u64) -> Options {
    cluster(seed, workload(4, 0.0), 3)
}

fn failed_writes(seed: u64) -> Options {
    let mut options = cluster(seed, workload(4, 0.0), 2);
    options.clocks = ClockOptions {
        skew_us: 100_000,
        ..ClockOptions::default()
    };
    options.request_timeout_us = 50_000;
    options
}

fn long_fork(seed: u64) -> Options {
    cluster(seed, workload(2, 40.0), 2)
}

fn snapshots(seed: u64) -> Options {
    cluster(seed, workload(4, 40.0), 3)
}
