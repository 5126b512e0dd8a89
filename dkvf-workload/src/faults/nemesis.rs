//! Schedules drawn from a seed.

use dkvf_core::{ServerId, Topology};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::links;
use super::{Disk, Fault, FaultKind, FaultKinds, Links, Schedule, Timed};

/// Most faults of a random schedule.
const FAULTS_MAX: f64 = 40.0;
/// Shortest and longest duration, in multiples of the scale it is drawn by.
const SCALES: (f64, f64) = (0.3, 30.0);
/// Slowest server, in times as long.
const FACTOR_MAX: f64 = 100.0;
/// Of a thousand messages at most so many go wrong in each way.
const PERMILLE_MAX: f64 = 200.0;
/// How often a fault is drawn anew that would contradict an earlier one or be one too many at a time.
const TRIES_MAX: u32 = 20;

/// What a random schedule may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NemesisOptions {
    /// The kinds of faults to choose from.
    pub kinds: FaultKinds,
    /// One seed is one schedule.
    pub seed: u64,
    /// When the run ends, in microseconds.
    pub horizon_us: u64,
    /// Time without faults before that, in microseconds.
    pub heal_us: u64,
    /// The longest period of the protocol's own timers, in microseconds; 0 if it has none.
    pub timer_us: u64,
    /// A usual latency of a link, in microseconds; 0 if it is not known.
    pub latency_us: u64,
    /// Most that steps and drift together take a clock away from where it was, in microseconds.
    pub skew_us: u64,
    /// Most that a clock's rate may be wrong by, in millionths.
    pub drift_ppm: u32,
    /// Most faults that last at the same time.
    pub concurrent_max: usize,
}

impl NemesisOptions {
    /// Faults of `kinds` within `horizon_us`, whose last fifth is quiet; at most three at a time, clocks off by at most
    /// 100 ms and 500 ppm.
    pub fn new(kinds: FaultKinds, seed: u64, horizon_us: u64) -> Self {
        NemesisOptions {
            kinds,
            seed,
            horizon_us,
            heal_us: horizon_us / 5,
            timer_us: 0,
            latency_us: 0,
            skew_us: 100_000,
            drift_ppm: 500,
            concurrent_max: 3,
        }
    }
}

impl Schedule {
    /// The schedule of a seed: one seed, one schedule, on every machine.
    ///
    /// - *Swarm*: each kind is on or off by a coin, at least one is on. A bug that a fault hides shows in the seeds without
    ///   that fault (A. Groce et al., *Swarm Testing*, ISSTA 2012).
    /// - *Scales*: how long a fault lasts is log-uniform from 0.3 to 30 times the protocol's timer, the latency of a link,
    ///   or a thirtieth of the run: shorter than what the protocol waits for, and much longer.
    /// - *Partitions* have every shape: halves, one server, one replica, one link, a bridge (one server reaches both
    ///   halves), each also one way only.
    /// - All faults end `heal_us` before the horizon; none contradicts another ([`Schedule::conflict`]).
    pub fn random(options: &NemesisOptions, topology: &Topology) -> Schedule {
        Nemesis::new(options, topology).draw()
    }
}

struct Nemesis<'a> {
    options: &'a NemesisOptions,
    topology: &'a Topology,
    rng: Pcg64Mcg,
    /// The kinds of this seed.
    on: Vec<FaultKind>,
    schedule: Schedule,
    /// By server: how far its clock is from where it was, in microseconds, once all faults so far have ended.
    clocks: Vec<i64>,
}

impl<'a> Nemesis<'a> {
    fn new(options: &'a NemesisOptions, topology: &'a Topology) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(options.seed);
        let two_servers = topology.members().len() > 1;
        let possible = |kind: &FaultKind| match kind {
            FaultKind::Partition | FaultKind::Delay | FaultKind::Hold | FaultKind::Break => {
                two_servers
            }
            FaultKind::Step => options.skew_us > 0,
            FaultKind::Drift => options.skew_us > 0 && options.drift_ppm > 0,
            _ => true,
        };
        let kinds: Vec<FaultKind> = options.kinds.iter().filter(possible).collect();
        let mut on: Vec<FaultKind> = kinds
            .iter()
            .copied()
            .filter(|_| rng.random::<bool>())
            .collect();
        if on.is_empty() && !kinds.is_empty() {
            on.push(kinds[rng.random_range(0..kinds.len())]);
        }
        Nemesis {
            options,
            topology,
            rng,
            on,
            schedule: Schedule::default(),
            clocks: vec![0; topology.members().len()],
        }
    }

    fn draw(mut self) -> Schedule {
        let end_us = self.options.horizon_us.saturating_sub(self.options.heal_us);
        if self.on.is_empty() || self.topology.members().is_empty() || end_us < 2 {
            return self.schedule;
        }
        let count = self.log_uniform(1.0, FAULTS_MAX) as usize;
        let mut starts: Vec<u64> = (0..count)
            .map(|_| self.rng.random_range(0..end_us - 1))
            .collect();
        starts.sort_unstable();
        for at_us in starts {
            self.add_fault(at_us, end_us);
        }
        self.schedule
    }

    /// Adds a fault that fits in, unless tries enough were in vain.
    fn add_fault(&mut self, at_us: u64, end_us: u64) {
        for _ in 0..TRIES_MAX {
            let kind = self.on[self.rng.random_range(0..self.on.len())];
            let for_us = self.duration().min(end_us - at_us);
            let node = ServerId(self.rng.random_range(0..self.topology.members().len()) as u16);
            let Some(fault) = self.fault(kind, node, for_us) else {
                continue;
            };
            if !self.fits(at_us, &fault) {
                continue;
            }
            let (for_us, moved_us) = match fault {
                Fault::Step { by_us, .. } => (None, by_us),
                Fault::Drift { ppm, .. } => (Some(for_us), drifted(ppm, for_us)),
                _ => (Some(for_us), 0),
            };
            self.clocks[node.index()] += moved_us;
            self.schedule.faults.push(Timed {
                at_us,
                for_us,
                fault,
            });
            return;
        }
    }

    /// Whether a fault that begins now goes with the earlier ones that last.
    fn fits(&self, at_us: u64, fault: &Fault) -> bool {
        let lasts = |timed: &&Timed| {
            timed
                .for_us
                .is_some_and(|for_us| timed.at_us + for_us > at_us)
        };
        // Where a clock gets to is known in advance only if it is not moved while it drifts.
        let clock = |fault: &Fault| match fault {
            Fault::Step { node, .. } | Fault::Drift { node, .. } => Some(*node),
            _ => None,
        };
        let excluded = |earlier: &Timed| {
            let same_clock = clock(fault).is_some() && clock(fault) == clock(&earlier.fault);
            same_clock || fault.excludes(&earlier.fault)
        };
        let lasting: Vec<&Timed> = self.schedule.faults.iter().filter(lasts).collect();
        lasting.len() < self.options.concurrent_max.max(1) && !lasting.into_iter().any(excluded)
    }

    fn fault(&mut self, kind: FaultKind, node: ServerId, for_us: u64) -> Option<Fault> {
        Some(match kind {
            FaultKind::Crash => Fault::Crash {
                node,
                disk: Disk::Kept,
            },
            FaultKind::CrashEmpty => Fault::Crash {
                node,
                disk: Disk::Empty,
            },
            FaultKind::Torn => Fault::Crash {
                node,
                disk: Disk::Torn,
            },
            FaultKind::DiskFull => Fault::DiskFull { node },
            FaultKind::Pause => Fault::Pause { node },
            FaultKind::Slow => Fault::Slow {
                node,
                factor: self.log_uniform(2.0, FACTOR_MAX) as u32,
            },
            FaultKind::Partition => Fault::Cut {
                links: self.links(),
            },
            FaultKind::Hold => Fault::Hold {
                links: self.links(),
            },
            FaultKind::Delay => {
                let by_us = self.duration().min(for_us);
                let jitter_us = if self.rng.random() { 0 } else { by_us };
                Fault::Delay {
                    links: self.links(),
                    by_us,
                    jitter_us,
                }
            }
            FaultKind::Step => return self.step(node),
            FaultKind::Drift => return self.drift(node, for_us),
            FaultKind::Break => self.broken(),
        })
    }

    /// A step to somewhere within the bound, near more often than far.
    fn step(&mut self, node: ServerId) -> Option<Fault> {
        let target = self.log_uniform(1.0, self.options.skew_us as f64) as i64;
        let ahead: bool = self.rng.random();
        let by_us = if ahead { target } else { -target } - self.clocks[node.index()];
        (by_us != 0).then_some(Fault::Step { node, by_us })
    }

    /// A drift whose end is within the bound.
    fn drift(&mut self, node: ServerId, for_us: u64) -> Option<Fault> {
        let rate = self.log_uniform(1.0, f64::from(self.options.drift_ppm)) as i32;
        let ppm = if self.rng.random() { rate } else { -rate };
        let end_us = self.clocks[node.index()] + drifted(ppm, for_us);
        (end_us.unsigned_abs() <= self.options.skew_us).then_some(Fault::Drift { node, ppm })
    }

    fn broken(&mut self) -> Fault {
        let mut permille = [0; 3];
        let at_least = self.rng.random_range(0..3);
        for (way, permille) in permille.iter_mut().enumerate() {
            if way == at_least || self.rng.random() {
                *permille = self.log_uniform(1.0, PERMILLE_MAX) as u16;
            }
        }
        let [lose_permille, repeat_permille, reorder_permille] = permille;
        Fault::Break {
            links: self.links(),
            lose_permille,
            repeat_permille,
            reorder_permille,
        }
    }

    /// The links that a partition cuts.
    fn links(&mut self) -> Links {
        let one_way = self.rng.random_range(0..4) == 0;
        let ids: Vec<ServerId> = self.topology.ids().collect();
        let one = ids[self.rng.random_range(0..ids.len())];
        let shapes = if self.topology.replicas() > 1 { 5 } else { 4 };
        match self.rng.random_range(0..shapes) {
            0 => links::around(&[one], self.topology, one_way),
            1 => {
                let others: Vec<ServerId> = ids.into_iter().filter(|id| *id != one).collect();
                let other = others[self.rng.random_range(0..others.len())];
                links::between(&[vec![one], vec![other]], one_way)
            }
            2 => links::between(&self.halves(ids), one_way),
            3 => {
                let others: Vec<ServerId> = ids.iter().copied().filter(|id| *id != one).collect();
                // Two servers have no third that reaches both.
                let divided = if others.len() > 1 { others } else { ids };
                links::between(&self.halves(divided), one_way)
            }
            _ => {
                let replica = self.topology.member(one).replica;
                let members = links::replica(self.topology, replica);
                links::around(&members, self.topology, one_way)
            }
        }
    }

    /// Two sides of any sizes, at least one server each, in any order.
    fn halves(&mut self, mut ids: Vec<ServerId>) -> [Vec<ServerId>; 2] {
        for place in (1..ids.len()).rev() {
            ids.swap(place, self.rng.random_range(0..=place));
        }
        let second = ids.split_off(self.rng.random_range(1..ids.len()));
        [ids, second]
    }

    /// How long something lasts, in microseconds, at least one.
    fn duration(&mut self) -> u64 {
        let thirtieth_us = (self.options.horizon_us as f64 / SCALES.1).max(1.0);
        let scales = [self.options.timer_us, self.options.latency_us];
        let scales: Vec<f64> = scales
            .into_iter()
            .filter(|scale_us| *scale_us > 0)
            .map(|scale_us| scale_us as f64)
            .chain([thirtieth_us])
            .collect();
        let scale_us = scales[self.rng.random_range(0..scales.len())];
        (self.log_uniform(SCALES.0 * scale_us, SCALES.1 * scale_us) as u64).max(1)
    }

    /// Each order of magnitude alike. `libm`, so that all machines draw the same.
    fn log_uniform(&mut self, min: f64, max: f64) -> f64 {
        let (low, high) = (libm::log(min), libm::log(max.max(min)));
        libm::exp(low + self.rng.random::<f64>() * (high - low)).clamp(min, max.max(min))
    }
}

/// How far a clock gets from the right time, in microseconds.
fn drifted(ppm: i32, for_us: u64) -> i64 {
    (i128::from(ppm) * i128::from(for_us) / 1_000_000) as i64
}
