//! The sequential objects that the search runs: what a key holds, and what a call does to it.

use crate::history::{History, ValueId};
use crate::intern::Interner;

use super::DataType;

/// What a key holds, by number. Which number stands for what is for [`Object`] to know.
pub(super) type State = u32;

/// What a call does to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The key must hold this.
    Expect(State),
    /// The key now holds this.
    Set(State),
    /// The key must hold the one and now holds the other.
    Swap(State, State),
    /// The value is added at the end of what the key holds.
    Push(ValueId),
}

impl Effect {
    /// What the key must hold before it.
    pub(super) fn expected(self) -> Option<State> {
        match self {
            Effect::Expect(state) | Effect::Swap(state, _) => Some(state),
            Effect::Set(_) | Effect::Push(_) => None,
        }
    }
}

/// An [`Effect`] on one of the keys of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) slot: u32,
    pub(super) effect: Effect,
}

/// What nothing was written to: the empty list, the free lock.
pub(super) const EMPTY: State = 0;

/// The lock that is taken.
pub(super) const TAKEN: State = 1;

/// Several keys that are changed together, and all that they have held. States of one key are numbered by its data type:
/// a register by its value, a list as a node of the tree of all lists, a text by the order in which texts turned up. The
/// state of several keys is the number of the sequence of theirs.
pub(super) struct Object {
    datatype: DataType,
    slots: usize,
    initial: State,
    /// Lists as pairs of the list without its last element and that element; the number of a list is one more.
    lists: Interner,
    texts: Interner,
    together: Interner,
    scratch: Vec<u8>,
}

impl Object {
    /// `slots` keys which hold `initial`.
    pub(super) fn new(
        history: &History,
        datatype: DataType,
        slots: usize,
        initial: Option<&[u8]>,
    ) -> Self {
        let mut object = Object {
            datatype,
            slots,
            initial: EMPTY,
            lists: Interner::default(),
            texts: Interner::default(),
            together: Interner::default(),
            scratch: Vec::new(),
        };
        object.texts.intern(b"");
        object.initial = match (datatype, initial) {
            (_, None) => EMPTY,
            (DataType::Kv, Some(text)) => object.texts.intern(text),
            (_, Some(value)) => object.register(history, Some(value_named(history, value))),
        };
        object
    }

    /// The state of a key that holds `value`.
    pub(super) fn register(&mut self, history: &History, value: Option<ValueId>) -> State {
        match (self.datatype, value) {
            (_, None) => EMPTY,
            (DataType::Kv, Some(value)) => self.texts.intern(history.value(value)),
            (_, Some(value)) => value.index() as State + 1,
        }
    }

    /// The state of a key that holds the list of `elements`.
    pub(super) fn list(&mut self, elements: &[ValueId]) -> State {
        elements.iter().fold(EMPTY, |list, &value| {
            self.longer(list, value.index() as u32)
        })
    }

    /// The list `list` with one more element.
    fn longer(&mut self, list: State, value: u32) -> State {
        let [a, b, c, d] = list.to_le_bytes();
        let [e, f, g, h] = value.to_le_bytes();
        self.lists.intern(&[a, b, c, d, e, f, g, h]) + 1
    }

    /// The state of all keys before the first call.
    pub(super) fn start(&mut self) -> State {
        if self.slots == 1 {
            return self.initial;
        }
        let states = self.initial.to_le_bytes().repeat(self.slots);
        self.together.intern(&states)
    }

    /// Starts from another state.
    pub(super) fn start_from(&mut self, initial: State) {
        self.initial = initial;
    }

    /// The state after `steps`, unless one of them contradicts what a key holds.
    pub(super) fn after(
        &mut self,
        history: &History,
        state: State,
        steps: &[Step],
    ) -> Option<State> {
        if self.slots == 1 {
            return steps.iter().try_fold(state, |state, step| {
                self.after_effect(history, state, step.effect)
            });
        }
        let mut states = std::mem::take(&mut self.scratch);
        states.clear();
        states.extend_from_slice(self.together.get(state));
        let legal = steps.iter().all(|step| {
            let held = slot_mut(&mut states, step.slot);
            match self.after_effect(history, State::from_le_bytes(*held), step.effect) {
                Some(state) => {
                    *held = state.to_le_bytes();
                    true
                }
                None => false,
            }
        });
        let after = legal.then(|| self.together.intern(&states));
        self.scratch = states;
        after
    }

    fn after_effect(&mut self, history: &History, held: State, effect: Effect) -> Option<State> {
        match effect {
            Effect::Expect(state) => (held == state).then_some(held),
            Effect::Set(state) => Some(state),
            Effect::Swap(expected, new) => (held == expected).then_some(new),
            Effect::Push(value) if self.datatype == DataType::Kv => {
                let text = [self.texts.get(held), history.value(value)].concat();
                Some(self.texts.intern(&text))
            }
            Effect::Push(value) => Some(self.longer(held, value.index() as u32)),
        }
    }

    /// What a key holds in `state`, as people write it.
    pub(super) fn text(&self, history: &History, state: State, slot: u32) -> String {
        let held = match self.slots {
            1 => state,
            _ => {
                let mut states = self.together.get(state).to_vec();
                State::from_le_bytes(*slot_mut(&mut states, slot))
            }
        };
        match self.datatype {
            DataType::Mutex if held == TAKEN => "taken".to_owned(),
            DataType::Mutex => "free".to_owned(),
            DataType::Kv => format!("{:?}", String::from_utf8_lossy(self.texts.get(held))),
            DataType::ListAppend => {
                let elements = self.elements(held).into_iter();
                let texts: Vec<_> = elements
                    .map(|value| history.value_text(Some(value)))
                    .collect();
                format!("[{}]", texts.join(", "))
            }
            _ if held as usize > history.value_count() => "the initial value".to_owned(),
            _ => history.value_text(ValueId::at(held)),
        }
    }

    /// The elements of a list, the first one first.
    pub(super) fn elements(&self, mut list: State) -> Vec<ValueId> {
        let mut elements = Vec::new();
        while list != EMPTY {
            let node = self.lists.get(list - 1);
            let (&rest, &value) = node
                .first_chunk::<4>()
                .zip(node.last_chunk::<4>())
                .expect("invariant: a node has eight bytes");
            elements.extend(ValueId::at(u32::from_le_bytes(value) + 1));
            list = State::from_le_bytes(rest);
        }
        elements.reverse();
        elements
    }

    /// What the keys hold.
    pub(super) fn datatype(&self) -> DataType {
        self.datatype
    }

    /// About how much memory all states take.
    pub(super) fn bytes(&self) -> usize {
        self.lists.bytes() + self.texts.bytes() + self.together.bytes()
    }
}

/// The value of those bytes; if the history does not mention it, one that no operation mentions.
pub(super) fn value_named(history: &History, value: &[u8]) -> ValueId {
    let beyond = history.value_count() as u32 + 1;
    let value = history.find_value(value).or_else(|| ValueId::at(beyond));
    value.expect("invariant: the count and one is not 0")
}

fn slot_mut(states: &mut [u8], slot: u32) -> &mut [u8; 4] {
    let (slots, _) = states.as_chunks_mut::<4>();
    &mut slots[slot as usize]
}
