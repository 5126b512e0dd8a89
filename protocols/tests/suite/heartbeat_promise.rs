//! T-S7: a heartbeat with time t promises that no later update has a stamp up to t.

use dkvf_core::Protocol;
use dkvf_core::script::{Operation, Script};
use dkvf_protocols::{causalspartan, gentlerain, gentlerain::GentleRain};

use crate::{exchange_heartbeats, state};

#[test]
fn writes_in_the_instant_of_a_heartbeat_are_after_its_promise() {
    let mut script = Script::<GentleRain>::new(2, 4);
    let (x, y) = (script.key(1, 0), script.key(2, 0));
    let [a, c] = [1, 0].map(|replica| script.session(replica));

    // All servers promise the same instant, in which A writes x. Then y, as soon as the clock allows.
    script.advance(5_000);
    script.run_until_idle();
    let promised = state(&script, 1, 1)["vv"][1].as_u64();
    script.put(a, &x, "x").unwrap();
    script.start(a, Operation::Put(y.clone(), "after x".into()));
    script.advance(10);
    assert!(script.take(a).is_some_and(|finished| finished.outcome.is_ok()));

    // y overtakes x, and the promises become stable time.
    script.deliver_link(script.at(1, 2), script.at(0, 2));
    for _ in 0..2 {
        script.advance(4_995);
        for partition in 0..4 {
            script.deliver_link(script.at(0, partition), script.at(0, 0));
            script.deliver_link(script.at(0, 0), script.at(0, partition));
        }
    }
    assert_eq!(state(&script, 0, 2)["gst"].as_u64(), promised);
    assert_eq!(script.versions(script.at(0, 2), &y), 1, "y is here");
    assert_eq!(script.get(c, &y), Ok(None), "but x is not");

    script.settle(50);
    assert_eq!(script.get(c, &y), Ok(Some("after x".into())));
    assert_eq!(script.get(c, &x), Ok(Some("x".into())));
}

/// What leaves a server on one link while sessions write, time passes and its clock is set.
fn stamps_on_a_link<P: Protocol>(stamp: impl Fn(&<P::Metadata as dkvf_core::Metadata>::ServerMessage) -> Option<u64>) {
    let mut script = Script::<P>::new(2, 2);
    let (from, to) = (script.at(0, 1), script.at(1, 1));
    let sessions = [0; 3].map(|replica| script.session(replica));
    for round in 0..300u64 {
        // Sessions that never read write as fast as they like: their stamps come from the server alone.
        let key = script.key(1, round as usize % 4);
        script.start(sessions[round as usize % 3], Operation::Put(key, format!("{round}").into()));
        if round % 5 == 0 {
            script.advance(997);
        }
        match round {
            100 => script.set_skew(from, -10_000),
            200 => script.set_skew(from, 20_000),
            _ => {}
        }
        script.advance(if round % 3 == 0 { 1 } else { 20_000 });
        sessions.iter().for_each(|session| drop(script.take(*session)));
    }
    let stamps: Vec<_> = script.queued(from, to).filter_map(stamp).collect();
    assert!(stamps.len() > 300, "heartbeats, too");
    assert!(stamps.is_sorted_by(|a, b| a < b), "stamps leave in strictly increasing order");
}

#[test]
fn the_order_of_stamps_is_the_order_of_the_channel() {
    stamps_on_a_link::<GentleRain>(|message| match message {
        gentlerain::metadata::ServerMessage::Replicate(update) => Some(update.ut),
        gentlerain::metadata::ServerMessage::Heartbeat(heartbeat) => Some(heartbeat.time),
        _ => None,
    });
    stamps_on_a_link::<causalspartan::CausalSpartan>(|message| match message {
        causalspartan::metadata::ServerMessage::Replicate(update) => Some(update.ut),
        causalspartan::metadata::ServerMessage::Heartbeat(heartbeat) => Some(heartbeat.time),
        _ => None,
    });
}

#[test]
fn stable_time_never_goes_back() {
    let mut script = Script::<GentleRain>::new(3, 3);
    let mut before = 0;
    for _ in 0..20 {
        exchange_heartbeats(&mut script);
        script.run_until_idle();
        let now = state(&script, 0, 1)["gst"].as_u64().unwrap();
        assert!(now >= before);
        before = now;
    }
    assert!(before > 0);
}
