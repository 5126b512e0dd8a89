//! One seed is one run.

use dkvf_check::native;
use dkvf_sim::{
    ClockOptions, CpuModel, Durability, Faults, Latency, MessageKind, Options, Outcome,
};
use dkvf_workload::OperationKind;

use crate::common::{options, simulate};

/// A run in which everything happens: faults of all kinds, wrong clocks, busy processors, a slow disk.
fn eventful(seed: u64) -> Options {
    Options {
        faults: Faults::Random("all".parse().unwrap()),
        durability: Durability::Group,
        clocks: ClockOptions {
            skew_us: 5_000,
            drift_ppm: 200,
            ntp: None,
        },
        cpu: CpuModel {
            per_message_ns: 30_000,
            per_byte_ns: 10,
            per_storage_access_ns: 2_000,
            per_send_ns: 1_000,
        },
        latency: Latency::parse("normal:20:5").unwrap(),
        spread_us: Some(1_500_000),
        trace: true,
        ..options(seed, 300)
    }
}

fn bytes(outcome: &Outcome) -> Vec<u8> {
    let mut bytes = Vec::new();
    native::write(&outcome.history, &mut bytes).unwrap();
    bytes
}

#[test]
fn equal_options_are_equal_runs_for_every_protocol() {
    for protocol in dkvf_protocols::NAMES {
        let (one, two) = (
            simulate(protocol, &eventful(7)),
            simulate(protocol, &eventful(7)),
        );
        let summary = |run: &Outcome| {
            (
                run.events,
                run.deliveries,
                run.virtual_us,
                run.state_hash,
                run.history_hash(),
                run.operations,
                run.unknown,
            )
        };
        assert_eq!(summary(&one), summary(&two), "{protocol}");
        assert_eq!(bytes(&one), bytes(&two), "{protocol}");
        assert_eq!(one.trace, two.trace, "{protocol}");
        assert_eq!(one.messages, two.messages, "{protocol}");
        assert!(
            one.recovery.crashes > 0 || one.schedule.faults.len() > 1,
            "{protocol}: something happened"
        );
    }
}

#[test]
fn another_seed_is_another_run() {
    for protocol in dkvf_protocols::NAMES {
        let (one, two) = (
            simulate(protocol, &options(1, 200)),
            simulate(protocol, &options(2, 200)),
        );
        assert_ne!(one.history_hash(), two.history_hash(), "{protocol}");
        assert_ne!(one.state_hash, two.state_hash, "{protocol}");
    }
}

#[test]
fn what_is_drawn_for_one_purpose_does_not_shift_another() {
    let calm = simulate("eventual", &options(3, 200));
    let mut skewed = options(3, 200);
    skewed.clocks = ClockOptions {
        skew_us: 5_000,
        drift_ppm: 100,
        ntp: None,
    };
    let skewed = simulate("eventual", &skewed);
    let course = |run: &Outcome| {
        let latency = run.measurements.latency_us(OperationKind::Update).unwrap();
        (
            run.events,
            run.deliveries,
            latency.max(),
            latency.mean().to_bits(),
        )
    };
    assert_eq!(
        course(&calm),
        course(&skewed),
        "the same messages at the same times"
    );
    assert_ne!(calm.state_hash, skewed.state_hash, "with other stamps");
}

#[test]
fn a_run_without_faults_ends_well_for_every_protocol() {
    for protocol in dkvf_protocols::NAMES {
        let outcome = simulate(protocol, &options(1, 400));
        assert_eq!(outcome.failure, None, "{protocol}");
        assert_eq!(
            (outcome.operations, outcome.failed, outcome.unknown),
            (400, 0, 0),
            "{protocol}"
        );
        let puts = outcome.messages[&(MessageKind::Request, "Put")].messages;
        assert_eq!(
            outcome.messages[&(MessageKind::Reply, "Put")].messages,
            puts,
            "{protocol}"
        );
        assert_eq!(
            outcome.messages[&(MessageKind::Server, "Replicate")].messages,
            puts,
            "{protocol}: to one other replica"
        );
    }
}

#[test]
fn every_write_is_seen_at_every_other_replica() {
    for protocol in dkvf_protocols::NAMES {
        let outcome = simulate(
            protocol,
            &Options {
                replicas: 3,
                ..options(1, 300)
            },
        );
        let seen: u64 = outcome
            .visibility
            .by_pair
            .values()
            .map(|times| times.len())
            .sum();
        let writes = outcome
            .measurements
            .latency_us(OperationKind::Update)
            .unwrap()
            .len();
        assert_eq!(seen, 2 * writes, "{protocol}");
        for times in outcome.visibility.by_pair.values() {
            assert!(
                times.min() >= 4_000,
                "{protocol}: the way takes 5 ms and more, the reply 0.4 ms and less: {}",
                times.min()
            );
        }
    }
}

#[test]
fn storage_that_cannot_be_simulated_is_refused() {
    let options = Options {
        storage: "sled".to_owned(),
        ..options(1, 10)
    };
    let error = dkvf_sim::run::<dkvf_protocols::eventual::Eventual>(&options).unwrap_err();
    assert!(
        error.to_string().contains("\"sled\" cannot be simulated"),
        "{error}"
    );
}
