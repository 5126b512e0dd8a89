//! The shortest cycle that a level forbids.

use crate::check::Budget;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::{Node, Rows, Undecided};
use crate::verdict::EdgeKind;

use super::components::components;
use super::level::{Level, is_allowed};
use super::reach::Acyclic;
use super::walks::{Hop, Keep, Walk, Walks, Wanted};
use super::{Graph, Link};

/// An edge of a cycle of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) kind: EdgeKind,
    pub(crate) key: Option<KeyId>,
}

/// A strongly connected component of a graph, with vertices of its own numbers.
#[derive(Clone)]
pub(crate) struct Part<'g> {
    pub(super) graph: &'g Graph,
    /// By own number, ascending by time: the vertex of the graph.
    pub(super) vertices: Vec<u32>,
    /// Dependencies come before the order of sessions and real time, so that paths of equal length prefer them.
    pub(super) links: Rows<Link>,
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
