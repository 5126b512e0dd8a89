//! One direction of a connection: what is on its way arrives in the order in which it was sent.

use std::collections::VecDeque;

/// Something that is sent.
#[derive(Clone, Debug)]
pub(crate) struct Frame<T> {
    /// When it left its sender.
    pub(crate) sent_us: u64,
    /// When it arrives, once it is on its way.
    due_us: u64,
    /// Its number among all events: where it stands among those of one time.
    number: u64,
    pub(crate) body: T,
}

/// Frames in three parts: those that have arrived and wait to be taken, those that are on their way, those that wait
/// to be sent. Only the first one that is on its way has an event in the queue of the simulation.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    frames: VecDeque<Frame<T>>,
    arrived: usize,
    flying: usize,
    /// When the last one that was sent arrives: none that is sent later overtakes it.
    last_due_us: u64,
    /// The number of the event in the queue, 0 if there is none.
    armed: u64,
}

/// The event that a wire wants: its time and number.
pub(crate) type Arrival = Option<(u64, u64)>;

impl<T> Wire<T> {
    pub(crate) fn new() -> Self {
        Wire {
            frames: VecDeque::new(),
            arrived: 0,
            flying: 0,
            last_due_us: 0,
            armed: 0,
        }
    }

    /// Appends a frame that waits to be sent.
    #[inline]
    pub(crate) fn push(&mut self, sent_us: u64, body: T) {
        self.frames.push_back(Frame {
            sent_us,
            due_us: 0,
            number: 0,
            body,
        });
    }

    /// Puts a frame back before all others. Nothing may have arrived or be on its way.
    pub(crate) fn push_front(&mut self, sent_us: u64, body: T) {
        debug_assert_eq!(self.arrived + self.flying, 0);
        self.frames.push_front(Frame {
            sent_us,
            due_us: 0,
            number: 0,
            body,
        });
    }

    /// The first frame that waits to be sent.
    #[inline]
    pub(crate) fn waiting(&self) -> Option<&Frame<T>> {
        self.frames.get(self.arrived + self.flying)
    }

    /// Sends the first frame that waits, to arrive at `due_us` or right after the one before it. Returns the event to
    /// push if the wire has none.
    #[inline]
    pub(crate) fn launch(&mut self, due_us: u64, number: u64) -> Arrival {
        let frame = &mut self.frames[self.arrived + self.flying];
        frame.due_us = due_us.max(self.last_due_us);
        frame.number = number;
        self.last_due_us = frame.due_us;
        self.flying += 1;
        self.arm()
    }

    /// The event for the first frame on its way, if there is one and it has none.
    fn arm(&mut self) -> Arrival {
        if self.armed != 0 || self.flying == 0 {
            return None;
        }
        let frame = &self.frames[self.arrived];
        self.armed = frame.number;
        Some((frame.due_us, frame.number))
    }

    /// The event with this number has come. `None` if it is out of date. Otherwise the first frame on its way has
    /// arrived; returns the event for the next one.
    #[inline]
    pub(crate) fn arrive(&mut self, number: u64) -> Option<Arrival> {
        if self.armed != number {
            return None;
        }
        self.armed = 0;
        self.arrived += 1;
        self.flying -= 1;
        Some(self.arm())
    }

    /// The event with this number has come, but nothing is let through: [`Wire::release`] goes on.
    pub(crate) fn hold_back(&mut self, number: u64) {
        if self.armed == number {
            self.armed = 0;
        }
    }

    /// What was held back arrives now; returns the event to push.
    pub(crate) fn release(&mut self, now_us: u64) -> Arrival {
        let arrival = self.arm();
        arrival.map(|(due_us, number)| (due_us.max(now_us), number))
    }

    /// Takes the oldest frame that has arrived.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Frame<T>> {
        self.arrived = self.arrived.checked_sub(1)?;
        self.frames.pop_front()
    }

    /// The connection breaks: what was on its way or has arrived and was not taken waits to be sent again.
    pub(crate) fn cut(&mut self) {
        self.arrived = 0;
        self.flying = 0;
        self.armed = 0;
        self.last_due_us = 0;
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.cut();
        self.frames.clear();
    }

    /// Drops the frames that had not left at `now_us`, whose sender died then.
    pub(crate) fn drop_sent_after(&mut self, now_us: u64) {
        while self
            .frames
            .back()
            .is_some_and(|frame| frame.sent_us > now_us)
        {
            self.frames.pop_back();
            if self.frames.len() < self.arrived + self.flying {
                self.flying -= 1;
            }
        }
        if self.flying == 0 {
            self.armed = 0;
        }
    }

    /// All frames, the oldest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame<T>> {
        self.frames.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
