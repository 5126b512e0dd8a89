//! The order of the appends to a list, as far as clients saw it (VERIFICATION, section 3.10).

use std::collections::BTreeSet;

use crate::check::Budget;
use crate::history::{Action, History, KeyId, OpId, Outcome, ValueId};
use crate::verdict::AnomalyKind;

use super::anomalies::Anomalies;
use super::written::Written;
use super::{Node, Rows, Undecided};

/// The order of appends, list by list.
pub(super) struct Lists {
    /// By key: transactions (after [`Lists::with_nodes`] nodes) in the order of their first element.
    orders: Rows<u32>,
    /// By key: the longest read, plus one; 0 if none. Empty if there is no list.
    longest: Vec<u32>,
    is_list: Vec<bool>,
}

impl Lists {
    /// Replaces transactions by their nodes.
    pub(super) fn with_nodes(mut self, node_of: &[Node]) -> Self {
        for key in 0..self.orders.len() {
            for transaction in self.orders.row_mut(key) {
                *transaction = node_of[*transaction as usize];
            }
        }
        self
    }

    pub(super) fn order(&self, key: KeyId) -> &[u32] {
        if self.orders.len() == 0 {
            return &[];
        }
        self.orders.row(key.index())
    }

    pub(super) fn longest_read(&self, key: KeyId) -> Option<OpId> {
        let longest = *self.longest.get(key.index())?;
        (longest as OpId).checked_sub(1)
    }

    pub(super) fn is_list(&self, key: KeyId) -> bool {
        self.is_list.get(key.index()).copied().unwrap_or(false)
    }
}

/// Collects the reads of lists.
#[derive(Default)]
pub(super) struct ListsBuilder {
    reads: Vec<u32>,
    /// By key: the longest read, plus one, and its length.
    longest: Vec<(u32, u32)>,
}

impl ListsBuilder {
    pub(super) fn new(keys: usize) -> Self {
        ListsBuilder {
            reads: Vec::new(),
            longest: vec![(0, 0); keys],
        }
    }

    /// Adds the read `op` of a list.
    pub(super) fn add(&mut self, op: OpId, key: KeyId, length: usize) {
        self.reads.push(op as u32);
        let longest = &mut self.longest[key.index()];
        if longest.0 == 0 || length as u32 > longest.1 {
            *longest = (op as u32 + 1, length as u32);
        }
    }

    /// Compares all reads of each list and follows the longest one. Returns the appends that were seen, too.
    pub(super) fn finish<'h>(
        self,
        history: &'h History,
        written: &Written,
        anomalies: &mut Anomalies<'h>,
        budget: &Budget,
    ) -> Result<(Lists, Vec<OpId>), Undecided> {
        let mut lists = Lists {
            orders: Rows::default(),
            longest: Vec::new(),
            is_list: history.keys().map(|key| written.is_list(key)).collect(),
        };
        if self.reads.is_empty() {
            return Ok((lists, Vec::new()));
        }
        self.compare_with_longest(history, anomalies, budget)?;
        let mut seen = Vec::new();
        let mut values = vec![0; history.value_count()];
        for (key, &(longest, _)) in history.keys().zip(&self.longest) {
            let Some(read) = (longest as OpId).checked_sub(1) else {
                lists.orders.push([]);
                continue;
            };
            let mut follower = Follower {
                history,
                written,
                anomalies,
                budget,
                key,
                read,
            };
            follower.reject_repetitions(&mut values)?;
            let appends = follower.appends()?;
            lists.orders.push(follower.order(&appends)?);
            seen.extend(appends);
        }
        lists.longest = self.longest.iter().map(|&(read, _)| read).collect();
        Ok((lists, seen))
    }

    fn compare_with_longest(
        &self,
        history: &History,
        anomalies: &mut Anomalies,
        budget: &Budget,
    ) -> Result<(), Undecided> {
        for &read in &self.reads {
            let read = read as OpId;
            let key = history.operations()[read].key;
            let longest = self.longest[key.index()].0 as OpId - 1;
            let elements = elements(history, read);
            budget.spend(elements.len())?;
            if !self::elements(history, longest).starts_with(elements) {
                anomalies.add(AnomalyKind::IncompatibleOrder, key, &[longest, read], || {
                    format!("a list only grows at its end; however, the list of #{read} is not a beginning of the list \
                             of #{longest}: a contradiction")
                });
            }
        }
        Ok(())
    }
}

fn elements(history: &History, read: OpId) -> &[ValueId] {
    match history.operations()[read].action {
        Action::ReadList(list) => history.list(list),
        _ => unreachable!("invariant: only reads of lists are collected"),
    }
}

/// Follows the longest list of a key from element to element.
struct Follower<'a, 'h> {
    history: &'h History,
    written: &'a Written,
    anomalies: &'a mut Anomalies<'h>,
    budget: &'a Budget<'a>,
    key: KeyId,
    /// The operation that read it.
    read: OpId,
}

impl<'h> Follower<'_, 'h> {
    /// An element is appended once. `values` is a mark for each value, none of them yet of this key.
    fn reject_repetitions(&mut self, values: &mut [u32]) -> Result<(), Undecided> {
        let mark = self.key.index() as u32 + 1;
        let elements = elements(self.history, self.read);
        self.budget.spend(elements.len())?;
        for &element in elements {
            let last = std::mem::replace(&mut values[element.index()], mark);
            if last == mark {
                let (history, read) = (self.history, self.read);
                self.anomalies.add(AnomalyKind::IncompatibleOrder, self.key, &[read], || {
                    let element = history.value_text(Some(element));
                    format!("{element} was appended once; however, the list of #{read} has it twice: a contradiction")
                });
            }
        }
        Ok(())
    }

    /// The operations that appended the elements.
    fn appends(&mut self) -> Result<Vec<OpId>, Undecided> {
        let history = self.history;
        let mut appends = Vec::new();
        for &element in elements(history, self.read) {
            self.budget.spend(1)?;
            match self.written.find(history, self.key, element) {
                None => {
                    self.anomalies
                        .add(AnomalyKind::ThinAirRead, self.key, &[self.read], || {
                            format!("nobody appended {}", history.value_text(Some(element)))
                        })
                }
                Some(append) if history.transaction_of(append).outcome == Outcome::Fail => {
                    self.anomalies.aborted_read(self.key, append, self.read);
                }
                Some(append) => appends.push(append),
            }
        }
        Ok(appends)
    }

    /// The transactions of `appends` in the order of their first element.
    fn order(&mut self, appends: &[OpId]) -> Result<Vec<u32>, Undecided> {
        let history = self.history;
        let mut order = Vec::new();
        let mut known = BTreeSet::new();
        let mut rest = appends;
        while let [first, ..] = *rest {
            let owner = history.owner(first);
            let of_owner = |&&append: &&OpId| history.owner(append) == owner;
            let (run, next) = rest.split_at(rest.iter().take_while(of_owner).count());
            rest = next;
            if !known.insert(owner) {
                // What came between its elements was reported with the first of them.
                continue;
            }
            order.push(owner as u32);
            self.examine_run(run, next.first().copied())?;
        }
        Ok(order)
    }

    /// All appends of a transaction to the key belong together, in program order.
    fn examine_run(&mut self, run: &[OpId], next: Option<OpId>) -> Result<(), Undecided> {
        let history = self.history;
        let is_append = |op: &OpId| {
            let operation = &history.operations()[*op];
            operation.key == self.key && operation.action.is_write()
        };
        let operations = history.operations_of(history.owner(run[0]));
        self.budget.spend(operations.len())?;
        let own: Vec<OpId> = operations.filter(is_append).collect();
        let (read, key) = (self.read, self.key);
        let misplaced = (0..run.len()).find(|&place| own.get(place) != Some(&run[place]));
        if let Some(place) = misplaced {
            let seen = run[place];
            // An element that is in the list twice has no place of its own.
            let expected = own.get(place).copied().unwrap_or(seen);
            let operations = [expected, seen, read];
            self.anomalies.add(AnomalyKind::IncompatibleOrder, key, &operations, || {
                format!("#{expected} came before #{seen}; however, in the list of #{read} it does not: a contradiction")
            });
        } else if let (true, Some(next)) = (run.len() < own.len(), next) {
            let (last, missed) = (run[run.len() - 1], own[run.len()]);
            self.anomalies.add(AnomalyKind::DirtyWrite, key, &[last, missed, next, read], || {
                format!(
                    "#{last} and #{missed} are appends of one transaction; however, in the list of #{read} the append \
                     #{next} of another one follows #{last}: a contradiction"
                )
            });
        }
        Ok(())
    }
}
