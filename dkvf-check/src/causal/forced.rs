//! The order of versions that reads force: if a transaction reads a version although a model makes another one visible
//! to it, the other one is older.

use crate::check::Budget;
use crate::graph::Versions;
use crate::history::KeyId;
use crate::prepass::{Committed, INIT, Node, Read, Rows, Undecided};

use super::clocks::{Clocks, Visit};

/// A reader of what `newer` wrote to `key` sees `older`, which wrote it, too. So `older` comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Forced {
    pub(crate) older: Node,
    pub(crate) newer: Node,
    pub(crate) key: KeyId,
}

/// What reads force, and how it agrees with what is known of the order of versions.
pub(crate) struct Forces<'a, 'h> {
    committed: &'a Committed<'h>,
    versions: &'a Versions,
    /// What is not known.
    pub(crate) open: Vec<Forced>,
    /// What the known order contradicts: the reads are stale. Those of the initial version come first.
    pub(crate) stale: Vec<Forced>,
    /// How many entries of `open` may be there before repetitions are removed.
    room: usize,
}

impl<'a, 'h> Forces<'a, 'h> {
    pub(crate) fn new(committed: &'a Committed<'h>, versions: &'a Versions) -> Self {
        Forces {
            committed,
            versions,
            open: Vec::new(),
            stale: Vec::new(),
            room: 1 << 20,
        }
    }

    /// Adds that a read of the version of `newer` sees that of `older`.
    pub(crate) fn add(&mut self, forced: Forced, budget: &Budget) -> Result<(), Undecided> {
        /// One would do, but a short explanation is wanted.
        const STALE_MAX: usize = 1 << 12;
        let place = |node| self.versions.place(self.committed, forced.key, node);
        match (place(forced.older), place(forced.newer)) {
            (Some(older), Some(newer)) if older < newer => {}
            (Some(_), None) => {}
            (None, None) => {
                self.open.push(forced);
                self.compact(budget)?;
            }
            _ if self.stale.len() < STALE_MAX => self.stale.push(forced),
            _ => {}
        }
        Ok(())
    }

    fn compact(&mut self, budget: &Budget) -> Result<(), Undecided> {
        if self.open.len() < self.room {
            return Ok(());
        }
        self.open.sort_unstable();
        self.open.dedup();
        budget.spend(self.room)?;
        self.room = self.room.max(self.open.len() * 2);
        Ok(budget.reserve(self.room * size_of::<Forced>())?)
    }

    /// Removes repetitions.
    pub(crate) fn finish(mut self) -> Self {
        for forces in [&mut self.open, &mut self.stale] {
            forces.sort_unstable();
            forces.dedup();
        }
        self.stale.sort_by_key(|forced| forced.newer != INIT);
        self
    }
}

/// The writers of a key in one chain.
#[derive(Clone, Copy)]
struct Group {
    chain: u32,
    /// Where they lie in [`Committed::writers`].
    start: u32,
    end: u32,
}

/// The latest writers of a key that are in a causal past.
pub(crate) struct LatestWriters<'c, 'o, 'a, 'h> {
    clocks: &'c Clocks<'o, 'a, 'h>,
    committed: &'a Committed<'h>,
    /// By key, ascending by chain.
    groups: Rows<Group>,
}

impl<'c, 'o, 'a, 'h> LatestWriters<'c, 'o, 'a, 'h> {
    /// Takes linear time.
    pub(crate) fn new(
        clocks: &'c Clocks<'o, 'a, 'h>,
        committed: &'a Committed<'h>,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        budget.reserve(committed.writer_count() * size_of::<Group>())?;
        let mut groups = Rows::default();
        for key in committed.history.keys() {
            let mut start = 0;
            let chain = |node| clocks.chains.chain(node);
            let writers = committed.writers(key);
            groups.push(
                writers
                    .chunk_by(|a, b| chain(a.node) == chain(b.node))
                    .map(|group| {
                        let end = start + group.len() as u32;
                        let group = Group {
                            chain: chain(group[0].node),
                            start,
                            end,
                        };
                        start = end;
                        group
                    }),
            );
        }
        Ok(LatestWriters {
            clocks,
            committed,
            groups,
        })
    }

    /// Calls `found` with the latest writer of each chain of this pass that a read sees and that is not in the causal
    /// past of the version it returned. Earlier writers of a chain are causes of the latest one.
    pub(crate) fn unknown_to_source(
        &self,
        visit: &Visit,
        read: &Read,
        budget: &Budget,
        mut found: impl FnMut(Node) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let groups = self.groups.row(read.key.index());
        let first = groups.partition_point(|group| group.chain < visit.chains.start);
        let groups = &groups[first..];
        let source = visit.past_of_source(read.from);
        let mut steps = 1;
        for group in groups
            .iter()
            .take_while(|group| group.chain < visit.chains.end)
        {
            steps += 1;
            let (seen, known) = (visit.past.count(group.chain), source.count(group.chain));
            if seen <= known {
                continue;
            }
            let writers =
                &self.committed.writers(read.key)[group.start as usize..group.end as usize];
            let place = |node| self.clocks.chains.place(node);
            let visible = writers.partition_point(|writer| place(writer.node) <= seen);
            if let Some(latest) = writers[..visible].last()
                && place(latest.node) > known
            {
                found(latest.node)?;
            }
        }
        Ok(budget.spend(steps)?)
    }
}
