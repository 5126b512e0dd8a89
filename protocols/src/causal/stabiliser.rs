//! The stabiliser (0.7): the servers of a replica agree, over a tree, on what all of them have received.
//!
//! Each server reports the minimum of its own cut-off and of what its children reported; the root's minimum is published
//! down the tree. The protocol sends the two messages, the state and the arithmetic are here. What arrives is always merged
//! by maximum, never assigned, and a server that is silent keeps its last contribution: then the cut-off stands still.

use std::collections::BTreeMap;
use std::time::Duration;

use dkvf_core::config::NodeConfig;
use dkvf_core::{Context, Server, ServerId};
use serde::{Deserialize, Serialize};

/// Stable time: one stamp, one per replica (missing ones are 0), or two cut-offs that travel together.
pub trait CutOff: Clone + Default {
    /// Pointwise maximum.
    fn join(&mut self, other: &Self);
    /// Pointwise minimum.
    fn meet(&mut self, other: &Self);
}

impl CutOff for u64 {
    fn join(&mut self, other: &Self) {
        *self = (*self).max(*other);
    }
    fn meet(&mut self, other: &Self) {
        *self = (*self).min(*other);
    }
}

impl CutOff for Vec<u64> {
    fn join(&mut self, other: &Self) {
        self.resize(self.len().max(other.len()), 0);
        self.iter_mut().zip(other).for_each(|(a, b)| a.join(b));
    }
    fn meet(&mut self, other: &Self) {
        self.truncate(other.len());
        self.iter_mut().zip(other).for_each(|(a, b)| a.meet(b));
    }
}

impl<A: CutOff, B: CutOff> CutOff for (A, B) {
    fn join(&mut self, other: &Self) {
        self.0.join(&other.0);
        self.1.join(&other.1);
    }
    fn meet(&mut self, other: &Self) {
        self.0.meet(&other.0);
        self.1.meet(&other.1);
    }
}

/// Whether `cut` has reached `stamps`: ∀i: stamps\[i\] ≤ cut\[i\].
pub fn covers(cut: &[u64], stamps: &[u64]) -> bool {
    stamps.iter().enumerate().all(|(i, stamp)| *stamp <= cut.get(i).copied().unwrap_or(0))
}

/// The intervals of heartbeats and of the stabiliser: property `heartbeat_interval` and the one that goes by `names`, in milliseconds.
///
/// # Errors
/// A property is not a number, or 0: that would be a timer that never rests.
pub fn intervals(config: &NodeConfig, names: &[&str]) -> anyhow::Result<(Duration, Duration)> {
    let properties = &config.protocol_properties;
    let heartbeat = properties.duration_ms("heartbeat_interval", Duration::from_millis(10))?;
    let stable = properties.duration_ms_any(names, Duration::from_millis(5))?;
    for (name, interval) in [("heartbeat_interval", heartbeat), (names[0], stable)] {
        if interval.is_zero() {
            return Err(properties.error(name, "0 would never rest; write at least 1 (milliseconds)").into());
        }
    }
    Ok((heartbeat, stable))
}

/// A server's place in the tree of its replica, and what its children reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stabiliser<A> {
    parent: Option<ServerId>,
    sub: BTreeMap<ServerId, A>,
}

impl<A: CutOff> Stabiliser<A> {
    /// The place of this node: partition 0 is the root, and a server has `tree_fanout` children; without that property
    /// the root has all others.
    ///
    /// # Errors
    /// The property is not a number.
    pub fn new<S: Server>(config: &NodeConfig, cx: &Context<S>) -> anyhow::Result<Self> {
        let fanout = config.protocol_properties.get("tree_fanout", usize::MAX)?.max(1);
        Ok(Self::in_tree(cx.partition(), cx.topology().partitions(), fanout, |partition| cx.topology().server(cx.replica(), partition)))
    }

    fn in_tree(partition: usize, partitions: usize, fanout: usize, server: impl Fn(usize) -> ServerId) -> Self {
        let parent = |partition: usize| partition.checked_sub(1).map(|before| before / fanout);
        let children = (0..partitions).filter(|child| parent(*child) == Some(partition));
        Stabiliser { parent: parent(partition).map(&server), sub: children.map(|child| (server(child), A::default())).collect() }
    }

    /// Whom to report to; the root, nobody.
    pub fn parent(&self) -> Option<ServerId> {
        self.parent
    }

    /// Whom to hand a published cut-off to.
    pub fn children(&self) -> impl Iterator<Item = ServerId> {
        self.sub.keys().copied()
    }

    /// The minimum of `own` and what the children reported.
    pub fn aggregate(&self, mut own: A) -> A {
        self.sub.values().for_each(|sub| own.meet(sub));
        own
    }

    /// Takes the report of a child.
    pub fn report(&mut self, child: ServerId, aggregate: &A) {
        if let Some(sub) = self.sub.get_mut(&child) {
            sub.join(aggregate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(partition: usize) -> ServerId {
        ServerId(10 + partition as u16)
    }

    #[test]
    fn without_a_fanout_the_root_has_all_others_and_with_one_the_tree_is_as_wide() {
        let flat = |partition| Stabiliser::<u64>::in_tree(partition, 4, usize::MAX, server);
        assert_eq!((flat(0).parent(), flat(0).children().count()), (None, 3));
        assert_eq!((flat(3).parent(), flat(3).children().count()), (Some(server(0)), 0));

        let binary = |partition| Stabiliser::<u64>::in_tree(partition, 6, 2, server);
        assert_eq!(binary(0).children().collect::<Vec<_>>(), [server(1), server(2)]);
        assert_eq!(binary(1).children().collect::<Vec<_>>(), [server(3), server(4)]);
        assert_eq!(binary(2).children().collect::<Vec<_>>(), [server(5)]);
        assert_eq!(binary(5).parent(), Some(server(2)));
        assert_eq!(Stabiliser::<u64>::in_tree(0, 1, usize::MAX, server).children().count(), 0, "a replica of one server");
    }

    #[test]
    fn nothing_is_stable_before_every_child_has_reported() {
        let mut root = Stabiliser::<Vec<u64>>::in_tree(0, 3, usize::MAX, server);
        root.report(server(1), &vec![5, 7]);
        assert!(!covers(&root.aggregate(vec![9, 9]), &[0, 1]));
        root.report(server(2), &vec![6, 2]);
        assert_eq!(root.aggregate(vec![9, 9]), [5, 2]);
    }

    #[test]
    fn a_late_or_strange_report_does_not_move_the_cut_off_back() {
        let mut root = Stabiliser::<(u64, u64)>::in_tree(0, 2, usize::MAX, server);
        root.report(server(1), &(8, 3));
        root.report(server(1), &(5, 4));
        root.report(server(7), &(1, 1));
        assert_eq!(root.aggregate((9, 9)), (8, 4));
    }

    #[test]
    fn missing_entries_of_a_vector_are_zero() {
        let mut cut = vec![4];
        cut.join(&vec![1, 6]);
        assert_eq!(cut, [4, 6]);
        assert!(covers(&cut, &[4]) && covers(&cut, &[]) && covers(&[], &[0, 0]));
        assert!(!covers(&cut, &[0, 0, 1]));
        cut.meet(&vec![5]);
        assert_eq!(cut, [4]);
    }
}
