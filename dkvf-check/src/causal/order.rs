//! The causal order of transactions: session order and reads-from.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::check::Budget;
use crate::graph::Link;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::{Committed, INIT, Node, Rows, Undecided};
use crate::verdict::EdgeKind;

use super::forced::Forced;

/// Session order (unless the model goes without) and reads-from between committed transactions. [`INIT`] precedes all
/// of them and is in none of its tables.
pub(crate) struct CausalOrder<'a, 'h> {
    pub(crate) committed: &'a Committed<'h>,
    /// Whether session order is part of it.
    pub(crate) has_sessions: bool,
    /// By node: who read from it, once for every read.
    readers: Rows<Node>,
    /// The nodes in an order that agrees with causality, as far as there is one.
    sorted: Vec<Node>,
}

impl<'a, 'h> CausalOrder<'a, 'h> {
    /// Takes O(n log n) time. Nodes that are not ordered by causality are sorted by time, so that a version is close to
    /// those who read it.
    pub(crate) fn new(
        committed: &'a Committed<'h>,
        order: Order,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        budget.reserve(committed.node_count() * 32)?;
        let mut reads = Vec::new();
        for node in committed.nodes() {
            budget.spend(1)?;
            let sources = committed.reads(node).iter().map(|read| read.from);
            reads.extend(
                sources
                    .filter(|&from| from != INIT)
                    .map(|from| (from, node)),
            );
        }
        let mut causal = CausalOrder {
            committed,
            has_sessions: order != Order::None,
            readers: Rows::new(committed.node_count(), &reads),
            sorted: Vec::new(),
        };
        causal.sorted = causal.sort(budget)?;
        Ok(causal)
    }

    /// Kahn's algorithm; of several nodes that are ready, the first one in time.
    fn sort(&self, budget: &Budget) -> Result<Vec<Node>, Undecided> {
        let committed = self.committed;
        let invoked = |node: Node| {
            let transaction = committed.transaction(node);
            transaction.map(|id| committed.history.transactions()[id].invoke_us)
        };
        let mut by_time: Vec<Node> = committed.nodes().collect();
        by_time.sort_by_key(|&node| invoked(node));
        let mut rank = vec![0_u32; committed.node_count()];
        for (place, &node) in (0..).zip(&by_time) {
            rank[node as usize] = place;
        }

        let mut missing = vec![0_u32; committed.node_count()];
        for node in committed.nodes() {
            let sources = committed.reads(node).iter();
            let sources = sources.filter(|read| read.from != INIT).count();
            missing[node as usize] = sources as u32 + u32::from(self.previous(node).is_some());
        }
        let is_ready = |&&node: &&Node| missing[node as usize] == 0;
        let ready = by_time.iter().filter(is_ready);
        let mut ready: BinaryHeap<_> = ready.map(|&node| Reverse(rank[node as usize])).collect();
        let mut sorted = Vec::with_capacity(by_time.len());
        while let Some(Reverse(place)) = ready.pop() {
            let node = by_time[place as usize];
            budget.spend(1 + self.readers(node).len())?;
            sorted.push(node);
            for next in self
                .next(node)
                .into_iter()
                .chain(self.readers(node).iter().copied())
            {
                let missing = &mut missing[next as usize];
                *missing -= 1;
                if *missing == 0 {
                    ready.push(Reverse(rank[next as usize]));
                }
            }
        }
        Ok(sorted)
    }

    /// Whether nothing is its own cause.
    pub(crate) fn is_acyclic(&self) -> bool {
        self.sorted.len() + 1 == self.committed.node_count()
    }

    /// The nodes, causes first.
    pub(crate) fn sorted(&self) -> &[Node] {
        &self.sorted
    }

    /// Who read what a node wrote, once for every read.
    pub(crate) fn readers(&self, node: Node) -> &[Node] {
        self.readers.row(node as usize)
    }

    /// The node before this one in its session.
    pub(crate) fn previous(&self, node: Node) -> Option<Node> {
        let has_previous = self.has_sessions && self.committed.position(node) > 0;
        has_previous.then(|| node - 1)
    }

    /// The node after this one in its session.
    pub(crate) fn next(&self, node: Node) -> Option<Node> {
        self.later(node).next()
    }

    /// The nodes after this one in its session, the next one first.
    pub(crate) fn later(&self, node: Node) -> std::ops::Range<Node> {
        if !self.has_sessions {
            return 0..0;
        }
        node + 1..self.committed.session_end(node)
    }

    /// The edges of causality, those of session order between neighbours, and `forced`.
    pub(crate) fn links(&self, forced: &[Forced]) -> Rows<Link> {
        Rows::new(self.committed.node_count(), &self.edges(forced))
    }

    /// What [`CausalOrder::links`] consists of, by the node where an edge starts.
    pub(crate) fn edges(&self, forced: &[Forced]) -> Vec<(Node, Link)> {
        let mut edges = Vec::with_capacity(2 * self.sorted.len() + forced.len());
        for node in self.committed.nodes() {
            for read in self
                .committed
                .reads(node)
                .iter()
                .filter(|read| read.from != INIT)
            {
                edges.push((read.from, link(node, EdgeKind::ReadsFrom, Some(read.key))));
            }
            if let Some(next) = self.next(node) {
                edges.push((node, link(next, EdgeKind::Session, None)));
            }
        }
        let inferred = |forced: &Forced| {
            let link = link(forced.newer, EdgeKind::Inferred, Some(forced.key));
            (forced.older, link)
        };
        edges.extend(forced.iter().map(inferred));
        edges
    }
}

/// An edge to `to`.
pub(crate) fn link(to: Node, kind: EdgeKind, key: Option<KeyId>) -> Link {
    Link { to, kind, key }
}
