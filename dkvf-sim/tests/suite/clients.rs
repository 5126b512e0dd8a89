//! What clients learn when servers die, wait or are full.

use dkvf_core::ServerId;
use dkvf_sim::{DiskModel, Durability, Faults, Latency, Options};
use dkvf_workload::faults::{Disk, Fault, Schedule, Timed};

use crate::common::{options, simulate, violation};

fn crash(disk: Disk) -> Faults {
    let fault = Fault::Crash {
        node: ServerId(0),
        disk,
    };
    Faults::Schedule(Schedule {
        faults: vec![Timed {
            at_us: 100_000,
            for_us: Some(200_000),
            fault,
        }],
    })
}

/// Many requests are on their way at every moment.
fn busy(faults: Faults, durability: Durability) -> Options {
    Options {
        clients: 24,
        faults,
        durability,
        intra_latency: Latency::Constant(5_000),
        ..options(5, 3_000)
    }
}

#[test]
fn a_server_that_recovers_answers_what_it_was_asked_and_nothing_is_unknown() {
    for protocol in dkvf_protocols::NAMES {
        let outcome = simulate(protocol, &busy(crash(Disk::Kept), Durability::Sync));
        assert_eq!(outcome.failure, None, "{protocol}");
        assert_eq!(
            (outcome.recovery.crashes, outcome.recovery.recovered),
            (1, 1),
            "{protocol}"
        );
        assert!(outcome.recovery.replayed > 0, "{protocol}");
        assert_eq!(
            (outcome.operations, outcome.unknown),
            (3_000, 0),
            "{protocol}"
        );
        assert_eq!(violation(protocol, &outcome), None, "{protocol}");
    }
}

#[test]
fn what_a_server_was_asked_that_came_back_empty_is_unknown() {
    let outcome = simulate("eventual", &busy(crash(Disk::Empty), Durability::Sync));
    assert_eq!(
        (outcome.recovery.recovered, outcome.recovery.replaced),
        (0, 1)
    );
    // Those that were waiting for it; who asked it later was not connected, and waited.
    assert!((1..=24).contains(&outcome.unknown), "{}", outcome.unknown);
    assert_eq!(outcome.operations + outcome.unknown, 3_000);
}

#[test]
fn what_is_not_answered_in_time_is_unknown() {
    let mut options = busy(Faults::None, Durability::None);
    options.request_timeout_us = 50_000;
    let fault = Fault::Pause { node: ServerId(0) };
    options.faults = Faults::Schedule(Schedule {
        faults: vec![Timed {
            at_us: 100_000,
            for_us: Some(120_000),
            fault,
        }],
    });
    let outcome = simulate("eventual", &options);
    assert!(outcome.unknown > 0);
    assert_eq!(outcome.failure, None);
    assert_eq!(violation("eventual", &outcome), None);
}

#[test]
fn a_torn_last_write_is_noticed_and_nobody_had_been_told_of_it() {
    for seed in 0..10 {
        // The disk is so slow that something is always being written.
        let disk = DiskModel {
            sync_us: 20_000,
            group_us: 2_000,
        };
        let options = Options {
            seed,
            disk,
            ..busy(crash(Disk::Torn), Durability::Group)
        };
        let outcome = simulate("gentlerain", &options);
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.recovery.torn, 1);
        assert!(outcome.recovery.lost >= 1);
        assert_eq!(outcome.unknown, 0);
        assert_eq!(violation("gentlerain", &outcome), None);
    }
}

#[test]
fn while_a_link_is_congested_requests_are_refused_without_effect() {
    let links = vec![(ServerId(0), ServerId(3))];
    let fault = Fault::Cut { links };
    let faults = Faults::Schedule(Schedule {
        faults: vec![Timed {
            at_us: 0,
            for_us: Some(400_000),
            fault,
        }],
    });
    let mut options = busy(faults, Durability::None);
    (
        options.links.capacity_bytes,
        options.links.message_bytes_max,
    ) = (2_000, 500);
    let outcome = simulate("eventual", &options);
    assert_eq!(
        outcome.failure, None,
        "the last quarter is for what cannot be refused"
    );
    assert!(outcome.failed > 0, "some were refused");
    assert_eq!(outcome.unknown, 0);
    assert_eq!(violation("eventual", &outcome), None);
}
