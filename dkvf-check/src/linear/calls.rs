//! What the search works on: the transactions of a few keys as calls of one object.

use std::ops::Range;

use crate::check::{Budget, Exhausted};
use crate::history::{Action, History, KeyId, Outcome, Transaction, TxnId, ValueId};

use super::DataType;
use super::object::{EMPTY, Effect, Object, State, Step, TAKEN};
use super::parts::KeyRanges;

/// A transaction, which takes effect in one moment between its invocation and its return.
pub(super) struct Call {
    pub(super) transaction: TxnId,
    pub(super) session: u32,
    pub(super) invoke_us: u64,
    /// `None` if it may have happened at any later time, or never.
    pub(super) complete_us: Option<u64>,
    pub(super) steps: Range<usize>,
    /// Whether it changes nothing.
    pub(super) is_read: bool,
}

/// A call that a search considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Its place in [`Calls::calls`].
    pub(super) call: usize,
    /// Whether it may be left out and may happen after its return.
    pub(super) optional: bool,
}

/// The calls on a set of keys that transactions tie together, by invocation.
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
    pub(super) steps: Vec<Step>,
    pub(super) object: Object,
    pub(super) keys: Vec<KeyId>,
}

impl Calls {
    /// Translates `transactions`. Leaves out those that failed, reads whose outcome is unknown, and writes whose outcome
    /// is unknown and whose values nobody saw: to leave them out never does harm.
    pub(super) fn new(
        history: &History,
        datatype: DataType,
        initial: Option<&[u8]>,
        transactions: &[TxnId],
        ranges: &KeyRanges,
        budget: &Budget,
    ) -> Result<Self, Exhausted> {
        let mut keys: Vec<KeyId> = transactions
            .iter()
            .flat_map(|&id| ranges.keys_of(history, id))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let object = Object::new(history, datatype, keys.len(), initial);
        let mut calls = Calls {
            calls: Vec::new(),
            steps: Vec::new(),
            object,
            keys,
        };
        for &id in transactions {
            calls.add(history, id, ranges);
            budget.reserve(calls.steps.len() * size_of::<Step>())?;
        }
        calls
            .calls
            .sort_by_key(|call| (call.invoke_us, call.transaction));
        if datatype.keeps_what_was_written() {
            let seen = calls.seen(0..calls.calls.len());
            let steps = &calls.steps;
            calls.calls.retain(|call| {
                let mut steps = steps[call.steps.clone()].iter();
                call.complete_us.is_some() || steps.any(|step| seen.contains(step))
            });
        }
        Ok(calls)
    }

    fn add(&mut self, history: &History, id: TxnId, ranges: &KeyRanges) {
        let transaction = history.transactions()[id];
        let start = self.steps.len();
        for op in history.operations_of(id) {
            let operation = history.operations()[op];
            match transaction.outcome {
                Outcome::Fail => return,
                Outcome::Info if !operation.action.is_write() => {}
                Outcome::Ok | Outcome::Info => {
                    self.add_action(history, operation.key, operation.action, ranges);
                }
            }
        }
        let steps = start..self.steps.len();
        if steps.is_empty() {
            return;
        }
        let changes = |step: &Step| !matches!(step.effect, Effect::Expect(_));
        self.calls.push(Call {
            transaction: id,
            session: transaction.session,
            invoke_us: transaction.invoke_us,
            complete_us: definite_return(&transaction),
            is_read: !self.steps[steps.clone()].iter().any(changes),
            steps,
        });
    }

    fn add_action(&mut self, history: &History, key: KeyId, action: Action, ranges: &KeyRanges) {
        let effect = match action {
            Action::Read(value) => Effect::Expect(self.object.register(history, value)),
            Action::Write(value) => Effect::Set(self.object.register(history, value)),
            Action::Cas { expected, new } => Effect::Swap(
                self.object.register(history, expected),
                self.object.register(history, new),
            ),
            Action::Append(value) => Effect::Push(value),
            Action::ReadList(list) => Effect::Expect(self.object.list(history.list(list))),
            Action::Acquire => Effect::Swap(EMPTY, TAKEN),
            Action::Release => Effect::Swap(TAKEN, EMPTY),
            Action::Scan(scan) => {
                let scan = history.scan(scan);
                for &key in ranges.keys_in(history, &scan.low, scan.high.as_deref()) {
                    let row = scan.rows.iter().find(|&&(row, _)| row == key);
                    let state = self.object.register(history, row.map(|&(_, value)| value));
                    self.push_step(key, Effect::Expect(state));
                }
                return;
            }
        };
        self.push_step(key, effect);
    }

    fn push_step(&mut self, key: KeyId, effect: Effect) {
        let slot = self.keys.partition_point(|&other| other < key) as u32;
        self.steps.push(Step { slot, effect });
    }

    /// What some of the calls saw.
    pub(super) fn seen(&self, some: impl Iterator<Item = usize>) -> Seen {
        let mut seen = Seen::default();
        for call in some {
            for step in &self.steps[self.calls[call].steps.clone()] {
                let Some(state) = step.effect.expected() else {
                    continue;
                };
                seen.states.push((step.slot, state));
                if self.object.datatype() == DataType::ListAppend {
                    let elements = self.object.elements(state).into_iter();
                    seen.elements
                        .extend(elements.map(|value| (step.slot, value)));
                }
            }
        }
        seen.states.sort_unstable();
        seen.elements.sort_unstable();
        seen
    }

    /// All calls as they were recorded.
    pub(super) fn all(&self) -> Vec<Chosen> {
        let optional = |call: &Call| call.complete_us.is_none();
        let calls = self.calls.iter().enumerate();
        calls
            .map(|(call, recorded)| Chosen {
                call,
                optional: optional(recorded),
            })
            .collect()
    }

    /// The state after `call`, unless its results contradict `state`.
    pub(super) fn after(&mut self, history: &History, call: usize, state: State) -> Option<State> {
        let steps = self.calls[call].steps.clone();
        self.object.after(history, state, &self.steps[steps])
    }

    /// For each of `order` the place in it of the call of the same session that returned in the very instant of its
    /// invocation. Time does not order the two, their session does.
    pub(super) fn session_predecessors(&self, order: &[Chosen]) -> Vec<Option<usize>> {
        let call = |place: usize| &self.calls[order[place].call];
        let mut places: Vec<usize> = (0..order.len()).collect();
        places.sort_by_key(|&place| {
            let call = call(place);
            (call.session, call.invoke_us, call.transaction)
        });
        let mut predecessors = vec![None; order.len()];
        let mut last: Option<usize> = None;
        for place in places {
            last = last.filter(|&last| call(last).session == call(place).session);
            predecessors[place] =
                last.filter(|&last| call(last).complete_us == Some(call(place).invoke_us));
            if !order[place].optional {
                last = Some(place);
            }
        }
        predecessors
    }
}

/// When a transaction had certainly taken effect.
pub(super) fn definite_return(transaction: &Transaction) -> Option<u64> {
    (transaction.outcome == Outcome::Ok).then(|| transaction.complete_us.unwrap_or(u64::MAX))
}

/// States that were seen, and elements of lists that were, by slot.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) states: Vec<(u32, State)>,
    pub(super) elements: Vec<(u32, ValueId)>,
}

impl Seen {
    /// Whether what the step leaves behind was seen.
    pub(super) fn contains(&self, step: &Step) -> bool {
        match step.effect {
            Effect::Expect(_) => false,
            Effect::Set(state) | Effect::Swap(_, state) => {
                self.states.binary_search(&(step.slot, state)).is_ok()
            }
            Effect::Push(value) => self.elements.binary_search(&(step.slot, value)).is_ok(),
        }
    }
}
