//! What zones do not see: two operations of a session, one of which returned in the very instant in which the other was
//! invoked. Time does not order them, but their session does.

use std::collections::VecDeque;

use crate::check::{Budget, Exhausted};
use crate::history::OpId;

use super::calls::definite_return;
use super::zones::Register;

/// So many pairs are tried for the shortest cycle.
const TRIES_MAX: usize = 64;

/// Why one cluster comes before another: the first operation, of the one, comes before the second, of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Precedence {
    pub(super) first: OpId,
    pub(super) second: OpId,
    /// Whether their session orders them, not time.
    pub(super) by_session: bool,
}

/// A shortest cycle of clusters that uses the order of a session at an instant, if there is one. A cluster is contiguous in
/// a linearization, so that a cycle refutes it, and without a cycle their order is a linearization.
///
/// Takes O(n log n) time if there is none.
pub(super) fn cycle(register: &Register, budget: &Budget) -> Result<Vec<Precedence>, Exhausted> {
    let ties = ties(register);
    if ties.is_empty() {
        return Ok(Vec::new());
    }
    budget.spend(register.members.len())?;
    let graph = Graph::new(register, &ties);
    let in_cycle = graph.left_after_sorting();
    let mut best: Option<Vec<Precedence>> = None;
    let left = ties
        .iter()
        .filter(|&&(_, from, to)| in_cycle[from as usize] && in_cycle[to as usize]);
    for &(tie, from, to) in left.take(TRIES_MAX) {
        budget.spend(graph.edges.len())?;
        if let Some(path) = graph.path(to, from, &in_cycle) {
            let cycle: Vec<_> = std::iter::once(tie).chain(path).collect();
            if best.as_ref().is_none_or(|best| cycle.len() < best.len()) {
                best = Some(cycle);
            }
        }
    }
    Ok(best.unwrap_or_default())
}

/// A pair that a session orders, with the clusters of the two.
type Tie = (Precedence, u32, u32);

/// The pairs of operations that only their session orders. In a cluster such a pair matters if a read comes before the
/// write.
fn ties(register: &Register) -> Vec<Tie> {
    let history = register.history;
    let mut members = register.members.clone();
    members.sort_unstable_by_key(|&(op, _)| {
        let transaction = history.transaction_of(op);
        (transaction.session, transaction.invoke_us, op)
    });
    let mut ties = Vec::new();
    let mut last: Option<(OpId, u32)> = None;
    for (op, cluster) in members {
        let transaction = history.transaction_of(op);
        if let Some((before, its_cluster)) = last {
            let earlier = history.transaction_of(before);
            let is_tie = earlier.session == transaction.session
                && definite_return(earlier) == Some(transaction.invoke_us);
            let is_backward = register.clusters[cluster as usize].write == Some(op);
            if is_tie && (cluster != its_cluster || is_backward) {
                let precedence = Precedence {
                    first: before,
                    second: op,
                    by_session: true,
                };
                ties.push((precedence, its_cluster, cluster));
            }
        }
        if definite_return(transaction).is_some() {
            last = Some((op, cluster));
        }
    }
    ties
}

/// An edge to a vertex, and the operation at which it starts or ends.
#[derive(Clone, Copy)]
struct GraphEdge {
    from: u32,
    to: u32,
    op: Option<OpId>,
    second: Option<OpId>,
}

/// Clusters, and behind them one vertex for each moment in which an operation returned. An operation leads to the vertex of
/// its return, these are a chain, and the last one before an invocation leads to its operation: real time in O(n) edges.
struct Graph {
    edges: Vec<GraphEdge>,
    /// By vertex: where its edges start.
    starts: Vec<u32>,
    clusters: u32,
}

impl Graph {
    fn new(register: &Register, ties: &[Tie]) -> Self {
        let history = register.history;
        let mut moments: Vec<u64> = register
            .members
            .iter()
            .filter_map(|&(op, _)| definite_return(history.transaction_of(op)))
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let clusters = register.clusters.len() as u32;
        let edge = |from, to, op, second| GraphEdge {
            from,
            to,
            op,
            second,
        };
        let mut edges = Vec::new();
        // The vertex behind the clusters is the beginning, in which the initial version is written.
        for moment in 0..moments.len() as u32 {
            edges.push(edge(clusters + moment, clusters + moment + 1, None, None));
        }
        for (cluster, it) in (0..).zip(&register.clusters) {
            if it.write.is_none() {
                edges.push(edge(cluster, clusters, None, None));
            }
        }
        for &(op, cluster) in &register.members {
            let transaction = history.transaction_of(op);
            if let Some(returned) = definite_return(transaction) {
                let moment = moments.partition_point(|&moment| moment < returned) as u32;
                edges.push(edge(cluster, clusters + 1 + moment, Some(op), None));
            }
            let before = moments.partition_point(|&moment| moment < transaction.invoke_us) as u32;
            edges.push(edge(clusters + before, cluster, Some(op), None));
        }
        for &(precedence, from, to) in ties {
            edges.push(edge(
                from,
                to,
                Some(precedence.first),
                Some(precedence.second),
            ));
        }
        edges.sort_by_key(|edge| edge.from);
        let vertices = clusters + 1 + moments.len() as u32;
        let starts = (0..=vertices)
            .map(|vertex| edges.partition_point(|edge| edge.from < vertex) as u32)
            .collect();
        Graph {
            edges,
            starts,
            clusters,
        }
    }

    fn edges_of(&self, vertex: u32) -> &[GraphEdge] {
        let vertex = vertex as usize;
        &self.edges[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    /// By vertex: whether a topological sort does not reach it, because it is on a cycle or behind one.
    fn left_after_sorting(&self) -> Vec<bool> {
        let vertices = self.starts.len() - 1;
        let mut incoming = vec![0_u32; vertices];
        for edge in &self.edges {
            incoming[edge.to as usize] += 1;
        }
        let mut left = vec![true; vertices];
        let mut ready: Vec<u32> = (0..vertices as u32)
            .filter(|&vertex| incoming[vertex as usize] == 0)
            .collect();
        while let Some(vertex) = ready.pop() {
            left[vertex as usize] = false;
            for edge in self.edges_of(vertex) {
                incoming[edge.to as usize] -= 1;
                if incoming[edge.to as usize] == 0 {
                    ready.push(edge.to);
                }
            }
        }
        left
    }

    /// A shortest path between clusters among the `allowed` vertices, as the precedences it consists of.
    fn path(&self, from: u32, to: u32, allowed: &[bool]) -> Option<Vec<Precedence>> {
        let mut reached_by: Vec<Option<GraphEdge>> = vec![None; allowed.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(vertex) = queue.pop_front() {
            if vertex == to {
                break;
            }
            for &edge in self.edges_of(vertex) {
                let is_new = edge.to != from && reached_by[edge.to as usize].is_none();
                if is_new && allowed[edge.to as usize] {
                    reached_by[edge.to as usize] = Some(edge);
                    queue.push_back(edge.to);
                }
            }
        }
        let mut edges = Vec::new();
        let mut vertex = to;
        while vertex != from {
            let edge = reached_by[vertex as usize]?;
            edges.push(edge);
            vertex = edge.from;
        }
        edges.reverse();
        Some(self.precedences(&edges))
    }

    /// The edges between clusters that `edges` go along; moments in between are passed over, and so is the beginning.
    fn precedences(&self, edges: &[GraphEdge]) -> Vec<Precedence> {
        let mut precedences = Vec::new();
        let mut returned = None;
        for edge in edges {
            if let (Some(first), Some(second)) = (edge.op, edge.second) {
                precedences.push(Precedence {
                    first,
                    second,
                    by_session: true,
                });
            } else if edge.from < self.clusters {
                returned = edge.op;
            } else if edge.to < self.clusters
                && let (Some(first), Some(second)) = (returned, edge.op)
            {
                precedences.push(Precedence {
                    first,
                    second,
                    by_session: false,
                });
            }
        }
        precedences
    }
}
