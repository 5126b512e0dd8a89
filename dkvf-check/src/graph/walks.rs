//! Breadth-first searches for closed walks.

use std::collections::VecDeque;

use crate::check::Budget;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::Undecided;
use crate::verdict::EdgeKind;

use super::Link;
use super::level::{Level, is_allowed};
use super::search::Part;

/// Edges that a search for a shorter cycle visits once it has one: the shortest cycle is wanted to be read, and is not
/// worth minutes.
const EFFORT: usize = 20_000_000;

/// The edges and cycles that are looked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) level: Level,
    pub(super) order: Order,
}

impl Wanted {
    pub(super) fn step(self, state: u32, kind: EdgeKind) -> Option<u32> {
        if !is_allowed(self.order, kind) {
            return None;
        }
        self.level.step(state, kind)
    }
}

/// An edge of a walk, between own numbers of a part.
#[derive(Clone, Copy)]
pub(super) struct Hop {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: EdgeKind,
    pub(super) key: Option<KeyId>,
}

impl Hop {
    pub(super) fn new(from: u32, link: &Link) -> Self {
        Hop {
            from,
            to: link.to,
            kind: link.kind,
            key: link.key,
        }
    }
}

pub(super) type Walk = Vec<Hop>;

/// Which walks a search keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The shortest one.
    Shortest,
    /// About so many, each the shortest from where it starts.
    Some(usize),
}

/// A place of a search: a vertex, the state of the automaton, and whether a session edge led there.
type Place = usize;

/// Breadth-first searches in a part.
pub(super) struct Walks<'a, 'g> {
    part: &'a Part<'g>,
    wanted: Wanted,
    budget: &'a Budget<'a>,
    keep: Keep,
    pub(super) found: Vec<Walk>,
    /// Only shorter walks are wanted.
    limit: u32,
    effort: usize,
    /// By place: the number of the search that reached it last, the length of the way, and the hop that led there.
    round: u32,
    reached: Vec<(u32, u32)>,
    arrived_by: Vec<(Place, u32)>,
}

impl<'a, 'g> Walks<'a, 'g> {
    pub(super) fn new(
        part: &'a Part<'g>,
        wanted: Wanted,
        keep: Keep,
        budget: &'a Budget,
    ) -> Result<Self, Undecided> {
        let places = part.vertices.len() * wanted.level.states() as usize * 2;
        budget.reserve(places * 24)?;
        Ok(Walks {
            part,
            wanted,
            budget,
            keep,
            found: Vec::new(),
            limit: u32::MAX,
            effort: 0,
            round: 0,
            reached: vec![(0, 0); places],
            arrived_by: vec![(0, 0); places],
        })
    }

    fn place(&self, (vertex, state): (u32, u32), by_session: bool) -> Place {
        let states = self.wanted.level.states();
        ((vertex * states + state) as Place) << 1 | Place::from(by_session)
    }

    fn vertex(&self, place: Place) -> (u32, u32) {
        let states = self.wanted.level.states();
        let at = (place >> 1) as u32;
        (at / states, at % states)
    }

    /// Looks for a walk of at least one edge, if only the shortest is kept a shorter one; whether there is one.
    ///
    /// A stretch of a session and a way through barriers count as one edge each.
    pub(super) fn shortest(&mut self, from: (u32, u32), to: (u32, u32)) -> Result<bool, Undecided> {
        let is_enough = match self.keep {
            Keep::Shortest => self.effort > EFFORT,
            Keep::Some(count) => self.found.len() >= count,
        };
        if is_enough {
            return Ok(false);
        }
        self.round += 1;
        let mut limit = self.limit;
        let start = self.place(from, false);
        self.reached[start] = (self.round, 0);
        let mut queue = VecDeque::from([(start, 0)]);
        let mut end = None;
        while let Some((place, length)) = queue.pop_front() {
            if length >= limit {
                break;
            }
            if self.reached[place] != (self.round, length) {
                continue;
            }
            let (vertex, state) = self.vertex(place);
            let links = self.part.links.row(vertex as usize);
            self.budget.spend(links.len() + 1)?;
            self.effort += links.len();
            for (index, link) in (0..).zip(links) {
                let Some(state) = self.wanted.step(state, link.kind) else {
                    continue;
                };
                let cost = self.cost(place, link);
                let next = length + cost;
                if (link.to, state) == to && next < limit {
                    limit = next;
                    end = Some((place, index));
                }
                let to = self.place((link.to, state), link.kind == EdgeKind::Session);
                let (round, known) = self.reached[to];
                if round != self.round || next < known {
                    self.reached[to] = (self.round, next);
                    self.arrived_by[to] = (place, index);
                    if cost == 0 {
                        queue.push_front((to, next));
                    } else {
                        queue.push_back((to, next));
                    }
                }
            }
        }
        let Some(end) = end else { return Ok(false) };
        if self.keep == Keep::Shortest {
            self.limit = limit;
            self.found.clear();
        }
        let walk = self.trace(start, end);
        self.found.push(walk);
        Ok(true)
    }

    fn cost(&self, place: Place, link: &Link) -> u32 {
        let (vertex, _) = self.vertex(place);
        let continues_session = link.kind == EdgeKind::Session && place & 1 == 1;
        let leaves_barrier = self
            .part
            .graph
            .is_barrier(self.part.vertices[vertex as usize]);
        u32::from(!continues_session && !leaves_barrier)
    }

    /// The hops from `start` up to the last one, which is given.
    fn trace(&self, start: Place, mut last: (Place, u32)) -> Vec<Hop> {
        let mut hops = Vec::new();
        loop {
            let (place, index) = last;
            let (from, _) = self.vertex(place);
            let link = self.part.links.row(from as usize)[index as usize];
            hops.push(Hop::new(from, &link));
            if place == start {
                break;
            }
            last = self.arrived_by[place];
        }
        hops.reverse();
        hops
    }
}
