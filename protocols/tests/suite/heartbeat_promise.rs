//! T-S7: a heartbeat with time t promises that no later update has a stamp up to t.

use dkvf_core::Protocol;
use dkvf_core::script::{Operation, Script};
use dkvf_protocols::{causalspartan, gentlerain, gentlerain::GentleRain};

use crate::{exchange_heartbeats, schedules, state};

#[test]
fn writes_in_the_instant_of_a_heartbeat_are_after_its_promise() {
    assert_eq!(schedules::run::<GentleRain>("writes-in-the-instant-of-a-heartbeat"), Ok(()));
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
