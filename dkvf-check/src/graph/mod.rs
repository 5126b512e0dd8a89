//! The graph of dependencies between transactions (Adya 1999), and the models that are a statement about its cycles.
//!
//! With a known order of versions every model takes time linear in operations, except parallel snapshot isolation,
//! whose question for reachability takes O(E V / 64) in the worst case (VERIFICATION, section 3.5).

mod check;
mod classify;
mod components;
mod explain;
mod fractured;
mod level;
mod reach;
mod realtime;
mod rules;
mod search;
mod versions;
mod walks;

use crate::check::Budget;
use crate::history::KeyId;
use crate::model::Order;
use crate::prepass::{Committed, Node, Rows, Undecided, Write};
use crate::verdict::EdgeKind;

pub(crate) use check::{anomalies_of, check, suspects, with_scope};
pub(crate) use components::components;
pub(crate) use explain::{Ends, Narrator};
pub(crate) use level::Level;
pub(crate) use rules::{Rules, Scope};
pub(crate) use search::{Part, Step};
pub(crate) use versions::{Source, Versions};

/// An edge, seen from where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where it ends.
    pub(crate) to: u32,
    pub(crate) kind: EdgeKind,
    /// The key of a dependency; `None` for the order of sessions and real time.
    pub(crate) key: Option<KeyId>,
}

/// Which transaction comes before which other one, and why.
///
/// Vertices are the nodes of [`Committed`], followed by the barriers of [`realtime`]. [`INIT`](crate::prepass::INIT) has
/// no edges: it precedes everything, so it is in no cycle. Of the order of a session and of the versions of a key only
/// direct successors are edges.
pub(crate) struct Graph {
    links: Rows<Link>,
    /// By vertex: when a transaction was invoked, or one returned at a barrier.
    times: Vec<u64>,
    /// Vertices from here on are barriers.
    barriers_from: u32,
}

impl Graph {
    /// The dependencies that `versions` implies, and `order`.
    pub(crate) fn new(
        committed: &Committed,
        versions: &Versions,
        order: Order,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        let nodes = committed.node_count();
        // A node has an edge to the next one of its session, and two to barriers and one between them.
        budget
            .reserve((committed.writer_count() * 3 + nodes * 6) * 2 * size_of::<(u32, Link)>())?;
        let mut edges = Edges::default();
        edges.dependencies(committed, versions, budget)?;
        if order != Order::None {
            edges.sessions(committed);
        }
        let mut times = realtime::invocations(committed);
        if order == Order::RealTime {
            realtime::add(committed, &mut edges, &mut times);
        }
        budget.spend(edges.0.len())?;
        Ok(Graph {
            links: Rows::new(times.len(), &edges.0),
            times,
            barriers_from: nodes as u32,
        })
    }

    /// The graph with more edges.
    pub(crate) fn extended(&self, more: &[(u32, Link)]) -> Graph {
        let own = (0..).zip(self.links.iter());
        let own = own.flat_map(|(from, links)| links.iter().map(move |&link| (from, link)));
        let edges: Vec<(u32, Link)> = own.chain(more.iter().copied()).collect();
        Graph {
            links: Rows::new(self.times.len(), &edges),
            times: self.times.clone(),
            barriers_from: self.barriers_from,
        }
    }

    /// The graph without the dependencies on keys that are not to be kept.
    pub(crate) fn only(&self, keep: impl Fn(KeyId) -> bool) -> Graph {
        let mut links = Rows::default();
        for row in self.links.iter() {
            links.push(
                row.iter()
                    .copied()
                    .filter(|link| link.key.is_none_or(&keep)),
            );
        }
        Graph {
            links,
            times: self.times.clone(),
            barriers_from: self.barriers_from,
        }
    }

    /// Number of vertices.
    pub(crate) fn vertex_count(&self) -> usize {
        self.links.len()
    }

    /// The edges that start at a vertex.
    pub(crate) fn links(&self, vertex: u32) -> &[Link] {
        self.links.row(vertex as usize)
    }

    /// When the transaction of a vertex was invoked, or one returned at a barrier, in microseconds.
    fn time(&self, vertex: u32) -> u64 {
        self.times[vertex as usize]
    }

    /// Whether a vertex is a barrier, not a transaction.
    pub(crate) fn is_barrier(&self, vertex: u32) -> bool {
        vertex >= self.barriers_from
    }
}

/// Edges in the order they were found, from vertex to link.
#[derive(Default)]
struct Edges(Vec<(u32, Link)>);

impl Edges {
    fn add(&mut self, from: u32, to: u32, kind: EdgeKind, key: Option<KeyId>) {
        if from != to {
            self.0.push((from, Link { to, kind, key }));
        }
    }

    fn sessions(&mut self, committed: &Committed) {
        for session in committed.sessions() {
            for node in session.skip(1) {
                self.add(node - 1, node, EdgeKind::Session, None);
            }
        }
    }

    fn dependencies(
        &mut self,
        committed: &Committed,
        versions: &Versions,
        budget: &Budget,
    ) -> Result<(), Undecided> {
        for node in committed.nodes() {
            for read in committed.reads(node) {
                budget.spend(1)?;
                if read.from != crate::prepass::INIT {
                    self.add(read.from, node, EdgeKind::ReadsFrom, Some(read.key));
                }
                self.followers(committed, versions, read.key, read.from, |edges, next| {
                    edges.add(node, next, EdgeKind::AntiDependency, Some(read.key));
                });
            }
            // Whoever wrote the next version of a chain reads from its predecessor, which says more.
            let is_chained = |write: &&Write| versions.source(write.key) == Source::Chain;
            for write in committed
                .writes(node)
                .iter()
                .filter(|write| !is_chained(write))
            {
                budget.spend(1)?;
                self.followers(committed, versions, write.key, node, |edges, next| {
                    edges.add(node, next, EdgeKind::VersionOrder, Some(write.key));
                });
            }
        }
        Ok(())
    }

    /// Calls `found` with the writers that directly follow `node` in the order of the versions of `key`. Past the known
    /// part of the order these are all writers of the rest.
    fn followers(
        &mut self,
        committed: &Committed,
        versions: &Versions,
        key: KeyId,
        node: Node,
        found: impl Fn(&mut Self, Node),
    ) {
        let Some(place) = versions.place(committed, key, node) else {
            return;
        };
        match versions.order(key).get(place as usize) {
            Some(&next) => found(self, next),
            None => versions
                .rest(key)
                .iter()
                .for_each(|&next| found(self, next)),
        }
    }
}
