//! Cycles as anomalies that people can read.

use crate::history::{KeyId, OpId};
use crate::prepass::{Committed, INIT, Node};
use crate::verdict::{Anomaly, Edge, EdgeKind};

use super::classify::classify;
use super::level::Level;
use super::search::Step;
use super::{Source, Versions};

/// The operations that an edge connects; a transaction without operations has none.
pub(crate) type Ends = (Option<OpId>, Option<OpId>);

/// What was told so far.
#[derive(Default)]
struct Story {
    operations: Vec<OpId>,
    edges: Vec<Edge>,
}

/// Explains cycles of one graph.
pub(crate) struct Narrator<'a, 'h> {
    pub(crate) committed: &'a Committed<'h>,
    pub(crate) versions: &'a Versions,
}

impl Narrator<'_, '_> {
    /// The anomaly that a cycle is; `level` is the weakest that contains it.
    pub(super) fn anomaly(&self, level: Level, mut cycle: Vec<Step>) -> Anomaly {
        let kind = classify(level, &cycle);
        let key = key_of(&cycle);
        rotate(&mut cycle);
        let mut story = Story::default();
        let mut sentences = self.tell(&cycle, |_| false, &mut story);
        if let Some(last) = sentences.last_mut() {
            *last = format!("however, {last}: a contradiction");
        }
        let history = self.committed.history;
        Anomaly::new(history, kind, key, story.operations, sentences).with_edges(story.edges)
    }

    /// The anomaly that cycles are of which one cannot be avoided; each comes with the suppositions that lead to it.
    /// `levels` are what is forbidden, and `is_supposed` tells which edges are no facts.
    pub(crate) fn contradiction(
        &self,
        levels: &[Level],
        parts: &[(String, &[Step])],
        is_supposed: impl Fn(&Step) -> bool,
    ) -> Anomaly {
        let (mut story, mut because) = (Story::default(), Vec::new());
        for (supposition, cycle) in parts {
            let mut cycle = cycle.to_vec();
            rotate(&mut cycle);
            let sentences = self.tell(&cycle, &is_supposed, &mut story).join("; ");
            because.push(match &supposition[..] {
                "" => format!("however, {sentences}: a contradiction"),
                claims => format!("suppose that {claims}: then {sentences}, a contradiction"),
            });
        }
        let worst = parts.last().map_or(&[][..], |(_, cycle)| cycle);
        let kinds = worst.iter().map(|step| step.kind);
        let level = levels.iter().find(|level| level.contains(kinds.clone()));
        let kind = classify(level.copied().unwrap_or(Level::Any), worst);
        if parts
            .last()
            .is_some_and(|(supposition, _)| !supposition.is_empty())
        {
            because.push("however, one of these orders must be: a contradiction".to_owned());
        }
        let history = self.committed.history;
        Anomaly::new(history, kind, key_of(worst), story.operations, because)
            .with_edges(story.edges)
    }

    /// A sentence for each edge of a cycle; adds its operations and edges to the story.
    fn tell(
        &self,
        cycle: &[Step],
        is_supposed: impl Fn(&Step) -> bool,
        story: &mut Story,
    ) -> Vec<String> {
        let ends = self.ends(cycle);
        for (step, &(from, to)) in cycle.iter().zip(&ends) {
            for op in [from, self.witness(step), to].into_iter().flatten() {
                if !story.operations.contains(&op) {
                    story.operations.push(op);
                }
            }
            if let (Some(from), Some(to)) = (from, to) {
                let kind = if is_supposed(step) {
                    EdgeKind::Inferred
                } else {
                    step.kind
                };
                story.edges.push(Edge { from, to, kind });
            }
        }
        let sentence = |(step, &ends): (&Step, &Ends)| {
            let (from, to) = (self.name(step.from, ends.0), self.name(step.to, ends.1));
            format!("{from} < {to}, because {}", self.reason(step, ends))
        };
        cycle.iter().zip(&ends).map(sentence).collect()
    }

    /// Why an edge is there.
    pub(crate) fn reason(&self, step: &Step, (from_op, to_op): Ends) -> String {
        let history = self.committed.history;
        let (from, to) = (
            self.name_with(step.from, from_op),
            self.name_with(step.to, to_op),
        );
        let key = step.key.map_or(String::new(), |key| history.key_text(key));
        match step.kind {
            EdgeKind::ReadsFrom => format!("{to} read what {from} wrote to {key}"),
            EdgeKind::VersionOrder => {
                format!(
                    "{to} wrote a newer version of {key} than {from}{}",
                    self.known_by(step)
                )
            }
            EdgeKind::AntiDependency => {
                let version = match from_op.map(|op| self.read_from(step, op)) {
                    Some(Some(INIT)) => "the initial one",
                    _ => "the one",
                };
                format!(
                    "{to} wrote a newer version of {key} than {version} that {from} read{}",
                    self.known_by(step)
                )
            }
            EdgeKind::Session => {
                let transaction = self.committed.transaction(step.to);
                let session = transaction.map(|id| history.transactions()[id].session);
                format!(
                    "{to} comes later in session {}",
                    session.unwrap_or_default()
                )
            }
            EdgeKind::RealTime => {
                let header =
                    |node| Some(&history.transactions()[self.committed.transaction(node)?]);
                let returned = header(step.from).and_then(|header| header.complete_us);
                let invoked = header(step.to).map(|header| header.invoke_us);
                format!(
                    "{from} returned at {} us, before {to} was invoked at {} us",
                    returned.unwrap_or_default(),
                    invoked.unwrap_or_default()
                )
            }
            EdgeKind::Inferred => format!("{from} must come before {to}"),
        }
    }

    /// How the order of the versions of the key of an edge is known.
    fn known_by(&self, step: &Step) -> String {
        let Some(key) = step.key else {
            return String::new();
        };
        match self.versions.source(key) {
            Source::Only => String::new(),
            Source::Reported => ", as the protocol reports".to_owned(),
            Source::Stamps => ", by the commit stamps that the protocol reports".to_owned(),
            Source::List => self.witness(step).map_or(String::new(), |read| {
                format!(", by the list that #{read} read")
            }),
            Source::Chain => self.witness(step).map_or(String::new(), |read| {
                format!(", for it had read that version, too (#{read})")
            }),
            Source::Open => String::new(),
        }
    }

    /// The operation that shows the order of the versions of an edge, if clients saw it: a read of the list, or how the
    /// writer that an anti-dependency leads to knew the version that it replaced.
    fn witness(&self, step: &Step) -> Option<OpId> {
        let key = step.key.filter(|_| step.kind != EdgeKind::ReadsFrom)?;
        match self.versions.source(key) {
            Source::Chain => self.read(step.to, key, |_| true),
            Source::List => {
                let seen = self.committed.list_order(key);
                let is_seen = seen.contains(&step.from) || seen.contains(&step.to);
                self.committed.longest_read(key).filter(|_| is_seen)
            }
            _ => None,
        }
    }

    /// The operations that an edge connects. Those of session order and real time are chosen to be those of the edges
    /// before and after, if there are such.
    fn ends(&self, cycle: &[Step]) -> Vec<Ends> {
        let data: Vec<_> = cycle.iter().map(|step| self.data_ends(step)).collect();
        let any_of = |node: Node| {
            let transaction = self.committed.transaction(node)?;
            self.committed.history.operations_of(transaction).next()
        };
        (0..cycle.len())
            .map(|place| {
                let before = data[(place + cycle.len() - 1) % cycle.len()];
                let after = data[(place + 1) % cycle.len()];
                let (from, to) = data[place];
                let step = &cycle[place];
                (
                    from.or(before.1).or_else(|| any_of(step.from)),
                    to.or(after.0).or_else(|| any_of(step.to)),
                )
            })
            .collect()
    }

    pub(crate) fn data_ends(&self, step: &Step) -> Ends {
        let Some(key) = step.key else {
            return (None, None);
        };
        let write = |node: Node| self.committed.write(node, key).map(|write| write.op());
        match step.kind {
            EdgeKind::ReadsFrom => (
                write(step.from),
                self.read(step.to, key, |from| from == step.from),
            ),
            EdgeKind::AntiDependency => {
                let is_replaced =
                    |from| self.versions.next(self.committed, key, from) == Some(step.to);
                let read = self.read(step.from, key, is_replaced);
                (
                    read.or_else(|| self.read(step.from, key, |_| true)),
                    write(step.to),
                )
            }
            _ => (write(step.from), write(step.to)),
        }
    }

    /// The first read of `key` from a writer that `is_wanted`.
    fn read(&self, node: Node, key: KeyId, is_wanted: impl Fn(Node) -> bool) -> Option<OpId> {
        let mut reads = self.committed.reads(node).iter();
        let read = reads.find(|read| read.key == key && is_wanted(read.from));
        read.map(|read| read.op())
    }

    /// From whom `op` read the key of an edge.
    fn read_from(&self, step: &Step, op: OpId) -> Option<Node> {
        let mut reads = self.committed.reads(step.from).iter();
        let read = reads.find(|read| read.op() == op && Some(read.key) == step.key);
        read.map(|read| read.from)
    }

    /// As people know a transaction: one of a single operation is that operation.
    pub(crate) fn name(&self, node: Node, op: Option<OpId>) -> String {
        match (
            self.committed.history.is_single(),
            op,
            self.committed.transaction(node),
        ) {
            (true, Some(op), _) => format!("#{op}"),
            (_, _, Some(transaction)) => format!("T{transaction}"),
            (_, _, None) => "the initial transaction".to_owned(),
        }
    }

    pub(crate) fn name_with(&self, node: Node, op: Option<OpId>) -> String {
        let name = self.name(node, op);
        match op {
            Some(op) if !self.committed.history.is_single() => format!("{name} (#{op})"),
            _ => name,
        }
    }
}

fn key_of(cycle: &[Step]) -> KeyId {
    let key = cycle.iter().find_map(|step| step.key);
    key.expect("invariant: a cycle has a dependency, for sessions and time have none")
}

/// An anti-dependency, which surprises most, comes last; the rest of the argument starts as early as possible.
fn rotate(cycle: &mut [Step]) {
    let first = (0..cycle.len()).min_by_key(|&place| {
        let before = cycle[(place + cycle.len() - 1) % cycle.len()];
        (before.kind != EdgeKind::AntiDependency, cycle[place].from)
    });
    cycle.rotate_left(first.unwrap_or(0));
}
