//! One run: start a cluster, load it, put load on it, check what was recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dkvf_check::{About, Evidence, History, Model, Verdict, native};
use dkvf_core::config::{Flush, NodeConfig};
use dkvf_core::net::Address;
use dkvf_core::net::clock::HostClock;
use dkvf_core::net::cluster::Layout;
use dkvf_core::net::pool::{ClientPool, PoolOptions};
use dkvf_core::net::status::{ServerStatus, Traffic};
use dkvf_core::net::worker::Local;
use dkvf_core::node::VisibilitySample;
use dkvf_core::{Outcome, Protocol, Topology};
use dkvf_workload::{
    Driver, Measurements, NamedKey, OperationKind, Progress, READERS, Recorder, Report, Status,
    Tag, Window, Workload, WorkloadSpec,
};
use hdrhistogram::Histogram;

use crate::report::{CheckReport, Latency, RunReport, Visibility};
use crate::target::{Embedded, Processes, ServerOptions, Target};
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

/// Time within which something must move: an operation end, a link get shorter, a record become visible. Delays of links
/// come on top.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at the user, and at whether a phase has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that sessions have to finish their operations after the user's interrupt.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(1);
/// First and longest pause between two questions to the servers that were in vain.
const POLL_PAUSE: Duration = Duration::from_millis(5);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(320);
/// Sessions of the final reads are numbered below this in the history.
const FINAL_SESSIONS: u32 = u32::MAX - 1;

/// Runs `options` with protocol `P`.
///
/// # Errors
/// A server fails, the load phase fails, or the workload asks for what the protocol does not offer.
pub fn run<P: Protocol>(options: &RunOptions, observer: &dyn Observer) -> anyhow::Result<Finished> {
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

/// The load side of a run: one driver per session worker.
struct Load<'a, P: Protocol> {
    target: &'a dyn Target,
    workload: Workload,
    progress: Arc<Progress>,
    observer: &'a dyn Observer,
    /// Of a request.
    timeout: Duration,
    /// By worker: the number of its driver there.
    drivers: Vec<usize>,
    protocol: std::marker::PhantomData<P>,
}

struct LocalDriver<P: Protocol> {
    driver: Rc<Driver<P::Client>>,
    pool: Rc<ClientPool<P::Metadata>>,
}

impl<'a, P: Protocol> Load<'a, P> {
    fn start(
        options: &RunOptions,
        observer: &'a dyn Observer,
        target: &'a dyn Target,
    ) -> anyhow::Result<Self> {
        let workload = Workload::new(options.workload.clone(), options.seed, options.clients);
        let progress = Arc::new(Progress::default());
        let workers = target.session_workers();
        let mut drivers = Vec::new();
        for worker in 0..workers {
            let (topology, addresses) = (target.topology().clone(), target.client_addresses());
            let (workload, progress, timeout, flush) = (
                workload.clone(),
                progress.clone(),
                options.timeout,
                options.servers.flush,
            );
            let recorder = options
                .check
                .map(|operations| Recorder::new(operations / workers));
            drivers.push(target.session_worker(worker).call(move |local| {
                start_driver::<P>(
                    local, topology, addresses, timeout, flush, workload, progress, recorder,
                )
            })?);
        }
        Ok(Load {
            target,
            workload,
            progress,
            observer,
            timeout: options.timeout,
            drivers,
            protocol: std::marker::PhantomData,
        })
    }

    /// The sessions of a worker: numbers in the workload, each with its replica.
    fn sessions_of(&self, worker: usize) -> Vec<(u32, u16)> {
        let replicas = self.target.topology().replicas() as u32;
        let sessions =
            (0..self.workload.sessions()).map(|session| (session, (session % replicas) as u16));
        sessions
            .filter(|(_, replica)| usize::from(*replica) % self.drivers.len() == worker)
            .collect()
    }

    fn with_driver<T: Send + 'static>(
        &self,
        worker: usize,
        job: impl FnOnce(&LocalDriver<P>) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let number = self.drivers[worker];
        self.target
            .session_worker(worker)
            .call(move |local| job(&local.kept::<LocalDriver<P>>(number)))
    }

    /// Starts a phase on every worker; the receiver gets one message per finished worker.
    fn start_phase(
        &self,
        start: impl Fn(&Driver<P::Client>, Vec<(u32, u16)>, Box<dyn FnOnce()>) + Send + Clone + 'static,
    ) -> anyhow::Result<mpsc::Receiver<()>> {
        let (finished, all_finished) = mpsc::channel();
        for worker in 0..self.drivers.len() {
            let (sessions, start, finished) =
                (self.sessions_of(worker), start.clone(), finished.clone());
            self.with_driver(worker, move |local| {
                start(
                    &local.driver,
                    sessions,
                    Box::new(move || {
                        let _ = finished.send(());
                    }),
                )
            })?;
        }
        Ok(all_finished)
    }

    /// Reads `keys` at every replica; the answers by replica. `done` is told how many were read.
    fn read_everywhere(
        &self,
        keys: &[NamedKey],
        patience: &Patience,
        done: &dyn Fn(u64),
    ) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
        let mut answers = Vec::new();
        for replica in 0..self.target.topology().replicas() {
            self.progress.reset();
            let worker = replica % self.drivers.len();
            let (finished, answer) = mpsc::channel();
            let copy = keys.to_vec();
            let session = FINAL_SESSIONS - READERS * (1 + replica as u32);
            self.with_driver(worker, move |local| {
                local
                    .driver
                    .read_all(session, replica as u16, copy, move |answers| {
                        drop(finished.send(answers))
                    })
            })?;
            let read_before = (replica * keys.len()) as u64;
            answers.push(patience.wait(self, &answer, &|read| done(read_before + read))?);
        }
        Ok(answers)
    }

    /// What stopped a server, if something did.
    fn look_after_servers(&self) -> anyhow::Result<()> {
        any_failure(&self.target.statuses()?)
    }

    /// Ends the phase: no session starts another operation, and those that sleep end now.
    fn stop(&self) -> anyhow::Result<()> {
        self.progress.stop();
        for worker in 0..self.drivers.len() {
            self.with_driver(worker, |local| local.driver.look_at_stop_sign())?;
        }
        Ok(())
    }
}

fn any_failure(statuses: &[ServerStatus]) -> anyhow::Result<()> {
    match statuses
        .iter()
        .find_map(|status| Some((&status.server, status.failure.as_ref()?)))
    {
        Some((server, failure)) => bail!("server {server} stopped: {failure}"),
        None => Ok(()),
    }
}

/// How long to wait for the servers where they decide: until the user has enough, or nothing moves any more.
struct Patience<'a> {
    observer: &'a dyn Observer,
    /// Interrupts that came before.
    interrupts: u32,
    /// Time within which something must move.
    patience: Duration,
}

impl<'a> Patience<'a> {
    /// Interrupts of earlier phases do not count.
    fn from_now(options: &RunOptions, observer: &'a dyn Observer) -> Self {
        let slowest_ms = options
            .servers
            .delays
            .iter()
            .map(|delay| delay.ms + delay.jitter_ms)
            .max();
        // There, back, and there again: what protocols wait for.
        let patience = PATIENCE + 3 * Duration::from_millis(slowest_ms.unwrap_or(0));
        Patience {
            observer,
            interrupts: observer.interrupts(),
            patience,
        }
    }

    /// # Errors
    /// [`Interrupted`].
    fn look(&self) -> anyhow::Result<()> {
        if self.observer.interrupts() > self.interrupts {
            Err(Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// Waits for a message of a phase whose operations count in `load.progress`.
    ///
    /// # Errors
    /// [`Interrupted`], a server stopped, or no operation ended for longer than a request may take.
    fn wait<P: Protocol, T>(
        &self,
        load: &Load<P>,
        answer: &mpsc::Receiver<T>,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<T> {
        let (mut done, mut moved, mut looked) = (0, Instant::now(), Instant::now());
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(answer) => return Ok(answer),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a worker thread has died"),
            }
            self.look()?;
            if load.progress.operations() != done {
                (done, moved) = (load.progress.operations(), Instant::now());
            }
            tell(done);
            if looked.elapsed() > Duration::from_secs(1) {
                load.look_after_servers()?;
                looked = Instant::now();
            }
            if moved.elapsed() > self.patience + load.timeout {
                bail!(
                    "the servers have answered no read for {:?}",
                    self.patience + load.timeout
                );
            }
        }
    }
}

/// Pauses between questions that become longer: each costs the servers new sessions.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Pauses(POLL_PAUSE)
    }

    fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(POLL_PAUSE_MAX);
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of a driver, handed to another thread"
)]
fn start_driver<P: Protocol>(
    local: &Rc<Local>,
    topology: Topology,
    addresses: Vec<Address>,
    timeout: Duration,
    flush: Flush,
    workload: Workload,
    progress: Arc<Progress>,
    recorder: Option<Recorder>,
) -> usize {
    let options = PoolOptions {
        topology,
        addresses,
        protocol: P::NAME,
        timeout,
        flush,
        message_bytes_max: NodeConfig::new("client").message_bytes_max,
    };
    let pool = ClientPool::<P::Metadata>::start(local, options);
    let sessions = pool.clone();
    let driver = Driver::<P::Client>::new(
        Rc::new(pool.clone()),
        Box::new(move |replica| sessions.session(replica)),
        workload,
        progress,
        recorder,
    );
    pool.set_executor(driver.clone());
    local.keep(Rc::new(LocalDriver::<P> { driver, pool }))
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
    let window = run_window(&load, options)?;
    let all_operations = load.progress.operations().max(1) as f64;
    let patience = Patience::from_now(options, observer);
    let mut notes = Vec::new();
    let drained = match wait_until_drained(target, &patience) {
        Err(error) if error.is::<Interrupted>() => target.statuses()?,
        // Whatever the servers are up to, the user wants what was measured.
        Err(error) if observer.interrupts() > 0 => {
            notes.push(format!("messages and bytes are not known: {error:#}"));
            before.clone()
        }
        drained => drained?,
    };
    let traffic = total(&drained) - total(&before);
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
        Some(_) => match check::<P>(&load, options, &patience, &mut notes) {
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
        check,
    };
    Ok(Finished {
        ycsb: measurements.ycsb_lines(run_time_ms, intended.as_ref()),
        report,
    })
}

/// The load phase, until every replica has what was loaded.
fn load_records<P: Protocol>(load: &Load<P>, options: &RunOptions) -> anyhow::Result<()> {
    load.observer
        .phase("loading", options.workload.insert_count);
    let patience = Patience {
        interrupts: 0,
        ..Patience::from_now(options, load.observer)
    };
    let finished =
        load.start_phase(|driver, sessions, finished| driver.load(&sessions, finished))?;
    watch(load, &finished, || load.progress.operations())?;
    patience.look()?;
    if load.progress.is_stopped() {
        let mut reasons = Vec::new();
        for worker in 0..load.drivers.len() {
            reasons.push(load.with_driver(worker, |local| {
                (
                    local.driver.take_report().last_failure,
                    local.pool.last_error(),
                )
            })?);
        }
        let failure = reasons
            .iter()
            .find_map(|(failure, _)| failure.as_deref())
            .unwrap_or("no reason given");
        let connection = reasons
            .iter()
            .find_map(|(_, error)| error.as_deref())
            .map(|error| format!(" ({error})"));
        bail!(
            "the load phase failed: {failure}{}",
            connection.unwrap_or_default()
        );
    }
    wait_until_drained(load.target, &patience)?;
    wait_until_visible(load, options, &patience)
}

/// Waits until all replicas show the records loaded last: replication is FIFO, so then they show the others too.
fn wait_until_visible<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
    patience: &Patience,
) -> anyhow::Result<()> {
    let spec = &options.workload;
    let last = (spec.insert_start..spec.insert_start + spec.insert_count).rev();
    let last = last.take(1000.max(2 * options.clients as usize));
    let mut missing: Vec<NamedKey> = last
        .map(|index| NamedKey {
            index,
            bytes: spec.naming.name(index),
        })
        .collect();
    let all = missing.len();
    load.observer.phase("replicating", all as u64);
    let mut deadline = Instant::now() + patience.patience;
    let mut pauses = Pauses::new();
    while !missing.is_empty() {
        let answers = read_unrecorded(load, &missing, patience)?;
        let before = missing.len();
        missing = select(missing, |place| {
            answers
                .iter()
                .any(|replica| !matches!(replica[place], Ok(Some(_))))
        });
        if missing.is_empty() {
            break;
        }
        load.observer.done((all - missing.len()) as u64);
        if missing.len() < before {
            deadline = Instant::now() + patience.patience;
        } else if Instant::now() > deadline {
            bail!(
                "{} of the loaded records are not visible at every replica, and no more become visible within {:?}",
                missing.len(),
                patience.patience
            );
        }
        patience.look()?;
        pauses.pause();
    }
    Ok(())
}

/// The keys whose places satisfy the predicate.
fn select(keys: Vec<NamedKey>, is_wanted: impl Fn(usize) -> bool) -> Vec<NamedKey> {
    keys.into_iter()
        .enumerate()
        .filter(|(place, _)| is_wanted(*place))
        .map(|(_, key)| key)
        .collect()
}

/// Reads that are not part of the history.
fn read_unrecorded<P: Protocol>(
    load: &Load<P>,
    keys: &[NamedKey],
    patience: &Patience,
) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
    for worker in 0..load.drivers.len() {
        load.with_driver(worker, |local| local.driver.pause_recording(true))?;
    }
    let answers = load.read_everywhere(keys, patience, &|_| {});
    for worker in 0..load.drivers.len() {
        load.with_driver(worker, |local| local.driver.pause_recording(false))?;
    }
    answers
}

struct Measured {
    seconds: f64,
    whole_seconds: f64,
    server_cpu_s: f64,
    client_cpu_s: f64,
    /// Why it is shorter than asked for, if it is.
    ended_early: Option<String>,
    /// Whether sessions are still waiting for answers, so that nothing more can be asked of them.
    abandoned: bool,
}

/// Warm-up and measured window.
fn run_window<P: Protocol>(load: &Load<P>, options: &RunOptions) -> anyhow::Result<Measured> {
    load.progress.reset();
    let clock = HostClock::new(0);
    // A moment ahead, so that all workers start together.
    let start_us = clock.monotonic_us() + 2_000;
    let measure_us = start_us + options.warmup.as_micros() as u64;
    let window = Window {
        start_us,
        measure_us,
        end_us: measure_us + options.duration.as_micros() as u64,
    };
    load.observer.phase(
        "running",
        (options.warmup + options.duration).as_millis() as u64,
    );
    let finished = load
        .start_phase(move |driver, sessions, finished| driver.run(&sessions, window, finished))?;
    let mut cpu_at_measure = None;
    let watched = watch(load, &finished, || {
        let now_us = clock.monotonic_us();
        if now_us >= measure_us {
            cpu_at_measure.get_or_insert_with(|| (load.target.cpu(), now_us));
        }
        now_us.saturating_sub(start_us) / 1000
    })?;
    let end_us = clock.monotonic_us().clamp(measure_us, window.end_us);
    let (server_cpu, client_cpu) = load.target.cpu();
    let ((server_before, client_before), _) =
        cpu_at_measure.unwrap_or(((server_cpu, client_cpu), end_us));
    let seconds = (end_us.max(measure_us + 1) - measure_us) as f64 / 1e6;
    let ended_early = (end_us < window.end_us).then(|| {
        let why = if load.observer.interrupts() > 0 {
            "interrupted"
        } else if options.check.is_some() && load.progress.is_stopped() {
            "the recorder is full, and all that it has is checked"
        } else {
            "operationcount is reached"
        };
        format!(
            "ended after {seconds:.2} of {} s: {why}",
            options.duration.as_secs_f64()
        )
    });
    Ok(Measured {
        seconds,
        whole_seconds: (end_us.max(start_us + 1) - start_us) as f64 / 1e6,
        server_cpu_s: server_cpu - server_before,
        client_cpu_s: client_cpu - client_before,
        ended_early,
        abandoned: watched == Watched::Abandoned,
    })
}

/// How [`watch`] ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Finished,
    /// By the user, while operations were waiting for answers that did not come.
    Abandoned,
}

/// Waits for a phase to end, looking after the user and the servers meanwhile.
fn watch<P: Protocol>(
    load: &Load<P>,
    finished: &mpsc::Receiver<()>,
    mut done: impl FnMut() -> u64,
) -> anyhow::Result<Watched> {
    let mut left = load.drivers.len();
    let mut looked = Instant::now();
    let mut stopped: Option<Instant> = None;
    while left > 0 {
        match finished.recv_timeout(LOOK_EVERY) {
            Ok(()) => left -= 1,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a worker thread has died"),
        }
        load.observer.done(done());
        let interrupted = load.observer.interrupts() > 0;
        if stopped.is_none() && (interrupted || load.progress.is_stopped()) {
            load.stop()?;
            stopped = Some(Instant::now());
        }
        if interrupted && stopped.is_some_and(|since| since.elapsed() > INTERRUPT_PATIENCE) {
            return Ok(Watched::Abandoned);
        }
        if !interrupted && looked.elapsed() > Duration::from_secs(1) {
            match load.look_after_servers() {
                // The user may have come while a server did not answer: then what was measured goes before.
                Err(error) if load.observer.interrupts() == 0 => return Err(error),
                _ => looked = Instant::now(),
            }
        }
    }
    Ok(Watched::Finished)
}

/// Waits until no link keeps anything, or nothing leaves them any more.
fn wait_until_drained(
    target: &dyn Target,
    patience: &Patience,
) -> anyhow::Result<Vec<ServerStatus>> {
    let (mut least, mut deadline) = (u64::MAX, Instant::now() + patience.patience);
    let mut pauses = Pauses::new();
    loop {
        patience.look()?;
        let statuses = target.statuses()?;
        any_failure(&statuses)?;
        let links = || statuses.iter().flat_map(|status| &status.links);
        let kept = links().map(|link| link.kept_frames).sum::<u64>();
        if kept < least {
            (least, deadline) = (kept, Instant::now() + patience.patience);
        }
        // Heartbeats are always under way: a few kept frames per link are none.
        if kept <= links().count() as u64 || Instant::now() > deadline {
            return Ok(statuses);
        }
        pauses.pause();
    }
}

fn total(statuses: &[ServerStatus]) -> Traffic {
    statuses
        .iter()
        .fold(Traffic::default(), |sum, status| sum + status.traffic)
}

fn latencies(measurements: &Measurements) -> BTreeMap<String, Latency> {
    let names: [(&str, &[OperationKind]); 5] = [
        ("get", &[OperationKind::Read]),
        ("put", &[OperationKind::Update, OperationKind::Insert]),
        ("scan", &[OperationKind::Scan]),
        ("read_modify_write", &[OperationKind::ReadModifyWrite]),
        ("amplified_insert", &[OperationKind::AmplifiedInsert]),
    ];
    let mut latencies = BTreeMap::new();
    for (name, kinds) in names {
        let mut merged: Option<Histogram<u64>> = None;
        for histogram in kinds
            .iter()
            .filter_map(|kind| measurements.latency_us(*kind))
        {
            match &mut merged {
                None => merged = Some(histogram.clone()),
                Some(merged) => merged
                    .add(histogram)
                    .expect("invariant: all histograms have one range"),
            }
        }
        if let Some(histogram) = merged {
            latencies.insert(name.to_owned(), Latency::from(&histogram));
        }
    }
    latencies
}

/// From a version's insertion at its origin, the first anywhere, to its becoming visible at the others.
fn visibility(samples: &[Vec<VisibilitySample>]) -> Visibility {
    let mut by_version: BTreeMap<u64, Vec<VisibilitySample>> = BTreeMap::new();
    for sample in samples.iter().flatten() {
        by_version.entry(sample.version).or_default().push(*sample);
    }
    let mut latencies: Vec<u64> = Vec::new();
    for versions in by_version.values() {
        let Some(origin) = versions.iter().min_by_key(|sample| sample.inserted_us) else {
            continue;
        };
        let elsewhere = versions
            .iter()
            .filter(|sample| !std::ptr::eq(*sample, origin));
        latencies.extend(elsewhere.map(|sample| sample.visible_us - origin.inserted_us));
    }
    latencies.sort_unstable();
    let at = |quantile: f64| {
        latencies
            .get(((latencies.len() as f64 - 1.0) * quantile).round() as usize)
            .copied()
            .unwrap_or(0)
    };
    Visibility {
        count: latencies.len() as u64,
        p50: at(0.5),
        p99: at(0.99),
    }
}

/// Reads everything everywhere until all replicas agree or time is up, then judges the history.
fn check<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
    patience: &Patience,
    notes: &mut Vec<String>,
) -> anyhow::Result<CheckReport> {
    let written = written_keys(load, options)?;
    load.observer.phase("settling", written.len() as u64);
    settle(load, &written, patience)?;
    let reads = written.len() * load.target.topology().replicas();
    load.observer.phase("final reads", reads as u64);
    let answers = load.read_everywhere(&written, patience, &|read| load.observer.done(read))?;
    let unanswered = answers
        .iter()
        .flatten()
        .filter(|answer| answer.is_err())
        .count();
    let mut recorders = Vec::new();
    for worker in 0..load.drivers.len() {
        recorders.extend(load.with_driver(worker, |local| local.driver.take_recorder())?);
    }
    let start = Instant::now();
    let topology = load.target.topology();
    let sites: Vec<String> = (0..topology.replicas())
        .map(|replica| format!("replica {replica}"))
        .collect();
    let claimed = P::claims().models;
    let about = About {
        workload: options.workload.name.clone(),
        clock: "monotonic".to_owned(),
        claims: claimed.iter().map(|model| (*model).to_owned()).collect(),
        seed: Some(options.seed),
    };
    let history = Arc::new(Recorder::history(&recorders, &load.workload, &sites, about));
    drop(recorders);
    let models = claimed_models::<P>();
    let unchecked: Vec<&str> = claimed
        .iter()
        .filter(|name| !models.iter().any(|model| model.name() == **name))
        .copied()
        .collect();
    if !unchecked.is_empty() {
        notes.push(format!(
            "also claimed, and not checked yet: {}",
            unchecked.join(", ")
        ));
    }
    if options.workload.mix.scan > 0.0 {
        notes.push("scans are not part of the checked history".to_owned());
    }
    let written_to = options
        .history
        .as_deref()
        .map(|directory| write_history::<P>(&history, directory, &options.servers.storage))
        .transpose()?;
    load.observer.phase("checking", models.len() as u64);
    let mut report = CheckReport {
        unchecked: unchecked.iter().map(|name| (*name).to_owned()).collect(),
        operations: history.operations().len(),
        history: written_to,
        ..CheckReport::unknown(&models, "")
    };
    match judge(&history, &models, load.observer, patience) {
        Ok(verdict) => {
            verdict.name().clone_into(&mut report.verdict);
            if !matches!(verdict, Verdict::Satisfied) {
                report.explanation = verdict.explain(&history).to_string();
            } else if unanswered > 0 {
                "unknown".clone_into(&mut report.verdict);
                report.explanation = format!(
                    "{unanswered} of the final reads, which show whether the replicas agree, were not answered"
                );
            }
        }
        Err(error) if error.is::<Interrupted>() => {
            "interrupted before the check had ended".clone_into(&mut report.explanation)
        }
        Err(error) => return Err(error),
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// The claims of a protocol that there is a checker for.
fn claimed_models<P: Protocol>() -> Vec<Model> {
    let claimed = P::claims().models;
    Model::ALL
        .into_iter()
        .filter(|model| claimed.contains(&model.name()))
        .collect()
}

/// The worst verdict of several models, found on a thread of its own, which is left alone after an interrupt.
fn judge(
    history: &Arc<History>,
    models: &[Model],
    observer: &dyn Observer,
    patience: &Patience,
) -> anyhow::Result<Verdict> {
    let (sender, verdicts) = mpsc::channel();
    let (history, models, mut left) = (history.clone(), models.to_vec(), models.len());
    std::thread::Builder::new()
        .name("dkvf-check".to_owned())
        .spawn(move || {
            for model in models {
                // Nobody listens after an interrupt.
                let _ = sender.send(model.check(&history, Evidence::Auto));
            }
        })?;
    let mut found = Vec::new();
    while left > 0 {
        match verdicts.recv_timeout(LOOK_EVERY) {
            Ok(verdict) => {
                found.push(verdict);
                left -= 1;
                observer.done(found.len() as u64);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => patience.look()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                bail!("the thread of the checker has died")
            }
        }
    }
    Ok(Verdict::worst(found))
}

/// Every record that a recorded operation touched.
fn written_keys<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
) -> anyhow::Result<Vec<NamedKey>> {
    let mut indexes = Vec::new();
    for worker in 0..load.drivers.len() {
        indexes.extend(load.with_driver(worker, |local| local.driver.recorded_keys())?);
    }
    indexes.sort_unstable();
    indexes.dedup();
    let naming = options.workload.naming;
    Ok(indexes
        .into_iter()
        .map(|index| NamedKey {
            index,
            bytes: naming.name(index),
        })
        .collect())
}

/// Waits until all replicas answer alike, or no further keys come to do so: what then still differs is a finding.
fn settle<P: Protocol>(
    load: &Load<P>,
    keys: &[NamedKey],
    patience: &Patience,
) -> anyhow::Result<()> {
    wait_until_drained(load.target, patience)?;
    let mut deadline = Instant::now() + patience.patience;
    let mut pauses = Pauses::new();
    let mut differing = keys.to_vec();
    loop {
        let answers = read_unrecorded(load, &differing, patience)?;
        let before = differing.len();
        differing = select(differing, |place| {
            answers
                .iter()
                .any(|replica| replica[place].is_err() || replica[place] != answers[0][place])
        });
        if differing.is_empty() {
            return Ok(());
        }
        load.observer.done((keys.len() - differing.len()) as u64);
        if differing.len() < before {
            deadline = Instant::now() + patience.patience;
        } else if Instant::now() > deadline {
            return Ok(());
        }
        patience.look()?;
        pauses.pause();
    }
}

fn write_history<P: Protocol>(
    history: &History,
    directory: &std::path::Path,
    storage: &str,
) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{}-{storage}.jsonl", P::NAME));
    let file = std::fs::File::create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    native::write(history, std::io::BufWriter::new(file))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}
