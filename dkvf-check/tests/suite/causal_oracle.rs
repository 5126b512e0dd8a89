//! Causal consistency and the session guarantees by their definitions, for histories so small that everything can be
//! tried. Nothing is shared with the checkers.
//!
//! Causal consistency: Bouajjani et al. (POPL 2017), by linear extensions of the causal order. Session guarantees:
//! least sets of writes that a read must take into account, by closure.

use std::collections::BTreeSet;

use dkvf_check::{Model, Outcome};

use crate::drafts::{Draft, Orders, Step, Value};

/// A committed transaction: who reads, and from whom; `None` is the initial version.
struct Txn {
    session: u32,
    reads: Vec<(usize, Option<usize>)>,
    writes: Vec<usize>,
}

/// A history after the anomalies that need no order; transactions of a session in its order.
pub struct Facts {
    txns: Vec<Txn>,
    keys: usize,
    /// By key: the writers in the order that was given.
    order: Vec<Vec<usize>>,
}

/// A set of transactions.
type Set = BTreeSet<usize>;

impl Facts {
    /// `None` if a read makes no sense by itself: its value was never written, failed, was overwritten by its writer,
    /// or is not what the own transaction left.
    pub fn new(draft: &Draft, versions: Option<&Orders>) -> Option<Facts> {
        let committed = committed(draft)?;
        let number = |id: usize| committed.iter().position(|&other| other == id);
        let mut txns = Vec::new();
        for &id in &committed {
            let txn = &draft.txns[id];
            let reads = external_reads(draft, id)?;
            let source = |value: Value, key| writer(draft, key, value).and_then(number);
            let reads = reads
                .into_iter()
                .map(|(key, value)| (key, source(value, key)));
            let writes: BTreeSet<usize> = txn
                .steps
                .iter()
                .filter(|step| step.written().is_some())
                .map(Step::key)
                .collect();
            txns.push(Txn {
                session: txn.session,
                reads: reads.collect(),
                writes: writes.into_iter().collect(),
            });
        }
        let order = match versions {
            None => Vec::new(),
            Some(orders) => {
                let writers = |(key, order): (usize, &Vec<Value>)| {
                    order
                        .iter()
                        .filter_map(|&value| number(writer(draft, key, value)?))
                        .collect()
                };
                orders.iter().enumerate().map(writers).collect()
            }
        };
        Some(Facts {
            txns,
            keys: draft.keys,
            order,
        })
    }

    /// Whether `model` allows the history; `with_sessions` is whether the causal order includes that of sessions.
    pub fn allows(&self, model: Model, with_sessions: bool) -> bool {
        match model {
            Model::Causal | Model::CausalWeak | Model::CausalMemory => {
                let Some(past) = self.causal_past(with_sessions) else {
                    return false;
                };
                match model {
                    Model::Causal => self.is_convergent(&past),
                    // Each read has an order of its own; those of one key in a transaction share it.
                    Model::CausalWeak => self.all().all(|id| {
                        (0..self.keys).all(|key| {
                            self.explains(&past, id, |reader, of| (reader, of) == (id, key))
                        })
                    }),
                    _ => self.all().all(|id| {
                        let kept = match with_sessions {
                            true => self.session_until(id),
                            false => vec![id],
                        };
                        self.explains(&past, id, |reader, _| kept.contains(&reader))
                    }),
                }
            }
            Model::ReadYourWrites => self.guarantees([true, false, false, false]),
            Model::MonotonicReads => self.guarantees([false, true, false, false]),
            Model::MonotonicWrites => self.guarantees([false, false, true, false]),
            Model::WritesFollowReads => {
                self.causal_past(true).is_some() && self.guarantees([false, false, false, true])
            }
            Model::Pram => self.guarantees([true, true, true, false]),
            _ => panic!("{model} is not judged here"),
        }
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.txns.len()
    }

    fn writes(&self, id: usize, key: usize) -> bool {
        self.txns[id].writes.contains(&key)
    }

    /// The transactions of its session up to `id`, with it.
    fn session_until(&self, id: usize) -> Vec<usize> {
        (0..=id)
            .filter(|&other| self.txns[other].session == self.txns[id].session)
            .collect()
    }

    fn before_in_session(&self, id: usize) -> Vec<usize> {
        let mut session = self.session_until(id);
        session.pop();
        session
    }

    /// The causal past of each transaction; `None` if one is in its own.
    fn causal_past(&self, with_sessions: bool) -> Option<Vec<Set>> {
        let mut past: Vec<Set> = self
            .txns
            .iter()
            .map(|txn| txn.reads.iter().filter_map(|&(_, source)| source).collect())
            .collect();
        if with_sessions {
            for id in self.all() {
                past[id].extend(self.before_in_session(id));
            }
        }
        loop {
            let before: usize = past.iter().map(Set::len).sum();
            for id in self.all() {
                let more: Vec<usize> = past[id]
                    .iter()
                    .flat_map(|&cause| past[cause].clone())
                    .collect();
                past[id].extend(more);
            }
            if past.iter().map(Set::len).sum::<usize>() == before {
                break;
            }
        }
        self.all().all(|id| !past[id].contains(&id)).then_some(past)
    }

    /// Calls `accept` with every order of `members` that agrees with `past` until it accepts one.
    fn some_order(
        &self,
        members: &[usize],
        past: &[Set],
        placed: &mut Vec<usize>,
        accept: &impl Fn(&[usize]) -> bool,
    ) -> bool {
        if placed.len() == members.len() {
            return accept(placed);
        }
        for &id in members {
            let waits = |other: &&usize| past[id].contains(other) && !placed.contains(other);
            if placed.contains(&id) || members.iter().any(|other| waits(&other)) {
                continue;
            }
            placed.push(id);
            if self.some_order(members, past, placed, accept) {
                return true;
            }
            placed.pop();
        }
        false
    }

    /// One order of all transactions: every read returns the last visible write.
    fn is_convergent(&self, past: &[Set]) -> bool {
        let all: Vec<usize> = self.all().collect();
        self.some_order(&all, past, &mut Vec::new(), &|order| {
            let reads_last = |&id: &usize| {
                self.txns[id].reads.iter().all(|&(key, source)| {
                    let visible =
                        |other: &&usize| past[id].contains(other) && self.writes(**other, key);
                    order.iter().rfind(visible).copied() == source
                })
            };
            let agrees = |(key, writers): (usize, &Vec<usize>)| {
                let mut of_key = order.iter().filter(|&&id| self.writes(id, key));
                writers.iter().all(|writer| of_key.next() == Some(writer))
            };
            order.iter().all(reads_last) && self.order.iter().enumerate().all(agrees)
        })
    }

    /// One order of the past of `last`: each read, by reader and key, that `counts` returns the last write before it.
    fn explains(&self, past: &[Set], last: usize, counts: impl Fn(usize, usize) -> bool) -> bool {
        let mut members: Vec<usize> = past[last].iter().copied().collect();
        members.push(last);
        self.some_order(&members, past, &mut Vec::new(), &|order| {
            order.iter().enumerate().all(|(place, &reader)| {
                let reads = self.txns[reader].reads.iter();
                let mut counted = reads.filter(|&&(key, _)| counts(reader, key));
                counted.all(|&(key, source)| {
                    let mut before = order[..place].iter().rev();
                    before.find(|&&id| self.writes(id, key)).copied() == source
                })
            })
        })
    }

    /// What each transaction must take into account under the chosen guarantees: read-your-writes, monotonic reads,
    /// monotonic writes, writes-follow-reads.
    fn taken_into_account(&self, [ryw, mr, mw, wfr]: [bool; 4]) -> Vec<Set> {
        let is_writer = |&id: &usize| !self.txns[id].writes.is_empty();
        let mut vis: Vec<Set> = vec![Set::new(); self.txns.len()];
        loop {
            let before: usize = vis.iter().map(Set::len).sum();
            for id in self.all() {
                let mut set = vis[id].clone();
                set.extend(self.txns[id].reads.iter().filter_map(|&(_, source)| source));
                if ryw {
                    set.extend(self.before_in_session(id).into_iter().filter(is_writer));
                }
                if mr {
                    set.extend(
                        self.before_in_session(id)
                            .into_iter()
                            .flat_map(|other| vis[other].clone()),
                    );
                }
                for write in set.clone() {
                    if mw {
                        set.extend(self.before_in_session(write).into_iter().filter(is_writer));
                    }
                    if wfr {
                        set.extend(
                            self.session_until(write)
                                .into_iter()
                                .flat_map(|other| vis[other].clone()),
                        );
                    }
                }
                vis[id] = set;
            }
            if vis.iter().map(Set::len).sum::<usize>() == before {
                return vis;
            }
        }
    }

    fn guarantees(&self, which: [bool; 4]) -> bool {
        let vis = self.taken_into_account(which);
        (0..self.keys).all(|key| {
            let writers: Vec<usize> = self.all().filter(|&id| self.writes(id, key)).collect();
            let mut older: Vec<Set> = vec![Set::new(); self.txns.len()];
            for id in self.all() {
                for &(_, source) in self.txns[id]
                    .reads
                    .iter()
                    .filter(|&&(other, _)| other == key)
                {
                    let known = vis[id]
                        .iter()
                        .filter(|&&write| self.writes(write, key) && Some(write) != source);
                    let known: Vec<usize> = known.copied().collect();
                    match source {
                        None if !known.is_empty() => return false,
                        None => {}
                        Some(source) => older[source].extend(known),
                    }
                }
            }
            for &id in &writers {
                if which[2] {
                    older[id].extend(
                        self.before_in_session(id)
                            .into_iter()
                            .filter(|&other| self.writes(other, key)),
                    );
                }
                if which[3] {
                    let known = self
                        .session_until(id)
                        .into_iter()
                        .flat_map(|other| vis[other].clone());
                    older[id].extend(known.filter(|&other| other != id && self.writes(other, key)));
                }
            }
            match self.order.get(key) {
                Some(order) => (0..order.len()).all(|place| {
                    order[place + 1..]
                        .iter()
                        .all(|newer| !older[order[place]].contains(newer))
                }),
                None => self.some_order(&writers, &older, &mut Vec::new(), &|_| true),
            }
        })
    }
}

fn writer(draft: &Draft, key: usize, value: Value) -> Option<usize> {
    let wrote = |step: &Step| step.key() == key && step.written() == Some(value);
    draft
        .txns
        .iter()
        .position(|txn| txn.steps.iter().any(wrote))
}

fn last_write(draft: &Draft, id: usize, key: usize) -> Option<Value> {
    let steps = draft.txns[id].steps.iter().rev();
    steps
        .filter(|step| step.key() == key)
        .find_map(Step::written)
}

/// Transactions that succeeded, and those of unknown outcome that one of them read from; by session order. `None` if a
/// read returned what was not written or failed.
fn committed(draft: &Draft) -> Option<Vec<usize>> {
    let ok = |id: &usize| draft.txns[*id].outcome == Outcome::Ok;
    let mut committed: Set = (0..draft.txns.len()).filter(ok).collect();
    for id in committed.clone() {
        for step in &draft.txns[id].steps {
            let Some(value) = step.seen().filter(|&value| value != 0) else {
                continue;
            };
            let source = writer(draft, step.key(), value)?;
            if draft.txns[source].outcome == Outcome::Fail {
                return None;
            }
            committed.insert(source);
        }
    }
    let mut committed: Vec<usize> = committed.into_iter().collect();
    committed.sort_by_key(|&id| (draft.txns[id].invoke, id));
    Some(committed)
}

/// Reads of keys that the transaction has not written before. `None` if one makes no sense.
fn external_reads(draft: &Draft, id: usize) -> Option<Vec<(usize, Value)>> {
    let txn = &draft.txns[id];
    let mut external = Vec::new();
    for (place, step) in txn.steps.iter().enumerate() {
        let Some(value) = step.seen().filter(|_| txn.outcome == Outcome::Ok) else {
            continue;
        };
        let before = txn.steps[..place].iter().rev();
        let own = before
            .filter(|other| other.key() == step.key())
            .find_map(Step::written);
        match own {
            Some(own) if own == value => {}
            Some(_) => return None,
            None if value == 0 => external.push((step.key(), 0)),
            None => {
                let source = writer(draft, step.key(), value)?;
                if source == id || last_write(draft, source, step.key()) != Some(value) {
                    return None;
                }
                external.push((step.key(), value));
            }
        }
    }
    Some(external)
}
