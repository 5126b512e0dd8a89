//! The runs of the suite: a swarm of configurations, so that each seed is a different world (A. Groce et al., *Swarm
//! Testing*, ISSTA 2012).

use dkvf_core::Protocol;
use dkvf_core::script::Script;
use dkvf_workload::faults::{FaultKind, FaultKinds};
use dkvf_workload::{Mix, Requests, ValueSize, WorkloadSpec};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::tolerates;
use crate::options::{Durability, Faults, Options};
use crate::random::stream;
use crate::world::{ClockOptions, Latency};

/// Operations of a run, over all its sessions.
const OPERATIONS: u64 = 400;
/// Bytes of a value: just its tag.
const VALUE_BYTES: u32 = 16;
/// Clocks of a protocol that tolerates skew differ from true time by up to this, in microseconds.
const SKEW_US_MAX: u64 = 50_000;

/// The run of `seed` with faults of these kinds.
///
/// Everything but them is drawn from the seed: 2 or 3 replicas of 2 or 3 partitions, 6 to 10 sessions on 6 to 10 keys,
/// the mix of reads, writes and, where the protocol has them, read-only transactions; the pace; latencies between
/// replicas, and within them from a fraction of those up to as much, so that control messages straggle there, too; how far
/// clocks are apart; how durable servers are.
pub fn options<P: Protocol>(seed: u64, faults: FaultKinds) -> Options {
    let mut random = stream(seed, "conformance", 0);
    let workload = workload(&mut random, offers_read_only::<P>());
    let mut options = Options::new(seed, workload, OPERATIONS);
    options.replicas = random.random_range(2..=3);
    options.partitions = random.random_range(2..=3);
    options.clients = random.random_range(6..=10);
    options.spread_us = Some(one_of(
        &mut random,
        &[100_000, 300_000, 1_000_000, 2_000_000],
    ));
    let between_us = one_of(&mut random, &[1_000, 5_000, 20_000]);
    let within_us = between_us / one_of(&mut random, &[1, 4, 20]);
    options.latency = Latency::Uniform {
        mean_us: between_us,
        spread_us: between_us,
    };
    options.intra_latency = Latency::Uniform {
        mean_us: within_us,
        spread_us: within_us,
    };
    options.clocks = clocks(
        &mut random,
        tolerates::<P>([FaultKind::Step].into_iter().collect()),
    );
    options.request_timeout_us = one_of(&mut random, &[400_000, 2_000_000]);
    options.durability = durability(&mut random, faults);
    options.faults = if faults.is_empty() {
        Faults::None
    } else {
        Faults::Random(faults)
    };
    options.strict = tolerates::<P>(faults);
    options
}

fn one_of(random: &mut Pcg64Mcg, choices: &[u64]) -> u64 {
    choices[random.random_range(0..choices.len())]
}

/// Few keys, so that sessions meet.
fn workload(random: &mut Pcg64Mcg, read_only: bool) -> WorkloadSpec {
    let mut spec = WorkloadSpec::builtin("a").expect("invariant: a built-in workload");
    spec.record_count = random.random_range(6..=10);
    spec.insert_count = spec.record_count;
    spec.value_size = ValueSize::Constant(VALUE_BYTES);
    spec.requests = if random.random() {
        Requests::Uniform
    } else {
        spec.requests
    };
    let read_only_share: f64 = one_of(random, &[0, 15, 30]) as f64;
    let update = one_of(random, &[20, 50, 80]) as f64;
    spec.mix = Mix {
        read: 100.0 - update,
        update,
        insert: 0.0,
        scan: 0.0,
        read_modify_write: 0.0,
        amplified_insert: 0.0,
        read_only: if read_only { read_only_share } else { 0.0 },
    };
    spec
}

fn clocks(random: &mut Pcg64Mcg, skewed: bool) -> ClockOptions {
    let skew_us = one_of(random, &[0, 1_000, SKEW_US_MAX]);
    let drift_ppm = one_of(random, &[0, 200]) as u32;
    if skewed {
        ClockOptions {
            skew_us,
            drift_ppm,
            ntp: None,
        }
    } else {
        ClockOptions::default()
    }
}

/// Servers that crash and recover have something to recover from; it is what the faults ask for.
fn durability(random: &mut Pcg64Mcg, faults: FaultKinds) -> Durability {
    let durable = if random.random() {
        Durability::Group
    } else {
        Durability::Sync
    };
    let needs_disk = [FaultKind::Crash, FaultKind::Torn, FaultKind::DiskFull];
    if needs_disk.into_iter().any(|kind| faults.contains(kind)) {
        durable
    } else {
        Durability::None
    }
}

/// Whether the client of a protocol has read-only transactions: one that has none says so before it sends anything.
pub(crate) fn offers_read_only<P: Protocol>() -> bool {
    let mut script = Script::<P>::new(1, 1);
    let session = script.session(0);
    script.read_only(session, &[]).is_ok()
}
