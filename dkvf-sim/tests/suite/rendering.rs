//! Pictures of traces show who did what, and of a violation what belongs to it.

use std::collections::BTreeSet;

use dkvf_check::picture::Diagram;
use dkvf_protocols::gentlerain::GentleRain;
use dkvf_sim::render::{View, diagram};
use dkvf_sim::{Options, Outcome, TraceEvent, run};
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::{Disk, Fault, Schedule, Timed};

fn traced(operations: u64) -> Outcome {
    let workload = WorkloadSpec::builtin("a").unwrap();
    let mut options = Options::new(3, workload, operations);
    options.clients = 4;
    options.trace = true;
    let crash = Fault::Crash {
        node: dkvf_core::ServerId(1),
        disk: Disk::Empty,
    };
    let timed = Timed {
        at_us: 100,
        for_us: Some(500),
        fault: crash,
    };
    options.faults = dkvf_sim::Faults::Schedule(Schedule {
        faults: vec![timed],
    });
    run::<GentleRain>(&options).unwrap()
}

fn lane_names(picture: &Diagram) -> Vec<(&str, &str)> {
    let lanes = picture.lanes.iter();
    lanes
        .map(|lane| (lane.group.as_str(), lane.name.as_str()))
        .collect()
}

/// The workload's operations of a trace: session, time and key.
fn operations(outcome: &Outcome) -> Vec<(u32, u64, String)> {
    let events = outcome.trace.iter();
    let operations = events.filter_map(|event| match event {
        TraceEvent::Operation {
            session,
            start_us,
            key,
            ..
        } => Some((*session, *start_us, key.clone())),
        _ => None,
    });
    operations.filter(|(session, ..)| *session < 4).collect()
}

#[test]
fn sessions_come_before_servers_in_every_replica_and_have_one_lane_each() {
    let outcome = traced(20);
    let picture = diagram(&outcome.trace, &View::default());
    let names = lane_names(&picture);
    let sessions = names
        .iter()
        .filter(|(_, name)| name.starts_with("session "));
    let sessions: Vec<_> = sessions.copied().collect();
    assert_eq!(outcome.unknown, 2);
    assert_eq!(
        sessions,
        [
            ("dc0", "session 0"),
            ("dc0", "session 2"),
            // Sessions 0 and 2 lost a request to the crash, and went on as these.
            ("dc0", "session 4"),
            ("dc0", "session 6"),
            ("dc1", "session 1"),
            ("dc1", "session 3")
        ]
    );
    let place = |name| names.iter().position(|(_, known)| *known == name).unwrap();
    assert!(place("session 2") < place("0_0") && place("0_2") < place("session 1"));
    assert!(picture.messages.iter().any(|message| {
        let ends = (names[message.from].1, names[message.to].1);
        ends.0 == "session 0" && ends.1.starts_with("0_")
    }));
    let marks: Vec<&str> = picture
        .marks
        .iter()
        .map(|mark| mark.text.as_str())
        .collect();
    assert!(marks.contains(&"0_1 stops"), "{marks:?}");
    assert!(marks.contains(&"0_1 starts empty"), "{marks:?}");
}

#[test]
fn a_picture_of_a_violation_leaves_other_sessions_and_times_out() {
    let outcome = traced(200);
    let operations = operations(&outcome);
    let (session, start_us, key) = operations[operations.len() / 2].clone();
    let view = View {
        involved: BTreeSet::from([(session, start_us)]),
        ..View::default()
    };
    let picture = diagram(&outcome.trace, &view);
    let involved: Vec<_> = picture.bars.iter().filter(|bar| bar.is_involved).collect();
    assert_eq!(involved.len(), 1);
    assert!(involved[0].steps[0].text.starts_with(&key));
    assert!(picture.bars.len() < 20, "{}", picture.bars.len());
    assert!(picture.caption[0].ends_with("events before and after are not shown."));
}

#[test]
fn there_is_a_picture_of_nothing() {
    let picture = diagram(&[], &View::default());
    assert_eq!(picture.caption, ["Nothing happened."]);
    assert!(picture.to_svg().starts_with("<svg"));
}
