//! One direction between two servers: reliable, FIFO, exactly once. Pure: no socket, no clock.
//!
//! The sender numbers frames per incarnation of the receiver, starting at 1, and keeps them in [`Link`] until the receiver
//! has *taken* them (handled or parked them, not merely received). After a reconnect the receiver says how many it has taken
//! and the sender goes on from there. The log of unacknowledged frames is also the write buffer: nothing is copied.
//!
//! A receiver that lost its state comes back with another incarnation. What was meant for the old one is dropped and
//! reported, and numbering starts anew. Its former incarnations are remembered, because a word of theirs may still be on
//! its way.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::wire::{HEADER_BYTES, frame_length};

/// A log that was longer than this gives its memory back when it is empty.
const IDLE_LOG_BYTES_MAX: usize = 1 << 20;
/// Former incarnations of a receiver that are remembered.
const FORMER_INCARNATIONS_MAX: usize = 16;

/// The sending side of a link.
#[derive(Debug)]
pub struct Link {
    /// Whole frames, the oldest first.
    log: BytesMut,
    /// Length of the log at its longest, since it was empty.
    longest: usize,
    /// Number of the first frame in the log; the next one pushed gets `first + frames`.
    first: u64,
    frames: u64,
    /// Bytes of the log that were written to the present connection.
    written: usize,
    /// Bytes of the log that were ever written to a connection: the receiver may have taken these.
    reached: usize,
    connected: bool,
    /// The receiver's incarnation, once it is known.
    incarnation: Option<u64>,
    /// The ones before it, oldest first.
    former: VecDeque<u64>,
    /// A heartbeat or cut-off that waits while the link is backed up, and its release time; a newer one replaces it.
    latest: Option<(Bytes, u64)>,
    capacity: usize,
    delay: Option<DelayLine>,
}

/// Holds frames back, to emulate a distant peer. FIFO is kept whatever the delays.
#[derive(Debug, Default)]
struct DelayLine {
    /// `(time in microseconds, end of the bytes released then)`. Ends count from the first byte of the incarnation,
    /// so that an acknowledgement need not touch them.
    releases: VecDeque<(u64, u64)>,
    /// End of the bytes that may be written.
    released: u64,
    /// Bytes acknowledged: where the log starts.
    acknowledged: u64,
}

/// No room in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a handshake with the receiver told the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The first contact.
    First,
    /// The same incarnation: the link goes on after the frames it has taken.
    Same,
    /// Another incarnation: so many frames for the old one were dropped.
    Replaced {
        /// Frames that nobody will take.
        dropped: u64,
    },
}

/// The receiver claims something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It has taken fewer frames than before, or more than were written.
    #[error(
        "the receiver says it has taken {taken} frames, after {acknowledged} before; only frames that were written to it are possible"
    )]
    ImpossibleAck {
        /// What it says.
        taken: u64,
        /// What it said before.
        acknowledged: u64,
    },
    /// It was replaced by another one.
    #[error(
        "the receiver's incarnation {incarnation:016x} was replaced: is a second server running under its name?"
    )]
    Former {
        /// The one that was replaced.
        incarnation: u64,
    },
}

impl Link {
    /// A link that keeps up to `capacity` bytes for its receiver.
    pub fn new(capacity: usize) -> Self {
        Link {
            log: BytesMut::new(),
            longest: 0,
            first: 1,
            frames: 0,
            written: 0,
            reached: 0,
            connected: false,
            incarnation: None,
            former: VecDeque::new(),
            latest: None,
            capacity,
            delay: None,
        }
    }

    /// Holds every frame back: [`Link::push`] says until when.
    pub fn with_delay(mut self) -> Self {
        self.begin_delay();
        self
    }

    /// From now on frames are held back: [`Link::push`] says until when. Those that it has already are not.
    pub fn begin_delay(&mut self) {
        let released = self.log.len() as u64;
        self.delay.get_or_insert_with(|| DelayLine {
            released,
            ..DelayLine::default()
        });
    }

    /// Nothing is held back any more, neither what was so far nor what comes.
    pub fn end_delay(&mut self) {
        self.delay = None;
    }

    /// Whether frames are held back.
    pub fn is_delayed(&self) -> bool {
        self.delay.is_some()
    }

    /// Appends a frame, encoded with its header, to be released at `release_us` if the link has a delay.
    ///
    /// # Errors
    /// [`Full`]; the frame is not in the link.
    pub fn push(&mut self, frame: &[u8], release_us: u64) -> Result<(), Full> {
        if self.log.len() + frame.len() > self.capacity {
            return Err(Full);
        }
        // A heartbeat that waits was sent before this frame and must not come after it. Without room for it, it is
        // dropped: heartbeats may take nothing of what is reserved for messages.
        if let Some((latest, release_us)) = self.latest.take()
            && self.log.len() + latest.len() + frame.len() < congestion(self.capacity)
        {
            self.append(&latest, release_us);
        }
        self.append(frame, release_us);
        Ok(())
    }

    /// Appends a frame that a newer one makes superfluous: while older frames wait to be written, only the newest such
    /// frame is kept.
    pub fn push_latest(&mut self, frame: &[u8], release_us: u64) {
        self.latest = Some((Bytes::copy_from_slice(frame), release_us));
        self.append_latest();
    }

    /// Appends the frame that waits, unless older ones are still to be written or there is no room. Returns whether
    /// it did.
    fn append_latest(&mut self) -> bool {
        let backed_up = !self.connected || self.written < self.released();
        if let Some((latest, release_us)) = self.latest.take_if(|(latest, _)| {
            !backed_up && self.log.len() + latest.len() < congestion(self.capacity)
        }) {
            self.append(&latest, release_us);
            return true;
        }
        false
    }

    fn append(&mut self, frame: &[u8], release_us: u64) {
        debug_assert_eq!(
            frame_length(frame).map(|length| length + HEADER_BYTES),
            Some(frame.len()),
            "one whole frame"
        );
        self.log.extend_from_slice(frame);
        self.frames += 1;
        self.longest = self.longest.max(self.log.len());
        if let Some(delay) = &mut self.delay {
            delay
                .releases
                .push_back((release_us, delay.acknowledged + self.log.len() as u64));
        }
    }

    /// Bytes of the log that are not held back.
    fn released(&self) -> usize {
        self.delay.as_ref().map_or(self.log.len(), |delay| {
            (delay.released - delay.acknowledged) as usize
        })
    }

    /// The bytes to write next.
    pub fn unwritten(&mut self, now_us: u64) -> &[u8] {
        if let Some(delay) = &mut self.delay {
            // Jitter does not reorder: what is behind a frame waits for it, however early its own time is.
            while let Some((time_us, end)) = delay.releases.front() {
                if *time_us > now_us {
                    break;
                }
                delay.released = *end;
                delay.releases.pop_front();
            }
        }
        let end = self.released();
        if self.connected {
            &self.log[self.written..end]
        } else {
            &[]
        }
    }

    /// When the next held-back frame may be written.
    pub fn next_release_us(&self) -> Option<u64> {
        self.delay
            .as_ref()?
            .releases
            .front()
            .map(|(time_us, _)| *time_us)
    }

    /// So many of the unwritten bytes were written to the connection.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        debug_assert!(self.written <= self.log.len());
        self.reached = self.reached.max(self.written);
        self.append_latest();
    }

    /// The connection is gone. What was written and not acknowledged is kept.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.written = 0;
    }

    /// The receiver was heard of, be it that it was called or that it calls: from now on the link is for its
    /// incarnation, and a connection to another one must be closed.
    ///
    /// # Errors
    /// A former incarnation.
    pub fn meet(&mut self, incarnation: u64) -> Result<Resumed, LinkError> {
        if self.former.contains(&incarnation) {
            return Err(LinkError::Former { incarnation });
        }
        let Some(known) = self.incarnation.replace(incarnation) else {
            return Ok(Resumed::First);
        };
        if known == incarnation {
            return Ok(Resumed::Same);
        }
        let mut former = std::mem::take(&mut self.former);
        if former.len() == FORMER_INCARNATIONS_MAX {
            former.pop_front();
        }
        former.push_back(known);
        let dropped = self.frames;
        let delay = self.delay.take().map(|_| DelayLine::default());
        *self = Link {
            delay,
            former,
            incarnation: Some(incarnation),
            ..Link::new(self.capacity)
        };
        Ok(Resumed::Replaced { dropped })
    }

    /// A new connection is there, to a receiver that has taken `taken` frames in its present incarnation.
    ///
    /// # Errors
    /// A receiver that contradicts itself; the link is not connected, whatever else it learnt.
    pub fn resume(&mut self, incarnation: u64, taken: u64) -> Result<Resumed, LinkError> {
        self.disconnected();
        let resumed = self.meet(incarnation)?;
        self.drop_taken(taken, self.reached)?;
        self.connected = true;
        self.append_latest();
        Ok(resumed)
    }

    /// The receiver has taken all frames up to number `taken`. O(frames acknowledged). Returns whether that made room
    /// for a heartbeat, which is then to be written.
    ///
    /// # Errors
    /// It cannot have: only what was written to this connection can be acknowledged on it.
    pub fn acknowledge(&mut self, taken: u64) -> Result<bool, LinkError> {
        self.drop_taken(taken, self.written)?;
        Ok(self.append_latest())
    }

    /// Drops the frames up to number `taken`, which must end within the first `possible` bytes of the log.
    fn drop_taken(&mut self, taken: u64, possible: usize) -> Result<(), LinkError> {
        let acknowledged = self.first - 1;
        let impossible = LinkError::ImpossibleAck {
            taken,
            acknowledged,
        };
        if taken < acknowledged || taken > acknowledged + self.frames {
            return Err(impossible);
        }
        let mut bytes = 0;
        for _ in acknowledged..taken {
            let length =
                frame_length(&self.log[bytes..]).expect("invariant: the log holds whole frames");
            bytes += HEADER_BYTES + length;
        }
        if bytes > possible {
            return Err(impossible);
        }
        self.log.advance(bytes);
        if self.log.is_empty() {
            if self.longest > IDLE_LOG_BYTES_MAX {
                self.log = BytesMut::new();
            }
            self.longest = 0;
        }
        self.first = taken + 1;
        self.frames -= taken - acknowledged;
        self.written = self.written.saturating_sub(bytes);
        self.reached -= bytes;
        if let Some(delay) = &mut self.delay {
            delay.acknowledged += bytes as u64;
        }
        Ok(())
    }

    /// Frames the receiver is known to have taken.
    pub fn taken(&self) -> u64 {
        self.first - 1
    }

    /// Bytes kept for the receiver.
    pub fn kept_bytes(&self) -> usize {
        self.log.len()
    }

    /// Frames kept for the receiver, not counting a heartbeat that waits.
    pub fn kept_frames(&self) -> u64 {
        self.frames
    }

    /// Bytes not yet written to the connection.
    pub fn unwritten_bytes(&self) -> usize {
        self.log.len() - self.written
    }

    /// The most bytes it may keep.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether requests of clients must be refused: a quarter of the link is reserved for what cannot be refused.
    pub fn is_congested(&self) -> bool {
        self.kept_bytes() >= congestion(self.capacity)
    }

    /// Whether a connection is there.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
}

/// The bytes of a link that are not reserved.
fn congestion(capacity: usize) -> usize {
    capacity - capacity / 4
}
