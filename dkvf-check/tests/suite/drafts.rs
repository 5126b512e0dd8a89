//! Small random histories of transactions, in a form that shares nothing with [`History`].

use dkvf_check::{Action, History, Operation, Outcome, Transaction};

/// SplitMix64: a few lines, and equal everywhere.
pub struct Random(pub u64);

impl Random {
    /// A number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A written value; 0 is the initial version.
pub type Value = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Read(usize, Value),
    Write(usize, Value),
    Append(usize, Value),
    ReadList(usize, Vec<Value>),
}

impl Step {
    pub fn key(&self) -> usize {
        match *self {
            Step::Read(key, _) | Step::Write(key, _) | Step::Append(key, _) => key,
            Step::ReadList(key, _) => key,
        }
    }

    /// What it writes.
    pub fn written(&self) -> Option<Value> {
        match *self {
            Step::Write(_, value) | Step::Append(_, value) => Some(value),
            _ => None,
        }
    }

    /// The version it reads: of a list the last element.
    pub fn seen(&self) -> Option<Value> {
        match self {
            Step::Read(_, value) => Some(*value),
            Step::ReadList(_, list) => Some(list.last().copied().unwrap_or(0)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Txn {
    pub session: u32,
    pub invoke: u64,
    pub complete: u64,
    pub outcome: Outcome,
    pub steps: Vec<Step>,
}

/// The transactions of a history; those of a session in its order.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub txns: Vec<Txn>,
    pub keys: usize,
}

/// What is drawn.
#[derive(Clone, Copy)]
pub struct Shape {
    pub txns: u64,
    pub steps: u64,
    pub sessions: u64,
    pub keys: u64,
    pub lists: bool,
}

/// By key: the values that remain of each transaction that wrote it, in the order that the generator gave them.
pub type Orders = Vec<Vec<Value>>;

impl Draft {
    /// The history, with versions as `orders` says.
    pub fn history(&self, orders: Option<&Orders>) -> History {
        let mut history = History::default();
        let site = history.site_id("");
        for txn in &self.txns {
            let header = Transaction {
                process: txn.session,
                session: txn.session,
                site,
                invoke_us: txn.invoke,
                complete_us: (txn.outcome != Outcome::Info).then_some(txn.complete),
                outcome: txn.outcome,
            };
            let operations: Vec<Operation> = txn
                .steps
                .iter()
                .map(|step| operation(step, orders, &mut history))
                .collect();
            history.push(header, operations);
        }
        history
    }
}

fn operation(step: &Step, orders: Option<&Orders>, history: &mut History) -> Operation {
    let mut id = |value: Value| history.value_id(format!("v{value}").as_bytes());
    let action = match step {
        Step::Read(_, value) => Action::Read((*value != 0).then(|| id(*value))),
        Step::Write(_, value) => Action::Write(Some(id(*value))),
        Step::Append(_, value) => Action::Append(id(*value)),
        Step::ReadList(_, list) => {
            let list: Vec<_> = list.iter().map(|&value| id(value)).collect();
            Action::ReadList(history.list_id(&list))
        }
    };
    let value = step.written().or(step.seen());
    let place = orders.and_then(|orders| {
        let mut order = orders[step.key()].iter();
        order.position(|&other| Some(other) == value)
    });
    Operation {
        key: history.key_id(format!("k{}", step.key()).as_bytes()),
        action,
        version: place.map(|place| place as u128 + 100),
    }
}

/// A history in which transactions take effect in a random order and see a random part of what came before, with a
/// random error now and then; and the order of versions that it was made with.
pub fn random(seed: u64, shape: Shape) -> (Draft, Orders) {
    let mut random = Random(seed);
    let mut draft = skeleton(&mut random, shape);
    let mut arbitration: Vec<usize> = (0..draft.txns.len()).collect();
    shuffle(&mut random, &mut arbitration);
    let style = STYLES[random.below(6) as usize];
    let noise = [0, 0, 10, 4][random.below(4) as usize];
    let mut seen: Vec<Vec<usize>> = vec![Vec::new(); draft.txns.len()];
    for (place, &id) in arbitration.iter().enumerate() {
        seen[id] = visible(
            &mut random,
            style,
            (&draft, id),
            &arbitration[..place],
            &seen,
        );
        let mut snapshot: Vec<Vec<Value>> = vec![Vec::new(); draft.keys];
        for &other in arbitration[..place].iter() {
            let is_visible = seen[id].contains(&other);
            for (key, state) in snapshot.iter_mut().enumerate() {
                apply(&draft.txns[other], key, is_visible, shape.lists, state);
            }
        }
        execute(&mut draft, id, snapshot);
        if noise != 0 {
            disturb(&mut random, &mut draft, id, noise);
        }
    }
    let orders = orders(&draft, &arbitration);
    (draft, orders)
}

/// A list that misses a transaction ends before it.
fn apply(txn: &Txn, key: usize, is_visible: bool, lists: bool, state: &mut Vec<Value>) {
    if !is_visible || txn.outcome == Outcome::Fail {
        return;
    }
    let written = txn.steps.iter().filter(|step| step.key() == key);
    let written: Vec<Value> = written.filter_map(Step::written).collect();
    if lists {
        state.extend(written);
    } else if let Some(&last) = written.last() {
        *state = vec![last];
    }
}

/// Transactions whose writes are chosen and whose reads are not.
fn skeleton(random: &mut Random, shape: Shape) -> Draft {
    let mut draft = Draft {
        txns: Vec::new(),
        keys: shape.keys as usize,
    };
    let mut clocks = vec![0; shape.sessions as usize];
    let mut next_value = 0;
    let mut value = || {
        next_value += 1;
        next_value
    };
    let reads_of_ten = 3 + random.below(5);
    // Writers of one key and readers of all: long forks.
    let is_split = random.once_in(3);
    for _ in 0..2 + random.below(shape.txns - 1) {
        let session = random.below(shape.sessions) as usize;
        let (length, reads_of_ten) = match (is_split, random.once_in(2)) {
            (false, _) => (1 + random.below(shape.steps), reads_of_ten),
            (true, false) => (1, 0),
            (true, true) => (shape.steps, 10),
        };
        let steps = (0..length)
            .map(|_| {
                let key = random.below(shape.keys) as usize;
                match (random.below(10) < reads_of_ten, shape.lists) {
                    (true, false) => Step::Read(key, 0),
                    (true, true) => Step::ReadList(key, Vec::new()),
                    (false, false) => Step::Write(key, value()),
                    (false, true) => Step::Append(key, value()),
                }
            })
            .collect();
        let invoke = clocks[session] + random.below(8);
        clocks[session] = invoke + 1 + random.below(8);
        let outcome = match random.below(16) {
            0 | 2 => Outcome::Fail,
            1 => Outcome::Info,
            _ => Outcome::Ok,
        };
        draft.txns.push(Txn {
            session: session as u32,
            invoke,
            complete: clocks[session],
            outcome,
            steps,
        });
    }
    draft
}

/// How much of what came before a transaction sees.
#[derive(Clone, Copy)]
enum Style {
    All,
    Prefix,
    /// A prefix that contains all writers of the own keys: snapshot isolation.
    Snapshot,
    /// The causal past of some transactions.
    Past,
    /// One that contains all writers of the own keys: parallel snapshot isolation.
    ParallelSnapshot,
    Anything,
}

const STYLES: [Style; 6] = [
    Style::All,
    Style::Prefix,
    Style::Snapshot,
    Style::Past,
    Style::ParallelSnapshot,
    Style::Anything,
];

/// Which of the transactions `before` the transaction `id` sees.
fn visible(
    random: &mut Random,
    style: Style,
    (draft, id): (&Draft, usize),
    before: &[usize],
    seen: &[Vec<usize>],
) -> Vec<usize> {
    let writes = |txn: &Txn, key| {
        txn.steps
            .iter()
            .any(|step| step.key() == key && step.written().is_some())
    };
    let own = &draft.txns[id];
    let conflicts = |other: usize| {
        let mut keys = (0..draft.keys).filter(|&key| writes(own, key));
        keys.any(|key| writes(&draft.txns[other], key)) || draft.txns[other].session == own.session
    };
    let prefix = random.below(before.len() as u64 + 1) as usize;
    let mut chosen: Vec<usize> = before
        .iter()
        .copied()
        .filter(|_| !random.once_in(3))
        .collect();
    match style {
        Style::All => before.to_vec(),
        Style::Prefix => before[..prefix].to_vec(),
        Style::Snapshot => {
            let last = before.iter().rposition(|&other| conflicts(other));
            before[..prefix.max(last.map_or(0, |last| last + 1))].to_vec()
        }
        Style::Anything => chosen,
        Style::Past | Style::ParallelSnapshot => {
            if matches!(style, Style::ParallelSnapshot) {
                chosen.retain(|_| random.once_in(2));
                chosen.extend(before.iter().filter(|&&other| conflicts(other)));
            }
            let past: Vec<usize> = chosen.iter().flat_map(|&id| seen[id].clone()).collect();
            chosen.extend(past);
            chosen
        }
    }
}

/// Fills in what the reads of a transaction return.
fn execute(draft: &mut Draft, id: usize, mut state: Vec<Vec<Value>>) {
    for step in &mut draft.txns[id].steps {
        match step {
            Step::Read(key, value) => *value = state[*key].last().copied().unwrap_or(0),
            Step::ReadList(key, list) => list.clone_from(&state[*key]),
            Step::Write(key, value) => state[*key] = vec![*value],
            Step::Append(key, value) => state[*key].push(*value),
        }
    }
}

/// Lets a read return something else: any value of the key, also one that failed or was overwritten.
fn disturb(random: &mut Random, draft: &mut Draft, id: usize, noise: u64) {
    for place in 0..draft.txns[id].steps.len() {
        let key = draft.txns[id].steps[place].key();
        let all = draft.txns.iter().flat_map(|txn| &txn.steps);
        let values: Vec<Value> = all
            .filter(|step| step.key() == key)
            .filter_map(Step::written)
            .collect();
        if !random.once_in(noise) {
            continue;
        }
        let choice = random.below(values.len() as u64 + 1) as usize;
        match &mut draft.txns[id].steps[place] {
            Step::Read(_, value) => *value = values.get(choice).copied().unwrap_or(0),
            Step::ReadList(_, list) if random.once_in(3) => {
                list.pop();
            }
            Step::ReadList(_, list) => list.extend(values.get(choice)),
            _ => {}
        }
    }
}

fn orders(draft: &Draft, arbitration: &[usize]) -> Orders {
    let last = |id: usize, key: usize| {
        let steps = draft.txns[id].steps.iter().rev();
        steps
            .filter(|step| step.key() == key)
            .find_map(Step::written)
    };
    (0..draft.keys)
        .map(|key| arbitration.iter().filter_map(|&id| last(id, key)).collect())
        .collect()
}

/// The same values in another order.
pub fn shuffled(seed: u64, orders: &Orders) -> Orders {
    let mut random = Random(seed);
    let mut orders = orders.clone();
    orders
        .iter_mut()
        .for_each(|order| shuffle(&mut random, order));
    orders
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for place in (1..items.len()).rev() {
        items.swap(place, random.below(place as u64 + 1) as usize);
    }
}
