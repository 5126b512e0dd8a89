//! When a write becomes visible elsewhere, and how old what is read is: the simulator's measurements against the formulas
//! of the specification (3.5, 4.6), in a world of constant latencies, where the formulas have no averages.
//!
//! Replicas 0 and 1 are near each other, replica 2 is far from both, and from replica 1 the farthest.

use dkvf_core::Protocol;
use dkvf_protocols::{causalspartan::CausalSpartan, cops::Cops, eventual::Eventual, gentlerain::GentleRain};
use dkvf_sim::{Latency, Matrix, Options, Outcome, run};
use dkvf_workload::WorkloadSpec;

/// One-way latencies: within a replica, between the near replicas, and from the far one to replicas 0 and 1, in microseconds.
const WITHIN_US: u64 = 250;
const NEAR_US: u64 = 10_000;
const FAR_FROM_0_US: u64 = 60_000;
const FAR_US: u64 = 100_000;
/// Heartbeats and the stabiliser, as the protocols have them.
const HEARTBEAT_US: u64 = 10_000;
const STABLE_US: u64 = 5_000;
/// A promise is at most as old as the interval and the half of it after which a server looks.
const PROMISE_US: u64 = HEARTBEAT_US + HEARTBEAT_US / 2;
/// A report waits for the timer of its server and for that of the root, and both messages take a hop.
const STABILISER_US: u64 = 2 * (STABLE_US + WITHIN_US);

/// Sessions that write, at a pace at which a session's writes depend on each other while they are on their way. With
/// `reads`, half of the operations are reads: sessions depend on what other replicas wrote, too.
fn cluster<P: Protocol>(reads: bool) -> Outcome {
    let share = if reads { "1" } else { "0" };
    let overrides = [("recordcount", "30"), ("readproportion", share), ("updateproportion", "1"), ("valuesize", "16")];
    let workload = WorkloadSpec::load("a", overrides).unwrap();
    let mut options = Options::new(1, workload, 3_000);
    options.replicas = 3;
    options.clients = 9;
    options.spread_us = Some(3_000_000);
    let matrix = "one-way\n0 10 60\n10 0 100\n60 100 0\n";
    options.latency = Latency::Matrix(Matrix::parse("near and far", matrix).unwrap().into());
    options.intra_latency = Latency::Constant(WITHIN_US);
    let outcome = run::<P>(&options).unwrap();
    assert_eq!(outcome.failure, None);
    outcome
}

/// Shortest and longest time from the reply to a write in replica 0 until replica 1 shows it. Histograms keep three digits.
fn near(outcome: &Outcome) -> (u64, u64) {
    let times = &outcome.visibility.by_pair[&(0, 1)];
    assert!(times.len() > 400, "{} writes", times.len());
    (times.min(), times.max())
}

/// `from..=to` on the way from a write to its visibility, less the way of the reply, in the precision of a histogram.
#[track_caller]
fn within((shortest, longest): (u64, u64), from: u64, to: u64) {
    let (from, to) = (from - WITHIN_US, to - WITHIN_US);
    assert!(shortest + shortest / 1_000 >= from, "shortest {shortest} us, at least {from}");
    assert!(longest <= to + to / 500, "longest {longest} us, at most {to}");
}

#[test]
fn without_causality_a_write_is_visible_when_it_arrives() {
    within(near(&cluster::<Eventual>(true)), NEAR_US, NEAR_US);
}

#[test]
fn in_gentlerain_the_far_replica_delays_every_write() {
    for reads in [false, true] {
        within(near(&cluster::<GentleRain>(reads)), FAR_US, FAR_US + PROMISE_US + STABILISER_US);
    }
}

#[test]
fn in_causalspartan_the_far_replica_delays_only_what_depends_on_it() {
    let alone = near(&cluster::<CausalSpartan>(false));
    within(alone, NEAR_US, NEAR_US + PROMISE_US + STABILISER_US);
    let mixed = near(&cluster::<CausalSpartan>(true));
    // What the far replica wrote comes to replica 1 so much later than to a session of replica 0 that writes after it.
    within(mixed, NEAR_US, FAR_US - FAR_FROM_0_US + PROMISE_US + STABILISER_US);
    assert!(mixed.1 > alone.1, "some have just read what the far replica wrote: {mixed:?}, otherwise {alone:?}");
}

/// A dependency chain of a session drains at a hop per link; one on another session's write waits for that.
#[test]
fn in_cops_a_write_waits_for_a_round_of_checks() {
    within(near(&cluster::<Cops>(false)), NEAR_US, NEAR_US + 2 * WITHIN_US);
}

/// A read misses a write until it is visible, and takes a hop to tell.
fn staleness_is_bounded_by_visibility<P: Protocol>() {
    let outcome = cluster::<P>(true);
    for (pair, ages) in &outcome.staleness.by_pair {
        let (reader, writer) = *pair;
        let visible = match outcome.visibility.by_pair.get(&(writer, reader)) {
            Some(times) => times.max(),
            None => 0,
        };
        let bound = visible + WITHIN_US;
        assert!(ages.max() <= bound + bound / 500, "{}: {pair:?}: age {} us, visible after {visible} us", P::NAME, ages.max());
    }
    let from_near = outcome.staleness.by_pair[&(1, 0)].max();
    assert!(from_near > 0, "{}: reads are stale, or this says nothing", P::NAME);
}

#[test]
fn what_a_read_returns_is_not_older_than_writes_take_to_become_visible() {
    staleness_is_bounded_by_visibility::<Eventual>();
    staleness_is_bounded_by_visibility::<Cops>();
    staleness_is_bounded_by_visibility::<GentleRain>();
    staleness_is_bounded_by_visibility::<CausalSpartan>();
}
