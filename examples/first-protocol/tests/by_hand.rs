//! The protocol on a schedule directed by hand: nothing moves unless the test says so.

use dkvf_core::script::{Operation, Script};
use dkvf_core::{Code, Failure, Reason};
use first_protocol::Primary;

#[test]
fn a_read_waits_for_the_sessions_own_write() {
    let mut script = Script::<Primary>::new(2, 1);
    let (session, key) = (script.session(1), script.key(0, 0));

    // The primary is in replica 0, the session in replica 1. The update is on its way between them.
    script.put(session, &key, "mine").unwrap();
    script.start(session, Operation::Get(key.clone()));
    assert_eq!(script.parked(), 1, "the read is parked");
    assert_eq!(script.take(session), None);

    // With the update comes the answer.
    script.deliver_link(script.at(0, 0), script.at(1, 0));
    let finished = script.take(session).expect("nothing is left to wait for");
    assert_eq!(finished.outcome, Ok(vec![Some("mine".into())]));
}

#[test]
fn another_session_reads_the_old_version_without_waiting() {
    let mut script = Script::<Primary>::new(2, 1);
    let (writer, reader, key) = (script.session(0), script.session(1), script.key(0, 0));
    script.put(writer, &key, "new").unwrap();
    assert_eq!(script.get(reader, &key), Ok(None), "it has seen nothing that it would have to wait for");
    script.run_until_idle();
    assert_eq!(script.get(reader, &key), Ok(Some("new".into())));
}

#[test]
fn a_read_that_waits_too_long_answers_timeout() {
    let mut script = Script::<Primary>::new(2, 1);
    let (session, key) = (script.session(1), script.key(0, 0));
    script.put(session, &key, "mine").unwrap();
    script.start(session, Operation::Get(key));
    script.advance(5_000_001);
    let finished = script.take(session).expect("its time is up");
    assert_eq!(finished.outcome, Err(Failure::Failed(Reason::Refused(Code::Timeout))));
}
