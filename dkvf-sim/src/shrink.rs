//! Makes a failing run small: fewer faults, servers, clients and operations, and a simpler world, as long as it fails in the
//! same way.
//!
//! A run is a function of its options, so this is a search among options. Faults are removed by delta debugging (A. Zeller
//! and R. Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*, TSE 2002), numbers descend by halved steps, and
//! both are repeated until nothing can be taken away on its own.

use std::ops::{ControlFlow, Range};

use dkvf_core::{ServerId, Topology};
use dkvf_workload::faults::{Fault, Schedule, Timed};

use crate::options::{Faults, Options};
use crate::outcome::Outcome;
use crate::world::{ClockOptions, CpuModel, Latency};

/// What a search may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most runs.
    pub runs_max: u64,
    /// Seeds that are tried for each smaller run, from the present one upwards. A smaller run is another run, and the same
    /// mistake may need another schedule of messages to show in it.
    pub seeds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            runs_max: 3_000,
            seeds: 16,
        }
    }
}

/// The smallest failing run that was found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// It.
    pub options: Options,
    /// Runs that were made.
    pub runs: u64,
    /// Whether nothing more can be taken away on its own. Otherwise the limits or the caller ended the search.
    pub is_minimal: bool,
}

/// How large a run is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Servers.
    pub servers: usize,
    /// Client sessions.
    pub clients: u32,
    /// Operations.
    pub operations: u64,
    /// Faults of its schedule.
    pub faults: usize,
}

impl Size {
    /// The size of a run. The faults of a schedule that is not drawn yet are not counted.
    pub fn of(options: &Options) -> Self {
        Size {
            servers: usize::from(options.replicas) * usize::from(options.partitions),
            clients: options.clients,
            operations: options.operations,
            faults: schedule(options).map_or(0, |schedule| schedule.faults.len()),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let Size {
            servers,
            clients,
            operations,
            faults,
        } = *self;
        write!(
            f,
            "{servers} server{}, {clients} client{}, ",
            plural(servers as u64),
            plural(clients.into())
        )?;
        write!(
            f,
            "{operations} operation{}, {faults} fault{}",
            plural(operations),
            plural(faults as u64)
        )
    }
}

/// The same run with the faults that were drawn for it written down: what [`shrink`] begins with.
pub fn with_drawn_faults(options: &Options, outcome: &Outcome) -> Options {
    let mut fixed = options.clone();
    if let Faults::Random(_) = fixed.faults {
        fixed.faults = faults(outcome.schedule.clone());
    }
    fixed
}

/// Searches for a smaller run than `options` that fails as it does.
///
/// `failure` says how a run fails, if it does; a smaller run counts if that is equal to `expected`. Before each run
/// `progress` is told of the smallest so far and how many were made, and may end the search. The result is a function of
/// the arguments if these two are.
///
/// # Errors
/// Those of `failure`.
pub fn shrink<F: PartialEq>(
    options: &Options,
    expected: &F,
    limits: Limits,
    failure: impl FnMut(&Options) -> anyhow::Result<Option<F>>,
    progress: impl FnMut(&Options, u64) -> ControlFlow<()>,
) -> anyhow::Result<Shrunk> {
    let mut search = Search {
        best: options.clone(),
        expected,
        limits,
        failure,
        progress,
        runs: 0,
        is_ended: false,
    };
    let mut changed = true;
    while changed {
        changed = search.round()?;
    }
    Ok(Shrunk {
        options: search.best,
        runs: search.runs,
        is_minimal: !search.is_ended,
    })
}

struct Search<'a, F, Failure, Progress> {
    best: Options,
    expected: &'a F,
    limits: Limits,
    failure: Failure,
    progress: Progress,
    runs: u64,
    is_ended: bool,
}

impl<F, Failure, Progress> Search<'_, F, Failure, Progress>
where
    F: PartialEq,
    Failure: FnMut(&Options) -> anyhow::Result<Option<F>>,
    Progress: FnMut(&Options, u64) -> ControlFlow<()>,
{
    /// Tries to take away of everything. Returns whether there is less now.
    fn round(&mut self) -> anyhow::Result<bool> {
        let mut changed = self.remove_faults()?;
        changed |= self.descend(|options| options.replicas.into(), with_replicas)?;
        changed |= self.descend(|options| options.partitions.into(), with_partitions)?;
        // Fewer clients at the same pace each; then as many operations by fewer clients.
        changed |= self.descend(
            |options| options.clients.into(),
            with_clients_and_operations,
        )?;
        changed |= self.descend(|options| options.clients.into(), with_clients)?;
        changed |= self.descend(|options| options.operations, with_operations)?;
        for simplify in SIMPLER {
            if let Some(candidate) = simplify(&self.best) {
                changed |= self.accept(&candidate)?;
            }
        }
        Ok(changed)
    }

    /// Takes `candidate` for the best if it fails as expected, under the present seed or one of the next.
    fn accept(&mut self, candidate: &Options) -> anyhow::Result<bool> {
        for offset in 0..self.limits.seeds.max(1) {
            self.is_ended |= self.runs >= self.limits.runs_max;
            if self.is_ended || (self.progress)(&self.best, self.runs).is_break() {
                self.is_ended = true;
                return Ok(false);
            }
            let seed = self.best.seed.wrapping_add(offset);
            let candidate = Options {
                seed,
                ..candidate.clone()
            };
            self.runs += 1;
            if (self.failure)(&candidate)?.as_ref() == Some(self.expected) {
                self.best = candidate;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a number as small as it can be by steps of half its size and less, down to 1.
    fn descend(
        &mut self,
        number: impl Fn(&Options) -> u64,
        with: impl Fn(&Options, u64) -> Options,
    ) -> anyhow::Result<bool> {
        let before = number(&self.best);
        let mut step = before.saturating_sub(1);
        while step > 0 {
            let next = number(&self.best).saturating_sub(step);
            if next == 0 || !self.accept(&with(&self.best, next))? {
                step /= 2;
            }
        }
        Ok(number(&self.best) < before)
    }

    /// Removes runs of faults, from all of them down to single ones.
    fn remove_faults(&mut self) -> anyhow::Result<bool> {
        let count =
            |options: &Options| schedule(options).map_or(0, |schedule| schedule.faults.len());
        let before = count(&self.best);
        let mut length = before;
        while length > 0 {
            let mut start = 0;
            while start < count(&self.best) {
                let removed = start..(start + length).min(count(&self.best));
                let candidate = without_faults(&self.best, &removed);
                let is_less = match candidate {
                    Some(candidate) => self.accept(&candidate)?,
                    None => false,
                };
                if !is_less {
                    start = removed.end;
                }
            }
            length /= 2;
        }
        Ok(count(&self.best) < before)
    }
}

fn schedule(options: &Options) -> Option<&Schedule> {
    match &options.faults {
        Faults::Schedule(schedule) => Some(schedule),
        Faults::None | Faults::Random(_) => None,
    }
}

fn faults(schedule: Schedule) -> Faults {
    if schedule.faults.is_empty() {
        Faults::None
    } else {
        Faults::Schedule(schedule)
    }
}

/// `None` if the rest makes no sense: a restart without its crash.
fn without_faults(options: &Options, removed: &Range<usize>) -> Option<Options> {
    let mut rest = schedule(options)?.clone();
    rest.faults.drain(removed.clone());
    rest.conflict().is_none().then(|| Options {
        faults: faults(rest),
        ..options.clone()
    })
}

/// The first operations of the run: they keep their pace.
fn with_operations(options: &Options, operations: u64) -> Options {
    let share = |us: u64| {
        (u128::from(us) * u128::from(operations) / u128::from(options.operations.max(1))) as u64
    };
    Options {
        operations,
        spread_us: options.spread_us.map(share),
        ..options.clone()
    }
}

fn with_clients(options: &Options, clients: u64) -> Options {
    let clients = u32::try_from(clients).unwrap_or(u32::MAX);
    Options {
        clients,
        ..options.clone()
    }
}

fn with_clients_and_operations(options: &Options, clients: u64) -> Options {
    let operations =
        u128::from(options.operations) * u128::from(clients) / u128::from(options.clients.max(1));
    Options {
        operations: (operations as u64).max(1),
        ..with_clients(options, clients)
    }
}

fn with_replicas(options: &Options, replicas: u64) -> Options {
    with_servers(options, replicas as u16, options.partitions)
}

fn with_partitions(options: &Options, partitions: u64) -> Options {
    with_servers(options, options.replicas, partitions as u16)
}

/// The servers with the lowest numbers, and the faults that concern them.
fn with_servers(options: &Options, replicas: u16, partitions: u16) -> Options {
    let (old, new) = (options.topology(), Topology::grid(replicas, partitions));
    let kept: Vec<ServerId> = new
        .ids()
        .map(|id| {
            old.server(
                new.member(id).replica.into(),
                new.member(id).partition.into(),
            )
        })
        .collect();
    let mut smaller = options.clone();
    (smaller.replicas, smaller.partitions) = (replicas, partitions);
    let hosts = options.hosts.as_ref();
    smaller.hosts = hosts.map(|hosts| kept.iter().map(|old| hosts[old.index()]).collect());
    if let Some(schedule) = schedule(options) {
        let renamed = |old: ServerId| {
            kept.iter()
                .position(|id| *id == old)
                .map(|index| ServerId(index as u16))
        };
        let kept = schedule
            .faults
            .iter()
            .filter_map(|timed| among(timed, renamed));
        smaller.faults = faults(Schedule {
            faults: kept.collect(),
        });
    }
    smaller
}

/// The part of a fault that concerns servers with a new number.
fn among(timed: &Timed, renamed: impl Fn(ServerId) -> Option<ServerId>) -> Option<Timed> {
    let mut timed = timed.clone();
    match &mut timed.fault {
        Fault::Crash { node, .. }
        | Fault::Restart { node }
        | Fault::Pause { node }
        | Fault::Slow { node, .. }
        | Fault::Step { node, .. }
        | Fault::Drift { node, .. }
        | Fault::DiskFull { node } => *node = renamed(*node)?,
        Fault::Cut { links }
        | Fault::Hold { links }
        | Fault::Delay { links, .. }
        | Fault::Break { links, .. } => {
            *links = links
                .iter()
                .filter_map(|(from, to)| Some((renamed(*from)?, renamed(*to)?)))
                .collect();
            if links.is_empty() {
                return None;
            }
        }
    }
    Some(timed)
}

/// Ways to make the world simpler; `None` where it is simple already.
const SIMPLER: [fn(&Options) -> Option<Options>; 5] = [
    |options| {
        let latency = constant(&options.latency, 1)?;
        Some(Options {
            latency,
            ..options.clone()
        })
    },
    |options| {
        let intra_latency = constant(&options.intra_latency, 0)?;
        Some(Options {
            intra_latency,
            ..options.clone()
        })
    },
    |options| {
        let perfect = ClockOptions::default();
        (options.clocks != perfect).then(|| Options {
            clocks: perfect,
            ..options.clone()
        })
    },
    |options| {
        let free = CpuModel::default();
        (options.cpu != free).then(|| Options {
            cpu: free,
            ..options.clone()
        })
    },
    |options| {
        options.bandwidth_bytes_s?;
        Some(Options {
            bandwidth_bytes_s: None,
            ..options.clone()
        })
    },
];

/// Always what it is on the average from the first replica to replica `to`.
fn constant(latency: &Latency, to: usize) -> Option<Latency> {
    match latency {
        Latency::Constant(_) => None,
        Latency::Matrix(matrix) if matrix.names().len() <= to => None,
        other => Some(Latency::Constant(other.mean_us(0, to))),
    }
}
