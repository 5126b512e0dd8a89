//! Which vertices reach which others, for many pairs at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::check::Budget;
use crate::prepass::Undecided;

/// An acyclic graph with vertices `0..count`.
pub(super) struct Acyclic {
    /// Vertices in topological order.
    order: Vec<u32>,
    /// By vertex: its place in `order`.
    place: Vec<u32>,
    /// By place: where its edges lie in `targets`.
    starts: Vec<u32>,
    /// Places where edges end.
    targets: Vec<u32>,
}

/// How many sources one pass follows.
const SOURCES: usize = 512;

/// The places of a source and of a target, and the position of their pair.
type Question = (u32, u32, usize);

/// A bit for each source.
type Reached = [u64; SOURCES / 64];

impl Acyclic {
    /// The graph of `edges`, ordered so that vertices with small numbers come early; `None` if it has a cycle.
    pub(super) fn new(count: usize, edges: &[(u32, u32)]) -> Option<Self> {
        let rows = crate::prepass::Rows::new(count, edges);
        let mut missing = vec![0_u32; count];
        for &(_, to) in edges {
            missing[to as usize] += 1;
        }
        let mut ready: BinaryHeap<Reverse<u32>> = (0..count as u32)
            .filter(|&vertex| missing[vertex as usize] == 0)
            .map(Reverse)
            .collect();
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse(vertex)) = ready.pop() {
            order.push(vertex);
            for &to in rows.row(vertex as usize) {
                missing[to as usize] -= 1;
                if missing[to as usize] == 0 {
                    ready.push(Reverse(to));
                }
            }
        }
        if order.len() < count {
            return None;
        }
        let mut place = vec![0; count];
        for (index, &vertex) in (0..).zip(&order) {
            place[vertex as usize] = index;
        }
        let (mut starts, mut targets) = (vec![0], Vec::with_capacity(edges.len()));
        for &vertex in &order {
            targets.extend(
                rows.row(vertex as usize)
                    .iter()
                    .map(|&to| place[to as usize]),
            );
            starts.push(targets.len() as u32);
        }
        Some(Acyclic {
            order,
            place,
            starts,
            targets,
        })
    }

    /// Of `pairs`, which first vertex reaches which second one; the positions of those that do, ascending.
    ///
    /// Follows [`SOURCES`] sources at a time, and only as far as a target of theirs can be: O(E V / 64) at worst, about
    /// linear if edges and pairs lead to places nearby.
    pub(super) fn reaching(
        &self,
        pairs: &[(u32, u32)],
        budget: &Budget,
    ) -> Result<Vec<usize>, Undecided> {
        budget.reserve(self.order.len() * size_of::<Reached>() + pairs.len() * 16)?;
        let place = |vertex: u32| self.place[vertex as usize];
        let mut questions: Vec<Question> = pairs
            .iter()
            .enumerate()
            .map(|(index, &(from, to))| (place(from), place(to), index))
            .filter(|&(from, to, _)| from < to)
            .collect();
        questions.sort_unstable();
        let mut found = Vec::new();
        let mut reached: Vec<Reached> = vec![[0; SOURCES / 64]; self.order.len()];
        let mut rest = &questions[..];
        while !rest.is_empty() {
            let (batch, next) = first_sources(rest);
            rest = next;
            let (first, last) = self.mark(batch, &mut reached);
            self.spread(first, last, &mut reached, budget)?;
            answer(batch, &reached, &mut found);
            reached[first..=last].fill([0; SOURCES / 64]);
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Marks each source of a batch with its bit; returns the first and the last place of interest.
    fn mark(&self, batch: &[Question], reached: &mut [Reached]) -> (usize, usize) {
        for (bit, source) in batch.chunk_by(|a, b| a.0 == b.0).enumerate() {
            reached[source[0].0 as usize][bit / 64] |= 1 << (bit % 64);
        }
        let last = batch.iter().map(|question| question.1).max().unwrap_or(0);
        (batch[0].0 as usize, last as usize)
    }

    fn spread(
        &self,
        first: usize,
        last: usize,
        reached: &mut [Reached],
        budget: &Budget,
    ) -> Result<(), Undecided> {
        for from in first..last {
            let bits = reached[from];
            if bits == [0; SOURCES / 64] {
                continue;
            }
            let targets = &self.targets[self.starts[from] as usize..self.starts[from + 1] as usize];
            budget.spend(targets.len() + 1)?;
            for &to in targets.iter().filter(|&&to| to as usize <= last) {
                for (word, more) in reached[to as usize].iter_mut().zip(bits) {
                    *word |= more;
                }
            }
        }
        Ok(())
    }
}

/// The questions about the first [`SOURCES`] sources, and the others.
fn first_sources(questions: &[Question]) -> (&[Question], &[Question]) {
    let sources = questions.chunk_by(|a, b| a.0 == b.0);
    questions.split_at(sources.take(SOURCES).map(<[_]>::len).sum())
}

fn answer(batch: &[Question], reached: &[Reached], found: &mut Vec<usize>) {
    for (bit, source) in batch.chunk_by(|a, b| a.0 == b.0).enumerate() {
        let is_reached = |to: u32| reached[to as usize][bit / 64] >> (bit % 64) & 1 == 1;
        let answers = source.iter().filter(|&&(_, to, _)| is_reached(to));
        found.extend(answers.map(|&(_, _, index)| index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_more_sources_than_one_pass_follows_are_all_answered() {
        let count = 3 * SOURCES as u32;
        // Two chains, even and odd.
        let edges: Vec<_> = (0..count - 2).map(|v| (v, v + 2)).collect();
        let graph = Acyclic::new(count as usize, &edges).unwrap();
        let mut pairs: Vec<_> = (0..count - 10)
            .flat_map(|v| [(v, v + 9), (v, v + 10)])
            .collect();
        pairs.push((count - 1, 1));
        let expected: Vec<_> = (0..count as usize - 10).map(|v| 2 * v + 1).collect();
        let found = graph.reaching(&pairs, &Budget::default());
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn a_cycle_is_no_acyclic_graph() {
        assert!(Acyclic::new(2, &[(0, 1), (1, 0)]).is_none());
    }
}
