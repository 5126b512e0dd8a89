//! The connection behind one outgoing link: dialling, resuming, writing, reading acknowledgements.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::clock::HostClock;
use super::connection::{Address, handshake, read_frame};
use super::flush::{Flush, Flusher};
use super::link::{Full, Link, LinkError, Resumed};
use super::orders::LinkOrder;
use super::wire::{self, Hello};
use crate::PeerState;

/// Longest pause between two attempts to connect, in first pauses.
const RECONNECT_PAUSES_MAX: u32 = 50;
/// Largest acknowledgement frame accepted, in bytes.
const ACK_BYTES_MAX: usize = 16;

/// Delay of a link, to emulate distance, or a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkDelay {
    pub(crate) delay_us: u64,
    pub(crate) jitter_us: u64,
    /// Nothing is released before the delay changes.
    pub(crate) hold: bool,
}

impl LinkDelay {
    fn is_none(&self) -> bool {
        *self == LinkDelay::default()
    }
}

/// The links of a node that have no room for what requests of clients cause.
#[derive(Default)]
pub(crate) struct Congestion {
    links: Cell<usize>,
    /// None of them is congested any more.
    pub(crate) ended: Notify,
}

impl Congestion {
    pub(crate) fn is_there(&self) -> bool {
        self.links.get() > 0
    }

    fn begin(&self) {
        self.links.set(self.links.get() + 1);
    }

    fn end(&self) {
        self.links.set(self.links.get() - 1);
        if self.links.get() == 0 {
            self.ended.notify_one();
        }
    }
}

/// When this link's output is written.
#[derive(Clone)]
pub(crate) enum Pace {
    Eager(Rc<Flusher>),
    Lazy {
        bytes: usize,
        eager: Rc<Flusher>,
        lazy: Rc<Flusher>,
    },
}

/// An outgoing link and its connection.
pub(crate) struct Peer {
    pub(crate) name: String,
    link: RefCell<Link>,
    stream: RefCell<Option<Rc<OwnedWriteHalf>>>,
    pace: Pace,
    clock: HostClock,
    /// As it was configured.
    distance: LinkDelay,
    /// With what is wrong on purpose.
    delay: Cell<LinkDelay>,
    jitter: Cell<u64>,
    /// Cut on purpose: it is not dialled before it is mended.
    cut: Cell<bool>,
    mended: Notify,
    queued: Cell<bool>,
    queued_lazily: Cell<bool>,
    blocked: Cell<bool>,
    unblock: Notify,
    release: Notify,
    hang_up: Notify,
    /// The congested links of the node, and whether this is one of them.
    congestion: Rc<Congestion>,
    congested: Cell<bool>,
    pub(crate) reconnects: Cell<u64>,
}

/// What the dialling task tells the node.
pub(crate) trait PeerEvents {
    fn peer_changed(&self, state: PeerState);
    /// The peer is another incarnation now; `dropped` frames for its former one are.
    fn peer_replaced(&self, incarnation: u64, dropped: u64);
}

impl Peer {
    pub(crate) fn new(
        name: String,
        capacity: usize,
        pace: Pace,
        clock: HostClock,
        distance: LinkDelay,
        // Differs from link to link, so that their jitters do.
        seed: u64,
        congestion: Rc<Congestion>,
    ) -> Rc<Self> {
        let mut link = Link::new(capacity);
        if !distance.is_none() {
            link.begin_delay();
        }
        Rc::new(Peer {
            name,
            link: RefCell::new(link),
            stream: RefCell::default(),
            pace,
            clock,
            distance,
            delay: Cell::new(distance),
            // xorshift stays at 0 for ever.
            jitter: Cell::new(seed | 1),
            cut: Cell::new(false),
            mended: Notify::new(),
            queued: Cell::new(false),
            queued_lazily: Cell::new(false),
            blocked: Cell::new(false),
            unblock: Notify::new(),
            release: Notify::new(),
            hang_up: Notify::new(),
            congestion,
            congested: Cell::new(false),
            reconnects: Cell::new(0),
        })
    }

    pub(crate) fn link(&self) -> std::cell::Ref<'_, Link> {
        self.link.borrow()
    }

    /// Appends an encoded frame and has it written in due time.
    pub(crate) fn push(self: &Rc<Self>, frame: &[u8], latest: bool) -> Result<(), Full> {
        let release_us = self.release_time();
        let (unwritten, delayed) = {
            let mut link = self.link.borrow_mut();
            if latest {
                link.push_latest(frame, release_us);
            } else {
                link.push(frame, release_us)?;
            }
            (link.unwritten_bytes(), link.is_delayed())
        };
        self.note_congestion();
        if delayed {
            self.release.notify_one();
            return Ok(());
        }
        match &self.pace {
            Pace::Eager(flusher) => flusher.mark(self.clone(), &self.queued),
            Pace::Lazy { bytes, eager, .. } if unwritten >= *bytes => {
                eager.mark(self.clone(), &self.queued)
            }
            Pace::Lazy { lazy, .. } => lazy.mark(self.clone(), &self.queued_lazily),
        }
        Ok(())
    }

    fn release_time(&self) -> u64 {
        let LinkDelay {
            delay_us,
            jitter_us,
            hold,
        } = self.delay.get();
        if hold {
            return u64::MAX;
        }
        if delay_us + jitter_us == 0 {
            return 0;
        }
        // xorshift: jitter needs to look irregular, nothing more.
        let mut x = self.jitter.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.jitter.set(x);
        self.clock.monotonic_us()
            + delay_us
            + if jitter_us == 0 {
                0
            } else {
                x % (jitter_us + 1)
            }
    }

    fn note_congestion(&self) {
        let congested = self.link.borrow().is_congested();
        if congested != self.congested.replace(congested) {
            if congested {
                self.congestion.begin();
            } else {
                self.congestion.end();
            }
        }
    }

    /// The peer calls as `incarnation`. A connection to another incarnation is closed.
    pub(crate) fn meet(&self, incarnation: u64) -> Result<Resumed, LinkError> {
        let met = self.link.borrow_mut().meet(incarnation)?;
        if let Resumed::Replaced { .. } = met {
            self.note_congestion();
            self.hang_up();
        }
        Ok(met)
    }

    /// Has wrong with the link what `order` says, and nothing else.
    pub(crate) fn obey(&self, order: &LinkOrder) {
        let delay = LinkDelay {
            delay_us: self.distance.delay_us + order.delay_us,
            jitter_us: self.distance.jitter_us + order.jitter_us,
            hold: order.hold,
        };
        let former = self.delay.replace(delay);
        {
            let mut link = self.link.borrow_mut();
            if delay.is_none() || (former.hold && !delay.hold) {
                link.end_delay();
            }
            if !delay.is_none() {
                link.begin_delay();
            }
        }
        self.flush();
        self.unblock.notify_one();
        let was_cut = self.cut.replace(order.cut_to);
        if order.cut_to {
            self.hang_up();
        } else if was_cut {
            self.mended.notify_one();
        }
    }

    /// Closes the connection.
    pub(crate) fn hang_up(&self) {
        if self.stream.borrow_mut().take().is_some() {
            self.link.borrow_mut().disconnected();
            self.hang_up.notify_one();
        }
    }

    /// Keeps the link connected, for as long as the node lives.
    pub(crate) async fn run(
        self: Rc<Self>,
        address: Address,
        hello: Hello,
        pause: Duration,
        events: Rc<dyn PeerEvents>,
    ) {
        let mut wait = pause;
        let mut reported = String::new();
        let mut was_down = false;
        loop {
            while self.cut.get() {
                self.mended.notified().await;
                wait = pause;
            }
            let taken = self.link.borrow().taken();
            match self.connect(&address, &hello).await {
                Ok((reader, incarnation, resumed)) => {
                    match resumed {
                        Resumed::First | Resumed::Same if !was_down => {}
                        Resumed::First | Resumed::Same => events.peer_changed(PeerState::Up),
                        Resumed::Replaced { dropped } => events.peer_replaced(incarnation, dropped),
                    }
                    tracing::info!(peer = %self.name, "link up");
                    reported.clear();
                    self.flush();
                    let reason = self.serve_connection(reader).await;
                    tracing::info!(peer = %self.name, reason = %format_args!("{reason:#}"), "link down");
                    self.disconnect();
                    events.peer_changed(PeerState::Down);
                    was_down = true;
                    // A connection that breaks before it was of any use is no better than none: the pause grows.
                    if self.link.borrow().taken() != taken {
                        wait = pause;
                    }
                }
                Err(reason) => {
                    // The same trouble at every attempt is said once.
                    let reason = format!("{reason:#}");
                    if reason == reported {
                        tracing::debug!(peer = %self.name, %reason, "cannot connect");
                    } else {
                        tracing::warn!(peer = %self.name, %reason, "cannot connect");
                        reported = reason;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(pause * RECONNECT_PAUSES_MAX);
        }
    }

    async fn connect(
        &self,
        address: &Address,
        hello: &Hello,
    ) -> anyhow::Result<(OwnedReadHalf, u64, Resumed)> {
        let stream: TcpStream = address.connect().await?;
        let (mut reader, writer) = stream.into_split();
        let welcome = handshake(&mut reader, &writer, hello).await?;
        anyhow::ensure!(!self.cut.get(), "the link was cut meanwhile");
        let resumed = self
            .link
            .borrow_mut()
            .resume(welcome.incarnation, welcome.taken)?;
        *self.stream.borrow_mut() = Some(Rc::new(writer));
        self.blocked.set(false);
        self.reconnects.set(self.reconnects.get() + 1);
        self.note_congestion();
        Ok((reader, welcome.incarnation, resumed))
    }

    fn disconnect(&self) {
        self.link.borrow_mut().disconnected();
        *self.stream.borrow_mut() = None;
    }

    /// Returns why the connection ended. Whatever waits for it ends with it: the next one starts afresh.
    async fn serve_connection(&self, reader: OwnedReadHalf) -> anyhow::Error {
        let Some(stream) = self.stream.borrow().clone() else {
            return anyhow::anyhow!("closed by this side");
        };
        let ended = tokio::select! {
            ended = self.read_acks(reader) => ended,
            ended = self.write_when_possible(&stream) => ended,
            () = self.hung_up() => Err(anyhow::anyhow!("closed by this side")),
        };
        let Err(reason) = ended;
        reason
    }

    async fn hung_up(&self) {
        while self.stream.borrow().is_some() {
            self.hang_up.notified().await;
        }
    }

    async fn read_acks(&self, mut reader: OwnedReadHalf) -> anyhow::Result<Infallible> {
        let mut buffer = BytesMut::with_capacity(256);
        loop {
            let frame = read_frame(&mut reader, &mut buffer, ACK_BYTES_MAX).await?;
            let taken = wire::decode_ack(&frame)?;
            let more_to_write = self.link.borrow_mut().acknowledge(taken)?;
            self.note_congestion();
            if more_to_write {
                self.release.notify_one();
            }
        }
    }

    /// Writes what the kernel did not take at once, and what a delay or a full link held back.
    async fn write_when_possible(&self, stream: &OwnedWriteHalf) -> anyhow::Result<Infallible> {
        loop {
            if self.blocked.get() {
                stream.writable().await?;
                self.blocked.set(false);
            } else {
                let next_us = self.link.borrow().next_release_us();
                let released = async {
                    match next_us {
                        None => self.release.notified().await,
                        Some(time_us) => {
                            let now_us = self.clock.monotonic_us();
                            tokio::time::sleep(Duration::from_micros(
                                time_us.saturating_sub(now_us),
                            ))
                            .await;
                        }
                    }
                };
                tokio::select! {
                    () = released => {}
                    () = self.unblock.notified() => continue,
                }
            }
            self.flush();
        }
    }
}

impl Flush for Peer {
    fn flush(&self) {
        self.queued.set(false);
        self.queued_lazily.set(false);
        let stream = self.stream.borrow();
        let Some(stream) = stream.as_ref() else {
            return;
        };
        let mut link = self.link.borrow_mut();
        let now_us = if link.is_delayed() {
            self.clock.monotonic_us()
        } else {
            0
        };
        while !self.blocked.get() {
            let unwritten = link.unwritten(now_us);
            if unwritten.is_empty() {
                return;
            }
            match stream.try_write(unwritten) {
                Ok(written) => link.wrote(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked.set(true);
                    self.unblock.notify_one();
                }
                // The reader sees the broken connection and reconnects.
                Err(_) => return,
            }
        }
    }
}
