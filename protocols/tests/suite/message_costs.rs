//! Exact numbers of messages: a changed number is a changed protocol.

use std::collections::BTreeMap;

use dkvf_core::script::{Kind, Script, ScriptOptions};
use dkvf_core::{Protocol, Topology};
use dkvf_protocols::{causalspartan::CausalSpartan, cops::Cops, eventual::Eventual, gentlerain::GentleRain};

const SIZES: [(u16, u16); 4] = [(1, 1), (2, 3), (3, 4), (5, 2)];

/// Messages of an operation: requests, replies, and by name those between servers.
fn cost(counts: BTreeMap<(Kind, &'static str), u64>) -> (u64, u64, BTreeMap<&'static str, u64>) {
    let of = |kind| counts.iter().filter(move |((k, _), _)| *k == kind).map(|((_, name), n)| (*name, *n));
    (of(Kind::Request).map(|(_, n)| n).sum(), of(Kind::Reply).map(|(_, n)| n).sum(), of(Kind::Server).collect())
}

fn none() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

fn get_costs_two_and_put_two_and_one_per_peer<P: Protocol>() {
    for (replicas, partitions) in SIZES {
        let mut script = Script::<P>::new(replicas, partitions);
        let session = script.session(0);
        let key = script.key(usize::from(partitions) - 1, 0);
        script.put(session, &key, "v").unwrap();
        script.run_until_idle();
        let peers = u64::from(replicas) - 1;
        let replicated = if peers == 0 { none() } else { BTreeMap::from([("Replicate", peers)]) };
        assert_eq!(cost(script.take_counts()), (1, 1, replicated), "{} PUT", P::NAME);
        script.get(session, &key).unwrap();
        script.run_until_idle();
        assert_eq!(cost(script.take_counts()), (1, 1, none()), "{} GET", P::NAME);
    }
}

#[test]
fn a_get_costs_two_messages_and_a_put_without_dependencies_two_and_one_per_other_replica() {
    get_costs_two_and_put_two_and_one_per_peer::<Eventual>();
    get_costs_two_and_put_two_and_one_per_peer::<Cops>();
    get_costs_two_and_put_two_and_one_per_peer::<GentleRain>();
    get_costs_two_and_put_two_and_one_per_peer::<CausalSpartan>();
}

/// A PUT in replica 0 after reading one key per partition, written in replica `origin`.
fn cops_put(replicas: u16, partitions: u16, origin: u16) -> BTreeMap<&'static str, u64> {
    let mut script = Script::<Cops>::new(replicas, partitions);
    let (writer, session) = (script.session(origin), script.session(0));
    let keys: Vec<_> = (0..usize::from(partitions)).map(|partition| script.key(partition, 0)).collect();
    for key in &keys {
        script.put(writer, key, "dependency").unwrap();
    }
    script.run_until_idle();
    for key in &keys {
        assert!(script.get(session, key).unwrap().is_some());
    }
    script.take_counts();
    script.put(session, &script.key(0, 1), "v").unwrap();
    script.run_until_idle();
    cost(script.take_counts()).2
}

#[test]
fn a_put_of_cops_costs_a_round_per_dependency_from_elsewhere_on_another_partition() {
    for (replicas, partitions) in [(2, 3), (3, 4), (5, 2)] {
        let peers = u64::from(replicas) - 1;
        for origin in [0, 1] {
            // Of one dependency per partition, that on the update's own partition costs nothing, and where a dependency
            // was written it needs no check.
            let checking = if origin == 0 { peers } else { peers - 1 };
            let checks = checking * (u64::from(partitions) - 1);
            let mut expected = BTreeMap::from([("Replicate", peers)]);
            if checks > 0 {
                expected.extend([("DepCheck", checks), ("DepOk", checks)]);
            }
            assert_eq!(cops_put(replicas, partitions, origin), expected, "{replicas} x {partitions}, dependencies of replica {origin}");
        }
    }
}

fn read_only_costs_one_round<P: Protocol>() {
    for (replicas, partitions) in SIZES {
        for touched in 1..=usize::from(partitions) {
            let mut script = Script::<P>::new(replicas, partitions);
            let session = script.session(0);
            let keys: Vec<_> = (0..touched).flat_map(|partition| [script.key(partition, 0), script.key(partition, 1)]).collect();
            script.read_only(session, &keys).unwrap();
            let others = touched as u64 - 1;
            let slices = if others == 0 { none() } else { BTreeMap::from([("Slice", others), ("SliceRequest", others)]) };
            assert_eq!(cost(script.take_counts()), (1, 1, slices), "{}: {touched} of {partitions} partitions", P::NAME);
        }
    }
}

#[test]
fn a_read_only_transaction_costs_two_messages_and_two_per_other_partition() {
    read_only_costs_one_round::<GentleRain>();
    read_only_costs_one_round::<CausalSpartan>();
}

fn background<P: Protocol>() {
    for (replicas, partitions) in SIZES {
        let mut script = Script::<P>::new(replicas, partitions);
        script.settle(20);
        script.take_counts();
        script.settle(100);
        let (_, _, counts) = cost(script.take_counts());
        let (m, n) = (u64::from(replicas), u64::from(partitions));
        let count = |name| counts.get(name).copied().unwrap_or(0);
        assert_eq!(count("Heartbeat"), 10 * m * n * (m - 1), "{}: one per 10 ms and ordered pair of peers", P::NAME);
        assert_eq!((count("Agg"), count("Cut")), (20 * m * (n - 1), 20 * m * (n - 1)), "{}: 2(N-1) per 5 ms and replica", P::NAME);
    }
}

#[test]
fn an_idle_cluster_costs_heartbeats_and_two_messages_per_server_and_round() {
    background::<GentleRain>();
    background::<CausalSpartan>();
}

#[test]
fn a_busy_server_of_causalspartan_sends_no_heartbeats() {
    let mut script = Script::<CausalSpartan>::new(3, 1);
    let (session, key) = (script.session(0), script.key(0, 0));
    script.settle(20);
    script.take_counts();
    for _ in 0..100 {
        script.advance(1_000);
        script.put(session, &key, "v").unwrap();
    }
    let (_, _, counts) = cost(script.take_counts());
    assert_eq!(counts["Heartbeat"], 10 * 2 * 2, "those of the two idle replicas");
    assert_eq!(counts["Replicate"], 100 * 2);
}

/// Messages up the trees in 100 ms.
fn reports<P: Protocol>(properties: &[(&str, &str)]) -> u64 {
    let mut options = ScriptOptions::default();
    properties.iter().for_each(|(key, value)| options.properties.set(*key, value));
    let mut script = Script::<P>::with(Topology::grid(1, 4), &options);
    script.settle(100);
    script.take_counts()[&(Kind::Server, "Agg")]
}

#[test]
fn the_intervals_are_properties_also_in_the_spelling_of_dkvf() {
    assert_eq!(reports::<GentleRain>(&[]), 20 * 3);
    assert_eq!(reports::<GentleRain>(&[("gst_computation_interval", "10")]), 10 * 3);
    assert_eq!(reports::<GentleRain>(&[("gst_comutation_interval", "20")]), 5 * 3);
    assert_eq!(reports::<CausalSpartan>(&[("dsv_computation_interval", "10")]), 10 * 3);
    assert_eq!(reports::<CausalSpartan>(&[("dsv_comutation_interval", "20"), ("tree_fanout", "1")]), 5 * 3, "a tree has as many edges");
}

#[test]
#[should_panic(expected = "heartbeat_interval")]
fn an_interval_of_zero_is_refused() {
    reports::<GentleRain>(&[("heartbeat_interval", "0")]);
}
