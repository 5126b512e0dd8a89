//! Sessions that run a workload: the load phase, the measured run, and the final reads.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dkvf_check::{Kind, Outcome as RecordedOutcome};
use dkvf_core::{Client, ClientContext, ClientPort, Failure, Outcome, SessionExecutor};

use crate::generator::{NamedKey, Operation, Record, TaggedValue, Workload};
use crate::measure::{Measurements, Status};
use crate::recorder::{Entry, Recorder};
use crate::value::Tag;

/// When a run warms up, counts and ends, on the clock of [`ClientPort::now_us`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Operations are started from here on.
    pub start_us: u64,
    /// Operations started before are not measured.
    pub measure_us: u64,
    /// Operations that end later are not measured, and none is started later.
    pub end_us: u64,
}

/// A stop sign and a counter that others may look at while sessions run.
#[derive(Debug, Default)]
pub struct Progress {
    stop: AtomicBool,
    operations: AtomicU64,
}

impl Progress {
    /// No session starts another operation.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether [`Progress::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Starts over, for the next phase.
    pub fn reset(&self) {
        self.stop.store(false, Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
    }

    /// Operations ended so far: while sessions run to within 64 per session, then exactly.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// What a driver's sessions measured.
#[derive(Debug, Default)]
pub struct Report {
    /// Latencies and outcomes, from when each operation was sent.
    pub measurements: Measurements,
    /// In an open loop: from when it should have been sent.
    pub intended: Option<Measurements>,
    /// The last failure, for people.
    pub last_failure: Option<String>,
}

/// Sessions that share the work of [`Driver::read_all`].
pub const READERS: u32 = 64;

type Program = Pin<Box<dyn Future<Output = ()>>>;

/// Runs the sessions of one thread as plain futures: no task and no channel per session.
///
/// It serves every host that offers a [`ClientPort`] and calls a [`SessionExecutor`]: session number `i` of the port
/// is program `i` of the driver.
pub struct Driver<C: Client> {
    shared: Rc<Shared<C>>,
    programs: RefCell<Vec<Option<Program>>>,
    unfinished: Cell<usize>,
    finished: RefCell<Option<Box<dyn FnOnce()>>>,
}

/// The host's way to make the context of a new session bound to a replica: its number and its context.
pub type NewSession<C> = Box<dyn Fn(u16) -> (u32, ClientContext<<C as Client>::Metadata>)>;

struct Shared<C: Client> {
    port: Rc<dyn ClientPort<C::Metadata>>,
    new_session: NewSession<C>,
    workload: Workload,
    progress: Arc<Progress>,
    report: RefCell<Report>,
    recorder: RefCell<Option<Recorder>>,
    paused_recorder: RefCell<Option<Recorder>>,
}

impl<C: Client> Driver<C> {
    /// A driver of sessions of `workload`. With a recorder every operation of a run is kept.
    pub fn new(
        port: Rc<dyn ClientPort<C::Metadata>>,
        new_session: NewSession<C>,
        workload: Workload,
        progress: Arc<Progress>,
        recorder: Option<Recorder>,
    ) -> Rc<Self> {
        let shared = Shared {
            port,
            new_session,
            workload,
            progress,
            report: RefCell::default(),
            recorder: RefCell::new(recorder),
            paused_recorder: RefCell::default(),
        };
        Rc::new(Driver {
            shared: Rc::new(shared),
            programs: RefCell::default(),
            unfinished: Cell::new(0),
            finished: RefCell::default(),
        })
    }

    /// Inserts the shares of `sessions` (numbers in the workload) through `replica`, calling `finished` when all are done.
    /// A failed insert is tried again as often as the workload says.
    pub fn load(&self, sessions: &[u32], replica: u16, finished: impl FnOnce() + 'static) {
        let programs = sessions.iter().map(|&session| {
            let (_, context) = (self.shared.new_session)(replica);
            load(self.shared.clone(), C::new(context), session)
        });
        self.start(
            programs
                .map(|program| Box::pin(program) as Program)
                .collect(),
            finished,
        );
    }

    /// Runs `sessions` of the workload, each a number and the replica it is bound to, within `window`.
    pub fn run(&self, sessions: &[(u32, u16)], window: Window, finished: impl FnOnce() + 'static) {
        if self.shared.workload.spec().target_ops_s.is_some() {
            self.shared
                .report
                .borrow_mut()
                .intended
                .get_or_insert_default();
        }
        let programs = sessions.iter().map(|&(session, replica)| {
            let (number, context) = (self.shared.new_session)(replica);
            Box::pin(run(
                self.shared.clone(),
                C::new(context),
                session,
                number,
                replica,
                window,
            )) as Program
        });
        self.start(programs.collect(), finished);
    }

    /// Reads `keys` at `replica` with new sessions, numbered from `first_session` on in the history, and keeps the
    /// answers in the recorder. They are also handed to `finished`, in the order of the keys.
    pub fn read_all(
        &self,
        first_session: u32,
        replica: u16,
        keys: Vec<NamedKey>,
        finished: impl FnOnce(Vec<Outcome<Option<Tag>>>) + 'static,
    ) {
        let keys = Rc::new(keys);
        let answers = Rc::new(RefCell::new(vec![Err(Failure::Unknown); keys.len()]));
        let readers = (0..READERS).take(keys.len()).map(|reader| {
            let (_, context) = (self.shared.new_session)(replica);
            let reads = Reads { session: first_session + reader, replica, first: reader as usize, keys: keys.clone() };
            Box::pin(read_all(self.shared.clone(), C::new(context), reads, answers.clone())) as Program
        });
        self.start(readers.collect(), move || finished(answers.take()));
    }

    /// Sets the recorder aside, or takes it up again: for reads that only wait for something.
    pub fn pause_recording(&self, pause: bool) {
        let (from, to) = if pause { (&self.shared.recorder, &self.shared.paused_recorder) } else { (&self.shared.paused_recorder, &self.shared.recorder) };
        if let Some(recorder) = from.take() {
            *to.borrow_mut() = Some(recorder);
        }
    }

    /// The indexes of all records in the recorder, ascending.
    pub fn recorded_keys(&self) -> Vec<u64> {
        let recorder = self.shared.recorder.borrow();
        let mut indexes: Vec<u64> = recorder.iter().flat_map(Recorder::entries).map(|entry| entry.key_index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }

    /// Takes what was measured so far.
    pub fn take_report(&self) -> Report {
        self.shared.report.take()
    }

    /// Takes the recorder.
    pub fn take_recorder(&self) -> Option<Recorder> {
        self.shared.recorder.take()
    }

    /// Starts programs. One batch at a time: `finished` belongs to the batch.
    fn start(&self, programs: Vec<Program>, finished: impl FnOnce() + 'static) {
        assert_eq!(
            self.unfinished.get(),
            0,
            "a driver runs one phase at a time"
        );
        let first = self.programs.borrow().len() as u32;
        let count = programs.len() as u32;
        self.unfinished.set(programs.len());
        *self.finished.borrow_mut() = Some(Box::new(finished));
        self.programs
            .borrow_mut()
            .extend(programs.into_iter().map(Some));
        if count == 0 {
            self.finish();
        }
        SessionExecutor::run(self, &mut (first..first + count).collect());
    }

    fn finish(&self) {
        if let Some(finished) = self.finished.take() {
            finished();
        }
    }

    fn poll(&self, number: u32) {
        let program = self
            .programs
            .borrow_mut()
            .get_mut(number as usize)
            .and_then(Option::take);
        let Some(mut program) = program else {
            return;
        };
        // The host knows which session an answer belongs to, so programs need no waker.
        match program
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Pending => self.programs.borrow_mut()[number as usize] = Some(program),
            Poll::Ready(()) => {
                self.unfinished.set(self.unfinished.get() - 1);
                if self.unfinished.get() == 0 {
                    self.finish();
                }
            }
        }
    }
}

impl<C: Client> SessionExecutor for Driver<C> {
    fn run(&self, ready: &mut Vec<u32>) {
        for number in ready.drain(..) {
            self.poll(number);
        }
    }
}

async fn load<C: Client>(shared: Rc<Shared<C>>, mut client: C, session: u32) {
    let retries = shared.workload.spec().insertion_retry_limit;
    for (done, Record { key, value }) in shared.workload.load(session).enumerate() {
        let mut attempt = 0;
        while let Err(failure) = client.put(key.bytes.clone(), value.bytes.clone()).await {
            if attempt == retries || shared.progress.is_stopped() {
                shared.report.borrow_mut().last_failure =
                    Some(format!("loading record {} failed: {failure}", key.index));
                shared.progress.stop();
                return;
            }
            attempt += 1;
        }
        if done % 64 == 63 {
            shared.progress.operations.fetch_add(64, Ordering::Relaxed);
        }
        if shared.progress.is_stopped() {
            return;
        }
    }
}

/// What one of the sessions of [`Driver::read_all`] reads: every [`READERS`]-th key.
struct Reads {
    session: u32,
    replica: u16,
    first: usize,
    keys: Rc<Vec<NamedKey>>,
}

async fn read_all<C: Client>(shared: Rc<Shared<C>>, mut client: C, reads: Reads, answers: Rc<RefCell<Vec<Outcome<Option<Tag>>>>>) {
    client.context().record_witnesses();
    let mut history = Recording::new(&shared, reads.session, reads.replica);
    for place in (reads.first..reads.keys.len()).step_by(READERS as usize) {
        let NamedKey { index, bytes } = reads.keys[place].clone();
        let start_us = shared.port.now_us();
        let answer = client.get(bytes).await.map(|value| value.as_deref().map(tag_of));
        let tag = answer.as_ref().ok().copied().flatten();
        let end_us = shared.port.now_us();
        history.record(&shared, &mut client, Kind::Read, index, tag, start_us, end_us, &answer);
        answers.borrow_mut()[place] = answer;
    }
}

async fn run<C: Client>(
    shared: Rc<Shared<C>>,
    mut client: C,
    session: u32,
    number: u32,
    replica: u16,
    window: Window,
) {
    let recording = shared.recorder.borrow().is_some();
    if recording {
        client.context().record_witnesses();
    }
    let mut history = Recording::new(&shared, session, replica);
    let mut pace = Pace::new(&shared.workload, session, window.start_us);
    let mut operations = shared.workload.session(session);
    let mut left = shared.workload.operations_of(session).unwrap_or(u64::MAX);
    let mut now_us = shared.port.now_us();
    if now_us < window.start_us {
        alarm(&*shared.port, number, window.start_us).await;
        now_us = shared.port.now_us();
    }
    let mut uncounted = 0;
    while left > 0 && !shared.progress.is_stopped() {
        let intended_us = pace.next();
        if let Some(intended_us) = intended_us
            && now_us < intended_us
        {
            if intended_us >= window.end_us {
                break;
            }
            alarm(&*shared.port, number, intended_us).await;
            now_us = shared.port.now_us();
        }
        if now_us >= window.end_us {
            break;
        }
        left -= 1;
        let start_us = now_us;
        let operation = operations.next_operation();
        let kind = operation.kind();
        let (status, end_us) =
            perform(&shared, &mut client, &mut history, operation, start_us).await;
        now_us = end_us;
        if start_us >= window.measure_us && end_us <= window.end_us {
            let mut report = shared.report.borrow_mut();
            report.measurements.record(kind, status, end_us - start_us);
            if let (Some(intended), Some(intended_us)) = (&mut report.intended, intended_us) {
                intended.record(kind, status, end_us.saturating_sub(intended_us));
            }
        }
        uncounted += 1;
        if uncounted == 64 {
            shared
                .progress
                .operations
                .fetch_add(uncounted, Ordering::Relaxed);
            uncounted = 0;
        }
        if recording
            && shared
                .recorder
                .borrow()
                .as_ref()
                .is_some_and(Recorder::is_full)
        {
            shared.progress.stop();
        }
    }
    shared
        .progress
        .operations
        .fetch_add(uncounted, Ordering::Relaxed);
}

async fn perform<C: Client>(
    shared: &Rc<Shared<C>>,
    client: &mut C,
    history: &mut Recording,
    operation: Operation,
    start_us: u64,
) -> (Status, u64) {
    match operation {
        Operation::Read { key } => read(shared, client, history, key, start_us).await,
        Operation::Update { key, value } => {
            write(shared, client, history, key, value, start_us).await
        }
        Operation::Insert(Record { key, value }) => {
            write(shared, client, history, key, value, start_us).await
        }
        Operation::ReadModifyWrite { key, value } => {
            let (status, now_us) = read(shared, client, history, key.clone(), start_us).await;
            match status {
                Status::Ok | Status::NotFound => {
                    write(shared, client, history, key, value, now_us).await
                }
                Status::Error | Status::Unknown => (status, now_us),
            }
        }
        Operation::Scan { from, count } => {
            let outcome = client.scan(from.bytes, count as usize).await;
            client.context().take_witnesses();
            (shared.status(&outcome), shared.port.now_us())
        }
        Operation::AmplifiedInsert(records) => {
            let (mut status, mut now_us) = (Status::Ok, start_us);
            for Record { key, value } in records {
                let (one, end_us) = write(shared, client, history, key, value, now_us).await;
                now_us = end_us;
                status = status.max(one);
            }
            (status, now_us)
        }
    }
}

async fn read<C: Client>(
    shared: &Rc<Shared<C>>,
    client: &mut C,
    history: &mut Recording,
    key: NamedKey,
    start_us: u64,
) -> (Status, u64) {
    let answer = client.get(key.bytes).await;
    let end_us = shared.port.now_us();
    let status = match &answer {
        Ok(None) => Status::NotFound,
        answer => shared.status(answer),
    };
    if history.enabled {
        let tag = answer
            .as_ref()
            .ok()
            .and_then(|value| value.as_deref().map(tag_of));
        history.record(
            shared,
            client,
            Kind::Read,
            key.index,
            tag,
            start_us,
            end_us,
            &answer,
        );
    }
    (status, end_us)
}

async fn write<C: Client>(
    shared: &Rc<Shared<C>>,
    client: &mut C,
    history: &mut Recording,
    key: NamedKey,
    value: TaggedValue,
    start_us: u64,
) -> (Status, u64) {
    let answer = client.put(key.bytes, value.bytes).await;
    let end_us = shared.port.now_us();
    if history.enabled {
        history.record(
            shared,
            client,
            Kind::Write,
            key.index,
            Some(value.tag),
            start_us,
            end_us,
            &answer,
        );
    }
    (shared.status(&answer), end_us)
}

/// The tag of a value; one that no session writes if the value is none of ours, so that checkers call it thin air.
fn tag_of(value: &[u8]) -> Tag {
    Tag::parse(value).unwrap_or(Tag::FOREIGN)
}

impl<C: Client> Shared<C> {
    fn status<T>(&self, outcome: &Outcome<T>) -> Status {
        let failure = match outcome {
            Ok(_) => return Status::Ok,
            Err(failure) => failure,
        };
        self.report.borrow_mut().last_failure = Some(failure.to_string());
        match failure {
            Failure::Failed(_) => Status::Error,
            Failure::Unknown => Status::Unknown,
        }
    }
}

/// A session's side of the recorder.
struct Recording {
    enabled: bool,
    session: u32,
    process: u32,
    site: u16,
    sessions: u32,
}

impl Recording {
    fn new<C: Client>(shared: &Shared<C>, session: u32, replica: u16) -> Self {
        let enabled = shared.recorder.borrow().is_some();
        Recording {
            enabled,
            session,
            process: session,
            site: replica,
            sessions: shared.workload.sessions(),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are the fields of one entry"
    )]
    fn record<C: Client, T>(
        &mut self,
        shared: &Shared<C>,
        client: &mut C,
        kind: Kind,
        key_index: u64,
        value: Option<Tag>,
        start_us: u64,
        end_us: u64,
        answer: &Outcome<T>,
    ) {
        let version = client
            .context()
            .take_witnesses()
            .last()
            .map(|(_, version)| version.0);
        let (outcome, complete_us) = match answer {
            Ok(_) => (RecordedOutcome::Ok, Some(end_us)),
            Err(Failure::Failed(_)) => (RecordedOutcome::Fail, Some(end_us)),
            Err(Failure::Unknown) => (RecordedOutcome::Info, None),
        };
        let entry = Entry {
            process: self.process,
            session: self.session,
            site: self.site,
            kind,
            key_index,
            value,
            version,
            invoke_us: start_us,
            complete_us,
            outcome,
        };
        if outcome == RecordedOutcome::Info {
            // The old process may still be at work: the session goes on as another one.
            self.process = self.process.wrapping_add(self.sessions.max(1) + 1024);
        }
        if let Some(recorder) = &mut *shared.recorder.borrow_mut() {
            recorder.record(entry);
        }
    }
}

/// When the operations of a session should start.
struct Pace {
    interval_us: f64,
    next_us: f64,
}

impl Pace {
    /// An open loop spreads the target evenly over the sessions, and the sessions over the first interval.
    fn new(workload: &Workload, session: u32, start_us: u64) -> Self {
        let sessions = f64::from(workload.sessions());
        match workload.spec().target_ops_s {
            None => Pace {
                interval_us: 0.0,
                next_us: 0.0,
            },
            Some(target) => {
                let interval_us = sessions * 1e6 / target;
                Pace {
                    interval_us,
                    next_us: start_us as f64 + interval_us * f64::from(session) / sessions,
                }
            }
        }
    }

    /// The intended start of the next operation; `None` in a closed loop.
    fn next(&mut self) -> Option<u64> {
        if self.interval_us == 0.0 {
            return None;
        }
        let intended_us = self.next_us;
        self.next_us += self.interval_us;
        Some(intended_us as u64)
    }
}

/// Resolves at `time_us`, or soon after.
async fn alarm<M: dkvf_core::Metadata>(port: &dyn ClientPort<M>, session: u32, time_us: u64) {
    port.wake_at(session, time_us);
    poll_fn(|_| {
        if port.now_us() >= time_us {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
