//! Which part of what sessions came to know each transaction must take into account.

use std::ops::Range;

use crate::causal::{CausalOrder, Clocks, Visit};
use crate::check::Budget;
use crate::history::KeyId;
use crate::prepass::{Committed, INIT, Node, Undecided};

use super::Guarantee;
use super::seen::{Entry, Seen};

/// Places of entries of a key, all of one session.
pub(super) type Window = Range<usize>;

/// Someone who must be newer than all that windows contain, except itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newer {
    pub(super) key: KeyId,
    pub(super) writer: Node,
    /// Whether it was read by someone who takes the windows into account; otherwise it was written by one.
    pub(super) is_read: bool,
}

/// Goes through all that a guarantee asks for.
pub(super) struct Windows<'w, 'a, 'h> {
    pub(super) committed: &'a Committed<'h>,
    pub(super) seen: &'w Seen,
    pub(super) budget: &'w Budget<'w>,
}

impl Windows<'_, '_, '_> {
    /// The entries of a key with `at` in a range of nodes of a session.
    fn between(&self, key: KeyId, nodes: Range<Node>) -> Window {
        let entries = self.seen.of(key);
        let place = |node| entries.partition_point(|entry: &Entry| entry.at < node);
        place(nodes.start)..place(nodes.end)
    }

    /// Calls `ask` with every read, and the windows that it must take into account beside what its transaction read.
    pub(super) fn visit(
        &self,
        guarantee: Guarantee,
        order: &CausalOrder,
        mut ask: impl FnMut(Newer, Window) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        match guarantee {
            Guarantee::WritesFollowReads => self.absorbed(order, &mut ask),
            _ => self.by_session(guarantee, &mut ask),
        }
    }

    /// All but writes-follow-reads, session by session.
    fn by_session(
        &self,
        guarantee: Guarantee,
        ask: &mut impl FnMut(Newer, Window) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let committed = self.committed;
        let sessions: Vec<Range<Node>> = committed.sessions().collect();
        let mut known = Known::new(sessions.len());
        for nodes in &sessions {
            known.forget();
            for node in nodes.clone() {
                match guarantee {
                    Guarantee::MonotonicWrites => known.forget(),
                    Guarantee::Pram => known.add(committed.session(node), node),
                    _ => {}
                }
                for read in committed
                    .reads(node)
                    .iter()
                    .filter(|read| read.from != INIT)
                {
                    known.add(committed.session(read.from), read.from + 1);
                }
                for read in committed.reads(node) {
                    let newer = Newer {
                        key: read.key,
                        writer: read.from,
                        is_read: true,
                    };
                    self.budget.spend(1)?;
                    match guarantee {
                        Guarantee::ReadYourWrites => {
                            ask(newer, self.between(read.key, nodes.start..node))?
                        }
                        Guarantee::MonotonicReads => {
                            ask(newer, self.between(read.key, nodes.start..node + 1))?
                        }
                        _ => {
                            self.budget.spend(known.sessions.len())?;
                            for &session in &known.sessions {
                                let until = known.until[session as usize];
                                let all = sessions[session as usize].start..until;
                                let window = self.between(read.key, all);
                                // Writes of a session are ordered: the last one will do.
                                ask(
                                    newer,
                                    window.end.saturating_sub(1).max(window.start)..window.end,
                                )?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes-follow-reads: who reads from a transaction takes into account what its session had read until then, and
    /// what those had taken into account that it had read from.
    fn absorbed(
        &self,
        order: &CausalOrder,
        ask: &mut impl FnMut(Newer, Window) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let committed = self.committed;
        let clocks = Clocks::new(order, |node| !committed.reads(node).is_empty(), self.budget)?;
        clocks.visit(self.budget, |visit| {
            for read in committed.reads(visit.node) {
                let newer = Newer {
                    key: read.key,
                    writer: read.from,
                    is_read: true,
                };
                // What the source of this read had taken into account is older than it by what is asked of its writes.
                let others = committed.reads(visit.node).iter();
                for other in others.filter(|other| other.from != read.from) {
                    let past = visit.past_of_source(other.from);
                    let count = |chain| past.count(chain);
                    self.groups(&clocks, &visit, read.key, count, |window| {
                        ask(newer, window)
                    })?;
                }
            }
            for write in committed.writes(visit.node) {
                let newer = Newer {
                    key: write.key,
                    writer: visit.node,
                    is_read: false,
                };
                ask(newer, self.between(write.key, visit.node..visit.node + 1))?;
                let count = |chain| visit.past.count(chain);
                self.groups(&clocks, &visit, write.key, count, |window| {
                    ask(newer, window)
                })?;
            }
            Ok(())
        })
    }

    /// For each chain of this pass, the entries of `key` at its first `count` members.
    fn groups(
        &self,
        clocks: &Clocks,
        visit: &Visit,
        key: KeyId,
        count: impl Fn(u32) -> u16,
        mut found: impl FnMut(Window) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let entries = self.seen.of(key);
        let chain = |entry: &Entry| clocks.chains.chain(entry.at);
        let mut start = entries.partition_point(|entry| chain(entry) < visit.chains.start);
        while let Some(first) = entries
            .get(start)
            .filter(|entry| chain(entry) < visit.chains.end)
        {
            self.budget.spend(4)?;
            let of_chain = chain(first);
            let rest = &entries[start..];
            let length = rest.partition_point(|entry| chain(entry) == of_chain);
            let members = count(of_chain);
            let known =
                rest[..length].partition_point(|entry| clocks.chains.place(entry.at) <= members);
            if known > 0 {
                found(start..start + known)?;
            }
            start += length;
        }
        Ok(())
    }
}

/// Of each session, how much is known.
struct Known {
    /// By session: the first node that is not known.
    until: Vec<Node>,
    /// Sessions of which something is known.
    sessions: Vec<u32>,
}

impl Known {
    fn new(sessions: usize) -> Self {
        Known {
            until: vec![0; sessions],
            sessions: Vec::new(),
        }
    }

    fn forget(&mut self) {
        for session in self.sessions.drain(..) {
            self.until[session as usize] = 0;
        }
    }

    fn add(&mut self, session: usize, until: Node) {
        let known = &mut self.until[session];
        if *known == 0 {
            self.sessions.push(session as u32);
        }
        *known = (*known).max(until);
    }
}
