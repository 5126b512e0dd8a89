//! Failing runs become as small as they can be while they fail in the same way.

use std::cell::Cell;
use std::ops::ControlFlow;

use dkvf_core::{Protocol, ServerId};
use dkvf_protocols::Visitor;
use dkvf_sim::conformance::{self, DefectKind, judge};
use dkvf_sim::shrink::{Limits, Shrunk, Size, shrink, with_drawn_faults};
use dkvf_sim::{ClockOptions, Faults, Latency, Options, run};
use dkvf_workload::WorkloadSpec;
use dkvf_workload::faults::{Disk, Fault, FaultKinds, Schedule, Timed};

fn options() -> Options {
    let workload = WorkloadSpec::builtin("a").unwrap();
    let mut options = Options::new(7, workload, 400);
    options.replicas = 3;
    options.spread_us = Some(800_000);
    options.clocks = ClockOptions {
        skew_us: 1_000,
        drift_ppm: 10,
        ntp: None,
    };
    options.bandwidth_bytes_s = Some(1_000_000);
    options.faults = Faults::Schedule(Schedule {
        faults: (0..10).map(fault).collect(),
    });
    options
}

/// Pauses of servers 0 to 8 in turn, but the fifth fault cuts replica 0 off and the last is a crash of server 1.
fn fault(number: u64) -> Timed {
    let node = ServerId((number % 9) as u16);
    let fault = match number {
        5 => Fault::Cut {
            links: vec![(ServerId(0), ServerId(3)), (ServerId(1), ServerId(8))],
        },
        9 => Fault::Crash {
            node: ServerId(1),
            disk: Disk::Kept,
        },
        _ => Fault::Pause { node },
    };
    Timed {
        at_us: 10_000 * number,
        for_us: Some(5_000),
        fault,
    }
}

fn faults(options: &Options) -> &[Timed] {
    match &options.faults {
        Faults::Schedule(schedule) => &schedule.faults,
        Faults::None | Faults::Random(_) => &[],
    }
}

fn go_on(_: &Options, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Fails as `1` where it has all of what it takes, as `2` where something is missing.
fn needs_a_cut_and_a_crash(options: &Options) -> anyhow::Result<Option<u8>> {
    let has = |wanted: fn(&Fault) -> bool| faults(options).iter().any(|timed| wanted(&timed.fault));
    let is_enough = options.operations >= 5
        && options.clients >= 2
        && options.replicas >= 2
        && has(|fault| matches!(fault, Fault::Cut { .. }))
        && has(|fault| matches!(fault, Fault::Crash { .. }));
    Ok(Some(if is_enough { 1 } else { 2 }))
}

#[test]
fn a_run_shrinks_to_exactly_what_its_failure_needs() {
    let shrunk = shrink(
        &options(),
        &1,
        Limits::default(),
        needs_a_cut_and_a_crash,
        go_on,
    )
    .unwrap();
    assert!(shrunk.is_minimal);
    let small = &shrunk.options;
    assert_eq!(
        Size::of(small),
        Size {
            servers: 4,
            clients: 2,
            operations: 5,
            faults: 2
        }
    );
    // Server 3 of 3 x 3 is the first of replica 1, and so is server 2 of 2 x 2; server 8 is no more.
    let Fault::Cut { links } = &faults(small)[0].fault else {
        panic!("{small:?}")
    };
    assert_eq!(links, &[(ServerId(0), ServerId(2))]);
    assert_eq!(
        faults(small)[1].fault,
        Fault::Crash {
            node: ServerId(1),
            disk: Disk::Kept
        }
    );
    assert_eq!(small.latency, Latency::Constant(10_000));
    assert_eq!(small.clocks, ClockOptions::default());
    assert_eq!(small.bandwidth_bytes_s, None);
    assert_eq!(
        small.spread_us,
        Some(800_000 / 400 * 8 * 5 / 2),
        "a session keeps its pace: an operation in 16 ms"
    );
}

#[test]
fn the_same_search_finds_the_same_run() {
    let search = || {
        let shrunk = shrink(
            &options(),
            &1,
            Limits::default(),
            needs_a_cut_and_a_crash,
            go_on,
        )
        .unwrap();
        (format!("{:?}", shrunk.options), shrunk.runs)
    };
    assert_eq!(search(), search());
}

#[test]
fn a_search_that_is_ended_keeps_what_it_has() {
    let limits = Limits {
        runs_max: 9,
        ..Limits::default()
    };
    let shrunk = shrink(&options(), &1, limits, needs_a_cut_and_a_crash, go_on).unwrap();
    assert_eq!((shrunk.runs, shrunk.is_minimal), (9, false));
    assert_eq!(needs_a_cut_and_a_crash(&shrunk.options).unwrap(), Some(1));

    let stop = |_: &Options, runs| {
        if runs == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let shrunk = shrink(
        &options(),
        &1,
        Limits::default(),
        needs_a_cut_and_a_crash,
        stop,
    )
    .unwrap();
    assert_eq!((shrunk.runs, shrunk.is_minimal), (3, false));
}

#[test]
fn a_restart_goes_with_its_crash() {
    let crash = Timed {
        at_us: 0,
        for_us: None,
        fault: Fault::Crash {
            node: ServerId(1),
            disk: Disk::Kept,
        },
    };
    let restart = Timed {
        at_us: 9,
        for_us: None,
        fault: Fault::Restart { node: ServerId(1) },
    };
    let mut options = options();
    options.faults = Faults::Schedule(Schedule {
        faults: vec![crash, restart],
    });
    let seen = Cell::new(0);
    let always = |options: &Options| {
        if let Faults::Schedule(schedule) = &options.faults {
            assert_eq!(schedule.conflict(), None);
            seen.set(seen.get() + 1);
        }
        // Without any fault it does not fail.
        Ok((!faults(options).is_empty()).then_some(1))
    };
    let shrunk = shrink(&options, &1, Limits::default(), always, go_on).unwrap();
    assert_eq!(faults(&shrunk.options).len(), 1);
    assert!(seen.get() > 0);
}

/// Shrinks the run of the conformance suite that catches a known bug.
struct ShrinkBug {
    seed: u64,
    faults: FaultKinds,
}

impl Visitor for ShrinkBug {
    type Output = (Size, DefectKind, Shrunk);

    fn visit<P: Protocol>(self) -> Self::Output {
        let failure = |options: &Options| {
            Ok(judge::<P>(&run::<P>(options)?)
                .err()
                .map(|defect| defect.kind))
        };
        let options = conformance::options::<P>(self.seed, self.faults);
        let options = with_drawn_faults(&options, &run::<P>(&options).unwrap());
        let defect = failure(&options).unwrap().expect("the bug is caught");
        let shrunk = shrink(
            &options,
            &defect,
            Limits {
                runs_max: 300,
                seeds: 4,
            },
            failure,
            go_on,
        )
        .unwrap();
        assert_eq!(failure(&shrunk.options).unwrap(), Some(defect));
        (Size::of(&options), defect, shrunk)
    }
}

#[test]
fn the_run_that_catches_a_known_bug_becomes_a_few_operations() {
    let bug = dkvf_known_bugs::BUGS
        .iter()
        .find(|bug| bug.name == "eventual-forgets-a-replica")
        .unwrap();
    let visitor = ShrinkBug {
        seed: bug.seed,
        faults: bug.faults.parse().unwrap(),
    };
    let (before, defect, shrunk) = dkvf_known_bugs::visit(bug.name, visitor).unwrap();
    assert_eq!(defect.name(), bug.caught);
    let after = Size::of(&shrunk.options);
    assert!(
        after.operations <= 3 && after.clients <= 2 && after.servers <= 3,
        "{before} -> {after}"
    );
}
