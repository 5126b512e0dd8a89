//! One key of a history after the pre-pass that all models share: what counts
//! as written, who read what, and whether the values make sense at all.

use crate::check::Evidence;
use crate::history::{Action, History, KeyId, OpId, Outcome, ValueId};
use crate::verdict::{Anomaly, AnomalyKind, Verdict};

/// Why a key does not satisfy a model.
pub(crate) enum Problem {
    Anomaly(Anomaly),
    Undecided(String),
}

/// A version of the key: `INITIAL` or one more than an index of
/// [`KeyView::writes`].
pub(crate) type Node = u32;

/// The version that precedes every write.
pub(crate) const INITIAL: Node = 0;

/// Whether an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// What an operation on a register does, and the value it reads or writes.
fn effect(history: &History, op: OpId) -> (Kind, Option<ValueId>) {
    match history.operations()[op].action {
        Action::Read(value) => (Kind::Read, value),
        Action::Write(value) => (Kind::Write, value),
        Action::Append(value) => (Kind::Write, Some(value)),
        Action::Cas { new, .. } => (Kind::Write, new),
        Action::ReadList(_) | Action::Scan(_) | Action::Acquire | Action::Release => {
            (Kind::Read, None)
        }
    }
}

/// An operation that counts: a successful read or a committed write.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) op: OpId,
    pub(crate) kind: Kind,
    pub(crate) node: Node,
}

struct Write {
    value: Option<ValueId>,
    op: OpId,
    /// Acknowledged, or unknown and read by somebody.
    committed: bool,
}

/// The operations on one key, session by session in program order.
pub(crate) struct KeyView<'h> {
    pub(crate) history: &'h History,
    pub(crate) key: KeyId,
    /// Every write that was attempted, ascending by value.
    writes: Vec<Write>,
    steps: Vec<Step>,
}

/// Judges each key on its own and combines what was found.
pub(crate) fn check_keys(
    history: &History,
    check: impl Fn(&KeyView) -> Result<(), Problem>,
) -> Verdict {
    let operations = history.operations();
    let mut order: Vec<OpId> = (0..operations.len()).collect();
    order.sort_unstable_by_key(|&id| {
        let transaction = history.transaction_of(id);
        (
            operations[id].key,
            transaction.session,
            transaction.invoke_us,
            id,
        )
    });

    let mut anomalies = Vec::new();
    let mut undecided = None;
    for ids in order.chunk_by(|&a, &b| operations[a].key == operations[b].key) {
        match KeyView::new(history, ids).and_then(|view| check(&view)) {
            Ok(()) => {}
            Err(Problem::Anomaly(anomaly)) => anomalies.push(anomaly),
            Err(Problem::Undecided(reason)) => {
                undecided.get_or_insert(reason);
            }
        }
        if anomalies.len() == Verdict::ANOMALIES_MAX {
            break;
        }
    }
    match undecided {
        _ if !anomalies.is_empty() => Verdict::Violated(anomalies),
        Some(reason) => Verdict::Unknown(reason),
        None => Verdict::Satisfied,
    }
}

impl<'h> KeyView<'h> {
    /// The view of the key that the operations `ids` share; they are sorted by
    /// session and program order.
    fn new(history: &'h History, ids: &[OpId]) -> Result<Self, Problem> {
        let key = history.operations()[ids[0]].key;
        let mut writes: Vec<Write> = ids
            .iter()
            .filter(|&&op| effect(history, op).0 == Kind::Write)
            .map(|&op| Write {
                value: effect(history, op).1,
                op,
                committed: history.transaction_of(op).outcome == Outcome::Ok,
            })
            .collect();
        writes.sort_unstable_by_key(|write| (write.value, write.op));
        let mut view = KeyView {
            history,
            key,
            writes,
            steps: Vec::new(),
        };
        view.require_unique_values()?;

        for &op in ids {
            if is_ok_read(history, op) {
                let node = view.node_read_by(op)?;
                if node != INITIAL {
                    view.writes[node as usize - 1].committed = true;
                }
            }
        }
        for &op in ids {
            let (kind, value) = effect(history, op);
            let node = view.find(value);
            let counts = match kind {
                Kind::Read => is_ok_read(history, op),
                Kind::Write => node.is_some_and(|node| view.is_committed(node)),
            };
            if let (true, Some(node)) = (counts, node) {
                view.steps.push(Step { op, kind, node });
            }
        }
        Ok(view)
    }

    /// Checkers follow values to their writes, so a repeated value leaves
    /// them without an answer.
    fn require_unique_values(&self) -> Result<(), Problem> {
        match self
            .writes
            .windows(2)
            .find(|pair| pair[0].value == pair[1].value)
        {
            None => Ok(()),
            Some(pair) => Err(Problem::Undecided(format!(
                "the value {} was written twice to key {} (#{} and #{}); written values must be unique",
                self.history.value_text(pair[0].value),
                self.history.key_text(self.key),
                pair[0].op,
                pair[1].op,
            ))),
        }
    }

    fn node_read_by(&self, read: OpId) -> Result<Node, Problem> {
        let (_, value) = effect(self.history, read);
        let text = self.history.value_text(value);
        let Some(node) = self.find(value) else {
            return Err(self.anomaly(
                AnomalyKind::ThinAirRead,
                vec![read],
                vec![format!("nobody wrote {text}")],
            ));
        };
        match self.write(node) {
            Some(write) if self.history.transaction_of(write).outcome == Outcome::Fail => Err(self
                .anomaly(
                    AnomalyKind::AbortedRead,
                    vec![write, read],
                    vec![format!("the write of {text} failed, yet it was read")],
                )),
            _ => Ok(node),
        }
    }

    fn find(&self, value: Option<ValueId>) -> Option<Node> {
        if value.is_none() {
            return Some(INITIAL);
        }
        let index = self
            .writes
            .binary_search_by_key(&value, |write| write.value)
            .ok()?;
        Node::try_from(index + 1).ok()
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Number of nodes, the initial one included.
    pub(crate) fn node_count(&self) -> usize {
        self.writes.len() + 1
    }

    /// The operation that wrote `node`; `None` for the initial version.
    pub(crate) fn write(&self, node: Node) -> Option<OpId> {
        Some(self.writes[(node as usize).checked_sub(1)?].op)
    }

    pub(crate) fn is_committed(&self, node: Node) -> bool {
        node == INITIAL || self.writes[node as usize - 1].committed
    }

    /// The value of `node` as text.
    pub(crate) fn text(&self, node: Node) -> String {
        let value = self.write(node).and_then(|op| effect(self.history, op).1);
        self.history.value_text(value)
    }

    pub(crate) fn anomaly(
        &self,
        kind: AnomalyKind,
        operations: Vec<OpId>,
        because: Vec<String>,
    ) -> Problem {
        Problem::Anomaly(Anomaly::new(
            self.history,
            kind,
            self.key,
            operations,
            because,
        ))
    }

    /// The place of every node in the protocol's own version order, or `None`
    /// when the order is not to be used or not known. The initial version has
    /// place `None`, which is less than all others; so have writes that do not
    /// count, which no step names.
    pub(crate) fn version_order(
        &self,
        evidence: Evidence,
    ) -> Result<Option<Vec<Option<u128>>>, Problem> {
        if evidence == Evidence::BlackBox {
            return Ok(None);
        }
        let operations = self.history.operations();
        let key = || self.history.key_text(self.key);
        let mut order = vec![None; self.node_count()];
        for step in self.steps.iter().filter(|step| step.node != INITIAL) {
            let place = &mut order[step.node as usize];
            match (operations[step.op].version, *place) {
                (Some(version), None) => *place = Some(version),
                (Some(version), Some(before)) if version != before => {
                    return Err(Problem::Undecided(format!(
                        "the value {} of key {} is reported with two versions, {before:#x} and {version:#x}",
                        self.text(step.node),
                        key(),
                    )));
                }
                _ => {}
            }
        }
        let without = self.steps.iter().find(|step| {
            let unknown = order[step.node as usize].is_none();
            unknown && step.node != INITIAL
        });
        match (without, evidence) {
            (Some(step), Evidence::WhiteBox) => Err(Problem::Undecided(format!(
                "the version of value {} of key {} is not known (#{})",
                self.text(step.node),
                key(),
                step.op,
            ))),
            (Some(_), _) => Ok(None),
            (None, _) => {
                let mut places: Vec<u128> = order.iter().flatten().copied().collect();
                places.sort_unstable();
                match places.windows(2).find(|pair| pair[0] == pair[1]) {
                    None => Ok(Some(order)),
                    Some(pair) => Err(Problem::Undecided(format!(
                        "two values of key {} are reported with the same version {:#x}",
                        key(),
                        pair[0],
                    ))),
                }
            }
        }
    }
}

fn is_ok_read(history: &History, op: OpId) -> bool {
    effect(history, op).0 == Kind::Read && history.transaction_of(op).outcome == Outcome::Ok
}
