//! Real time as edges: linearly many, although the order has quadratically many pairs.

use crate::history::Transaction;
use crate::prepass::{Committed, Node};
use crate::verdict::EdgeKind;

use super::Edges;

/// By node: when it was invoked, in microseconds; 0 for [`INIT`](crate::prepass::INIT).
pub(super) fn invocations(committed: &Committed) -> Vec<u64> {
    let invoked = |node| header(committed, node).map_or(0, |header| header.invoke_us);
    (0..committed.node_count() as Node).map(invoked).collect()
}

fn header<'h>(committed: &Committed<'h>, node: Node) -> Option<&'h Transaction> {
    let transaction = committed.transaction(node)?;
    Some(&committed.history.transactions()[transaction])
}

/// Adds a chain of barriers, one for each time at which a transaction returned: from the transaction to its barrier,
/// from each barrier to the next one, and from the last barrier before a transaction was invoked to the transaction. A
/// path through barriers exists exactly between transactions of which one returned before the other one was invoked.
/// Adds the times of the barriers to those of the nodes. Takes O(n log n) time.
pub(super) fn add(committed: &Committed, edges: &mut Edges, times: &mut Vec<u64>) {
    let returned = |node: Node| header(committed, node)?.complete_us;
    let mut barriers: Vec<u64> = committed.nodes().filter_map(returned).collect();
    barriers.sort_unstable();
    barriers.dedup();
    let vertex = |place: usize| (committed.node_count() + place) as u32;

    for place in 1..barriers.len() {
        edges.add(vertex(place - 1), vertex(place), EdgeKind::RealTime, None);
    }
    for node in committed.nodes() {
        if let Some(Ok(place)) = returned(node).map(|time| barriers.binary_search(&time)) {
            edges.add(node, vertex(place), EdgeKind::RealTime, None);
        }
        let invoked = times[node as usize];
        let before = barriers.partition_point(|&time| time < invoked);
        if let Some(last) = before.checked_sub(1) {
            edges.add(vertex(last), node, EdgeKind::RealTime, None);
        }
    }
    times.append(&mut barriers);
}
