//! One node on TCP: its listeners and connections around a [`Node`].
//!
//! The ports have no authentication. Whoever reaches the server port can say hello under a peer's name with an
//! incarnation of his own: the node then takes the peer for replaced, drops what it keeps for it and takes the stranger's
//! messages for the peer's. So the ports belong on a network that only the cluster and its clients reach; a node that
//! listens on more than loopback says so when it starts.

mod clients;
mod servers;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::rc::{Rc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::clock::HostClock;
use super::connection::{Address, read_frame};
use super::control::{self, Control};
use super::flush::{Flusher, Outbox};
use super::orders::{ClockOrder, LinkOrder};
use super::peer::{Congestion, LinkDelay, Pace, Peer, PeerEvents};
use super::status::{LinkStatus, ServerStatus, Traffic};
use super::wire::{self, Hello, MAGIC};
use super::worker::Local;
use crate::config::{Flush, NodeConfig, PeerFlush as PeerFlushConfig};
use crate::limits::{HELLO_BYTES_MAX, KEPT_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX};
use crate::node::{NodeOptions, VisibilityOptions, VisibilitySample};
use crate::storage::StoreOptions;
use crate::{
    ClientId, Code, Message, Metadata, Node, NodeError, Output, PeerFlush, PeerState, Protocol,
    ServerId, Topology,
};
use servers::Inbound;

type ClientMessageOf<P> = <<P as Protocol>::Metadata as Metadata>::ClientMessage;
type ServerMessageOf<P> = <<P as Protocol>::Metadata as Metadata>::ServerMessage;

/// Replies that may wait for a slow client before its next requests are left in the kernel.
const WAITING_REPLY_BYTES_MAX: usize = 1 << 20;

/// Connections that may wait to be accepted, as far as the system allows.
const LISTEN_BACKLOG: i32 = 4096;

/// The three sockets of a node, bound before it starts so that everybody can be told the ports.
pub struct Listeners {
    /// For clients.
    pub client: StdListener,
    /// For other servers.
    pub server: StdListener,
    /// For people and monitoring.
    pub control: StdListener,
}

impl Listeners {
    /// Binds the ports of `config`; port 0 takes any free one.
    ///
    /// # Errors
    /// A port that is taken or not allowed, with its element's name.
    pub fn bind(config: &NodeConfig) -> anyhow::Result<Self> {
        let bind = |port: u16, element: &str| {
            let listener = StdListener::bind((config.bind, port)).and_then(|listener| {
                // The standard library's queue is short: a crowd that connects at once would wait for retransmissions.
                SockRef::from(&listener).listen(LISTEN_BACKLOG)?;
                Ok(listener)
            });
            listener.with_context(|| format!("cannot listen on {}:{port} (<{element}>): choose another port, or 0 for any free one", config.bind))
        };
        Ok(Listeners {
            client: bind(config.client_port, "client_port")?,
            server: bind(config.server_port, "server_port")?,
            control: bind(config.control_port, "control_port")?,
        })
    }
}

/// What a node needs to start.
pub struct NodeSpec {
    /// Its configuration.
    pub config: NodeConfig,
    /// The cluster.
    pub topology: Topology,
    /// Which member it is.
    pub me: ServerId,
    /// Where the members listen for servers, by id.
    pub addresses: Vec<Address>,
    /// Its sockets.
    pub listeners: Listeners,
    /// Its store.
    pub store: StoreOptions,
    /// Whether to sample the visibility of records.
    pub watch_visibility: bool,
}

/// A running node, on the worker that runs it.
pub struct NodeHandle<P: Protocol>(Rc<Host<P>>);

struct Host<P: Protocol> {
    me: ServerId,
    name: String,
    incarnation: u64,
    topology: Topology,
    config: NodeConfig,
    clock: Cell<HostClock>,
    flusher: Rc<Flusher>,
    state: RefCell<State<P>>,
    peers: Vec<Option<Rc<Peer>>>,
    congestion: Rc<Congestion>,
    /// By port, the number a client connection has for [`Node`].
    clients: RefCell<Vec<Option<Rc<Outbox>>>>,
    client_connections: Cell<usize>,
    inbound: RefCell<Vec<Inbound>>,
    tick: Notify,
    ack: Notify,
    stopped: Notify,
    failure: RefCell<Option<String>>,
    running: Cell<bool>,
    tasks: RefCell<BTreeMap<u64, AbortHandle>>,
    next_task: Cell<u64>,
    me_weak: Weak<Host<P>>,
}

struct State<P: Protocol> {
    node: Node<P::Server>,
    traffic: Traffic,
    frame: BytesMut,
    /// When the tick task will look next.
    armed_us: u64,
}

/// Starts a node on this worker. Returns when it listens.
///
/// # Errors
/// The store or the protocol refuses the configuration.
pub fn start<P: Protocol>(local: &Rc<Local>, spec: NodeSpec) -> anyhow::Result<NodeHandle<P>> {
    let NodeSpec {
        config,
        topology,
        me,
        addresses,
        listeners,
        store,
        watch_visibility,
    } = spec;
    let clock = HostClock::new(config.clock_skew_us);
    let name = topology.member(me).name.clone();
    let store = crate::storage::open(&store)?;
    let options = NodeOptions {
        request_timeout_us: config.request_timeout_ms * 1000,
        parked_max: config.parked_max,
        sessions_max: config.sessions_max,
        max_drift_us: config.max_drift_ms * 1000,
        seed: 0,
        strict: false,
    };
    let mut node = Node::new(&config, topology.clone(), me, store, clock.now(), options)
        .with_context(|| format!("server {name} cannot start"))?;
    for misspelt in config.protocol_properties.unused() {
        tracing::warn!(server = %name, "{misspelt}");
    }
    if watch_visibility {
        node.watch_visibility(VisibilityOptions::default());
    }
    if !config.bind.is_loopback() {
        tracing::warn!(server = %name, "listens on {}: anybody who reaches the server port can pass for a peer, so let only the cluster reach it", config.bind);
    }
    let congestion = Rc::new(Congestion::default());
    let pace = pace::<P>(local, &config);
    let peer = |(id, address): (ServerId, &Address)| {
        (id != me).then(|| {
            let peer_name = topology.member(id).name.clone();
            let distance = config
                .delays
                .iter()
                .find(|delay| delay.from == name && delay.to == peer_name)
                .map_or(LinkDelay::default(), |delay| LinkDelay {
                    delay_us: delay.ms * 1000,
                    jitter_us: delay.jitter_ms * 1000,
                    hold: false,
                });
            let seed = xxhash_rust::xxh3::xxh3_64(format!("{name}\n{peer_name}").as_bytes());
            let peer = Peer::new(
                peer_name,
                config.channel_capacity,
                pace.clone(),
                clock,
                distance,
                seed,
                congestion.clone(),
            );
            (peer, address.clone())
        })
    };
    let dialled: Vec<Option<(Rc<Peer>, Address)>> =
        topology.ids().zip(&addresses).map(peer).collect();
    let incarnation = local.random_u64() | 1;
    let host = Rc::new_cyclic(|me_weak| Host::<P> {
        me,
        name: name.clone(),
        incarnation,
        topology: topology.clone(),
        clock: Cell::new(clock),
        flusher: local.flusher(config.flush),
        state: RefCell::new(State {
            node,
            traffic: Traffic::default(),
            frame: BytesMut::new(),
            armed_us: u64::MAX,
        }),
        peers: dialled
            .iter()
            .map(|peer| peer.as_ref().map(|(peer, _)| peer.clone()))
            .collect(),
        congestion,
        clients: RefCell::default(),
        client_connections: Cell::new(0),
        inbound: RefCell::new(vec![Inbound::default(); topology.members().len()]),
        tick: Notify::new(),
        ack: Notify::new(),
        stopped: Notify::new(),
        failure: RefCell::default(),
        running: Cell::new(true),
        tasks: RefCell::default(),
        next_task: Cell::new(0),
        config,
        me_weak: me_weak.clone(),
    });
    let hello = Hello {
        magic: MAGIC,
        protocol: P::NAME.to_owned(),
        server: name,
        incarnation,
        partitions: topology.partitions() as u32,
        fingerprint: topology.fingerprint(),
    };
    for (id, dialled) in topology.ids().zip(dialled) {
        if let Some((peer, address)) = dialled {
            let events = Rc::new(PeerChange {
                host: host.me_weak.clone(),
                peer: id,
            });
            host.spawn(peer.run(
                address,
                hello.clone(),
                Duration::from_millis(host.config.connector_sleep_time_ms),
                events,
            ));
        }
    }
    host.spawn(host.clone().accept_clients(listen(listeners.client)?));
    host.spawn(host.clone().accept_servers(listen(listeners.server)?));
    host.spawn(control::serve(
        listen(listeners.control)?,
        host.clone(),
        host.config.control_token.clone(),
    ));
    host.spawn(host.clone().tick_when_due());
    host.spawn(host.clone().acknowledge_when_idle());
    host.spawn(host.clone().resume_when_uncongested());
    // What the protocol sent from `new`.
    host.with_node(|_, _| Ok(()));
    Ok(NodeHandle(host))
}

fn listen(listener: StdListener) -> anyhow::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}

fn pace<P: Protocol>(local: &Rc<Local>, config: &NodeConfig) -> Pace {
    let lazy = match (config.peer_flush, P::PEER_FLUSH) {
        (PeerFlushConfig::Lazy { us, bytes }, _) => Some((us, bytes)),
        (PeerFlushConfig::Protocol, PeerFlush::Lazy) => {
            Some((PeerFlushConfig::LAZY_US, PeerFlushConfig::LAZY_BYTES))
        }
        (PeerFlushConfig::Eager, _) | (PeerFlushConfig::Protocol, PeerFlush::Eager) => None,
    };
    let eager = local.flusher(config.flush);
    match lazy {
        Some((us, bytes)) => Pace::Lazy {
            bytes,
            eager,
            lazy: local.flusher(Flush::Interval { us }),
        },
        None => Pace::Eager(eager),
    }
}

impl<P: Protocol> NodeHandle<P> {
    /// Figures, as the control port shows them.
    pub fn status(&self) -> ServerStatus {
        self.0.status()
    }

    /// The visibility samples since the last call.
    pub fn take_visibility(&self) -> Vec<VisibilitySample> {
        self.0.state.borrow_mut().node.take_visibility()
    }

    /// Why the node stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.0.failure.borrow().clone()
    }

    /// Resolves when the node has stopped: by [`NodeHandle::stop`], over the control port, or broken.
    pub async fn stopped(&self) {
        while self.0.running.get() {
            self.0.stopped.notified().await;
        }
    }

    /// Stops it: commits and syncs what is written, closes all connections.
    pub fn stop(&self) {
        self.0.stop(None);
    }
}

impl<P: Protocol> Host<P> {
    /// Runs a task for as long as the node runs.
    fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let number = self.next_task.get();
        self.next_task.set(number + 1);
        let host = self.me_weak.clone();
        let handle = tokio::task::spawn_local(async move {
            task.await;
            if let Some(host) = host.upgrade() {
                host.tasks.borrow_mut().remove(&number);
            }
        });
        self.tasks
            .borrow_mut()
            .insert(number, handle.abort_handle());
    }

    fn stop(&self, failure: Option<String>) {
        if !self.running.replace(false) {
            return;
        }
        if let Some(failure) = failure {
            tracing::error!(server = %self.name, "stopped: {failure}");
            *self.failure.borrow_mut() = Some(failure);
        }
        if let Err(error) = self.state.borrow_mut().node.close() {
            tracing::error!(server = %self.name, "the store did not close cleanly: {error}");
        }
        for task in self.tasks.take().into_values() {
            task.abort();
        }
        for peer in self.peers.iter().flatten() {
            peer.hang_up();
        }
        self.clients.borrow_mut().clear();
        for inbound in self.inbound.borrow_mut().iter_mut() {
            inbound.outbox = None;
        }
        self.stopped.notify_waiters();
    }

    /// Does something to the node, then carries out what follows from it.
    fn with_node(
        &self,
        event: impl FnOnce(&mut Node<P::Server>, &HostClock) -> Result<(), NodeError>,
    ) {
        if !self.running.get() {
            return;
        }
        let result = event(&mut self.state.borrow_mut().node, &self.clock.get());
        self.after_event(result);
        self.after_events();
    }

    /// Carries out the outputs of one event.
    fn after_event(&self, result: Result<(), NodeError>) {
        let outcome = result.and_then(|()| self.carry_out());
        if let Err(error) = outcome {
            self.stop(Some(error.to_string()));
        }
    }

    /// What is done once per loop turn: the group commit, and a look at the timers.
    fn after_events(&self) {
        let mut state = self.state.borrow_mut();
        let committed = state.node.commit().map(|_| ());
        if let Some(due_us) = state.node.next_tick_us()
            && due_us < state.armed_us
        {
            self.tick.notify_one();
        }
        drop(state);
        if let Err(error) = committed {
            self.stop(Some(error.to_string()));
        }
    }

    fn carry_out(&self) -> Result<(), NodeError> {
        let state = &mut *self.state.borrow_mut();
        let mut outputs = state.node.take_outputs();
        for output in outputs.drain(..) {
            match output {
                Output::Reply {
                    port,
                    client,
                    request,
                    slot,
                    result,
                } => {
                    if self.reply(port, client, request, &result, &mut state.traffic)
                        <= KEPT_REPLY_BYTES_MAX
                    {
                        state.node.keep_reply(slot, request, result);
                    } else {
                        state.node.forget_reply(slot, request);
                    }
                }
                Output::Send {
                    to,
                    message,
                    latest,
                } => {
                    encode_frame(&mut state.frame, &message);
                    self.send(to, &state.frame, latest, &mut state.traffic)?;
                }
                Output::Broadcast {
                    to,
                    message,
                    latest,
                } => {
                    encode_frame(&mut state.frame, &message);
                    for to in to {
                        self.send(to, &state.frame, latest, &mut state.traffic)?;
                    }
                }
            }
        }
        state.node.recycle(outputs);
        state.node.set_congested(self.congestion.is_there());
        Ok(())
    }

    /// Sends a reply if its client is there and would take it. Returns its encoded length, the most possible if nobody may
    /// be given it.
    fn reply(
        &self,
        port: u32,
        client: ClientId,
        request: u64,
        result: &Result<<P::Metadata as Metadata>::ClientReply, Code>,
        traffic: &mut Traffic,
    ) -> usize {
        let max = wire::wrapped_bytes_max(self.config.message_bytes_max);
        let clients = self.clients.borrow();
        let Some(outbox) = clients.get(port as usize).and_then(Option::as_ref) else {
            // Kept for when the client comes back.
            let bytes = result.as_ref().map_or(0, Message::encoded_len);
            return if bytes > max { usize::MAX } else { bytes };
        };
        let bytes = {
            let mut buffer = outbox.buffer.borrow_mut();
            let before = buffer.len();
            wire::encode_reply(&mut buffer, client.session(), request, result);
            let bytes = buffer.len() - before;
            if bytes > max {
                // The client would have to close the connection that all sessions of its process share.
                tracing::warn!(server = %self.name, %client, "no reply to request {request}: it has {bytes} bytes, over {max} (twice message_bytes_max)");
                buffer.truncate(before);
                return usize::MAX;
            }
            traffic.replies += 1;
            traffic.reply_bytes += bytes as u64;
            if buffer.len() > UNREAD_REPLY_BYTES_MAX.max(max) {
                outbox.close();
            }
            bytes
        };
        outbox.mark(&self.flusher);
        bytes
    }

    fn send(
        &self,
        to: ServerId,
        frame: &[u8],
        latest: bool,
        traffic: &mut Traffic,
    ) -> Result<(), NodeError> {
        let peer = self.peers[to.index()]
            .as_ref()
            .expect("invariant: a context keeps messages of a node to itself");
        if latest {
            traffic.periodic += 1;
            traffic.periodic_bytes += frame.len() as u64;
        } else {
            traffic.messages += 1;
            traffic.message_bytes += frame.len() as u64;
        }
        let max = wire::wrapped_bytes_max(self.config.message_bytes_max);
        if frame.len() > max {
            return Err(NodeError::MessageTooLong {
                peer: peer.name.clone(),
                bytes: frame.len(),
                max,
            });
        }
        peer.push(frame, latest).map_err(|_| NodeError::LinkFull {
            peer: peer.name.clone(),
            capacity: self.config.channel_capacity,
        })
    }

    // ---- Time ----

    async fn tick_when_due(self: Rc<Self>) {
        // A node that stops within a tick cannot abort this task before it awaits something.
        while self.running.get() {
            let (due_us, precise) = {
                let mut state = self.state.borrow_mut();
                state.armed_us = self.next_tick_us(&state.node);
                (state.armed_us, state.node.waits_for_clock())
            };
            let now_us = self.clock.get().monotonic_us();
            if due_us > now_us {
                let wait = Duration::from_micros((due_us - now_us).min(3_600_000_000));
                // Sleeping is precise to about a millisecond. A message that waits for the clock to pass a stamp
                // waits for microseconds, so the last stretch yields to the other tasks instead.
                if precise && wait < Duration::from_millis(1) {
                    tokio::task::yield_now().await;
                } else {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.tick.notified() => {}
                    }
                }
                if self.clock.get().monotonic_us() < due_us {
                    continue;
                }
            }
            self.with_node(|node, clock| node.tick(clock.now()));
        }
    }

    /// When the node is to be ticked next, on the monotonic clock. A node never sees its physical clock go back, so only
    /// the host knows how far a clock that was set back still has to go.
    fn next_tick_us(&self, node: &Node<P::Server>) -> u64 {
        let due = node.next_due();
        let clock = due.clock_us.map(|time_us| {
            let now = self.clock.get().now();
            now.monotonic_us
                .saturating_add(time_us.saturating_sub(now.clock_us))
        });
        let due = due.monotonic_us.into_iter().chain(clock).min();
        due.unwrap_or(u64::MAX)
    }

    /// Lets the parked requests go on that were held back while links were congested.
    async fn resume_when_uncongested(self: Rc<Self>) {
        loop {
            self.congestion.ended.notified().await;
            self.with_node(|node, clock| {
                node.set_congested(self.congestion.is_there());
                node.tick(clock.now())
            });
        }
    }

    // ---- Handshakes ----

    /// How long a caller may stop within a hello or a frame.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.config.idle_timeout_ms)
    }

    /// The caller's hello; `None` if it left without a word, as port scanners and health checks do.
    async fn read_hello(
        &self,
        reader: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
    ) -> anyhow::Result<Option<Hello>> {
        let frame = tokio::time::timeout(self.patience(), async {
            reader.readable().await?;
            read_frame(reader, buffer, HELLO_BYTES_MAX).await
        });
        match frame.await.with_context(|| {
            format!(
                "no hello within {} ms (idle_timeout_ms)",
                self.config.idle_timeout_ms
            )
        })? {
            Ok(frame) => Ok(Some(wire::decode_hello(&frame)?)),
            Err(_) if buffer.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn refusal(&self, hello: &Hello) -> String {
        if hello.protocol != P::NAME {
            return format!(
                "this server runs {}, the caller speaks {:?}",
                P::NAME,
                hello.protocol
            );
        }
        let partitions = self.topology.partitions() as u32;
        if hello.partitions != partitions {
            return format!(
                "this server's cluster has {partitions} partitions, the caller's has {}: give both the same <connect_to>",
                hello.partitions
            );
        }
        // A client may know some of the replicas only.
        if !hello.server.is_empty() && hello.fingerprint != self.topology.fingerprint() {
            return "the caller's cluster has other servers than this one's, or other ids, places or roles of them: give both the same <connect_to>".to_owned();
        }
        String::new()
    }

    fn status(&self) -> ServerStatus {
        let state = self.state.borrow();
        let member = self.topology.member(self.me);
        let inbound = self.inbound.borrow();
        let links = self
            .topology
            .ids()
            .zip(&self.peers)
            .filter_map(|(id, peer)| {
                let peer = peer.as_ref()?;
                let link = peer.link();
                Some(LinkStatus {
                    peer: peer.name.clone(),
                    connected: link.is_connected(),
                    kept_frames: link.kept_frames(),
                    kept_bytes: link.kept_bytes() as u64,
                    capacity_bytes: link.capacity() as u64,
                    congested: link.is_congested(),
                    connections: peer.reconnects.get(),
                    taken_frames: inbound.get(id.index()).map_or(0, |inbound| inbound.taken),
                })
            });
        ServerStatus {
            server: self.name.clone(),
            protocol: P::NAME.to_owned(),
            replica: member.replica,
            partition: member.partition,
            incarnation: format!("{:016x}", self.incarnation),
            uptime_ms: self.clock.get().monotonic_us() / 1000,
            running: self.running.get(),
            failure: self.failure.borrow().clone(),
            client_connections: self.client_connections.get(),
            links: links.collect(),
            node: state.node.status(),
            traffic: state.traffic,
        }
    }
}

fn encode_frame(frame: &mut BytesMut, message: &impl Message) {
    frame.clear();
    wire::encode_message(frame, message);
}

impl<P: Protocol> Control for Host<P> {
    fn status(&self) -> ServerStatus {
        Host::status(self)
    }

    fn shut_down(&self) {
        tracing::info!(server = %self.name, "shutdown over the control port");
        self.stop(None);
    }

    fn obey_link_order(&self, order: &LinkOrder) -> Result<(), String> {
        Host::obey_link_order(self, order)
    }

    fn obey_clock_order(&self, order: ClockOrder) -> Result<(), String> {
        order.validate()?;
        tracing::info!(server = %self.name, ?order, "the clock as ordered");
        self.clock.set(self.clock.get().stepped(order.step_us));
        // Messages that waited for the clock may go on, and timers are due at other times.
        self.with_node(|node, clock| node.tick(clock.now()));
        self.tick.notify_one();
        Ok(())
    }
}

/// Tells the node what happened to one of its links.
struct PeerChange<P: Protocol> {
    host: Weak<Host<P>>,
    peer: ServerId,
}

impl<P: Protocol> PeerEvents for PeerChange<P> {
    fn peer_changed(&self, state: PeerState) {
        if let Some(host) = self.host.upgrade() {
            host.with_node(|node, clock| node.peer_change(clock.now(), self.peer, state));
        }
    }

    fn peer_replaced(&self, incarnation: u64, dropped: u64) {
        if let Some(host) = self.host.upgrade() {
            host.peer_replaced(self.peer, incarnation, dropped);
        }
    }
}
