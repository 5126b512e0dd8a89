//! What to simulate.

use dkvf_core::Topology;
use dkvf_core::config::Properties;
use dkvf_core::node::VisibilityOptions;
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::{FaultKinds, Schedule};
use serde::{Deserialize, Serialize};

use crate::world::{ClockOptions, CpuModel, Latency};

/// A simulation: equal options are equal runs, on every machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// What everything random is drawn from.
    pub seed: u64,
    /// Full copies of the data.
    pub replicas: u16,
    /// Partitions of each copy.
    pub partitions: u16,
    /// Client sessions; the `i`-th is bound to replica `i` modulo the number of replicas.
    pub clients: u32,
    /// Operations of the run, over all sessions.
    pub operations: u64,
    /// What clients do. Its number of operations is [`Options::operations`].
    pub workload: WorkloadSpec,
    /// Spreads the operations evenly over so much virtual time, in microseconds; otherwise the workload's own target
    /// applies, and without one a session begins an operation when the one before has ended. Random faults happen
    /// within this time: without it, within 100 times the protocol's longest timer.
    pub spread_us: Option<u64>,
    /// One-way latency between replicas.
    pub latency: Latency,
    /// One-way latency within a replica, also between its servers and the clients next to them.
    pub intra_latency: Latency,
    /// Bytes a second that each link between servers transmits; `None` is no limit.
    pub bandwidth_bytes_s: Option<u64>,
    /// How connections break and come back, and what links keep.
    pub links: LinkOptions,
    /// How wrong the clocks are.
    pub clocks: ClockOptions,
    /// What work costs.
    pub cpu: CpuModel,
    /// Which host each server runs on, by server id; `None`: each has one of its own. Processor, clocks, crash and
    /// pause belong to the host.
    pub hosts: Option<Vec<u16>>,
    /// What goes wrong.
    pub faults: Faults,
    /// What survives a crash.
    pub durability: Durability,
    /// How fast disks are.
    pub disk: DiskModel,
    /// Name of the storage engine. Only `memory` can be simulated so far.
    pub storage: String,
    /// Time after which a client gives up, in microseconds: its operation has an unknown outcome. A server answers a
    /// request that waits there for half as long with `Timeout`.
    pub request_timeout_us: u64,
    /// How far ahead a stamp from outside may be, in microseconds.
    pub max_drift_us: u64,
    /// What the protocol is told.
    pub properties: Properties,
    /// Check invariants after every step, and that handlers which wait changed nothing.
    pub strict: bool,
    /// Keep a trace of everything that happens.
    pub trace: bool,
    /// Which writes are watched until every replica shows them.
    pub visibility: VisibilityOptions,
    /// The run ends at this virtual time whatever is left to do, in microseconds. What follows, until the cluster is
    /// at rest and read, is not limited by it.
    pub time_limit_us: u64,
}

/// Where faults come from. Their times count from the first operation of the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// Nothing goes wrong.
    #[default]
    None,
    /// A schedule.
    Schedule(Schedule),
    /// A schedule drawn from the seed, with faults of these kinds, in the scale of the protocol's timers.
    Random(FaultKinds),
}

/// What survives a crash of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing: a server that crashed comes back empty.
    #[default]
    None,
    /// What was written some time before. Replies do not wait for the disk, so a server can forget what it has told
    /// others: protocols that rely on their state break.
    Async,
    /// All that anybody was told: messages and replies wait until the inputs that led to them are stable. The disk is
    /// written at fixed intervals.
    Group,
    /// As `Group`, and the disk is written as soon as there is something to write and the last write is done.
    Sync,
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskModel {
    /// Time to make all that was written stable, in microseconds.
    pub sync_us: u64,
    /// Interval between two such writes for `Group` and `Async`, in microseconds.
    pub group_us: u64,
}

impl Default for DiskModel {
    fn default() -> Self {
        DiskModel {
            sync_us: 200,
            group_us: 2_000,
        }
    }
}

/// How connections break and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkOptions {
    /// Time until a sender notices that its connection is broken, in microseconds.
    pub detect_us: u64,
    /// First pause between two attempts to connect, in microseconds. It doubles up to 50 times as long.
    pub reconnect_us: u64,
    /// Most bytes kept for a server that takes none.
    pub capacity_bytes: u64,
    /// Largest message, in bytes, between servers twice as much.
    pub message_bytes_max: u64,
}

impl Default for LinkOptions {
    fn default() -> Self {
        LinkOptions {
            detect_us: 10_000,
            reconnect_us: 10_000,
            capacity_bytes: 80 << 20,
            message_bytes_max: 20 << 20,
        }
    }
}

/// Writes are all watched in runs of up to so many operations, and one in 64 in longer ones.
const WATCHED_OPERATIONS_MAX: u64 = 20_000;

impl Options {
    /// A run of `operations` operations of `workload`: 2 replicas of 3 partitions 10 ms ± 5 ms apart, 8 clients,
    /// perfect clocks, no faults.
    pub fn new(seed: u64, workload: WorkloadSpec, operations: u64) -> Self {
        let watched = VisibilityOptions::default();
        Options {
            seed,
            replicas: 2,
            partitions: 3,
            clients: 8,
            operations,
            workload,
            spread_us: None,
            latency: Latency::Uniform {
                mean_us: 10_000,
                spread_us: 5_000,
            },
            intra_latency: Latency::Uniform {
                mean_us: 250,
                spread_us: 150,
            },
            bandwidth_bytes_s: None,
            links: LinkOptions::default(),
            clocks: ClockOptions::default(),
            cpu: CpuModel::default(),
            hosts: None,
            faults: Faults::None,
            durability: Durability::None,
            disk: DiskModel::default(),
            storage: "memory".to_owned(),
            request_timeout_us: 2_000_000,
            max_drift_us: 1_000_000,
            properties: Properties::default(),
            strict: false,
            trace: false,
            visibility: if operations <= WATCHED_OPERATIONS_MAX {
                VisibilityOptions {
                    one_in: 1,
                    watched_max: 100_000,
                    samples_max: 1_000_000,
                }
            } else {
                watched
            },
            time_limit_us: 3_600_000_000,
        }
    }

    /// The servers.
    pub fn topology(&self) -> Topology {
        Topology::grid(self.replicas, self.partitions)
    }

    /// Finds what contradicts itself or cannot be simulated.
    ///
    /// # Errors
    /// A sentence that says what and what to do.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let servers = usize::from(self.replicas) * usize::from(self.partitions);
        anyhow::ensure!(
            servers > 0,
            "a cluster has at least one replica and one partition"
        );
        anyhow::ensure!(
            servers <= usize::from(u16::MAX),
            "a cluster has at most {} servers, not {servers}",
            u16::MAX
        );
        anyhow::ensure!(self.clients > 0, "a run has at least one client");
        anyhow::ensure!(
            self.storage == "memory",
            "storage {:?} cannot be simulated: only `memory` can, engines with files of their own are run on TCP",
            self.storage
        );
        anyhow::ensure!(
            self.request_timeout_us > 0,
            "a request timeout is at least a microsecond"
        );
        anyhow::ensure!(
            self.bandwidth_bytes_s != Some(0),
            "a bandwidth of 0 bytes a second transmits nothing"
        );
        anyhow::ensure!(
            self.links.capacity_bytes >= 4 * self.links.message_bytes_max,
            "a link keeps at least four times the largest message"
        );
        self.latency.check(usize::from(self.replicas))?;
        self.intra_latency.check(usize::from(self.replicas))?;
        if let Some(hosts) = &self.hosts {
            anyhow::ensure!(
                hosts.len() == servers,
                "{} servers have a host, but the cluster has {servers}",
                hosts.len()
            );
        }
        Ok(())
    }
}
