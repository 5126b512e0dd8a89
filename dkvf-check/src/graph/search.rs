//! The shortest cycle that a level forbids.

use std::collections::VecDeque;

use crate::check::Budget;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::{Node, Rows, Undecided};
use crate::verdict::EdgeKind;

use super::components::components;
use super::level::{Level, is_allowed};
use super::reach::Acyclic;
use super::{Graph, Link};

/// An edge of a cycle of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) kind: EdgeKind,
    pub(crate) key: Option<KeyId>,
}

/// Edges that a search for a shorter cycle visits once it has one: the shortest cycle is wanted to be read, and is not
/// worth minutes.
const EFFORT: usize = 20_000_000;

/// A strongly connected component of a graph, with vertices of its own numbers.
#[derive(Clone)]
pub(crate) struct Part<'g> {
    graph: &'g Graph,
    /// By own number, ascending by time: the vertex of the graph.
    vertices: Vec<u32>,
    /// Dependencies come before the order of sessions and real time, so that paths of equal length prefer them.
    links: Rows<Link>,
}

/// The edges and cycles that are looked for.
#[derive(Clone, Copy)]
struct Wanted {
    level: Level,
    order: Order,
}

impl Wanted {
    fn step(self, state: u32, kind: EdgeKind) -> Option<u32> {
        if !is_allowed(self.order, kind) {
            return None;
        }
        self.level.step(state, kind)
    }
}

impl<'g> Part<'g> {
    /// The part of `graph` that `vertices` are.
    pub(crate) fn new(graph: &'g Graph, mut vertices: Vec<u32>) -> Self {
        let mut numbers: Vec<(u32, u32)> = Vec::with_capacity(vertices.len());
        vertices.sort_unstable_by_key(|&vertex| (graph.time(vertex), vertex));
        numbers.extend(vertices.iter().copied().zip(0..));
        numbers.sort_unstable();
        let number = |vertex: u32| {
            let place = numbers
                .binary_search_by_key(&vertex, |&(vertex, _)| vertex)
                .ok()?;
            Some(numbers[place].1)
        };
        let mut links = Rows::default();
        for &vertex in &vertices {
            let inside = |link: &Link| {
                let to = number(link.to)?;
                Some(Link { to, ..*link })
            };
            let mut own: Vec<Link> = graph.links(vertex).iter().filter_map(inside).collect();
            own.sort_by_key(|link| matches!(link.kind, EdgeKind::Session | EdgeKind::RealTime));
            links.push(own);
        }
        Part {
            graph,
            vertices,
            links,
        }
    }

    /// The same without the dependencies on keys that are not to be kept.
    pub(crate) fn only(&self, keep: impl Fn(KeyId) -> bool) -> Self {
        let mut links = Rows::default();
        for row in self.links.iter() {
            links.push(
                row.iter()
                    .copied()
                    .filter(|link| link.key.is_none_or(&keep)),
            );
        }
        Part {
            links,
            vertices: self.vertices.clone(),
            graph: self.graph,
        }
    }

    /// The keys of its dependencies; keys are repeated.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.links.iter().flatten().filter_map(|link| link.key)
    }

    /// A cycle that `level` contains, if there is one: the shortest one that uses least of the order of sessions and
    /// real time, unless the part is too large to find out.
    pub(crate) fn find(
        &self,
        level: Level,
        order: Order,
        budget: &Budget,
    ) -> Result<Option<Vec<Step>>, Undecided> {
        let orders = [Order::None, Order::Session, Order::RealTime];
        for order in orders.into_iter().filter(|&less| less <= order) {
            let wanted = Wanted { level, order };
            let walks = self.walks(wanted, Keep::Shortest, budget)?;
            if let Some(walk) = walks.first() {
                return Ok(Some(simple(self.contract(walk), level)));
            }
        }
        Ok(None)
    }

    /// Some cycles that `level` contains, about `count` through different places; none only if there is none.
    pub(crate) fn several(
        &self,
        level: Level,
        order: Order,
        count: usize,
        budget: &Budget,
    ) -> Result<Vec<Vec<Step>>, Undecided> {
        let walks = self.walks(Wanted { level, order }, Keep::Some(count), budget)?;
        let cycles = walks.iter().map(|walk| simple(self.contract(walk), level));
        Ok(cycles.collect())
    }

    /// Closed walks of the product of the part and the automaton of the level.
    fn walks(&self, wanted: Wanted, keep: Keep, budget: &Budget) -> Result<Vec<Walk>, Undecided> {
        if wanted.level == Level::OneAnti {
            return self.one_anti(wanted, keep, budget);
        }
        let states = wanted.level.states();
        let count = self.vertices.len() * states as usize;
        budget.reserve(count * 12)?;
        let strong = components(count, |at, edge| {
            let (vertex, state) = (at / states, at % states);
            let link = self.links.row(vertex as usize).get(edge as usize)?;
            let next = wanted.step(state, link.kind);
            Some(next.map(|state| link.to * states + state))
        });
        budget.spend(count + self.links.item_count())?;
        let mut search = Walks::new(self, wanted, keep, budget)?;
        for component in strong {
            let stride = match keep {
                Keep::Shortest => 1,
                Keep::Some(count) => component.len().div_ceil(count),
            };
            for start in component.into_iter().step_by(stride) {
                let start = (start / states, start % states);
                search.shortest(start, start)?;
            }
        }
        Ok(search.found)
    }

    /// Anti-dependencies, each with a path of other dependencies back.
    fn one_anti(
        &self,
        wanted: Wanted,
        keep: Keep,
        budget: &Budget,
    ) -> Result<Vec<Walk>, Undecided> {
        let (mut others, mut pairs, mut antis) = (Vec::new(), Vec::new(), Vec::new());
        let all = (0..).zip(self.links.iter());
        let all = all.flat_map(|(from, links)| links.iter().map(move |link| (from, link)));
        for (from, link) in all.filter(|(_, link)| is_allowed(wanted.order, link.kind)) {
            if link.kind == EdgeKind::AntiDependency {
                pairs.push((link.to, from));
                antis.push(Hop::new(from, link));
            } else {
                others.push((from, link.to));
            }
        }
        budget.reserve(others.len() * 24)?;
        let flow = Wanted {
            level: Level::Flow,
            ..wanted
        };
        let Some(graph) = Acyclic::new(self.vertices.len(), &others) else {
            return self.walks(flow, keep, budget);
        };
        let mut search = Walks::new(self, flow, keep, budget)?;
        for index in graph.reaching(&pairs, budget)? {
            let anti = antis[index];
            if search.shortest((anti.to, 0), (anti.from, 0))? {
                search
                    .found
                    .last_mut()
                    .into_iter()
                    .for_each(|walk| walk.insert(0, anti));
            }
        }
        Ok(search.found)
    }

    /// The walk as edges between transactions: barriers and the inner transactions of a stretch of a session vanish.
    fn contract(&self, walk: &[Hop]) -> Vec<Step> {
        let is_order = |hop: &Hop| matches!(hop.kind, EdgeKind::Session | EdgeKind::RealTime);
        let first = walk.iter().position(|hop| !is_order(hop)).unwrap_or(0);
        let mut steps: Vec<Step> = Vec::new();
        for hop in walk[first..].iter().chain(&walk[..first]) {
            let to = self.vertices[hop.to as usize];
            match steps.last_mut() {
                Some(last) if is_order(hop) && last.kind == hop.kind => last.to = to,
                _ => steps.push(Step {
                    from: self.vertices[hop.from as usize],
                    to,
                    kind: hop.kind,
                    key: hop.key,
                }),
            }
        }
        steps
    }
}

/// An edge of a walk, between own numbers of a part.
#[derive(Clone, Copy)]
struct Hop {
    from: u32,
    to: u32,
    kind: EdgeKind,
    key: Option<KeyId>,
}

impl Hop {
    fn new(from: u32, link: &Link) -> Self {
        Hop {
            from,
            to: link.to,
            kind: link.kind,
            key: link.key,
        }
    }
}

type Walk = Vec<Hop>;

/// Which walks a search keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The shortest one.
    Shortest,
    /// About so many, each the shortest from where it starts.
    Some(usize),
}

/// A place of a search: a vertex, the state of the automaton, and whether a session edge led there.
type Place = usize;

/// Breadth-first searches in a part.
struct Walks<'a, 'g> {
    part: &'a Part<'g>,
    wanted: Wanted,
    budget: &'a Budget<'a>,
    keep: Keep,
    found: Vec<Walk>,
    /// Only shorter walks are wanted.
    limit: u32,
    effort: usize,
    /// By place: the number of the search that reached it last, the length of the way, and the hop that led there.
    round: u32,
    reached: Vec<(u32, u32)>,
    arrived_by: Vec<(Place, u32)>,
}

impl<'a, 'g> Walks<'a, 'g> {
    fn new(
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
    fn shortest(&mut self, from: (u32, u32), to: (u32, u32)) -> Result<bool, Undecided> {
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

/// A walk that visits a transaction twice is two cycles; the forbidden one of them remains.
fn simple(mut steps: Vec<Step>, level: Level) -> Vec<Step> {
    while let Some((start, end)) = repetition(&steps) {
        let inner: Vec<Step> = steps[start..end].to_vec();
        if level.contains(inner.iter().map(|step| step.kind)) {
            steps = inner;
        } else {
            steps.drain(start..end);
        }
    }
    steps
}

/// The first and the second place from which a transaction is left.
fn repetition(steps: &[Step]) -> Option<(usize, usize)> {
    (0..steps.len()).find_map(|end| {
        let start = steps[..end]
            .iter()
            .position(|step| step.from == steps[end].from)?;
        Some((start, end))
    })
}
