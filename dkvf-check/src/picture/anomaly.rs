//! The picture of an anomaly.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{History, KeyId, OpId, Outcome, SiteId, TxnId};
use crate::verdict::{Anomaly, Edge, EdgeKind};

use super::diagram::{Arrow, Bar, Diagram, Lane, Place, Step};

/// Other transactions on the same keys that are shown, faintly.
const CONTEXT_MAX: usize = 6;

/// Transactions with more operations show those of the anomaly, and no more than so many.
const STEPS_MAX: usize = 6;

impl Diagram {
    /// The operations of `anomaly`, which was found in `history`, with its arrows and its argument, and a few other
    /// operations on the same keys at that time. A lane is a session at a site. O(n) in the history.
    pub fn of_anomaly(history: &History, anomaly: &Anomaly) -> Diagram {
        let edge_ends = anomaly.edges.iter().flat_map(|edge| [edge.from, edge.to]);
        let operations = anomaly.operations.iter().copied().chain(edge_ends);
        let involved: BTreeSet<OpId> = operations.collect();
        let mut shown: BTreeSet<TxnId> = involved.iter().map(|&op| history.owner(op)).collect();
        let context = context(history, &involved, &shown);
        shown.extend(context);
        let mut picture = Picture::new(history, &shown);
        for &transaction in &shown {
            picture.add(transaction, &involved);
        }
        let several_keys = keys(history, &involved).len() > 1;
        let arrows = anomaly.edges.iter();
        let arrows = arrows.filter_map(|edge| picture.arrow(edge, several_keys));
        picture.diagram.arrows = arrows.collect();
        picture.diagram.title = format!("{} on key {}", anomaly.kind.name(), anomaly.key);
        picture.diagram.caption = anomaly.because.clone();
        picture.diagram
    }
}

fn keys(history: &History, operations: &BTreeSet<OpId>) -> BTreeSet<KeyId> {
    let operations = operations.iter();
    operations.map(|&op| history.operations()[op].key).collect()
}

/// Transactions that touch the keys of the anomaly while it happens; of many the ones that write, then the first.
fn context(history: &History, involved: &BTreeSet<OpId>, shown: &BTreeSet<TxnId>) -> Vec<TxnId> {
    let keys = keys(history, involved);
    let transactions = history.transactions();
    let end_us = |txn: TxnId| {
        transactions[txn]
            .complete_us
            .unwrap_or(transactions[txn].invoke_us)
    };
    let from_us = shown.iter().map(|&txn| transactions[txn].invoke_us).min();
    let until_us = shown.iter().map(|&txn| end_us(txn)).max();
    let (Some(from_us), Some(until_us)) = (from_us, until_us) else {
        return Vec::new();
    };
    let touches = |txn: TxnId| {
        let mut operations = history.operations()[history.operations_of(txn)].iter();
        operations.any(|op| keys.contains(&op.key))
    };
    let others = (0..transactions.len()).filter(|txn| {
        !shown.contains(txn)
            && transactions[*txn].invoke_us <= until_us
            && end_us(*txn) >= from_us
            && touches(*txn)
    });
    let writes = |txn: TxnId| {
        let mut operations = history.operations()[history.operations_of(txn)].iter();
        operations.any(|op| op.action.is_write() && keys.contains(&op.key))
    };
    let mut others: Vec<(bool, u64, TxnId)> = others
        .map(|txn| (!writes(txn), transactions[txn].invoke_us, txn))
        .collect();
    others.sort_unstable();
    others.truncate(CONTEXT_MAX);
    others.into_iter().map(|(.., txn)| txn).collect()
}

/// A diagram that grows, and where its operations are.
struct Picture<'h> {
    history: &'h History,
    diagram: Diagram,
    lanes: BTreeMap<(SiteId, u32), usize>,
    places: BTreeMap<OpId, Place>,
}

impl<'h> Picture<'h> {
    /// Lanes for these transactions, those of a site together.
    fn new(history: &'h History, shown: &BTreeSet<TxnId>) -> Self {
        let transactions = shown.iter().map(|&txn| &history.transactions()[txn]);
        let sessions: BTreeSet<(SiteId, u32)> = transactions
            .map(|transaction| (transaction.site, transaction.session))
            .collect();
        let lanes = sessions.iter().map(|&(site, session)| Lane {
            name: format!("session {session}"),
            group: history.site(site).to_owned(),
        });
        Picture {
            diagram: Diagram {
                lanes: lanes.collect(),
                ..Diagram::default()
            },
            history,
            lanes: sessions.into_iter().zip(0..).collect(),
            places: BTreeMap::new(),
        }
    }

    fn add(&mut self, txn: TxnId, involved: &BTreeSet<OpId>) {
        let transaction = &self.history.transactions()[txn];
        let Some(&lane) = self.lanes.get(&(transaction.site, transaction.session)) else {
            return;
        };
        let operations = self.history.operations_of(txn);
        let is_shown = |op: &OpId| operations.len() <= STEPS_MAX || involved.contains(op);
        let shown: Vec<OpId> = operations.clone().filter(is_shown).collect();
        let bar = self.diagram.bars.len();
        let mut steps = Vec::with_capacity(shown.len());
        for op in shown {
            let place = Place {
                bar,
                step: steps.len(),
            };
            self.places.insert(op, place);
            steps.push(self.step(op, involved.contains(&op)));
        }
        let more = operations.len() - steps.len();
        if more > 0 {
            steps.push(Step {
                text: format!("and {more} more"),
                ..Step::default()
            });
        }
        let outcome = match transaction.outcome {
            Outcome::Ok => "",
            Outcome::Fail => "failed",
            Outcome::Info => "outcome unknown",
        };
        if !outcome.is_empty() {
            steps.push(Step {
                text: outcome.to_owned(),
                ..Step::default()
            });
        }
        let is_single = self.history.is_single();
        self.diagram.bars.push(Bar {
            lane,
            start_us: transaction.invoke_us,
            end_us: transaction.complete_us,
            name: if is_single {
                String::new()
            } else {
                format!("T{txn}")
            },
            steps,
            is_involved: operations.clone().any(|op| involved.contains(&op)),
            is_certain: transaction.outcome == Outcome::Ok,
            detail: String::new(),
        });
    }

    fn step(&self, op: OpId, is_involved: bool) -> Step {
        Step {
            name: format!("#{op}"),
            text: self.history.action_text(op).to_string(),
            detail: self.history.describe(op).to_string(),
            is_involved,
        }
    }

    /// The arrow of an edge; it names its key where there are several.
    fn arrow(&self, edge: &Edge, several_keys: bool) -> Option<Arrow> {
        let key = self.history.operations()[edge.to].key;
        let about_a_key = matches!(
            edge.kind,
            EdgeKind::ReadsFrom | EdgeKind::VersionOrder | EdgeKind::AntiDependency
        );
        let label = edge.kind.label();
        Some(Arrow {
            from: *self.places.get(&edge.from)?,
            to: *self.places.get(&edge.to)?,
            kind: edge.kind,
            label: match about_a_key && several_keys {
                true => format!("{label} {}", self.history.key_text(key)),
                false => label.to_owned(),
            },
            is_dashed: edge.kind == EdgeKind::Inferred,
        })
    }
}
