//! What reads force under read atomicity (Biswas and Enea, OOPSLA 2019): a transaction sees all writes of those that it
//! read from, and what precedes it in its session.

use crate::check::Budget;
use crate::history::KeyId;
use crate::prepass::{Committed, INIT, Node, Undecided};

use super::forced::{Forced, Forces};
use super::order::CausalOrder;

/// Adds what the reads of all transactions force to `forces`.
///
/// Takes O(log n) time for each read, and for each pair of a transaction and another one that it read from the smaller
/// of what one read and the other wrote.
pub(crate) fn saturate(
    order: &CausalOrder,
    forces: &mut Forces,
    budget: &Budget,
) -> Result<(), Undecided> {
    let committed = order.committed;
    for node in committed.nodes() {
        let reads = by_key(committed, node);
        let mut sources: Vec<Node> = reads.iter().map(|&(_, source)| source).collect();
        sources.sort_unstable();
        sources.dedup();
        for older in sources.into_iter().filter(|&source| source != INIT) {
            for (key, newer) in missed(committed, older, &reads, budget)? {
                forces.add(Forced { older, newer, key }, budget)?;
            }
        }
        for &(key, newer) in &reads {
            budget.spend(1)?;
            if let Some(older) = last_own(order, node, key).filter(|&older| older != newer) {
                forces.add(Forced { older, newer, key }, budget)?;
            }
        }
    }
    Ok(())
}

/// The keys that a node reads, each with the source, ascending.
pub(crate) fn by_key(committed: &Committed, node: Node) -> Vec<(KeyId, Node)> {
    let reads = committed.reads(node).iter();
    let mut by_key: Vec<_> = reads.map(|read| (read.key, read.from)).collect();
    by_key.sort_unstable();
    by_key.dedup();
    by_key
}

/// Those of `reads` that return something else although `source` wrote their key.
pub(crate) fn missed(
    committed: &Committed,
    source: Node,
    reads: &[(KeyId, Node)],
    budget: &Budget,
) -> Result<Vec<(KeyId, Node)>, Undecided> {
    let writes = committed.writes(source);
    budget.spend(writes.len().min(reads.len()))?;
    let mut found: Vec<(KeyId, Node)> = if writes.len() < reads.len() {
        let of_key = |key| {
            let start = reads.partition_point(|&(other, _)| other < key);
            reads[start..]
                .iter()
                .take_while(move |&&(other, _)| other == key)
        };
        writes
            .iter()
            .flat_map(|write| of_key(write.key))
            .copied()
            .collect()
    } else {
        let is_written =
            |&&(key, _): &&(KeyId, Node)| committed.writer_index(key, source).is_some();
        reads.iter().filter(is_written).copied().collect()
    };
    found.retain(|&(_, from)| from != source);
    Ok(found)
}

/// The last writer of `key` before `node` in its session.
fn last_own(order: &CausalOrder, node: Node, key: KeyId) -> Option<Node> {
    let previous = order.previous(node)?;
    let committed = order.committed;
    let writers = committed.writers(key);
    let before = writers.partition_point(|writer| writer.node <= previous);
    let last = writers[..before].last()?.node;
    (committed.session(last) == committed.session(node)).then_some(last)
}
