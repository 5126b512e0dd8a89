//! The names of cycles.

use crate::verdict::{AnomalyKind, EdgeKind};

use super::level::Level;
use super::search::Step;

/// What people call a cycle that `level` contains and no weaker level does.
pub(super) fn classify(level: Level, cycle: &[Step]) -> AnomalyKind {
    let kinds: Vec<EdgeKind> = cycle.iter().map(|step| step.kind).collect();
    let is_anti = |kind: &EdgeKind| *kind == EdgeKind::AntiDependency;
    if kinds.contains(&EdgeKind::RealTime) {
        return match kinds.len() {
            2 if kinds.iter().any(is_anti) => AnomalyKind::StaleRead,
            _ => AnomalyKind::RealTimeViolation,
        };
    }
    match level {
        Level::Writes => AnomalyKind::DirtyWrite,
        Level::Flow => AnomalyKind::CircularInformationFlow,
        _ => match kinds.iter().filter(|kind| is_anti(kind)).count() {
            1 => one_anti(cycle),
            2 if kinds.len() == 2 && cycle[0].key == cycle[1].key => AnomalyKind::LostUpdate,
            2 if kinds.len() == 2 => AnomalyKind::WriteSkew,
            2 if is_long_fork(&kinds) => AnomalyKind::LongFork,
            _ if Level::Nonadjacent.contains(kinds.iter().copied()) => {
                AnomalyKind::NonadjacentCycle
            }
            _ => AnomalyKind::AntiDependencyCycle,
        },
    }
}

/// A transaction read a version that another one overwrote, which comes before it all the same.
fn one_anti(cycle: &[Step]) -> AnomalyKind {
    let anti = cycle
        .iter()
        .find(|step| step.kind == EdgeKind::AntiDependency);
    let back: Vec<&Step> = cycle
        .iter()
        .filter(|step| step.kind != EdgeKind::AntiDependency)
        .collect();
    match back[..] {
        [step] if step.kind == EdgeKind::ReadsFrom => AnomalyKind::FracturedRead,
        [step] if step.kind == EdgeKind::Session => AnomalyKind::OwnWriteMissed,
        [step] if anti.is_some_and(|anti| anti.key == step.key) => AnomalyKind::LostUpdate,
        _ if back.iter().all(|step| step.kind != EdgeKind::VersionOrder) => {
            AnomalyKind::CausalityViolation
        }
        _ => AnomalyKind::ReadSkew,
    }
}

/// Two readers, each of which saw one of two writes: rw, wr, rw, wr.
fn is_long_fork(kinds: &[EdgeKind]) -> bool {
    let is_anti = |place: usize| kinds[place % 4] == EdgeKind::AntiDependency;
    let is_read = |place: usize| kinds[place % 4] == EdgeKind::ReadsFrom;
    let from = |place: usize| {
        is_anti(place) && is_read(place + 1) && is_anti(place + 2) && is_read(place + 3)
    };
    kinds.len() == 4 && (from(0) || from(1))
}
