//! The order that the versions of each key must have, where it is not known.

use std::collections::VecDeque;

use crate::check::Budget;
use crate::graph::{Versions, components};
use crate::history::KeyId;
use crate::prepass::{Committed, Node, Rows, Undecided};

use super::seen::Seen;
use super::window::{Newer, Window};

/// Why one version is older than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The order of versions says so.
    Known,
    /// One session wrote both.
    SameSession,
    /// Someone read the newer one who must take the older one into account.
    Read,
    /// Who wrote the newer one had taken the older one into account.
    Written,
    /// From a version to a set that contains it, or from a set to a greater one.
    Part,
}

/// An older and a newer version of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) older: Node,
    pub(super) newer: Node,
    pub(super) key: KeyId,
    pub(super) why: Why,
}

/// What is older than what.
///
/// Vertices are the writers of all keys, by [`Committed::writer_index`], and sets of writers: over the entries that
/// [`Seen`] has of a key stands a tree, so that a window consists of a logarithmic number of sets.
pub(super) struct VersionGraph<'g, 'a, 'h> {
    committed: &'a Committed<'h>,
    seen: &'g Seen,
    budget: &'g Budget<'g>,
    /// By key: the places of its entries, ascending by writer.
    by_writer: Rows<u32>,
    edges: Vec<(u32, (u32, Why))>,
}

impl<'g, 'a, 'h> VersionGraph<'g, 'a, 'h> {
    /// What is known of the order of versions.
    pub(super) fn new(
        committed: &'a Committed<'h>,
        versions: &Versions,
        seen: &'g Seen,
        budget: &'g Budget,
    ) -> Result<Self, Undecided> {
        budget.reserve((committed.writer_count() + seen.len()) * 48)?;
        let mut by_writer = Rows::default();
        for key in committed.history.keys() {
            let entries = seen.of(key);
            let mut places: Vec<u32> = (0..entries.len() as u32).collect();
            places.sort_unstable_by_key(|&place| (entries[place as usize].writer, place));
            by_writer.push(places);
        }
        let mut graph = VersionGraph {
            committed,
            seen,
            budget,
            by_writer,
            edges: Vec::new(),
        };
        for key in committed
            .history
            .keys()
            .filter(|&key| !versions.rest(key).is_empty())
        {
            let order = versions.order(key);
            for pair in order.windows(2) {
                graph.add(key, pair[0], pair[1], Why::Known)?;
            }
            for &rest in versions.rest(key) {
                if let Some(&last) = order.last() {
                    graph.add(key, last, rest, Why::Known)?;
                }
            }
            graph.build_sets(key)?;
        }
        Ok(graph)
    }

    fn build_sets(&mut self, key: KeyId) -> Result<(), Undecided> {
        let entries = self.seen.of(key).len();
        for child in 2..2 * entries {
            let (from, to) = (self.set(key, child)?, self.set(key, child / 2)?);
            self.edge(from, to, Why::Part)?;
        }
        Ok(())
    }

    /// The vertex of a set: the sets of a key with n entries have the numbers `1..2 * n`, set `i` is the union of sets
    /// `2 * i` and `2 * i + 1`, and from n on they are single entries.
    fn set(&self, key: KeyId, number: usize) -> Result<u32, Undecided> {
        let entries = self.seen.of(key);
        match number.checked_sub(entries.len()) {
            Some(place) => self.vertex(key, entries[place].writer),
            None => Ok((self.committed.writer_count() + self.seen.start(key) + number) as u32),
        }
    }

    fn vertex(&self, key: KeyId, writer: Node) -> Result<u32, Undecided> {
        let index = self.committed.writer_index(key, writer);
        let lost = || Undecided("a read returned a version that its writer overwrote".to_owned());
        index.map(|index| index as u32).ok_or_else(lost)
    }

    fn edge(&mut self, from: u32, to: u32, why: Why) -> Result<(), Undecided> {
        if self.edges.len() == self.edges.capacity() {
            let room = (2 * self.edges.len()).max(1 << 10);
            // They are copied once, sorted by vertex.
            self.budget
                .reserve(2 * room * size_of::<(u32, (u32, Why))>())?;
            self.edges.reserve_exact(room - self.edges.len());
        }
        self.edges.push((from, (to, why)));
        Ok(self.budget.spend(1)?)
    }

    /// Adds that one version of a key is older than another.
    pub(super) fn add(
        &mut self,
        key: KeyId,
        older: Node,
        newer: Node,
        why: Why,
    ) -> Result<(), Undecided> {
        let (older, newer) = (self.vertex(key, older)?, self.vertex(key, newer)?);
        self.edge(older, newer, why)
    }

    /// Adds that all entries of a window are older than `newer`, except itself.
    pub(super) fn add_window(&mut self, newer: Newer, window: Window) -> Result<(), Undecided> {
        let why = if newer.is_read {
            Why::Read
        } else {
            Why::Written
        };
        let entries = self.seen.of(newer.key);
        let by_writer = self.by_writer.row(newer.key.index());
        let entry = |place: u32| (entries[place as usize].writer, place as usize);
        let itself =
            by_writer.partition_point(|&place| entry(place) < (newer.writer, window.start));
        let itself = by_writer.get(itself).map(|&place| entry(place));
        match itself {
            Some((writer, place)) if writer == newer.writer && place < window.end => {
                self.add_sets(newer, window.start..place, why)?;
                self.add_sets(newer, place + 1..window.end, why)
            }
            _ => self.add_sets(newer, window, why),
        }
    }

    fn add_sets(&mut self, newer: Newer, window: Window, why: Why) -> Result<(), Undecided> {
        let to = self.vertex(newer.key, newer.writer)?;
        let entries = self.seen.of(newer.key).len();
        let (mut start, mut end) = (window.start + entries, window.end + entries);
        while start < end {
            if start % 2 == 1 {
                let from = self.set(newer.key, start)?;
                self.edge(from, to, why)?;
                start += 1;
            }
            if end % 2 == 1 {
                end -= 1;
                let from = self.set(newer.key, end)?;
                self.edge(from, to, why)?;
            }
            (start, end) = (start / 2, end / 2);
        }
        Ok(())
    }

    /// A cycle for each strongly connected component, at most `max`; the shortest through some of its versions.
    pub(super) fn cycles(self, max: usize) -> Result<Vec<Vec<Hop>>, Undecided> {
        /// A shorter cycle is wanted to be read, and is not worth minutes.
        const SEARCHES_MAX: usize = 64;
        let writers = self.committed.writer_count() as u32;
        let vertices = self.committed.writer_count() + self.seen.len() + 1;
        let links = Rows::new(vertices, &self.edges);
        let components = components(vertices, |vertex, edge| {
            let &(to, _) = links.row(vertex as usize).get(edge as usize)?;
            Some((to != vertex).then_some(to))
        });
        let mut cycles = Vec::new();
        for component in components.iter().take(max) {
            let versions = component.iter().filter(|&&vertex| vertex < writers);
            let mut best: Option<Vec<(u32, u32, Why)>> = None;
            for &start in versions.take(SEARCHES_MAX) {
                self.budget.spend(component.len())?;
                let cycle = shortest_cycle(&links, component, start);
                let is_shorter =
                    |cycle: &Vec<_>| best.as_ref().is_none_or(|best| cycle.len() < best.len());
                best = cycle.filter(is_shorter).or(best);
            }
            cycles.extend(best.map(|cycle| self.hops(&cycle)));
        }
        Ok(cycles)
    }

    /// A cycle that starts at a version, without the sets that it goes through.
    fn hops(&self, cycle: &[(u32, u32, Why)]) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut older = None;
        for &(from, to, why) in cycle {
            let from = *older.get_or_insert(from);
            if why == Why::Part {
                continue;
            }
            let (key, older_writer) = self.writer(from);
            hops.push(Hop {
                older: older_writer,
                newer: self.writer(to).1,
                key,
                why,
            });
            older = None;
        }
        hops
    }

    /// The writer that a vertex is, and its key.
    fn writer(&self, vertex: u32) -> (KeyId, Node) {
        let write = self.committed.writer_at(vertex as usize);
        (write.key, write.node)
    }
}

/// Breadth-first search from `start` back to it, within an ascending list of vertices.
fn shortest_cycle(
    links: &Rows<(u32, Why)>,
    inside: &[u32],
    start: u32,
) -> Option<Vec<(u32, u32, Why)>> {
    let place = |vertex: u32| inside.binary_search(&vertex).ok();
    let mut entered_by: Vec<Option<(u32, Why)>> = vec![None; inside.len()];
    let mut frontier = VecDeque::from([start]);
    let goal = place(start)?;
    while let Some(from) = frontier.pop_front() {
        for &(to, why) in links.row(from as usize) {
            let Some(place) = place(to) else {
                continue;
            };
            if entered_by[place].is_none() && to != from {
                entered_by[place] = Some((from, why));
                frontier.push_back(to);
            }
        }
        if entered_by[goal].is_some() {
            break;
        }
    }
    let mut cycle = Vec::new();
    let mut vertex = start;
    loop {
        let (from, why) = entered_by[place(vertex)?]?;
        cycle.push((from, vertex, why));
        vertex = from;
        if vertex == start {
            cycle.reverse();
            return Some(cycle);
        }
    }
}
