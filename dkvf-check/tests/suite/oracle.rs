//! The models of transactions by their definitions: is there an arbitration and a visibility that explain a history?
//!
//! Cerone, Bernardi and Gotsman (CONCUR 2015). Everything is tried, so histories must be small; nothing is shared with
//! the checkers, not even how a history is represented.

use dkvf_check::{Model, Order, Outcome};

use crate::drafts::{Draft, Orders, Step, Value};

/// Whether `model` allows the history; with the order of versions if it is given, otherwise with any.
pub fn allows(draft: &Draft, model: Model, order: Order, versions: Option<&Orders>) -> bool {
    let unknown: Vec<usize> = (0..draft.txns.len())
        .filter(|&id| draft.txns[id].outcome == Outcome::Info)
        .collect();
    (0..1_u32 << unknown.len()).any(|choice| {
        let took_effect = |id: &usize| match draft.txns[*id].outcome {
            Outcome::Ok => true,
            Outcome::Fail => false,
            Outcome::Info => {
                let place = unknown.iter().position(|other| other == id).unwrap();
                choice >> place & 1 == 1
            }
        };
        let committed: Vec<usize> = (0..draft.txns.len()).filter(took_effect).collect();
        let order = if model == Model::StrictSerializable {
            Order::RealTime
        } else {
            order
        };
        let oracle = Oracle {
            draft,
            model,
            order,
            versions,
            committed,
        };
        oracle.reads_make_sense() && oracle.lists_grow() && oracle.explain(&mut Vec::new())
    })
}

struct Oracle<'a> {
    draft: &'a Draft,
    model: Model,
    order: Order,
    versions: Option<&'a Orders>,
    committed: Vec<usize>,
}

/// A transaction that has its place in the arbitration, and what it sees.
type Placed = (usize, Vec<usize>);

impl Oracle<'_> {
    /// Conditions on single reads, of models that do not speak of visibility.
    fn reads_make_sense(&self) -> bool {
        let readers = self
            .draft
            .txns
            .iter()
            .enumerate()
            .filter(|(_, txn)| txn.outcome == Outcome::Ok);
        readers.into_iter().all(|(id, txn)| {
            txn.steps
                .iter()
                .enumerate()
                .all(|(place, step)| match step {
                    Step::Read(key, value) => self.read_makes_sense(id, place, *key, *value),
                    Step::ReadList(key, list) => {
                        let elements = list
                            .iter()
                            .all(|&value| value == 0 || self.element_makes_sense(id, *key, value));
                        let last = list.last().copied().unwrap_or(0);
                        let continues =
                            self.continues_earlier_read(&txn.steps[..place], *key, list);
                        elements && continues && self.read_makes_sense(id, place, *key, last)
                    }
                    _ => true,
                })
        })
    }

    /// Of two lists of a key one is a beginning of the other, and no element is in one twice.
    fn lists_grow(&self) -> bool {
        let readers = self
            .draft
            .txns
            .iter()
            .filter(|txn| txn.outcome == Outcome::Ok);
        let lists: Vec<(usize, &Vec<Value>)> = readers
            .flat_map(|txn| &txn.steps)
            .filter_map(|step| match step {
                Step::ReadList(key, list) => Some((*key, list)),
                _ => None,
            })
            .collect();
        let agree = |(key, a): &(usize, &Vec<Value>), (other, b): &(usize, &Vec<Value>)| {
            key != other || a.starts_with(b) || b.starts_with(a)
        };
        let is_set =
            |list: &Vec<Value>| (0..list.len()).all(|place| !list[..place].contains(&list[place]));
        self.model == Model::CommittedReads
            || lists
                .iter()
                .all(|a| is_set(a.1) && lists.iter().all(|b| agree(a, b)))
    }

    /// A list that was read before is read again with the own appends in between, and nothing else.
    fn continues_earlier_read(&self, before: &[Step], key: usize, list: &[Value]) -> bool {
        let weak = [
            Model::ReadUncommitted,
            Model::CommittedReads,
            Model::ReadCommitted,
        ];
        let is_read = |step: &Step| matches!(step, Step::ReadList(other, _) if *other == key);
        let Some(place) = before.iter().rposition(is_read) else {
            return true;
        };
        let Step::ReadList(_, earlier) = &before[place] else {
            unreachable!()
        };
        let of_key = before[place..].iter().filter(|step| step.key() == key);
        let mut expected = earlier.clone();
        expected.extend(of_key.filter_map(Step::written));
        expected == list || weak.contains(&self.model)
    }

    fn element_makes_sense(&self, reader: usize, key: usize, value: Value) -> bool {
        match self.writer(key, value) {
            None => false,
            Some(writer) if writer == reader => true,
            Some(writer) if self.failed(writer) => self.model == Model::ReadUncommitted,
            Some(writer) => self.committed.contains(&writer),
        }
    }

    fn read_makes_sense(&self, reader: usize, place: usize, key: usize, value: Value) -> bool {
        let steps = &self.draft.txns[reader].steps;
        let own = steps[..place]
            .iter()
            .rev()
            .filter(|step| step.key() == key)
            .find_map(Step::written);
        let writer = self.writer(key, value);
        if value != 0 && writer.is_none() {
            return false;
        }
        if self.model == Model::ReadUncommitted {
            return writer.is_none_or(|id| self.failed(id) || self.committed.contains(&id));
        }
        let of_other = writer.filter(|&writer| writer != reader);
        let is_final = of_other.is_none_or(|writer| {
            self.committed.contains(&writer) && self.last_write(writer, key) == Some(value)
        });
        let is_internal = match own {
            Some(own) => own == value,
            None => writer != Some(reader),
        };
        is_final && (is_internal || self.model == Model::CommittedReads)
    }

    fn failed(&self, id: usize) -> bool {
        self.draft.txns[id].outcome == Outcome::Fail
    }

    fn writer(&self, key: usize, value: Value) -> Option<usize> {
        let wrote = |step: &Step| step.key() == key && step.written() == Some(value);
        self.draft
            .txns
            .iter()
            .position(|txn| txn.steps.iter().any(wrote))
    }

    fn last_write(&self, id: usize, key: usize) -> Option<Value> {
        let mut steps = self.draft.txns[id]
            .steps
            .iter()
            .rev()
            .filter(|step| step.key() == key);
        steps.find_map(Step::written)
    }

    /// Reads of keys that the transaction has not written before.
    fn external_reads(&self, id: usize) -> Vec<(usize, Value)> {
        if self.draft.txns[id].outcome == Outcome::Info {
            return Vec::new();
        }
        let steps = &self.draft.txns[id].steps;
        (0..steps.len())
            .filter(|&place| {
                let mut before = steps[..place].iter();
                !before.any(|step| step.key() == steps[place].key() && step.written().is_some())
            })
            .filter_map(|place| Some((steps[place].key(), steps[place].seen()?)))
            .collect()
    }

    fn must_precede(&self, a: usize, b: usize) -> bool {
        let (first, second) = (&self.draft.txns[a], &self.draft.txns[b]);
        let session = first.session == second.session && (first.invoke, a) < (second.invoke, b);
        let is_known = first.outcome != Outcome::Info;
        match self.order {
            Order::None => false,
            Order::Session => session,
            Order::RealTime => session || (is_known && first.complete < second.invoke),
        }
    }

    /// Extends the arbitration `placed` by every transaction and visibility that the model allows.
    fn explain(&self, placed: &mut Vec<Placed>) -> bool {
        if self.model == Model::CommittedReads {
            return true;
        }
        if placed.len() == self.committed.len() {
            return self.lists_agree(placed);
        }
        let is_placed = |id: usize, placed: &[Placed]| placed.iter().any(|&(other, _)| other == id);
        for &id in &self.committed {
            let waits = |&other: &usize| self.must_precede(other, id) && !is_placed(other, placed);
            if is_placed(id, placed)
                || self.committed.iter().any(waits)
                || !self.is_next_version(id, placed)
            {
                continue;
            }
            for mask in 0..1_u32 << placed.len() {
                let bits = 0..placed.len();
                let seen: Vec<usize> = bits
                    .filter(|bit| mask >> bit & 1 == 1)
                    .map(|bit| placed[bit].0)
                    .collect();
                if !self.may_see(id, &seen, placed) {
                    continue;
                }
                placed.push((id, seen));
                if self.explain(placed) {
                    return true;
                }
                placed.pop();
            }
        }
        false
    }

    /// Whether the versions before those of `id` are placed.
    fn is_next_version(&self, id: usize, placed: &[Placed]) -> bool {
        let Some(versions) = self.versions else {
            return true;
        };
        (0..self.draft.keys).all(|key| {
            let Some(own) = self.last_write(id, key) else {
                return true;
            };
            let before = versions[key].iter().take_while(|&&value| value != own);
            before
                .filter_map(|&value| self.writer(key, value))
                .all(|writer| {
                    !self.committed.contains(&writer)
                        || placed.iter().any(|&(other, _)| other == writer)
                })
        })
    }

    fn may_see(&self, id: usize, seen: &[usize], placed: &[Placed]) -> bool {
        let sees = |other: &usize| seen.contains(other);
        let all: Vec<usize> = placed.iter().map(|&(other, _)| other).collect();
        let is_prefix = all
            .iter()
            .position(|other| !sees(other))
            .is_none_or(|first| first == seen.len());
        let is_transitive = placed
            .iter()
            .filter(|(other, _)| sees(other))
            .all(|(_, past)| past.iter().all(sees));
        let knows_writers = (0..self.draft.keys).all(|key| {
            let writes = |other: &&usize| self.last_write(**other, key).is_some();
            !writes(&&id) || all.iter().filter(writes).all(sees)
        });
        let follows_order = all
            .iter()
            .all(|&other| !self.must_precede(other, id) || sees(&other));
        let reads = self.external_reads(id);
        let reads_latest = reads.iter().all(|&(key, value)| {
            let mut latest = all.iter().rev().filter(|other| sees(other));
            let latest = latest.find_map(|&other| self.last_write(other, key));
            latest.unwrap_or(0) == value
        });
        match self.model {
            Model::ReadUncommitted => seen.is_empty(),
            Model::ReadCommitted => {
                let sources = reads
                    .iter()
                    .filter_map(|&(key, value)| self.writer(key, value));
                seen.is_empty() && sources.into_iter().all(|writer| all.contains(&writer))
            }
            Model::ReadAtomic => reads_latest && follows_order,
            Model::Causal => reads_latest && follows_order && is_transitive,
            Model::Prefix => reads_latest && follows_order && is_prefix && is_transitive,
            Model::Psi => reads_latest && follows_order && is_transitive && knows_writers,
            Model::Si => {
                reads_latest && follows_order && is_prefix && is_transitive && knows_writers
            }
            Model::Serializable | Model::StrictSerializable | Model::Sequential => {
                reads_latest && seen.len() == all.len()
            }
            _ => panic!("{} is not a model of transactions", self.model),
        }
    }

    /// Whether every list that was read is a beginning of the appends in the order of arbitration.
    fn lists_agree(&self, placed: &[Placed]) -> bool {
        let appends = |key: usize| -> Vec<Value> {
            let steps = placed
                .iter()
                .flat_map(|&(id, _)| &self.draft.txns[id].steps);
            let of_key =
                steps.filter(|step| matches!(step, Step::Append(other, _) if *other == key));
            of_key.filter_map(Step::written).collect()
        };
        let readers = self
            .draft
            .txns
            .iter()
            .filter(|txn| txn.outcome == Outcome::Ok);
        readers.flat_map(|txn| &txn.steps).all(|step| match step {
            Step::ReadList(key, list) => {
                let failed =
                    |value: &Value| self.writer(*key, *value).is_some_and(|id| self.failed(id));
                let list: Vec<Value> = list
                    .iter()
                    .copied()
                    .filter(|value| !failed(value))
                    .collect();
                appends(*key).starts_with(&list)
            }
            _ => true,
        })
    }
}
