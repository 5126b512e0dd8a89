//! Connections that break and come back, of links and of clients; and the sessions that wait behind them.
//!
//! Nobody polls: when a connection can come back, the next attempt of its caller is computed.

use dkvf_core::{Failure, Message, PeerState, Protocol, Reason, ServerId};

use crate::clients::{CLIENT_PAUSE_US, CLIENT_PAUSES_MAX, ConnectionState, Request};
use crate::link::{Connection, UNKNOWN, next_attempt};
use crate::machine::Work;
use crate::outcome::MessageKind;
use crate::queue::Event;
use crate::simulation::Simulation;
use crate::trace::{Place, TraceEvent};

/// Longest pause between two attempts of a server to connect, in first pauses: as on TCP.
const LINK_PAUSES_MAX: u64 = 50;

impl<P: Protocol> Simulation<P> {
    // ---- Links ----

    /// The connection of a link breaks: what was on its way is lost on the wire and stays in the link.
    pub(crate) fn break_link(&mut self, id: u32) {
        let detect_us = self.options.links.detect_us;
        let link = &mut self.links[id as usize];
        link.wire.cut();
        link.generation += 1;
        match link.connection {
            Connection::Up => {
                link.connection = Connection::Broken;
                let generation = link.generation;
                self.queue.push(
                    self.now_us + detect_us,
                    Event::LinkLost {
                        link: id,
                        generation,
                    },
                );
            }
            // The news of it is still to come.
            Connection::Broken => {
                let generation = link.generation;
                self.queue.push(
                    self.now_us + detect_us,
                    Event::LinkLost {
                        link: id,
                        generation,
                    },
                );
            }
            Connection::Dialling { .. } | Connection::Idle => {}
        }
    }

    /// The sender notices, tells its node, and dials.
    pub(crate) fn link_lost(&mut self, id: u32, generation: u32) {
        let link = &mut self.links[id as usize];
        if link.generation != generation || link.connection != Connection::Broken {
            return;
        }
        link.connection = Connection::Dialling {
            since_us: self.now_us,
            first: false,
        };
        let (from, peer) = (link.from, ServerId(link.to));
        self.tell(from, peer, PeerState::Down);
        self.dial(id);
    }

    /// Tells a node about a peer, when its processor gets to it.
    fn tell(&mut self, node: u16, peer: ServerId, state: PeerState) {
        let machine = &self.machines[usize::from(node)];
        if machine.node.is_some() {
            self.arrive(
                machine.host,
                Work::Peer {
                    node: u32::from(node),
                    peer,
                    state,
                },
            );
        }
    }

    /// If the link can be connected, it will be at the sender's next attempt and a round trip later.
    pub(crate) fn dial(&mut self, id: u32) {
        let link = &self.links[id as usize];
        let Connection::Dialling { since_us, first } = link.connection else {
            return;
        };
        let (from, to) = (usize::from(link.from), usize::from(link.to));
        if link.cuts > 0 || self.machines[to].node.is_none() || self.machines[from].node.is_none() {
            return;
        }
        // Who has just started dials at once, who has lost a connection waits first.
        let from_us = if first {
            self.now_us
        } else {
            self.now_us.max(since_us + 1)
        };
        let attempt_us = next_attempt(
            since_us,
            from_us,
            self.options.links.reconnect_us,
            LINK_PAUSES_MAX,
        );
        let (here, there) = (
            usize::from(self.machines[from].replica),
            usize::from(self.machines[to].replica),
        );
        let latency = if here == there {
            &self.options.intra_latency
        } else {
            &self.options.latency
        };
        let round_trip_us = latency.sample(here, there, &mut self.latency_random)
            + latency.sample(there, here, &mut self.latency_random);
        let link = &mut self.links[id as usize];
        link.generation += 1;
        let generation = link.generation;
        self.queue.push(
            attempt_us + round_trip_us,
            Event::LinkUp {
                link: id,
                generation,
            },
        );
    }

    /// Both ends have said hello: who they are, and how far the receiver is.
    pub(crate) fn link_up(&mut self, id: u32, generation: u32) {
        let link = &self.links[id as usize];
        let Connection::Dialling { first, .. } = link.connection else {
            return;
        };
        if link.generation != generation {
            return;
        }
        let (from, to) = (ServerId(link.from), ServerId(link.to));
        // The receiver hears who calls before anything else of it arrives.
        let back = self.link_id(to, from);
        self.meet(back);
        let replaced = self.meet(id);
        let link = &mut self.links[id as usize];
        link.connection = Connection::Up;
        link.append_latest(self.options.links.capacity_bytes);
        if !replaced && !first {
            self.tell(from.0, to, PeerState::Up);
        }
        self.launch(id);
    }

    /// The sender of a link hears of its receiver's incarnation. Returns whether it is a new one: then what was kept
    /// for the old one is dropped, and the node is told.
    fn meet(&mut self, id: u32) -> bool {
        let link = &mut self.links[id as usize];
        let (from, to) = (link.from, link.to);
        let incarnation = self.machines[usize::from(to)].incarnation;
        let known = std::mem::replace(&mut link.receiver, incarnation);
        if known == incarnation || known == UNKNOWN {
            return false;
        }
        self.note_lost(id);
        let dropped = self.links[id as usize].drop_kept();
        self.recovery.dropped += dropped;
        self.note_congestion(id);
        self.tell(from, ServerId(to), PeerState::Replaced);
        // The connection to the old one is gone, too; the news of that would come later.
        let link = &mut self.links[id as usize];
        if link.connection == Connection::Broken {
            link.generation += 1;
            link.connection = Connection::Dialling {
                since_us: self.now_us,
                first: false,
            };
            self.tell(from, ServerId(to), PeerState::Down);
            self.dial(id);
        }
        true
    }

    /// What a link keeps for a receiver that is gone goes into the trace.
    fn note_lost(&mut self, id: u32) {
        if self.trace.is_none() {
            return;
        }
        let link = &self.links[id as usize];
        let (from, to) = (
            self.place(ServerId(link.from)),
            self.place(ServerId(link.to)),
        );
        let lost: Vec<TraceEvent> = link
            .wire
            .frames()
            .map(|frame| TraceEvent::Message {
                from: from.clone(),
                to: to.clone(),
                name: frame.body.message.name().to_owned(),
                sent_us: frame.sent_us,
                delivered_us: None,
            })
            .collect();
        self.trace
            .iter_mut()
            .for_each(|trace| trace.extend_from_slice(&lost));
    }

    // ---- Clients ----

    /// Lets the sessions that are ready go on, and carries out what they ask for.
    pub(crate) fn run_sessions(&mut self) {
        if let Some(executor) = self.executor.clone() {
            self.port.run_ready(&*executor);
        }
        self.carry_out_wishes();
    }

    pub(crate) fn carry_out_wishes(&mut self) {
        let mut wishes = self.port.take_wishes();
        for (session, server, request) in wishes.sent.drain(..) {
            self.send_request(session, server, request);
        }
        for (time_us, session) in wishes.alarms.drain(..) {
            self.queue
                .push(time_us.max(self.now_us), Event::Alarm { session });
        }
        self.port.recycle(wishes);
        if let Some(deadline_us) = self.port.arm_deadline() {
            self.queue
                .push(deadline_us.max(self.now_us), Event::Deadline);
        }
    }

    fn send_request(&mut self, session: u32, server: ServerId, request: u64) {
        let id = self.connection_id(self.port.replica_of(session), server);
        let connection = &self.connections[id as usize];
        let incarnation = match connection.state {
            ConnectionState::Up | ConnectionState::Broken => Some(connection.incarnation),
            ConnectionState::Dialling { .. } => None,
        };
        let is_up = connection.state == ConnectionState::Up;
        if let Some(message) = self.port.message_to_send(session, request, incarnation) {
            self.counts.add(
                MessageKind::Request,
                message.name(),
                message.encoded_len() as u64,
            );
            // What is sent on a broken connection is lost.
            if is_up {
                self.launch_request(
                    id,
                    Request {
                        session,
                        request,
                        message,
                    },
                );
            }
        }
    }

    fn launch_request(&mut self, id: u32, request: Request<P::Metadata>) {
        let connection = &self.connections[id as usize];
        let latency_us = self.client_latency(connection.process, connection.server);
        let requests = &mut self.connections[id as usize].requests;
        requests.push(self.now_us, request);
        let number = self.queue.number();
        if let Some((time_us, number)) = requests.launch(self.now_us + latency_us, number) {
            self.queue
                .push_numbered(time_us, number, Event::Request { connection: id });
        }
    }

    pub(crate) fn reply_due(&mut self, connection: u32, number: u64) {
        let place = &mut self.connections[connection as usize];
        let Some(next) = place.replies.arrive(number) else {
            return;
        };
        if let Some((time_us, number)) = next {
            self.queue
                .push_numbered(time_us, number, Event::Reply { connection });
        }
        let Some(frame) = place.replies.take() else {
            return;
        };
        let server = place.server;
        let reply = frame.body;
        self.deliveries += 1;
        self.note(|simulation| TraceEvent::Message {
            from: simulation.place(server),
            to: Place::Client(reply.session),
            name: reply
                .result
                .as_ref()
                .map_or("error", Message::name)
                .to_owned(),
            sent_us: frame.sent_us,
            delivered_us: Some(simulation.now_us),
        });
        let answer = reply
            .result
            .map_err(|code| Failure::Failed(Reason::Refused(code)));
        self.port.set_now(self.now_us);
        self.port.answer(reply.session, reply.request, answer);
        self.run_sessions();
    }

    /// The server of a client connection has died.
    pub(crate) fn break_connection(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.requests.clear();
        connection.replies.drop_sent_after(self.now_us);
        connection.generation += 1;
        if connection.state == ConnectionState::Up {
            connection.state = ConnectionState::Broken;
        }
        if connection.state == ConnectionState::Broken {
            let generation = connection.generation;
            let time_us = self.now_us + self.options.links.detect_us;
            self.queue.push(
                time_us,
                Event::ConnectionLost {
                    connection: id,
                    generation,
                },
            );
        }
    }

    pub(crate) fn connection_lost(&mut self, id: u32, generation: u32) {
        let connection = &mut self.connections[id as usize];
        if connection.generation == generation && connection.state == ConnectionState::Broken {
            connection.state = ConnectionState::Dialling {
                since_us: self.now_us,
            };
            connection.replies.clear();
            self.dial_server(id);
        }
    }

    /// If the server of a client connection is up, it will be connected at the clients' next attempt.
    pub(crate) fn dial_server(&mut self, id: u32) {
        let connection = &self.connections[id as usize];
        let ConnectionState::Dialling { since_us } = connection.state else {
            return;
        };
        let (process, server) = (connection.process, connection.server);
        if self.machines[server.index()].node.is_none() {
            return;
        }
        let from_us = self.now_us.max(since_us + 1);
        let attempt_us = next_attempt(since_us, from_us, CLIENT_PAUSE_US, CLIENT_PAUSES_MAX);
        let round_trip_us =
            self.client_latency(process, server) + self.client_latency(process, server);
        let connection = &mut self.connections[id as usize];
        connection.generation += 1;
        let generation = connection.generation;
        self.queue.push(
            attempt_us + round_trip_us,
            Event::ConnectionUp {
                connection: id,
                generation,
            },
        );
    }

    pub(crate) fn connection_up(&mut self, id: u32, generation: u32) {
        let connection = &mut self.connections[id as usize];
        let is_dialling = matches!(connection.state, ConnectionState::Dialling { .. });
        if connection.generation != generation || !is_dialling {
            return;
        }
        let (process, server) = (connection.process, connection.server);
        let incarnation = self.machines[server.index()].incarnation;
        connection.state = ConnectionState::Up;
        connection.incarnation = incarnation;
        self.port.set_now(self.now_us);
        for request in self.port.reconnected(process, server, incarnation) {
            self.counts.add(
                MessageKind::Request,
                request.message.name(),
                request.message.encoded_len() as u64,
            );
            self.launch_request(id, request);
        }
        self.run_sessions();
    }
}
