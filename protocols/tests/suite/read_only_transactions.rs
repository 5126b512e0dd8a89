//! Read-only transactions: one snapshot, which contains the session's past.

use dkvf_core::script::{Operation, Script};
use dkvf_core::{Failure, Protocol, Reason};
use dkvf_protocols::{causalspartan::CausalSpartan, cops::Cops, gentlerain::GentleRain};

use crate::schedules::writes_during_a_transaction;

fn duplicate_and_unknown_keys<P: Protocol>() {
    let mut script = Script::<P>::new(2, 3);
    let session = script.session(0);
    let (a, b, unknown) = (script.key(0, 0), script.key(1, 0), script.key(1, 1));
    script.put(session, &a, "a").unwrap();
    script.advance(10);
    script.put(session, &b, "b").unwrap();
    script.settle(100);
    let keys = [b.clone(), unknown, a.clone(), b];
    let values = script.read_only(session, &keys).unwrap();
    assert_eq!(values, [Some("b".into()), None, Some("a".into()), Some("b".into())], "{}: in the order asked for", P::NAME);
    assert_eq!(script.read_only(session, &[]), Ok(vec![]));
}

#[test]
fn repeated_keys_are_answered_as_often_and_unknown_ones_with_nothing() {
    duplicate_and_unknown_keys::<GentleRain>();
    duplicate_and_unknown_keys::<CausalSpartan>();
}

#[test]
fn writes_during_a_transaction_are_not_in_its_snapshot() {
    for skew_us in [0, -200_000, 200_000] {
        assert_eq!(writes_during_a_transaction::<GentleRain>(skew_us), Ok(()));
        assert_eq!(writes_during_a_transaction::<CausalSpartan>(skew_us), Ok(()));
    }
}

#[test]
fn after_an_own_write_gentlerain_waits_until_it_is_stable_and_causalspartan_does_not() {
    let mut script = Script::<GentleRain>::new(2, 2);
    let (session, key) = (script.session(0), script.key(0, 0));
    script.put(session, &key, "own").unwrap();
    script.start(session, Operation::ReadOnly(vec![key.clone()]));
    script.run_until_idle();
    assert_eq!(script.take(session), None);
    script.settle(50);
    assert_eq!(script.take(session).unwrap().outcome, Ok(vec![Some("own".into())]));

    let mut script = Script::<CausalSpartan>::new(2, 2);
    let (session, key) = (script.session(0), script.key(0, 0));
    script.put(session, &key, "own").unwrap();
    assert_eq!(script.read_only(session, &[key]), Ok(vec![Some("own".into())]));
}

#[test]
fn after_an_eager_read_causalspartan_waits_until_it_is_stable() {
    let mut script = Script::<CausalSpartan>::new(2, 2);
    let (writer, session) = (script.session(1), script.session(0));
    let (unwritten, key) = (script.key(0, 0), script.key(1, 0));
    script.put(writer, &key, "eager").unwrap();
    script.deliver_link(script.at(1, 1), script.at(0, 1));
    assert_eq!(script.get(session, &key), Ok(Some("eager".into())), "visible before it is stable");
    script.start(session, Operation::ReadOnly(vec![unwritten, key]));
    script.run_until_idle();
    assert_eq!(script.take(session), None);
    assert_eq!(script.parked(), 1);
    script.settle(50);
    assert_eq!(script.take(session).unwrap().outcome, Ok(vec![None, Some("eager".into())]));
}

#[test]
fn cops_says_that_it_has_none() {
    let mut script = Script::<Cops>::new(1, 1);
    let session = script.session(0);
    let unsupported = Failure::Failed(Reason::Unsupported("read-only transactions"));
    assert_eq!(script.read_only(session, &[script.key(0, 0)]), Err(unsupported));
}
