//! Sessions that run a workload: the load phase, the measured run, and the final reads.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dkvf_check::Outcome as RecordedOutcome;
use dkvf_core::{Client, ClientContext, ClientPort, Failure, Outcome, SessionExecutor, Value};

use crate::generator::{NamedKey, Operation, Record, TaggedValue, Workload};
use crate::measure::{Measurements, Status};
use crate::recorder::{Entry, Kind, Recorder};
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
/// It serves every host that offers a [`ClientPort`] and calls a [`SessionExecutor`] with the numbers of the port's
/// sessions. A program is one logical client: it takes a new session of the port after every unknown outcome.
pub struct Driver<C: Client> {
    shared: Rc<Shared<C>>,
    /// Those of the present phase; `None` once ended.
    programs: RefCell<Vec<Option<Program>>>,
    unfinished: Cell<usize>,
    finished: RefCell<Option<Box<dyn FnOnce()>>>,
}

/// The host's way to make the context of a new session bound to a replica: its number and its context.
pub type NewSession<C> = Box<dyn Fn(u16) -> (u32, ClientContext<<C as Client>::Metadata>)>;

struct Shared<C: Client> {
    port: Rc<dyn ClientPort<C::Metadata>>,
    new_session: NewSession<C>,
    /// By number of the port's session: the program that took it.
    owners: RefCell<Vec<usize>>,
    /// By number of the port's session: its number in the history.
    recorded_as: RefCell<Vec<u32>>,
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
            owners: RefCell::default(),
            recorded_as: RefCell::default(),
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
    /// A failed insert is tried again as often and as late as the workload says.
    pub fn load(&self, sessions: &[(u32, u16)], finished: impl FnOnce() + 'static) {
        let programs = sessions
            .iter()
            .enumerate()
            .map(|(program, &(session, replica))| {
                let seat = Seat::new(&self.shared, program, session, replica);
                Box::pin(load(seat, session)) as Program
            });
        self.start(programs.collect(), finished);
    }

    /// Runs `sessions` of the workload, each a number and the replica it is bound to, within `window`.
    pub fn run(&self, sessions: &[(u32, u16)], window: Window, finished: impl FnOnce() + 'static) {
        if self.shared.workload.spec().target_ops_s.is_some() {
            let mut report = self.shared.report.borrow_mut();
            report.intended.get_or_insert_default();
        }
        if let Some(recorder) = &mut *self.shared.recorder.borrow_mut() {
            // When the recorder is full, every session may be in the middle of an operation.
            recorder.reserve(sessions.len() * self.shared.workload.spec().entries_per_operation());
        }
        let programs = sessions
            .iter()
            .enumerate()
            .map(|(program, &(session, replica))| {
                let seat = Seat::new(&self.shared, program, session, replica);
                Box::pin(run(seat, session, window)) as Program
            });
        self.start(programs.collect(), finished);
    }

    /// Reads `keys` at `replica` with new sessions, numbered from `first_session` on in the history, and keeps the
    /// answers in the recorder. They are also handed to `finished`, in the order of the keys: [`Failure::Unknown`] for
    /// those that were not read. The number of keys read is counted in the [`Progress`].
    pub fn read_all(
        &self,
        first_session: u32,
        replica: u16,
        keys: Vec<NamedKey>,
        finished: impl FnOnce(Vec<Outcome<Option<Tag>>>) + 'static,
    ) {
        if let Some(recorder) = &mut *self.shared.recorder.borrow_mut() {
            recorder.reserve(keys.len());
        }
        let keys = Rc::new(keys);
        let answers = Rc::new(RefCell::new(vec![Err(Failure::Unknown); keys.len()]));
        let readers = (0..READERS).take(keys.len()).map(|reader| {
            let seat = Seat::new(
                &self.shared,
                reader as usize,
                first_session + reader,
                replica,
            );
            Box::pin(read_all(
                seat,
                reader as usize,
                keys.clone(),
                answers.clone(),
            )) as Program
        });
        self.start(readers.collect(), move || finished(answers.take()));
    }

    /// Has every session look at the stop sign of [`Progress`], also those that wait for their time to come. A session
    /// that waits for an answer goes on waiting.
    pub fn look_at_stop_sign(&self) {
        let programs = self.programs.borrow().len();
        (0..programs).for_each(|program| self.poll(program));
    }

    /// Sets the recorder aside, or takes it up again: for reads that only wait for something.
    pub fn pause_recording(&self, pause: bool) {
        let (from, to) = if pause {
            (&self.shared.recorder, &self.shared.paused_recorder)
        } else {
            (&self.shared.paused_recorder, &self.shared.recorder)
        };
        if let Some(recorder) = from.take() {
            *to.borrow_mut() = Some(recorder);
        }
    }

    /// The indexes of all records in the recorder, ascending.
    pub fn recorded_keys(&self) -> Vec<u64> {
        let recorder = self.shared.recorder.borrow();
        let entries = recorder.iter().flat_map(Recorder::entries);
        let mut indexes: Vec<u64> = entries.map(|entry| entry.key_index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }

    /// What a session of the port is called in the history; `None` if no program took it.
    pub fn recorded_session(&self, number: u32) -> Option<u32> {
        let known = self.shared.recorded_as.borrow();
        known
            .get(number as usize)
            .copied()
            .filter(|session| *session != u32::MAX)
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
        let count = programs.len();
        self.unfinished.set(count);
        *self.finished.borrow_mut() = Some(Box::new(finished));
        *self.programs.borrow_mut() = programs.into_iter().map(Some).collect();
        if count == 0 {
            self.finish();
        }
        (0..count).for_each(|program| self.poll(program));
    }

    fn finish(&self) {
        if let Some(finished) = self.finished.take() {
            finished();
        }
    }

    fn poll(&self, number: usize) {
        let program = self
            .programs
            .borrow_mut()
            .get_mut(number)
            .and_then(Option::take);
        let Some(mut program) = program else {
            return;
        };
        // The host knows which session an answer belongs to, so programs need no waker.
        match program
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Pending => self.programs.borrow_mut()[number] = Some(program),
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
            let owner = self.shared.owners.borrow().get(number as usize).copied();
            // A session of an earlier phase may still ring: a program that is polled for nothing goes on waiting.
            if let Some(program) = owner {
                self.poll(program);
            }
        }
    }
}

/// Where a program sits: its session with the cluster, and its side of the recorder.
struct Seat<C: Client> {
    shared: Rc<Shared<C>>,
    program: usize,
    replica: u16,
    /// Number of the session at the port.
    number: u32,
    client: C,
    recording: bool,
    /// Session and process in the history.
    recorded_as: u32,
}

impl<C: Client> Seat<C> {
    fn new(shared: &Rc<Shared<C>>, program: usize, session: u32, replica: u16) -> Self {
        let recording = shared.recorder.borrow().is_some();
        let (number, client) = shared.open_session(program, replica, recording);
        shared.note_recorded(number, session);
        Seat {
            shared: shared.clone(),
            program,
            replica,
            number,
            client,
            recording,
            recorded_as: session,
        }
    }

    /// Goes on as somebody else after an unknown outcome. The old client does not know whether its request took effect,
    /// or still will: what it remembers is no longer its history.
    fn change_session(&mut self) {
        (self.number, self.client) =
            self.shared
                .open_session(self.program, self.replica, self.recording);
        // Sessions of the workload are numbered from 0, so that nobody else gets these numbers.
        self.recorded_as = self
            .recorded_as
            .wrapping_add(self.shared.workload.sessions());
        self.shared.note_recorded(self.number, self.recorded_as);
    }

    fn record<T>(
        &mut self,
        kind: Kind,
        key_index: u64,
        value: Option<Tag>,
        start_us: u64,
        end_us: u64,
        answer: &Outcome<T>,
    ) {
        if !self.recording {
            return;
        }
        let witnesses = self.client.context().take_witnesses();
        self.keep(Entry {
            key_index,
            value,
            version: witnesses.last().map(|(_, version)| version.0),
            ..self.entry(kind, start_us, end_us, answer)
        });
    }

    /// Records a transaction that read `keys`, an entry for each.
    fn record_read_only(
        &mut self,
        keys: &[NamedKey],
        start_us: u64,
        end_us: u64,
        answer: &Outcome<Vec<Option<Value>>>,
    ) {
        if !self.recording {
            return;
        }
        let witnesses = self.client.context().take_witnesses();
        let entry = self.entry(Kind::Read, start_us, end_us, answer);
        let values = answer.as_deref().unwrap_or_default();
        for (place, NamedKey { index, bytes }) in keys.iter().enumerate() {
            let witness = witnesses.iter().rfind(|(key, _)| key == bytes);
            let value = values.get(place).and_then(Option::as_deref);
            self.keep(Entry {
                key_index: *index,
                value: value.map(tag_of),
                version: witness.map(|(_, version)| version.0),
                same_transaction: place > 0,
                ..entry
            });
        }
    }

    /// An entry of this session without key, value and version.
    fn entry<T>(&self, kind: Kind, start_us: u64, end_us: u64, answer: &Outcome<T>) -> Entry {
        let (outcome, complete_us) = match answer {
            Ok(_) => (RecordedOutcome::Ok, Some(end_us)),
            Err(Failure::Failed(_)) => (RecordedOutcome::Fail, Some(end_us)),
            Err(Failure::Unknown) => (RecordedOutcome::Info, None),
        };
        Entry {
            process: self.recorded_as,
            session: self.recorded_as,
            site: self.replica,
            kind,
            key_index: 0,
            value: None,
            version: None,
            invoke_us: start_us,
            complete_us,
            outcome,
            same_transaction: false,
        }
    }

    fn keep(&self, entry: Entry) {
        if let Some(recorder) = &mut *self.shared.recorder.borrow_mut() {
            recorder.record(entry);
        }
    }

    /// Resolves at `time_us` or soon after, or earlier if the phase is to stop.
    async fn wait_until(&self, time_us: u64) {
        let Shared { port, progress, .. } = &*self.shared;
        port.wake_at(self.number, time_us);
        poll_fn(|_| {
            if progress.is_stopped() || port.now_us() >= time_us {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

async fn load<C: Client>(mut seat: Seat<C>, session: u32) {
    let shared = seat.shared.clone();
    let spec = shared.workload.spec();
    let mut count = Count::new(&shared.progress);
    for Record { key, value } in shared.workload.load(session) {
        let mut attempt = 0;
        while let Err(failure) = seat
            .client
            .put(key.bytes.clone(), value.bytes.clone())
            .await
        {
            if attempt == spec.insertion_retry_limit || shared.progress.is_stopped() {
                let failure = format!("loading record {} failed: {failure}", key.index);
                shared.report.borrow_mut().last_failure = Some(failure);
                shared.progress.stop();
                return;
            }
            attempt += 1;
            if failure == Failure::Unknown {
                seat.change_session();
            }
            let again_us = shared.port.now_us() + spec.insertion_retry_interval_s * 1_000_000;
            seat.wait_until(again_us).await;
        }
        // Loaded records are no part of the history.
        seat.client.context().take_witnesses();
        count.add_one();
        if shared.progress.is_stopped() {
            return;
        }
    }
}

/// Reads every [`READERS`]-th key from the `first` on.
async fn read_all<C: Client>(
    mut seat: Seat<C>,
    first: usize,
    keys: Rc<Vec<NamedKey>>,
    answers: Rc<RefCell<Vec<Outcome<Option<Tag>>>>>,
) {
    let shared = seat.shared.clone();
    let mut count = Count::new(&shared.progress);
    for place in (first..keys.len()).step_by(READERS as usize) {
        if shared.progress.is_stopped() {
            return;
        }
        let NamedKey { index, bytes } = keys[place].clone();
        let start_us = shared.port.now_us();
        let answer = seat
            .client
            .get(bytes)
            .await
            .map(|value| value.as_deref().map(tag_of));
        let tag = answer.as_ref().ok().copied().flatten();
        seat.record(
            Kind::Read,
            index,
            tag,
            start_us,
            shared.port.now_us(),
            &answer,
        );
        let unknown = answer == Err(Failure::Unknown);
        answers.borrow_mut()[place] = answer;
        count.add_one();
        if unknown {
            // It took a whole deadline to learn that, and the next key would take another.
            return;
        }
    }
}

async fn run<C: Client>(mut seat: Seat<C>, session: u32, window: Window) {
    let shared = seat.shared.clone();
    let mut pace = Pace::new(&shared.workload, session, window.start_us);
    let mut operations = shared.workload.session(session);
    let mut left = shared.workload.operations_of(session).unwrap_or(u64::MAX);
    let mut count = Count::new(&shared.progress);
    let mut now_us = shared.port.now_us();
    if now_us < window.start_us {
        seat.wait_until(window.start_us).await;
        now_us = shared.port.now_us();
    }
    while left > 0 {
        let intended_us = pace.next();
        if let Some(intended_us) = intended_us
            && now_us < intended_us
        {
            if intended_us >= window.end_us {
                break;
            }
            seat.wait_until(intended_us).await;
            now_us = shared.port.now_us();
        }
        if now_us >= window.end_us || shared.progress.is_stopped() {
            break;
        }
        let start_us = now_us;
        let operation = operations.next_operation();
        let kind = operation.kind();
        let (status, end_us) = perform(&mut seat, operation, start_us).await;
        now_us = end_us;
        count.add_one();
        if start_us >= window.measure_us {
            left -= 1;
            if end_us <= window.end_us {
                let mut report = shared.report.borrow_mut();
                report.measurements.record(kind, status, end_us - start_us);
                if let (Some(intended), Some(intended_us)) = (&mut report.intended, intended_us) {
                    intended.record(kind, status, end_us.saturating_sub(intended_us));
                }
            }
        }
        if seat.recording
            && shared
                .recorder
                .borrow()
                .as_ref()
                .is_some_and(Recorder::is_full)
        {
            shared.progress.stop();
        }
    }
}

async fn perform<C: Client>(
    seat: &mut Seat<C>,
    operation: Operation,
    start_us: u64,
) -> (Status, u64) {
    match operation {
        Operation::Read { key } => read(seat, key, start_us).await,
        Operation::Update { key, value } | Operation::Insert(Record { key, value }) => {
            write(seat, key, value, start_us).await
        }
        Operation::ReadModifyWrite { key, value } => {
            let (status, now_us) = read(seat, key.clone(), start_us).await;
            match status {
                Status::Ok | Status::NotFound => write(seat, key, value, now_us).await,
                Status::Error | Status::Unknown => (status, now_us),
            }
        }
        Operation::Scan { from, count } => {
            let outcome = seat.client.scan(from.bytes, count as usize).await;
            seat.client.context().take_witnesses();
            let status = seat.conclude(&outcome);
            (status, seat.shared.port.now_us())
        }
        Operation::ReadOnly { keys } => read_only(seat, keys, start_us).await,
        Operation::AmplifiedInsert(records) => {
            let (mut status, mut now_us) = (Status::Ok, start_us);
            for Record { key, value } in records {
                let (one, end_us) = write(seat, key, value, now_us).await;
                now_us = end_us;
                status = status.max(one);
            }
            (status, now_us)
        }
    }
}

async fn read<C: Client>(seat: &mut Seat<C>, key: NamedKey, start_us: u64) -> (Status, u64) {
    let answer = seat.client.get(key.bytes).await;
    let end_us = seat.shared.port.now_us();
    let tag = answer
        .as_ref()
        .ok()
        .and_then(|value| value.as_deref().map(tag_of));
    seat.record(Kind::Read, key.index, tag, start_us, end_us, &answer);
    let status = match &answer {
        Ok(None) => Status::NotFound,
        answer => seat.conclude(answer),
    };
    (status, end_us)
}

async fn write<C: Client>(
    seat: &mut Seat<C>,
    key: NamedKey,
    value: TaggedValue,
    start_us: u64,
) -> (Status, u64) {
    let answer = seat.client.put(key.bytes, value.bytes).await;
    let end_us = seat.shared.port.now_us();
    seat.record(
        Kind::Write,
        key.index,
        Some(value.tag),
        start_us,
        end_us,
        &answer,
    );
    (seat.conclude(&answer), end_us)
}

async fn read_only<C: Client>(
    seat: &mut Seat<C>,
    keys: Vec<NamedKey>,
    start_us: u64,
) -> (Status, u64) {
    let asked = keys.iter().map(|key| key.bytes.clone()).collect();
    let answer = seat.client.read_only(asked).await;
    let end_us = seat.shared.port.now_us();
    seat.record_read_only(&keys, start_us, end_us, &answer);
    (seat.conclude(&answer), end_us)
}

/// The tag of a value; one that no session writes if the value is none of ours, so that checkers call it thin air.
fn tag_of(value: &[u8]) -> Tag {
    Tag::parse(value).unwrap_or(Tag::FOREIGN)
}

impl<C: Client> Seat<C> {
    /// What the outcome of an operation, already recorded, means for statistics and for the session.
    fn conclude<T>(&mut self, outcome: &Outcome<T>) -> Status {
        let failure = match outcome {
            Ok(_) => return Status::Ok,
            Err(failure) => failure,
        };
        self.shared.report.borrow_mut().last_failure = Some(failure.to_string());
        match failure {
            Failure::Failed(_) => Status::Error,
            Failure::Unknown => {
                self.change_session();
                Status::Unknown
            }
        }
    }
}

impl<C: Client> Shared<C> {
    /// A new session of the port for a program.
    fn open_session(&self, program: usize, replica: u16, recording: bool) -> (u32, C) {
        let (number, context) = (self.new_session)(replica);
        let mut owners = self.owners.borrow_mut();
        let place = number as usize;
        let length = owners.len().max(place + 1);
        // Numbers in between are of sessions that no program took.
        owners.resize(length, usize::MAX);
        owners[place] = program;
        let mut client = C::new(context);
        if recording {
            client.context().record_witnesses();
        }
        (number, client)
    }

    /// Remembers what a session of the port is called in the history.
    fn note_recorded(&self, number: u32, recorded_as: u32) {
        let mut known = self.recorded_as.borrow_mut();
        let length = known.len().max(number as usize + 1);
        known.resize(length, u32::MAX);
        known[number as usize] = recorded_as;
    }
}

/// A program's contribution to [`Progress::operations`], handed over in portions and when it is dropped.
struct Count<'a> {
    progress: &'a Progress,
    pending: u64,
}

impl<'a> Count<'a> {
    fn new(progress: &'a Progress) -> Self {
        Count {
            progress,
            pending: 0,
        }
    }

    fn add_one(&mut self) {
        self.pending += 1;
        if self.pending == 64 {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.progress
            .operations
            .fetch_add(self.pending, Ordering::Relaxed);
        self.pending = 0;
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.hand_over();
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
