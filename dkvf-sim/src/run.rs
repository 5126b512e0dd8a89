//! One run from start to outcome: load, clients and faults, healing, rest, final reads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use dkvf_check::Outcome as RecordedOutcome;
use dkvf_core::Protocol;
use dkvf_workload::faults::{NemesisOptions, Schedule};
use dkvf_workload::{
    Driver, Entry, Kind, NamedKey, Progress, READERS, Recorder, Status, Window, Workload,
};
use xxhash_rust::xxh3::Xxh3;

use crate::measure;
use crate::options::{Faults, Options};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::random::derived_seed;
use crate::simulation::Simulation;
use crate::trace::TraceEvent;
use crate::verdict;

/// Longest time, in virtual microseconds, until a cluster without faults and clients is at rest.
const REST_US_MAX: u64 = 120_000_000;
/// Sessions of the final reads are numbered downwards from here, far above those of the workload.
const FINAL_SESSIONS: u32 = 1 << 31;
/// Timer of protocols that have none, for the scale of random faults, in microseconds.
const TIMER_US: u64 = 10_000;

/// Simulates one run. Equal options give equal outcomes on every machine.
///
/// Records are loaded while nothing goes wrong. Then clients and faults begin. When all operations have ended, or the
/// time limit is reached, everything is healed and the cluster comes to rest; what still waits then is a failure. At
/// last new sessions read every key at every replica.
///
/// # Errors
/// Options that contradict themselves or cannot be simulated. What goes wrong in the run is in its [`Outcome`].
pub fn run<P: Protocol>(options: &Options) -> anyhow::Result<Outcome> {
    let mut run = Run::<P>::new(options)?;
    run.load();
    run.measure();
    run.come_to_rest();
    run.read_finally();
    run.outcome()
}

struct Run<P: Protocol> {
    simulation: Simulation<P>,
    driver: Rc<Driver<P::Client>>,
    workload: Workload,
    progress: Arc<Progress>,
}

impl<P: Protocol> Run<P> {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let mut simulation = Simulation::<P>::new(options)?;
        let mut spec = options.workload.clone();
        spec.operation_count = Some(options.operations);
        if let Some(spread_us) = options.spread_us {
            spec.target_ops_s = Some(options.operations as f64 * 1e6 / spread_us.max(1) as f64);
        }
        let recorder =
            Recorder::new(options.operations as usize * spec.entries_per_operation() + 1);
        let workload = Workload::new(
            spec,
            derived_seed(options.seed, "workload"),
            options.clients,
        );
        let progress = Arc::new(Progress::default());
        let (port, topology) = (simulation.port.clone(), simulation.topology.clone());
        let driver = Driver::<P::Client>::new(
            port.clone(),
            Box::new(move |replica| port.session(&topology, replica)),
            workload.clone(),
            progress.clone(),
            Some(recorder),
        );
        simulation.executor = Some(driver.clone());
        Ok(Run {
            simulation,
            driver,
            workload,
            progress,
        })
    }

    fn sessions(&self) -> Vec<(u32, u16)> {
        let replicas = self.simulation.options.replicas;
        (0..self.workload.sessions())
            .map(|session| (session, (session % u32::from(replicas)) as u16))
            .collect()
    }

    /// Starts a phase and runs it to its end, or to `until_us`. Returns whether it ended.
    fn phase(
        &mut self,
        until_us: u64,
        start: impl FnOnce(&Driver<P::Client>, Box<dyn FnOnce()>),
    ) -> bool {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        self.simulation.port.set_now(self.simulation.now_us);
        start(&self.driver, Box::new(move || end.set(true)));
        self.simulation.carry_out_wishes();
        self.simulation.run_while(until_us, |_| !ended.get());
        if ended.get() || self.simulation.failure.is_some() {
            return true;
        }
        // Who waits for an answer gets one, or gives up; then nobody starts anything more.
        self.progress.stop();
        self.driver.look_at_stop_sign();
        self.simulation.carry_out_wishes();
        let patience_us = until_us.saturating_add(REST_US_MAX);
        self.simulation.run_while(patience_us, |_| !ended.get());
        false
    }

    fn load(&mut self) {
        let sessions = self.sessions();
        let until_us = self.simulation.options.time_limit_us;
        let ended = self.phase(until_us, |driver, finished| {
            driver.load(&sessions, finished)
        });
        if !ended || self.progress.is_stopped() {
            let why = self
                .driver
                .take_report()
                .last_failure
                .unwrap_or_else(|| "the time limit was reached".to_owned());
            self.fail(FailureKind::Load, why);
        }
        self.progress.reset();
        self.rest();
    }

    fn measure(&mut self) {
        let schedule = self.schedule();
        self.simulation.follow(schedule);
        let (sessions, start_us) = (self.sessions(), self.simulation.now_us);
        let end_us = self.simulation.options.time_limit_us.max(start_us);
        let window = Window {
            start_us,
            measure_us: start_us,
            end_us,
        };
        self.phase(end_us, |driver, finished| {
            driver.run(&sessions, window, finished)
        });
        self.progress.reset();
    }

    fn schedule(&self) -> Schedule {
        let options = &self.simulation.options;
        match &options.faults {
            Faults::None => Schedule::default(),
            Faults::Schedule(schedule) => schedule.clone(),
            Faults::Random(kinds) => {
                let timer_us = self.simulation.longest_period_us().max(TIMER_US);
                let horizon_us = options.spread_us.unwrap_or(100 * timer_us);
                let nemesis = NemesisOptions {
                    timer_us,
                    latency_us: options
                        .latency
                        .mean_us(0, usize::from(options.replicas) - 1),
                    ..NemesisOptions::new(*kinds, derived_seed(options.seed, "faults"), horizon_us)
                };
                Schedule::random(&nemesis, &self.simulation.topology)
            }
        }
    }

    fn come_to_rest(&mut self) {
        self.simulation.heal();
        self.rest();
        for id in self.simulation.topology.ids() {
            let status = self
                .simulation
                .node(id)
                .map(|node| node.status())
                .unwrap_or_default();
            if status.parked > 0 && self.simulation.failure.is_none() {
                let sites: Vec<String> = status
                    .parked_at
                    .iter()
                    .map(|(site, count)| format!("{count} at {site}"))
                    .collect();
                let text = format!(
                    "{} still wait although everything is at rest: {}",
                    status.parked,
                    sites.join(", ")
                );
                self.simulation.fail(id, FailureKind::Parked, text);
            }
        }
    }

    /// Lets the cluster go on until nothing but heartbeats is on its way and cut-offs have passed.
    fn rest(&mut self) {
        let limit_us = self.simulation.now_us + REST_US_MAX;
        let mut was_quiet = false;
        while self.simulation.failure.is_none() {
            let until_us = self.simulation.now_us + self.grace_us();
            self.simulation.run_until(until_us);
            let is_quiet = self.simulation.is_quiet();
            if is_quiet && was_quiet {
                return;
            }
            was_quiet = is_quiet;
            if self.simulation.now_us > limit_us {
                let text = format!(
                    "not at rest {} s after the last fault and operation",
                    REST_US_MAX / 1_000_000
                );
                return self.fail(FailureKind::Restless, text);
            }
        }
    }

    /// Time in which what was sent has arrived and cut-offs have made their rounds: several periods and latencies, and
    /// as much as the clocks differ.
    fn grace_us(&mut self) -> u64 {
        let simulation = &mut self.simulation;
        let now_us = simulation.now_us;
        let shown = simulation
            .machines
            .iter()
            .map(|machine| machine.clock_max_us)
            .max()
            .unwrap_or(0);
        let clocks = simulation
            .hosts
            .iter_mut()
            .map(|host| host.clock.read(now_us).clock_us);
        let spread_us = shown.saturating_sub(clocks.min().unwrap_or(shown));
        let replicas = usize::from(simulation.options.replicas);
        let pairs = (0..replicas).flat_map(|from| (0..replicas).map(move |to| (from, to)));
        let latency_us = pairs
            .map(|(from, to)| simulation.options.latency.mean_us(from, to))
            .max()
            .unwrap_or(0);
        spread_us + 8 * simulation.longest_period_us() + 6 * latency_us + 10_000
    }

    fn read_finally(&mut self) {
        let naming = self.workload.spec().naming;
        let keys: Vec<NamedKey> = self
            .driver
            .recorded_keys()
            .into_iter()
            .map(|index| NamedKey {
                index,
                bytes: naming.name(index),
            })
            .collect();
        for replica in 0..self.simulation.options.replicas {
            if self.simulation.failure.is_some() {
                return;
            }
            let session = FINAL_SESSIONS - READERS * (1 + u32::from(replica));
            let until_us = self.simulation.now_us + REST_US_MAX;
            let keys = keys.clone();
            self.phase(until_us, |driver, finished| {
                driver.read_all(session, replica, keys, move |_| finished());
            });
            self.progress.reset();
        }
    }

    fn fail(&mut self, kind: FailureKind, text: String) {
        let at_us = self.simulation.now_us;
        self.simulation.failure.get_or_insert(Failure {
            node: None,
            at_us,
            kind,
            text,
        });
    }

    fn outcome(mut self) -> anyhow::Result<Outcome> {
        for id in self.simulation.topology.ids() {
            self.simulation.collect_visibility(id);
        }
        let state_hash = self.simulation.state_hash()?;
        let measurements = self.driver.take_report().measurements;
        let recorder = self
            .driver
            .take_recorder()
            .unwrap_or_else(|| Recorder::new(0));
        let options = self.simulation.options.clone();
        let history = verdict::history::<P>(
            &recorder,
            &self.workload,
            usize::from(options.replicas),
            options.seed,
        );
        let entries: Vec<&Entry> = recorder.entries().collect();
        let simulation = self.simulation;
        let naming = &self.workload.spec().naming;
        let mut trace = simulation.trace.unwrap_or_default();
        if options.trace {
            for event in &mut trace {
                event.rename_clients(|number| self.driver.recorded_session(number));
            }
            trace.extend(entries.iter().map(|entry| operation(entry, &self.workload)));
            trace.sort_by_key(TraceEvent::begin_us);
        }
        Ok(Outcome {
            seed: options.seed,
            events: simulation.events,
            deliveries: simulation.deliveries,
            virtual_us: simulation.now_us,
            state_hash,
            operations: measurements.count(Status::Ok) + measurements.count(Status::NotFound),
            failed: measurements.count(Status::Error),
            unknown: measurements.count(Status::Unknown),
            visibility: measure::visibility(&entries, naming, &simulation.seen),
            staleness: measure::staleness(&entries),
            history,
            failure: simulation.failure,
            messages: simulation.counts.by_name(),
            measurements,
            trace,
            schedule: simulation.schedule,
            recovery: simulation.recovery,
        })
    }
}

impl<P: Protocol> Simulation<P> {
    /// A hash of the state and store of every server, down or up.
    ///
    /// # Errors
    /// A store failed.
    pub fn state_hash(&self) -> anyhow::Result<u64> {
        let mut hash = Xxh3::new();
        for machine in &self.machines {
            let state = machine
                .node
                .as_ref()
                .map_or(Ok(0), |node| node.state_hash())?;
            hash.update(&state.to_le_bytes());
        }
        Ok(hash.digest())
    }
}

fn operation(entry: &Entry, workload: &Workload) -> TraceEvent {
    let key = workload.spec().naming.name(entry.key_index);
    TraceEvent::Operation {
        session: entry.session,
        replica: entry.site,
        kind: match entry.kind {
            Kind::Read => "read".to_owned(),
            Kind::Write => "write".to_owned(),
        },
        key: String::from_utf8_lossy(&key).into_owned(),
        value: entry.value.map(|tag| tag.to_string()),
        start_us: entry.invoke_us,
        end_us: entry.complete_us,
        failed: entry.outcome == RecordedOutcome::Fail,
    }
}
