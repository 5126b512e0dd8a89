//! Buffered writing on one worker: connections collect output, the flusher writes each of them once per loop turn.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

use crate::config::Flush as FlushMode;

/// Something with output to write.
pub(crate) trait Flush {
    /// Writes what can be written without waiting.
    fn flush(&self);
}

/// Writes the output of a worker's connections. One per worker and mode.
pub(crate) struct Flusher {
    mode: FlushMode,
    marked: RefCell<Vec<Rc<dyn Flush>>>,
    wake: Notify,
}

impl Flusher {
    /// Starts a flusher of this worker. `Interval` is also what lazy links use: fewer, larger writes for traffic that
    /// nobody waits for.
    pub(crate) fn start(mode: FlushMode) -> Rc<Self> {
        let flusher = Rc::new(Flusher {
            mode,
            marked: RefCell::default(),
            wake: Notify::new(),
        });
        let task = flusher.clone();
        tokio::task::spawn_local(async move {
            // The task is woken by the first mark and queued behind all tasks that are ready now: whatever they
            // add is written together.
            loop {
                task.wake.notified().await;
                if let FlushMode::Interval { us } = task.mode {
                    tokio::time::sleep(Duration::from_micros(us)).await;
                }
                task.flush_marked();
            }
        });
        flusher
    }

    /// Has `connection` flushed at the end of this turn. `queued` belongs to the connection and is cleared when it is flushed.
    pub(crate) fn mark(&self, connection: Rc<dyn Flush>, queued: &Cell<bool>) {
        if self.mode == FlushMode::EveryMessage {
            connection.flush();
        } else if !queued.replace(true) {
            let mut marked = self.marked.borrow_mut();
            marked.push(connection);
            if marked.len() == 1 {
                self.wake.notify_one();
            }
        }
    }

    fn flush_marked(&self) {
        let mut marked = self.marked.take();
        for connection in marked.drain(..) {
            connection.flush();
        }
        // Keep the allocation for the next turn.
        let mut list = self.marked.borrow_mut();
        if list.is_empty() {
            *list = marked;
        }
    }
}

/// The output of one connection.
pub(crate) struct Outbox {
    stream: OwnedWriteHalf,
    pub(crate) buffer: RefCell<BytesMut>,
    queued: Cell<bool>,
    /// The kernel takes no more; [`Outbox::drain`] waits for it.
    blocked: Cell<bool>,
    closed: Cell<bool>,
    unblock: Notify,
    emptied: Notify,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedWriteHalf) -> Rc<Self> {
        Rc::new(Outbox {
            stream,
            buffer: RefCell::default(),
            queued: Cell::new(false),
            blocked: Cell::new(false),
            closed: Cell::new(false),
            unblock: Notify::new(),
            emptied: Notify::new(),
        })
    }

    /// Has the output written at the end of this turn.
    pub(crate) fn mark(self: &Rc<Self>, flusher: &Flusher) {
        flusher.mark(self.clone(), &self.queued);
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.buffer.borrow().len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Gives the connection up: nothing more is written, and [`Outbox::drain`] ends.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.unblock.notify_one();
        self.emptied.notify_one();
    }

    /// Resolves when everything was written or the connection failed.
    pub(crate) async fn emptied(&self) {
        while self.waiting_bytes() > 0 && !self.closed.get() {
            self.emptied.notified().await;
        }
    }

    /// Writes what the kernel did not take at once. Runs beside the reader; ends when the connection failed or was
    /// given up.
    pub(crate) async fn drain(&self) {
        while !self.closed.get() {
            self.unblock.notified().await;
            if self.closed.get() {
                return;
            }
            if self.stream.writable().await.is_err() {
                return self.close();
            }
            self.blocked.set(false);
            self.flush();
        }
    }
}

impl Flush for Outbox {
    fn flush(&self) {
        self.queued.set(false);
        let mut buffer = self.buffer.borrow_mut();
        while !buffer.is_empty() && !self.blocked.get() && !self.closed.get() {
            match self.stream.try_write(&buffer) {
                Ok(written) => buffer.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked.set(true);
                    self.unblock.notify_one();
                }
                Err(_) => self.close(),
            }
        }
        if buffer.is_empty() {
            self.emptied.notify_one();
        }
    }
}
