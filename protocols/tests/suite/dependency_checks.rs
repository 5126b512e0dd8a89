//! How many messages dependency checks cost: what the simulator counts against the formula of the specification (2.5),
//! first with what the run really depended on, then with what random keys make one expect.

use std::collections::{BTreeMap, BTreeSet};

use dkvf_check::{Action, History};
use dkvf_core::Topology;
use dkvf_protocols::cops::Cops;
use dkvf_sim::{MessageKind, Options, Outcome, run};
use dkvf_workload::WorkloadSpec;

const PARTITIONS: u16 = 3;
const KEYS: u64 = 1_000;

/// A run of `operations` operations, of which `reads` are reads.
fn cluster(replicas: u16, reads: f64, operations: u64) -> (Outcome, Topology) {
    let (keys, read, update) = (KEYS.to_string(), reads.to_string(), (1.0 - reads).to_string());
    let overrides =
        [("recordcount", &*keys), ("readproportion", &read), ("updateproportion", &update), ("requestdistribution", "uniform"), ("valuesize", "16")];
    let mut options = Options::new(1, WorkloadSpec::load("a", overrides).unwrap(), operations);
    (options.replicas, options.partitions, options.clients) = (replicas, PARTITIONS, 12);
    let outcome = run::<Cops>(&options).unwrap();
    assert_eq!(outcome.failure, None);
    (outcome, options.topology())
}

fn messages(outcome: &Outcome, name: &'static str) -> u64 {
    outcome.messages.get(&(MessageKind::Server, name)).map_or(0, |count| count.messages)
}

/// What the writes of a history depend on.
#[derive(Default)]
struct Dependencies {
    writes: u64,
    /// Nearest dependencies of all writes, L times as many.
    nearest: u64,
    /// By dependency and other replica: those that are checked there, as they come from elsewhere.
    foreign: u64,
    /// Of these: those on another partition than the write.
    checked: u64,
}

/// Follows each session as `CO.C1` and `CO.C2` do: dependencies are the versions read since the last write, and that write.
fn dependencies(history: &History, topology: &Topology) -> Dependencies {
    let partition = |key| topology.partition_of(history.key(key));
    let mut sessions: BTreeMap<u32, BTreeSet<_>> = BTreeMap::new();
    let mut found = Dependencies::default();
    let mut order: Vec<usize> = (0..history.transactions().len()).collect();
    order.sort_by_key(|transaction| history.transactions()[*transaction].invoke_us);
    for transaction in order {
        let about = &history.transactions()[transaction];
        let nearest = sessions.entry(about.session).or_default();
        let operation = &history.operations()[history.operations_of(transaction).start];
        // Only a read that found nothing has no version.
        let Some(version) = operation.version else { continue };
        if let Action::Write(_) = operation.action {
            found.writes += 1;
            found.nearest += nearest.len() as u64;
            for (key, version) in nearest.iter() {
                let origin = *version as u64;
                let elsewhere = (0..topology.replicas()).filter(|replica| *replica != about.site.index() && *replica as u64 != origin);
                let replicas = elsewhere.count() as u64;
                found.foreign += replicas;
                found.checked += if partition(*key) == partition(operation.key) { 0 } else { replicas };
            }
            nearest.clear();
        }
        nearest.insert((operation.key, version));
    }
    found
}

#[test]
fn a_dependency_from_elsewhere_on_another_partition_costs_two_messages_and_others_none() {
    for (replicas, reads) in [(2, 0.5), (3, 0.5), (3, 0.75), (3, 0.0)] {
        let (loading, _) = cluster(replicas, reads, 0);
        let (outcome, topology) = cluster(replicas, reads, 3_000);
        let count = |name| messages(&outcome, name) - messages(&loading, name);
        let found = dependencies(&outcome.history, &topology);
        assert_eq!(count("Replicate"), found.writes * u64::from(replicas - 1));
        assert_eq!((count("DepCheck"), count("DepOk")), (found.checked, found.checked), "{replicas} replicas, {reads} reads");
    }
}

#[test]
fn writes_cost_what_the_formula_says() {
    for (replicas, reads) in [(2, 0.5), (3, 0.5), (3, 0.75)] {
        let (loading, _) = cluster(replicas, reads, 0);
        let (outcome, topology) = cluster(replicas, reads, 3_000);
        let found = dependencies(&outcome.history, &topology);
        let (writes, peers) = (found.writes as f64, f64::from(replicas - 1));
        let sent: u64 = ["Replicate", "DepCheck", "DepOk"].iter().map(|name| messages(&outcome, name) - messages(&loading, name)).sum();
        let measured = 2.0 + sent as f64 / writes;

        let length = found.nearest as f64 / writes;
        let foreign = found.foreign as f64 / (found.nearest as f64 * peers);
        let elsewhere = 1.0 - 1.0 / f64::from(PARTITIONS);
        let formula = 2.0 + peers * (1.0 + 2.0 * length * elsewhere * foreign);
        assert!((measured / formula - 1.0).abs() < 0.02, "{measured} messages per PUT, not {formula}");
        // Reads between two writes are geometric, and with many keys none is read twice.
        let expected = 1.0 / (1.0 - reads);
        assert!((length / expected - 1.0).abs() < 0.05, "{length} dependencies, not {expected}");
    }
}
