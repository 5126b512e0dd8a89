//! The driver's sessions over a port without a network, in virtual time.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use async_trait::async_trait;
use dkvf_check::Outcome as Recorded;
use dkvf_core::{
    Client, ClientContext, ClientPort, Code, Failure, Key, Outcome, Reason, ServerId,
    SessionExecutor, Topology, Value, VersionKey,
};
use dkvf_protocols::eventual::EventualClient;
use dkvf_protocols::eventual::metadata::*;
use dkvf_workload::{
    Driver, Entry, Kind, NamedKey, OperationKind, Progress, Recorder, Status, Tag, Window,
    Workload, WorkloadSpec,
};

/// Time of every operation that is answered.
const SERVICE_US: u64 = 100;
/// Time after which a request without an answer is given up.
const TIMEOUT_US: u64 = 50_000;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    /// It takes effect, and nobody learns of it.
    Lost,
}

/// When an answer comes, and which.
type Answer = (u64, Outcome<ClientReply>);

/// One server with all keys. It answers every request after the same time, and decides its fate by its number.
struct Port {
    now_us: Cell<u64>,
    fate: RefCell<Box<dyn FnMut(u64) -> Fate>>,
    requests: Cell<u64>,
    records: RefCell<BTreeMap<Key, Record>>,
    sessions: Cell<u32>,
    /// By session and number of the request.
    answers: RefCell<BTreeMap<(u32, u64), Answer>>,
    /// When which session is to be polled.
    agenda: RefCell<BinaryHeap<Reverse<(u64, u32)>>>,
}

impl Port {
    fn new(fate: impl FnMut(u64) -> Fate + 'static) -> Rc<Self> {
        Rc::new(Port {
            now_us: Cell::new(0),
            fate: RefCell::new(Box::new(fate)),
            requests: Cell::new(0),
            records: RefCell::default(),
            sessions: Cell::new(0),
            answers: RefCell::default(),
            agenda: RefCell::default(),
        })
    }

    fn serve(&self, message: ClientMessage, ts: u64) -> ClientReply {
        let mut records = self.records.borrow_mut();
        match message {
            ClientMessage::Get(GetMessage { key }) => GetReply {
                record: records.get(&key).cloned(),
            }
            .into(),
            ClientMessage::Put(PutMessage { key, value }) => {
                records.insert(
                    key,
                    Record {
                        value,
                        ts,
                        origin: 0,
                    },
                );
                PutReply { ts, origin: 0 }.into()
            }
            ClientMessage::Scan(_) => ScanReply { rows: Vec::new() }.into(),
        }
    }
}

impl ClientPort<Metadata> for Port {
    fn send(
        &self,
        session: u32,
        _server: ServerId,
        request: u64,
        message: ClientMessage,
    ) -> Result<(), Reason> {
        let number = self.requests.get();
        self.requests.set(number + 1);
        let (after_us, answer) = match (self.fate.borrow_mut())(number) {
            Fate::Answered => (SERVICE_US, Ok(self.serve(message, number + 1))),
            Fate::Refused => (
                SERVICE_US,
                Err(Failure::Failed(Reason::Refused(Code::Overloaded))),
            ),
            Fate::Lost => {
                self.serve(message, number + 1);
                (TIMEOUT_US, Err(Failure::Unknown))
            }
        };
        let time_us = self.now_us.get() + after_us;
        self.answers
            .borrow_mut()
            .insert((session, request), (time_us, answer));
        self.agenda.borrow_mut().push(Reverse((time_us, session)));
        Ok(())
    }

    fn poll(&self, session: u32, request: u64, _waker: &Waker) -> Poll<Outcome<ClientReply>> {
        let mut answers = self.answers.borrow_mut();
        match answers.get(&(session, request)) {
            Some((time_us, _)) if *time_us <= self.now_us.get() => {}
            _ => return Poll::Pending,
        }
        Poll::Ready(answers.remove(&(session, request)).expect("it was there").1)
    }

    fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    fn wake_at(&self, session: u32, time_us: u64) {
        self.agenda.borrow_mut().push(Reverse((time_us, session)));
    }
}

/// Eventual consistency's client with read-only transactions: on one server that nobody writes to, reads one after the
/// other are a snapshot.
struct SnapshotClient(EventualClient);

#[async_trait(?Send)]
impl Client for SnapshotClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        SnapshotClient(EventualClient::new(cx))
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        self.0.context()
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        self.0.get(key).await
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        self.0.put(key, value).await
    }

    async fn read_only(&mut self, keys: Vec<Key>) -> Outcome<Vec<Option<Value>>> {
        let mut values = Vec::new();
        for key in keys {
            values.push(self.0.get(key).await?);
        }
        Ok(values)
    }
}

/// A driver and the port it is on.
struct Bench<C: Client = EventualClient> {
    port: Rc<Port>,
    driver: Rc<Driver<C>>,
    progress: Arc<Progress>,
}

impl<C: Client<Metadata = Metadata> + 'static> Bench<C> {
    fn new(
        workload: &[(&str, &str)],
        sessions: u32,
        recorder: Option<Recorder>,
        fate: impl FnMut(u64) -> Fate + 'static,
    ) -> Self {
        let workload = [("operationcount", "0")].iter().chain(workload).copied();
        let spec = WorkloadSpec::load("a", workload).unwrap();
        let workload = Workload::new(spec, 1, sessions);
        let port = Port::new(fate);
        let opened = port.clone();
        let new_session = move |replica| {
            let number = opened.sessions.get();
            opened.sessions.set(number + 1);
            (
                number,
                ClientContext::new(opened.clone(), Topology::grid(1, 1), number, replica),
            )
        };
        let progress = Arc::new(Progress::default());
        let driver = Driver::new(
            port.clone(),
            Box::new(new_session),
            workload,
            progress.clone(),
            recorder,
        );
        Bench {
            port,
            driver,
            progress,
        }
    }

    /// Lets time pass until the phase that `start` starts has ended.
    fn phase(&self, start: impl FnOnce(&Driver<C>, Box<dyn FnOnce()>)) {
        let ended = Rc::new(Cell::new(false));
        let flag = ended.clone();
        start(&self.driver, Box::new(move || flag.set(true)));
        while !ended.get() {
            let Reverse((time_us, session)) = self
                .port
                .agenda
                .borrow_mut()
                .pop()
                .expect("the phase waits for nothing that will come");
            self.port.now_us.set(self.port.now_us.get().max(time_us));
            SessionExecutor::run(&*self.driver, &mut vec![session]);
        }
    }

    fn load(&self, sessions: u32) {
        let sessions: Vec<(u32, u16)> = (0..sessions).map(|session| (session, 0)).collect();
        self.phase(|driver, finished| driver.load(&sessions, finished));
    }

    fn run(&self, sessions: u32, window: Window) {
        let sessions: Vec<(u32, u16)> = (0..sessions).map(|session| (session, 0)).collect();
        self.phase(|driver, finished| driver.run(&sessions, window, finished));
    }

    fn entries(&self) -> Vec<Entry> {
        self.driver
            .take_recorder()
            .unwrap()
            .entries()
            .copied()
            .collect()
    }
}

const READS: [(&str, &str); 2] = [("readproportion", "1"), ("updateproportion", "0")];
const UPDATES: [(&str, &str); 2] = [("readproportion", "0"), ("updateproportion", "1")];

/// The bench after the load phase, which is not part of the test: the clock and the counts start anew.
fn loaded(
    workload: &[(&str, &str)],
    sessions: u32,
    recorder: Option<Recorder>,
    fate: impl FnMut(u64) -> Fate + 'static,
) -> Bench {
    loaded_as(workload, sessions, recorder, fate)
}

fn loaded_as<C: Client<Metadata = Metadata> + 'static>(
    workload: &[(&str, &str)],
    sessions: u32,
    recorder: Option<Recorder>,
    mut fate: impl FnMut(u64) -> Fate + 'static,
) -> Bench<C> {
    let loading = Rc::new(Cell::new(true));
    let flag = loading.clone();
    let bench = Bench::new(workload, sessions, recorder, move |number| {
        if flag.get() {
            Fate::Answered
        } else {
            fate(number)
        }
    });
    bench.load(sessions);
    loading.set(false);
    bench.port.requests.set(0);
    bench.port.now_us.set(0);
    bench.progress.reset();
    bench
}

fn always(fate: Fate) -> impl FnMut(u64) -> Fate {
    move |_| fate
}

fn window(start_us: u64, measure_us: u64, end_us: u64) -> Window {
    Window {
        start_us,
        measure_us,
        end_us,
    }
}

#[test]
fn sessions_load_all_records_in_shares() {
    let bench = <Bench>::new(&[("recordcount", "10")], 3, None, always(Fate::Answered));
    bench.load(3);
    assert_eq!(bench.port.records.borrow().len(), 10);
    assert_eq!(bench.port.requests.get(), 10);
    // The longest share of 10 among 3 is 4, one after the other.
    assert_eq!(bench.port.now_us(), 4 * SERVICE_US);
    assert_eq!(
        bench.progress.operations(),
        10,
        "also those that do not fill a portion are counted"
    );
    assert!(!bench.progress.is_stopped());
}

#[test]
fn a_failed_insert_ends_the_load_and_says_which() {
    let bench = <Bench>::new(&[("recordcount", "10")], 2, None, |number| {
        if number == 4 {
            Fate::Refused
        } else {
            Fate::Answered
        }
    });
    bench.load(2);
    assert!(bench.progress.is_stopped());
    let failure = bench.driver.take_report().last_failure.unwrap();
    assert_eq!(
        failure,
        "loading record 4 failed: failed, without effect: the server answered Overloaded"
    );
}

#[test]
fn a_failed_insert_is_tried_again_after_the_interval() {
    let retries = [
        ("recordcount", "1"),
        ("core_workload_insertion_retry_limit", "2"),
        ("core_workload_insertion_retry_interval", "3"),
    ];
    let bench = <Bench>::new(&retries, 1, None, |number| {
        if number < 2 {
            Fate::Refused
        } else {
            Fate::Answered
        }
    });
    bench.load(1);
    assert!(!bench.progress.is_stopped());
    assert_eq!(bench.port.requests.get(), 3);
    assert_eq!(bench.port.now_us(), 3 * SERVICE_US + 2 * 3_000_000);

    let bench = <Bench>::new(&retries, 1, None, always(Fate::Refused));
    bench.load(1);
    assert!(bench.progress.is_stopped());
    assert_eq!(bench.port.requests.get(), 3, "the first try and two more");
}

#[test]
fn a_closed_loop_keeps_every_session_busy() {
    let bench = loaded(&READS, 4, None, always(Fate::Answered));
    bench.run(4, window(0, 0, 10_000));
    let report = bench.driver.take_report();
    assert_eq!(
        report.measurements.count(Status::Ok),
        4 * 10_000 / SERVICE_US
    );
    assert_eq!(bench.progress.operations(), 4 * 10_000 / SERVICE_US);
    assert!(report.intended.is_none());
    let latency = report.measurements.latency_us(OperationKind::Read).unwrap();
    assert_eq!((latency.min(), latency.max()), (SERVICE_US, SERVICE_US));
}

#[test]
fn the_window_leaves_out_the_warm_up_and_what_ends_too_late() {
    let bench = loaded(&READS, 1, None, always(Fate::Answered));
    // Operations start at 1000, 1100 and so on: the one from 1400 starts before the window, and the one from 2400 ends after it.
    bench.run(1, window(1_000, 1_450, 2_450));
    assert_eq!(bench.driver.take_report().measurements.count(Status::Ok), 9);
    assert_eq!(bench.progress.operations(), 15);
    assert_eq!(
        bench.port.now_us(),
        2_500,
        "none is started after the window"
    );
}

#[test]
fn operationcount_is_shared_and_does_not_count_the_warm_up() {
    let mut workload = READS.to_vec();
    workload.push(("operationcount", "10"));
    let bench = loaded(&workload, 3, None, always(Fate::Answered));
    bench.run(3, window(0, 1_000, 1_000_000));
    assert_eq!(
        bench.driver.take_report().measurements.count(Status::Ok),
        10
    );
    assert_eq!(bench.progress.operations(), 3 * 10 + 10);
    assert_eq!(bench.port.now_us(), 1_000 + 4 * SERVICE_US);
}

#[test]
fn an_open_loop_paces_its_operations() {
    let mut workload = READS.to_vec();
    workload.push(("target", "1000"));
    let bench = loaded(&workload, 4, None, always(Fate::Answered));
    bench.run(4, window(0, 0, 100_000));
    let report = bench.driver.take_report();
    assert_eq!(report.measurements.count(Status::Ok), 100);
    let intended = report.intended.unwrap();
    assert_eq!(
        intended.latency_us(OperationKind::Read).unwrap().max(),
        SERVICE_US
    );
}

#[test]
fn an_open_loop_counts_latency_from_the_intended_start() {
    let mut workload = READS.to_vec();
    workload.push(("target", "1000"));
    // The first request takes as long as 50 operations should.
    let bench = loaded(&workload, 1, None, |number| {
        if number == 0 {
            Fate::Lost
        } else {
            Fate::Answered
        }
    });
    bench.run(1, window(0, 0, 100_000));
    let report = bench.driver.take_report();
    assert_eq!(report.measurements.count(Status::Unknown), 1);
    assert_eq!(
        report.measurements.count(Status::Ok),
        99,
        "the backlog is worked off"
    );
    assert_eq!(
        report
            .measurements
            .latency_us(OperationKind::Read)
            .unwrap()
            .max(),
        SERVICE_US
    );
    // The second operation was due at 1000 and answered at 50100.
    let intended = report.intended.unwrap();
    let late = intended.latency_us(OperationKind::Read).unwrap();
    assert!(
        late.equivalent(late.max(), TIMEOUT_US + SERVICE_US - 1_000),
        "{}",
        late.max()
    );
}

#[test]
fn after_an_unknown_outcome_the_session_goes_on_as_another() {
    let bench = loaded(&UPDATES, 2, Some(Recorder::new(1_000)), |number| {
        if number == 3 {
            Fate::Lost
        } else {
            Fate::Answered
        }
    });
    let sessions_before = bench.port.sessions.get();
    bench.run(2, window(0, 0, TIMEOUT_US + 10 * SERVICE_US));
    assert_eq!(
        bench.port.sessions.get(),
        sessions_before + 2 + 1,
        "one more session of the port"
    );
    let entries = bench.entries();
    let lost = entries
        .iter()
        .find(|entry| entry.outcome == Recorded::Info)
        .unwrap();
    assert_eq!(lost.complete_us, None);
    // Session s of S goes on as s + S, then s + 2S: nobody else's number.
    let later: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.session % 2 == lost.session % 2 && entry.invoke_us > lost.invoke_us)
        .collect();
    assert!(!later.is_empty());
    assert!(
        later
            .iter()
            .all(|entry| entry.session == lost.session + 2 && entry.process == lost.process + 2)
    );
    let other = entries
        .iter()
        .filter(|entry| entry.session % 2 != lost.session % 2);
    assert!(
        other
            .clone()
            .all(|entry| entry.session == 1 - lost.session % 2)
    );
}

#[test]
fn a_refused_operation_keeps_its_session() {
    let bench = loaded(&UPDATES, 1, Some(Recorder::new(1_000)), |number| {
        if number == 1 {
            Fate::Refused
        } else {
            Fate::Answered
        }
    });
    bench.run(1, window(0, 0, 1_000));
    assert_eq!(
        bench.driver.take_report().measurements.count(Status::Error),
        1
    );
    let entries = bench.entries();
    assert_eq!(
        entries
            .iter()
            .filter(|entry| entry.outcome == Recorded::Fail)
            .count(),
        1
    );
    assert!(
        entries
            .iter()
            .all(|entry| entry.session == 0 && entry.process == 0)
    );
}

#[test]
fn a_full_recorder_ends_the_run_without_losing_an_operation() {
    let bench = loaded(&READS, 3, Some(Recorder::new(10)), always(Fate::Answered));
    bench.run(3, window(0, 0, u64::MAX));
    assert!(bench.progress.is_stopped());
    // The other sessions had one more under way.
    let keys = [NamedKey {
        index: 0,
        bytes: "user0".into(),
    }];
    bench.progress.reset();
    let answers = Rc::new(RefCell::default());
    let taken = answers.clone();
    bench.phase(|driver, finished| {
        driver.read_all(1_000, 0, keys.to_vec(), move |answers| {
            *taken.borrow_mut() = answers;
            finished();
        });
    });
    assert_eq!(*answers.borrow(), [Ok(None)]);
    let recorder = bench.driver.take_recorder().unwrap();
    assert_eq!(recorder.dropped(), 0);
    assert_eq!(recorder.entries().count() as u64, bench.port.requests.get());
    assert_eq!(
        recorder.entries().last().unwrap().session,
        1_000,
        "the final read is recorded too"
    );
}

#[test]
fn a_read_modify_write_is_recorded_as_two_operations() {
    let workload = [
        ("readproportion", "0"),
        ("updateproportion", "0"),
        ("readmodifywriteproportion", "1"),
    ];
    let bench = loaded(
        &workload,
        1,
        Some(Recorder::new(1_000)),
        always(Fate::Answered),
    );
    bench.run(1, window(0, 0, 10 * SERVICE_US));
    let report = bench.driver.take_report();
    let latency = report
        .measurements
        .latency_us(OperationKind::ReadModifyWrite)
        .unwrap();
    assert_eq!((latency.len(), latency.max()), (5, 2 * SERVICE_US));
    let entries = bench.entries();
    assert_eq!(entries.len(), 10);
    for pair in entries.chunks(2) {
        assert_eq!((pair[0].kind, pair[1].kind), (Kind::Read, Kind::Write));
        assert_eq!(pair[0].key_index, pair[1].key_index);
        assert_eq!(pair[0].complete_us, Some(pair[1].invoke_us));
    }
}

const READ_ONLY: [(&str, &str); 4] = [
    ("readproportion", "0"),
    ("updateproportion", "0"),
    ("rotxproportion", "1"),
    ("requestdistribution", "uniform"),
];

#[test]
fn a_read_only_transaction_is_recorded_as_one_with_a_read_of_each_key() {
    let recorder = Some(Recorder::new(1_000));
    let bench = loaded_as::<SnapshotClient>(&READ_ONLY, 1, recorder, always(Fate::Answered));
    bench.run(1, window(0, 0, 10 * SERVICE_US));
    let report = bench.driver.take_report();
    let latency = report.measurements.latency_us(OperationKind::ReadOnly);
    assert_eq!(latency.unwrap().max(), 3 * SERVICE_US);
    let records = bench.port.records.borrow().clone();
    let entries = bench.entries();
    let transactions: Vec<_> = entries.chunk_by(|_, next| next.same_transaction).collect();
    assert_eq!(transactions.len(), 4);
    for transaction in transactions {
        assert_eq!(transaction.len(), 3);
        for entry in transaction {
            assert_eq!(
                (entry.invoke_us, entry.complete_us),
                (transaction[0].invoke_us, transaction[0].complete_us)
            );
            let tag = Tag::loaded(entry.key_index);
            let record = |record: &&Record| Tag::parse(&record.value) == Some(tag);
            let record = records.values().find(record).unwrap();
            let version = VersionKey::stamped(record.ts, u64::from(record.origin));
            assert_eq!(
                (entry.kind, entry.value, entry.version),
                (Kind::Read, Some(tag), Some(version.0)),
                "the value and the version of its key"
            );
        }
    }
}

#[test]
fn a_read_only_transaction_that_is_not_answered_or_not_offered_read_nothing() {
    let recorder = || Some(Recorder::new(1_000));
    let lost = loaded_as::<SnapshotClient>(&READ_ONLY, 1, recorder(), always(Fate::Lost));
    lost.run(1, window(0, 0, 10));
    let outcomes: Vec<_> = lost
        .entries()
        .iter()
        .map(|e| (e.value, e.outcome))
        .collect();
    assert_eq!(outcomes, [(None, Recorded::Info); 3]);

    let mut limited = READ_ONLY.to_vec();
    limited.push(("operationcount", "5"));
    let bench = loaded(&limited, 1, recorder(), always(Fate::Answered));
    bench.driver.run(&[(0, 0)], window(0, 0, 10), || {});
    assert_eq!(bench.port.requests.get(), 0);
    let entries = bench.entries();
    assert!(entries.iter().all(|entry| entry.outcome == Recorded::Fail));
    assert_eq!(entries.iter().filter(|e| !e.same_transaction).count(), 5);
}

#[test]
fn a_recorder_that_fills_up_keeps_whole_transactions() {
    let recorder = Some(Recorder::new(10));
    let bench = loaded_as::<SnapshotClient>(&READ_ONLY, 3, recorder, always(Fate::Answered));
    bench.run(3, window(0, 0, u64::MAX));
    let recorder = bench.driver.take_recorder().unwrap();
    assert_eq!(recorder.dropped(), 0);
    assert_eq!(recorder.entries().count() as u64, bench.port.requests.get());
}

#[test]
fn scans_are_measured_and_not_recorded() {
    let workload = [
        ("readproportion", "0"),
        ("updateproportion", "0"),
        ("scanproportion", "1"),
    ];
    let bench = loaded(
        &workload,
        1,
        Some(Recorder::new(1_000)),
        always(Fate::Answered),
    );
    bench.run(1, window(0, 0, 1_000));
    assert_eq!(
        bench
            .driver
            .take_report()
            .measurements
            .latency_us(OperationKind::Scan)
            .unwrap()
            .len(),
        10
    );
    assert_eq!(bench.entries(), []);
}

#[test]
fn recorded_reads_know_who_wrote_their_value() {
    let bench = loaded(
        &READS,
        1,
        Some(Recorder::new(1_000)),
        always(Fate::Answered),
    );
    bench.run(1, window(0, 0, 1_000));
    let entries = bench.entries();
    assert!(
        entries
            .iter()
            .all(|entry| entry.value == Some(Tag::loaded(entry.key_index)))
    );
    assert!(
        entries.iter().all(|entry| entry.version.is_some()),
        "the protocol told its order"
    );
}

#[test]
fn sleeping_sessions_see_the_stop_sign_when_told_to_look() {
    let mut workload = READS.to_vec();
    workload.push(("target", "0.001"));
    let bench = loaded(&workload, 2, None, always(Fate::Answered));
    let ended = Rc::new(Cell::new(false));
    let flag = ended.clone();
    bench.driver.run(
        &[(0, 0), (1, 0)],
        window(1_000_000, 1_000_000, u64::MAX),
        move || flag.set(true),
    );
    bench.progress.stop();
    assert!(!ended.get());
    bench.driver.look_at_stop_sign();
    assert!(ended.get());
    assert_eq!(bench.port.requests.get(), 0);
}

#[test]
fn a_reader_gives_up_after_an_unknown_outcome() {
    let bench = loaded(&READS, 1, None, always(Fate::Lost));
    // One reader of 64 has the keys 0, 64 and 128.
    let keys: Vec<NamedKey> = (0..130)
        .map(|index| NamedKey {
            index,
            bytes: format!("user{index}").into(),
        })
        .collect();
    bench.phase(|driver, finished| {
        driver.read_all(0, 0, keys, move |answers| {
            assert!(
                answers
                    .iter()
                    .all(|answer| *answer == Err(Failure::Unknown))
            );
            finished();
        })
    });
    assert_eq!(bench.port.requests.get(), 64, "one question of each reader");
    assert_eq!(bench.port.now_us(), TIMEOUT_US);
}
