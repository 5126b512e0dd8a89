//! The machine: a world, its servers and clients, and one event after the other. See [`Simulation`].

use std::rc::Rc;

use dkvf_core::{Metadata, Node, NodeError, Protocol, ServerId, SessionExecutor, Topology};
use dkvf_workload::faults::{Change, Schedule};
use rand_pcg::Pcg64Mcg;

use crate::clients::{Connection, ConnectionState, Port};
use crate::disk::Journal;
use crate::faults::Injected;
use crate::link::{Connection as LinkConnection, Link};
use crate::machine::{Host, Machine};
use crate::measure::Seen;
use crate::options::Options;
use crate::outcome::{Counts, Failure, FailureKind, Recovery};
use crate::queue::{Event, Queue};
use crate::random::stream;
use crate::trace::{Place, TraceEvent};
use crate::wire::Wire;

pub(crate) type ServerMessageOf<P> = <<P as Protocol>::Metadata as Metadata>::ServerMessage;

/// The table of links, or of connections, has no entry for this pair yet.
const NONE: u32 = u32::MAX;

/// A cluster in virtual time.
///
/// Nothing here runs by itself: [`Simulation::run_until`] processes events up to a time. Time is in microseconds from
/// the start; the physical clocks of servers begin at [`START_US`](crate::world::START_US).
pub struct Simulation<P: Protocol> {
    pub(crate) options: Options,
    pub(crate) topology: Topology,
    pub(crate) queue: Queue,
    pub(crate) now_us: u64,
    pub(crate) events: u64,
    pub(crate) deliveries: u64,
    pub(crate) latency_random: Pcg64Mcg,
    pub(crate) client_random: Pcg64Mcg,
    pub(crate) disk_random: Pcg64Mcg,
    pub(crate) promise_random: Pcg64Mcg,
    pub(crate) hosts: Vec<Host>,
    pub(crate) machines: Vec<Machine<P>>,
    pub(crate) links: Vec<Link<ServerMessageOf<P>>>,
    /// `link_ids[from * servers + to]`: links are made when they are first needed.
    link_ids: Vec<u32>,
    pub(crate) connections: Vec<Connection<P::Metadata>>,
    connection_ids: Vec<u32>,
    pub(crate) port: Rc<Port<P::Metadata>>,
    pub(crate) executor: Option<Rc<dyn SessionExecutor>>,
    pub(crate) schedule: Schedule,
    /// When the schedule's times begin.
    pub(crate) schedule_start_us: u64,
    pub(crate) changes: Vec<Change>,
    pub(crate) injected: Vec<Injected>,
    pub(crate) failure: Option<Failure>,
    pub(crate) counts: Counts,
    pub(crate) recovery: Recovery,
    pub(crate) seen: Vec<Seen>,
    pub(crate) trace: Option<Vec<TraceEvent>>,
}

impl<P: Protocol> Simulation<P> {
    /// A cluster whose servers have just started and are connected.
    ///
    /// # Errors
    /// Options that contradict themselves or cannot be simulated; a protocol that refuses its properties.
    pub fn new(options: &Options) -> anyhow::Result<Self> {
        options.check()?;
        let topology = options.topology();
        let servers = topology.members().len();
        let host_of: Vec<u32> = match &options.hosts {
            Some(hosts) => hosts.iter().map(|host| u32::from(*host)).collect(),
            None => (0..servers as u32).collect(),
        };
        let host_count = host_of.iter().max().map_or(0, |host| host + 1);
        let seed = options.seed;
        let mut simulation = Simulation {
            queue: Queue::default(),
            now_us: 0,
            events: 0,
            deliveries: 0,
            latency_random: stream(seed, "latency", 0),
            client_random: stream(seed, "client latency", 0),
            disk_random: stream(seed, "disk", 0),
            promise_random: stream(seed, "broken promises", 0),
            hosts: (0..host_count)
                .map(|host| Host::new(options, host, &host_of))
                .collect(),
            machines: topology
                .ids()
                .map(|id| Machine::new(options, topology.member(id), host_of[id.index()]))
                .collect(),
            links: Vec::new(),
            link_ids: vec![NONE; servers * servers],
            connections: Vec::new(),
            connection_ids: vec![NONE; topology.replicas() * servers],
            port: Port::new(options.request_timeout_us, options.links.message_bytes_max),
            executor: None,
            schedule: Schedule::default(),
            schedule_start_us: 0,
            changes: Vec::new(),
            injected: Vec::new(),
            failure: None,
            counts: Counts::default(),
            recovery: Recovery::default(),
            seen: Vec::new(),
            trace: options.trace.then(Vec::new),
            options: options.clone(),
            topology,
        };
        for id in simulation.topology.ids() {
            simulation.start_empty(id)?;
        }
        Ok(simulation)
    }

    // ---- Looking ----

    /// Virtual time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The cluster.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The protocol's state at a server; `None` while it is down.
    pub fn server(&self, id: ServerId) -> Option<&P::Server> {
        self.node(id).map(Node::server)
    }

    /// A node; `None` while it is down.
    pub fn node(&self, id: ServerId) -> Option<&Node<P::Server>> {
        self.machines[id.index()].node.as_ref()
    }

    /// The incarnation of a server, from 1.
    pub fn incarnation(&self, id: ServerId) -> u32 {
        self.machines[id.index()].incarnation
    }

    /// Events processed so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Messages delivered so far.
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// What went wrong, if something did. Nothing moves any more then.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The trace so far; empty if none was asked for.
    pub fn trace(&self) -> &[TraceEvent] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// The longest period of the protocol's timers at any server that is up, in microseconds.
    pub fn longest_period_us(&self) -> u64 {
        let nodes = self
            .machines
            .iter()
            .filter_map(|machine| machine.node.as_ref());
        nodes.filter_map(Node::longest_period_us).max().unwrap_or(0)
    }

    /// Whether nothing is on its way or waits for a disk, heartbeats apart, and all links are connected.
    pub fn is_quiet(&self) -> bool {
        let links = self
            .links
            .iter()
            .all(|link| !link.keeps_messages() && link.connection == LinkConnection::Up);
        let connections = self.connections.iter().all(|connection| {
            connection.requests.is_empty()
                && connection.replies.is_empty()
                && connection.state == ConnectionState::Up
        });
        let disks = self.machines.iter().all(|machine| {
            machine.node.is_some()
                && !machine
                    .journal
                    .as_ref()
                    .is_some_and(Journal::holds_messages)
        });
        links && connections && disks && self.hosts.iter().all(|host| host.inbox.is_empty())
    }

    // ---- Running ----

    /// Processes all events up to and including `until_us`, and stops there or at a failure.
    pub fn run_until(&mut self, until_us: u64) {
        self.run_while(until_us, |_| true);
    }

    /// Processes events up to `until_us` for as long as `goes_on` says so, asked before each event. Returns whether it
    /// was `goes_on` that ended it.
    pub fn run_while(&mut self, until_us: u64, mut goes_on: impl FnMut(&Self) -> bool) -> bool {
        while self.failure.is_none() {
            if !goes_on(self) {
                return true;
            }
            let Some((time_us, number, event)) = self.queue.pop(until_us) else {
                // Time stands still when nothing is left to happen and nobody said how far to go.
                if until_us < u64::MAX {
                    self.now_us = self.now_us.max(until_us);
                }
                return false;
            };
            self.now_us = self.now_us.max(time_us);
            self.events += 1;
            self.dispatch(number, event);
        }
        false
    }

    fn dispatch(&mut self, number: u64, event: Event) {
        match event {
            Event::Frame { link } => self.frame_due(link, number),
            Event::Transmit { link } => self.can_transmit(link),
            Event::LinkLost { link, generation } => self.link_lost(link, generation),
            Event::LinkUp { link, generation } => self.link_up(link, generation),
            Event::Request { connection } => self.request_due(connection, number),
            Event::Reply { connection } => self.reply_due(connection, number),
            Event::ConnectionLost {
                connection,
                generation,
            } => self.connection_lost(connection, generation),
            Event::ConnectionUp {
                connection,
                generation,
            } => self.connection_up(connection, generation),
            Event::Tick { node } => self.tick_due(node),
            Event::Work { host } => self.go_on(host),
            Event::Synced { node, generation } => self.disk_ready(node, generation),
            Event::Deadline => {
                self.port.set_now(self.now_us);
                self.port.expire(self.now_us);
                self.run_sessions();
            }
            Event::Alarm { session } => {
                self.port.set_now(self.now_us);
                self.port.ring(session);
                self.run_sessions();
            }
            Event::Change { index } => self.change(index as usize),
            Event::Ends { fault } => self.end_injected(fault as usize),
        }
    }

    // ---- Tables ----

    /// The link between two servers.
    pub(crate) fn link_id(&mut self, from: ServerId, to: ServerId) -> u32 {
        let place = from.index() * self.machines.len() + to.index();
        if self.link_ids[place] == NONE {
            self.link_ids[place] = self.links.len() as u32;
            let mut link = Link::new(from.0, to.0);
            link.taken_from = self.machines[from.index()].incarnation.max(1);
            link.receiver = self.machines[to.index()].incarnation.max(1);
            self.links.push(link);
        }
        self.link_ids[place]
    }

    /// The connection between the clients of a replica and a server.
    pub(crate) fn connection_id(&mut self, process: u16, server: ServerId) -> u32 {
        let place = usize::from(process) * self.machines.len() + server.index();
        if self.connection_ids[place] == NONE {
            self.connection_ids[place] = self.connections.len() as u32;
            let machine = &self.machines[server.index()];
            let up = machine.node.is_some();
            self.connections.push(Connection {
                process,
                server,
                requests: Wire::new(),
                replies: Wire::new(),
                incarnation: machine.incarnation,
                state: if up {
                    ConnectionState::Up
                } else {
                    ConnectionState::Dialling {
                        since_us: self.now_us,
                    }
                },
                generation: 0,
            });
        }
        self.connection_ids[place]
    }

    pub(crate) fn name(&self, id: ServerId) -> String {
        self.topology.member(id).name.clone()
    }

    pub(crate) fn place(&self, id: ServerId) -> Place {
        Place::Server(self.name(id))
    }

    /// Adds to the trace if there is one.
    pub(crate) fn note(&mut self, event: impl FnOnce(&Self) -> TraceEvent) {
        if let Some(mut trace) = self.trace.take() {
            trace.push(event(self));
            self.trace = Some(trace);
        }
    }

    /// The run is no good; nothing moves any more.
    pub(crate) fn fail(&mut self, id: ServerId, kind: FailureKind, text: String) {
        let failure = Failure {
            node: Some(self.name(id)),
            at_us: self.now_us,
            kind,
            text,
        };
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn stop(&mut self, id: ServerId, error: &NodeError) {
        self.fail(
            id,
            FailureKind::Stopped,
            format!("the server stopped: {error}"),
        );
    }
}
