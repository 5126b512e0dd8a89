//! What writes pay for clocks that differ: the waits of GentleRain's PUT against the formula of the specification (3.5).

use dkvf_core::{Protocol, Topology};
use dkvf_protocols::{causalspartan::CausalSpartan, gentlerain::GentleRain};
use dkvf_sim::{Faults, Latency, Options, run};
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::{Fault, Schedule, Timed};

/// One-way latency between a session and its servers, in microseconds: ρ is two of them.
const WITHIN_US: u64 = 300;

/// A session writes to keys on three partitions, one write after the other. The clocks of the partitions are -σ, 0 and σ off. Returns, by pair of partitions, how long
/// a write to the second waited that followed a write to the first, in microseconds: shortest and longest.
fn waits<P: Protocol>(sigma_us: u64) -> [[(u64, u64); 3]; 3] {
    let overrides = [("recordcount", "60"), ("readproportion", "0"), ("updateproportion", "1"), ("requestdistribution", "uniform"), ("valuesize", "16")];
    let mut options = Options::new(1, WorkloadSpec::load("a", overrides).unwrap(), 1_000);
    (options.replicas, options.partitions, options.clients) = (2, 3, 1);
    options.intra_latency = Latency::Constant(WITHIN_US);
    options.latency = Latency::Constant(10_000);
    let topology = options.topology();
    // A clock that is set back stands still until time has caught up, so each is set ahead.
    let steps = topology.ids().map(|node| (node, u64::from(topology.member(node).partition) * sigma_us)).filter(|(_, ahead_us)| *ahead_us > 0);
    let steps = steps.map(|(node, ahead_us)| Timed { at_us: 0, for_us: None, fault: Fault::Step { node, by_us: ahead_us as i64 } });
    options.faults = Faults::Schedule(Schedule { faults: steps.collect() });
    let outcome = run::<P>(&options).unwrap();
    assert_eq!((outcome.failure.clone(), outcome.operations), (None, 1_000));
    by_pair(&outcome.history, &topology)
}

fn by_pair(history: &dkvf_check::History, topology: &Topology) -> [[(u64, u64); 3]; 3] {
    let partition = |transaction: usize| {
        let operation = history.operations_of(transaction).start;
        topology.partition_of(history.key(history.operations()[operation].key))
    };
    let took = |transaction: usize| {
        let transaction = &history.transactions()[transaction];
        transaction.complete_us.unwrap() - transaction.invoke_us
    };
    let mut waits = [[(u64::MAX, 0); 3]; 3];
    let writes: Vec<usize> = (0..history.transactions().len()).filter(|transaction| history.transactions()[*transaction].session == 0).collect();
    for pair in writes.windows(2) {
        let wait_us = took(pair[1]) - 2 * WITHIN_US;
        let (shortest, longest) = &mut waits[partition(pair[0])][partition(pair[1])];
        (*shortest, *longest) = ((*shortest).min(wait_us), (*longest).max(wait_us));
    }
    waits
}

/// Two instants in one microsecond get different stamps, so a wait may be longer by as much.
const TICKS_US: u64 = 2;

#[test]
fn a_put_of_gentlerain_waits_as_long_as_its_clock_is_behind_the_last_stamp() {
    for sigma_us in [200, 450, 1_000, 20_000] {
        let rho_us = 2 * WITHIN_US;
        let mut sum_us = 0;
        for (a, to) in waits::<GentleRain>(sigma_us).iter().enumerate() {
            for (b, (shortest, longest)) in to.iter().enumerate() {
                let behind_us = (a.saturating_sub(b) as u64 * sigma_us).saturating_sub(rho_us);
                assert!(*shortest >= behind_us && *longest <= behind_us + TICKS_US, "σ {sigma_us}: from {a} to {b} {shortest} to {longest}, not {behind_us}");
                sum_us += shortest;
            }
        }
        let formula_us = 2 * sigma_us.saturating_sub(rho_us) + (2 * sigma_us).saturating_sub(rho_us);
        assert!((formula_us..=formula_us + 9 * TICKS_US).contains(&sum_us), "σ {sigma_us}: the mean is {sum_us}/9, not {formula_us}/9");
    }
}

#[test]
fn a_put_of_causalspartan_never_waits() {
    for sigma_us in [450, 20_000] {
        assert_eq!(waits::<CausalSpartan>(sigma_us), [[(0, 0); 3]; 3]);
    }
}
