//! Directed schedules that tell a correct causal protocol from one with a certain mistake, for any protocol that has the
//! messages of the original: random runs find these mistakes rarely. They are the `T-S*` of the specification.
//!
//! Each returns what a session saw that it must not see.

use dkvf_core::script::{Channel, Operation, Script};
use dkvf_core::{Key, Protocol};

/// What was seen and what should have been.
pub type Seen = Result<(), String>;

/// Runs the schedule called `name`.
///
/// # Panics
/// If there is none.
pub fn run<P: Protocol>(name: &str) -> Seen {
    match name {
        "cut-off-through-a-local-write" => cut_off_through_a_local_write::<P>(),
        "late-cut-off" => late_cut_off::<P>(),
        "writes-in-the-instant-of-a-heartbeat" => writes_in_the_instant_of_a_heartbeat::<P>(),
        "unstable-dependency" => unstable_dependency::<P>(),
        "two-concurrent-versions-read" => two_concurrent_versions_read::<P>(),
        "writes-during-a-transaction" => writes_during_a_transaction::<P>(-200_000),
        _ => panic!("there is no schedule {name}"),
    }
}

/// T-S1: of a new cut-off only one server has heard, and a local write carries what its writer knows from there.
fn cut_off_through_a_local_write<P: Protocol>() -> Seen {
    let mut script = Script::<P>::new(3, 4);
    let (z, d, y, d3) = (script.key(0, 0), script.key(1, 0), script.key(2, 0), script.key(3, 0));
    let [a, b, c, early] = [1, 0, 0, 0].map(|replica| script.session(replica));

    // A, elsewhere, writes z, then d3, then d. All arrive here.
    for key in [&z, &d3, &d] {
        script.advance(100);
        script.put(a, key, "by A").unwrap();
    }
    exchange_heartbeats(&mut script);

    // Of the new cut-off only partition 1 learns.
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));
    sees(&mut script, early, &d3, None, "partition 3 has not heard that d3 is stable")?;

    // B sees d there and writes y at partition 2, which has not heard either.
    sees(&mut script, b, &d, Some("by A"), "partition 1 has heard that d is stable")?;
    script.advance(100);
    script.put(b, &y, "by B").unwrap();

    // Who sees y must see d3.
    sees(&mut script, c, &y, Some("by B"), "y is a local write")?;
    sees(&mut script, c, &d3, Some("by A"), "y depends on d, and d on d3")
}

/// T-S6: a cut-off that arrives late moves nothing back.
fn late_cut_off<P: Protocol>() -> Seen {
    let mut script = Script::<P>::new(3, 4);
    let (z, d, y, d3) = (script.key(0, 0), script.key(1, 0), script.key(2, 0), script.key(3, 0));
    let [a, b, c] = [1, 0, 0].map(|replica| script.session(replica));

    // A first round, whose cut-off does not reach partitions 2 and 3 yet.
    exchange_heartbeats(&mut script);
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));

    // z, d3, then d arrive; in the second round they are stable, which partition 1 learns.
    for key in [&z, &d3, &d] {
        script.advance(100);
        script.put(a, key, "by A").unwrap();
    }
    exchange_heartbeats(&mut script);
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));

    // B sees d and raises the stable time of partition 2 with its write.
    sees(&mut script, b, &d, Some("by A"), "partition 1 has heard that d is stable")?;
    script.advance(100);
    script.put(b, &y, "by B").unwrap();

    // Now a cut-off of the first round arrives there.
    assert!(script.deliver(Channel::Link(script.at(0, 0), script.at(0, 2))));
    sees(&mut script, c, &y, Some("by B"), "y is a local write")?;
    sees(&mut script, c, &d3, Some("by A"), "y depends on d, and d on d3")
}

/// T-S7: a heartbeat with time t promises that no later update has a stamp up to t.
fn writes_in_the_instant_of_a_heartbeat<P: Protocol>() -> Seen {
    let mut script = Script::<P>::new(2, 4);
    let (x, y) = (script.key(1, 0), script.key(2, 0));
    let [a, c] = [1, 0].map(|replica| script.session(replica));

    // All servers promise the same instant, in which A writes x. Then y, as soon as the clock allows.
    script.advance(5_000);
    script.run_until_idle();
    script.put(a, &x, "x").unwrap();
    script.start(a, Operation::Put(y.clone(), "after x".into()));
    script.advance(10);
    assert!(script.take(a).is_some_and(|finished| finished.outcome.is_ok()));

    // y overtakes x, and the promises become stable time.
    script.deliver_link(script.at(1, 2), script.at(0, 2));
    for _ in 0..4 {
        script.advance(4_995);
        for partition in 0..4 {
            script.deliver_link(script.at(0, partition), script.at(0, 0));
            script.deliver_link(script.at(0, 0), script.at(0, partition));
        }
    }
    assert_eq!(script.versions(script.at(0, 2), &y), 1, "y is here");
    sees(&mut script, c, &y, None, "x, on which y depends, has not arrived")?;

    script.settle(50);
    sees(&mut script, c, &y, Some("after x"), "everything has arrived")?;
    sees(&mut script, c, &x, Some("x"), "everything has arrived")
}

/// T-S4: what a session depends on is not therefore stable.
fn unstable_dependency<P: Protocol>() -> Seen {
    let mut script = Script::<P>::new(3, 4);
    let (d, e, other, f) = (script.key(1, 0), script.key(2, 0), script.key(2, 1), script.key(3, 0));
    let [a, a2, from_e, c, r] = [1, 1, 2, 0, 0].map(|replica| script.session(replica));

    // f is slow to come here; E has seen it and writes e, which is here, invisible.
    script.advance(100);
    script.put(a, &f, "f").unwrap();
    script.deliver_link(script.at(1, 3), script.at(2, 3));
    sees(&mut script, from_e, &f, Some("f"), "f has no dependencies")?;
    script.put(from_e, &e, "after f").unwrap();
    script.deliver_link(script.at(2, 2), script.at(0, 2));
    assert_eq!(script.versions(script.at(0, 2), &e), 1);

    // d, later than f, from the same replica and without dependencies, is visible at once. C writes after it, where e is.
    script.advance(3_000);
    script.put(a2, &d, "d").unwrap();
    script.deliver_link(script.at(1, 1), script.at(0, 1));
    sees(&mut script, c, &d, Some("d"), "d has no dependencies")?;
    script.put(c, &other, "after d").unwrap();

    sees(&mut script, r, &e, None, "f, on which e depends, has not arrived")?;
    sees(&mut script, r, &f, None, "f has not arrived")?;

    script.settle(50);
    sees(&mut script, r, &e, Some("after f"), "everything has arrived")?;
    sees(&mut script, r, &f, Some("f"), "everything has arrived")
}

/// A session that has read two concurrent versions of a key depends on both.
fn two_concurrent_versions_read<P: Protocol>() -> Seen {
    let mut script = Script::<P>::new(3, 4);
    let (x, y, z, unrelated) = (script.key(1, 0), script.key(2, 0), script.key(3, 0), script.key(1, 1));
    let [a, b, reader, c] = [0, 1, 0, 2].map(|replica| script.session(replica));
    script.put(a, &z, "z").unwrap();
    script.put(a, &x, "after z").unwrap();
    script.put(b, &unrelated, "counts").unwrap();
    script.put(b, &unrelated, "further").unwrap();
    script.put(b, &x, "concurrent").unwrap();

    // A session reads both, one after the other, and writes y.
    sees(&mut script, reader, &x, Some("after z"), "it is a local write")?;
    script.deliver_link(script.at(1, 1), script.at(0, 1));
    sees(&mut script, reader, &x, Some("concurrent"), "it is newer")?;
    script.put(reader, &y, "after both").unwrap();

    // Where only the newer one has arrived, y must wait for z.
    script.deliver_link(script.at(1, 1), script.at(2, 1));
    let late = [1, 3].map(|partition| Channel::Link(script.at(0, partition), script.at(2, partition)));
    run_except(&mut script, &late);
    sees(&mut script, c, &x, Some("concurrent"), "it has arrived")?;
    sees(&mut script, c, &y, None, "z, on which y depends, has not arrived")?;
    script.run_until_idle();
    sees(&mut script, c, &y, Some("after both"), "everything has arrived")?;
    sees(&mut script, c, &z, Some("z"), "everything has arrived")
}

/// x, then y are written between the two slices of a transaction, in a replica whose clocks differ from the other's.
pub fn writes_during_a_transaction<P: Protocol>(skew_us: i64) -> Seen {
    let mut script = Script::<P>::new(2, 3);
    (0..3).for_each(|partition| script.set_skew(script.at(0, partition), skew_us));
    let [writer, reader] = [0, 0].map(|replica| script.session(replica));
    let (x, y) = (script.key(1, 0), script.key(2, 0));
    script.settle(400);
    script.start(reader, Operation::ReadOnly(vec![x.clone(), y.clone()]));
    let slow = [Channel::Link(script.at(0, 1), script.at(0, 2))];
    run_except(&mut script, &slow);
    script.advance(10);
    script.put(writer, &x, "x").unwrap();
    script.advance(10);
    script.put(writer, &y, "after x").unwrap();
    script.settle(50);
    let outcome = script.take(reader).unwrap().outcome;
    if outcome == Ok(vec![None, None]) {
        return Ok(());
    }
    Err(format!("a transaction that began before both writes returned {outcome:?}"))
}

/// Has a session read `key`, which must return `value`.
fn sees<P: Protocol>(script: &mut Script<P>, session: u32, key: &Key, value: Option<&'static str>, why: &str) -> Seen {
    let seen = script.get(session, key);
    if seen == Ok(value.map(Into::into)) {
        return Ok(());
    }
    Err(format!("session {session} read {seen:?} of {key:?}, not {value:?}: {why}"))
}

/// Delivers everything except what is on `held` links, until nothing else moves.
pub fn run_except<P: Protocol>(script: &mut Script<P>, held: &[Channel]) {
    while let Some(channel) = script.channels().into_iter().find(|channel| !held.contains(channel)) {
        script.deliver(channel);
    }
}

/// Has every server send a heartbeat, and delivers everything between the replicas.
pub fn exchange_heartbeats<P: Protocol>(script: &mut Script<P>) {
    script.advance(20_000);
    let between = |script: &Script<P>, channel: &Channel| match channel {
        Channel::Link(from, to) => script.topology().member(*from).replica != script.topology().member(*to).replica,
        _ => false,
    };
    while let Some(channel) = script.channels().into_iter().find(|channel| between(script, channel)) {
        script.deliver(channel);
    }
}

/// Has the root of replica 0 publish what its servers have received. The published cut-off is on its way to the others.
pub fn publish_cut_off<P: Protocol>(script: &mut Script<P>) {
    script.advance(5_000);
    for partition in 1..script.topology().partitions() {
        script.deliver_link(script.at(0, partition), script.at(0, 0));
    }
    script.advance(5_000);
}
