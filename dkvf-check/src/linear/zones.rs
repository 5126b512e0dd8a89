//! Registers whose values are written once each: a near-linear check (Gibbons and Korach, SIAM J. Comp. 1997; zones as in
//! Golab, Li and Shah, PODC 2011).
//!
//! A value and all that read it form a *cluster*. In a linearization a cluster is contiguous, for its value does not come
//! back. It covers at least the time from its first return to its last invocation, its *zone*: forward if the return
//! comes first, else backward. The operations are linearizable exactly if no two forward zones overlap and no backward
//! zone lies within a forward one.

use crate::history::{Action, History, OpId, Outcome, ValueId};

use super::calls::definite_return;

/// A moment; wider than the clock, so that there is one before all and one after.
pub(super) type Moment = i128;

/// Before every operation: when the initial version was written.
const ALWAYS: Moment = -1;

/// After every operation: when a write of unknown outcome returns.
const NEVER: Moment = 1 << 64;

/// A value of a key with the operations that wrote and read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    pub(super) value: Option<ValueId>,
    /// `None` writes the initial version.
    pub(super) write: Option<OpId>,
    /// The first return of an operation, and whose it is.
    pub(super) from: (Moment, Option<OpId>),
    /// The last invocation of an operation, and whose it is.
    pub(super) until: (Moment, Option<OpId>),
}

/// All operations on one register that bind it.
pub(super) struct Register<'h> {
    pub(super) history: &'h History,
    pub(super) clusters: Vec<Cluster>,
    /// Successful operations and writes that were seen, with their cluster.
    pub(super) members: Vec<(OpId, u32)>,
}

/// Why operations are no [`Register`].
pub(super) enum NoRegister {
    /// A value is written twice: this check is not for them.
    RepeatedValue,
    /// A value was read that nobody wrote, or only a transaction that failed.
    NotWritten {
        read: OpId,
        failed_write: Option<OpId>,
    },
    /// A value was read before it was written.
    ReadBeforeWrite { read: OpId, write: OpId },
}

impl<'h> Register<'h> {
    /// Groups the reads and writes of one key, which begins as `initial`. Takes O(n log n) time.
    pub(super) fn new(
        history: &'h History,
        operations: impl Iterator<Item = OpId>,
        initial: Option<ValueId>,
    ) -> Result<Self, NoRegister> {
        let mut sorted: Vec<(u32, bool, u32)> = operations
            .filter_map(|op| {
                let (value, is_read) = match history.operations()[op].action {
                    Action::Read(value) => (value, true),
                    Action::Write(value) => (value, false),
                    _ => return None,
                };
                let number = value.map_or(0, |value| value.index() as u32 + 1);
                Some((number, is_read, op as u32))
            })
            .collect();
        sorted.sort_unstable();
        let mut register = Register {
            history,
            clusters: Vec::new(),
            members: Vec::new(),
        };
        for group in sorted.chunk_by(|a, b| a.0 == b.0) {
            let value = ValueId::at(group[0].0);
            register.add(value, value == initial, group)?;
        }
        Ok(register)
    }

    fn add(
        &mut self,
        value: Option<ValueId>,
        is_initial: bool,
        group: &[(u32, bool, u32)],
    ) -> Result<(), NoRegister> {
        let outcome = |op: OpId| self.history.transaction_of(op).outcome;
        let of_kind = |kind: bool| {
            let operations = group
                .iter()
                .filter(move |&&(_, is_read, _)| is_read == kind);
            operations.map(|&(.., op)| op as OpId)
        };
        let mut writes = of_kind(false).filter(|&op| outcome(op) != Outcome::Fail);
        let write = writes.next();
        if writes.next().is_some() || write.is_some() && is_initial {
            return Err(NoRegister::RepeatedValue);
        }
        let mut reads = of_kind(true)
            .filter(|&op| outcome(op) == Outcome::Ok)
            .peekable();
        let read = reads.peek().copied();
        match (write, read) {
            (None, None) => return Ok(()),
            (None, Some(read)) if !is_initial => {
                return Err(NoRegister::NotWritten {
                    read,
                    failed_write: of_kind(false).next(),
                });
            }
            (Some(write), None) if outcome(write) == Outcome::Info => return Ok(()),
            _ => {}
        }
        let mut cluster = Cluster {
            value,
            write,
            from: (if is_initial { ALWAYS } else { NEVER }, None),
            until: (ALWAYS, None),
        };
        for op in write.into_iter().chain(reads) {
            let transaction = self.history.transaction_of(op);
            let invoked = Moment::from(transaction.invoke_us);
            let returned = definite_return(transaction).map_or(NEVER, Moment::from);
            if returned < cluster.from.0 {
                cluster.from = (returned, Some(op));
            }
            if invoked > cluster.until.0 {
                cluster.until = (invoked, Some(op));
            }
            self.members.push((op, self.clusters.len() as u32));
        }
        if let (Some(write), Some(read)) = (write, cluster.from.1)
            && cluster.from.0 < Moment::from(self.history.transaction_of(write).invoke_us)
        {
            return Err(NoRegister::ReadBeforeWrite { read, write });
        }
        self.clusters.push(cluster);
        Ok(())
    }

    /// Two clusters each of which must come before the other one. Takes O(n log n) time.
    pub(super) fn conflict(&self) -> Option<(Cluster, Cluster)> {
        let is_forward = |cluster: &&Cluster| cluster.from.0 < cluster.until.0;
        let mut forward: Vec<&Cluster> = self.clusters.iter().filter(is_forward).collect();
        forward.sort_unstable_by_key(|cluster| (cluster.from.0, cluster.until.0));
        let overlap = forward
            .windows(2)
            .find(|pair| pair[0].conflicts_with(pair[1]));
        if let Some(&[a, b]) = overlap {
            return Some((*a, *b));
        }
        // Forward zones are disjoint here, so only the last one that starts early enough can contain a backward zone.
        self.clusters
            .iter()
            .filter(|cluster| !is_forward(cluster))
            .find_map(|backward| {
                let behind = forward.partition_point(|zone| zone.from.0 < backward.until.0);
                let around = forward[behind.checked_sub(1)?];
                around
                    .conflicts_with(backward)
                    .then_some((*around, *backward))
            })
    }

    /// The place of each cluster in the order of versions that the protocol reports.
    ///
    /// # Errors
    ///
    /// A sentence, if it does not report one for every cluster or the same one for two.
    fn version_order(&self) -> Result<Vec<&Cluster>, String> {
        let history = self.history;
        let mut versions = vec![None; self.clusters.len()];
        for &(op, cluster) in &self.members {
            let version = history.operations()[op].version;
            let known = &mut versions[cluster as usize];
            *known = known.or(version);
        }
        let mut order = Vec::new();
        for (cluster, version) in self.clusters.iter().zip(versions) {
            match (cluster.write, version) {
                (None, _) => order.push((None, cluster)),
                (Some(_), Some(version)) => order.push((Some(version), cluster)),
                (Some(write), None) => {
                    return Err(format!(
                        "the protocol does not report the version of #{write}"
                    ));
                }
            }
        }
        order.sort_by_key(|&(version, _)| version);
        match order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!(
                "the protocol reports one version for {} and {}",
                history.value_text(pair[0].1.value),
                history.value_text(pair[1].1.value),
            )),
            None => Ok(order.into_iter().map(|(_, cluster)| cluster).collect()),
        }
    }

    /// Two clusters, the older one first, whose order in time contradicts the order that the protocol reports.
    pub(super) fn version_conflict(&self) -> Result<Option<(Cluster, Cluster)>, String> {
        let mut latest: Option<&Cluster> = None;
        for cluster in self.version_order()? {
            if let Some(older) = latest.filter(|older| cluster.from.0 < older.until.0) {
                return Ok(Some((*older, *cluster)));
            }
            if latest.is_none_or(|latest| latest.until.0 < cluster.until.0) {
                latest = Some(cluster);
            }
        }
        Ok(None)
    }
}

impl Cluster {
    /// Whether an operation of each returned before one of the other was invoked.
    fn conflicts_with(&self, other: &Cluster) -> bool {
        self.from.0 < other.until.0 && other.from.0 < self.until.0
    }
}
