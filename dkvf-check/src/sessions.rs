//! Read-your-writes and monotonic reads.
//!
//! Both have one shape. To each read `r` belong the writes that `r` must take
//! into account: the session's own earlier writes of the key (read-your-writes)
//! or what its earlier reads of the key returned (monotonic reads). `r` may
//! return one of them or a write that is newer than all of them. So a read of
//! `t` puts every other write that it must take into account before `t`, and
//! the guarantee holds if and only if, for each key, one order of the versions
//! agrees with all of that (Terry et al. 1994; Burckhardt 2014).
//!
//! With the protocol's own version order each read is compared at once. Without
//! it the required order is a graph, and a cycle refutes the guarantee.

use crate::history::{History, Kind, OpId};
use crate::key_view::{INITIAL, KeyView, Node, Problem, Step, check_keys};
use crate::verdict::{AnomalyKind, Verdict};

/// Which evidence on the order of versions a check uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// Key by key: the order that the protocol reports, where it reports one
    /// for every version involved, otherwise what clients saw.
    #[default]
    Auto,
    /// Only the order that the protocol reports; where it is missing the
    /// verdict is unknown.
    WhiteBox,
    /// Only what clients saw: some order of the versions must explain it.
    BlackBox,
}

/// Does every session see its own earlier writes?
///
/// A write whose outcome is unknown counts once somebody read its value. Time
/// is O(n log n) in the operations.
pub fn read_your_writes(history: &History, evidence: Evidence) -> Verdict {
    check_keys(history, |view| check(view, Guarantee::Writes, evidence))
}

/// Does no session see an older version of a key than it saw before?
///
/// Time is O(n log n) in the operations.
pub fn monotonic_reads(history: &History, evidence: Evidence) -> Verdict {
    check_keys(history, |view| check(view, Guarantee::Reads, evidence))
}

/// Which earlier operations of its session a read must take into account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guarantee {
    Writes,
    Reads,
}

impl Guarantee {
    fn remembers(self, kind: Kind) -> bool {
        match self {
            Guarantee::Writes => kind == Kind::Write,
            Guarantee::Reads => kind == Kind::Read,
        }
    }

    fn anomaly(self) -> AnomalyKind {
        match self {
            Guarantee::Writes => AnomalyKind::OwnWriteMissed,
            Guarantee::Reads => AnomalyKind::NonMonotonicRead,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Guarantee::Writes => "written",
            Guarantee::Reads => "read",
        }
    }
}

fn check(view: &KeyView, guarantee: Guarantee, evidence: Evidence) -> Result<(), Problem> {
    match view.version_order(evidence)? {
        Some(order) => check_against(&order, view, guarantee),
        None => {
            let graph = match guarantee {
                Guarantee::Writes => order_required_by_own_writes(view)?,
                Guarantee::Reads => order_required_by_reads(view)?,
            };
            match graph.shortest_cycle() {
                Some(cycle) => Err(contradiction(view, guarantee, &graph, &cycle)),
                None => Ok(()),
            }
        }
    }
}

/// White-box: no read may be older than the newest version its session remembers.
fn check_against(
    order: &[Option<u128>],
    view: &KeyView,
    guarantee: Guarantee,
) -> Result<(), Problem> {
    let place = |step: &Step| order[step.node as usize];
    for session in view.sessions() {
        let mut newest: Option<&Step> = None;
        for step in session {
            if let (Kind::Read, Some(known)) = (step.kind, newest)
                && place(step) < place(known)
            {
                return Err(stale(view, guarantee, known.op, *step, known.node));
            }
            if guarantee.remembers(step.kind) && newest.is_none_or(|n| place(n) < place(step)) {
                newest = Some(step);
            }
        }
    }
    Ok(())
}

/// The read `later` is older than what its session knew since `earlier`.
fn stale(view: &KeyView, guarantee: Guarantee, earlier: OpId, later: Step, known: Node) -> Problem {
    let because = format!(
        "because session {} had {} {} (#{earlier}) before it read {} (#{}), which is older",
        view.history.operations()[later.op].session,
        guarantee.verb(),
        view.text(known),
        view.text(later.node),
        later.op,
    );
    view.anomaly(guarantee.anomaly(), vec![earlier, later.op], vec![because])
}

/// Black-box: edges from the session's own earlier writes to what it read.
///
/// A read of somebody else's write puts *all* earlier own writes before it. To
/// stay linear these edges share hub vertices: a hub stands for "after these
/// own writes" and is itself no version. A read of an own write replaces all
/// earlier own writes, since they precede it from then on.
fn order_required_by_own_writes(view: &KeyView) -> Result<OrderGraph, Problem> {
    let mut graph = OrderGraph::new(view.node_count());
    let mut written_in_session = vec![0; view.node_count()];
    for (session, steps) in (1_u32..).zip(view.sessions()) {
        // Own writes not known to precede another own one; the first
        // `in_hub` of them have an edge to `hub`.
        let mut pending: Vec<Step> = Vec::new();
        let mut hub: Option<Node> = None;
        let mut in_hub = 0;
        for &step in steps {
            let read = step.node;
            if step.kind == Kind::Write {
                written_in_session[read as usize] = session;
                pending.push(step);
                continue;
            }
            let Some(&newest) = pending.last() else {
                continue;
            };
            if read == INITIAL {
                return Err(stale(view, Guarantee::Writes, newest.op, step, newest.node));
            }
            if written_in_session[read as usize] == session {
                for own in pending.drain(..).filter(|own| own.node != read) {
                    graph.add(own.node, read, own.op, step.op);
                }
                let op = view.write(read).unwrap_or(step.op);
                pending.push(Step {
                    op,
                    kind: Kind::Write,
                    node: read,
                });
                (hub, in_hub) = (None, 0);
            } else if let [own] = pending[..] {
                graph.add(own.node, read, own.op, step.op);
            } else {
                if in_hub < pending.len() {
                    let next = graph.add_vertex();
                    if let Some(hub) = hub {
                        graph.add(hub, next, step.op, step.op);
                    }
                    for own in &pending[in_hub..] {
                        graph.add(own.node, next, own.op, step.op);
                    }
                    (hub, in_hub) = (Some(next), pending.len());
                }
                if let Some(hub) = hub {
                    graph.add(hub, read, step.op, step.op);
                }
            }
        }
    }
    Ok(graph)
}

/// Black-box: each version read is followed by the next other one read in the
/// same session. What was read before that follows by transitivity.
fn order_required_by_reads(view: &KeyView) -> Result<OrderGraph, Problem> {
    let mut graph = OrderGraph::new(view.node_count());
    for session in view.sessions() {
        let mut before: Option<Step> = None;
        for &step in session.iter().filter(|step| step.kind == Kind::Read) {
            if let Some(before) = before
                && before.node != step.node
            {
                if step.node == INITIAL {
                    return Err(stale(view, Guarantee::Reads, before.op, step, before.node));
                }
                graph.add(before.node, step.node, before.op, step.op);
            }
            before = Some(step);
        }
    }
    Ok(graph)
}

/// Spells a cycle out, version by version; hubs are passed over.
fn contradiction(
    view: &KeyView,
    guarantee: Guarantee,
    graph: &OrderGraph,
    cycle: &[(Node, Edge)],
) -> Problem {
    // Hubs are entered from versions and left for versions, so there is one.
    let start = cycle
        .iter()
        .position(|&(from, _)| graph.is_version(from))
        .unwrap_or(0);
    let hops = || cycle.iter().cycle().skip(start).take(cycle.len());
    let mut operations = Vec::new();
    let mut because = Vec::new();
    let mut from = None;
    for &(node, edge) in hops() {
        let (older, earlier) = *from.get_or_insert((node, edge.earlier));
        if !graph.is_version(edge.to) {
            continue;
        }
        operations.extend([earlier, edge.later]);
        because.push(format!(
            "{} is older than {}, because session {} had {} {} (#{earlier}) before it read {} (#{})",
            view.text(older),
            view.text(edge.to),
            view.history.operations()[edge.later].session,
            guarantee.verb(),
            view.text(older),
            view.text(edge.to),
            edge.later,
        ));
        from = None;
    }
    if let Some(last) = because.last_mut() {
        last.insert_str(0, "however, ");
        last.push_str(": a contradiction");
    }
    // Neighbours share operations; name each once, where it first matters.
    let mut named = Vec::with_capacity(operations.len());
    for op in operations {
        if !named.contains(&op) {
            named.push(op);
        }
    }
    view.anomaly(guarantee.anomaly(), named, because)
}

/// `earlier` and `later` are the two operations of one session that require the
/// edge.
#[derive(Clone, Copy)]
struct Edge {
    to: Node,
    earlier: OpId,
    later: OpId,
}

/// The order that the versions of one key must have.
struct OrderGraph {
    /// The first so many vertices are versions, the others hubs.
    versions: usize,
    edges: Vec<Vec<Edge>>,
}

impl OrderGraph {
    fn new(versions: usize) -> Self {
        OrderGraph {
            versions,
            edges: vec![Vec::new(); versions],
        }
    }

    fn add_vertex(&mut self) -> Node {
        self.edges.push(Vec::new());
        Node::try_from(self.edges.len() - 1).expect("hubs are fewer than operations")
    }

    fn add(&mut self, from: Node, to: Node, earlier: OpId, later: OpId) {
        self.edges[from as usize].push(Edge { to, earlier, later });
    }

    fn is_version(&self, vertex: Node) -> bool {
        (vertex as usize) < self.versions
    }

    /// A cycle as (vertex, edge out of it), the shortest through any vertex of
    /// some cycle; `None` if there is none. O(V + E) without a cycle.
    fn shortest_cycle(&self) -> Option<Vec<(Node, Edge)>> {
        /// Every search costs O(V + E), and counterexamples are short.
        const SEARCHES_MAX: usize = 64;
        let cycle = self.any_cycle()?;
        cycle
            .iter()
            .take(SEARCHES_MAX)
            .filter_map(|&start| self.shortest_cycle_through(start))
            .min_by_key(Vec::len)
    }

    /// The vertices of some cycle.
    fn any_cycle(&self) -> Option<Vec<Node>> {
        let mut incoming = vec![0_u32; self.edges.len()];
        for edge in self.edges.iter().flatten() {
            incoming[edge.to as usize] += 1;
        }
        let mut free: Vec<usize> = (0..incoming.len()).filter(|&v| incoming[v] == 0).collect();
        while let Some(vertex) = free.pop() {
            for edge in &self.edges[vertex] {
                let to = edge.to as usize;
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    free.push(to);
                }
            }
        }

        // Each vertex that is left has a predecessor that is left: going
        // backwards must come to a vertex twice.
        let left = |vertex: usize| incoming[vertex] > 0;
        let mut predecessor = vec![None; self.edges.len()];
        for from in (0..self.edges.len()).filter(|&v| left(v)) {
            for edge in &self.edges[from] {
                predecessor[edge.to as usize] = Some(from);
            }
        }
        let mut visited = vec![false; self.edges.len()];
        let mut vertex = (0..self.edges.len()).find(|&v| left(v))?;
        while !visited[vertex] {
            visited[vertex] = true;
            vertex = predecessor[vertex]?;
        }
        let first = vertex;
        let mut cycle = Vec::new();
        loop {
            cycle.push(Node::try_from(vertex).ok()?);
            vertex = predecessor[vertex]?;
            if vertex == first {
                return Some(cycle);
            }
        }
    }

    /// Breadth-first search from `start` back to `start`.
    fn shortest_cycle_through(&self, start: Node) -> Option<Vec<(Node, Edge)>> {
        let mut entered_by: Vec<Option<(Node, Edge)>> = vec![None; self.edges.len()];
        let mut frontier = std::collections::VecDeque::from([start]);
        while let Some(from) = frontier.pop_front() {
            for &edge in &self.edges[from as usize] {
                let entry = &mut entered_by[edge.to as usize];
                if entry.is_none() {
                    *entry = Some((from, edge));
                    frontier.push_back(edge.to);
                }
            }
            if entered_by[start as usize].is_some() {
                break;
            }
        }
        let mut cycle = Vec::new();
        let mut vertex = start;
        loop {
            let (from, edge) = entered_by[vertex as usize]?;
            cycle.push((from, edge));
            vertex = from;
            if vertex == start {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }
}
