//! What COPS keeps about dependencies, and what a dependency check survives.

use dkvf_core::Key;
use dkvf_core::script::{Channel, Kind, Script};
use dkvf_protocols::cops::Cops;
use dkvf_protocols::cops::metadata::ServerMessage;

use crate::{run_except, schedules, state};

/// The dependencies of the last update on the link between the first two replicas of `partition`.
fn last_nearest(script: &Script<Cops>, partition: usize) -> usize {
    let updates = script.queued(script.at(0, partition), script.at(1, partition)).filter_map(|message| match message {
        ServerMessage::Replicate(update) => Some(update.nearest.len()),
        _ => None,
    });
    updates.last().expect("a write is replicated")
}

fn keys(script: &Script<Cops>, partition: usize, count: usize) -> Vec<Key> {
    (0..count).map(|i| script.key(partition, i)).collect()
}

fn nothing_waits(script: &Script<Cops>) {
    for id in script.topology().ids() {
        let state = serde_json::to_value(script.server(id)).unwrap();
        assert_eq!(state["updates"], serde_json::json!({}), "{}", script.topology().member(id).name);
        assert_eq!(state["wait_dep"], serde_json::json!({}));
        assert!(state["pend"].as_array().unwrap().iter().all(|pend| pend.as_object().unwrap().is_empty()));
    }
}

#[test]
fn a_write_depends_on_what_was_read_since_the_last_write_and_then_on_it_alone() {
    let mut script = Script::<Cops>::new(2, 2);
    let session = script.session(0);
    let keys = keys(&script, 0, 4);
    script.put(session, &keys[0], "0").unwrap();
    assert_eq!(last_nearest(&script, 0), 0, "nothing was known before the first write");
    script.put(session, &keys[1], "1").unwrap();
    assert_eq!(last_nearest(&script, 0), 1, "the previous write");
    for key in [&keys[0], &keys[0], &keys[3]] {
        script.get(session, key).unwrap();
    }
    script.put(session, &keys[2], "2").unwrap();
    assert_eq!(last_nearest(&script, 0), 2, "the previous write and one read: a key counts once, a missing one not at all");
    script.put(session, &keys[3], "3").unwrap();
    assert_eq!(last_nearest(&script, 0), 1);
}

#[test]
fn a_version_is_later_than_its_dependencies_whatever_its_server_has_counted() {
    let mut script = Script::<Cops>::new(2, 2);
    let session = script.session(0);
    for i in 0..5 {
        script.put(session, &script.key(0, i), "v").unwrap();
    }
    script.put(session, &script.key(1, 0), "after them").unwrap();
    let update = script.queued(script.at(0, 1), script.at(1, 1)).next();
    let Some(ServerMessage::Replicate(update)) = update else { panic!("a write is replicated, not {update:?}") };
    assert!(update.nearest.iter().all(|dependency| dependency.ver < update.ver));
}

#[test]
fn a_session_that_has_read_two_concurrent_versions_of_a_key_depends_on_both() {
    assert_eq!(schedules::run::<Cops>("two-concurrent-versions-read"), Ok(()));
}

#[test]
fn a_dependency_on_the_same_key_and_on_the_same_partition_is_checked_without_a_message() {
    let mut script = Script::<Cops>::new(2, 2);
    let (a, b) = (script.session(0), script.session(1));
    let keys = keys(&script, 0, 2);
    script.put(a, &keys[0], "first").unwrap();
    script.put(a, &keys[0], "second").unwrap();
    script.put(a, &keys[1], "third").unwrap();
    script.take_counts();
    script.run_until_idle();
    assert_eq!(script.take_counts().get(&(Kind::Server, "DepCheck")), None);
    assert_eq!(script.get(b, &keys[0]), Ok(Some("second".into())));
    assert_eq!(script.get(b, &keys[1]), Ok(Some("third".into())));
    nothing_waits(&script);
}

#[test]
fn two_pending_versions_of_one_key_are_both_kept() {
    let mut script = Script::<Cops>::new(2, 3);
    let (a, b) = (script.session(0), script.session(1));
    let (key, first, second) = (script.key(0, 0), script.key(1, 0), script.key(2, 0));
    // Each version depends on another partition, whose update is late.
    for (dependency, value) in [(&first, "one"), (&second, "two")] {
        script.put(a, dependency, "before").unwrap();
        script.put(a, &key, value).unwrap();
    }
    let late = [1, 2].map(|partition| Channel::Link(script.at(0, partition), script.at(1, partition)));
    run_except(&mut script, &late);
    assert_eq!(state(&script, 1, 0)["updates"].as_object().unwrap().len(), 2);
    assert_eq!(script.get(b, &key), Ok(None));

    script.deliver(late[1]);
    run_except(&mut script, &late);
    assert_eq!(script.get(b, &key), Ok(None), "`second` depends on version one, which still waits");
    script.deliver(late[0]);
    script.run_until_idle();
    assert_eq!(script.get(b, &key), Ok(Some("two".into())));
    nothing_waits(&script);
}

#[test]
fn a_check_that_is_sent_again_stands_for_one_dependency_only() {
    let mut script = Script::<Cops>::new(2, 3);
    let (a, a2, b) = (script.session(0), script.session(0), script.session(1));
    let (key, x, y) = (script.key(0, 0), script.key(1, 0), script.key(1, 1));
    script.put(a2, &x, "x").unwrap();
    script.run_until_idle();
    script.put(a2, &y, "y").unwrap();
    script.get(a, &x).unwrap();
    script.get(a, &y).unwrap();
    script.put(a, &key, "after both").unwrap();
    // Both dependencies are checked at one server, which has x and not y. The checks arrive several times.
    let updates = Channel::Link(script.at(0, 1), script.at(1, 1));
    let checks = Channel::Link(script.at(1, 0), script.at(1, 1));
    run_except(&mut script, &[updates, checks]);
    let (asking, asked) = (script.at(1, 0), script.at(1, 1));
    let again: Vec<_> = script.queued(asking, asked).cloned().collect();
    assert_eq!(again.len(), 2);
    [&again[..], &again].concat().into_iter().for_each(|check| script.inject(asking, asked, check));
    run_except(&mut script, &[updates]);
    assert_eq!(script.get(b, &key), Ok(None), "y is missing, however often x is confirmed");
    script.run_until_idle();
    assert_eq!(script.get(b, &key), Ok(Some("after both".into())));
    nothing_waits(&script);
}
