//! The client side on TCP: many sessions of one process share one connection per server.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use smallvec::SmallVec;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::clock::HostClock;
use super::connection::{Address, handshake, read_more};
use super::flush::{Flusher, Outbox};
use super::wire::{self, Hello, MAGIC};
use super::worker::Local;
use crate::config::Flush as FlushMode;
use crate::limits::{READ_BUFFER_BYTES_MIN, SESSIONS_PER_PROCESS_MAX};
use crate::{
    ClientContext, ClientPort, Failure, Message, Metadata, Outcome, Reason, ServerId,
    SessionExecutor, Topology,
};

/// How often deadlines are looked at while requests are without an answer.
const DEADLINE_SWEEP: Duration = Duration::from_millis(20);
/// First and longest pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(320);
/// Time after which a server that stops within a reply is called again.
const HALF_REPLY_PATIENCE: Duration = Duration::from_secs(10);

/// What a pool needs to know.
pub struct PoolOptions {
    /// The cluster.
    pub topology: Topology,
    /// Where its members listen for clients, by id.
    pub addresses: Vec<Address>,
    /// The protocol's name, for the handshake.
    pub protocol: &'static str,
    /// Time from a request to [`Failure::Unknown`].
    pub timeout: Duration,
    /// When requests are written.
    pub flush: FlushMode,
    /// Largest request, in bytes; a reply may be twice as long.
    pub message_bytes_max: usize,
}

/// The sessions of one worker and their connections.
pub struct ClientPool<M: Metadata> {
    options: PoolOptions,
    process: u64,
    flusher: Rc<Flusher>,
    clock: HostClock,
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    slots: RefCell<Vec<Slot<M>>>,
    /// Sessions whose reply or alarm came.
    ready: RefCell<Vec<u32>>,
    executor: RefCell<Option<Rc<dyn SessionExecutor>>>,
    alarms: RefCell<BinaryHeap<Reverse<(u64, u32)>>>,
    alarm: Notify,
    /// Requests without an answer, and the news that there are some.
    outstanding: Cell<usize>,
    /// When deadlines were last looked at, while there are any.
    swept_us: Cell<u64>,
    /// The time of the answers that are being handed out.
    batch_us: Cell<Option<u64>>,
    sent: Notify,
    tasks: RefCell<Vec<AbortHandle>>,
    last_error: RefCell<Option<String>>,
    lag_us: Cell<u64>,
    closed: Cell<bool>,
}

struct Slot<M: Metadata> {
    waiting: SmallVec<[Waiting<M>; 1]>,
    waker: Option<Waker>,
}

/// A request without an answer, or an answer nobody has taken yet.
struct Waiting<M: Metadata> {
    request: u64,
    server: ServerId,
    /// Kept to be sent again should the connection break: the server recognises repetitions.
    message: M::ClientMessage,
    /// The incarnation it was sent to, [`NOT_SENT`] while there was no connection.
    sent_to: u64,
    deadline_us: u64,
    answer: Option<Outcome<M::ClientReply>>,
}

/// No incarnation of a server.
const NOT_SENT: u64 = 0;

#[derive(Default)]
struct Connection {
    /// Whom the outbox leads to.
    incarnation: Cell<u64>,
    outbox: RefCell<Option<Rc<Outbox>>>,
}

impl<M: Metadata> ClientPool<M> {
    /// Starts a pool on this worker.
    pub fn start(local: &Rc<Local>, options: PoolOptions) -> Rc<Self> {
        let pool = Rc::new(ClientPool {
            process: local.random_u64(),
            flusher: local.flusher(options.flush),
            clock: HostClock::new(0),
            connections: RefCell::new(vec![None; options.addresses.len()]),
            slots: RefCell::default(),
            ready: RefCell::default(),
            executor: RefCell::default(),
            alarms: RefCell::default(),
            alarm: Notify::new(),
            outstanding: Cell::new(0),
            swept_us: Cell::new(0),
            batch_us: Cell::new(None),
            sent: Notify::new(),
            tasks: RefCell::default(),
            last_error: RefCell::default(),
            lag_us: Cell::new(0),
            closed: Cell::new(false),
            options,
        });
        pool.spawn(pool.clone().sweep_deadlines());
        pool.spawn(pool.clone().ring_alarms());
        pool
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks
            .borrow_mut()
            .push(tokio::task::spawn_local(task).abort_handle());
    }

    /// Closes the connections. Requests without an answer end as [`Failure::Unknown`], later ones as
    /// [`Reason::NotSent`]. A pool that is not closed lives as long as its worker.
    pub fn close(&self) {
        self.closed.set(true);
        for task in self.tasks.take() {
            task.abort();
        }
        for connection in self.connections.take().into_iter().flatten() {
            *connection.outbox.borrow_mut() = None;
        }
        self.expire(u64::MAX);
        self.run_ready();
    }

    /// A new session bound to `replica`.
    ///
    /// # Panics
    /// After 16 million sessions.
    pub fn session(self: &Rc<Self>, replica: u16) -> (u32, ClientContext<M>) {
        let mut slots = self.slots.borrow_mut();
        let session = slots.len() as u32;
        assert!(
            session < SESSIONS_PER_PROCESS_MAX,
            "a process has at most {SESSIONS_PER_PROCESS_MAX} sessions"
        );
        slots.push(Slot {
            waiting: SmallVec::new(),
            waker: None,
        });
        (
            session,
            ClientContext::new(
                Rc::new(self.clone()),
                self.options.topology.clone(),
                session,
                replica,
            ),
        )
    }

    /// Has ready sessions polled in batches by `executor` instead of waking a task each: after every batch of replies.
    pub fn set_executor(&self, executor: Rc<dyn SessionExecutor>) {
        *self.executor.borrow_mut() = Some(executor);
    }

    /// Why the last connection attempt failed, if the newest one of a server did.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.borrow().clone()
    }

    /// The most that an alarm has been late, in microseconds: the load generator's own lag.
    pub fn lag_us(&self) -> u64 {
        self.lag_us.get()
    }

    fn connection(self: &Rc<Self>, server: ServerId) -> Rc<Connection> {
        let mut connections = self.connections.borrow_mut();
        let connection = &mut connections[server.index()];
        if let Some(connection) = connection {
            return connection.clone();
        }
        let new = Rc::new(Connection::default());
        *connection = Some(new.clone());
        self.spawn(self.clone().keep_connected(server, new.clone()));
        new
    }

    async fn keep_connected(self: Rc<Self>, server: ServerId, connection: Rc<Connection>) {
        let hello = Hello {
            magic: MAGIC,
            protocol: self.options.protocol.to_owned(),
            server: String::new(),
            incarnation: self.process,
            partitions: self.options.topology.partitions() as u32,
            fingerprint: 0,
        };
        let mut pause = RECONNECT_PAUSE;
        loop {
            let mut answered = false;
            let outcome = async {
                let stream = self.options.addresses[server.index()].connect().await?;
                let (mut reader, writer) = stream.into_split();
                let welcome = handshake(&mut reader, &writer, &hello).await?;
                *self.last_error.borrow_mut() = None;
                let outbox = Outbox::new(writer);
                self.send_waiting(server, welcome.incarnation, &outbox);
                connection.incarnation.set(welcome.incarnation);
                *connection.outbox.borrow_mut() = Some(outbox.clone());
                self.run_ready();
                tokio::select! {
                    end = self.read_replies(&mut reader, &mut answered) => end,
                    () = outbox.drain() => Ok(()),
                }
            };
            let outcome: anyhow::Result<()> = outcome.await;
            *connection.outbox.borrow_mut() = None;
            let member = &self.options.topology.member(server).name;
            let error = match outcome {
                Ok(()) => format!("server {member} closed the connection"),
                Err(error) => format!("server {member}: {error:#}"),
            };
            tracing::debug!("{error}");
            *self.last_error.borrow_mut() = Some(error);
            if answered {
                pause = RECONNECT_PAUSE;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    /// Sends again what the server may not have seen, under the same numbers. What was sent to a former incarnation ends
    /// as unknown: the present one knows nothing of it, so it would do it twice, or refuse what was done.
    fn send_waiting(&self, server: ServerId, incarnation: u64, outbox: &Rc<Outbox>) {
        for (session, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            let mut ended = 0;
            for waiting in slot
                .waiting
                .iter_mut()
                .filter(|waiting| waiting.server == server && waiting.answer.is_none())
            {
                if waiting.sent_to != NOT_SENT && waiting.sent_to != incarnation {
                    waiting.answer = Some(Err(Failure::Unknown));
                    ended += 1;
                    continue;
                }
                waiting.sent_to = incarnation;
                wire::encode_request(
                    &mut outbox.buffer.borrow_mut(),
                    session as u32,
                    waiting.request,
                    &waiting.message,
                );
            }
            if ended > 0 {
                self.outstanding.set(self.outstanding.get() - ended);
                self.wake(session as u32, slot);
            }
        }
        outbox.mark(&self.flusher);
    }

    async fn read_replies(
        &self,
        reader: &mut OwnedReadHalf,
        answered: &mut bool,
    ) -> anyhow::Result<()> {
        let mut buffer = BytesMut::new();
        let mut size = READ_BUFFER_BYTES_MIN;
        let bytes_max = wire::wrapped_bytes_max(self.options.message_bytes_max);
        while read_more(reader, &mut buffer, &mut size, HALF_REPLY_PATIENCE).await? {
            while let Some(frame) = wire::next_frame(&mut buffer, bytes_max)? {
                let (session, request, result) = wire::decode_reply::<M::ClientReply>(frame)?;
                *answered = true;
                self.answer(session, request, result);
            }
            self.run_ready();
        }
        Ok(())
    }

    fn answer(&self, session: u32, request: u64, answer: Outcome<M::ClientReply>) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(session as usize) else {
            return;
        };
        // Late or repeated answers find nobody waiting.
        if let Some(waiting) = slot
            .waiting
            .iter_mut()
            .find(|waiting| waiting.request == request && waiting.answer.is_none())
        {
            waiting.answer = Some(answer);
            self.outstanding.set(self.outstanding.get() - 1);
            self.wake(session, slot);
        }
    }

    fn wake(&self, session: u32, slot: &mut Slot<M>) {
        // An executor polls with a waker that does nothing: what it needs is the session's number.
        if self.executor.borrow().is_some() {
            self.ready.borrow_mut().push(session);
        } else if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// Polls what became ready. All of it shares one reading of the clock: the time at which the answers were there.
    fn run_ready(&self) {
        if self.ready.borrow().is_empty() {
            return;
        }
        let executor = self.executor.borrow().clone();
        let mut ready = self.ready.take();
        match executor {
            Some(executor) => {
                self.batch_us.set(Some(self.clock.monotonic_us()));
                executor.run(&mut ready);
                self.batch_us.set(None);
            }
            None => ready.clear(),
        }
        let mut list = self.ready.borrow_mut();
        if list.is_empty() {
            *list = ready;
        }
    }

    /// Looks at deadlines, but only while there are any: an idle pool sleeps.
    async fn sweep_deadlines(self: Rc<Self>) {
        loop {
            while self.outstanding.get() == 0 {
                self.sent.notified().await;
            }
            tokio::time::sleep(DEADLINE_SWEEP).await;
            self.swept_us.set(self.clock.monotonic_us());
            self.expire(self.swept_us.get());
            self.run_ready();
        }
    }

    /// Gives up on the requests whose deadline has passed.
    fn expire(&self, now_us: u64) {
        for (session, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            let expired = slot
                .waiting
                .iter_mut()
                .filter(|waiting| waiting.answer.is_none() && waiting.deadline_us <= now_us);
            let mut count = 0;
            for waiting in expired {
                waiting.answer = Some(Err(Failure::Unknown));
                count += 1;
            }
            if count > 0 {
                self.outstanding.set(self.outstanding.get() - count);
                self.wake(session as u32, slot);
            }
        }
    }

    async fn ring_alarms(self: Rc<Self>) {
        loop {
            let next_us = self
                .alarms
                .borrow()
                .peek()
                .map(|Reverse((time_us, _))| *time_us);
            let now_us = self.clock.monotonic_us();
            match next_us {
                None => self.alarm.notified().await,
                // Sleeping is precise to about a millisecond; the last stretch yields to the other tasks instead.
                Some(time_us) if time_us > now_us + 1_500 => {
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_micros(time_us - now_us - 1_500)) => {}
                        () = self.alarm.notified() => {}
                    }
                }
                Some(time_us) if time_us > now_us => tokio::task::yield_now().await,
                Some(_) => {
                    self.ring_due(now_us);
                    self.run_ready();
                }
            }
        }
    }

    fn ring_due(&self, now_us: u64) {
        let mut alarms = self.alarms.borrow_mut();
        while let Some(Reverse((time_us, session))) = alarms.peek().copied()
            && time_us <= now_us
        {
            alarms.pop();
            self.lag_us.set(self.lag_us.get().max(now_us - time_us));
            self.wake(session, &mut self.slots.borrow_mut()[session as usize]);
        }
    }
}

/// The pool as the port of its sessions.
impl<M: Metadata> ClientPort<M> for Rc<ClientPool<M>> {
    fn send(
        &self,
        session: u32,
        server: ServerId,
        request: u64,
        message: M::ClientMessage,
    ) -> Result<(), Reason> {
        if self.closed.get() {
            return Err(Reason::NotSent("the client pool is closed".to_owned()));
        }
        let connection = self.connection(server);
        let mut sent_to = NOT_SENT;
        let bytes = match &*connection.outbox.borrow() {
            Some(outbox) => {
                let mut buffer = outbox.buffer.borrow_mut();
                let before = buffer.len();
                wire::encode_request(&mut buffer, session, request, &message);
                let bytes = buffer.len() - before - wire::HEADER_BYTES;
                if bytes > self.options.message_bytes_max {
                    buffer.truncate(before);
                }
                drop(buffer);
                outbox.mark(&self.flusher);
                sent_to = connection.incarnation.get();
                bytes
            }
            None => message.encoded_len() + wire::REQUEST_NUMBERS_BYTES_MAX,
        };
        // The server would close the connection that all sessions of this process share.
        if bytes > self.options.message_bytes_max {
            let max = self.options.message_bytes_max;
            return Err(Reason::NotSent(format!(
                "a request of {bytes} bytes, over the limit of {max} (message_bytes_max)"
            )));
        }
        if self.outstanding.replace(self.outstanding.get() + 1) == 0 {
            self.swept_us.set(self.clock.monotonic_us());
            self.sent.notify_one();
        }
        // Deadlines are looked at by sweeps, so the last sweep's time is as good as the clock's.
        let deadline_us = self.swept_us.get() + self.options.timeout.as_micros() as u64;
        let waiting = Waiting {
            request,
            server,
            message,
            sent_to,
            deadline_us,
            answer: None,
        };
        self.slots.borrow_mut()[session as usize]
            .waiting
            .push(waiting);
        Ok(())
    }

    fn poll(&self, session: u32, request: u64, waker: &Waker) -> Poll<Outcome<M::ClientReply>> {
        let slot = &mut self.slots.borrow_mut()[session as usize];
        let Some(place) = slot
            .waiting
            .iter()
            .position(|waiting| waiting.request == request)
        else {
            return Poll::Ready(Err(Failure::Unknown));
        };
        match slot.waiting[place].answer.take() {
            Some(answer) => {
                slot.waiting.swap_remove(place);
                Poll::Ready(answer)
            }
            None => {
                slot.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.batch_us
            .get()
            .unwrap_or_else(|| self.clock.monotonic_us())
    }

    fn wake_at(&self, session: u32, time_us: u64) {
        self.alarms.borrow_mut().push(Reverse((time_us, session)));
        self.alarm.notify_one();
    }
}
