//! The search for a linearization, complete for every data type: Wing and Gong (JPDC 1993) with the linked list and the
//! table of visited configurations of Lowe (2017).

use crate::check::{Budget, Exhausted};
use crate::history::History;
use crate::intern::Interner;

use super::calls::{Calls, Chosen};
use super::object::State;

/// What a search found.
pub(super) enum Found {
    /// An order of the calls explains all results.
    Linearization,
    /// There is none.
    Stuck(Stuck),
}

/// How far a search came that found nothing. Calls are named by their place in [`Calls::calls`].
pub(super) struct Stuck {
    /// The longest order of calls that agrees with real time and all results.
    pub(super) longest: Vec<usize>,
    /// What was held after them.
    pub(super) state: State,
    /// The call that had to come next, because it returned first.
    pub(super) blocked: usize,
    /// No order reaches beyond this time; calls that were invoked later do not matter.
    pub(super) until_us: u64,
}

/// Looks for an order of the `chosen` calls that agrees with real time, with the order of a session at equal instants and
/// with all results. Calls that may have happened may be left out.
///
/// Takes exponential time in the number of calls that overlap, and linear time in the others. A read that the present
/// state allows is never postponed, because it changes nothing.
///
/// # Errors
///
/// When `budget` or `steps_left` are exhausted; then nothing is known.
pub(super) fn search(
    history: &History,
    calls: &mut Calls,
    chosen: &[Chosen],
    budget: &Budget,
    steps_left: &mut u64,
) -> Result<Found, Exhausted> {
    Search::new(history, calls, chosen, budget, steps_left).run()
}

/// What became of the attempt to put a call next.
enum Move {
    Placed,
    /// Another one may come next.
    Refused,
    /// Nothing that comes next helps.
    Hopeless,
}

/// A call on the stack, and what to restore when it is taken back.
struct Frame {
    place: usize,
    state: State,
    first: usize,
    end: usize,
    forced: bool,
}

struct Search<'s, 'h> {
    history: &'h History,
    calls: &'s mut Calls,
    budget: &'s Budget<'s>,
    steps_left: &'s mut u64,
    /// Definite calls by invocation, then the others. A *place* is an index in it.
    order: Vec<Chosen>,
    definite: usize,
    /// By place: the call of the same session that must come before.
    after: Vec<Option<usize>>,
    /// Invocations (twice the place) and returns (one more) by time, as a ring with one more entry as its end.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Which calls are placed: 32 to a word, the definite ones first, the others from a word of their own.
    done: Vec<u32>,
    /// The first definite call that is not placed, and where the placed ones end.
    first: usize,
    end: usize,
    state: State,
    stack: Vec<Frame>,
    seen: Interner,
    key: Vec<u8>,
    longest: Longest,
}

/// The longest stack at which the search had to turn back.
#[derive(Default)]
struct Longest {
    places: Vec<usize>,
    /// So many places agree with the present stack.
    shared: usize,
    state: State,
    blocked: Option<usize>,
    until_us: u64,
}

impl<'s, 'h> Search<'s, 'h> {
    fn new(
        history: &'h History,
        calls: &'s mut Calls,
        chosen: &[Chosen],
        budget: &'s Budget<'s>,
        steps_left: &'s mut u64,
    ) -> Self {
        let mut order = chosen.to_vec();
        order.sort_by_key(|chosen| (chosen.optional, calls.calls[chosen.call].invoke_us));
        let definite = order.partition_point(|chosen| !chosen.optional);
        let words = definite.div_ceil(32) + (order.len() - definite).div_ceil(32);
        let (next, previous) = ring(calls, &order);
        let state = calls.object.start();
        Search {
            history,
            after: calls.session_predecessors(&order),
            calls,
            budget,
            steps_left,
            definite,
            order,
            next,
            previous,
            done: vec![0; words],
            first: 0,
            end: 0,
            state,
            stack: Vec::new(),
            seen: Interner::default(),
            key: Vec::new(),
            longest: Longest::default(),
        }
    }

    fn run(mut self) -> Result<Found, Exhausted> {
        let ring_end = 2 * self.order.len();
        let mut entry = self.next[ring_end] as usize;
        while self.first < self.definite {
            self.spend()?;
            let place = entry / 2;
            let outcome = if entry % 2 == 1 {
                self.note_dead_end(place);
                Move::Hopeless
            } else {
                self.place(place)
            };
            let from = match outcome {
                Move::Placed => ring_end,
                Move::Refused => entry,
                Move::Hopeless => match self.take_back() {
                    Some(place) => 2 * place,
                    None => return Ok(Found::Stuck(self.stuck())),
                },
            };
            entry = self.next[from] as usize;
        }
        Ok(Found::Linearization)
    }

    fn spend(&mut self) -> Result<(), Exhausted> {
        self.budget.spend(1)?;
        self.budget
            .reserve(self.seen.bytes() + self.calls.object.bytes())?;
        *self.steps_left = self
            .steps_left
            .checked_sub(1)
            .ok_or_else(|| Exhausted("the step limit was reached".to_owned()))?;
        Ok(())
    }

    fn is_placed(&self, place: usize) -> bool {
        let (word, bit) = self.bit(place);
        self.done[word] & bit != 0
    }

    fn bit(&self, place: usize) -> (usize, u32) {
        match place.checked_sub(self.definite) {
            None => (place / 32, 1 << (place % 32)),
            Some(optional) => (
                self.definite.div_ceil(32) + optional / 32,
                1 << (optional % 32),
            ),
        }
    }

    /// Puts the call next, if that is allowed and new.
    fn place(&mut self, place: usize) -> Move {
        if self.after[place].is_some_and(|before| !self.is_placed(before)) {
            return Move::Refused;
        }
        let chosen = self.order[place];
        let Some(state) = self.calls.after(self.history, chosen.call, self.state) else {
            return Move::Refused;
        };
        let frame = Frame {
            place,
            state: self.state,
            first: self.first,
            end: self.end,
            forced: !chosen.optional && self.calls.calls[chosen.call].is_read,
        };
        let (word, bit) = self.bit(place);
        self.done[word] |= bit;
        if place < self.definite {
            self.end = self.end.max(place + 1);
            while self.first < self.definite && self.is_placed(self.first) {
                self.first += 1;
            }
        }
        self.state = state;
        if !self.is_new() {
            self.restore(&frame);
            return if frame.forced {
                Move::Hopeless
            } else {
                Move::Refused
            };
        }
        self.unlink(place);
        self.stack.push(frame);
        Move::Placed
    }

    /// Whether the present configuration was not visited before. It is the set of placed calls and the state; of the set
    /// only the part behind the first definite call that is missing is stored.
    fn is_new(&mut self) -> bool {
        self.key.clear();
        self.key.extend(self.state.to_le_bytes());
        self.key.extend((self.first as u32).to_le_bytes());
        let optional = self.definite.div_ceil(32)..self.done.len();
        let window = (self.first / 32).min(self.end.div_ceil(32))..self.end.div_ceil(32);
        for word in self.done[optional].iter().chain(&self.done[window]) {
            self.key.extend(word.to_le_bytes());
        }
        let visited = self.seen.len();
        self.seen.intern(&self.key) as usize == visited
    }

    fn unlink(&mut self, place: usize) {
        for entry in self.entries(place) {
            let (before, behind) = (self.previous[entry], self.next[entry]);
            self.next[before as usize] = behind;
            self.previous[behind as usize] = before;
        }
    }

    fn link(&mut self, place: usize) {
        for entry in self.entries(place).rev() {
            let (before, behind) = (self.previous[entry], self.next[entry]);
            self.next[before as usize] = entry as u32;
            self.previous[behind as usize] = entry as u32;
        }
    }

    /// The entries of a call in the ring: a call that may not have happened has no return.
    fn entries(&self, place: usize) -> std::ops::Range<usize> {
        2 * place..2 * place + 1 + usize::from(place < self.definite)
    }

    fn restore(&mut self, frame: &Frame) {
        let (word, bit) = self.bit(frame.place);
        self.done[word] &= !bit;
        self.state = frame.state;
        self.first = frame.first;
        self.end = frame.end;
    }

    /// Takes back the last call for which there is an alternative.
    fn take_back(&mut self) -> Option<usize> {
        while let Some(frame) = self.stack.pop() {
            self.restore(&frame);
            self.link(frame.place);
            self.longest.shared = self.longest.shared.min(self.stack.len());
            if !frame.forced {
                return Some(frame.place);
            }
        }
        None
    }

    /// The call at `place` returns here and is not placed. Keeps the stack if it is the longest one; only the part that
    /// is new is copied.
    fn note_dead_end(&mut self, place: usize) {
        let call = &self.calls.calls[self.order[place].call];
        let returned_us = call.complete_us.unwrap_or(u64::MAX);
        self.longest.until_us = self.longest.until_us.max(returned_us);
        if self.longest.blocked.is_none() || self.stack.len() > self.longest.places.len() {
            let shared = self.longest.shared;
            self.longest.places.truncate(shared);
            let new = self.stack[shared..].iter().map(|frame| frame.place);
            self.longest.places.extend(new);
            self.longest.shared = self.stack.len();
            self.longest.state = self.state;
            self.longest.blocked = Some(place);
        }
    }

    fn stuck(self) -> Stuck {
        let call = |place: usize| self.order[place].call;
        let blocked = self.longest.blocked;
        Stuck {
            longest: self
                .longest
                .places
                .iter()
                .map(|&place| call(place))
                .collect(),
            state: self.longest.state,
            blocked: call(blocked.expect("invariant: a search that fails met a return")),
            until_us: self.longest.until_us,
        }
    }
}

/// The invocations and returns of `order` by time. At equal instants invocations come first: the calls overlap.
fn ring(calls: &Calls, order: &[Chosen]) -> (Vec<u32>, Vec<u32>) {
    let mut entries: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * order.len());
    for (place, chosen) in order.iter().enumerate() {
        let call = &calls.calls[chosen.call];
        entries.push((call.invoke_us, false, 2 * place));
        if let (false, Some(complete_us)) = (chosen.optional, call.complete_us) {
            entries.push((complete_us, true, 2 * place + 1));
        }
    }
    entries.sort_unstable();
    let end = 2 * order.len();
    let mut next = vec![0; end + 1];
    let mut previous = vec![0; end + 1];
    let mut before = end;
    for entry in entries.into_iter().map(|(.., entry)| entry).chain([end]) {
        next[before] = entry as u32;
        previous[entry] = before as u32;
        before = entry;
    }
    (next, previous)
}
