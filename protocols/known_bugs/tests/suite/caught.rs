//! What a patch names finds the bug, and finds nothing in the protocol without it.

use dkvf_core::Protocol;
use dkvf_known_bugs::{BUGS, Bug};
use dkvf_protocols::Visitor;
use dkvf_sim::Subject;

use crate::schedules;

struct Erase;

impl Visitor for Erase {
    type Output = Subject;

    fn visit<P: Protocol>(self) -> Subject {
        Subject::of::<P>()
    }
}

/// A directed schedule.
struct Schedule(&'static str);

impl Visitor for Schedule {
    type Output = schedules::Seen;

    fn visit<P: Protocol>(self) -> schedules::Seen {
        schedules::run::<P>(self.0)
    }
}

/// Bugs that a run of the conformance suite catches.
fn bugs_of_runs() -> impl Iterator<Item = &'static Bug> {
    BUGS.iter().filter(|bug| bug.schedule().is_none())
}

/// Bugs that a directed schedule catches.
fn bugs_of_schedules() -> impl Iterator<Item = (&'static Bug, &'static str)> {
    BUGS.iter().filter_map(|bug| Some((bug, bug.schedule()?)))
}

/// What the run of a bug finds: a model, or `failure`.
fn found(subject: &Subject, bug: &Bug) -> Option<&'static str> {
    let options = subject.conformance(bug.seed, bug.faults.parse().unwrap());
    subject.judge(&subject.run(&options).unwrap()).err().map(|defect| defect.kind.name())
}

#[test]
fn the_run_of_each_bug_finds_what_its_patch_says() {
    for bug in bugs_of_runs() {
        let subject = dkvf_known_bugs::subject(bug.name).unwrap();
        assert_eq!(found(&subject, bug), Some(bug.caught), "{}", bug.name);
    }
}

#[test]
fn the_same_run_finds_nothing_in_the_protocol_without_the_bug() {
    for bug in bugs_of_runs() {
        let subject = dkvf_protocols::visit(bug.protocol, Erase).unwrap();
        assert_eq!(found(&subject, bug), None, "{}", bug.name);
    }
}

#[test]
fn the_schedule_of_each_bug_that_runs_find_rarely_shows_what_nobody_may_see() {
    for (bug, schedule) in bugs_of_schedules() {
        let seen = dkvf_known_bugs::visit(bug.name, Schedule(schedule)).unwrap();
        assert!(seen.is_err(), "{}: {schedule} shows nothing", bug.name);
    }
}

#[test]
fn the_same_schedule_shows_nothing_in_the_protocol_without_the_bug() {
    for (bug, schedule) in bugs_of_schedules() {
        assert_eq!(dkvf_protocols::visit(bug.protocol, Schedule(schedule)), Some(Ok(())), "{}", bug.name);
    }
}

#[test]
fn there_are_bugs_of_both_kinds() {
    assert!(bugs_of_runs().count() >= 8 && bugs_of_schedules().count() >= 1 && BUGS.len() >= 15);
}
