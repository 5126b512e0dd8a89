//! From the command line to the options of each run.

use dkvf_core::Topology;
use dkvf_sim::{CpuModel, Durability, Faults, Latency, Ntp, Options, Subject};
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::{FaultKind, FaultKinds, Schedule};

use super::arguments::Arguments;
use super::files;
use super::words::{self, optional, within};
use crate::usage;
use crate::workload::{WorkloadArguments, key_value};

/// Operations where nobody says how many.
const OPERATIONS: u64 = 1_000;
/// Records of a built-in workload where nobody says how many, and bytes of their values. Sessions that meet on a few keys
/// find more mistakes than those that miss each other on many.
const RECORDS: &str = "32";
const VALUE_BYTES: &str = "16";
/// Time over which operations are spread while faults happen, in microseconds.
const SPREAD_WITH_FAULTS_US: u64 = 2_000_000;
/// Largest cluster, and most client sessions.
const SERVERS_MAX: u32 = 4_096;
const CLIENTS_MAX: u32 = 1_000_000;
/// Most operations of a run: their history is kept in memory.
const OPERATIONS_MAX: u64 = 1_000_000_000;
/// The runs of a command: a run for each seed.
#[derive(Clone, Debug)]
pub struct Plan {
    subject: Subject,
    conformance: bool,
    workload: WorkloadSpec,
    faults: GivenFaults,
    world: World,
}

/// Faults as the command line gives them.
#[derive(Clone, Debug)]
enum GivenFaults {
    /// Drawn from the seed.
    Random(FaultKinds),
    /// The text of a schedule and where it comes from. What it means depends on the cluster.
    Schedule { name: String, text: String },
}

/// What the command line says of the world; `None` where it says nothing.
#[derive(Clone, Debug)]
struct World {
    operations: Option<u64>,
    clients: Option<u32>,
    replicas: Option<u16>,
    partitions: Option<u16>,
    spread_us: Option<Option<u64>>,
    latency: Option<Latency>,
    intra_latency: Option<Latency>,
    bandwidth_bytes_s: Option<Option<u64>>,
    skew_us: Option<u64>,
    drift_ppm: Option<u32>,
    ntp: Option<Option<Ntp>>,
    cpu: Option<CpuModel>,
    storage: Option<String>,
    durability: Option<Durability>,
    timeout_us: Option<u64>,
    properties: Vec<(String, String)>,
    strict: Option<bool>,
}

impl Plan {
    /// Reads the command line and the files it names.
    ///
    /// # Errors
    /// Something cannot be understood, read or simulated.
    pub fn new(subject: Subject, arguments: &Arguments) -> anyhow::Result<Self> {
        let world = World::new(arguments)?;
        let workload = arguments.workload.spec(defaults(&arguments.workload))?;
        for warning in &workload.warnings {
            eprintln!("dkvf: warning: {warning}");
        }
        Ok(Plan {
            subject,
            conformance: arguments.runs.conformance,
            faults: GivenFaults::new(&arguments.world.faults)?,
            workload,
            world,
        })
    }

    /// The run of a seed.
    ///
    /// # Errors
    /// The fault schedule does not fit the cluster.
    pub fn options(&self, seed: u64) -> anyhow::Result<Options> {
        let faults = match &self.faults {
            GivenFaults::Random(kinds) if kinds.is_empty() => Faults::None,
            GivenFaults::Random(kinds) => Faults::Random(*kinds),
            GivenFaults::Schedule { name, text } => Faults::Schedule(
                Schedule::parse(name, text.as_bytes(), &self.topology(seed)).map_err(usage)?,
            ),
        };
        let mut options = self.bare(seed, &faults);
        self.world.apply(&mut options);
        Ok(options)
    }

    /// The cluster of a seed: it does not depend on the faults.
    fn topology(&self, seed: u64) -> Topology {
        let mut options = self.bare(seed, &Faults::None);
        self.world.apply(&mut options);
        options.topology()
    }

    /// The run of a seed with these faults where the command line says nothing else.
    pub fn bare(&self, seed: u64, faults: &Faults) -> Options {
        let kinds = match faults {
            Faults::None => FaultKinds::NONE,
            Faults::Schedule(schedule) => FaultKinds::of(schedule),
            Faults::Random(kinds) => *kinds,
        };
        let mut options = if self.conformance {
            self.subject.conformance(seed, kinds)
        } else {
            let mut options = Options::new(seed, self.workload.clone(), OPERATIONS);
            options.spread_us = (!kinds.is_empty()).then_some(SPREAD_WITH_FAULTS_US);
            let needs_disk = [FaultKind::Crash, FaultKind::Torn, FaultKind::DiskFull];
            if needs_disk.into_iter().any(|kind| kinds.contains(kind)) {
                options.durability = Durability::Group;
            }
            options
        };
        options.faults = faults.clone();
        options
    }
}

/// What a built-in workload has here where the command line says nothing; a file says it all.
fn defaults(workload: &WorkloadArguments) -> &'static [(&'static str, &'static str)] {
    // Keys in their order have short names.
    const DEFAULTS: [(&str, &str); 3] = [
        ("recordcount", RECORDS),
        ("insertorder", "ordered"),
        ("valuesize", VALUE_BYTES),
    ];
    let has_fields = workload.sets("fieldlength") || workload.sets("fieldcount");
    match (workload.is_builtin(), has_fields) {
        (true, false) => &DEFAULTS,
        (true, true) => &DEFAULTS[..2],
        (false, _) => &[],
    }
}

impl World {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let world = &arguments.world;
        let world = World {
            operations: within("--ops", arguments.runs.ops, OPERATIONS_MAX)?,
            clients: within("--clients", arguments.runs.clients, CLIENTS_MAX)?,
            replicas: within("--replicas", world.replicas, 64)?,
            partitions: within("--partitions", world.partitions, 1_024)?,
            spread_us: optional(
                "--spread",
                world.spread.as_deref(),
                "milliseconds, more than 0",
                |text| words::milliseconds(text).filter(|us| *us > 0),
            )?,
            latency: world
                .latency
                .as_deref()
                .map(|text| words::latency("--latency", text))
                .transpose()?,
            intra_latency: world
                .intra_latency
                .as_deref()
                .map(|text| words::latency("--intra-latency", text))
                .transpose()?,
            bandwidth_bytes_s: optional(
                "--bandwidth",
                world.bandwidth.as_deref(),
                "bytes per second, at least 1",
                |text| text.parse().ok().filter(|bytes| *bytes > 0),
            )?,
            skew_us: world
                .skew
                .map(|ms| words::positive_ms("--skew", ms))
                .transpose()?,
            drift_ppm: within("--drift", world.drift.filter(|ppm| *ppm > 0), 100_000)?
                .or(world.drift),
            ntp: optional(
                "--ntp",
                world.ntp.as_deref(),
                "INTERVAL:ERROR in milliseconds, INTERVAL at least 1",
                words::ntp,
            )?,
            cpu: world.cpu.as_deref().map(words::cpu).transpose()?,
            storage: world.storage.as_deref().map(words::storage).transpose()?,
            durability: world
                .durability
                .as_deref()
                .map(words::durability)
                .transpose()?,
            timeout_us: world
                .timeout
                .map(|ms| words::positive_ms("--timeout", ms))
                .transpose()?,
            properties: world
                .protocol_property
                .iter()
                .map(|text| key_value("--protocol-property", text))
                .collect::<anyhow::Result<_>>()?,
            strict: world.strict,
        };
        world.check_size()?;
        Ok(world)
    }

    fn check_size(&self) -> anyhow::Result<()> {
        if let (Some(replicas), Some(partitions)) = (self.replicas, self.partitions)
            && u32::from(replicas) * u32::from(partitions) > SERVERS_MAX
        {
            return Err(usage(format!(
                "{replicas} x {partitions} servers: at most {SERVERS_MAX}; choose fewer --replicas or --partitions"
            )));
        }
        if self.timeout_us == Some(0) {
            return Err(usage("--timeout 0: a client waits for at least 0.001 ms"));
        }
        Ok(())
    }

    fn apply(&self, options: &mut Options) {
        fn set<T: Clone>(target: &mut T, given: Option<&T>) {
            if let Some(given) = given {
                target.clone_from(given);
            }
        }
        set(&mut options.operations, self.operations.as_ref());
        set(&mut options.clients, self.clients.as_ref());
        set(&mut options.replicas, self.replicas.as_ref());
        set(&mut options.partitions, self.partitions.as_ref());
        set(&mut options.spread_us, self.spread_us.as_ref());
        set(&mut options.latency, self.latency.as_ref());
        set(&mut options.intra_latency, self.intra_latency.as_ref());
        set(
            &mut options.bandwidth_bytes_s,
            self.bandwidth_bytes_s.as_ref(),
        );
        set(&mut options.clocks.skew_us, self.skew_us.as_ref());
        set(&mut options.clocks.drift_ppm, self.drift_ppm.as_ref());
        set(&mut options.clocks.ntp, self.ntp.as_ref());
        set(&mut options.cpu, self.cpu.as_ref());
        set(&mut options.storage, self.storage.as_ref());
        set(&mut options.durability, self.durability.as_ref());
        set(&mut options.request_timeout_us, self.timeout_us.as_ref());
        set(&mut options.strict, self.strict.as_ref());
        for (key, value) in &self.properties {
            options.properties.set(key, value);
        }
    }
}

impl GivenFaults {
    /// Kinds of faults, a file, or the lines of one.
    fn new(words: &[String]) -> anyhow::Result<Self> {
        let is_line = |word: &String| word.trim_start().starts_with('{');
        match words {
            [] => Ok(GivenFaults::Random(FaultKinds::NONE)),
            lines if lines.iter().all(is_line) => Ok(GivenFaults::Schedule {
                name: "--faults".to_owned(),
                text: lines.join("\n"),
            }),
            [word] => match word.parse() {
                Ok(kinds) => Ok(GivenFaults::Random(kinds)),
                Err(_) if std::path::Path::new(word).exists() => Ok(GivenFaults::Schedule {
                    name: word.clone(),
                    text: files::read("--faults", word)?,
                }),
                Err(error) => Err(usage(format!("--faults: {error}; or name a schedule file"))),
            },
            _ => Err(usage(
                "--faults: given several times it is the lines of a schedule; kinds of faults are joined by commas",
            )),
        }
    }
}
