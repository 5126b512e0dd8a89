//! Clocks that are set back or run ahead cost time, never correctness, and only those who depend on them.

use dkvf_core::script::{Operation, Script, ScriptOptions};
use dkvf_core::{Code, Failure, NodeOptions, Outcome, Protocol, Reason, Topology};
use dkvf_protocols::causalspartan::{self, CausalSpartan};
use dkvf_protocols::gentlerain::{self, GentleRain};

use crate::state;

const HOUR_US: i64 = 3_600_000_000;

fn drift<T>() -> Outcome<T> {
    Err(Failure::Failed(Reason::Refused(Code::ClockDrift)))
}

fn patient<P: Protocol>() -> Script<P> {
    let node = NodeOptions { request_timeout_us: 60_000_000, strict: true, ..NodeOptions::default() };
    Script::with(Topology::grid(2, 2), &ScriptOptions { node, ..ScriptOptions::default() })
}

#[test]
fn gentlerain_waits_until_a_clock_that_was_set_back_has_caught_up_and_repeats_no_stamp() {
    let mut script = patient::<GentleRain>();
    let (session, key, server) = (script.session(0), script.key(0, 0), script.at(0, 0));
    script.advance(1_000);
    script.put(session, &key, "before").unwrap();
    script.set_skew(server, -10_000_000);
    script.start(session, Operation::Put(key.clone(), "after".into()));
    script.advance(9_999_000);
    assert_eq!(script.take(session), None, "the clock stands still");
    script.advance(2_000);
    assert!(script.take(session).is_some_and(|finished| finished.outcome.is_ok()), "ten seconds at most");
    assert_eq!(script.versions(server, &key), 2, "two stamps");
}

#[test]
fn causalspartan_goes_on_while_a_clock_that_was_set_back_stands_still() {
    let mut script = patient::<CausalSpartan>();
    let (session, key, server) = (script.session(0), script.key(0, 0), script.at(0, 0));
    script.advance(1_000);
    script.put(session, &key, "before").unwrap();
    script.set_skew(server, -10_000_000);
    for i in 0..100 {
        script.advance(1_000);
        script.put(session, &key, format!("{i}")).unwrap();
    }
    assert_eq!(script.versions(server, &key), 101, "as many stamps as writes");
    assert_eq!(script.get(session, &key), Ok(Some("99".into())));
}

fn one_clock_an_hour_ahead<P: Protocol>() {
    let mut script = patient::<P>();
    let (fast, other) = (script.key(0, 0), script.key(1, 0));
    let [victim, bystander, remote] = [0, 0, 1].map(|replica| script.session(replica));
    script.set_skew(script.at(0, 0), HOUR_US);
    script.settle(50);

    // Who has a stamp of that clock in its past is refused elsewhere, without effect.
    script.put(victim, &fast, "from the future").unwrap();
    assert_eq!(script.put(victim, &other, "after it"), drift());
    assert_eq!(script.versions(script.at(0, 1), &other), 0);
    script.advance(10);
    script.put(victim, &fast, "again").unwrap();

    // Others are unaffected, and see each other as before.
    script.advance(1_000);
    script.put(bystander, &other, "by another").unwrap();
    script.settle(100);
    script.put(remote, &fast, "elsewhere").unwrap();
    assert_eq!(script.get(remote, &other), Ok(Some("by another".into())));
    assert_eq!(script.parked(), 0);
}

#[test]
fn one_clock_an_hour_ahead_affects_only_those_who_depend_on_it() {
    one_clock_an_hour_ahead::<GentleRain>();
    one_clock_an_hour_ahead::<CausalSpartan>();
}

#[test]
fn hostile_stamps_are_refused_before_anything_is_merged() {
    let mut script = patient::<GentleRain>();
    let (server, key) = (script.at(0, 0), script.key(0, 0));
    script.settle(50);
    let before = state(&script, 0, 0);
    use gentlerain::metadata as gr;
    for (dt, gst) in [(u64::MAX, 0), (0, u64::MAX)] {
        let put = gr::PutMessage { key: key.clone(), value: "v".into(), dt, gst };
        assert_eq!(script.ask(server, put), Some(Err(Code::ClockDrift)));
    }
    assert_eq!(script.ask(server, gr::GetMessage { key: key.clone(), gst: u64::MAX }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(server, gr::RotxMessage { keys: vec![key.clone()], gst: u64::MAX, dt: 0 }), Some(Err(Code::ClockDrift)));
    assert_eq!(state(&script, 0, 0), before);

    let mut script = patient::<CausalSpartan>();
    script.settle(50);
    let before = state(&script, 0, 0);
    use causalspartan::metadata as cs;
    let vectors = [(vec![0, u64::MAX], Code::ClockDrift), (vec![0, 0, 1], Code::Malformed)];
    for (vector, code) in vectors {
        let put = |ds, dsv| cs::PutMessage { key: key.clone(), value: "v".into(), ds, dsv };
        assert_eq!(script.ask(server, put(vector.clone(), Vec::new())), Some(Err(code)));
        assert_eq!(script.ask(server, put(Vec::new(), vector.clone())), Some(Err(code)));
        assert_eq!(script.ask(server, cs::GetMessage { key: key.clone(), dsv: vector.clone() }), Some(Err(code)));
        assert_eq!(script.ask(server, cs::RotMessage { keys: vec![key.clone()], dsv: Vec::new(), ds: vector.clone() }), Some(Err(code)));
    }
    assert_eq!(state(&script, 0, 0), before);
}

#[test]
fn a_snapshot_stamp_beyond_the_bound_does_not_drag_the_clock() {
    let mut script = patient::<CausalSpartan>();
    script.settle(50);
    let before = state(&script, 0, 1)["hlc"].clone();
    let slice = causalspartan::metadata::SliceRequest { id: 1, keys: vec![script.key(1, 0)], sv: vec![u64::MAX, 0], dsv: Vec::new() };
    script.inject(script.at(0, 0), script.at(0, 1), slice.into());
    script.run_until_idle();
    assert_eq!(state(&script, 0, 1)["hlc"], before);
}
