//! What can go wrong on purpose in a cluster on TCP: cuts, delays and held links, steps of clocks, and, where each server is
//! a process, crashes and pauses.

use std::time::Duration;

use dkvf_workload::faults::{Fault, FaultKind, FaultKinds, Schedule};

use crate::run::Placement;

/// The kinds of faults that are possible there.
pub fn possible(placement: &Placement) -> FaultKinds {
    FaultKind::ALL
        .into_iter()
        .filter(|kind| refusal(*kind, placement).is_none())
        .collect()
}

/// The first fault of a schedule that cannot be carried out in a run of this length, warm-up and window together: its
/// index, and why.
pub fn refused(
    schedule: &Schedule,
    placement: &Placement,
    length: Duration,
) -> Option<(usize, String)> {
    let end_us = length.as_micros() as u64;
    schedule
        .faults
        .iter()
        .enumerate()
        .find_map(|(index, timed)| {
            let kind = kind_of(&timed.fault);
            let why = refusal(kind, placement).map(str::to_owned);
            let late = || {
                (timed.at_us >= end_us).then(|| {
                    format!(
                        "the run ends after {} ms, warm-up and window together: move the fault, or give more --seconds",
                        end_us / 1000
                    )
                })
            };
            Some((index, why.or_else(late)?))
        })
}

/// A restart is as possible as the crash that it ends.
fn kind_of(fault: &Fault) -> FaultKind {
    FaultKind::of(fault).unwrap_or(FaultKind::Crash)
}

/// Why a kind of faults is not possible there, if it is not.
pub fn refusal(kind: FaultKind, placement: &Placement) -> Option<&'static str> {
    match kind {
        FaultKind::Partition | FaultKind::Delay | FaultKind::Hold | FaultKind::Step => None,
        FaultKind::Crash | FaultKind::CrashEmpty | FaultKind::Pause => match placement {
            Placement::Processes(_) if cfg!(unix) => None,
            Placement::Processes(_) => Some("this system cannot stop a process for a while"),
            Placement::Embedded(_) => {
                Some("servers in this process cannot crash or stand still alone: give --processes")
            }
        },
        FaultKind::Torn => Some(
            "with durability none nothing is written that could be torn: use the simulator, or a crash",
        ),
        FaultKind::DiskFull => {
            Some("no disk of a single server can be filled here: use the simulator")
        }
        FaultKind::Slow => {
            Some("no single server can be slowed down here: use the simulator, or a pause")
        }
        FaultKind::Drift => {
            Some("a real clock cannot run at another speed here: use the simulator, or a step")
        }
        FaultKind::Break => Some("TCP keeps the promise of a link: use the simulator"),
    }
}
