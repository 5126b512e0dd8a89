//! One node on TCP: its listeners and connections around a [`Node`].
//!
//! The ports have no authentication. Whoever reaches the server port can say hello under a peer's name with an
//! incarnation of his own: the node then takes the peer for replaced, drops what it keeps for it and takes the stranger's
//! messages for the peer's. So the ports belong on a network that only the cluster and its clients reach; a node that
//! listens on more than loopback says so when it starts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::rc::{Rc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::clock::HostClock;
use super::connection::{Address, prepare, read_frame, read_more, write_small};
use super::control::{self, Control};
use super::flush::{Flusher, Outbox};
use super::link::{LinkError, Resumed};
use super::peer::{Congestion, LinkDelay, Pace, Peer, PeerEvents};
use super::status::{LinkStatus, ServerStatus, Traffic};
use super::wire::{self, Hello, MAGIC, Welcome};
use super::worker::Local;
use crate::config::{Flush, NodeConfig, PeerFlush as PeerFlushConfig};
use crate::limits::{
    ACK_EVERY_FRAMES, ACK_IDLE_MS, HELLO_BYTES_MAX, KEPT_REPLY_BYTES_MAX, READ_BUFFER_BYTES_MIN,
    UNREAD_REPLY_BYTES_MAX,
};
use crate::node::{NodeOptions, VisibilitySample};
use crate::storage::StoreOptions;
use crate::{
    ClientId, Code, Message, Metadata, Node, NodeError, Now, Output, PeerFlush, PeerState,
    Protocol, ServerId, Topology,
};

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
    clock: HostClock,
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

/// The receiving side of a link.
#[derive(Clone, Default)]
struct Inbound {
    /// The sender's incarnation, once it called.
    incarnation: Option<u64>,
    taken: u64,
    acknowledged: u64,
    /// Counts connections: frames of any but the newest are not taken.
    generation: u64,
    outbox: Option<Rc<Outbox>>,
}

impl Inbound {
    /// What was received from another incarnation than this one is history.
    fn meet(&mut self, incarnation: u64) {
        if self.incarnation != Some(incarnation) {
            self.connect(None);
            self.incarnation = Some(incarnation);
            self.taken = 0;
            self.acknowledged = 0;
        }
    }

    /// A connection takes the place of the former one.
    fn connect(&mut self, outbox: Option<Rc<Outbox>>) {
        self.generation += 1;
        // The welcome says what was taken.
        self.acknowledged = self.taken;
        if let Some(former) = std::mem::replace(&mut self.outbox, outbox) {
            former.close();
        }
    }
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
        node.watch_visibility();
    }
    if !config.bind.is_loopback() {
        tracing::warn!(server = %name, "listens on {}: anybody who reaches the server port can pass for a peer, so let only the cluster reach it", config.bind);
    }
    let congestion = Rc::new(Congestion::default());
    let pace = pace::<P>(local, &config);
    let peer = |(id, address): (ServerId, &Address)| {
        (id != me).then(|| {
            let peer_name = topology.member(id).name.clone();
            let delay = config
                .delays
                .iter()
                .find(|delay| delay.from == name && delay.to == peer_name);
            let delay = delay.map(|delay| LinkDelay {
                delay_us: delay.ms * 1000,
                jitter_us: delay.jitter_ms * 1000,
                seed: xxhash_rust::xxh3::xxh3_64(format!("{name}\n{peer_name}").as_bytes()),
            });
            let peer = Peer::new(
                peer_name,
                config.channel_capacity,
                pace.clone(),
                clock,
                delay,
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
        clock,
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
        let result = event(&mut self.state.borrow_mut().node, &self.clock);
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
                state.armed_us = state.node.next_tick_us().unwrap_or(u64::MAX);
                (state.armed_us, state.node.waits_for_clock())
            };
            let now_us = self.clock.monotonic_us();
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
                if self.clock.monotonic_us() < due_us {
                    continue;
                }
            }
            self.with_node(|node, clock| node.tick(clock.now()));
        }
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

    // ---- Clients ----

    async fn accept_clients(self: Rc<Self>, listener: TcpListener) {
        let mut turning_away = false;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server = %self.name, %error, "cannot accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let full = self.client_connections.get() >= self.config.connections_max;
            if full && !turning_away {
                tracing::warn!(server = %self.name, "connections_max ({}) is reached: clients are turned away", self.config.connections_max);
            }
            turning_away = full;
            if full {
                continue;
            }
            self.client_connections
                .set(self.client_connections.get() + 1);
            let host = self.clone();
            self.spawn(async move {
                if let Err(reason) = host.serve_client(stream).await {
                    tracing::info!(server = %host.name, "closed a client's connection: {reason:#}");
                }
                host.client_connections
                    .set(host.client_connections.get() - 1);
            });
        }
    }

    async fn serve_client(self: &Rc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        prepare(&stream)?;
        let (mut reader, writer) = stream.into_split();
        let mut buffer = BytesMut::new();
        let Some(hello) = self.read_hello(&mut reader, &mut buffer).await? else {
            return Ok(());
        };
        let refusal = self.refusal(&hello);
        let welcome = Welcome {
            magic: MAGIC,
            incarnation: self.incarnation,
            taken: 0,
            refusal: refusal.clone(),
        };
        let mut answer = BytesMut::new();
        wire::encode_handshake(&mut answer, &welcome);
        write_small(&writer, &answer).await?;
        anyhow::ensure!(refusal.is_empty(), "{refusal}");
        let outbox = Outbox::new(writer);
        let port = self.add_client(outbox.clone());
        let served = tokio::select! {
            served = self.read_requests(&mut reader, &mut buffer, port, hello.incarnation, &outbox) => served,
            () = outbox.drain() => Ok(()),
        };
        if self.running.get() {
            self.clients.borrow_mut()[port as usize] = None;
            self.state.borrow_mut().node.disconnected(port);
        }
        served
    }

    fn add_client(&self, outbox: Rc<Outbox>) -> u32 {
        let mut clients = self.clients.borrow_mut();
        let port = clients
            .iter()
            .position(Option::is_none)
            .unwrap_or(clients.len());
        if port == clients.len() {
            clients.push(None);
        }
        clients[port] = Some(outbox);
        port as u32
    }

    async fn read_requests(
        &self,
        reader: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
        port: u32,
        process: u64,
        outbox: &Rc<Outbox>,
    ) -> anyhow::Result<()> {
        let mut size = READ_BUFFER_BYTES_MIN;
        // What came with the hello is looked at before more is read.
        loop {
            // One reading per batch: it is later than the sending of every request in it, so no stamp that a client
            // carries was given after it.
            let mut now = self.clock.now();
            while let Some(frame) = wire::next_frame(buffer, self.config.message_bytes_max)? {
                let bytes = frame.len();
                let (session, request, message) =
                    wire::decode_request::<ClientMessageOf<P>>(frame)?;
                let client = ClientId::of(process, session);
                self.take_request(now, port, client, request, message, bytes);
                if outbox.waiting_bytes() > WAITING_REPLY_BYTES_MAX {
                    // Small requests can have large replies: the rest of the batch waits as well.
                    self.after_events();
                    self.wait_for_reader(outbox).await?;
                    now = self.clock.now();
                }
            }
            if !self.running.get() {
                return Ok(());
            }
            self.after_events();
            self.wait_for_reader(outbox).await?;
            if !read_more(reader, buffer, &mut size, self.patience()).await? {
                return Ok(());
            }
        }
    }

    fn take_request(
        &self,
        now: Now,
        port: u32,
        client: ClientId,
        request: u64,
        message: Result<ClientMessageOf<P>, wire::WireError>,
        bytes: usize,
    ) {
        if !self.running.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.traffic.requests += 1;
        state.traffic.request_bytes += (bytes + wire::HEADER_BYTES) as u64;
        let result = match message {
            Err(error) => {
                tracing::info!(server = %self.name, %client, %error, "a malformed request");
                state
                    .node
                    .refuse_unhandled(port, client, request, Code::Malformed);
                Ok(())
            }
            // A request that was taken before is not refused: that would say that it had no effect.
            Ok(_) if self.congestion.is_there() && state.node.is_new_request(client, request) => {
                state
                    .node
                    .refuse_unhandled(port, client, request, Code::Overloaded);
                Ok(())
            }
            Ok(message) => {
                let _span = tracing::trace_span!("request", server = %self.name, %client, message = message.name()).entered();
                state
                    .node
                    .client_message(now, port, client, request, message)
            }
        };
        drop(state);
        self.after_event(result);
    }

    /// Leaves a client's requests in the kernel while it does not read its replies.
    async fn wait_for_reader(&self, outbox: &Rc<Outbox>) -> anyhow::Result<()> {
        if outbox.waiting_bytes() > WAITING_REPLY_BYTES_MAX {
            let patience =
                Duration::from_millis(self.config.request_timeout_ms + self.config.idle_timeout_ms);
            tokio::time::timeout(patience, outbox.emptied())
                .await
                .with_context(|| format!("the client has not read its replies for {patience:?}"))?;
        }
        anyhow::ensure!(
            !outbox.is_closed(),
            "the connection broke, or the client left too many replies unread"
        );
        Ok(())
    }

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

    // ---- Servers ----

    async fn accept_servers(self: Rc<Self>, listener: TcpListener) {
        // Servers are few: twice their number covers reconnects, and the rest are strangers.
        let connections_max = 64 + 2 * self.topology.members().len();
        let connections = Rc::new(Cell::new(0));
        let mut turning_away = false;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server = %self.name, %error, "cannot accept a server");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let full = connections.get() >= connections_max;
            if full && !turning_away {
                tracing::warn!(server = %self.name, "{connections_max} connections on the server port: more are turned away");
            }
            turning_away = full;
            if full {
                continue;
            }
            connections.set(connections.get() + 1);
            let (host, connections) = (self.clone(), connections.clone());
            self.spawn(async move {
                if let Err(reason) = host.serve_server(stream).await {
                    tracing::info!(server = %host.name, "closed a server's connection: {reason:#}");
                }
                connections.set(connections.get() - 1);
            });
        }
    }

    async fn serve_server(self: &Rc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        prepare(&stream)?;
        let (mut reader, writer) = stream.into_split();
        let mut buffer = BytesMut::new();
        let Some(hello) = self.read_hello(&mut reader, &mut buffer).await? else {
            return Ok(());
        };
        let mut refusal = self.refusal(&hello);
        let from = self.topology.find(&hello.server);
        if from.is_none() || from == Some(self.me) {
            refusal = format!("no server {:?} is a peer of {}", hello.server, self.name);
        }
        let outbox = Outbox::new(writer);
        let mut taken = 0;
        let mut generation = 0;
        if let (Some(from), "") = (from, refusal.as_str()) {
            match self.admit(from, hello.incarnation, &outbox) {
                Ok(admitted) => (taken, generation) = admitted,
                Err(error) => refusal = error.to_string(),
            }
        }
        let welcome = Welcome {
            magic: MAGIC,
            incarnation: self.incarnation,
            taken,
            refusal: refusal.clone(),
        };
        wire::encode_handshake(&mut outbox.buffer.borrow_mut(), &welcome);
        outbox.mark(&self.flusher);
        let (Some(from), "") = (from, refusal.as_str()) else {
            outbox.emptied().await;
            anyhow::bail!("{refusal}");
        };
        let served = tokio::select! {
            served = self.read_messages(&mut reader, &mut buffer, from, generation) => served,
            () = outbox.drain() => Ok(()),
        };
        let inbound = &mut self.inbound.borrow_mut()[from.index()];
        if inbound.generation == generation {
            inbound.outbox = None;
        }
        served
    }

    /// A server calls: its former connection, should it still be there, is closed. Returns how many of its frames were
    /// taken, and the number of the new connection.
    fn admit(
        &self,
        from: ServerId,
        incarnation: u64,
        outbox: &Rc<Outbox>,
    ) -> Result<(u64, u64), LinkError> {
        if let Some(peer) = &self.peers[from.index()]
            && let Resumed::Replaced { dropped } = peer.meet(incarnation)?
        {
            self.peer_replaced(from, incarnation, dropped);
        }
        let mut inbound = self.inbound.borrow_mut();
        let inbound = &mut inbound[from.index()];
        inbound.meet(incarnation);
        inbound.connect(Some(outbox.clone()));
        Ok((inbound.taken, inbound.generation))
    }

    /// The protocol is told before it gets anything from the new incarnation, and gets nothing more from the old one.
    fn peer_replaced(&self, peer: ServerId, incarnation: u64, dropped: u64) {
        tracing::warn!(server = %self.name, peer = %self.topology.member(peer).name, dropped, "a peer was replaced: messages for its former incarnation are dropped");
        self.inbound.borrow_mut()[peer.index()].meet(incarnation);
        self.with_node(|node, clock| node.peer_change(clock.now(), peer, PeerState::Replaced));
    }

    async fn read_messages(
        &self,
        reader: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
        from: ServerId,
        generation: u64,
    ) -> anyhow::Result<()> {
        let mut size = READ_BUFFER_BYTES_MIN;
        let bytes_max = wire::wrapped_bytes_max(self.config.message_bytes_max);
        loop {
            let now = self.clock.now();
            while let Some(frame) = wire::next_frame(buffer, bytes_max)? {
                if !self.running.get()
                    || self.inbound.borrow()[from.index()].generation != generation
                {
                    return Ok(());
                }
                let message = ServerMessageOf::<P>::decode(frame)?;
                let _span = tracing::trace_span!("message", server = %self.name, %from, message = message.name()).entered();
                let result = self
                    .state
                    .borrow_mut()
                    .node
                    .server_message(now, from, message);
                self.inbound.borrow_mut()[from.index()].taken += 1;
                self.after_event(result);
            }
            if !self.running.get() {
                return Ok(());
            }
            self.after_events();
            self.acknowledge(from);
            if !read_more(reader, buffer, &mut size, self.patience()).await? {
                return Ok(());
            }
        }
    }

    /// Acknowledges once enough frames were taken; the rest waits for the idle timer.
    fn acknowledge(&self, from: ServerId) {
        let mut inbound = self.inbound.borrow_mut();
        let inbound = &mut inbound[from.index()];
        if inbound.taken - inbound.acknowledged >= ACK_EVERY_FRAMES {
            self.send_ack(inbound);
        } else if inbound.taken > inbound.acknowledged {
            self.ack.notify_one();
        }
    }

    fn send_ack(&self, inbound: &mut Inbound) {
        if let Some(outbox) = &inbound.outbox {
            wire::encode_ack(&mut outbox.buffer.borrow_mut(), inbound.taken);
            outbox.mark(&self.flusher);
            inbound.acknowledged = inbound.taken;
        }
    }

    async fn acknowledge_when_idle(self: Rc<Self>) {
        loop {
            self.ack.notified().await;
            tokio::time::sleep(Duration::from_millis(ACK_IDLE_MS)).await;
            for inbound in self.inbound.borrow_mut().iter_mut() {
                if inbound.taken > inbound.acknowledged {
                    self.send_ack(inbound);
                }
            }
        }
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
            uptime_ms: self.clock.monotonic_us() / 1000,
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
