//! The events to come, by time and then by number.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Something that is going to happen. Small and plain: what it is about lies in the table that the index belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The next frame of a link arrives.
    Frame { link: u32 },
    /// A link can transmit again.
    Transmit { link: u32 },
    /// The sender of a link notices that its connection is broken.
    LinkLost { link: u32, generation: u32 },
    /// A connection of a link is there.
    LinkUp { link: u32, generation: u32 },
    /// The next request of a client connection arrives.
    Request { connection: u32 },
    /// The next reply of a client connection arrives.
    Reply { connection: u32 },
    /// The client notices that a connection is broken.
    ConnectionLost { connection: u32, generation: u32 },
    /// A client connection is there.
    ConnectionUp { connection: u32, generation: u32 },
    /// A node's timers or waits may be due.
    Tick { node: u32 },
    /// A host's processor can go on.
    Work { host: u32 },
    /// A node's disk has made its journal stable.
    Synced { node: u32, generation: u32 },
    /// The oldest request of a client without an answer may have reached its deadline.
    Deadline,
    /// A session wanted to be woken.
    Alarm { session: u32 },
    /// A change of the fault schedule.
    Change { index: u32 },
    /// A fault that was injected by hand ends.
    Ends { fault: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time_us: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    /// The standard heap has its greatest element first: the earliest event is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_us, other.number).cmp(&(self.time_us, self.number))
    }
}

/// A queue of events. Of those of one time the one with the lower number comes first; numbers are given in the order
/// of what caused the events.
///
/// The event that was popped last keeps its place in the heap until the next operation: most events cause another one,
/// which then takes that place at half the cost.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    vacant: bool,
    numbers: u64,
}

impl Queue {
    /// The next number, from 1.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds an event with a number of its own.
    #[inline]
    pub(crate) fn push(&mut self, time_us: u64, event: Event) {
        let number = self.number();
        self.push_numbered(time_us, number, event);
    }

    /// Adds an event with a number that was given before.
    #[inline]
    pub(crate) fn push_numbered(&mut self, time_us: u64, number: u64, event: Event) {
        let entry = Entry {
            time_us,
            number,
            event,
        };
        if self.vacant
            && let Some(mut top) = self.heap.peek_mut()
        {
            self.vacant = false;
            *top = entry;
            return;
        }
        self.heap.push(entry);
    }

    /// Takes the next event, if it is not after `until_us`: its time and number with it.
    #[inline]
    pub(crate) fn pop(&mut self, until_us: u64) -> Option<(u64, u64, Event)> {
        if self.vacant
            && let Some(top) = self.heap.peek_mut()
        {
            PeekMut::pop(top);
        }
        self.vacant = false;
        let Entry {
            time_us,
            number,
            event,
        } = *self.heap.peek()?;
        if time_us > until_us {
            return None;
        }
        self.vacant = true;
        Some((time_us, number, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_number_however_pops_and_pushes_mix() {
        let mut queue = Queue::default();
        let event = |session| Event::Alarm { session };
        queue.push(5, event(0));
        queue.push(3, event(1));
        queue.push(5, event(2));
        assert_eq!(queue.pop(10), Some((3, 2, event(1))));
        queue.push(4, event(3));
        queue.push(3, event(4));
        let mut order = Vec::new();
        while let Some((_, _, Event::Alarm { session })) = queue.pop(10) {
            order.push(session);
            if session == 0 {
                queue.push(6, event(5));
            }
        }
        assert_eq!(order, [4, 3, 0, 2, 5]);
    }

    #[test]
    fn an_event_after_the_limit_stays() {
        let mut queue = Queue::default();
        queue.push(5, Event::Deadline);
        assert_eq!(queue.pop(4), None);
        assert_eq!(queue.pop(5), Some((5, 1, Event::Deadline)));
        assert_eq!(queue.pop(u64::MAX), None);
    }
}
