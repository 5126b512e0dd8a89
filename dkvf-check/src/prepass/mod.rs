//! The pre-pass that the models of transactions share: who read from whom, what counts as committed, and the anomalies
//! that need no graph (VERIFICATION, section 1.1).
//!
//! Takes O(n log n) time for n operations and a few dozen bytes for each.

mod anomalies;
mod lists;
mod observe;
mod rows;
mod written;

use std::ops::Range;

use crate::check::{Budget, Exhausted};
use crate::history::{History, KeyId, OpId, TxnId};
use crate::model::Model;
use crate::verdict::{Anomaly, Verdict};

pub(crate) use rows::Rows;

/// A committed transaction, or [`INIT`]. Those of a session are numbered one after another, in session order.
pub(crate) type Node = u32;

/// The imaginary transaction that wrote the initial version of every key before everything else.
pub(crate) const INIT: Node = 0;

/// The history does not tell, or the budget did not suffice; the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undecided(pub(crate) String);

impl From<Exhausted> for Undecided {
    fn from(Exhausted(reason): Exhausted) -> Self {
        Undecided(reason)
    }
}

impl From<Undecided> for Verdict {
    fn from(Undecided(reason): Undecided) -> Self {
        Verdict::Unknown(reason)
    }
}

/// A read of a version that another transaction wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The operation; a scan reads several keys.
    op: u32,
    pub(crate) key: KeyId,
    /// Who wrote the version.
    pub(crate) from: Node,
}

impl Read {
    pub(crate) fn op(&self) -> OpId {
        self.op as OpId
    }
}

/// The last write of a transaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    op: u32,
    pub(crate) key: KeyId,
    /// Who wrote.
    pub(crate) node: Node,
}

impl Write {
    pub(crate) fn op(&self) -> OpId {
        self.op as OpId
    }
}

/// What committed, and who read from whom.
///
/// Counted as committed are transactions that succeeded, and those of unknown outcome that wrote what a committed
/// transaction read. The reads of the latter are not counted, except that a compare-and-set that was seen must have read
/// what it expected.
pub(crate) struct Committed<'h> {
    pub(crate) history: &'h History,
    /// By node, without [`INIT`].
    transactions: Vec<u32>,
    reads: Rows<Read>,
    writes: Rows<Write>,
    /// The first node of each session, and one more than the last node.
    session_starts: Vec<Node>,
    /// By node; that of [`INIT`] means nothing.
    session_of: Vec<u32>,
    writers: Rows<Write>,
    lists: lists::Lists,
    anomalies: Vec<(Option<Model>, Anomaly)>,
}

impl<'h> Committed<'h> {
    /// Undecided if values are not unique, for then nobody knows who read from whom, or if keys are neither registers
    /// nor lists.
    pub(crate) fn new(history: &'h History, budget: &Budget) -> Result<Self, Undecided> {
        let written = written::Written::new(history, budget)?;
        let observed = observe::Observed::new(history, &written, budget)?;
        assemble(history, observed, &written, budget)
    }

    /// Number of nodes, with [`INIT`].
    pub(crate) fn node_count(&self) -> usize {
        self.transactions.len() + 1
    }

    /// All committed transactions, without [`INIT`].
    pub(crate) fn nodes(&self) -> Range<Node> {
        1..self.node_count() as Node
    }

    /// The transaction of a node; `None` for [`INIT`].
    pub(crate) fn transaction(&self, node: Node) -> Option<TxnId> {
        let index = (node as usize).checked_sub(1)?;
        Some(self.transactions[index] as TxnId)
    }

    /// The external reads of a node, in program order: those of a key that it had not written before. Repeated reads
    /// are repeated.
    pub(crate) fn reads(&self, node: Node) -> &[Read] {
        self.reads.row(node as usize)
    }

    /// The last write of a node to each key it wrote, in program order.
    pub(crate) fn writes(&self, node: Node) -> &[Write] {
        self.writes.row(node as usize)
    }

    /// The last write of a node to a key. Takes time linear in the writes of the node.
    pub(crate) fn write(&self, node: Node, key: KeyId) -> Option<Write> {
        self.writes(node)
            .iter()
            .copied()
            .find(|write| write.key == key)
    }

    /// The writes of a key that can be read, ascending by node; [`INIT`] is not among them.
    pub(crate) fn writers(&self, key: KeyId) -> &[Write] {
        self.writers.row(key.index())
    }

    /// The place of a writer of a key among the writers of all keys, those of a key one after another.
    pub(crate) fn writer_index(&self, key: KeyId, node: Node) -> Option<usize> {
        let place = self
            .writers(key)
            .binary_search_by_key(&node, |write| write.node);
        Some(self.writers.range(key.index()).start + place.ok()?)
    }

    /// The writer of a key that has an index, see [`Committed::writer_index`].
    pub(crate) fn writer_at(&self, index: usize) -> Write {
        self.writers.item(index)
    }

    /// How many pairs of key and writer there are.
    pub(crate) fn writer_count(&self) -> usize {
        self.writers.item_count()
    }

    /// The nodes of each session, in session order.
    pub(crate) fn sessions(&self) -> impl ExactSizeIterator<Item = Range<Node>> {
        self.session_starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The session of a node, as an index of [`Committed::sessions`]. Not for [`INIT`].
    pub(crate) fn session(&self, node: Node) -> usize {
        self.session_of[node as usize] as usize
    }

    /// How many transactions of its session precede a node. Not for [`INIT`].
    pub(crate) fn position(&self, node: Node) -> u32 {
        node - self.session_starts[self.session(node)]
    }

    /// One more than the last node of the session of a node. Not for [`INIT`].
    pub(crate) fn session_end(&self, node: Node) -> Node {
        self.session_starts[self.session(node) + 1]
    }

    /// For a list, the transactions that appended to it in the order that clients saw; those that nobody saw are
    /// missing. Empty for a register.
    pub(crate) fn list_order(&self, key: KeyId) -> &[Node] {
        self.lists.order(key)
    }

    /// The operation that read the longest list of a key.
    pub(crate) fn longest_read(&self, key: KeyId) -> Option<OpId> {
        self.lists.longest_read(key)
    }

    /// Whether clients append to the key.
    pub(crate) fn is_list(&self, key: KeyId) -> bool {
        self.lists.is_list(key)
    }

    /// The anomalies found that refute `model`.
    pub(crate) fn anomalies(&self, model: Model) -> Vec<Anomaly> {
        self.anomalies
            .iter()
            .filter(|(weakest, _)| weakest.is_none_or(|weakest| model.implies(weakest)))
            .map(|(_, anomaly)| anomaly.clone())
            .take(Verdict::ANOMALIES_MAX)
            .collect()
    }
}

/// Numbers the committed transactions and translates what was observed to those numbers.
fn assemble<'h>(
    history: &'h History,
    observed: observe::Observed,
    written: &written::Written,
    budget: &Budget,
) -> Result<Committed<'h>, Undecided> {
    let count = history.transactions().len();
    budget.reserve(count * 24 + history.operations().len() * 40)?;
    let mut transactions: Vec<u32> = (0..count as u32)
        .filter(|&id| observed.is_committed[id as usize])
        .collect();
    transactions.sort_unstable_by_key(|&id| {
        let header = &history.transactions()[id as usize];
        (header.session, header.invoke_us, id)
    });

    let session = |id: u32| history.transactions()[id as usize].session;
    let (mut session_starts, mut session_of) = (vec![1], vec![u32::MAX]);
    for (index, nodes) in transactions
        .chunk_by(|&a, &b| session(a) == session(b))
        .enumerate()
    {
        session_of.resize(session_of.len() + nodes.len(), index as u32);
        session_starts.push(session_of.len() as Node);
    }

    let mut node_of = vec![INIT; count];
    for (index, &id) in transactions.iter().enumerate() {
        node_of[id as usize] = index as Node + 1;
    }
    let reads: Vec<(Node, Read)> = observed
        .reads
        .iter()
        .map(|read| {
            let from = read
                .from
                .map_or(INIT, |write| node_of[history.owner(write as OpId)]);
            let (op, key) = (read.op, read.key);
            (node_of[history.owner(op as OpId)], Read { op, key, from })
        })
        .collect();
    let writes = last_writes(history, &node_of, &transactions, written);
    let by_key: Vec<(u32, Write)> = writes
        .iter()
        .map(|&(_, write)| (write.key.index() as u32, write))
        .collect();
    Ok(Committed {
        history,
        reads: Rows::new(transactions.len() + 1, &reads),
        writes: Rows::new(transactions.len() + 1, &writes),
        writers: Rows::new(history.key_count(), &by_key),
        lists: observed.lists.with_nodes(&node_of),
        anomalies: observed.anomalies,
        transactions,
        session_starts,
        session_of,
    })
}

fn last_writes(
    history: &History,
    node_of: &[Node],
    transactions: &[u32],
    written: &written::Written,
) -> Vec<(Node, Write)> {
    let writes_of = |&id: &u32| {
        let node = node_of[id as usize];
        history.operations_of(id as TxnId).filter_map(move |op| {
            let operation = &history.operations()[op];
            let counts = operation.action.is_write() && !written.is_overwritten(op);
            let (op, key) = (op as u32, operation.key);
            counts.then_some((node, Write { op, key, node }))
        })
    };
    transactions.iter().flat_map(writes_of).collect()
}
