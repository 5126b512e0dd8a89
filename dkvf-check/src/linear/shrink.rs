//! Smaller sets of calls that have no linearization either.
//!
//! Every step keeps the argument valid: a set that has no linearization here proves that the whole history has none.
//! Reads may be dropped. A change may not, for later reads could need it; but it may become one that possibly happened,
//! and if nobody saw it, it may then go.

use crate::check::Budget;
use crate::history::History;

use super::DataType;
use super::calls::{Calls, Chosen};
use super::object::{EMPTY, TAKEN};
use super::search::{Found, Stuck, search};

/// Steps of search that may be spent on shrinking.
const STEPS_MAX: u64 = 2_000_000;

/// Steps of one of these searches.
const SEARCH_STEPS_MAX: u64 = 200_000;

/// The calls that remain of those that `stuck` is about, and how a search gets stuck on them.
pub(super) fn shrink(
    history: &History,
    calls: &mut Calls,
    stuck: Stuck,
    budget: &Budget,
) -> (Vec<Chosen>, Stuck) {
    let chosen = until(calls, stuck.until_us);
    let mut shrinking = Shrinking {
        history,
        calls,
        budget,
        steps_left: STEPS_MAX,
        chosen: chosen.clone(),
        stuck,
    };
    if shrinking.accept(chosen) {
        shrinking.drop_what_came_before();
        shrinking.drop_reads();
        // Each may make way for the other.
        while shrinking.relax_changes() | shrinking.drop_reads() {}
    }
    (shrinking.chosen, shrinking.stuck)
}

/// The calls up to a time: those that returned later may have happened, and later ones do not matter.
fn until(calls: &Calls, until_us: u64) -> Vec<Chosen> {
    let invoked = calls.all().into_iter();
    invoked
        .filter(|chosen| calls.calls[chosen.call].invoke_us <= until_us)
        .map(|chosen| {
            let complete_us = calls.calls[chosen.call].complete_us;
            Chosen {
                optional: complete_us.is_none_or(|complete_us| complete_us > until_us),
                ..chosen
            }
        })
        .filter(|chosen| !chosen.optional || !calls.calls[chosen.call].is_read)
        .collect()
}

struct Shrinking<'s, 'h> {
    history: &'h History,
    calls: &'s mut Calls,
    budget: &'s Budget<'s>,
    steps_left: u64,
    chosen: Vec<Chosen>,
    stuck: Stuck,
}

impl Shrinking<'_, '_> {
    /// Takes `chosen` instead of the present calls if it is certain that they have no linearization.
    fn accept(&mut self, chosen: Vec<Chosen>) -> bool {
        match self.search(&chosen) {
            Some(stuck) => {
                self.chosen = chosen;
                self.stuck = stuck;
                true
            }
            None => false,
        }
    }

    fn search(&mut self, chosen: &[Chosen]) -> Option<Stuck> {
        let granted = self.steps_left.min(SEARCH_STEPS_MAX);
        let mut left = granted;
        let found = search(self.history, self.calls, chosen, self.budget, &mut left);
        self.steps_left -= granted - left;
        match found {
            Ok(Found::Stuck(stuck)) => Some(stuck),
            Ok(Found::Linearization) | Err(_) => None,
        }
    }

    /// A lock has two states. Where no call is under way, what came before can go if neither of them explains the rest.
    fn drop_what_came_before(&mut self) {
        if self.calls.object.datatype() != DataType::Mutex {
            return;
        }
        let mut returned_us = 0;
        let mut cuts = Vec::new();
        for (place, chosen) in self.chosen.iter().enumerate() {
            let call = &self.calls.calls[chosen.call];
            if place > 0 && returned_us < call.invoke_us {
                cuts.push(place);
            }
            let definite = call.complete_us.filter(|_| !chosen.optional);
            returned_us = returned_us.max(definite.unwrap_or(u64::MAX));
        }
        for &cut in cuts.iter().rev() {
            let rest = self.chosen[cut..].to_vec();
            self.calls.object.start_from(TAKEN);
            let taken = self.search(&rest);
            self.calls.object.start_from(EMPTY);
            if taken.is_some() && self.accept(rest) {
                return;
            }
        }
    }

    /// Drops reads, many at once if that works. Returns whether it dropped any.
    fn drop_reads(&mut self) -> bool {
        let before = self.chosen.len();
        let mut size = before.div_ceil(2);
        while size > 0 {
            let mut end = self.chosen.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let kept = |place: usize, chosen: &Chosen| {
                    !(start..end).contains(&place) || !self.calls.calls[chosen.call].is_read
                };
                let places = self.chosen.iter().enumerate();
                let rest: Vec<Chosen> = places
                    .filter(|&(place, chosen)| kept(place, chosen))
                    .map(|(_, &chosen)| chosen)
                    .collect();
                if rest.len() < self.chosen.len() {
                    self.accept(rest);
                }
                end = start;
            }
            size /= 2;
        }
        self.chosen.len() < before
    }

    /// Lets changes happen later or never, and drops those which nobody saw. Returns whether any went.
    fn relax_changes(&mut self) -> bool {
        let before = self.chosen.len();
        for place in (0..self.chosen.len()).rev() {
            if self.chosen[place].optional || self.calls.calls[self.chosen[place].call].is_read {
                continue;
            }
            let mut relaxed = self.chosen.clone();
            relaxed[place].optional = true;
            self.accept(relaxed);
        }
        if self.calls.object.datatype().keeps_what_was_written() {
            let calls = &*self.calls;
            let seen = calls.seen(self.chosen.iter().map(|chosen| chosen.call));
            let is_needed = |chosen: &Chosen| {
                let steps = calls.calls[chosen.call].steps.clone();
                !chosen.optional || calls.steps[steps].iter().any(|step| seen.contains(step))
            };
            let rest: Vec<Chosen> = self.chosen.iter().copied().filter(is_needed).collect();
            if rest.len() < before {
                self.accept(rest);
            }
        }
        self.chosen.len() < before
    }
}
