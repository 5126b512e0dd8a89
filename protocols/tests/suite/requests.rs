//! Requests that are repeated, refused or answered with nothing.

use dkvf_core::script::{Channel, Kind, Operation, Script, ScriptOptions};
use dkvf_core::{Code, Failure, NodeOptions, Protocol, Reason, Topology};
use dkvf_protocols::causalspartan::{self, CausalSpartan};
use dkvf_protocols::cops::{self, Cops};
use dkvf_protocols::gentlerain::{self, GentleRain};

use crate::{exchange_heartbeats, publish_cut_off, state};

fn a_repeated_put_executes_once<P: Protocol>() {
    let mut script = Script::<P>::new(2, 1);
    let (session, other, key) = (script.session(0), script.session(0), script.key(0, 0));
    script.put(session, &key, "once").unwrap();
    script.advance(10);
    script.put(other, &key, "by another").unwrap();
    script.take_counts();
    script.hold(session);
    script.repeat_request(session);
    script.deliver(Channel::Requests(session));
    assert!(script.deliver(Channel::Replies(session)), "{}: answered again", P::NAME);
    assert_eq!(script.take_counts().get(&(Kind::Server, "Replicate")), None, "{}", P::NAME);
    script.release(session);
    assert_eq!(script.get(session, &key), Ok(Some("by another".into())), "{}: nobody's write is overwritten", P::NAME);
}

#[test]
fn a_put_that_is_sent_twice_under_one_number_executes_once() {
    a_repeated_put_executes_once::<Cops>();
    a_repeated_put_executes_once::<GentleRain>();
    a_repeated_put_executes_once::<CausalSpartan>();
}

/// Partition 1 is half a second behind, and requests wait for at most a tenth.
fn impatient<P: Protocol>() -> Script<P> {
    let node = NodeOptions { request_timeout_us: 100_000, strict: true, ..NodeOptions::default() };
    let mut script = Script::with(Topology::grid(2, 2), &ScriptOptions { node, ..ScriptOptions::default() });
    script.advance(1_000_000);
    let slow = script.at(0, 1);
    script.set_skew(slow, -500_000);
    script
}

#[test]
fn a_put_that_waits_past_its_deadline_answers_timeout_and_has_no_effect() {
    let mut script = impatient::<GentleRain>();
    let (session, first, second) = (script.session(0), script.key(0, 0), script.key(1, 0));
    script.advance(600_000);
    script.set_skew(script.at(0, 0), 300_000);
    script.run_until_idle();
    script.put(session, &first, "v").unwrap();
    script.start(session, Operation::Put(second.clone(), "too late".into()));
    assert_eq!(script.parked(), 1);
    script.advance(99_000);
    assert_eq!(script.take(session), None);
    script.advance(1_001);
    let finished = script.take(session).expect("its time is up");
    assert_eq!(finished.outcome, Err(Failure::Failed(Reason::Refused(Code::Timeout))));
    script.advance(2_000_000);
    script.run_until_idle();
    for replica in [0, 1] {
        assert_eq!(script.versions(script.at(replica, 1), &second), 0);
    }
    assert_eq!(script.parked(), 0);
}

#[test]
fn a_read_only_transaction_that_waits_past_its_deadline_answers_timeout() {
    let mut script = impatient::<GentleRain>();
    let (session, key) = (script.session(0), script.key(0, 0));
    script.put(session, &key, "v").unwrap();
    script.start(session, Operation::ReadOnly(vec![key]));
    script.advance(100_001);
    let finished = script.take(session).expect("its time is up");
    assert_eq!(finished.outcome, Err(Failure::Failed(Reason::Refused(Code::Timeout))));
    assert_eq!(state(&script, 0, 0)["rotx"]["open"], serde_json::json!({}));
}

#[test]
fn a_key_without_a_value_is_an_answer_with_the_metadata_of_a_hit() {
    let mut script = Script::<GentleRain>::new(2, 2);
    let (server, key) = (script.at(0, 0), script.key(0, 0));
    script.settle(50);
    let gst = state(&script, 0, 0)["gst"].as_u64().unwrap();
    use gentlerain::metadata as gr;
    assert_eq!(script.ask(server, gr::GetMessage { key: key.clone(), gst: 0 }), Some(Ok(gr::GetReply { record: None, gst }.into())));
    assert_ne!(gst, 0);

    let mut script = Script::<CausalSpartan>::new(2, 2);
    script.settle(50);
    let dsv = serde_json::from_value::<Vec<u64>>(state(&script, 0, 0)["dsv"].clone()).unwrap();
    use causalspartan::metadata as cs;
    let reply = cs::GetReply { record: None, dsv: dsv.clone() };
    assert_eq!(script.ask(server, cs::GetMessage { key: key.clone(), dsv: vec![] }), Some(Ok(reply.into())));
    assert_ne!(dsv, [0, 0]);

    let mut script = Script::<Cops>::new(2, 2);
    use cops::metadata as co;
    assert_eq!(script.ask(server, co::GetMessage { key: key.clone() }), Some(Ok(co::GetReply { record: None }.into())));
    let session = script.session(0);
    script.put(session, &key, "").unwrap();
    assert_eq!(script.get(session, &key), Ok(Some("".into())), "an empty value is a value");
}

#[test]
fn a_session_learns_what_is_stable_from_a_miss_too() {
    let mut script = Script::<GentleRain>::new(2, 4);
    let (written, missing) = (script.key(3, 0), script.key(1, 0));
    let [writer, reader] = [1, 0].map(|replica| script.session(replica));
    script.put(writer, &written, "v").unwrap();
    exchange_heartbeats(&mut script);
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));
    assert_eq!(script.get(reader, &written), Ok(None), "partition 3 has not heard that it is stable");
    assert_eq!(script.get(reader, &missing), Ok(None), "partition 1 has");
    assert_eq!(script.get(reader, &written), Ok(Some("v".into())));
}

fn an_own_write_is_there_after_a_miss<P: Protocol>() {
    let mut script = Script::<P>::new(2, 2);
    let (session, key) = (script.session(0), script.key(1, 0));
    assert_eq!(script.get(session, &key), Ok(None));
    script.put(session, &key, "own").unwrap();
    assert_eq!(script.get(session, &key), Ok(Some("own".into())), "{}", P::NAME);
}

#[test]
fn a_session_reads_its_own_write_after_a_miss() {
    an_own_write_is_there_after_a_miss::<Cops>();
    an_own_write_is_there_after_a_miss::<GentleRain>();
    an_own_write_is_there_after_a_miss::<CausalSpartan>();
}
