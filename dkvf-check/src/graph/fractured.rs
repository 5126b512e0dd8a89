//! Read atomicity: reads that miss a write of a transaction that the reader sees.

use std::collections::BTreeMap;

use crate::check::Budget;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::{Committed, INIT, Node, Read, Undecided};
use crate::verdict::{EdgeKind, Verdict};

use super::Versions;
use super::search::Step;

/// Reads that return an older version than one written by a transaction that the reader reads from, or that comes
/// before it by `order`: how the reader sees that transaction, and the anti-dependency to it. At most
/// [`Verdict::ANOMALIES_MAX`].
///
/// Takes O(n log n) time, and for each pair of reader and writer the smaller of what one read and the other wrote.
pub(super) fn cycles(
    committed: &Committed,
    versions: &Versions,
    order: Order,
    budget: &Budget,
) -> Result<Vec<Vec<Step>>, Undecided> {
    let mut search = Fractured {
        committed,
        versions,
        budget,
        found: Vec::new(),
    };
    search.sources()?;
    if order != Order::None {
        search.sessions()?;
    }
    if order == Order::RealTime {
        search.real_time()?;
    }
    search.found.truncate(Verdict::ANOMALIES_MAX);
    Ok(search.found)
}

struct Fractured<'a, 'h> {
    committed: &'a Committed<'h>,
    versions: &'a Versions,
    budget: &'a Budget<'a>,
    found: Vec<Vec<Step>>,
}

/// By key: the newest version written so far, its writer and its place.
type Newest = BTreeMap<KeyId, (u32, Node)>;

impl Fractured<'_, '_> {
    /// Whoever reads from a transaction sees all its writes.
    fn sources(&mut self) -> Result<(), Undecided> {
        for node in self.committed.nodes() {
            let reads = self.committed.reads(node);
            let mut by_key: Vec<&Read> = reads.iter().collect();
            by_key.sort_by_key(|read| read.key);
            let mut sources: Vec<(Node, KeyId)> =
                reads.iter().map(|read| (read.from, read.key)).collect();
            sources.sort_unstable();
            sources.dedup_by_key(|source| source.0);
            for (source, read_key) in sources.into_iter().filter(|&(source, _)| source != INIT) {
                let back = Some(read_key);
                let writes = self.committed.writes(source);
                self.budget.spend(reads.len().min(writes.len()) + 1)?;
                if reads.len() < writes.len() {
                    for read in reads {
                        self.compare(node, read, source, EdgeKind::ReadsFrom, back);
                    }
                    continue;
                }
                for write in writes {
                    if let Ok(place) = by_key.binary_search_by_key(&write.key, |read| read.key) {
                        self.compare(node, by_key[place], source, EdgeKind::ReadsFrom, back);
                    }
                }
            }
        }
        Ok(())
    }

    /// A session sees its own earlier writes.
    fn sessions(&mut self) -> Result<(), Undecided> {
        for session in self.committed.sessions() {
            let mut newest = Newest::new();
            for node in session {
                self.budget.spend(self.committed.reads(node).len() + 1)?;
                self.compare_with(node, &newest, EdgeKind::Session);
                self.note_writes(node, &mut newest);
            }
        }
        Ok(())
    }

    /// Everybody sees what had returned before.
    fn real_time(&mut self) -> Result<(), Undecided> {
        let history = self.committed.history;
        let header = |node: &Node| {
            let transaction = self.committed.transaction(*node);
            transaction.map(|id| history.transactions()[id])
        };
        let mut by_invocation: Vec<Node> = self.committed.nodes().collect();
        by_invocation.sort_by_key(|node| header(node).map(|header| header.invoke_us));
        let mut returned: Vec<(u64, Node)> = self
            .committed
            .nodes()
            .filter_map(|node| Some((header(&node)?.complete_us?, node)))
            .collect();
        returned.sort_unstable();
        let mut returned = returned.into_iter().peekable();
        let mut newest = Newest::new();
        for node in by_invocation {
            let invoked = header(&node).map_or(0, |header| header.invoke_us);
            while let Some((_, writer)) = returned.next_if(|&(time, _)| time < invoked) {
                self.note_writes(writer, &mut newest);
            }
            self.budget.spend(self.committed.reads(node).len() + 1)?;
            self.compare_with(node, &newest, EdgeKind::RealTime);
        }
        Ok(())
    }

    fn note_writes(&self, node: Node, newest: &mut Newest) {
        for write in self.committed.writes(node) {
            if let Some(place) = self.versions.place(self.committed, write.key, node) {
                let newest = newest.entry(write.key).or_default();
                *newest = (place, node).max(*newest);
            }
        }
    }

    fn compare_with(&mut self, node: Node, newest: &Newest, kind: EdgeKind) {
        for read in self.committed.reads(node) {
            if let Some(&(_, writer)) = newest.get(&read.key) {
                self.compare(node, read, writer, kind, None);
            }
        }
    }

    /// `node` sees `writer`: its read must not return an older version.
    fn compare(
        &mut self,
        node: Node,
        read: &Read,
        writer: Node,
        kind: EdgeKind,
        back: Option<KeyId>,
    ) {
        let place = |of| self.versions.place(self.committed, read.key, of);
        let (Some(seen), Some(written)) = (place(read.from), place(writer)) else {
            return;
        };
        if seen < written && self.found.len() < Verdict::ANOMALIES_MAX {
            let anti = EdgeKind::AntiDependency;
            let cycle = vec![
                Step {
                    from: writer,
                    to: node,
                    kind,
                    key: back,
                },
                Step {
                    from: node,
                    to: writer,
                    kind: anti,
                    key: Some(read.key),
                },
            ];
            self.found.push(cycle);
        }
    }
}
