//! The anomalies that need no graph.

use crate::history::{History, KeyId, OpId};
use crate::model::Model;
use crate::verdict::{Anomaly, AnomalyKind, Edge, EdgeKind, Verdict};

/// The anomalies found so far, at most [`Verdict::ANOMALIES_MAX`] of a kind.
pub(super) struct Anomalies<'h> {
    history: &'h History,
    pub(super) found: Vec<(Option<Model>, Anomaly)>,
    counts: [usize; AnomalyKind::ALL.len()],
}

impl<'h> Anomalies<'h> {
    pub(super) fn new(history: &'h History) -> Self {
        Anomalies {
            history,
            found: Vec::new(),
            counts: [0; AnomalyKind::ALL.len()],
        }
    }

    /// The weakest model that forbids an anomaly of the pre-pass; `None` if every model does.
    fn weakest_refuted(kind: AnomalyKind) -> Option<Model> {
        match kind {
            AnomalyKind::AbortedRead | AnomalyKind::IntermediateRead => Some(Model::CommittedReads),
            AnomalyKind::FutureRead | AnomalyKind::InternalRead => Some(Model::ReadCommitted),
            AnomalyKind::NonRepeatableRead => Some(Model::ReadAtomic),
            AnomalyKind::IncompatibleOrder | AnomalyKind::DirtyWrite => {
                Some(Model::ReadUncommitted)
            }
            _ => None,
        }
    }

    /// Adds an anomaly that `operations` show, the last one of them a read, unless there are enough of its kind.
    pub(super) fn add(
        &mut self,
        kind: AnomalyKind,
        key: KeyId,
        operations: &[OpId],
        because: impl FnOnce() -> String,
    ) {
        let count = &mut self.counts[kind as usize];
        if *count == Verdict::ANOMALIES_MAX {
            return;
        }
        *count += 1;
        let history = self.history;
        let is_write = |op: OpId| history.operations()[op].action.is_write();
        let edges = match *operations {
            [from, to, ..] if is_write(from) && !is_write(to) => vec![Edge {
                from,
                to,
                kind: EdgeKind::ReadsFrom,
            }],
            _ => Vec::new(),
        };
        let anomaly = Anomaly::new(history, kind, key, operations.to_vec(), vec![because()]);
        let entry = (Self::weakest_refuted(kind), anomaly.with_edges(edges));
        self.found.push(entry);
    }

    fn owner(&self, op: OpId) -> String {
        format!("T{}", self.history.owner(op))
    }

    pub(super) fn internal(&mut self, key: KeyId, write: OpId, read: OpId) {
        let owner = self.owner(read);
        self.add(AnomalyKind::InternalRead, key, &[write, read], || {
            format!("#{read} comes after #{write} in {owner}; however, it returned something else: a contradiction")
        });
    }

    pub(super) fn non_repeatable(&mut self, key: KeyId, before: OpId, read: OpId) {
        let owner = self.owner(read);
        self.add(AnomalyKind::NonRepeatableRead, key, &[before, read], || {
            format!(
                "{owner} did not write the key between #{before} and #{read}; however, they returned \
                 different versions: a contradiction"
            )
        });
    }

    pub(super) fn future_read(&mut self, key: KeyId, write: OpId, read: OpId) {
        let owner = self.owner(read);
        self.add(AnomalyKind::FutureRead, key, &[write, read], || {
            format!("#{read} returned what #{write} wrote; however, {owner} wrote it only later: a contradiction")
        });
    }

    pub(super) fn aborted_read(&mut self, key: KeyId, write: OpId, read: OpId) {
        let owner = self.owner(write);
        self.add(AnomalyKind::AbortedRead, key, &[write, read], || {
            format!(
                "#{read} returned what #{write} wrote; however, {owner} failed: a contradiction"
            )
        });
    }

    pub(super) fn intermediate_read(&mut self, key: KeyId, write: OpId, read: OpId) {
        let history = self.history;
        let writes = |&op: &OpId| {
            let operation = &history.operations()[op];
            operation.key == key && operation.action.is_write()
        };
        let mut own = history.operations_of(history.owner(write)).rev();
        let last = own.find(writes).unwrap_or(write);
        let owner = self.owner(write);
        self.add(AnomalyKind::IntermediateRead, key, &[write, read, last], || {
            format!(
                "#{read} returned what #{write} wrote; however, {owner} wrote the key again (#{last}): a contradiction"
            )
        });
    }
}
