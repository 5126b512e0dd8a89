//! What follows from a step of a server: replies, and messages to other servers on their links.

use dkvf_core::limits::KEPT_REPLY_BYTES_MAX;
use dkvf_core::{Code, Message, Metadata, Node, NodeError, Output, Protocol, ServerId};
use rand::RngExt;

use crate::clients::{ConnectionState, Reply};
use crate::link::Connection;
use crate::outcome::MessageKind;
use crate::queue::Event;
use crate::simulation::{ServerMessageOf, Simulation};

/// Bytes of a frame beside its message.
const HEADER_BYTES: u32 = 4;

pub(crate) type OutputOf<P> = Output<<P as Protocol>::Metadata>;

impl<P: Protocol> Simulation<P> {
    /// Carries out outputs that leave at `done_us`, keeping replies in the node.
    pub(crate) fn carry_out(&mut self, id: ServerId, done_us: u64, mut outputs: Vec<OutputOf<P>>) {
        for output in outputs.drain(..) {
            if let Output::Reply {
                port,
                client,
                request,
                slot,
                result,
            } = output
            {
                let machine = &mut self.machines[id.index()];
                if let Some(node) = &mut machine.node {
                    keep_reply::<P>(node, slot, request, &result);
                }
                self.reply(id, done_us, port, client.session(), request, result);
            } else {
                self.route(id, done_us, output);
            }
        }
        if let Some(node) = &mut self.machines[id.index()].node {
            node.recycle(outputs);
        }
    }

    /// Carries out outputs whose replies the node has kept.
    pub(crate) fn carry_out_kept(&mut self, id: ServerId, done_us: u64, outputs: Vec<OutputOf<P>>) {
        for output in outputs {
            if let Output::Reply {
                port,
                client,
                request,
                result,
                ..
            } = output
            {
                self.reply(id, done_us, port, client.session(), request, result);
            } else {
                self.route(id, done_us, output);
            }
        }
    }

    fn route(&mut self, from: ServerId, done_us: u64, output: OutputOf<P>) {
        match output {
            Output::Send {
                to,
                message,
                latest,
            } => self.send(from, to, done_us, message, latest),
            Output::Broadcast {
                mut to,
                message,
                latest,
            } => {
                let bytes = message.encoded_len() as u32;
                // The last receiver gets the message itself.
                let last = to.len().saturating_sub(1);
                for to in to.by_ref().take(last) {
                    self.send_sized(from, to, done_us, message.clone(), bytes, latest);
                }
                if let Some(to) = to.next() {
                    self.send_sized(from, to, done_us, message, bytes, latest);
                }
            }
            Output::Reply { .. } => unreachable!("invariant: replies are sent by their own way"),
        }
    }

    fn send(
        &mut self,
        from: ServerId,
        to: ServerId,
        done_us: u64,
        message: ServerMessageOf<P>,
        latest: bool,
    ) {
        let bytes = message.encoded_len() as u32;
        self.send_sized(from, to, done_us, message, bytes, latest);
    }

    fn send_sized(
        &mut self,
        from: ServerId,
        to: ServerId,
        done_us: u64,
        message: ServerMessageOf<P>,
        bytes: u32,
        latest: bool,
    ) {
        let kind = if latest {
            MessageKind::Periodic
        } else {
            MessageKind::Server
        };
        self.counts.add(kind, message.name(), u64::from(bytes));
        let max = 2 * self.options.links.message_bytes_max;
        if u64::from(bytes) > max {
            let error = NodeError::MessageTooLong {
                peer: self.name(to),
                bytes: bytes as usize,
                max: max as usize,
            };
            return self.stop(from, &error);
        }
        let id = self.link_id(from, to);
        let capacity = self.options.links.capacity_bytes;
        let link = &mut self.links[id as usize];
        let bytes = bytes + HEADER_BYTES;
        if latest {
            let backed_up = link.connection != Connection::Up
                || link.transmitting_until_ns > done_us.saturating_mul(1_000);
            link.push_latest(done_us, bytes, message, capacity, backed_up);
            if backed_up && link.connection == Connection::Up && !link.transmit_armed {
                link.transmit_armed = true;
                let time_us = link.transmitting_until_ns.div_ceil(1_000).max(self.now_us);
                self.queue.push(time_us, Event::Transmit { link: id });
            }
        } else if !link.push(done_us, bytes, message, capacity) {
            let error = NodeError::LinkFull {
                peer: self.name(to),
                capacity: capacity as usize,
            };
            return self.stop(from, &error);
        }
        let congested = self.links[id as usize].is_congested(capacity);
        if congested != self.links[id as usize].congested {
            self.note_congestion(id);
        }
        self.launch(id);
    }

    /// The transmitter of a link is free: a heartbeat may have waited for it.
    pub(crate) fn can_transmit(&mut self, id: u32) {
        let link = &mut self.links[id as usize];
        link.transmit_armed = false;
        link.append_latest(self.options.links.capacity_bytes);
        self.launch(id);
    }

    /// Sends what waits on a link, if it is connected.
    pub(crate) fn launch(&mut self, id: u32) {
        let link = &mut self.links[id as usize];
        if link.connection != Connection::Up {
            return;
        }
        let from = usize::from(self.machines[usize::from(link.from)].replica);
        let to = usize::from(self.machines[usize::from(link.to)].replica);
        let latency = if from == to {
            &self.options.intra_latency
        } else {
            &self.options.latency
        };
        while let Some(frame) = link.wire.waiting() {
            let mut leaves_us = frame.sent_us.max(self.now_us);
            if let Some(bandwidth) = self.options.bandwidth_bytes_s {
                let begin_ns = link.transmitting_until_ns.max(leaves_us * 1_000);
                link.transmitting_until_ns =
                    begin_ns + u64::from(frame.body.bytes) * 1_000_000_000 / bandwidth;
                leaves_us = link.transmitting_until_ns.div_ceil(1_000);
            }
            let mut latency_us = latency.sample(from, to, &mut self.latency_random);
            for (delay_us, jitter_us) in &link.delays {
                latency_us += delay_us + self.latency_random.random_range(0..=*jitter_us);
            }
            let number = self.queue.number();
            if let Some((time_us, number)) = link.wire.launch(leaves_us + latency_us, number) {
                self.queue
                    .push_numbered(time_us, number, Event::Frame { link: id });
            }
        }
    }

    /// A link has become congested, or no longer is. When the last one is free again, what was held back goes on.
    pub(crate) fn note_congestion(&mut self, id: u32) {
        let link = &mut self.links[id as usize];
        let congested = link.is_congested(self.options.links.capacity_bytes);
        if congested == link.congested {
            return;
        }
        link.congested = congested;
        let node = u32::from(link.from);
        let machine = &mut self.machines[node as usize];
        if congested {
            machine.congested_links += 1;
        } else {
            machine.congested_links -= 1;
            if machine.congested_links == 0
                && machine.node.is_some()
                && machine.tick_us > self.now_us
            {
                machine.tick_us = self.now_us;
                self.queue.push(self.now_us, Event::Tick { node });
            }
        }
    }

    fn reply(
        &mut self,
        server: ServerId,
        done_us: u64,
        port: u32,
        session: u32,
        request: u64,
        result: ReplyResult<P>,
    ) {
        // The connection broke while the request was parked: its node knows no way to the session any more.
        let Ok(process) = u16::try_from(port) else {
            return;
        };
        let (name, bytes) = result.as_ref().map_or(("error", 1), |reply| {
            (reply.name(), reply.encoded_len() as u64)
        });
        self.counts.add(MessageKind::Reply, name, bytes);
        let id = self.connection_id(process, server);
        let latency_us = self.client_latency(process, server);
        let connection = &mut self.connections[id as usize];
        // A client that is not there asks again, and is given the reply that the node has kept.
        if connection.state != ConnectionState::Up {
            return;
        }
        connection.replies.push(
            done_us,
            Reply {
                session,
                request,
                result,
            },
        );
        let number = self.queue.number();
        if let Some((time_us, number)) = connection.replies.launch(done_us + latency_us, number) {
            self.queue
                .push_numbered(time_us, number, Event::Reply { connection: id });
        }
    }

    pub(crate) fn client_latency(&mut self, process: u16, server: ServerId) -> u64 {
        let (from, to) = (
            usize::from(process),
            usize::from(self.machines[server.index()].replica),
        );
        let latency = if from == to {
            &self.options.intra_latency
        } else {
            &self.options.latency
        };
        latency.sample(from, to, &mut self.client_random)
    }
}

type NodeOf<P> = Node<<P as Protocol>::Server>;
type ReplyResult<P> = Result<<<P as Protocol>::Metadata as Metadata>::ClientReply, Code>;

/// Keeps a reply in the node for a repetition of its request, unless it is too long for that.
fn keep_reply<P: Protocol>(node: &mut NodeOf<P>, slot: u32, request: u64, result: &ReplyResult<P>) {
    let bytes = result.as_ref().map_or(0, Message::encoded_len);
    if bytes <= KEPT_REPLY_BYTES_MAX {
        node.keep_reply(slot, request, result.clone());
    } else {
        node.forget_reply(slot, request);
    }
}

/// Bytes that a message takes on a link.
pub(crate) fn frame_bytes(message: &impl Message) -> u32 {
    message.encoded_len() as u32 + HEADER_BYTES
}

/// Keeps the replies among outputs.
pub(crate) fn keep_replies<P: Protocol>(
    node: &mut NodeOf<P>,
    outputs: Vec<OutputOf<P>>,
) -> Vec<OutputOf<P>> {
    for output in &outputs {
        if let Output::Reply {
            slot,
            request,
            result,
            ..
        } = output
        {
            keep_reply::<P>(node, *slot, *request, result);
        }
    }
    outputs
}
