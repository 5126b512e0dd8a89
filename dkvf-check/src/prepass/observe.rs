//! What each committed transaction read from which other one, and which reads make no sense.

use crate::check::Budget;
use crate::history::{Action, History, KeyId, ListId, OpId, Outcome, Scan, TxnId, ValueId};
use crate::model::Model;
use crate::verdict::{Anomaly, AnomalyKind};

use super::Undecided;
use super::anomalies::Anomalies;
use super::lists::{Lists, ListsBuilder};
use super::written::Written;

/// A read of what another transaction wrote.
pub(super) struct ObservedRead {
    pub(super) op: u32,
    pub(super) key: KeyId,
    /// The operation that wrote it; `None` for the initial version.
    pub(super) from: Option<u32>,
}

/// What committed transactions observed of each other.
pub(super) struct Observed {
    /// By transaction.
    pub(super) is_committed: Vec<bool>,
    /// External reads; those of a transaction in program order.
    pub(super) reads: Vec<ObservedRead>,
    pub(super) lists: Lists,
    pub(super) anomalies: Vec<(Option<Model>, Anomaly)>,
}

impl Observed {
    pub(super) fn new(
        history: &History,
        written: &Written,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        let transactions = history.transactions();
        budget.reserve(history.operations().len() * 16 + history.key_count() * 16)?;
        let mut observer = Observer::new(history, written, budget);
        for (id, header) in transactions.iter().enumerate() {
            if header.outcome == Outcome::Ok {
                observer.visit(id)?;
            }
        }
        let lists = observer.take_lists()?;
        while let Some(id) = observer.unknown_but_seen.pop() {
            observer.visit(id)?;
        }
        Ok(Observed {
            is_committed: observer.is_committed,
            reads: observer.reads,
            lists,
            anomalies: observer.anomalies.found,
        })
    }
}

/// What the transaction that is being visited did to a key.
#[derive(Clone, Copy, Default)]
struct Touched {
    /// The transaction, plus one.
    by: u32,
    /// Its last write, plus one; 0 if none.
    write: u32,
    /// Its last external read, plus one; 0 if none.
    read: u32,
    /// What that read returned: for a register the write, plus one, or 0 for the initial version; for a list the length.
    seen: u32,
}

struct Observer<'h> {
    history: &'h History,
    written: &'h Written,
    budget: &'h Budget<'h>,
    /// By key.
    touched: Vec<Touched>,
    /// All keys, ascending by name; filled when a scan asks.
    sorted_keys: Vec<KeyId>,
    is_committed: Vec<bool>,
    /// Transactions of unknown outcome whose writes were read and whose own reads are still to be visited.
    unknown_but_seen: Vec<TxnId>,
    reads: Vec<ObservedRead>,
    lists: ListsBuilder,
    anomalies: Anomalies<'h>,
}

impl<'h> Observer<'h> {
    fn new(history: &'h History, written: &'h Written, budget: &'h Budget) -> Self {
        let is_ok = |header: &crate::history::Transaction| header.outcome == Outcome::Ok;
        Observer {
            history,
            written,
            budget,
            touched: vec![Touched::default(); history.key_count()],
            sorted_keys: Vec::new(),
            is_committed: history.transactions().iter().map(is_ok).collect(),
            unknown_but_seen: Vec::new(),
            reads: Vec::new(),
            lists: ListsBuilder::new(history.key_count()),
            anomalies: Anomalies::new(history),
        }
    }

    fn visit(&mut self, transaction: TxnId) -> Result<(), Undecided> {
        let is_ok = self.history.transactions()[transaction].outcome == Outcome::Ok;
        for op in self.history.operations_of(transaction) {
            self.budget.spend(1)?;
            let operation = &self.history.operations()[op];
            let key = operation.key;
            match operation.action {
                Action::Read(value) if is_ok => self.read(op, key, value)?,
                Action::ReadList(list) if is_ok => self.read_list(op, key, list)?,
                Action::Scan(scan) if is_ok => self.scan(op, self.history.scan(scan))?,
                Action::Read(_) | Action::ReadList(_) | Action::Scan(_) => {}
                Action::Cas { expected, .. } => {
                    self.read(op, key, expected)?;
                    self.touch(op, key).write = op as u32 + 1;
                }
                _ => self.touch(op, key).write = op as u32 + 1,
            }
        }
        Ok(())
    }

    /// What the transaction of `op` did to `key` so far.
    fn touch(&mut self, op: OpId, key: KeyId) -> &mut Touched {
        let by = self.history.owner(op) as u32 + 1;
        let touched = &mut self.touched[key.index()];
        if touched.by != by {
            *touched = Touched {
                by,
                ..Touched::default()
            };
        }
        touched
    }

    fn read(&mut self, op: OpId, key: KeyId, value: Option<ValueId>) -> Result<(), Undecided> {
        let Some(from) = self.source(op, key, value)? else {
            self.anomalies
                .add(AnomalyKind::ThinAirRead, key, &[op], || {
                    let value = self.history.value_text(value);
                    format!("nobody wrote {value}")
                });
            return Ok(());
        };
        let is_sound = self.examine_source(op, key, from);
        let touched = *self.touch(op, key);
        let seen = from.map_or(0, |write| write as u32 + 1);
        if touched.write != 0 {
            if seen != touched.write {
                self.anomalies.internal(key, touched.write as OpId - 1, op);
            }
            return Ok(());
        }
        if touched.read != 0 && touched.seen != seen {
            let before = touched.read as OpId - 1;
            self.anomalies.non_repeatable(key, before, op);
        }
        (self.touch(op, key).read, self.touch(op, key).seen) = (op as u32 + 1, seen);
        if is_sound {
            self.reads_from(op, key, from);
        }
        Ok(())
    }

    /// The write that a read of `value` returned: `Some(None)` is the initial version, `None` is none at all.
    fn source(
        &self,
        op: OpId,
        key: KeyId,
        value: Option<ValueId>,
    ) -> Result<Option<Option<OpId>>, Undecided> {
        match value {
            Some(value) => Ok(self.written.find(self.history, key, value).map(Some)),
            None => self.source_of_absence(op, key).map(Some),
        }
    }

    /// Who made `key` absent: nobody yet, or the deletion that has the version which the read reports.
    fn source_of_absence(&self, op: OpId, key: KeyId) -> Result<Option<OpId>, Undecided> {
        let operations = self.history.operations();
        let outcome = |deletion: OpId| self.history.transaction_of(deletion).outcome;
        let possible: Vec<OpId> = self
            .written
            .deletions(key)
            .filter(|&deletion| outcome(deletion) != Outcome::Fail)
            .collect();
        self.budget.spend(possible.len())?;
        let Some(&deletion) = possible.first() else {
            return Ok(None);
        };
        let touched = self.touched[key.index()];
        let is_own = touched.by == self.history.owner(op) as u32 + 1;
        let own_write = (touched.write as OpId).checked_sub(1).filter(|_| is_own);
        if let Some(own) = own_write.filter(|own| possible.contains(own)) {
            return Ok(Some(own));
        }
        let version = operations[op].version;
        let is_told = |&deletion: &OpId| operations[deletion].version.is_some();
        if version.is_some() && possible.iter().all(is_told) {
            let same = |&deletion: &OpId| operations[deletion].version == version;
            return Ok(possible.into_iter().find(same));
        }
        Err(Undecided(format!(
            "key {} was deleted (#{deletion}), so nobody knows which absence #{op} read",
            self.history.key_text(key),
        )))
    }

    /// Whether what `from` wrote was there for others to be read; then it took effect.
    fn examine_source(&mut self, op: OpId, key: KeyId, from: Option<OpId>) -> bool {
        let Some(write) = from else {
            return true;
        };
        let writer = self.history.owner(write);
        if writer == self.history.owner(op) {
            if self.touch(op, key).write == 0 {
                self.anomalies.future_read(key, write, op);
            }
            return false;
        }
        if self.history.transactions()[writer].outcome == Outcome::Fail {
            self.anomalies.aborted_read(key, write, op);
            return false;
        }
        if self.written.is_overwritten(write) {
            self.anomalies.intermediate_read(key, write, op);
        }
        self.commit(writer);
        true
    }

    /// Notes that `op` read what `from` wrote.
    fn reads_from(&mut self, op: OpId, key: KeyId, from: Option<OpId>) {
        self.reads.push(ObservedRead {
            op: op as u32,
            key,
            from: from.map(|write| write as u32),
        });
    }

    fn commit(&mut self, transaction: TxnId) {
        if !self.is_committed[transaction] {
            self.is_committed[transaction] = true;
            self.unknown_but_seen.push(transaction);
        }
    }

    /// A scan reads its rows, and the initial version of all other keys of its range.
    fn scan(&mut self, op: OpId, scan: &Scan) -> Result<(), Undecided> {
        let mut rows = scan.rows.clone();
        rows.sort_unstable();
        let history = self.history;
        if self.sorted_keys.is_empty() {
            self.budget.reserve(history.key_count() * 4)?;
            self.sorted_keys = history.keys().collect();
            self.sorted_keys
                .sort_unstable_by_key(|&key| history.key(key));
        }
        let start = self
            .sorted_keys
            .partition_point(|&key| history.key(key) < &scan.low[..]);
        let is_inside = |key: KeyId| match &scan.high {
            Some(high) => history.key(key) < &high[..],
            None => true,
        };
        for &(key, value) in &scan.rows {
            self.read(op, key, Some(value))?;
        }
        for place in start..self.sorted_keys.len() {
            let key = self.sorted_keys[place];
            if !is_inside(key) {
                break;
            }
            self.budget.spend(1)?;
            let has_row = rows.binary_search_by_key(&key, |&(key, _)| key).is_ok();
            if !has_row && !self.written.is_list(key) {
                self.read(op, key, None)?;
            }
        }
        // One entry a key and scan: the only table that can be larger than the history.
        self.budget.reserve(self.reads.len() * 32)?;
        Ok(())
    }

    fn read_list(&mut self, op: OpId, key: KeyId, list: ListId) -> Result<(), Undecided> {
        let elements = self.history.list(list);
        self.lists.add(op, key, elements.len());
        let own = self.own_appends(op, key, elements.len())?;
        // Whatever is wrong with other elements is found when the longest list is examined.
        let last = elements.last().copied();
        let from = last.and_then(|last| self.written.find(self.history, key, last));
        let is_sound = from.is_some() == last.is_some() && self.examine_source(op, key, from);
        if !elements.ends_with(&own) {
            let append = self.touch(op, key).write as OpId - 1;
            self.anomalies.internal(key, append, op);
            return Ok(());
        }
        let external = &elements[..elements.len() - own.len()];
        let touched = *self.touch(op, key);
        if touched.read != 0 {
            let before = touched.read as OpId - 1;
            let Action::ReadList(earlier) = self.history.operations()[before].action else {
                unreachable!("invariant: a key holds lists or registers");
            };
            if self.history.list(earlier)[..touched.seen as usize] != *external {
                self.anomalies.non_repeatable(key, before, op);
            }
        }
        let length = external.len() as u32;
        (self.touch(op, key).read, self.touch(op, key).seen) = (op as u32 + 1, length);
        if own.is_empty() && is_sound {
            self.reads_from(op, key, from);
        }
        Ok(())
    }

    /// The elements that the transaction of `read` appended to `key` before it; if they are more than `length`, only
    /// the last `length + 1`.
    fn own_appends(
        &mut self,
        read: OpId,
        key: KeyId,
        length: usize,
    ) -> Result<Vec<ValueId>, Undecided> {
        let mut own = Vec::new();
        if self.touch(read, key).write == 0 {
            return Ok(own);
        }
        let start = self.history.operations_of(self.history.owner(read)).start;
        for op in (start..read).rev() {
            self.budget.spend(1)?;
            let operation = &self.history.operations()[op];
            match operation.action {
                Action::Append(element) if operation.key == key => own.push(element),
                _ => {}
            }
            if own.len() > length {
                break;
            }
        }
        own.reverse();
        Ok(own)
    }

    fn take_lists(&mut self) -> Result<Lists, Undecided> {
        let builder = std::mem::take(&mut self.lists);
        let (lists, seen) =
            builder.finish(self.history, self.written, &mut self.anomalies, self.budget)?;
        for append in seen {
            self.commit(self.history.owner(append));
        }
        Ok(lists)
    }
}
