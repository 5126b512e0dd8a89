//! Links are reliable, in order and exactly once, whatever happens below them.

use dkvf_core::{ServerId, Topology};
use dkvf_sim::{CpuModel, DiskModel, Durability, Options};
use dkvf_workload::faults::{Disk, Fault, NemesisOptions, Schedule};

use crate::chatter::{A, B, C, Chat, PERIOD_US, got, options, properties, server};

/// Nothing that any server got was lost before, doubled or overtaken.
fn assert_in_order(chat: &Chat, context: &str) {
    for to in chat.topology().ids() {
        for ((from, _), numbers) in &server(chat, to).got {
            let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
            // A life that began while the peer was there is heard from its first word on.
            assert_eq!(*numbers, expected, "{from} to {to}, {context}");
        }
        for ((from, _), beats) in &server(chat, to).got_beats {
            assert!(
                beats.is_sorted_by(|a, b| a < b),
                "{from} to {to}, {context}: {beats:?}"
            );
        }
    }
}

fn assert_complete(chat: &Chat, context: &str) {
    for from in chat.topology().ids() {
        assert_eq!(server(chat, from).sent, 200, "{context}");
        for to in chat.topology().ids().filter(|to| *to != from) {
            assert_eq!(got(chat, from, to).len(), 200, "{from} to {to}, {context}");
        }
    }
}

fn all_links(topology: &Topology) -> Vec<(ServerId, ServerId)> {
    let pairs = topology
        .ids()
        .flat_map(|from| topology.ids().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).collect()
}

/// Runs a random schedule of `kinds`, heals, and checks that every server has all that the others sent.
fn nothing_is_lost(kinds: &str, durability: Durability) {
    for seed in 0..60 {
        let options = Options {
            durability,
            ..options(seed)
        };
        let mut chat = Chat::new(&options).unwrap();
        let nemesis = NemesisOptions {
            timer_us: PERIOD_US,
            latency_us: 1_000,
            ..NemesisOptions::new(kinds.parse().unwrap(), seed, 500_000)
        };
        let schedule = Schedule::random(&nemesis, chat.topology());
        let context = format!("{kinds} {durability:?} seed {seed}: {schedule:?}");
        chat.follow(schedule);
        chat.run_until(500_000);
        chat.heal();
        chat.run_until(5_000_000);
        assert_eq!(chat.failure(), None, "{context}");
        assert!(chat.is_quiet(), "{context}");
        assert_in_order(&chat, &context);
        assert_complete(&chat, &context);
    }
}

#[test]
fn nothing_is_lost_doubled_or_overtaken_when_links_are_cut() {
    nothing_is_lost("partition", Durability::None);
}

#[test]
fn nothing_is_lost_doubled_or_overtaken_when_links_are_delayed_and_held() {
    nothing_is_lost("delay", Durability::None);
}

#[test]
fn nothing_is_lost_doubled_or_overtaken_when_servers_pause_and_are_slow() {
    nothing_is_lost("pause,slow", Durability::None);
}

#[test]
fn nothing_is_lost_doubled_or_overtaken_across_crashes_with_recovery() {
    nothing_is_lost("crash", Durability::Sync);
    nothing_is_lost("crash", Durability::Group);
    nothing_is_lost("disk", Durability::Sync);
}

#[test]
fn nothing_is_lost_doubled_or_overtaken_under_everything_at_once() {
    nothing_is_lost("all", Durability::Group);
}

#[test]
fn a_broken_promise_loses_repeats_and_reorders() {
    // Without beats between them, numbers overtake numbers.
    let properties = properties(&[("last", "200"), ("beats", "false")]);
    let mut chat = Chat::new(&Options {
        properties,
        ..options(1)
    })
    .unwrap();
    let links = all_links(chat.topology());
    let fault = Fault::Break {
        links,
        lose_permille: 100,
        repeat_permille: 100,
        reorder_permille: 100,
    };
    chat.inject(fault, Some(400_000));
    chat.run_until(1_000_000);
    let numbers = got(&chat, A, B);
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_ne!(numbers, sorted, "some overtook others");
    sorted.dedup();
    assert_ne!(numbers.len(), sorted.len(), "some came twice");
    assert!(sorted.len() < 200, "some are lost");
    assert_eq!(
        numbers.last(),
        Some(&200),
        "after the fault links keep their promise"
    );
}

#[test]
fn a_cut_is_noticed_after_the_detection_time_and_ends_at_the_next_attempt() {
    let mut options = options(1);
    (options.links.detect_us, options.links.reconnect_us) = (10_000, 4_000);
    let mut chat = Chat::new(&options).unwrap();
    chat.run_until(20_000);
    chat.inject(
        Fault::Cut {
            links: vec![(A, B)],
        },
        Some(50_000),
    );
    chat.run_until(29_999);
    assert_eq!(server(&chat, A).changes, []);
    chat.run_until(200_000);
    // Noticed at 30,000; attempts at 34,000, 42,000, 58,000, 90,000; the cut ends at 70,000; hello and welcome take 2
    // ms.
    assert_eq!(server(&chat, A).changes, [(B, 0, 30_000), (B, 1, 92_000)]);
    assert_eq!(
        server(&chat, B).changes,
        [],
        "the other direction is a connection of its own"
    );
    assert_in_order(&chat, "cut");
    // The number of 18,000 was there before the cut; what was sent up to 92,000 came a latency after the connection.
    chat.run_until(1_000_000);
    assert_complete(&chat, "cut");
}

#[test]
fn a_held_link_breaks_no_connection_and_delivers_everything_at_its_end() {
    let mut chat = Chat::new(&options(1)).unwrap();
    chat.inject(
        Fault::Hold {
            links: vec![(A, B)],
        },
        Some(100_000),
    );
    chat.run_until(99_999);
    assert!(got(&chat, A, B).is_empty());
    assert_eq!(
        got(&chat, A, C).len(),
        32,
        "sent at 3,000 and every 3,000 after, a millisecond on the way"
    );
    chat.run_until(100_000);
    assert_eq!(
        got(&chat, A, B).len(),
        33,
        "the one of 99,000 arrives now, too"
    );
    assert_eq!(server(&chat, A).changes, []);
}

#[test]
fn a_delayed_link_adds_its_delay_and_keeps_the_order_when_it_ends() {
    let mut chat = Chat::new(&options(1)).unwrap();
    chat.inject(
        Fault::Delay {
            links: vec![(A, B)],
            by_us: 20_000,
            jitter_us: 0,
        },
        Some(10_000),
    );
    // Of the numbers of 3, 6 and 9 ms the first arrives at 24 ms. That of 12 ms is not delayed and waits for them.
    chat.run_until(23_999);
    assert!(got(&chat, A, B).is_empty());
    chat.run_until(24_000);
    assert_eq!(got(&chat, A, B), [1]);
    chat.run_until(29_999);
    assert_eq!(got(&chat, A, B), [1, 2]);
    chat.run_until(30_000);
    assert_eq!(
        got(&chat, A, B),
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "those of up to 29 ms"
    );
}

#[test]
fn a_server_that_comes_back_empty_is_announced_before_its_first_word_and_starts_anew() {
    let mut chat = Chat::new(&options(1)).unwrap();
    chat.run_until(100_000);
    let life = server(&chat, B).life;
    chat.inject(
        Fault::Crash {
            node: B,
            disk: Disk::Kept,
        },
        Some(50_000),
    );
    chat.run_until(120_000);
    assert!(chat.server(B).is_none());
    chat.run_until(2_000_000);
    assert_eq!(chat.incarnation(B), 2, "nothing is durable");
    assert_ne!(server(&chat, B).life, life);
    for other in [A, C] {
        let states: Vec<u8> = server(&chat, other)
            .changes
            .iter()
            .map(|(_, state, _)| *state)
            .collect();
        assert_eq!(states, [0, 2, 1], "down, replaced, up");
        assert_eq!(got(&chat, B, other).len(), 200);
        let to_the_new_one = got(&chat, other, B);
        let first = to_the_new_one[0];
        assert!(
            first > 33,
            "what was sent before is not for the new one: {first}"
        );
        let expected: Vec<u64> = (first..=200).collect();
        assert_eq!(to_the_new_one, expected);
    }
    assert_eq!(
        server(&chat, B).changes,
        [],
        "its first connections are no change"
    );
}

#[test]
fn a_server_that_recovers_is_down_and_up_for_its_peers_and_knows_what_it_knew() {
    let mut chat = Chat::new(&Options {
        durability: Durability::Sync,
        ..options(1)
    })
    .unwrap();
    chat.run_until(100_000);
    let life = server(&chat, B).life;
    chat.inject(
        Fault::Crash {
            node: B,
            disk: Disk::Kept,
        },
        Some(50_000),
    );
    chat.run_until(2_000_000);
    assert_eq!(chat.incarnation(B), 1);
    assert_eq!(server(&chat, B).life, life);
    for other in [A, C] {
        let states: Vec<u8> = server(&chat, other)
            .changes
            .iter()
            .map(|(_, state, _)| *state)
            .collect();
        assert_eq!(states, [0, 1], "down, up");
    }
    assert_in_order(&chat, "recovered");
    assert_complete(&chat, "recovered");
}

#[test]
fn what_a_server_had_not_sent_when_it_crashed_never_arrives() {
    // The timer at 3,000 takes until 4,000, when the numbers leave.
    let heard_of_the_first_life = |crash_us| {
        let mut chat = Chat::new(&Options {
            cpu: CpuModel {
                per_message_ns: 1_000_000,
                ..CpuModel::default()
            },
            ..options(1)
        })
        .unwrap();
        let life = server(&chat, A).life;
        chat.run_until(crash_us);
        let crash = Fault::Crash {
            node: A,
            disk: Disk::Kept,
        };
        chat.inject(crash, Some(50_000));
        chat.run_until(1_000_000);
        server(&chat, B).got.get(&(A, life)).cloned()
    };
    assert_eq!(heard_of_the_first_life(3_500), None);
    assert_eq!(heard_of_the_first_life(4_500), Some(vec![1]));
}

#[test]
fn outputs_wait_until_what_led_to_them_is_stable() {
    let disk = DiskModel {
        sync_us: 700,
        group_us: 10_000,
    };
    let sent_at = |durability| {
        let mut chat = Chat::new(&Options {
            durability,
            disk,
            ..options(1)
        })
        .unwrap();
        let mut time_us = 0;
        while got(&chat, A, B).is_empty() {
            time_us += 1;
            chat.run_until(time_us);
        }
        // The timer fired at 3,000, and the way takes 1,000.
        time_us - 4_000
    };
    assert_eq!(sent_at(Durability::None), 0);
    assert_eq!(sent_at(Durability::Async), 0);
    assert_eq!(sent_at(Durability::Sync), 700);
    assert_eq!(
        sent_at(Durability::Group),
        7_700,
        "at 10,000 the disk begins"
    );
}

#[test]
fn a_link_transmits_at_its_bandwidth() {
    let mut options = Options {
        bandwidth_bytes_s: Some(1_000_000),
        ..options(1)
    };
    options.properties = properties(&[("last", "3"), ("ballast", "1980")]);
    let mut chat = Chat::new(&options).unwrap();
    // About 2,000 bytes take 2 ms, then 1 ms of way.
    chat.run_until(5_900);
    assert!(got(&chat, A, B).is_empty());
    chat.run_until(6_100);
    assert_eq!(got(&chat, A, B), [1]);
}

#[test]
fn a_full_link_stops_its_sender() {
    let mut options = options(1);
    options.properties = properties(&[("ballast", "1000")]);
    (
        options.links.capacity_bytes,
        options.links.message_bytes_max,
    ) = (40_000, 10_000);
    let mut chat = Chat::new(&options).unwrap();
    chat.inject(
        Fault::Cut {
            links: vec![(A, B)],
        },
        None,
    );
    chat.run_until(10_000_000);
    let failure = chat.failure().expect("the link is full");
    assert_eq!(failure.node.as_deref(), Some("0_0"));
    assert!(
        failure.text.contains("the link to 1_0 is full"),
        "{failure}"
    );
}
