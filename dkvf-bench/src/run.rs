//! One run: start a cluster, load it, put load on it, check what was recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dkvf_check::{About, Evidence, History, Model, Verdict, native};
use dkvf_core::config::Flush;
use dkvf_core::net::Address;
use dkvf_core::net::clock::HostClock;
use dkvf_core::net::cluster::Layout;
use dkvf_core::net::pool::{ClientPool, PoolOptions};
use dkvf_core::net::status::{ServerStatus, Traffic};
use dkvf_core::net::worker::Local;
use dkvf_core::node::VisibilitySample;
use dkvf_core::{Outcome, Protocol, Topology};
use dkvf_workload::{Driver, Measurements, NamedKey, OperationKind, Progress, READERS, Recorder, Report, Status, Tag, Window, Workload, WorkloadSpec};
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
    /// Whether to end early, keeping what was measured.
    fn interrupted(&self) -> bool;
}

/// An observer that says nothing and never interrupts.
pub struct Silent;

impl Observer for Silent {
    fn phase(&self, _name: &str, _total: u64) {}
    fn done(&self, _done: u64) {}
    fn interrupted(&self) -> bool {
        false
    }
}

/// A run's result, and YCSB's lines for it.
pub struct Finished {
    /// The result.
    pub report: RunReport,
    /// The same as YCSB prints it.
    pub ycsb: String,
}

/// Time for loaded or written data to reach every replica.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Sessions of the final reads are numbered below this in the history.
const FINAL_SESSIONS: u32 = u32::MAX - 1;

/// Runs `options` with protocol `P`.
///
/// # Errors
/// A server fails, the load phase fails, or the workload asks for what the protocol does not offer.
pub fn run<P: Protocol>(options: &RunOptions, observer: &dyn Observer) -> anyhow::Result<Finished> {
    usage::reset_peak();
    match &options.placement {
        Placement::Embedded(layout) => measure::<P>(options, observer, &Embedded::<P>::start(&options.servers, *layout)?),
        Placement::Processes(program) => measure::<P>(options, observer, &Processes::start::<P>(&options.servers, program)?),
    }
}

/// The load side of a run: one driver per session worker.
struct Load<'a, P: Protocol> {
    target: &'a dyn Target,
    workload: Workload,
    progress: Arc<Progress>,
    /// By worker: the number of its driver there.
    drivers: Vec<usize>,
    protocol: std::marker::PhantomData<P>,
}

struct LocalDriver<P: Protocol> {
    driver: Rc<Driver<P::Client>>,
    pool: Rc<ClientPool<P::Metadata>>,
}

impl<'a, P: Protocol> Load<'a, P> {
    fn start(options: &RunOptions, target: &'a dyn Target) -> anyhow::Result<Self> {
        let workload = Workload::new(options.workload.clone(), options.seed, options.clients);
        let progress = Arc::new(Progress::default());
        let workers = target.session_workers();
        let mut drivers = Vec::new();
        for worker in 0..workers {
            let (topology, addresses) = (target.topology().clone(), target.client_addresses());
            let (workload, progress, timeout, flush) = (workload.clone(), progress.clone(), options.timeout, options.servers.flush);
            let recorder = options.check.map(|operations| Recorder::new(operations / workers));
            drivers.push(target.session_worker(worker).call(move |local| start_driver::<P>(local, topology, addresses, timeout, flush, workload, progress, recorder))?);
        }
        Ok(Load { target, workload, progress, drivers, protocol: std::marker::PhantomData })
    }

    /// The sessions of a worker: numbers in the workload, each with its replica.
    fn sessions_of(&self, worker: usize) -> Vec<(u32, u16)> {
        let replicas = self.target.topology().replicas() as u32;
        let sessions = (0..self.workload.sessions()).map(|session| (session, (session % replicas) as u16));
        sessions.filter(|(_, replica)| usize::from(*replica) % self.drivers.len() == worker).collect()
    }

    fn with_driver<T: Send + 'static>(&self, worker: usize, job: impl FnOnce(&LocalDriver<P>) -> T + Send + 'static) -> anyhow::Result<T> {
        let number = self.drivers[worker];
        self.target.session_worker(worker).call(move |local| job(&local.kept::<LocalDriver<P>>(number)))
    }

    /// Starts a phase on every worker; the receiver gets one message per finished worker.
    fn start_phase(&self, start: impl Fn(&Driver<P::Client>, Vec<(u32, u16)>, Box<dyn FnOnce()>) + Send + Clone + 'static) -> anyhow::Result<mpsc::Receiver<()>> {
        let (finished, all_finished) = mpsc::channel();
        for worker in 0..self.drivers.len() {
            let (sessions, start, finished) = (self.sessions_of(worker), start.clone(), finished.clone());
            self.with_driver(worker, move |local| start(&local.driver, sessions, Box::new(move || {
                let _ = finished.send(());
            })))?;
        }
        Ok(all_finished)
    }

    /// Reads `keys` at every replica; the answers by replica.
    fn read_everywhere(&self, keys: &[NamedKey], timeout: Duration) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
        let mut answers = Vec::new();
        for replica in 0..self.target.topology().replicas() {
            let worker = replica % self.drivers.len();
            let (finished, answer) = mpsc::channel();
            let keys = keys.to_vec();
            let session = FINAL_SESSIONS - READERS * (1 + replica as u32);
            self.with_driver(worker, move |local| local.driver.read_all(session, replica as u16, keys, move |answers| drop(finished.send(answers))))?;
            answers.push(answer.recv_timeout(timeout).context("the servers do not answer")?);
        }
        Ok(answers)
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of a driver, handed to another thread")]
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
    let options = PoolOptions { topology, addresses, protocol: P::NAME, timeout, flush, message_bytes_max: 64 << 20 };
    let pool = ClientPool::<P::Metadata>::start(local, options);
    let sessions = pool.clone();
    let driver = Driver::<P::Client>::new(Rc::new(pool.clone()), Box::new(move |replica| sessions.session(replica)), workload, progress, recorder);
    pool.set_executor(driver.clone());
    local.keep(Rc::new(LocalDriver::<P> { driver, pool }))
}

fn measure<P: Protocol>(options: &RunOptions, observer: &dyn Observer, target: &dyn Target) -> anyhow::Result<Finished> {
    let load = Load::<P>::start(options, target)?;
    let load_start = Instant::now();
    load_records(&load, options, observer)?;
    let load_seconds = load_start.elapsed().as_secs_f64();
    let before = target.statuses()?;
    target.take_visibility()?;
    let window = run_window(&load, options, observer)?;
    let drained = wait_until_drained(target)?;
    let traffic = total(&drained) - total(&before);
    let visibility = visibility(&target.take_visibility()?);
    let mut measurements = Measurements::new();
    let mut intended: Option<Measurements> = None;
    let (mut last_failure, mut lag_us) = (None, 0);
    for worker in 0..load.drivers.len() {
        let (report, lag): (Report, u64) = load.with_driver(worker, |local| (local.driver.take_report(), local.pool.lag_us()))?;
        measurements.merge(&report.measurements);
        if let Some(part) = &report.intended {
            intended.get_or_insert_default().merge(part);
        }
        last_failure = report.last_failure.or(last_failure);
        lag_us = lag.max(lag_us);
    }
    let mut notes = window.notes;
    let failed = measurements.count(Status::Error);
    let unknown = measurements.count(Status::Unknown);
    let not_found = measurements.count(Status::NotFound);
    let succeeded = measurements.count(Status::Ok) + not_found;
    if succeeded == 0 {
        let why = last_failure.unwrap_or_else(|| "no operation ended within the window".to_owned());
        bail!("{} under workload {}: no operation succeeded: {why}", P::NAME, options.workload.name);
    }
    if let (true, Some(why)) = (failed + unknown > 0, last_failure) {
        notes.push(format!("{failed} operations failed and {unknown} are unknown; the last: {why}"));
    }
    // Before the check, whose own memory is not the store's.
    let peak_rss_bytes = target.peak_rss_bytes();
    let check = match options.check {
        Some(_) => Some(check::<P>(&load, options, observer, &mut notes)?),
        None => None,
    };
    let all_operations = load.progress.operations().max(1) as f64;
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
        throughput_ops_s: succeeded as f64 / window.seconds,
        latency_us: latencies(intended.as_ref().unwrap_or(&measurements)),
        service_us: if intended.is_some() { latencies(&measurements) } else { BTreeMap::new() },
        visibility_us: visibility,
        messages_per_op: messages as f64 / all_operations,
        bytes_per_op: bytes as f64 / all_operations,
        periodic_messages_s: traffic.periodic as f64 / window.whole_seconds,
        server_cpu_s: window.server_cpu_s,
        client_cpu_s: window.client_cpu_s,
        generator_lag_us: lag_us,
        peak_rss_bytes,
        load_seconds,
        notes,
        check,
    };
    Ok(Finished { ycsb: measurements.ycsb_lines(run_time_ms, intended.as_ref()), report })
}

/// The load phase, until every replica has what was loaded.
fn load_records<P: Protocol>(load: &Load<P>, options: &RunOptions, observer: &dyn Observer) -> anyhow::Result<()> {
    let records = options.workload.insert_count;
    observer.phase("loading", records);
    let finished = load.start_phase(|driver, sessions, finished| {
        // Through each session's own replica, so that all replicas take part.
        let replica = sessions.first().map_or(0, |(_, replica)| *replica);
        let numbers: Vec<u32> = sessions.into_iter().map(|(session, _)| session).collect();
        driver.load(&numbers, replica, finished);
    })?;
    watch(load, finished, observer, || load.progress.operations())?;
    if load.progress.is_stopped() {
        let failure = load.with_driver(0, |local| local.driver.take_report().last_failure)?;
        let connection = load.with_driver(0, |local| local.pool.last_error())?;
        let failure = failure.or(connection).unwrap_or_else(|| "interrupted".to_owned());
        bail!("the load phase did not end well: {failure}");
    }
    wait_until_drained(load.target)?;
    wait_until_visible(load, options)
}

/// Waits until all replicas show the records loaded last: replication is FIFO, so then they show the others too.
fn wait_until_visible<P: Protocol>(load: &Load<P>, options: &RunOptions) -> anyhow::Result<()> {
    let spec = &options.workload;
    let last = (spec.insert_start..spec.insert_start + spec.insert_count).rev().take(1000.max(2 * options.clients as usize));
    let mut missing: Vec<NamedKey> = last.map(|index| NamedKey { index, bytes: spec.naming.name(index) }).collect();
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    while !missing.is_empty() {
        let answers = read_unrecorded(load, &missing)?;
        let is_missing = |place: usize| answers.iter().any(|replica| !matches!(replica[place], Ok(Some(_))));
        let mut place = 0;
        missing.retain(|_| {
            place += 1;
            is_missing(place - 1)
        });
        if Instant::now() > deadline {
            bail!("{} of the loaded records are not visible at every replica after {SETTLE_TIMEOUT:?}", missing.len());
        }
        if !missing.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Reads that are not part of the history.
fn read_unrecorded<P: Protocol>(load: &Load<P>, keys: &[NamedKey]) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
    for worker in 0..load.drivers.len() {
        load.with_driver(worker, |local| local.driver.pause_recording(true))?;
    }
    let answers = load.read_everywhere(keys, SETTLE_TIMEOUT);
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
    notes: Vec<String>,
}

/// Warm-up and measured window.
fn run_window<P: Protocol>(load: &Load<P>, options: &RunOptions, observer: &dyn Observer) -> anyhow::Result<Measured> {
    load.progress.reset();
    let clock = HostClock::new(0);
    // A moment ahead, so that all workers start together.
    let start_us = clock.monotonic_us() + 2_000;
    let measure_us = start_us + options.warmup.as_micros() as u64;
    let window = Window { start_us, measure_us, end_us: measure_us + options.duration.as_micros() as u64 };
    observer.phase(P::NAME, (options.warmup + options.duration).as_millis() as u64);
    let finished = load.start_phase(move |driver, sessions, finished| driver.run(&sessions, window, finished))?;
    let mut cpu_at_measure = None;
    watch(load, finished, observer, || {
        let now_us = clock.monotonic_us();
        if now_us >= measure_us {
            cpu_at_measure.get_or_insert_with(|| (load.target.cpu(), now_us));
        }
        now_us.saturating_sub(start_us) / 1000
    })?;
    let end_us = clock.monotonic_us().clamp(measure_us, window.end_us);
    let (server_cpu, client_cpu) = load.target.cpu();
    let ((server_before, client_before), _) = cpu_at_measure.unwrap_or(((server_cpu, client_cpu), end_us));
    let mut notes = Vec::new();
    let seconds = (end_us.max(measure_us + 1) - measure_us) as f64 / 1e6;
    if end_us < window.end_us {
        let why = if observer.interrupted() {
            "interrupted"
        } else if options.check.is_some() && load.progress.is_stopped() {
            "the recorder was full: every operation up to here is checked"
        } else {
            "operationcount was reached"
        };
        notes.push(format!("ended after {seconds:.1} of {:.1} s: {why}", options.duration.as_secs_f64()));
    }
    if matches!(options.placement, Placement::Embedded(Layout::ReplicaLocal)) {
        notes.push("layout replica-local: sessions share the threads of their replica, and server_cpu_s counts both".to_owned());
    }
    Ok(Measured {
        seconds,
        whole_seconds: (end_us.max(start_us + 1) - start_us) as f64 / 1e6,
        server_cpu_s: server_cpu - server_before,
        client_cpu_s: client_cpu - client_before,
        notes,
    })
}

/// Waits for a phase to end, looking after the user and the servers meanwhile.
fn watch<P: Protocol>(load: &Load<P>, finished: mpsc::Receiver<()>, observer: &dyn Observer, mut done: impl FnMut() -> u64) -> anyhow::Result<()> {
    let mut left = load.drivers.len();
    let mut last_look = Instant::now();
    while left > 0 {
        match finished.recv_timeout(Duration::from_millis(50)) {
            Ok(()) => left -= 1,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a worker thread has died"),
        }
        observer.done(done());
        if observer.interrupted() {
            load.progress.stop();
        }
        if last_look.elapsed() > Duration::from_secs(1) {
            last_look = Instant::now();
            if let Some((server, failure)) = load.target.statuses()?.into_iter().find_map(|status| Some((status.server, status.failure?))) {
                load.progress.stop();
                bail!("server {server} stopped: {failure}");
            }
        }
    }
    Ok(())
}

/// Waits until no link keeps anything.
fn wait_until_drained(target: &dyn Target) -> anyhow::Result<Vec<ServerStatus>> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let statuses = target.statuses()?;
        if let Some(status) = statuses.iter().find(|status| status.failure.is_some()) {
            bail!("server {} stopped: {}", status.server, status.failure.as_deref().unwrap_or_default());
        }
        let busy = statuses.iter().flat_map(|status| &status.links).map(|link| link.kept_frames).sum::<u64>();
        // Heartbeats are always under way: a few kept frames per link are none.
        let links = statuses.iter().map(|status| status.links.len() as u64).sum::<u64>();
        if busy <= links || Instant::now() > deadline {
            return Ok(statuses);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn total(statuses: &[ServerStatus]) -> Traffic {
    statuses.iter().fold(Traffic::default(), |sum, status| sum + status.traffic)
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
        for histogram in kinds.iter().filter_map(|kind| measurements.latency_us(*kind)) {
            match &mut merged {
                None => merged = Some(histogram.clone()),
                Some(merged) => merged.add(histogram).expect("invariant: all histograms have one range"),
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
        let elsewhere = versions.iter().filter(|sample| !std::ptr::eq(*sample, origin));
        latencies.extend(elsewhere.map(|sample| sample.visible_us - origin.inserted_us));
    }
    latencies.sort_unstable();
    let at = |quantile: f64| latencies.get(((latencies.len() as f64 - 1.0) * quantile).round() as usize).copied().unwrap_or(0);
    Visibility { count: latencies.len() as u64, p50: at(0.5), p99: at(0.99) }
}

/// Reads everything everywhere until all replicas agree or time is up, then judges the history.
fn check<P: Protocol>(load: &Load<P>, options: &RunOptions, observer: &dyn Observer, notes: &mut Vec<String>) -> anyhow::Result<CheckReport> {
    observer.phase("checking", 0);
    let mut recorders = Vec::new();
    let written = written_keys(load, options)?;
    settle(load, &written)?;
    load.read_everywhere(&written, 10 * SETTLE_TIMEOUT)?;
    for worker in 0..load.drivers.len() {
        recorders.extend(load.with_driver(worker, |local| local.driver.take_recorder())?);
    }
    let start = Instant::now();
    let topology = load.target.topology();
    let sites: Vec<String> = (0..topology.replicas()).map(|replica| format!("replica {replica}")).collect();
    let claims = P::claims();
    let about = About { workload: options.workload.name.clone(), clock: "monotonic".to_owned(), claims: claims.models.iter().map(|model| (*model).to_owned()).collect(), seed: Some(options.seed) };
    let history = Recorder::history(&recorders, &load.workload, &sites, about);
    drop(recorders);
    let models: Vec<Model> = Model::ALL.into_iter().filter(|model| claims.models.contains(&model.name())).collect();
    let unchecked: Vec<&str> = claims.models.iter().filter(|name| !models.iter().any(|model| model.name() == **name)).copied().collect();
    if !unchecked.is_empty() {
        notes.push(format!("also claimed, and not checked yet: {}", unchecked.join(", ")));
    }
    let verdict = Verdict::worst(models.iter().map(|model| model.check(&history, Evidence::Auto)));
    let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
    let explanation = if matches!(verdict, Verdict::Satisfied) { String::new() } else { verdict.explain(&history).to_string() };
    let seconds = start.elapsed().as_secs_f64();
    let written_to = options.history.as_deref().map(|directory| write_history::<P>(&history, directory)).transpose()?;
    Ok(CheckReport { model: names.join(","), verdict: verdict.name().to_owned(), operations: history.operations().len(), explanation, seconds, history: written_to })
}

/// Every record that may have been written after the load: all loaded ones and all inserted ones.
fn written_keys<P: Protocol>(load: &Load<P>, options: &RunOptions) -> anyhow::Result<Vec<NamedKey>> {
    let mut indexes = Vec::new();
    for worker in 0..load.drivers.len() {
        indexes.extend(load.with_driver(worker, |local| local.driver.recorded_keys())?);
    }
    indexes.sort_unstable();
    indexes.dedup();
    let naming = options.workload.naming;
    Ok(indexes.into_iter().map(|index| NamedKey { index, bytes: naming.name(index) }).collect())
}

/// Waits until all replicas answer alike, at most [`SETTLE_TIMEOUT`]: what then still differs is a finding.
fn settle<P: Protocol>(load: &Load<P>, keys: &[NamedKey]) -> anyhow::Result<()> {
    wait_until_drained(load.target)?;
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    let mut differing = keys.to_vec();
    while !differing.is_empty() && Instant::now() < deadline {
        let answers = read_unrecorded(load, &differing)?;
        let differs = |place: usize| answers.iter().any(|replica| replica[place].is_err() || replica[place] != answers[0][place]);
        let mut place = 0;
        differing.retain(|_| {
            place += 1;
            differs(place - 1)
        });
        if !differing.is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

fn write_history<P: Protocol>(history: &History, directory: &std::path::Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{}.jsonl", P::NAME));
    let file = std::fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    native::write(history, std::io::BufWriter::new(file)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}
