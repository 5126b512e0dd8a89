//! One node without a network: the state machine, what is parked, its timers and sessions. See [`Node`].

pub(crate) mod parking;
pub(crate) mod sessions;
pub(crate) mod timers;
pub(crate) mod visibility;

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;

use dkvf_storage::{StorageError, Store, StoreStatus, Table};
use prost::Message as _;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::config::NodeConfig;
use crate::context::{Oversized, Stop, Until, Wait};
use crate::limits::FIXPOINT_ROUNDS_MAX;
use crate::server::{ClientMessageOf, ClientReplyOf, RecordOf, ServerMessageOf};
use crate::topology::Ids;
use crate::{ClientId, Code, Context, Metadata, PeerState, Progress, Server, ServerId, Topology};
use parking::{Item, Parking};
use sessions::{Admission, Sessions};
use timers::Timers;
use visibility::Visibility;
pub use visibility::{VisibilityOptions, VisibilitySample, version_hash};

/// The node's clocks at an event, both in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Physical time since 1970, possibly skewed.
    pub clock_us: u64,
    /// A clock that never steps.
    pub monotonic_us: u64,
}

/// When a node is to be ticked next: as soon as one of its clocks has come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Timers and deadlines, on the monotonic clock.
    pub monotonic_us: Option<u64>,
    /// Messages that wait for the physical clock.
    pub clock_us: Option<u64>,
}

/// What a handler wants from its host.
#[derive(Clone, Debug, PartialEq)]
pub enum Output<M: Metadata> {
    /// A message to another server.
    Send {
        /// The receiver.
        to: ServerId,
        /// The message.
        message: M::ServerMessage,
        /// A newer one makes it superfluous.
        latest: bool,
    },
    /// A message to several servers.
    Broadcast {
        /// The receivers.
        to: Ids,
        /// The message.
        message: M::ServerMessage,
        /// A newer one makes it superfluous.
        latest: bool,
    },
    /// The answer to a request.
    Reply {
        /// The connection it came on, as the host numbered it.
        port: u32,
        /// The client.
        client: ClientId,
        /// The client's number of the request.
        request: u64,
        /// For [`Node::keep_reply`].
        slot: u32,
        /// The answer.
        result: Result<M::ClientReply, Code>,
    },
}

impl PartialEq for Ids {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

/// A broken rule of the framework or a failed store: the node stops.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A handler did something before a wait that parked it.
    #[error(
        "{location}: the handler had {effects} effect(s) (sends, writes, replies, timers) before this wait: a parked message is handled again from the top, so waits come first"
    )]
    EffectsBeforeWait {
        /// How many.
        effects: u32,
        /// The wait.
        location: &'static Location<'static>,
    },
    /// A handler went on after a wait that did not hold or after a refusal, or a rule waits or refuses.
    #[error(
        "{location}: the handler went on although this wait did not hold (or after this refusal): hand its result on with `?`; rules neither wait nor refuse"
    )]
    IgnoredWait {
        /// The wait or refusal.
        location: &'static Location<'static>,
    },
    /// A handler changed its state before a wait in a way that doing it twice does not do once.
    #[error(
        "{location}: handling the message a second time changed the state again before this wait: only `merge_max` may come first"
    )]
    StateChangedBeforeWait {
        /// The wait.
        location: &'static Location<'static>,
    },
    /// A reply to a client that has no request open here.
    #[error("a reply to client {client}, which has no open request here (was it answered twice?)")]
    NothingToAnswer {
        /// The client.
        client: ClientId,
    },
    /// Rules, self-sends or parked messages never came to rest.
    #[error(
        "no rest after {FIXPOINT_ROUNDS_MAX} rounds of rules, messages to itself and parked messages after one event"
    )]
    Livelock,
    /// The limit of parked events is reached by messages that cannot be refused.
    #[error(
        "{parked} messages of servers are parked, the most this node may hold (parked_max); most wait at {location}"
    )]
    ParkedFull {
        /// How many.
        parked: usize,
        /// Where most wait.
        location: &'static Location<'static>,
    },
    /// An outgoing link is full.
    #[error(
        "the link to {peer} is full: {capacity} bytes are kept for it (channel_capacity), and messages of servers may use all of them; is the peer gone for good?"
    )]
    LinkFull {
        /// The receiver's name.
        peer: String,
        /// Its capacity in bytes.
        capacity: usize,
    },
    /// A message that no receiver would take.
    #[error("a message of {bytes} bytes to {peer}, over {max} (twice message_bytes_max)")]
    MessageTooLong {
        /// The receiver's name.
        peer: String,
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    Storage(#[from] StorageError),
    /// [`Server::invariant`] does not hold.
    #[error("invariant broken: {0}")]
    Invariant(String),
}

/// Limits and switches of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// Time a parked request waits before it is answered [`Code::Timeout`], in microseconds.
    pub request_timeout_us: u64,
    /// Most events parked. This bounds their number; their bytes are bounded by it times the largest message.
    pub parked_max: usize,
    /// Most client sessions.
    pub sessions_max: usize,
    /// How far ahead a stamp from outside may be, in microseconds.
    pub max_drift_us: u64,
    /// Seed of [`Context::choose`].
    pub seed: u64,
    /// Check invariants after every step, and that parked handlers changed nothing twice.
    pub strict: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            request_timeout_us: 5_000_000,
            parked_max: 100_000,
            sessions_max: 65_536,
            max_drift_us: 1_000_000,
            seed: 0,
            strict: false,
        }
    }
}

/// Figures of a node, for the control port and for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeStatus {
    /// Events parked now.
    pub parked: usize,
    /// Where they wait, with counts.
    pub parked_at: Vec<(String, usize)>,
    /// Client sessions known.
    pub sessions: usize,
    /// Requests of clients taken since the start, repetitions not counted.
    pub requests: u64,
    /// Requests refused since the start.
    pub refused: u64,
    /// Messages of servers taken since the start.
    pub messages: u64,
    /// The store.
    pub store: StoreStatus,
}

/// An event, as it is parked and as it is tried.
enum Event<S: Server> {
    Client {
        client: ClientId,
        request: u64,
        message: ClientMessageOf<S>,
    },
    Server {
        from: ServerId,
        message: ServerMessageOf<S>,
    },
    Timer(S::Timer),
    Peer(ServerId, PeerState),
}

/// Where an event came from, for holding links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Client(ClientId),
    Server(ServerId),
    Node,
}

impl<S: Server> Event<S> {
    fn source(&self) -> Source {
        match self {
            Event::Client { client, .. } => Source::Client(*client),
            Event::Server { from, .. } => Source::Server(*from),
            Event::Timer(_) | Event::Peer(..) => Source::Node,
        }
    }
}

/// A held link.
struct Held<S: Server> {
    /// Parked messages that hold it.
    holders: usize,
    /// What came after them.
    events: VecDeque<Event<S>>,
}

/// How trying an event ended.
enum Tried {
    Done,
    Parked(Wait),
}

/// One node of a protocol, hosted by whoever feeds it events and carries out its outputs: the TCP runtime, a
/// simulator, a test. It reads no clock and touches no network.
///
/// After each event: messages to itself, then [`Server::rules`] to a fixpoint, then the oldest parked message
/// whose wait holds, and so on until nothing moves. Of the messages that wait for one growing value the one
/// with the lowest threshold counts as the oldest.
pub struct Node<S: Server> {
    server: S,
    cx: Context<S>,
    parking: Parking<Event<S>>,
    /// Links that parked messages hold.
    held: BTreeMap<Source, Held<S>>,
    /// Events behind held links. They count as parked.
    held_events: usize,
    /// Whether parked requests of clients are held back.
    congested: bool,
    /// Events of links that are no longer held.
    released: VecDeque<Event<S>>,
    options: NodeOptions,
    requests: u64,
    refused: u64,
    messages: u64,
}

impl<S: Server> Node<S> {
    /// Makes the node and the protocol's initial state.
    ///
    /// # Errors
    /// What [`Server::new`] finds wrong.
    pub fn new(
        config: &NodeConfig,
        topology: Topology,
        me: ServerId,
        store: Box<dyn Store<RecordOf<S>>>,
        now: Now,
        options: NodeOptions,
    ) -> anyhow::Result<Self> {
        let mut cx = Context {
            me,
            topology,
            store,
            now,
            timers: Timers::new(),
            sessions: Sessions::new(options.sessions_max),
            outputs: Vec::new(),
            self_sends: VecDeque::new(),
            visibility: Visibility::new(),
            storage_accesses: 0,
            effects: 0,
            stop: None,
            oversized: None,
            broken: None,
            keys_awaited: false,
            keys_woken: Vec::new(),
            max_drift_us: options.max_drift_us,
            random: Pcg64Mcg::seed_from_u64(options.seed ^ u64::from(me.0)),
        };
        let server = S::new(config, &mut cx)?;
        let mut node = Node {
            server,
            cx,
            parking: Parking::new(),
            held: BTreeMap::new(),
            held_events: 0,
            congested: false,
            released: VecDeque::new(),
            options,
            requests: 0,
            refused: 0,
            messages: 0,
        };
        node.settle()?;
        Ok(node)
    }

    /// A request of a client, number `request` of its session, whose reply goes to the host's connection `port`.
    ///
    /// # Errors
    /// The node is broken and must stop.
    pub fn client_message(
        &mut self,
        now: Now,
        port: u32,
        client: ClientId,
        request: u64,
        message: ClientMessageOf<S>,
    ) -> Result<(), NodeError> {
        self.set_now(now);
        match self.cx.sessions.open_request(client, port, request) {
            Admission::New => {
                self.requests += 1;
                self.take(Event::Client {
                    client,
                    request,
                    message,
                })
            }
            Admission::Ignore => Ok(()),
            Admission::Repeat(open, result) => {
                self.cx.outputs.push(Output::Reply {
                    port: open.port,
                    client,
                    request: open.request,
                    slot: open.slot,
                    result,
                });
                Ok(())
            }
            Admission::Busy => {
                self.refuse_unhandled(port, client, request, Code::Malformed);
                Ok(())
            }
            Admission::Full => {
                self.refuse_unhandled(port, client, request, Code::Overloaded);
                Ok(())
            }
        }
    }

    /// Whether a request was never taken: a repetition must not be refused, for the first one may have had its effect.
    pub fn is_new_request(&self, client: ClientId, request: u64) -> bool {
        self.cx.sessions.is_new(client, request)
    }

    /// Refuses a request without handling it; a repetition of it will be handled.
    pub fn refuse_unhandled(&mut self, port: u32, client: ClientId, request: u64, code: Code) {
        self.refused += 1;
        self.cx.outputs.push(Output::Reply {
            port,
            client,
            request,
            slot: u32::MAX,
            result: Err(code),
        });
    }

    /// A message of another server.
    ///
    /// # Errors
    /// The node is broken and must stop.
    pub fn server_message(
        &mut self,
        now: Now,
        from: ServerId,
        message: ServerMessageOf<S>,
    ) -> Result<(), NodeError> {
        self.set_now(now);
        self.messages += 1;
        self.take(Event::Server { from, message })
    }

    /// The link to `peer` changed.
    ///
    /// # Errors
    /// The node is broken and must stop.
    pub fn peer_change(
        &mut self,
        now: Now,
        peer: ServerId,
        state: PeerState,
    ) -> Result<(), NodeError> {
        self.set_now(now);
        self.take(Event::Peer(peer, state))
    }

    /// Time passed: timers, waits for the clock and deadlines of parked requests.
    ///
    /// # Errors
    /// The node is broken and must stop.
    pub fn tick(&mut self, now: Now) -> Result<(), NodeError> {
        self.set_now(now);
        self.settle()?;
        while let Some(item) = self.parking.expire(now.monotonic_us) {
            if let Event::Client { client, .. } = &item.event {
                let client = *client;
                self.cx.answer_late(client);
                self.refused += 1;
            }
            self.release(item.event.source(), item.wait.hold_link);
        }
        while let Some(timer) = self.cx.timers.pop(now.monotonic_us) {
            self.take(Event::Timer(timer))?;
        }
        self.settle()
    }

    /// While links are congested, parked requests of clients are not tried again, for they would send more; their
    /// deadlines apply. What one event already let go on is not held back. After the end of a congestion the next event or
    /// [`Node::tick`] tries them.
    pub fn set_congested(&mut self, congested: bool) {
        if self.congested && !congested {
            self.parking.resume();
        }
        self.congested = congested;
    }

    /// When [`Node::tick`] is due next, on the monotonic clock, as far as both clocks run at the same rate.
    pub fn next_tick_us(&self) -> Option<u64> {
        let now = self.cx.now;
        let due = self.next_due();
        let clock = due.clock_us.map(|time| {
            now.monotonic_us
                .saturating_add(time.saturating_sub(now.clock_us))
        });
        due.monotonic_us.into_iter().chain(clock).min()
    }

    /// When [`Node::tick`] is due next, on each clock: for hosts whose two clocks do not run alike.
    pub fn next_due(&self) -> Due {
        let timer = self.cx.timers.next_due();
        Due {
            monotonic_us: timer.into_iter().chain(self.parking.next_deadline()).min(),
            clock_us: self.parking.next_clock(),
        }
    }

    /// The longest period of the protocol's timers, in microseconds: a scale of its behaviour in time.
    pub fn longest_period_us(&self) -> Option<u64> {
        self.cx.timers.longest_period()
    }

    /// Reads and writes of the store since the start, a scan or a pruning counting once: what a cost model multiplies.
    pub fn storage_accesses(&self) -> u64 {
        self.cx.storage_accesses
    }

    /// Whether a message waits for the clock: then [`Node::next_tick_us`] deserves to be met to the microsecond.
    pub fn waits_for_clock(&self) -> bool {
        self.parking.next_clock().is_some()
    }

    /// The outputs since the last call, in order. The host hands the buffer back with [`Node::recycle`].
    pub fn take_outputs(&mut self) -> Vec<Output<S::Metadata>> {
        std::mem::take(&mut self.cx.outputs)
    }

    /// Gives the emptied buffer of [`Node::take_outputs`] back.
    pub fn recycle(&mut self, mut outputs: Vec<Output<S::Metadata>>) {
        if self.cx.outputs.is_empty() {
            outputs.clear();
            self.cx.outputs = outputs;
        }
    }

    /// A reply is not kept: it is too long, to be sent or to be kept. A repetition of the request stays unanswered, for
    /// any code would say that nothing happened.
    pub fn forget_reply(&mut self, slot: u32, request: u64) {
        if slot != u32::MAX {
            self.cx.sessions.forget_reply(slot, request);
        }
    }

    /// Keeps a reply that the host has sent, to repeat it should the client ask again.
    pub fn keep_reply(&mut self, slot: u32, request: u64, result: Result<ClientReplyOf<S>, Code>) {
        if slot != u32::MAX {
            self.cx.sessions.keep_reply(slot, request, result);
        }
    }

    /// The client connection `port` is gone.
    pub fn disconnected(&mut self, port: u32) {
        self.cx.sessions.disconnect(port);
    }

    /// Closes the batch of writes since the last call.
    ///
    /// # Errors
    /// The store failed.
    pub fn commit(&mut self) -> Result<dkvf_storage::Lsn, NodeError> {
        Ok(self.cx.store.commit()?)
    }

    /// Commits and makes everything as durable as the engine can.
    ///
    /// # Errors
    /// The store failed.
    pub fn close(&mut self) -> Result<(), NodeError> {
        self.cx.store.commit()?;
        Ok(self.cx.store.sync()?)
    }

    /// The protocol's state.
    pub fn server(&self) -> &S {
        &self.server
    }

    /// The node's store.
    pub fn store(&self) -> &dyn Store<RecordOf<S>> {
        &*self.cx.store
    }

    /// Starts to sample how long records take to become visible.
    pub fn watch_visibility(&mut self, options: VisibilityOptions) {
        self.cx.visibility.enable(options);
    }

    /// The samples since the last call.
    pub fn take_visibility(&mut self) -> Vec<VisibilitySample> {
        self.cx.visibility.take()
    }

    /// Figures of the node. O(parked).
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            parked: self.parking.len() + self.held_events,
            parked_at: self
                .parking
                .sites()
                .into_iter()
                .map(|(site, count)| (site.to_string(), count))
                .collect(),
            sessions: self.cx.sessions.len(),
            requests: self.requests,
            refused: self.refused,
            messages: self.messages,
            store: self.cx.store.status(),
        }
    }

    fn set_now(&mut self, now: Now) {
        // A physical clock may be set back: the node's does not go back, it stands still.
        self.cx.now = Now {
            clock_us: now.clock_us.max(self.cx.now.clock_us),
            monotonic_us: now.monotonic_us,
        };
    }

    /// An external event, with all that follows from it.
    fn take(&mut self, event: Event<S>) -> Result<(), NodeError> {
        self.handle(event)?;
        self.settle()
    }

    fn handle(&mut self, event: Event<S>) -> Result<(), NodeError> {
        if let Some(held) = self.held.get_mut(&event.source()) {
            // The sessions admit one request of a client at a time, so that only a server can fill a held link.
            if self.parking.len() + self.held_events >= self.options.parked_max {
                return Err(self.parked_full(None));
            }
            held.events.push_back(event);
            self.held_events += 1;
            return Ok(());
        }
        match self.attempt(&event)? {
            Tried::Done => Ok(()),
            Tried::Parked(wait) => self.park(event, wait),
        }
    }

    fn park(&mut self, event: Event<S>, wait: Wait) -> Result<(), NodeError> {
        let mut deadline_us = None;
        if self.parking.len() + self.held_events >= self.options.parked_max {
            let Event::Client {
                client, request, ..
            } = event
            else {
                return Err(self.parked_full(Some(wait.location)));
            };
            if let Some(open) = self.cx.sessions.close_request(client) {
                self.cx.sessions.forget_request(client, request);
                self.refuse_unhandled(open.port, client, request, Code::Overloaded);
            }
            return Ok(());
        }
        if let Event::Client { .. } = event {
            deadline_us = Some(
                self.cx
                    .now
                    .monotonic_us
                    .saturating_add(self.options.request_timeout_us),
            );
        }
        if wait.hold_link {
            self.hold(event.source());
        }
        self.note_key(&wait);
        self.parking.park(event, wait, deadline_us);
        Ok(())
    }

    fn parked_full(&self, location: Option<&'static Location<'static>>) -> NodeError {
        let most = self
            .parking
            .sites()
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(site, _)| site);
        let location = most
            .or(location)
            .expect("invariant: something is parked, or about to be");
        NodeError::ParkedFull {
            parked: self.parking.len() + self.held_events,
            location,
        }
    }

    /// A key is awaited from the moment its message is parked: what follows from the same event may write it.
    fn note_key(&mut self, wait: &Wait) {
        self.cx.keys_awaited |= matches!(wait.until, Until::Key(_));
    }

    fn hold(&mut self, source: Source) {
        self.held
            .entry(source)
            .or_insert_with(|| Held {
                holders: 0,
                events: VecDeque::new(),
            })
            .holders += 1;
    }

    /// Runs the handler of an event once.
    fn attempt(&mut self, event: &Event<S>) -> Result<Tried, NodeError> {
        let tried = self.run_handler(event)?;
        if self.options.strict {
            if let Tried::Parked(wait) = &tried {
                let once = self.fingerprint();
                self.run_handler(event)?;
                if once != self.fingerprint() {
                    return Err(NodeError::StateChangedBeforeWait {
                        location: wait.location,
                    });
                }
            }
            self.server.invariant().map_err(NodeError::Invariant)?;
        }
        Ok(tried)
    }

    fn run_handler(&mut self, event: &Event<S>) -> Result<Tried, NodeError> {
        let cx = &mut self.cx;
        cx.effects = 0;
        let step = match event {
            Event::Client {
                client, message, ..
            } => self.server.handle_client_message(cx, *client, message),
            Event::Server { from, message } => {
                self.server.handle_server_message(cx, *from, message)
            }
            Event::Timer(timer) => self.server.handle_timer(cx, *timer),
            Event::Peer(peer, state) => self.server.handle_peer_change(cx, *peer, *state),
        };
        let oversized = cx.oversized.take();
        if let Some(broken) = cx.broken.take() {
            return Err(broken);
        }
        if let Some(oversized) = oversized {
            cx.stop = None;
            self.refuse_oversized(event, &oversized);
            return Ok(Tried::Done);
        }
        match (step, cx.stop.take()) {
            (Ok(()), None) => Ok(Tried::Done),
            (Err(_), Some(Stop::Wait(wait))) => Ok(Tried::Parked(wait)),
            (Err(_), Some(Stop::Refuse { code, .. })) => {
                self.refuse(event, code);
                Ok(Tried::Done)
            }
            (Ok(()), Some(stop)) => Err(NodeError::IgnoredWait {
                location: stop.location(),
            }),
            (Err(_), None) => {
                unreachable!("invariant: only a context makes `Parked`, and it notes why")
            }
        }
    }

    /// A client is told; a message of a server is dropped, for nobody waits for an answer.
    fn refuse(&mut self, event: &Event<S>, code: Code) {
        self.refused += 1;
        match event {
            Event::Client { client, .. } => self.cx.reply_error(*client, code),
            Event::Server { from, .. } => {
                tracing::warn!(node = %self.cx.me, %from, ?code, "dropped a refused message of a server")
            }
            Event::Timer(_) | Event::Peer(..) => {}
        }
    }

    /// A handler put what no store takes: certainly without effect if that was its first one.
    fn refuse_oversized(&mut self, event: &Event<S>, oversized: &Oversized) {
        let Oversized {
            effects_before,
            error,
        } = oversized;
        match event {
            Event::Client { client, .. } if *effects_before > 0 => {
                tracing::warn!(node = %self.cx.me, %client, effects_before, %error, "no reply to a request: it did something before a put that no store takes");
                self.cx.sessions.abandon_request(*client);
            }
            Event::Client { client, .. } => {
                tracing::info!(node = %self.cx.me, %client, %error, "refused a request");
                self.refuse(event, Code::Malformed);
            }
            Event::Server { .. } | Event::Timer(_) | Event::Peer(..) => {
                tracing::warn!(node = %self.cx.me, effects_before, %error, "dropped a put that no store takes, and what its handler did after it");
            }
        }
    }

    /// Messages to itself, rules and parked messages, until nothing moves.
    fn settle(&mut self) -> Result<(), NodeError> {
        let mut rounds = 0;
        while self.advance()? {
            rounds += 1;
            if rounds > FIXPOINT_ROUNDS_MAX {
                return Err(NodeError::Livelock);
            }
        }
        self.cx.keys_awaited = self.parking.waits_for_keys();
        if self.cx.visibility.is_watching() {
            let server = &self.server;
            self.cx
                .visibility
                .check(self.cx.now.monotonic_us, |record| server.visible(record));
        }
        Ok(())
    }

    /// One thing that follows from the last event, if there is any.
    fn advance(&mut self) -> Result<bool, NodeError> {
        if let Some(message) = self.cx.self_sends.pop_front() {
            self.handle(Event::Server {
                from: self.cx.me,
                message,
            })?;
            return Ok(true);
        }
        if let Some(event) = self.released.pop_front() {
            self.handle(event)?;
            return Ok(true);
        }
        self.cx.effects = 0;
        let progress = self.server.rules(&mut self.cx);
        if let Some(Oversized { error, .. }) = self.cx.oversized.take() {
            tracing::warn!(node = %self.cx.me, %error, "dropped a rule's put that no store takes, and what the rules did after it");
        }
        if let Some(broken) = self.cx.broken.take() {
            return Err(broken);
        }
        if let Some(stop) = self.cx.stop.take() {
            // A rule has no message that could be parked or refused.
            return Err(NodeError::IgnoredWait {
                location: stop.location(),
            });
        }
        if progress == Progress::Made {
            return Ok(true);
        }
        if self.parking.len() == 0 {
            return Ok(false);
        }
        for key in self.cx.keys_woken.drain(..) {
            self.parking.wake(&key);
        }
        for number in self.parking.candidates(self.cx.now.clock_us) {
            if self.congested && self.holds_back(number) {
                self.parking.hold_back(number);
                // Those that wait for the same value are tried without it.
                return Ok(true);
            }
            if self.retry(number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tries a parked event again. Returns whether it moved on: is done, or waits for something else and no longer
    /// stands before those that wait for the same.
    fn retry(&mut self, number: u64) -> Result<bool, NodeError> {
        let Some(item) = self.parking.take(number) else {
            return Ok(false);
        };
        match self.attempt(&item.event)? {
            Tried::Done => {
                self.release(item.event.source(), item.wait.hold_link);
                Ok(true)
            }
            Tried::Parked(wait) => {
                // A message that held its link and now waits elsewhere holds it until it is done.
                if wait.hold_link && !item.wait.hold_link {
                    self.hold(item.event.source());
                }
                let wait = Wait {
                    hold_link: wait.hold_link || item.wait.hold_link,
                    ..wait
                };
                let moved = (wait.location, &wait.until) != (item.wait.location, &item.wait.until);
                self.note_key(&wait);
                self.parking.put_back(
                    number,
                    Item {
                        event: item.event,
                        wait,
                    },
                );
                Ok(moved)
            }
        }
    }

    /// Whether a parked event is one that must not go on while links are congested.
    fn holds_back(&self, number: u64) -> bool {
        matches!(self.parking.event(number), Some(Event::Client { .. }))
    }

    fn release(&mut self, source: Source, held: bool) {
        let Some(link) = self.held.get_mut(&source).filter(|_| held) else {
            return;
        };
        link.holders -= 1;
        if link.holders == 0
            && let Some(link) = self.held.remove(&source)
        {
            self.held_events -= link.events.len();
            self.released.extend(link.events);
        }
    }

    /// The canonical encoding of the protocol's state, hashed. The store is not part of it.
    pub fn fingerprint(&self) -> u64 {
        let bytes =
            postcard::to_stdvec(&self.server).expect("invariant: a server's state can be encoded");
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    /// A hash of the protocol's state and of all that its store contains: the same for the same state on every machine.
    /// O(content).
    ///
    /// # Errors
    /// The store failed.
    pub fn state_hash(&self) -> Result<u64, NodeError> {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(&self.fingerprint().to_le_bytes());
        for table in 0..=u8::MAX {
            // A version that does not satisfy is followed by the next older one, so all of them are seen.
            let versions = std::cell::RefCell::new(Vec::new());
            let mut see = |record: &RecordOf<S>| {
                versions
                    .borrow_mut()
                    .extend_from_slice(&record.encode_length_delimited_to_vec());
                false
            };
            self.cx
                .store
                .scan(Table(table), b"", None, &mut see, &mut |key, _| {
                    hash.update(&[table]);
                    hash.update(&(key.len() as u64).to_le_bytes());
                    hash.update(key);
                    let versions = std::mem::take(&mut *versions.borrow_mut());
                    hash.update(&(versions.len() as u64).to_le_bytes());
                    hash.update(&versions);
                    std::ops::ControlFlow::Continue(())
                })?;
        }
        Ok(hash.digest())
    }
}

impl<S: Server> Context<S> {
    /// A parked request has waited too long. It has had no effect.
    fn answer_late(&mut self, client: ClientId) {
        self.reply_error(client, Code::Timeout);
    }
}
