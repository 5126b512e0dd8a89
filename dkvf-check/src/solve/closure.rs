//! Which places of a graph reach which others, for all pairs.

use crate::check::Budget;
use crate::graph::{Graph, Level};
use crate::prepass::Undecided;
use crate::verdict::EdgeKind;

/// The transitive closure of the product of a graph and the automaton of a level: a bit for each pair of places.
pub(super) struct Closure {
    level: Level,
    /// Words in a row.
    words: usize,
    /// By place, which is vertex times states plus state.
    rows: Vec<u64>,
}

impl Closure {
    /// `None` if the product has a cycle. Takes O(E V / 64) time and V<sup>2</sup> bits.
    pub(super) fn new(
        graph: &Graph,
        level: Level,
        budget: &Budget,
    ) -> Result<Option<Self>, Undecided> {
        let states = level.states() as usize;
        let count = graph.vertex_count() * states;
        let words = count.div_ceil(64);
        budget.reserve(count.saturating_mul(words * 8 + 16))?;
        let Some(order) = topological(graph, level, count) else {
            return Ok(None);
        };
        let mut closure = Closure {
            level,
            words,
            rows: vec![0; count * words],
        };
        for place in order.into_iter().rev() {
            closure.rows[place * words + place / 64] |= 1 << (place % 64);
            for next in successors(graph, level, place) {
                budget.spend(words)?;
                for word in 0..words {
                    closure.rows[place * words + word] |= closure.rows[next * words + word];
                }
            }
        }
        Ok(Some(closure))
    }

    /// Whether an edge of `kind` would close a cycle that the level contains.
    pub(super) fn closes(&self, from: u32, to: u32, kind: EdgeKind) -> bool {
        let states = self.level.states();
        (0..states).any(|before| {
            let Some(after) = self.level.step(before, kind) else {
                return false;
            };
            // A path from state 0 counts anti-dependencies; any count it allows will do.
            let is_counter = self.level == Level::OneAnti;
            let mut ends = (0..states).filter(|&end| is_counter || end == before);
            (before == 0 || !is_counter) && ends.any(|end| self.reaches((to, after), (from, end)))
        })
    }

    fn reaches(&self, from: (u32, u32), to: (u32, u32)) -> bool {
        let place = |(vertex, state)| (vertex * self.level.states() + state) as usize;
        let (from, to) = (place(from), place(to));
        self.rows[from * self.words + to / 64] >> (to % 64) & 1 == 1
    }
}

fn successors(graph: &Graph, level: Level, place: usize) -> impl Iterator<Item = usize> {
    let states = level.states() as usize;
    let (vertex, state) = ((place / states) as u32, (place % states) as u32);
    graph.links(vertex).iter().filter_map(move |link| {
        let state = level.step(state, link.kind)?;
        Some(link.to as usize * states + state as usize)
    })
}

fn topological(graph: &Graph, level: Level, count: usize) -> Option<Vec<usize>> {
    let mut missing = vec![0_u32; count];
    for place in 0..count {
        successors(graph, level, place).for_each(|next| missing[next] += 1);
    }
    let mut order: Vec<usize> = (0..count).filter(|&place| missing[place] == 0).collect();
    let mut done = 0;
    while let Some(&place) = order.get(done) {
        done += 1;
        for next in successors(graph, level, place) {
            missing[next] -= 1;
            if missing[next] == 0 {
                order.push(next);
            }
        }
    }
    (order.len() == count).then_some(order)
}
