//! Shortest paths along causality.

use std::collections::VecDeque;

use crate::check::Budget;
use crate::graph::{Link, Step};
use crate::prepass::{Node, Rows, Undecided};
use crate::verdict::EdgeKind;

use super::order::CausalOrder;

/// Edges that are followed beside session order.
pub(crate) enum Along<'a> {
    /// Reads-from.
    Causality,
    /// Those of a graph; its edges of session order are passed over.
    Links(&'a Rows<Link>),
}

/// Which paths count, as an automaton that reads their edges. It starts in phase 0.
pub(crate) trait Route {
    /// Phases are less than this.
    const PHASES: usize;

    /// The phase after an edge; `None` if it must not be there.
    fn step(&self, phase: usize, kind: EdgeKind) -> Option<usize>;

    /// Whether a path may end in a phase.
    fn may_end(&self, phase: usize) -> bool;
}

/// Every path of at least one edge.
pub(crate) struct AnyRoute;

impl Route for AnyRoute {
    const PHASES: usize = 1;

    fn step(&self, _: usize, _: EdgeKind) -> Option<usize> {
        Some(0)
    }

    fn may_end(&self, _: usize) -> bool {
        true
    }
}

/// A shortest path on a `route` from `from` to a node that `is_goal`, through nodes that are `is_inside`. A later
/// transaction of a session is one edge away, however many there are between. Takes linear time.
pub(crate) fn shortest<R: Route>(
    order: &CausalOrder,
    (along, route): (&Along, &R),
    from: Node,
    is_inside: impl Fn(Node) -> bool,
    is_goal: impl Fn(Node) -> bool,
    budget: &Budget,
) -> Result<Option<Vec<Step>>, Undecided> {
    let committed = order.committed;
    let states = committed.node_count() * R::PHASES;
    budget.reserve(states * size_of::<Option<(Step, usize)>>())?;
    let mut search = Search {
        entered_by: vec![None; states],
        phases: R::PHASES,
        frontier: VecDeque::from([(from, 0)]),
    };
    // By session and phase: the first node of those that were entered because an earlier one was.
    let mut jumped_to = vec![Node::MAX; committed.sessions().len() * R::PHASES];
    while let Some((node, phase)) = search.frontier.pop_front() {
        let mut found = None;
        let mut enter = |step: Step| {
            let next = route.step(phase, step.kind).filter(|_| is_inside(step.to));
            if let Some(next) = next
                && search.enter(step, phase, next)
                && route.may_end(next)
                && is_goal(step.to)
            {
                found.get_or_insert((step.to, next));
            }
        };
        match along {
            Along::Causality => {
                for &to in order.readers(node) {
                    enter(reads_from(order, node, to));
                }
            }
            Along::Links(links) => {
                for link in links.row(node as usize) {
                    if link.kind != EdgeKind::Session {
                        enter(Step {
                            from: node,
                            to: link.to,
                            kind: link.kind,
                            key: link.key,
                        });
                    }
                }
            }
        }
        let jumped_to = &mut jumped_to[committed.session(node) * R::PHASES + phase];
        let later = order.later(node);
        for to in later.start..later.end.min(*jumped_to) {
            enter(Step {
                from: node,
                to,
                kind: EdgeKind::Session,
                key: None,
            });
        }
        *jumped_to = (*jumped_to).min(later.start);
        budget.spend(1 + order.readers(node).len())?;
        if let Some((goal, phase)) = found {
            return Ok(Some(search.path(from, goal, phase)));
        }
    }
    Ok(None)
}

fn reads_from(order: &CausalOrder, from: Node, to: Node) -> Step {
    let mut reads = order.committed.reads(to).iter();
    let read = reads.find(|read| read.from == from);
    Step {
        from,
        to,
        kind: EdgeKind::ReadsFrom,
        key: read.map(|read| read.key),
    }
}

struct Search {
    /// By node and phase: the last edge of a shortest path to it, and the phase before that edge.
    entered_by: Vec<Option<(Step, usize)>>,
    phases: usize,
    frontier: VecDeque<(Node, usize)>,
}

impl Search {
    /// Whether `step` leads to a node in a phase for the first time.
    fn enter(&mut self, step: Step, before: usize, phase: usize) -> bool {
        let entered_by = &mut self.entered_by[step.to as usize * self.phases + phase];
        let is_new = entered_by.is_none();
        if is_new {
            *entered_by = Some((step, before));
            self.frontier.push_back((step.to, phase));
        }
        is_new
    }

    fn path(&self, from: Node, goal: Node, mut phase: usize) -> Vec<Step> {
        let mut path = Vec::new();
        let mut node = goal;
        while let Some((step, before)) = self.entered_by[node as usize * self.phases + phase] {
            path.push(step);
            (node, phase) = (step.from, before);
            if (node, phase) == (from, 0) {
                break;
            }
        }
        path.reverse();
        path
    }
}
