//! Requests and messages that no honest sender sends: nobody else is harmed, and nothing stays open.

use dkvf_core::config::NodeConfig;
use dkvf_core::script::{Channel, Operation, Script, ScriptOptions};
use dkvf_core::storage::MemoryStore;
use dkvf_core::{Code, Failure, Key, Node, NodeOptions, Now, Outcome, Output, PeerState, Protocol, Reason, Topology};
use dkvf_protocols::causal::KEYS_MAX;
use dkvf_protocols::causalspartan::{self, CausalSpartan};
use dkvf_protocols::cops::{self, Cops};
use dkvf_protocols::eventual::{self, Eventual};
use dkvf_protocols::gentlerain::{self, GentleRain};

use crate::{run_except, state};

fn refused<T>(code: Code) -> Outcome<T> {
    Err(Failure::Failed(Reason::Refused(code)))
}

/// What the transactions that server (0, 0) coordinates look like.
fn open<P: Protocol>(script: &Script<P>) -> serde_json::Value {
    let state = state(script, 0, 0);
    ["rot", "rotx"].iter().find_map(|name| state.get(*name)).expect("it has transactions")["open"].clone()
}

#[test]
fn a_sibling_that_cannot_follow_a_snapshot_says_so_and_the_transaction_ends() {
    let mut script = Script::<CausalSpartan>::new(2, 2);
    let session = script.session(0);
    let (own, other) = (script.key(0, 0), script.key(1, 0));
    script.settle(50);
    script.set_skew(script.at(0, 0), 3_600_000_000);
    script.settle(50);
    script.put(session, &own, "from the future").unwrap();
    let fresh = script.session(0);
    assert_eq!(script.read_only(fresh, &[own, other.clone()]), refused(Code::ClockDrift));
    assert_eq!(open(&script), serde_json::json!({}));
    assert_eq!(script.get(fresh, &other), Ok(None), "the session goes on");
}

fn a_dead_sibling<P: Protocol>() {
    let mut script = Script::<P>::new(2, 2);
    let session = script.session(0);
    script.settle(100);
    script.start(session, Operation::ReadOnly(vec![script.key(0, 0), script.key(1, 0)]));
    let dead = [Channel::Link(script.at(0, 0), script.at(0, 1))];
    assert_ne!(open(&script), serde_json::json!({}));
    for _ in 0..5_005 {
        script.advance(1_000);
        run_except(&mut script, &dead);
    }
    assert_eq!(script.take(session).expect("its time is up").outcome, refused(Code::Timeout), "{}", P::NAME);
    assert_eq!(open(&script), serde_json::json!({}), "{}: no snapshot is in use any more", P::NAME);
    script.run_until_idle();
    assert_eq!(script.get(session, &script.key(0, 0)), Ok(None), "{}: a slice that comes now changes nothing", P::NAME);
}

#[test]
fn a_transaction_whose_sibling_is_silent_ends_and_frees_its_snapshot() {
    a_dead_sibling::<GentleRain>();
    a_dead_sibling::<CausalSpartan>();
}

fn large_transactions<P: Protocol>() {
    let mut script = Script::<P>::new(1, 2);
    let session = script.session(0);
    let keys = |partition: usize, count: usize| (0..count).map(|i| script.key(partition, i)).collect::<Vec<_>>();
    let (first, second) = (keys(0, 5), keys(1, 5));
    assert_eq!(script.read_only(session, &vec![first[0].clone(); KEYS_MAX + 1]), refused(Code::Malformed), "{}", P::NAME);
    for key in first.iter().chain(&second) {
        script.advance(10);
        script.put(session, key, vec![b'v'; 2 << 20]).unwrap();
    }
    script.settle(50);
    assert_eq!(script.read_only(session, &second), refused(Code::Malformed), "{}: one slice is too long", P::NAME);
    let both = [&first[..3], &second[..3]].concat();
    assert_eq!(script.read_only(session, &both), refused(Code::Malformed), "{}: two slices are", P::NAME);
    assert_eq!(script.read_only(session, &both[2..5]).map(|values| values.len()), Ok(3), "{}", P::NAME);
    assert_eq!(open(&script), serde_json::json!({}));
}

#[test]
fn a_transaction_of_too_many_keys_or_bytes_is_refused() {
    large_transactions::<GentleRain>();
    large_transactions::<CausalSpartan>();
}

#[test]
fn cops_takes_a_replicas_updates_from_that_replica_only() {
    use cops::metadata::{Dependency, PutMessage, Replicate};
    let mut script = Script::<Cops>::new(3, 1);
    let (here, from, key) = (script.at(0, 0), script.at(1, 0), script.key(0, 0));
    let dependency = |origin: u64| vec![Dependency { key: key.clone(), ver: 5 << 16 | origin }];
    for (origin, nearest) in [(2, Vec::new()), (0, Vec::new()), (3, Vec::new()), (0xffff, Vec::new()), (1, dependency(3))] {
        script.inject(from, here, Replicate { key: key.clone(), value: "v".into(), ver: 7 << 16 | origin, nearest }.into());
        script.run_until_idle();
        assert_eq!((script.versions(here, &key), &state(&script, 0, 0)["lam"]), (0, &0.into()), "origin {origin}");
    }
    let put = |nearest| PutMessage { key: key.clone(), value: "v".into(), nearest };
    assert_eq!(script.ask(here, put(dependency(3))), Some(Err(Code::Malformed)));
    assert_eq!(script.ask(here, put(vec![dependency(1)[0].clone(); (1 << 16) + 1])), Some(Err(Code::Malformed)));
    assert_eq!(script.ask(here, put(dependency(1))).map(|reply| reply.is_ok()), Some(true));
}

#[test]
fn a_client_of_cops_moves_lamport_time_to_what_is_credible_and_no_stamp_is_given_after_the_last() {
    use cops::metadata::{ClientReply, Dependency, PutMessage, Replicate};
    let mut script = Script::<Cops>::new(2, 1);
    let (here, key) = (script.at(0, 0), script.key(0, 0));
    let put = |ver| PutMessage { key: key.clone(), value: "v".into(), nearest: vec![Dependency { key: key.clone(), ver }] };
    for _ in 0..2 {
        let Some(Ok(ClientReply::Put(reply))) = script.ask(here, put((u64::MAX >> 16) << 16)) else { panic!("nobody is refused") };
        assert!(reply.ver >> 16 < 1 << 47);
    }
    script.inject(script.at(1, 0), here, Replicate { key: key.clone(), value: "v".into(), ver: (u64::MAX >> 16) << 16 | 1, nearest: vec![] }.into());
    script.deliver_link(script.at(1, 0), here);
    assert_eq!(script.ask(here, put(0)), Some(Err(Code::ClockDrift)));
}

#[test]
fn cops_sends_checks_again_to_a_sibling_that_was_replaced_and_never_on_a_timer() {
    use cops::metadata::{DepCheck, Dependency, Replicate, ServerMessage};
    let topology = Topology::grid(2, 3);
    let [here, first, second, peer] = [(0, 0), (0, 1), (0, 2), (1, 0)].map(|(replica, partition)| topology.server(replica, partition));
    let now = |us| Now { clock_us: 1_700_000_000_000_000 + us, monotonic_us: us };
    let store = Box::new(MemoryStore::new(here, Cops::VERSIONS));
    let mut node = Node::<cops::CopsServer>::new(&NodeConfig::new("s"), topology.clone(), here, store, now(0), NodeOptions::default()).unwrap();
    let dependency = |partition, ver: u64| Dependency { key: dkvf_core::script::key_in_partition(&topology, partition, 0), ver: ver << 16 | 1 };
    let update = Replicate { key: Key::from("k"), value: "v".into(), ver: 9 << 16 | 1, nearest: vec![dependency(1, 3), dependency(2, 4)] };
    let mut checks = |what: &dyn Fn(&mut Node<cops::CopsServer>)| {
        what(&mut node);
        let sent = node.take_outputs().into_iter().filter_map(|output| match output {
            Output::Send { to, message: ServerMessage::DepCheck(DepCheck { ver, .. }), .. } => Some((to, ver >> 16)),
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(checks(&|node| node.server_message(now(1), peer, update.clone().into()).unwrap()), [(first, 3), (second, 4)]);
    assert_eq!(checks(&|node| node.tick(now(60_000_000)).unwrap()), [], "links lose nothing");
    for state in [PeerState::Down, PeerState::Up] {
        assert_eq!(checks(&|node| node.peer_change(now(60_000_001), second, state).unwrap()), []);
    }
    assert_eq!(checks(&|node| node.peer_change(now(60_000_002), second, PeerState::Replaced).unwrap()), [(second, 4)]);
}

#[test]
fn eventual_gives_no_stamp_after_the_last_and_takes_a_replicas_updates_from_it_only() {
    use eventual::metadata::{PutMessage, Record, Replicate, ScanMessage};
    let mut script = Script::<Eventual>::new(3, 1);
    let (here, from, key) = (script.at(0, 0), script.at(1, 0), script.key(0, 0));
    let update = |origin| Replicate { key: key.clone(), record: Some(Record { value: "v".into(), ts: u64::MAX, origin }) };
    for origin in [0, 2, 9] {
        script.inject(from, here, update(origin).into());
        script.run_until_idle();
        assert_eq!(script.versions(here, &key), 0, "origin {origin}");
    }
    script.inject(from, here, update(1).into());
    script.run_until_idle();
    assert_eq!(script.versions(here, &key), 1);
    assert_eq!(script.ask(here, PutMessage { key, value: "v".into() }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, PutMessage { key: script.key(0, 1), value: "v".into() }).map(|reply| reply.is_ok()), Some(true), "other keys are well");
    assert_eq!(script.ask(here, ScanMessage { from: Key::new(), count: 10_001 }), Some(Err(Code::Malformed)));
    assert_eq!(script.ask(here, ScanMessage { from: Key::new(), count: 10_000 }).map(|reply| reply.is_ok()), Some(true));
}

#[test]
fn nobody_declares_stable_what_a_server_has_not_received() {
    let mut script = Script::<GentleRain>::new(2, 2);
    let (here, key) = (script.at(0, 0), script.key(0, 0));
    script.settle(50);
    let before = state(&script, 0, 0);
    let received = before["vv"].as_array().unwrap().iter().filter_map(|time| time.as_u64()).min().unwrap();
    use gentlerain::metadata as gr;
    let gst = received + 1;
    assert_eq!(script.ask(here, gr::GetMessage { key: key.clone(), gst }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, gr::PutMessage { key: key.clone(), value: "v".into(), dt: 0, gst }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, gr::RotxMessage { keys: vec![key.clone()], gst, dt: 0 }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, gr::RotxMessage { keys: vec![key.clone()], gst: 0, dt: u64::MAX }), Some(Err(Code::ClockDrift)));
    assert_eq!(state(&script, 0, 0), before);
    assert_eq!(script.ask(here, gr::GetMessage { key: key.clone(), gst: received }).map(|reply| reply.is_ok()), Some(true));

    let mut script = Script::<CausalSpartan>::new(2, 2);
    script.settle(50);
    let before = state(&script, 0, 0);
    let received: Vec<u64> = serde_json::from_value(before["vv"].clone()).unwrap();
    use causalspartan::metadata as cs;
    let dsv = vec![0, received[1] + 1];
    assert_eq!(script.ask(here, cs::GetMessage { key: key.clone(), dsv: dsv.clone() }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, cs::PutMessage { key: key.clone(), value: "v".into(), ds: vec![], dsv: dsv.clone() }), Some(Err(Code::ClockDrift)));
    assert_eq!(script.ask(here, cs::RotMessage { keys: vec![key.clone()], ds: vec![], dsv }), Some(Err(Code::ClockDrift)));
    assert_eq!(state(&script, 0, 0), before);
    assert_eq!(script.ask(here, cs::GetMessage { key, dsv: received }).map(|reply| reply.is_ok()), Some(true));
}

fn slice_beyond<P: Protocol>(request: impl Into<<P::Metadata as dkvf_core::Metadata>::ServerMessage>) -> Script<P> {
    let mut script = Script::<P>::with(Topology::grid(2, 2), &ScriptOptions::default());
    script.settle(50);
    let before = state(&script, 0, 1);
    script.inject(script.at(0, 0), script.at(0, 1), request.into());
    script.deliver_link(script.at(0, 0), script.at(0, 1));
    assert_eq!(state(&script, 0, 1), before, "{}", P::NAME);
    script
}

#[test]
fn a_snapshot_that_a_server_has_not_received_is_refused_and_changes_nothing() {
    let refused = Code::ClockDrift as u32;
    let script = slice_beyond::<GentleRain>(gentlerain::metadata::SliceRequest { id: 1, keys: vec![], st: u64::MAX });
    let answer = gentlerain::metadata::Slice { id: 1, rows: vec![], refused };
    assert!(script.queued(script.at(0, 1), script.at(0, 0)).eq([&answer.into()]));
    for (sv, dsv) in [(vec![u64::MAX, 0], vec![]), (vec![], vec![0, u64::MAX])] {
        let script = slice_beyond::<CausalSpartan>(causalspartan::metadata::SliceRequest { id: 1, keys: vec![], sv, dsv });
        let answer = causalspartan::metadata::Slice { id: 1, rows: vec![], refused };
        assert!(script.queued(script.at(0, 1), script.at(0, 0)).eq([&answer.into()]));
    }
}

#[test]
fn vectors_of_servers_that_are_too_long_are_dropped() {
    use causalspartan::metadata::{Agg, Cut, Replicate, SliceRequest};
    let key = Key::from("k");
    let long = vec![1; 3];
    slice_beyond::<CausalSpartan>(SliceRequest { id: 1, keys: vec![], sv: long.clone(), dsv: vec![] });
    slice_beyond::<CausalSpartan>(SliceRequest { id: 1, keys: vec![], sv: vec![], dsv: long.clone() });
    slice_beyond::<CausalSpartan>(Agg { vec: long.clone(), oldest: vec![] });
    slice_beyond::<CausalSpartan>(Agg { vec: vec![], oldest: long.clone() });
    slice_beyond::<CausalSpartan>(Cut { dsv: long.clone(), oldest: vec![] });
    slice_beyond::<CausalSpartan>(Cut { dsv: vec![], oldest: long.clone() });
    let script = slice_beyond::<CausalSpartan>(Replicate { key: key.clone(), value: "v".into(), ut: 1, ds: long });
    assert_eq!(script.versions(script.at(0, 1), &key), 0);
}
