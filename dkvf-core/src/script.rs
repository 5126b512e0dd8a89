//! A cluster driven by hand, for tests of protocols: [`Script`].
//!
//! Papers argue with schedules: "p1 has learned the new cut-off, p2 not yet; now B writes". A script is such a
//! schedule. It holds the nodes of a protocol and everything that is on its way between them, and nothing moves
//! unless the test says so: no network, no clock, no thread. The same calls always give the same run.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::BytesMut;
use dkvf_storage::{Key, MemoryStore, Table, Value, VersionKey};
use prost::Message as _;

use crate::config::{NodeConfig, Properties};
use crate::{
    Client, ClientContext, ClientId, ClientPort, Code, Message, Metadata, Node, NodeError,
    NodeOptions, Now, Outcome, Output, Protocol, Reason, ServerId, Topology,
};

type RequestOf<P> = <<P as Protocol>::Metadata as Metadata>::ClientMessage;
type ReplyOf<P> = <<P as Protocol>::Metadata as Metadata>::ClientReply;
type ServerMessageOf<P> = <<P as Protocol>::Metadata as Metadata>::ServerMessage;

/// True time at the start of a script, in microseconds since 1970.
const START_US: u64 = 1_700_000_000_000_000;
/// The client process of the script's sessions.
const PROCESS: u64 = 1;
/// The session of [`Script::ask`].
const STRANGER: u32 = 0x00ff_ffff;

/// The `i`-th key of partition `partition`: `k<number>`.
pub fn key_in_partition(topology: &Topology, partition: usize, i: usize) -> Key {
    let keys = (0u64..).map(|number| Key::from(format!("k{number}")));
    keys.filter(|key| topology.partition_of(key) == partition)
        .nth(i)
        .expect("invariant: every partition has keys without end")
}

/// Where something is on its way, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Messages from a server to another one.
    Link(ServerId, ServerId),
    /// Requests of a session.
    Requests(u32),
    /// Replies to a session.
    Replies(u32),
}

/// What a message is, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Client to server.
    Request,
    /// Server to client.
    Reply,
    /// Server to another server.
    Server,
}

/// An operation of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Client::get`].
    Get(Key),
    /// [`Client::put`].
    Put(Key, Value),
    /// [`Client::read_only`].
    ReadOnly(Vec<Key>),
}

/// An operation that came to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The operation.
    pub operation: Operation,
    /// The values read, in the order asked for; none for a write.
    pub outcome: Outcome<Vec<Option<Value>>>,
    /// Which versions were read or written, as the client says.
    pub witnesses: Vec<(Key, VersionKey)>,
}

/// How a script's nodes are set up.
#[derive(Clone, Debug)]
pub struct ScriptOptions {
    /// Limits of the nodes. [strict](NodeOptions::strict) unless changed.
    pub node: NodeOptions,
    /// What the protocol is told.
    pub properties: Properties,
}

impl Default for ScriptOptions {
    fn default() -> Self {
        ScriptOptions {
            node: NodeOptions {
                strict: true,
                ..NodeOptions::default()
            },
            properties: Properties::default(),
        }
    }
}

/// The nodes of one protocol, its client sessions, and what is on its way between them.
///
/// Requests and replies of a session are delivered at once, unless it is [held](Script::hold); messages between servers wait
/// until they are [delivered](Script::deliver). Time stands still until it is [advanced](Script::advance).
///
/// # Panics
/// All methods panic when a node stops: a rule of the framework or an invariant of the protocol was broken, and the test failed.
pub struct Script<P: Protocol> {
    topology: Topology,
    nodes: Vec<Node<P::Server>>,
    skews_us: Vec<i64>,
    now_us: u64,
    links: BTreeMap<(ServerId, ServerId), VecDeque<ServerMessageOf<P>>>,
    port: Rc<Port<P::Metadata>>,
    sessions: Vec<Session<P>>,
    strange_requests: u64,
    counts: BTreeMap<(Kind, &'static str), u64>,
}

struct Session<P: Protocol> {
    /// The client, while it has no operation.
    client: Option<P::Client>,
    operation: Option<(Operation, Running<P>)>,
    finished: Option<Finished>,
    held: bool,
    replies: VecDeque<(u64, Result<ReplyOf<P>, Code>)>,
}

/// The text of the client at work; it gives the client back.
type Running<P> =
    Pin<Box<dyn Future<Output = (<P as Protocol>::Client, Outcome<Vec<Option<Value>>>)>>>;

/// The client side of what is on its way.
struct Port<M: Metadata> {
    sessions: RefCell<Vec<Mail<M>>>,
}

struct Mail<M: Metadata> {
    requests: VecDeque<(ServerId, u64, M::ClientMessage)>,
    last: Option<(ServerId, u64, M::ClientMessage)>,
    answers: BTreeMap<u64, Outcome<M::ClientReply>>,
}

impl<M: Metadata> ClientPort<M> for Port<M> {
    fn send(
        &self,
        session: u32,
        server: ServerId,
        request: u64,
        message: M::ClientMessage,
    ) -> Result<(), Reason> {
        let mail = &mut self.sessions.borrow_mut()[session as usize];
        mail.last = Some((server, request, message.clone()));
        mail.requests.push_back((server, request, message));
        Ok(())
    }

    fn poll(&self, session: u32, request: u64, _waker: &Waker) -> Poll<Outcome<M::ClientReply>> {
        self.sessions.borrow_mut()[session as usize]
            .answers
            .remove(&request)
            .map_or(Poll::Pending, Poll::Ready)
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn wake_at(&self, _session: u32, _time_us: u64) {}
}

impl<P: Protocol> Script<P> {
    /// A cluster of `replicas` by `partitions` servers with memory stores and equal clocks.
    pub fn new(replicas: u16, partitions: u16) -> Self {
        Script::with(
            Topology::grid(replicas, partitions),
            &ScriptOptions::default(),
        )
    }

    /// A cluster with options.
    pub fn with(topology: Topology, options: &ScriptOptions) -> Self {
        let now = Now {
            clock_us: START_US,
            monotonic_us: 0,
        };
        let node = |id: ServerId| {
            let name = &topology.member(id).name;
            let mut config = NodeConfig::new(name.clone());
            config.protocol_properties = options.properties.clone();
            let store = Box::new(MemoryStore::new(id, P::VERSIONS));
            Node::new(&config, topology.clone(), id, store, now, options.node)
                .unwrap_or_else(|error| panic!("node {name} does not start: {error:#}"))
        };
        let nodes: Vec<_> = topology.ids().map(node).collect();
        Script {
            skews_us: vec![0; nodes.len()],
            nodes,
            topology,
            now_us: 0,
            links: BTreeMap::new(),
            port: Rc::new(Port {
                sessions: RefCell::default(),
            }),
            sessions: Vec::new(),
            strange_requests: 0,
            counts: BTreeMap::new(),
        }
    }

    // ---- The cluster ----

    /// The cluster.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The server of `(replica, partition)`.
    pub fn at(&self, replica: usize, partition: usize) -> ServerId {
        self.topology.server(replica, partition)
    }

    /// The `i`-th key of partition `partition`.
    pub fn key(&self, partition: usize, i: usize) -> Key {
        key_in_partition(&self.topology, partition, i)
    }

    /// A node.
    pub fn node(&self, id: ServerId) -> &Node<P::Server> {
        &self.nodes[id.index()]
    }

    /// The protocol's state at a node.
    pub fn server(&self, id: ServerId) -> &P::Server {
        self.node(id).server()
    }

    /// How many versions of `key` a node stores.
    pub fn versions(&self, id: ServerId, key: &[u8]) -> usize {
        let mut count = 0;
        self.visit_versions(id, key, |_| count += 1);
        count
    }

    fn visit_versions(
        &self,
        id: ServerId,
        key: &[u8],
        mut visit: impl FnMut(&<P::Metadata as Metadata>::Record),
    ) {
        let mut visit = |record: &_| {
            visit(record);
            ControlFlow::Continue(())
        };
        self.node(id)
            .store()
            .newer(Table::MAIN, key, VersionKey(0), &mut visit)
            .expect("invariant: a memory store does not fail");
    }

    /// Messages parked at any node.
    pub fn parked(&self) -> usize {
        self.nodes.iter().map(|node| node.status().parked).sum()
    }

    /// A number that differs as soon as anything does: states, stores, messages on their way, counts, time.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = BytesMut::new();
        for (id, node) in self.topology.ids().zip(&self.nodes) {
            let state = postcard::to_stdvec(node.server())
                .expect("invariant: a server's state can be encoded");
            bytes.extend_from_slice(&state);
            let mut keys = Vec::new();
            let scanned =
                node.store()
                    .scan(Table::MAIN, b"", None, &mut |_| false, &mut |key, _| {
                        keys.push(Key::copy_from_slice(key));
                        ControlFlow::Continue(())
                    });
            scanned.expect("invariant: a memory store does not fail");
            for key in keys {
                bytes.extend_from_slice(&key);
                self.visit_versions(id, &key, |record| {
                    bytes.extend_from_slice(&record.encode_to_vec())
                });
            }
        }
        for message in self.links.values().flatten() {
            message.encode(&mut bytes);
        }
        let rest = format!("{:?}{:?}{:?}", self.links.keys(), self.counts, self.now_us);
        bytes.extend_from_slice(rest.as_bytes());
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    // ---- Time ----

    /// Lets time pass. Timers fire and waits for clocks end when they are due; nothing is delivered.
    pub fn advance(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while let Some((due_us, id)) = self.next_tick().filter(|(due_us, _)| *due_us <= end_us) {
            self.now_us = self.now_us.max(due_us);
            self.tick(id);
        }
        self.now_us = end_us;
        self.topology.ids().for_each(|id| self.tick(id));
    }

    fn next_tick(&self) -> Option<(u64, ServerId)> {
        self.topology
            .ids()
            .zip(&self.nodes)
            .filter_map(|(id, node)| Some((node.next_tick_us()?, id)))
            .min()
    }

    fn tick(&mut self, id: ServerId) {
        let now = self.now(id);
        let result = self.nodes[id.index()].tick(now);
        self.carry_out(id, result);
        self.flow();
    }

    /// Sets a node's clock `us` apart from true time, as an administrator would; it may go back.
    pub fn set_skew(&mut self, id: ServerId, us: i64) {
        self.skews_us[id.index()] = us;
    }

    fn now(&self, id: ServerId) -> Now {
        Now {
            clock_us: (START_US + self.now_us).saturating_add_signed(self.skews_us[id.index()]),
            monotonic_us: self.now_us,
        }
    }

    // ---- Sessions ----

    /// A new session, bound to `replica`.
    pub fn session(&mut self, replica: u16) -> u32 {
        let session = self.sessions.len() as u32;
        self.port.sessions.borrow_mut().push(Mail {
            requests: VecDeque::new(),
            last: None,
            answers: BTreeMap::new(),
        });
        let mut client = P::Client::new(ClientContext::new(
            self.port.clone(),
            self.topology.clone(),
            session,
            replica,
        ));
        client.context().record_witnesses();
        self.sessions.push(Session {
            client: Some(client),
            operation: None,
            finished: None,
            held: false,
            replies: VecDeque::new(),
        });
        session
    }

    /// Keeps the requests and replies of a session on their way until they are delivered.
    pub fn hold(&mut self, session: u32) {
        self.sessions[session as usize].held = true;
    }

    /// Delivers the requests and replies of a session, and from now on at once.
    pub fn release(&mut self, session: u32) {
        self.sessions[session as usize].held = false;
        self.flow();
    }

    /// Starts an operation.
    ///
    /// # Panics
    /// If the session has one, or one whose end was not [taken](Script::take).
    pub fn start(&mut self, session: u32, operation: Operation) {
        let place = &mut self.sessions[session as usize];
        let client = place.client.take();
        let (Some(mut client), None) = (client, &place.finished) else {
            panic!("session {session} still has an operation");
        };
        let asked = operation.clone();
        let running = Box::pin(async move {
            let outcome = match asked {
                Operation::Get(key) => client.get(key).await.map(|value| vec![value]),
                Operation::Put(key, value) => client.put(key, value).await.map(|()| Vec::new()),
                Operation::ReadOnly(keys) => client.read_only(keys).await,
            };
            (client, outcome)
        });
        place.operation = Some((operation, running));
        self.poll(session);
        self.flow();
    }

    /// The session's operation, if it came to its end.
    pub fn take(&mut self, session: u32) -> Option<Finished> {
        self.sessions[session as usize].finished.take()
    }

    /// Whether the session can [start](Script::start) an operation.
    pub fn is_idle(&self, session: u32) -> bool {
        let session = &self.sessions[session as usize];
        session.client.is_some() && session.finished.is_none()
    }

    /// Reads `key`; nothing but the session's own messages moves.
    ///
    /// # Panics
    /// If the reply does not come without other messages or more time: use [`Script::start`] then.
    pub fn get(&mut self, session: u32, key: &Key) -> Outcome<Option<Value>> {
        let mut values = self.run(session, Operation::Get(key.clone())).outcome?;
        Ok(values.pop().flatten())
    }

    /// Writes `key`, as [`Script::get`] reads.
    ///
    /// # Panics
    /// As [`Script::get`].
    pub fn put(&mut self, session: u32, key: &Key, value: impl Into<Value>) -> Outcome<()> {
        self.run(session, Operation::Put(key.clone(), value.into()))
            .outcome
            .map(|_| ())
    }

    /// Reads several keys as one snapshot. Delivers everything that is on its way.
    ///
    /// # Panics
    /// If the reply does not come without more time.
    pub fn read_only(&mut self, session: u32, keys: &[Key]) -> Outcome<Vec<Option<Value>>> {
        self.start(session, Operation::ReadOnly(keys.to_vec()));
        self.run_until_idle();
        self.end(session).outcome
    }

    fn run(&mut self, session: u32, operation: Operation) -> Finished {
        self.start(session, operation);
        self.end(session)
    }

    fn end(&mut self, session: u32) -> Finished {
        self.take(session).unwrap_or_else(|| {
            panic!("the operation of session {session} waits for more than its own messages")
        })
    }

    /// Sends the session's last request again, under the same number, as after a lost connection.
    ///
    /// # Panics
    /// If it has sent none.
    pub fn repeat_request(&mut self, session: u32) {
        let mail = &mut self.port.sessions.borrow_mut()[session as usize];
        let last = mail
            .last
            .clone()
            .unwrap_or_else(|| panic!("session {session} has sent nothing"));
        mail.requests.push_back(last);
    }

    /// Has a stranger, who follows no protocol, send one request. `None` if it is not answered at once.
    pub fn ask(
        &mut self,
        server: ServerId,
        message: impl Into<RequestOf<P>>,
    ) -> Option<Result<ReplyOf<P>, Code>> {
        self.strange_requests += 1;
        let (now, client) = (self.now(server), ClientId::of(PROCESS, STRANGER));
        let node = &mut self.nodes[server.index()];
        let result = node.client_message(now, 0, client, self.strange_requests, message.into());
        let mut answer = None;
        let outputs = node.take_outputs();
        for output in outputs {
            match output {
                Output::Reply {
                    client: ClientId(id),
                    result,
                    ..
                } if id == client.0 => answer = Some(result),
                output => self.route(server, output),
            }
        }
        self.carry_out(server, result);
        answer
    }

    // ---- Delivery ----

    /// Where something is on its way, in order.
    pub fn channels(&self) -> Vec<Channel> {
        let links = self
            .links
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|((from, to), _)| Channel::Link(*from, *to));
        let mail = self.port.sessions.borrow();
        let requests = (0..)
            .zip(mail.iter())
            .filter(|(_, mail)| !mail.requests.is_empty())
            .map(|(session, _)| Channel::Requests(session));
        let replies = (0..)
            .zip(&self.sessions)
            .filter(|(_, session)| !session.replies.is_empty())
            .map(|(session, _)| Channel::Replies(session));
        links.chain(requests).chain(replies).collect()
    }

    /// Delivers the oldest message of a channel. Returns whether there was one.
    pub fn deliver(&mut self, channel: Channel) -> bool {
        let delivered = self.deliver_one(channel);
        self.flow();
        delivered
    }

    /// Delivers the messages of a link, and those that are sent on it meanwhile.
    pub fn deliver_link(&mut self, from: ServerId, to: ServerId) {
        while self.deliver(Channel::Link(from, to)) {}
    }

    /// Delivers everything, also what is sent meanwhile, until nothing is on its way. No time passes.
    pub fn run_until_idle(&mut self) {
        loop {
            let channels = self.channels();
            if channels.is_empty() {
                return;
            }
            for channel in channels {
                self.deliver(channel);
            }
        }
    }

    /// Lets time pass and delivers everything within a millisecond of its sending.
    pub fn settle(&mut self, ms: u64) {
        for _ in 0..ms {
            self.run_until_idle();
            self.advance(1_000);
        }
        self.run_until_idle();
    }

    /// The messages on their way on a link, the oldest first.
    pub fn queued(
        &self,
        from: ServerId,
        to: ServerId,
    ) -> impl Iterator<Item = &ServerMessageOf<P>> {
        self.links.get(&(from, to)).into_iter().flatten()
    }

    /// Puts a message on a link, as a faulty network would.
    pub fn inject(&mut self, from: ServerId, to: ServerId, message: ServerMessageOf<P>) {
        self.links.entry((from, to)).or_default().push_back(message);
    }

    /// Loses the oldest message of a link, as a crash that the links do not hide would. Returns whether there was one.
    pub fn lose(&mut self, from: ServerId, to: ServerId) -> bool {
        self.links
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front)
            .is_some()
    }

    fn deliver_one(&mut self, channel: Channel) -> bool {
        match channel {
            Channel::Link(from, to) => {
                let Some(message) = self
                    .links
                    .get_mut(&(from, to))
                    .and_then(VecDeque::pop_front)
                else {
                    return false;
                };
                let now = self.now(to);
                let result = self.nodes[to.index()].server_message(now, from, message);
                self.carry_out(to, result);
            }
            Channel::Requests(session) => {
                let request = self.port.sessions.borrow_mut()[session as usize]
                    .requests
                    .pop_front();
                let Some((server, request, message)) = request else {
                    return false;
                };
                self.count(Kind::Request, message.name(), 1);
                let now = self.now(server);
                let result = self.nodes[server.index()].client_message(
                    now,
                    0,
                    ClientId::of(PROCESS, session),
                    request,
                    message,
                );
                self.carry_out(server, result);
            }
            Channel::Replies(session) => {
                let Some((request, result)) = self.sessions[session as usize].replies.pop_front()
                else {
                    return false;
                };
                let answer = result.map_err(|code| Reason::Refused(code).into());
                self.port.sessions.borrow_mut()[session as usize]
                    .answers
                    .insert(request, answer);
                self.poll(session);
            }
        }
        true
    }

    /// Delivers the requests and replies of the sessions that are not held.
    fn flow(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for session in 0..self.sessions.len() as u32 {
                if !self.sessions[session as usize].held {
                    moved |= self.deliver_one(Channel::Requests(session))
                        || self.deliver_one(Channel::Replies(session));
                }
            }
        }
    }

    fn poll(&mut self, session: u32) {
        let place = &mut self.sessions[session as usize];
        let Some((_, running)) = &mut place.operation else {
            return;
        };
        let mut cx = std::task::Context::from_waker(Waker::noop());
        if let Poll::Ready((mut client, outcome)) = running.as_mut().poll(&mut cx) {
            let witnesses = client.context().take_witnesses().into_vec();
            let operation = place.operation.take().map(|(operation, _)| operation);
            place.finished = operation.map(|operation| Finished {
                operation,
                outcome,
                witnesses,
            });
            place.client = Some(client);
        }
    }

    /// Carries out what a node wants after an event.
    fn carry_out(&mut self, id: ServerId, result: Result<(), NodeError>) {
        if let Err(error) = result {
            panic!("node {} stops: {error}", self.topology.member(id).name);
        }
        for output in self.nodes[id.index()].take_outputs() {
            self.route(id, output);
        }
    }

    fn route(&mut self, from: ServerId, output: Output<P::Metadata>) {
        match output {
            Output::Send { to, message, .. } => self.post(from, to, message),
            Output::Broadcast { to, message, .. } => {
                to.for_each(|to| self.post(from, to, message.clone()))
            }
            Output::Reply {
                client,
                request,
                slot,
                result,
                ..
            } => {
                self.nodes[from.index()].keep_reply(slot, request, result.clone());
                if client.session() != STRANGER {
                    self.count(
                        Kind::Reply,
                        result.as_ref().map_or("error", Message::name),
                        1,
                    );
                    self.sessions[client.session() as usize]
                        .replies
                        .push_back((request, result));
                }
            }
        }
    }

    fn post(&mut self, from: ServerId, to: ServerId, message: ServerMessageOf<P>) {
        self.count(Kind::Server, message.name(), 1);
        self.links.entry((from, to)).or_default().push_back(message);
    }

    // ---- Counting ----

    fn count(&mut self, kind: Kind, name: &'static str, messages: u64) {
        *self.counts.entry((kind, name)).or_default() += messages;
    }

    /// Messages sent since the start or the last call, by kind and name; of a server to itself none.
    pub fn take_counts(&mut self) -> BTreeMap<(Kind, &'static str), u64> {
        std::mem::take(&mut self.counts)
    }
}
