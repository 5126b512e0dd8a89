//! How long whole checks take: `cargo bench -p dkvf-check --bench size [-- NAME]`.
//!
//! Prints a table of the checks whose name contains NAME. Histories are made by a serial store whose answers a model
//! allows, so a check has to look at everything.

use std::time::Instant;

use dkvf_check::{
    Action, Evidence, History, Model, Operation, Options, Order, Outcome, Transaction, ValueId,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What a history is made of.
#[derive(Clone, Copy)]
struct Shape {
    transactions: u64,
    /// Operations of a transaction.
    steps: u64,
    keys: u64,
    sessions: u64,
    /// How many transactions may have committed after the snapshot that one reads was taken; 0 is a serial run.
    lag: usize,
    /// Whether the store reports versions.
    versions: bool,
}

/// The versions of a key: when it was committed, value.
type Versions = Vec<(usize, ValueId)>;

/// A run of a store with snapshots: reads are of the state `lag` transactions ago, and a transaction whose written keys
/// changed since is not run.
fn snapshots(shape: Shape) -> History {
    let mut random = Random(1);
    let mut history = History::default();
    let site = history.site_id("");
    let mut store: Vec<Versions> = vec![Vec::new(); shape.keys as usize];
    let keys: Vec<_> = (0..shape.keys)
        .map(|key| history.key_id(&key.to_le_bytes()))
        .collect();
    // A session's next snapshot contains what it committed.
    let mut floors = vec![0; shape.sessions as usize];
    let mut now = 0;
    while now < shape.transactions as usize {
        let session = random.below(shape.sessions) as usize;
        let lag = random.below(shape.lag as u64 + 1) as usize;
        let snapshot = now.saturating_sub(lag).max(floors[session]);
        let mut steps: Vec<(usize, bool)> = (0..shape.steps)
            .map(|_| (random.below(shape.keys) as usize, random.below(2) == 0))
            .collect();
        steps.sort_unstable();
        steps.dedup_by_key(|step| step.0);
        let changed = |key: usize| store[key].last().is_some_and(|&(at, _)| at > snapshot);
        if steps
            .iter()
            .any(|&(key, is_write)| is_write && changed(key))
        {
            continue;
        }
        now += 1;
        let mut operations = Vec::new();
        for (key, is_write) in steps {
            let (action, at) = if is_write {
                let value = history.value_id(&(now * 64 + operations.len()).to_le_bytes());
                store[key].push((now, value));
                (Action::Write(Some(value)), now)
            } else {
                let version = store[key].iter().rev().find(|&&(at, _)| at <= snapshot);
                let version = version.copied();
                (
                    Action::Read(version.map(|(_, value)| value)),
                    version.map_or(0, |(at, _)| at),
                )
            };
            operations.push(Operation {
                key: keys[key],
                action,
                version: shape.versions.then_some(at as u128),
            });
        }
        floors[session] = now;
        let header = Transaction {
            process: session as u32,
            session: session as u32,
            site,
            invoke_us: 10 * snapshot as u64 + 5,
            complete_us: Some(10 * now as u64 + 4),
            outcome: Outcome::Ok,
        };
        history.push(header, operations);
    }
    history
}

/// A run of a causally consistent store of eight replicas: a write is at the other replicas 2,000 operations later, and
/// the last writer wins.
fn replicated(sessions: u64, keys: u64, versions: bool) -> History {
    const REPLICAS: u64 = 8;
    const LAG: u64 = 2_000;
    let mut random = Random(1);
    let mut history = History::default();
    let site = history.site_id("");
    // By key: when it was written, by which replica, the value.
    let mut store: Vec<Vec<(u64, u64, ValueId)>> = vec![Vec::new(); keys as usize];
    for now in 0..1_000_000_u64 {
        let session = random.below(sessions);
        let replica = session % REPLICAS;
        // Half of the accesses are to a hundredth of the keys.
        let range = if random.below(2) == 0 {
            keys
        } else {
            keys.div_ceil(100)
        };
        let key = random.below(range);
        let written = &mut store[key as usize];
        let (action, at) = if random.below(2) == 0 {
            let value = history.value_id(&now.to_le_bytes());
            written.push((now, replica, value));
            (Action::Write(Some(value)), Some(now))
        } else {
            let is_here = |&&(at, by, _): &&(u64, u64, ValueId)| by == replica || at + LAG <= now;
            let version = written.iter().rev().find(is_here);
            (
                Action::Read(version.map(|&(.., value)| value)),
                version.map(|&(at, ..)| at),
            )
        };
        let operation = Operation {
            key: history.key_id(&key.to_le_bytes()),
            action,
            version: at.filter(|_| versions).map(u128::from),
        };
        let header = Transaction {
            process: session as u32,
            session: session as u32,
            site,
            invoke_us: 10 * now,
            complete_us: Some(10 * now + 5),
            outcome: Outcome::Ok,
        };
        history.push(header, [operation]);
    }
    history
}

fn replicated_operations() -> History {
    replicated(256, 10_000, false)
}

fn replicated_operations_with_versions() -> History {
    replicated(256, 10_000, true)
}

fn replicated_operations_of_many_sessions() -> History {
    replicated(10_000, 10_000, false)
}

const fn operations(name: &'static str, model: Model) -> Case {
    Case {
        name,
        history: replicated_operations,
        model,
        order: None,
        evidence: Evidence::BlackBox,
    }
}

/// A row of the table.
struct Case {
    name: &'static str,
    history: fn() -> History,
    model: Model,
    order: Option<Order>,
    evidence: Evidence,
}

const TRANSACTIONS: Shape = Shape {
    transactions: 100_000,
    steps: 8,
    keys: 10_000,
    sessions: 50,
    lag: 20,
    versions: true,
};

fn serial_transactions() -> History {
    snapshots(Shape {
        lag: 0,
        ..TRANSACTIONS
    })
}

fn snapshot_transactions() -> History {
    snapshots(TRANSACTIONS)
}

fn single_operations() -> History {
    let single = Shape {
        transactions: 1_000_000,
        steps: 1,
        lag: 0,
        ..TRANSACTIONS
    };
    snapshots(single)
}

fn unversioned_transactions() -> History {
    let shape = Shape {
        transactions: 1_000,
        keys: 200,
        sessions: 20,
        versions: false,
        ..TRANSACTIONS
    };
    snapshots(shape)
}

/// Blind writes on few keys: nearly every pair of versions is open.
fn contended_transactions() -> History {
    let shape = Shape {
        transactions: 500,
        steps: 4,
        keys: 20,
        sessions: 20,
        lag: 5,
        versions: false,
    };
    snapshots(shape)
}

const fn transactions(name: &'static str, history: fn() -> History, model: Model) -> Case {
    Case {
        name,
        history,
        model,
        order: None,
        evidence: Evidence::WhiteBox,
    }
}

const fn search(name: &'static str, history: fn() -> History, model: Model) -> Case {
    Case {
        name,
        history,
        model,
        order: None,
        evidence: Evidence::BlackBox,
    }
}

const CASES: &[Case] = &[
    transactions(
        "read committed, 100,000 transactions",
        snapshot_transactions,
        Model::ReadCommitted,
    ),
    transactions(
        "read atomic, 100,000 transactions",
        snapshot_transactions,
        Model::ReadAtomic,
    ),
    transactions(
        "prefix, 100,000 transactions",
        snapshot_transactions,
        Model::Prefix,
    ),
    transactions(
        "psi, 100,000 transactions",
        snapshot_transactions,
        Model::Psi,
    ),
    transactions("si, 100,000 transactions", snapshot_transactions, Model::Si),
    transactions(
        "serializable, 100,000 snapshot transactions",
        snapshot_transactions,
        Model::Serializable,
    ),
    transactions(
        "strict serializable, 100,000 serial transactions",
        serial_transactions,
        Model::StrictSerializable,
    ),
    transactions(
        "committed reads, 1,000,000 operations",
        single_operations,
        Model::CommittedReads,
    ),
    transactions(
        "sequential, 1,000,000 operations",
        single_operations,
        Model::Sequential,
    ),
    operations(
        "causal, 1,000,000 operations without versions",
        Model::Causal,
    ),
    Case {
        history: replicated_operations_of_many_sessions,
        ..operations(
            "causal, 1,000,000 operations, 10,000 sessions",
            Model::Causal,
        )
    },
    transactions(
        "causal, 1,000,000 operations",
        replicated_operations_with_versions,
        Model::Causal,
    ),
    operations("weakly causal, 1,000,000 operations", Model::CausalWeak),
    operations(
        "read your writes, 1,000,000 operations",
        Model::ReadYourWrites,
    ),
    operations(
        "monotonic reads, 1,000,000 operations",
        Model::MonotonicReads,
    ),
    operations(
        "monotonic writes, 1,000,000 operations",
        Model::MonotonicWrites,
    ),
    operations(
        "writes follow reads, 1,000,000 operations",
        Model::WritesFollowReads,
    ),
    operations("pram, 1,000,000 operations", Model::Pram),
    search(
        "psi without versions, 1,000 transactions",
        unversioned_transactions,
        Model::Psi,
    ),
    search(
        "si without versions, 1,000 transactions",
        unversioned_transactions,
        Model::Si,
    ),
    search(
        "serializable without versions, 1,000 transactions",
        unversioned_transactions,
        Model::Serializable,
    ),
    search(
        "psi without versions, 500 on 20 keys",
        contended_transactions,
        Model::Psi,
    ),
    search(
        "si without versions, 500 on 20 keys",
        contended_transactions,
        Model::Si,
    ),
    search(
        "prefix without versions, 500 on 20 keys",
        contended_transactions,
        Model::Prefix,
    ),
    search(
        "serializable without versions, 500 on 20 keys",
        contended_transactions,
        Model::Serializable,
    ),
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    println!(
        "{:<52} {:>9} {:>8} {:>10}",
        "check", "answer", "seconds", "peak MiB"
    );
    for case in CASES {
        if !wanted.iter().all(|word| case.name.contains(word.as_str())) {
            continue;
        }
        let history = (case.history)();
        let options = Options {
            order: case.order,
            ..Options::with(case.evidence)
        };
        let start = Instant::now();
        let verdict = case.model.check(&history, &options);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:<52} {:>9} {seconds:>8.2} {:>10}",
            case.name,
            verdict.name(),
            peak_mib()
        );
    }
}

/// The most memory that the process has held so far, in MiB, where the system tells.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
