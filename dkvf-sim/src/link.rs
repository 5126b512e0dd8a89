//! The session layer between two servers, one direction: reliable, in order, exactly once, above connections that
//! break.
//!
//! It does what `dkvf_core::net::link` does on TCP, with typed messages instead of bytes. Frames are numbered by what
//! the sender emitted in its present incarnation; a heartbeat that a newer one made superfluous leaves a gap. The
//! receiver's position is known to the sender at once: acknowledgements cost nothing and take no time, and a frame is
//! acknowledged when it is taken. What a receiver forgets in a crash, because it was not stable, is given back to the
//! sender.

use crate::wire::Wire;

/// A message between servers and its place in the session.
#[derive(Clone, Debug)]
pub(crate) struct Envelope<M> {
    pub(crate) number: u64,
    pub(crate) bytes: u32,
    pub(crate) latest: bool,
    pub(crate) message: M,
}

/// The connection of a link, as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// It is there.
    Up,
    /// It is broken, and the sender has not noticed.
    Broken,
    /// The sender dials since then. It reports the peer as `Up` when it gets through, unless this is its first
    /// connection.
    Dialling { since_us: u64, first: bool },
    /// The sender is down.
    Idle,
}

/// The sender does not know its receiver's incarnation yet: whoever answers is the first.
pub(crate) const UNKNOWN: u32 = 0;
/// The sender has forgotten that its receiver was replaced, and has to be told again.
pub(crate) const FORGOTTEN: u32 = u32::MAX;

/// How a link mangles what it delivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BrokenPromise {
    pub(crate) lose_permille: u16,
    pub(crate) repeat_permille: u16,
    pub(crate) reorder_permille: u16,
}

/// One direction between two servers.
#[derive(Debug)]
pub(crate) struct Link<M> {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) wire: Wire<Envelope<M>>,
    /// A heartbeat that waits because older frames do; a newer one replaces it.
    latest: Option<(u64, Envelope<M>)>,
    /// Number of the last frame that the sender's present incarnation emitted.
    pub(crate) emitted: u64,
    /// Number of the last one that the receiver has taken.
    pub(crate) taken: u64,
    /// The sender's incarnation that `taken` counts.
    pub(crate) taken_from: u32,
    /// The receiver's incarnation, as the sender knows it; or [`UNKNOWN`], [`FORGOTTEN`].
    pub(crate) receiver: u32,
    pub(crate) connection: Connection,
    /// Counts what happened to the connection, so that events of former ones are recognised.
    pub(crate) generation: u32,
    pub(crate) kept_bytes: u64,
    pub(crate) congested: bool,
    /// When what was sent has left the transmitter, in nanoseconds.
    pub(crate) transmitting_until_ns: u64,
    pub(crate) transmit_armed: bool,
    // ---- Faults ----
    pub(crate) cuts: u32,
    pub(crate) holds: u32,
    /// Delay and jitter in microseconds, of each fault that delays it.
    pub(crate) delays: Vec<(u64, u64)>,
    pub(crate) broken_promise: Option<BrokenPromise>,
    /// A message that the next one overtakes.
    pub(crate) overtaken: Option<M>,
}

impl<M> Link<M> {
    pub(crate) fn new(from: u16, to: u16) -> Self {
        Link {
            from,
            to,
            wire: Wire::new(),
            latest: None,
            emitted: 0,
            taken: 0,
            taken_from: 0,
            receiver: 0,
            connection: Connection::Up,
            generation: 0,
            kept_bytes: 0,
            congested: false,
            transmitting_until_ns: 0,
            transmit_armed: false,
            cuts: 0,
            holds: 0,
            delays: Vec::new(),
            broken_promise: None,
            overtaken: None,
        }
    }

    /// Appends a message. `false`: it would keep more than `capacity` bytes, and is not in the link.
    #[inline]
    pub(crate) fn push(&mut self, sent_us: u64, bytes: u32, message: M, capacity: u64) -> bool {
        let bytes_after = self.kept_bytes + u64::from(bytes);
        if bytes_after > capacity {
            return false;
        }
        // A heartbeat that waits was sent before this message and must not come after it. Without room for it, it is
        // dropped: heartbeats may take nothing of what is reserved for messages.
        if let Some((sent_us, latest)) = self.latest.take()
            && bytes_after + u64::from(latest.bytes) < congestion(capacity)
        {
            self.append(sent_us, latest);
        }
        self.emitted += 1;
        let number = self.emitted;
        self.append(
            sent_us,
            Envelope {
                number,
                bytes,
                latest: false,
                message,
            },
        );
        true
    }

    /// Appends a message that a newer one makes superfluous: it waits while `backed_up`, and then only the newest does.
    pub(crate) fn push_latest(
        &mut self,
        sent_us: u64,
        bytes: u32,
        message: M,
        capacity: u64,
        backed_up: bool,
    ) {
        self.emitted += 1;
        let number = self.emitted;
        self.latest = Some((
            sent_us,
            Envelope {
                number,
                bytes,
                latest: true,
                message,
            },
        ));
        if !backed_up {
            self.append_latest(capacity);
        }
    }

    /// Appends the heartbeat that waits, if there is room.
    pub(crate) fn append_latest(&mut self, capacity: u64) {
        if let Some((sent_us, latest)) = self
            .latest
            .take_if(|(_, latest)| self.kept_bytes + u64::from(latest.bytes) < congestion(capacity))
        {
            self.append(sent_us, latest);
        }
    }

    #[inline]
    fn append(&mut self, sent_us: u64, envelope: Envelope<M>) {
        self.kept_bytes += u64::from(envelope.bytes);
        self.wire.push(sent_us, envelope);
    }

    /// The receiver takes the oldest frame that has arrived.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u64, Envelope<M>)> {
        let frame = self.wire.take()?;
        self.kept_bytes -= u64::from(frame.body.bytes);
        self.taken = frame.body.number;
        Some((frame.sent_us, frame.body))
    }

    /// The receiver has forgotten that it took `envelope`, the last one that it took.
    pub(crate) fn give_back(&mut self, now_us: u64, envelope: Envelope<M>) {
        self.kept_bytes += u64::from(envelope.bytes);
        self.wire.push_front(now_us, envelope);
    }

    /// Drops all that is kept; returns how many messages that were, heartbeats apart.
    pub(crate) fn drop_kept(&mut self) -> u64 {
        let dropped = self
            .wire
            .frames()
            .filter(|frame| !frame.body.latest)
            .count();
        self.wire.clear();
        self.latest = None;
        self.kept_bytes = 0;
        dropped as u64
    }

    /// Whether a message that is no heartbeat waits here.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.overtaken.is_some() || self.wire.frames().any(|frame| !frame.body.latest)
    }

    /// Whether requests of clients must be refused: a quarter of the link is reserved for what cannot be refused.
    pub(crate) fn is_congested(&self, capacity: u64) -> bool {
        self.kept_bytes >= congestion(capacity)
    }
}

/// The bytes of a link that are not reserved.
fn congestion(capacity: u64) -> u64 {
    capacity - capacity / 4
}

/// When a caller that was cut off at `since_us` dials for the first time at `from_us` or later: the pauses between its
/// attempts begin with `pause_us` and double up to `pauses_max` times as long.
pub(crate) fn next_attempt(since_us: u64, from_us: u64, pause_us: u64, pauses_max: u64) -> u64 {
    let (mut attempt_us, mut pause_us, longest_us) =
        (since_us, pause_us.max(1), pause_us.max(1) * pauses_max);
    while attempt_us < from_us && pause_us < longest_us {
        attempt_us += pause_us;
        pause_us = (pause_us * 2).min(longest_us);
    }
    if attempt_us < from_us {
        attempt_us += (from_us - attempt_us).div_ceil(longest_us) * longest_us;
    }
    attempt_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_after_pauses_that_double_up_to_the_longest() {
        // From 100 on with pauses of 10, 20, 40, 40, ...: at 100, 110, 130, 170, 210, 250.
        let next = |from_us| next_attempt(100, from_us, 10, 4);
        assert_eq!(
            [90, 100, 101, 111, 130, 131, 171, 211].map(next),
            [100, 100, 110, 130, 130, 170, 210, 250]
        );
        assert_eq!(next(1_000_001), 1_000_010, "170 + 40 n");
    }
}
