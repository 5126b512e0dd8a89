//! Which cycles a model forbids.

use crate::model::{Model, Order};
use crate::verdict::EdgeKind;

/// A set of cycles, from the least to the most permissive automaton that runs along their edges.
///
/// The characterisations are those of Adya (1999) and of Cerone and Gotsman (PODC 2016); VERIFICATION, section 3.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Only version order (G0).
    Writes,
    /// No anti-dependency (G1c).
    Flow,
    /// At most one anti-dependency (G-single).
    OneAnti,
    /// Anti-dependencies follow a read or the order of sessions.
    Prefix,
    /// No two anti-dependencies in a row.
    Nonadjacent,
    /// Any cycle.
    Any,
}

impl Level {
    /// What a model forbids, the cycles that weaker models forbid first; all of them are in the last one. `None` if the
    /// model is no statement about cycles alone.
    pub(crate) fn forbidden(model: Model) -> Option<&'static [Level]> {
        use Level::*;
        match model {
            Model::ReadUncommitted => Some(&[Writes]),
            Model::ReadCommitted | Model::ReadAtomic => Some(&[Writes, Flow]),
            Model::Prefix => Some(&[Writes, Flow, Prefix]),
            Model::Psi => Some(&[Writes, Flow, OneAnti]),
            Model::Si => Some(&[Writes, Flow, OneAnti, Nonadjacent]),
            Model::Serializable | Model::StrictSerializable | Model::Sequential => {
                Some(&[Writes, Flow, OneAnti, Nonadjacent, Any])
            }
            _ => None,
        }
    }

    /// How many states the automaton has. A cycle is in the set if some state leads back to itself along it.
    pub(crate) fn states(self) -> u32 {
        match self {
            Level::Writes | Level::Flow | Level::Any => 1,
            Level::OneAnti | Level::Prefix | Level::Nonadjacent => 2,
        }
    }

    /// The state after an edge; `None` if the edge cannot be there.
    ///
    /// [`Level::OneAnti`] is not a set of cycles that an automaton without memory of its start can tell: here its states
    /// count anti-dependencies, and a path from state 0 is wanted, see [`super::search`].
    pub(crate) fn step(self, state: u32, kind: EdgeKind) -> Option<u32> {
        let is_anti = kind == EdgeKind::AntiDependency;
        match self {
            Level::Writes => {
                let counts = !matches!(kind, EdgeKind::ReadsFrom | EdgeKind::AntiDependency);
                counts.then_some(0)
            }
            Level::Flow => (!is_anti).then_some(0),
            Level::OneAnti if is_anti => (state == 0).then_some(1),
            Level::OneAnti => Some(state),
            Level::Prefix if is_anti => (state == 0).then_some(1),
            Level::Prefix => Some(u32::from(kind == EdgeKind::VersionOrder)),
            Level::Nonadjacent if is_anti => (state == 0).then_some(1),
            Level::Nonadjacent => Some(0),
            Level::Any => Some(0),
        }
    }

    /// Whether a cycle of these edges is in the set.
    pub(crate) fn contains(self, kinds: impl Iterator<Item = EdgeKind> + Clone) -> bool {
        let end = |start| {
            kinds
                .clone()
                .try_fold(start, |state, kind| self.step(state, kind))
        };
        match self {
            Level::OneAnti => end(0).is_some(),
            _ => (0..self.states()).any(|state| end(state) == Some(state)),
        }
    }
}

/// Whether an edge is one of those that `order` allows.
pub(super) fn is_allowed(order: Order, kind: EdgeKind) -> bool {
    match kind {
        EdgeKind::Session => order != Order::None,
        EdgeKind::RealTime => order == Order::RealTime,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EdgeKind::{AntiDependency as Rw, ReadsFrom as Wr, Session as So, VersionOrder as Ww};

    #[test]
    fn levels_contain_the_cycles_of_their_definition() {
        let cases: [(&[EdgeKind], &[Level]); 6] = [
            (
                &[Ww, Ww],
                &[
                    Level::Writes,
                    Level::Flow,
                    Level::OneAnti,
                    Level::Prefix,
                    Level::Nonadjacent,
                ],
            ),
            (
                &[Ww, Wr],
                &[
                    Level::Flow,
                    Level::OneAnti,
                    Level::Prefix,
                    Level::Nonadjacent,
                ],
            ),
            (&[Rw, Ww], &[Level::OneAnti, Level::Nonadjacent]),
            (
                &[So, Rw],
                &[Level::OneAnti, Level::Prefix, Level::Nonadjacent],
            ),
            (&[Rw, Wr, Rw, Wr], &[Level::Prefix, Level::Nonadjacent]),
            (&[Rw, Rw], &[]),
        ];
        for (cycle, expected) in cases {
            for level in [
                Level::Writes,
                Level::Flow,
                Level::OneAnti,
                Level::Prefix,
                Level::Nonadjacent,
            ] {
                let contains = level.contains(cycle.iter().copied());
                assert_eq!(contains, expected.contains(&level), "{level:?} {cycle:?}");
            }
            assert!(Level::Any.contains(cycle.iter().copied()));
        }
    }
}
