//! Old versions go, and none that a snapshot in use can see.

use dkvf_core::script::{Channel, Operation, Script};
use dkvf_core::{Protocol, ServerId};
use dkvf_protocols::{causalspartan::CausalSpartan, gentlerain::GentleRain};

use crate::run_except;

fn chains_stay_short<P: Protocol>() {
    let mut script = Script::<P>::new(3, 2);
    let sessions = [0, 1, 2].map(|replica| script.session(replica));
    let key = script.key(1, 0);
    let holders: [ServerId; 3] = [0, 1, 2].map(|replica| script.at(replica, 1));
    let mut longest = 0;
    for i in 0..10_000usize {
        script.advance(100);
        script.put(sessions[i % 3], &key, format!("{i}")).unwrap();
        script.run_until_idle();
        longest = holders.iter().map(|id| script.versions(*id, &key)).max().max(Some(longest)).unwrap();
    }
    assert!(longest < 400, "{}: {longest} versions, where about 25 ms of writes are not stable yet", P::NAME);
    script.settle(100);
    script.put(sessions[0], &key, "the last").unwrap();
    script.run_until_idle();
    for holder in holders {
        assert_eq!(script.versions(holder, &key), 2, "{}: the newest stable version and the new one", P::NAME);
    }
}

#[test]
fn ten_thousand_overwrites_leave_short_chains() {
    chains_stay_short::<GentleRain>();
    chains_stay_short::<CausalSpartan>();
}

fn a_snapshot_keeps_its_versions<P: Protocol>() {
    let mut script = Script::<P>::new(2, 3);
    let [writer, reader] = [0, 0].map(|replica| script.session(replica));
    let (first, second) = (script.key(1, 0), script.key(2, 0));
    script.put(writer, &first, "old").unwrap();
    script.advance(10);
    script.put(writer, &second, "old").unwrap();
    script.settle(100);

    // A transaction takes its snapshot at partition 1; its request to partition 2 is slow.
    script.start(reader, Operation::ReadOnly(vec![first.clone(), second.clone()]));
    let slow = [Channel::Link(script.at(0, 1), script.at(0, 2))];
    for i in 0..200 {
        run_except(&mut script, &slow);
        script.advance(1_000);
        script.put(writer, &second, format!("{i}")).unwrap();
    }
    script.run_until_idle();
    let finished = script.take(reader).expect("the request has arrived");
    assert_eq!(finished.outcome, Ok(vec![Some("old".into()), Some("old".into())]), "{}", P::NAME);

    // Then they go.
    script.settle(100);
    script.put(writer, &second, "the last").unwrap();
    assert_eq!(script.versions(script.at(0, 2), &second), 2, "{}", P::NAME);
}

#[test]
fn a_transaction_that_is_still_reading_keeps_the_versions_of_its_snapshot() {
    a_snapshot_keeps_its_versions::<GentleRain>();
    a_snapshot_keeps_its_versions::<CausalSpartan>();
}
