//! Anomalies of causality as people can read them.

use crate::check::Budget;
use crate::graph::{Ends, Narrator, Step, Versions};
use crate::history::{History, KeyId, OpId};
use crate::prepass::{Node, Undecided};
use crate::sessions::Guarantee;
use crate::verdict::{Anomaly, AnomalyKind, Edge, EdgeKind};

use super::forced::Forced;
use super::order::CausalOrder;
use super::path::{Along, AnyRoute, shortest};

/// What makes a version visible to a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visible<'r> {
    /// Causality.
    Cause,
    /// What a session guarantee says.
    Guarantee(Guarantee),
    /// What a session knows: causality, and what its own reads forced so far.
    Session(usize, &'r [Forced]),
}

/// Explains what is wrong with one history.
pub(crate) struct Explainer<'o, 'a, 'h> {
    pub(crate) order: &'o CausalOrder<'a, 'h>,
    pub(crate) versions: &'o Versions,
    pub(crate) visible: Visible<'o>,
    pub(crate) budget: &'o Budget<'o>,
}

/// An anomaly that is being told.
#[derive(Default)]
struct Story {
    operations: Vec<OpId>,
    edges: Vec<Edge>,
    because: Vec<String>,
}

impl Story {
    fn mention(&mut self, op: OpId) {
        if !self.operations.contains(&op) {
            self.operations.push(op);
        }
    }

    fn edge(&mut self, from: OpId, to: OpId, kind: EdgeKind) {
        self.mention(from);
        self.mention(to);
        let edge = Edge { from, to, kind };
        if from != to && !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    /// Says a sentence once.
    fn say(&mut self, sentence: String) {
        if !self.because.contains(&sentence) {
            self.because.push(sentence);
        }
    }

    fn finish(self, history: &History, kind: AnomalyKind, key: KeyId) -> Anomaly {
        Anomaly::new(history, kind, key, self.operations, self.because).with_edges(self.edges)
    }
}

impl Explainer<'_, '_, '_> {
    fn narrator(&self) -> Narrator<'_, '_> {
        Narrator {
            committed: self.order.committed,
            versions: self.versions,
        }
    }

    fn write(&self, node: Node, key: KeyId) -> Option<OpId> {
        let write = self.order.committed.write(node, key);
        write.map(|write| write.op())
    }

    /// The first read of `key` from `source` by `reader`.
    fn read(&self, reader: Node, key: KeyId, source: Node) -> Option<OpId> {
        let mut reads = self.order.committed.reads(reader).iter();
        let read = reads.find(|read| read.key == key && read.from == source);
        read.map(|read| read.op())
    }

    /// How a reader of the version of `forced.newer` comes to see that of `forced.older`; the reader is the last node.
    pub(crate) fn visibility(&self, forced: Forced) -> Result<Vec<Step>, Undecided> {
        let order = self.order;
        let is_reader = |node| self.read(node, forced.key, forced.newer).is_some();
        let path = match self.visible {
            Visible::Cause => {
                let along = (&Along::Causality, &AnyRoute);
                shortest(order, along, forced.older, |_| true, is_reader, self.budget)?
            }
            Visible::Guarantee(guarantee) => {
                let along = (&Along::Causality, &guarantee);
                shortest(order, along, forced.older, |_| true, is_reader, self.budget)?
            }
            Visible::Session(session, known) => {
                let before = known.iter().position(|&known| known == forced);
                let links = order.links(&known[..before.unwrap_or(known.len())]);
                let is_reader = |node| order.committed.session(node) == session && is_reader(node);
                let along = (&Along::Links(&links), &AnyRoute);
                shortest(order, along, forced.older, |_| true, is_reader, self.budget)?
            }
        };
        Ok(path.unwrap_or_default())
    }

    /// A reader of the version of `forced.newer` sees that of `forced.older`, which is newer after all: the order of
    /// versions says so, or who wrote it knew the other one. `None` if neither is so.
    pub(crate) fn missed_write(
        &self,
        kind: AnomalyKind,
        forced: Forced,
        visibility: &[Step],
    ) -> Result<Option<Anomaly>, Undecided> {
        let Forced {
            older: missed,
            newer: source,
            key,
        } = forced;
        let reader = visibility.last().map(|step| step.to);
        let read = reader.and_then(|reader| self.read(reader, key, source));
        let (Some(reader), Some(read), Some(write)) = (reader, read, self.write(missed, key))
        else {
            return Ok(None);
        };
        let mut story = Story::default();
        let returned = self.write(source, key);
        let is_known = self.is_known_newer(forced);
        if !is_known {
            let along = (&Along::Causality, &AnyRoute);
            let is_missed = |node| node == missed;
            let path = shortest(self.order, along, source, |_| true, is_missed, self.budget)?;
            let Some(path) = path else {
                return Ok(None);
            };
            self.tell(&mut story, &path, returned, Some(write))?;
        }
        self.tell(&mut story, visibility, Some(write), Some(read))?;
        if let Some(returned) = returned {
            story.edge(returned, read, EdgeKind::ReadsFrom);
        }
        story.edge(read, write, EdgeKind::AntiDependency);

        let narrator = self.narrator();
        let history = self.order.committed.history;
        let reason = if is_known {
            let step = Step {
                from: reader,
                to: missed,
                kind: EdgeKind::AntiDependency,
                key: Some(key),
            };
            narrator.reason(&step, (Some(read), Some(write)))
        } else {
            format!(
                "{} read what {} wrote to {}, which {} replaced",
                narrator.name_with(reader, Some(read)),
                narrator.name_with(source, returned),
                history.key_text(key),
                narrator.name_with(missed, Some(write)),
            )
        };
        let (from, to) = (
            narrator.name(reader, Some(read)),
            narrator.name(missed, Some(write)),
        );
        story.say(format!(
            "however, {from} < {to}, because {reason}: a contradiction"
        ));
        Ok(Some(story.finish(history, kind, key)))
    }

    /// Whether the order of versions says that the version that a read misses is newer than the one it returned.
    fn is_known_newer(&self, forced: Forced) -> bool {
        let place = |node| self.versions.place(self.order.committed, forced.key, node);
        match (place(forced.newer), place(forced.older)) {
            (Some(returned), Some(missed)) => returned < missed,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// A cycle of causality, of what is known of the order of versions, and of what reads force.
    pub(crate) fn cycle(
        &self,
        kind: AnomalyKind,
        mut cycle: Vec<Step>,
    ) -> Result<Anomaly, Undecided> {
        let is_data = |step: &Step| step.key.is_some();
        let start = cycle.iter().position(is_data).unwrap_or(0);
        cycle.rotate_left(start);
        let mut story = Story::default();
        let first = self.ends(&cycle[0]).0;
        self.tell(&mut story, &cycle, first, first)?;
        if let Some(last) = story.because.last_mut() {
            *last = format!("however, {last}: a contradiction");
        }
        let key = cycle[0]
            .key
            .expect("invariant: a cycle has a dependency, for session order has none");
        Ok(story.finish(self.order.committed.history, kind, key))
    }

    /// Why an edge is there; what an inferred one follows from is told first.
    fn reason(&self, story: &mut Story, step: &Step, ends: Ends) -> Result<String, Undecided> {
        let (EdgeKind::Inferred, Some(key), (Some(older), Some(newer))) =
            (step.kind, step.key, ends)
        else {
            return Ok(self.narrator().reason(step, ends));
        };
        let forced = Forced {
            older: step.from,
            newer: step.to,
            key,
        };
        let visibility = self.visibility(forced)?;
        let reader = visibility.last().map_or(step.to, |step| step.to);
        let read = self.read(reader, key, step.to);
        self.tell(story, &visibility, Some(older), read)?;
        let narrator = self.narrator();
        if let Some(read) = read {
            story.edge(newer, read, EdgeKind::ReadsFrom);
        }
        Ok(format!(
            "{} read what {} wrote to {} although it comes after {}",
            narrator.name_with(reader, read),
            narrator.name_with(step.to, Some(newer)),
            self.order.committed.history.key_text(key),
            narrator.name_with(step.from, Some(older)),
        ))
    }

    /// Tells a path, edge by edge; it starts and ends at the given operations.
    fn tell(
        &self,
        story: &mut Story,
        path: &[Step],
        first: Option<OpId>,
        last: Option<OpId>,
    ) -> Result<(), Undecided> {
        let ends: Vec<Ends> = path.iter().map(|step| self.ends(step)).collect();
        for (place, step) in path.iter().enumerate() {
            let before = place.checked_sub(1).map_or(first, |before| ends[before].1);
            let after = ends.get(place + 1).map_or(last, |after| after.0);
            let from = ends[place].0.or(before).or_else(|| self.any(step.from));
            let to = ends[place].1.or(after).or_else(|| self.any(step.to));
            let reason = self.reason(story, step, (from, to))?;
            let narrator = self.narrator();
            let (a, b) = (narrator.name(step.from, from), narrator.name(step.to, to));
            story.say(format!("{a} < {b}, because {reason}"));
            if let (Some(from), Some(to)) = (from, to) {
                story.edge(from, to, step.kind);
            }
        }
        Ok(())
    }

    /// The operations that an edge connects; an edge of session order connects any.
    fn ends(&self, step: &Step) -> Ends {
        match step.kind {
            EdgeKind::Inferred => {
                let write = |node| self.write(node, step.key?);
                (write(step.from), write(step.to))
            }
            _ => self.narrator().data_ends(step),
        }
    }

    fn any(&self, node: Node) -> Option<OpId> {
        let transaction = self.order.committed.transaction(node)?;
        self.order
            .committed
            .history
            .operations_of(transaction)
            .next()
    }
}
