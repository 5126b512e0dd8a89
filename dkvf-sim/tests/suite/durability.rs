//! What a crash may undo.

use dkvf_sim::{DiskModel, Durability, FailureKind, Faults, Options};
use dkvf_workload::faults::{Disk, Fault, Schedule, Timed};

use crate::chatter::{A, B, Chat, got, options, properties, server};
use crate::common::{self, simulate, violation};

/// So slow that something is always being written.
const SLOW: DiskModel = DiskModel {
    sync_us: 10_000,
    group_us: 20_000,
};

/// In how many of 20 runs a server that crashed repeats numbers that its peer had before.
fn runs_with_repetitions(durability: Durability) -> usize {
    let repeats = |seed: &u64| {
        let mut chat = Chat::new(&Options {
            durability,
            disk: SLOW,
            ..options(*seed)
        })
        .unwrap();
        chat.run_until(100_000);
        let life = server(&chat, B).life;
        let crash = Fault::Crash {
            node: B,
            disk: Disk::Kept,
        };
        chat.inject(crash, Some(50_000));
        chat.run_until(2_000_000);
        assert_eq!(chat.failure(), None, "{durability:?} seed {seed}");
        assert_eq!(server(&chat, B).life, life, "it recovered");
        let numbers = got(&chat, B, A);
        assert_eq!(numbers.last(), Some(&200), "{durability:?} seed {seed}");
        !numbers.is_sorted_by(|one, next| one < next)
    };
    (0..20).filter(repeats).count()
}

#[test]
fn a_server_whose_messages_do_not_wait_for_the_disk_forgets_what_it_has_told() {
    assert_eq!(runs_with_repetitions(Durability::Group), 0);
    assert_eq!(runs_with_repetitions(Durability::Sync), 0);
    assert!(runs_with_repetitions(Durability::Async) > 0);
}

#[test]
fn a_server_that_is_not_deterministic_is_found_when_its_journal_is_replayed() {
    for impure in ["false", "true"] {
        let mut chat = Chat::new(&Options {
            durability: Durability::Sync,
            properties: properties(&[("impure", impure)]),
            ..options(1)
        })
        .unwrap();
        chat.run_until(100_000);
        let crash = Fault::Crash {
            node: B,
            disk: Disk::Kept,
        };
        chat.inject(crash, Some(50_000));
        chat.run_until(200_000);
        let found = chat.failure().map(|failure| failure.kind);
        let expected = (impure == "true").then_some(FailureKind::Replay);
        assert_eq!(found, expected);
    }
}

#[test]
fn claims_break_when_replies_do_not_wait_for_the_disk() {
    let is_broken = |durability, seed: u64| {
        let fault = Fault::Crash {
            node: A,
            disk: Disk::Kept,
        };
        let faults = vec![Timed {
            at_us: 100_000,
            for_us: Some(50_000),
            fault,
        }];
        let outcome = simulate(
            "gentlerain",
            &Options {
                durability,
                disk: SLOW,
                faults: Faults::Schedule(Schedule { faults }),
                spread_us: Some(300_000),
                strict: false,
                ..common::options(seed, 600)
            },
        );
        assert_eq!(outcome.recovery.recovered, 1, "{durability:?} seed {seed}");
        violation("gentlerain", &outcome).is_some()
    };
    assert!(!(0..10).any(|seed| is_broken(Durability::Group, seed)));
    assert!((0..10).any(|seed| is_broken(Durability::Async, seed)));
}
