//! Random schedules: sessions work while links inside and between replicas straggle and clocks differ.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use dkvf_core::script::{Channel, Operation, Script};
use dkvf_core::{Code, Failure, Key, Protocol, Reason, Value};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::checker::Checker;

/// What is run. The cluster has 3 replicas of 3 partitions.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Chooses everything.
    pub seed: u64,
    /// Whether the protocol has read-only transactions.
    pub read_only: bool,
    /// Clocks differ from true time by at most this.
    pub skew_us: i64,
}

const REPLICAS: u16 = 3;
const PARTITIONS: u16 = 3;
const SESSIONS_PER_REPLICA: usize = 3;
const OPERATIONS: usize = 60;
const KEYS: usize = 6;
/// Steps between two looks at which channels straggle.
const STEPS_PER_WEATHER: u64 = 300;

/// Runs a schedule, checks it, and returns a hash of all that happened.
///
/// # Panics
/// If the history is not causal, replicas do not converge, something is left waiting, or a session is refused.
pub fn run<P: Protocol>(plan: Plan) -> u64 {
    let mut run = Run::<P>::new(plan);
    while run.busy() {
        run.step();
    }
    run.settle();
    run.hash()
}

struct Run<P: Protocol> {
    plan: Plan,
    rng: Pcg64Mcg,
    script: Script<P>,
    checker: Checker,
    keys: Vec<Key>,
    /// Sessions with the operations they still have to do.
    sessions: Vec<(u32, usize)>,
    weather: BTreeMap<Channel, u32>,
    steps: u64,
    history: std::hash::DefaultHasher,
}

impl<P: Protocol> Run<P> {
    fn new(plan: Plan) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(plan.seed);
        let mut script = Script::<P>::new(REPLICAS, PARTITIONS);
        for id in script.topology().ids() {
            script.set_skew(id, rng.random_range(-plan.skew_us..=plan.skew_us));
        }
        let sessions = (0..REPLICAS).flat_map(|replica| [replica; SESSIONS_PER_REPLICA]).map(|replica| (script.session(replica), OPERATIONS));
        let sessions: Vec<_> = sessions.collect();
        sessions.iter().for_each(|(session, _)| script.hold(*session));
        let keys = (0..KEYS).map(|i| script.key(i % usize::from(PARTITIONS), i / usize::from(PARTITIONS))).collect();
        Run { plan, rng, script, checker: Checker::default(), keys, sessions, weather: BTreeMap::new(), steps: 0, history: Default::default() }
    }

    fn busy(&self) -> bool {
        self.sessions.iter().any(|(session, left)| *left > 0 || !self.script.is_idle(*session))
    }

    fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < 1_000_000, "{:?}: the sessions make no progress", self.plan);
        match self.rng.random_range(0..100) {
            0..15 => self.script.advance(self.rng.random_range(1..400)),
            15..40 => self.start(),
            _ => self.deliver(),
        }
        self.collect();
    }

    fn start(&mut self) {
        let (session, left) = self.sessions[self.rng.random_range(0..self.sessions.len())];
        if left == 0 || !self.script.is_idle(session) {
            return;
        }
        let key = self.keys[self.rng.random_range(0..KEYS)].clone();
        let operation = match self.rng.random_range(0..100) {
            0..25 if self.plan.read_only => {
                let first = self.rng.random_range(0..KEYS);
                let apart = self.rng.random_range(1..KEYS / 2);
                Operation::ReadOnly((0..3).map(|i| self.keys[(first + i * apart) % KEYS].clone()).collect())
            }
            0..70 => Operation::Get(key),
            _ => Operation::Put(key, Value::from(format!("{session}:{left}"))),
        };
        self.checker.start(session, &operation);
        self.script.start(session, operation);
    }

    fn deliver(&mut self) {
        if self.steps.is_multiple_of(STEPS_PER_WEATHER) {
            // A channel that straggles does so for several looks, while its neighbours run ahead.
            self.weather.retain(|_, weight| *weight == 0 && self.rng.random_bool(0.7));
        }
        let mut weighted = Vec::new();
        for channel in self.script.channels() {
            let weight = *self.weather.entry(channel).or_insert_with(|| [0, 1, 1, 8, 8, 8][self.rng.random_range(0..6)]);
            // Clients do not wait for the weather.
            let weight = if matches!(channel, Channel::Link(..)) { weight } else { 4 };
            weighted.extend(std::iter::repeat_n(channel, weight as usize));
        }
        if !weighted.is_empty() {
            self.script.deliver(weighted[self.rng.random_range(0..weighted.len())]);
        }
    }

    fn collect(&mut self) {
        for (session, left) in &mut self.sessions {
            if let Some(finished) = self.script.take(*session) {
                *left -= 1;
                let refused = matches!(finished.outcome, Err(Failure::Failed(Reason::Refused(code))) if code != Code::Timeout);
                assert!(!refused, "{}, {:?}: an honest session is refused: {finished:?}", P::NAME, self.plan);
                self.history.write(format!("{session} {finished:?}").as_bytes());
                if let Err(violation) = self.checker.end(*session, &finished) {
                    panic!("{}, {:?}: {violation}", P::NAME, self.plan);
                }
            }
        }
    }

    /// Everything arrives, and all replicas return the same.
    fn settle(&mut self) {
        self.script.settle(300);
        let readers: Vec<_> = (0..REPLICAS).map(|replica| self.script.session(replica)).collect();
        for key in &self.keys {
            let values: Vec<_> = readers.iter().map(|reader| self.script.get(*reader, key)).collect();
            assert!(values.iter().all(|value| *value == values[0]), "{}, {:?}: {key:?} is {values:?}", P::NAME, self.plan);
        }
        assert_eq!(self.script.parked(), 0, "{}, {:?}: something still waits", P::NAME, self.plan);
    }

    fn hash(mut self) -> u64 {
        self.history.write_u64(self.script.fingerprint());
        self.history.finish()
    }
}
