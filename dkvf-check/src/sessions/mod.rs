//! The session guarantees of Terry et al. (PDIS 1994), one by one and as pipelined RAM (VERIFICATION, section 3.3).
//!
//! Each guarantee says which writes a read must take into account: the least set that contains what the transaction
//! read and is closed under the guarantee. One order of the versions of each key must make every read return the newest
//! of what it takes into account. With the order that the protocol reports each read is compared at once; without it
//! what the reads ask for is a graph, and a cycle refutes the guarantee.
//!
//! Alone each guarantee is weak: a session that writes 1 and then 2 and reads 1 violates read-your-writes and monotonic
//! writes together, but none of them alone, for 2 may be the older version. Pipelined RAM is the first three together.
//! All four together, with one order of all versions, are causal consistency.

mod check;
mod seen;
mod versions;
mod window;

use crate::causal::Route;
use crate::model::Model;
use crate::verdict::{AnomalyKind, EdgeKind};

pub(crate) use check::check;

/// A session guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// A read takes earlier writes of its session into account.
    ReadYourWrites,
    /// A read takes what earlier reads of its session returned into account.
    MonotonicReads,
    /// With a write, the earlier ones of its session. Writes of a session are ordered.
    MonotonicWrites,
    /// With a write, what its session had taken into account before. It is newer than that.
    WritesFollowReads,
    /// The first three.
    Pram,
}

impl Guarantee {
    /// The guarantee that a model is.
    pub(crate) fn of(model: Model) -> Option<Self> {
        match model {
            Model::ReadYourWrites => Some(Guarantee::ReadYourWrites),
            Model::MonotonicReads => Some(Guarantee::MonotonicReads),
            Model::MonotonicWrites => Some(Guarantee::MonotonicWrites),
            Model::WritesFollowReads => Some(Guarantee::WritesFollowReads),
            Model::Pram => Some(Guarantee::Pram),
            _ => None,
        }
    }

    fn anomaly(self) -> AnomalyKind {
        match self {
            Guarantee::ReadYourWrites => AnomalyKind::OwnWriteMissed,
            Guarantee::MonotonicReads | Guarantee::Pram => AnomalyKind::NonMonotonicRead,
            Guarantee::MonotonicWrites => AnomalyKind::NonMonotonicWrite,
            Guarantee::WritesFollowReads => AnomalyKind::WriteBeforeItsCause,
        }
    }

    /// Whether it orders the writes of a session.
    fn orders_writes(self) -> bool {
        matches!(self, Guarantee::MonotonicWrites | Guarantee::Pram)
    }
}

/// The paths from a write to a read that must take it into account, by what the last edges were.
mod phase {
    pub(super) const START: usize = 0;
    /// The order of the writer's session.
    pub(super) const SESSION: usize = 1;
    /// A read of it, or of a later write of its session.
    pub(super) const READ: usize = 2;
    /// The order of that reader's session.
    pub(super) const READ_BEFORE: usize = 3;
}

impl Route for Guarantee {
    const PHASES: usize = 4;

    fn step(&self, phase: usize, kind: EdgeKind) -> Option<usize> {
        use Guarantee::*;
        use phase::*;
        match (phase, kind) {
            (START, EdgeKind::ReadsFrom) => Some(READ),
            (START, EdgeKind::Session) => {
                (*self != MonotonicReads && *self != WritesFollowReads).then_some(SESSION)
            }
            (SESSION, EdgeKind::ReadsFrom) => self.orders_writes().then_some(READ),
            (READ, EdgeKind::Session) => {
                matches!(self, MonotonicReads | WritesFollowReads | Pram).then_some(READ_BEFORE)
            }
            (READ | READ_BEFORE, EdgeKind::ReadsFrom) => {
                (*self == WritesFollowReads).then_some(READ)
            }
            _ => None,
        }
    }

    fn may_end(&self, phase: usize) -> bool {
        match phase {
            phase::SESSION => matches!(self, Guarantee::ReadYourWrites | Guarantee::Pram),
            phase::READ => true,
            phase::READ_BEFORE => matches!(self, Guarantee::MonotonicReads | Guarantee::Pram),
            _ => false,
        }
    }
}
