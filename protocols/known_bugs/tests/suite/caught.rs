//! The run that a patch names finds the bug, and finds nothing in the protocol without it.

use dkvf_core::Protocol;
use dkvf_known_bugs::BUGS;
use dkvf_protocols::Visitor;
use dkvf_sim::conformance::{self, Defect};

/// A run of the conformance suite.
struct Run {
    faults: &'static str,
    seed: u64,
}

impl Visitor for Run {
    type Output = Option<Defect>;

    fn visit<P: Protocol>(self) -> Option<Defect> {
        let kinds = self.faults.parse().unwrap();
        conformance::run_and_judge::<P>(self.seed, kinds).err().map(|found| found.0)
    }
}

#[test]
fn the_run_of_each_bug_finds_what_its_patch_says() {
    for bug in BUGS {
        let run = Run { faults: bug.faults, seed: bug.seed };
        let found = dkvf_known_bugs::visit(bug.name, run).unwrap();
        assert_eq!(found.as_ref().map(|defect| defect.kind.name()), Some(bug.caught), "{}: {found:?}", bug.name);
    }
}

#[test]
fn the_same_run_finds_nothing_in_the_protocol_without_the_bug() {
    for bug in BUGS {
        let run = Run { faults: bug.faults, seed: bug.seed };
        let found = dkvf_protocols::visit(bug.protocol, run).unwrap();
        assert_eq!(found, None, "{}", bug.name);
    }
}
