//! Replicas that have received the same writes return the same, whatever the order and however often they came.

use dkvf_core::script::{Script, ScriptOptions};
use dkvf_core::{Metadata, Protocol, Topology};
use dkvf_protocols::causalspartan::{self, CausalSpartan};
use dkvf_protocols::cops::{self, Cops};
use dkvf_protocols::eventual::{self, Eventual};
use dkvf_protocols::gentlerain::{self, GentleRain};

/// Replicas 0 and 1 write in the same instant; replica 2 hears of it in either order.
fn equal_stamps_converge<P: Protocol>() {
    for order in [[0, 1], [1, 0]] {
        let mut script = Script::<P>::new(3, 1);
        let (key, target) = (script.key(0, 0), script.at(2, 0));
        let [a, b, c] = [0, 1, 2].map(|replica| script.session(replica));
        script.advance(1_000);
        script.put(a, &key, "of replica 0").unwrap();
        script.put(b, &key, "of replica 1").unwrap();
        for replica in order {
            script.deliver_link(script.at(replica, 0), target);
        }
        script.settle(50);
        for session in [a, b, c] {
            assert_eq!(script.get(session, &key), Ok(Some("of replica 1".into())), "{}: the larger origin wins", P::NAME);
        }
    }
}

#[test]
fn equal_stamps_of_different_origin_order_the_same_in_both_orders_of_arrival() {
    equal_stamps_converge::<Eventual>();
    equal_stamps_converge::<Cops>();
    equal_stamps_converge::<GentleRain>();
    equal_stamps_converge::<CausalSpartan>();
}

/// A second copy of an update, at once and after everything else.
fn duplicate_is_no_op<P: Protocol>(is_update: fn(&<P::Metadata as Metadata>::ServerMessage) -> bool) {
    let mut script = Script::<P>::new(2, 2);
    let (from, to) = (script.at(0, 0), script.at(1, 0));
    let (key, other) = (script.key(0, 0), script.key(1, 0));
    let [a, reader] = [0, 1].map(|replica| script.session(replica));
    script.put(a, &other, "first").unwrap();
    script.advance(10);
    script.put(a, &key, "second").unwrap();
    let update = script.queued(from, to).find(|message| is_update(message)).cloned().expect("a write is replicated");
    script.inject(from, to, update.clone());
    script.settle(50);
    let before = serde_json::to_value(script.server(to)).unwrap();
    script.inject(from, to, update);
    script.run_until_idle();
    assert_eq!(serde_json::to_value(script.server(to)).unwrap(), before, "{}", P::NAME);
    assert_eq!(script.versions(to, &key), 1);
    assert_eq!(script.get(reader, &key), Ok(Some("second".into())));
}

#[test]
fn a_duplicate_update_is_a_no_op() {
    duplicate_is_no_op::<Eventual>(|message| matches!(message, eventual::metadata::ServerMessage::Replicate(_)));
    duplicate_is_no_op::<Cops>(|message| matches!(message, cops::metadata::ServerMessage::Replicate(_)));
    duplicate_is_no_op::<GentleRain>(|message| matches!(message, gentlerain::metadata::ServerMessage::Replicate(_)));
    duplicate_is_no_op::<CausalSpartan>(|message| matches!(message, causalspartan::metadata::ServerMessage::Replicate(_)));
}

fn a_deep_tree_stabilises<P: Protocol>() {
    let mut options = ScriptOptions::default();
    options.properties.set("tree_fanout", 2);
    let mut script = Script::<P>::with(Topology::grid(2, 7), &options);
    let [writer, reader] = [0, 1].map(|replica| script.session(replica));
    let (x, y) = (script.key(6, 0), script.key(3, 0));
    script.put(writer, &x, "x").unwrap();
    script.advance(10);
    script.put(writer, &y, "after x").unwrap();
    script.settle(60);
    assert_eq!(script.get(reader, &y), Ok(Some("after x".into())), "{}", P::NAME);
}

#[test]
fn what_is_received_becomes_stable_over_a_deep_tree_too() {
    a_deep_tree_stabilises::<GentleRain>();
    a_deep_tree_stabilises::<CausalSpartan>();
}
