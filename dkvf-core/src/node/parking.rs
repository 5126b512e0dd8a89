//! Parked events: what waits, and what may end its wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;

use dkvf_storage::Key;
use smallvec::SmallVec;

use crate::context::{Until, Wait};

/// The parked events of a node. An event keeps its number, which is its age, however often it is tried.
#[derive(Debug)]
pub(crate) struct Parking<E> {
    next: u64,
    items: BTreeMap<u64, Item<E>>,
    /// Tried after every event.
    any: BTreeSet<u64>,
    /// By the clock reading they wait for.
    clock: BTreeSet<(u64, u64)>,
    /// By threshold, per growing value: when the lowest threshold is not reached, no other is.
    reached: BTreeMap<(&'static Location<'static>, usize), BTreeSet<(u64, u64)>>,
    keys: BTreeMap<Key, BTreeSet<u64>>,
    /// Waited for a key that was written.
    woken: BTreeSet<u64>,
    /// Candidates that are not tried for now. They are in no other set.
    held_back: BTreeSet<u64>,
    /// `(monotonic time, number)`: requests are given the same time, so this is in order.
    deadlines: VecDeque<(u64, u64)>,
}

/// A parked event.
#[derive(Debug)]
pub(crate) struct Item<E> {
    pub(crate) event: E,
    pub(crate) wait: Wait,
}

impl<E> Parking<E> {
    pub(crate) fn new() -> Self {
        Parking {
            next: 0,
            items: BTreeMap::new(),
            any: BTreeSet::new(),
            clock: BTreeSet::new(),
            reached: BTreeMap::new(),
            keys: BTreeMap::new(),
            woken: BTreeSet::new(),
            held_back: BTreeSet::new(),
            deadlines: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn waits_for_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Parks a new event.
    pub(crate) fn park(&mut self, event: E, wait: Wait, deadline_us: Option<u64>) {
        let number = self.next;
        self.next += 1;
        if let Some(deadline_us) = deadline_us {
            self.deadlines.push_back((deadline_us, number));
        }
        self.put_back(number, Item { event, wait });
    }

    /// Parks an event again that was taken out to be tried.
    pub(crate) fn put_back(&mut self, number: u64, item: Item<E>) {
        match &item.wait.until {
            Until::Any => {
                self.any.insert(number);
            }
            Until::Clock(time) => {
                self.clock.insert((*time, number));
            }
            Until::Reached { index, threshold } => {
                self.reached
                    .entry((item.wait.location, *index))
                    .or_default()
                    .insert((*threshold, number));
            }
            Until::Key(key) => {
                self.keys.entry(key.clone()).or_default().insert(number);
            }
        }
        self.items.insert(number, item);
    }

    /// Takes an event out.
    pub(crate) fn take(&mut self, number: u64) -> Option<Item<E>> {
        let item = self.items.remove(&number)?;
        self.woken.remove(&number);
        self.held_back.remove(&number);
        match &item.wait.until {
            Until::Any => {
                self.any.remove(&number);
            }
            Until::Clock(time) => {
                self.clock.remove(&(*time, number));
            }
            Until::Reached { index, threshold } => {
                let value = (item.wait.location, *index);
                if let Some(waiting) = self.reached.get_mut(&value) {
                    waiting.remove(&(*threshold, number));
                    if waiting.is_empty() {
                        self.reached.remove(&value);
                    }
                }
            }
            Until::Key(key) => {
                if let Some(waiting) = self.keys.get_mut(key) {
                    waiting.remove(&number);
                    if waiting.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
        }
        Some(item)
    }

    /// The event with this number.
    pub(crate) fn event(&self, number: u64) -> Option<&E> {
        self.items.get(&number).map(|item| &item.event)
    }

    /// Keeps a candidate from being tried until [`Parking::resume`]; its deadline applies.
    pub(crate) fn hold_back(&mut self, number: u64) {
        if let Some(item) = self.take(number) {
            self.items.insert(number, item);
            self.held_back.insert(number);
        }
    }

    /// What was held back is to be tried.
    pub(crate) fn resume(&mut self) {
        self.woken.append(&mut self.held_back);
    }

    /// Marks the events that wait for `key` as to be tried.
    pub(crate) fn wake(&mut self, key: &Key) {
        if let Some(waiting) = self.keys.get(key) {
            self.woken.extend(waiting);
        }
    }

    /// The events whose wait may have ended, oldest first.
    pub(crate) fn candidates(&self, clock_us: u64) -> SmallVec<[u64; 8]> {
        let due = self
            .clock
            .iter()
            .take_while(|(time, _)| *time <= clock_us)
            .map(|(_, number)| *number);
        let lowest = self
            .reached
            .values()
            .filter_map(|waiting| waiting.first())
            .map(|(_, number)| *number);
        let mut numbers: SmallVec<[u64; 8]> = self
            .any
            .iter()
            .copied()
            .chain(self.woken.iter().copied())
            .chain(due)
            .chain(lowest)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// The earliest clock reading somebody waits for.
    pub(crate) fn next_clock(&self) -> Option<u64> {
        self.clock.first().map(|(time, _)| *time)
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.front().map(|(due, _)| *due)
    }

    /// Takes out the next event whose deadline has passed.
    pub(crate) fn expire(&mut self, monotonic_us: u64) -> Option<Item<E>> {
        while let Some((due, number)) = self.deadlines.front().copied() {
            if due > monotonic_us && self.items.contains_key(&number) {
                return None;
            }
            self.deadlines.pop_front();
            if let Some(item) = self.take(number) {
                return Some(item);
            }
        }
        None
    }

    /// Where the parked events wait: source lines with their counts.
    pub(crate) fn sites(&self) -> BTreeMap<&'static Location<'static>, usize> {
        let mut sites = BTreeMap::new();
        for item in self.items.values() {
            *sites.entry(item.wait.location).or_insert(0) += 1;
        }
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn wait(until: Until) -> Wait {
        Wait {
            until,
            hold_link: false,
            location: Location::caller(),
        }
    }

    #[test]
    fn only_the_lowest_threshold_of_a_value_is_a_candidate() {
        let mut parking = Parking::new();
        let mut park = |threshold| {
            parking.park(
                threshold,
                wait(Until::Reached {
                    index: 0,
                    threshold,
                }),
                None,
            )
        };
        for threshold in [30, 10, 20] {
            park(threshold);
        }
        assert_eq!(parking.candidates(0).as_slice(), [1]);
        parking.take(1);
        assert_eq!(parking.candidates(0).as_slice(), [2]);
    }

    #[test]
    fn candidates_come_oldest_first_whatever_they_wait_for() {
        let mut parking = Parking::new();
        parking.park('a', wait(Until::Key(Key::from_static(b"k"))), None);
        parking.park('b', wait(Until::Clock(5)), None);
        parking.park('c', wait(Until::Any), None);
        parking.park(
            'd',
            wait(Until::Reached {
                index: 1,
                threshold: 9,
            }),
            None,
        );
        assert_eq!(parking.candidates(4).as_slice(), [2, 3]);
        parking.wake(&Key::from_static(b"other"));
        parking.wake(&Key::from_static(b"k"));
        assert_eq!(parking.candidates(5).as_slice(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_retried_event_keeps_its_age_and_is_not_woken_twice() {
        let mut parking = Parking::new();
        let key = Key::from_static(b"k");
        parking.park('a', wait(Until::Key(key.clone())), None);
        parking.park('b', wait(Until::Any), None);
        parking.wake(&key);
        let item = parking.take(0).expect("it is parked");
        parking.put_back(0, item);
        assert_eq!(parking.candidates(0).as_slice(), [1]);
        parking.wake(&key);
        assert_eq!(parking.candidates(0).as_slice(), [0, 1]);
    }

    #[test]
    fn an_event_that_is_held_back_is_no_candidate_until_it_is_resumed_and_may_expire() {
        let mut parking = Parking::new();
        parking.park('a', wait(Until::Clock(5)), Some(10));
        parking.park('b', wait(Until::Any), Some(20));
        parking.hold_back(0);
        parking.hold_back(1);
        assert!(parking.candidates(9).is_empty());
        assert_eq!(parking.next_clock(), None, "nothing to wake up for");
        assert_eq!(parking.expire(10).map(|item| item.event), Some('a'));
        parking.resume();
        assert_eq!(parking.candidates(9).as_slice(), [1]);
    }

    #[test]
    fn deadlines_expire_in_order_and_finished_events_do_not() {
        let mut parking = Parking::new();
        for (name, deadline) in [('a', 10), ('b', 20), ('c', 30)] {
            parking.park(name, wait(Until::Any), Some(deadline));
        }
        parking.take(0);
        assert!(parking.expire(15).is_none());
        assert_eq!(parking.expire(20).map(|item| item.event), Some('b'));
        assert_eq!(parking.next_deadline(), Some(30));
        assert_eq!(parking.len(), 1);
    }
}
