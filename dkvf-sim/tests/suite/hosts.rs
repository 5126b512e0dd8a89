//! Servers on one host share its processor, its clocks and its fate.

use dkvf_core::ServerId;
use dkvf_sim::{ClockOptions, CpuModel, Options};
use dkvf_workload::faults::{Disk, Fault};

use crate::chatter::{A, B, C, Chat, got, options, properties, server};

/// `A` and `B` on one host, `C` on another.
fn shared() -> Options {
    Options {
        hosts: Some(vec![0, 0, 1]),
        ..options(1)
    }
}

#[test]
fn a_crash_takes_all_servers_of_a_host_and_its_restart_brings_them_back() {
    let mut chat = Chat::new(&shared()).unwrap();
    chat.run_until(20_000);
    let crash = Fault::Crash {
        node: A,
        disk: Disk::Kept,
    };
    chat.inject(crash, Some(30_000));
    chat.run_until(49_999);
    assert!(chat.server(A).is_none() && chat.server(B).is_none());
    assert!(chat.server(C).is_some());
    chat.run_until(50_000);
    assert_eq!([A, B, C].map(|id| chat.incarnation(id)), [2, 2, 1]);
    chat.run_until(2_000_000);
    assert_eq!(chat.failure(), None);
    assert_eq!(got(&chat, A, B).len(), 200, "both began anew at one time");
}

#[test]
fn a_pause_stops_all_servers_of_a_host() {
    let mut chat = Chat::new(&shared()).unwrap();
    chat.inject(Fault::Pause { node: B }, Some(100_000));
    chat.run_until(99_999);
    assert_eq!([A, B, C].map(|id| server(&chat, id).sent), [0, 0, 33]);
    chat.run_until(110_000);
    assert!(server(&chat, A).sent > 0 && server(&chat, B).sent > 0);
}

#[test]
fn servers_of_a_host_have_the_same_clocks() {
    let mut options = shared();
    options.clocks = ClockOptions {
        drift_ppm: 500_000,
        ..ClockOptions::default()
    };
    let mut chat = Chat::new(&options).unwrap();
    chat.run_until(300_000);
    let [a, b, c] = [A, B, C].map(|id| server(&chat, id).sent);
    assert_eq!(a, b);
    assert_ne!(a, c, "its clock has another rate");
}

#[test]
fn servers_of_a_host_wait_for_each_other_at_its_processor() {
    // Whatever a server does takes it half a millisecond, and a message is on its way for a whole one.
    let complete_at = |hosts| {
        let options = Options {
            hosts: Some(hosts),
            properties: properties(&[("last", "1"), ("beats", "false")]),
            cpu: CpuModel {
                per_message_ns: 500_000,
                ..CpuModel::default()
            },
            ..options(1)
        };
        let mut chat = Chat::new(&options).unwrap();
        let heard = |chat: &Chat, to: ServerId| server(chat, to).got.len();
        let all = |chat: &Chat| [A, B, C].map(|id| heard(chat, id)) == [2, 2, 2];
        assert!(chat.run_while(100_000, |chat| !all(chat)), "all have heard");
        chat.now_us()
    };
    // The timers at 3,000 take until 3,500. Both messages for a server arrive at 4,500; it turns to the second at 5,000.
    assert_eq!(complete_at(vec![0, 1, 2]), 5_000);
    // The second timer of the common host takes until 4,000. Three messages arrive there at 4,500, and at 5,000 the one
    // of the second server to the first: its turn comes at 6,000.
    assert_eq!(complete_at(vec![0, 0, 1]), 6_000);
}
