//! Servers at work: what arrives, what they make of it, and where that goes.

use dkvf_core::limits::KEPT_REPLY_BYTES_MAX;
use dkvf_core::{Code, Message, Metadata, Node, NodeError, Output, Protocol, ServerId};
use dkvf_workload::faults::Disk;
use rand::RngExt;

use crate::clients::{ConnectionState, Reply, client_id};
use crate::disk::Input;
use crate::link::{Connection, Envelope};
use crate::measure::Seen;
use crate::outcome::MessageKind;
use crate::queue::Event;
use crate::simulation::{ServerMessageOf, Simulation, Work};
use crate::trace::{Place, TraceEvent};

/// Bytes of a frame beside its message.
const HEADER_BYTES: u32 = 4;

type InputOf<P> = Input<<P as Protocol>::Metadata>;
type OutputOf<P> = Output<<P as Protocol>::Metadata>;

impl<P: Protocol> Simulation<P> {
    // ---- The processor ----

    /// Something has arrived at a host. It is done now, or when the processor has done all that came before.
    pub(crate) fn arrive(&mut self, host: u32, work: Work) {
        let now_us = self.now_us;
        let place = &mut self.hosts[host as usize];
        if place.pauses == 0 && place.inbox.is_empty() && place.cpu.is_idle(now_us) {
            return self.perform(work);
        }
        place.inbox.push_back(work);
        self.arm_work(host);
    }

    pub(crate) fn arm_work(&mut self, host: u32) {
        let place = &mut self.hosts[host as usize];
        if place.pauses == 0 && !place.work_armed && !place.inbox.is_empty() {
            place.work_armed = true;
            let time_us = place.cpu.idle_at_us().max(self.now_us);
            self.queue.push(time_us, Event::Work { host });
        }
    }

    pub(crate) fn go_on(&mut self, host: u32) {
        self.hosts[host as usize].work_armed = false;
        while self.failure.is_none() {
            let place = &mut self.hosts[host as usize];
            if place.pauses > 0 || !place.cpu.is_idle(self.now_us) {
                break;
            }
            let Some(work) = place.inbox.pop_front() else {
                return;
            };
            self.perform(work);
        }
        self.arm_work(host);
    }

    fn perform(&mut self, work: Work) {
        if !matches!(work, Work::Synced { .. }) && self.stops_for_full_disk(self.node_of(work)) {
            return;
        }
        match work {
            Work::Frame { link } => self.take_frame(link),
            Work::Request { connection } => self.take_request(connection),
            Work::Tick { node } => self.step(ServerId(node as u16), 0, Input::Tick),
            Work::Peer { node, peer, state } => {
                let id = ServerId(node as u16);
                self.note(|simulation| TraceEvent::Peer {
                    node: simulation.name(id),
                    peer: simulation.name(peer),
                    state: format!("{state:?}").to_lowercase(),
                    at_us: simulation.now_us,
                });
                self.step(id, 0, Input::Peer { peer, state });
            }
            Work::Synced { node } => self.release_synced(ServerId(node as u16)),
        }
    }

    fn node_of(&self, work: Work) -> usize {
        match work {
            Work::Frame { link } => usize::from(self.links[link as usize].to),
            Work::Request { connection } => self.connections[connection as usize].server.index(),
            Work::Tick { node } | Work::Peer { node, .. } | Work::Synced { node } => node as usize,
        }
    }

    /// Every input is written down before it is taken. A server that cannot do that stops.
    fn stops_for_full_disk(&mut self, node: usize) -> bool {
        let machine = &mut self.machines[node];
        let stops = machine.disk_full && machine.journal.is_some();
        if stops {
            machine.stopped_by_disk = true;
            let host = machine.host;
            self.crash_host(host, Disk::Kept);
        }
        stops
    }

    pub(crate) fn tick_due(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        // An earlier tick has taken its place, or the node is down.
        if machine.tick_us != self.now_us || machine.node.is_none() {
            return;
        }
        machine.tick_us = u64::MAX;
        let host = machine.host;
        self.arrive(host, Work::Tick { node });
    }

    // ---- What arrives ----

    pub(crate) fn frame_due(&mut self, link: u32, number: u64) {
        let place = &mut self.links[link as usize];
        if place.holds > 0 {
            return place.wire.hold_back(number);
        }
        let Some(next) = place.wire.arrive(number) else {
            return;
        };
        if let Some((time_us, number)) = next {
            self.queue.push_numbered(time_us, number, Event::Frame { link });
        }
        let host = self.machines[usize::from(place.to)].host;
        self.arrive(host, Work::Frame { link });
    }

    fn take_frame(&mut self, id: u32) {
        let link = &mut self.links[id as usize];
        let Some((sent_us, envelope)) = link.take() else {
            return;
        };
        let (from, to, incarnation) = (ServerId(link.from), ServerId(link.to), link.taken_from);
        if link.congested {
            self.note_congestion(id);
        }
        self.deliveries += 1;
        if self.trace.is_some() {
            self.note_message(from, to, envelope.message.name(), sent_us);
        }
        if self.links[id as usize].broken_promise.is_some() || self.links[id as usize].overtaken.is_some() {
            return self.break_promise(id, incarnation, envelope);
        }
        self.step(to, u64::from(envelope.bytes), Input::Message { from, incarnation, envelope });
    }

    fn note_message(&mut self, from: ServerId, to: ServerId, name: &'static str, sent_us: u64) {
        self.note(|simulation| TraceEvent::Message {
            from: simulation.place(from),
            to: simulation.place(to),
            name: name.to_owned(),
            sent_us,
            delivered_us: Some(simulation.now_us),
        });
    }

    /// Loses, repeats or holds back what a link of a broken promise delivers.
    fn break_promise(&mut self, id: u32, incarnation: u32, envelope: Envelope<ServerMessageOf<P>>) {
        let link = &mut self.links[id as usize];
        let promise = link.broken_promise.unwrap_or_default();
        let (from, to, bytes) = (ServerId(link.from), ServerId(link.to), u64::from(envelope.bytes));
        let overtaken = link.overtaken.take();
        let mut happens = |permille: u16| self.promise_random.random_range(0..1_000) < permille;
        let (lost, repeated, reordered) =
            (happens(promise.lose_permille), happens(promise.repeat_permille), happens(promise.reorder_permille));
        if reordered && overtaken.is_none() {
            self.links[id as usize].overtaken = Some(envelope.message);
            return;
        }
        let times = if lost { 0 } else { 1 + usize::from(repeated) };
        let messages = std::iter::repeat_n(envelope.message, times).chain(overtaken);
        let (number, latest) = (envelope.number, envelope.latest);
        for message in messages.collect::<Vec<_>>() {
            let envelope = Envelope { number, bytes: envelope.bytes, latest, message };
            self.step(to, bytes, Input::Message { from, incarnation, envelope });
        }
    }

    pub(crate) fn request_due(&mut self, connection: u32, number: u64) {
        let place = &mut self.connections[connection as usize];
        let Some(next) = place.requests.arrive(number) else {
            return;
        };
        if let Some((time_us, number)) = next {
            self.queue.push_numbered(time_us, number, Event::Request { connection });
        }
        let host = self.machines[place.server.index()].host;
        self.arrive(host, Work::Request { connection });
    }

    fn take_request(&mut self, connection: u32) {
        let place = &mut self.connections[connection as usize];
        let Some(frame) = place.requests.take() else {
            return;
        };
        let (port, server) = (u32::from(place.process), place.server);
        let client = client_id(place.process, frame.body.session);
        self.deliveries += 1;
        self.note(|simulation| TraceEvent::Message {
            from: Place::Client(frame.body.session),
            to: simulation.place(server),
            name: frame.body.message.name().to_owned(),
            sent_us: frame.sent_us,
            delivered_us: Some(simulation.now_us),
        });
        let request = frame.body.request;
        let machine = &mut self.machines[server.index()];
        if machine.congested_links > 0
            && let Some(node) = &mut machine.node
            && node.is_new_request(client, request)
        {
            // A request that was taken before is not refused: that would say that it had no effect.
            node.refuse_unhandled(port, client, request, Code::Overloaded);
            let outputs = node.take_outputs();
            return self.carry_out(server, self.now_us, outputs);
        }
        let bytes = if self.options.cpu.per_byte_ns > 0 { frame.body.message.encoded_len() as u64 } else { 0 };
        let message = frame.body.message;
        self.step(server, bytes, Input::Request { port, client, request, message });
    }

    // ---- A step ----

    /// Gives a node an input of `bytes` bytes and carries out what it wants.
    pub(crate) fn step(&mut self, id: ServerId, bytes: u64, input: InputOf<P>) {
        let machine = &mut self.machines[id.index()];
        let congested = machine.congested_links > 0;
        if congested != machine.told_congested {
            machine.told_congested = congested;
            self.step_once(id, 0, Input::Congested(congested));
        }
        self.step_once(id, bytes, input);
    }

    fn step_once(&mut self, id: ServerId, bytes: u64, input: InputOf<P>) {
        let now_us = self.now_us;
        let machine = &mut self.machines[id.index()];
        let Some(node) = &mut machine.node else {
            return;
        };
        let host = &mut self.hosts[machine.host as usize];
        let now = host.clock.read(now_us);
        machine.clock_max_us = machine.clock_max_us.max(now.clock_us);
        if let Some(journal) = &mut machine.journal {
            journal.append(now, input.clone());
        }
        let accesses = node.storage_accesses();
        let result = input.apply(node, now).and_then(|()| node.commit().map(|_| ()));
        let outputs = node.take_outputs();
        let done_us = host.cpu.work(now_us, bytes, node.storage_accesses() - accesses, outputs.len() as u64);
        if let Some(journal) = &mut machine.journal
            && journal.wants_fingerprint()
        {
            journal.note_fingerprint(node.fingerprint());
        }
        if let Err(error) = result {
            return self.stop(id, &error);
        }
        self.after_step(id, done_us, outputs);
    }

    /// Carries out the outputs of a step, or has them wait for the disk.
    pub(crate) fn after_step(&mut self, id: ServerId, done_us: u64, outputs: Vec<OutputOf<P>>) {
        let machine = &mut self.machines[id.index()];
        if let Some(journal) = &mut machine.journal {
            let Some(node) = &mut machine.node else { return };
            let outputs = keep_replies::<P>(node, outputs);
            let now_outputs = journal.hold(outputs);
            if let Some(due_us) = journal.start_sync(self.now_us) {
                let generation = machine.starts;
                self.queue.push(due_us, Event::Synced { node: u32::from(id.0), generation });
            }
            if let Some(outputs) = now_outputs {
                self.carry_out_kept(id, done_us, outputs);
            }
        } else {
            self.carry_out(id, done_us, outputs);
        }
        self.arm_tick(id);
    }

    pub(crate) fn disk_ready(&mut self, node: u32, generation: u32) {
        let machine = &self.machines[node as usize];
        if machine.starts == generation && machine.node.is_some() {
            self.arrive(machine.host, Work::Synced { node });
        }
    }

    fn release_synced(&mut self, id: ServerId) {
        let machine = &mut self.machines[id.index()];
        let generation = machine.starts;
        let Some(journal) = &mut machine.journal else {
            return;
        };
        let (outputs, due_us) = journal.synced(self.now_us);
        if let Some(due_us) = due_us {
            self.queue.push(due_us, Event::Synced { node: u32::from(id.0), generation });
        }
        self.carry_out_kept(id, self.now_us, outputs);
    }

    /// Puts the node's next tick into the queue unless an earlier one is there.
    pub(crate) fn arm_tick(&mut self, id: ServerId) {
        let machine = &mut self.machines[id.index()];
        let Some(node) = &machine.node else { return };
        let due = node.next_due();
        let clock = &mut self.hosts[machine.host as usize].clock;
        let mut time_us = due.monotonic_us.map_or(u64::MAX, |due_us| clock.when_monotonic(due_us));
        if let Some(clock_us) = due.clock_us {
            time_us = time_us.min(clock.when_physical(self.now_us, clock_us));
        }
        let time_us = time_us.max(self.now_us);
        if time_us < machine.tick_us {
            machine.tick_us = time_us;
            self.queue.push(time_us, Event::Tick { node: u32::from(id.0) });
        }
    }

    // ---- What follows ----

    /// Carries out outputs that leave at `done_us`, keeping replies in the node.
    pub(crate) fn carry_out(&mut self, id: ServerId, done_us: u64, mut outputs: Vec<OutputOf<P>>) {
        for output in outputs.drain(..) {
            if let Output::Reply { port, client, request, slot, result } = output {
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
            if let Output::Reply { port, client, request, result, .. } = output {
                self.reply(id, done_us, port, client.session(), request, result);
            } else {
                self.route(id, done_us, output);
            }
        }
    }

    fn route(&mut self, from: ServerId, done_us: u64, output: OutputOf<P>) {
        match output {
            Output::Send { to, message, latest } => self.send(from, to, done_us, message, latest),
            Output::Broadcast { mut to, message, latest } => {
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

    fn send(&mut self, from: ServerId, to: ServerId, done_us: u64, message: ServerMessageOf<P>, latest: bool) {
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
        let kind = if latest { MessageKind::Periodic } else { MessageKind::Server };
        self.counts.add(kind, message.name(), u64::from(bytes));
        let max = 2 * self.options.links.message_bytes_max;
        if u64::from(bytes) > max {
            let error = NodeError::MessageTooLong { peer: self.name(to), bytes: bytes as usize, max: max as usize };
            return self.stop(from, &error);
        }
        let id = self.link_id(from, to);
        let capacity = self.options.links.capacity_bytes;
        let link = &mut self.links[id as usize];
        let bytes = bytes + HEADER_BYTES;
        if latest {
            let backed_up =
                link.connection != Connection::Up || link.transmitting_until_ns > done_us.saturating_mul(1_000);
            link.push_latest(done_us, bytes, message, capacity, backed_up);
            if backed_up && link.connection == Connection::Up && !link.transmit_armed {
                link.transmit_armed = true;
                let time_us = link.transmitting_until_ns.div_ceil(1_000).max(self.now_us);
                self.queue.push(time_us, Event::Transmit { link: id });
            }
        } else if !link.push(done_us, bytes, message, capacity) {
            let error = NodeError::LinkFull { peer: self.name(to), capacity: capacity as usize };
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
        let latency = if from == to { &self.options.intra_latency } else { &self.options.latency };
        while let Some(frame) = link.wire.waiting() {
            let mut leaves_us = frame.sent_us.max(self.now_us);
            if let Some(bandwidth) = self.options.bandwidth_bytes_s {
                let begin_ns = link.transmitting_until_ns.max(leaves_us * 1_000);
                link.transmitting_until_ns = begin_ns + u64::from(frame.body.bytes) * 1_000_000_000 / bandwidth;
                leaves_us = link.transmitting_until_ns.div_ceil(1_000);
            }
            let mut latency_us = latency.sample(from, to, &mut self.latency_random);
            for (delay_us, jitter_us) in &link.delays {
                latency_us += delay_us + self.latency_random.random_range(0..=*jitter_us);
            }
            let number = self.queue.number();
            if let Some((time_us, number)) = link.wire.launch(leaves_us + latency_us, number) {
                self.queue.push_numbered(time_us, number, Event::Frame { link: id });
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
            if machine.congested_links == 0 && machine.node.is_some() && machine.tick_us > self.now_us {
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
        let Ok(process) = u16::try_from(port) else { return };
        let (name, bytes) = result.as_ref().map_or(("error", 1), |reply| (reply.name(), reply.encoded_len() as u64));
        self.counts.add(MessageKind::Reply, name, bytes);
        let id = self.connection_id(process, server);
        let latency_us = self.client_latency(process, server);
        let connection = &mut self.connections[id as usize];
        // A client that is not there asks again, and is given the reply that the node has kept.
        if connection.state != ConnectionState::Up {
            return;
        }
        connection.replies.push(done_us, Reply { session, request, result });
        let number = self.queue.number();
        if let Some((time_us, number)) = connection.replies.launch(done_us + latency_us, number) {
            self.queue.push_numbered(time_us, number, Event::Reply { connection: id });
        }
    }

    pub(crate) fn client_latency(&mut self, process: u16, server: ServerId) -> u64 {
        let (from, to) = (usize::from(process), usize::from(self.machines[server.index()].replica));
        let latency = if from == to { &self.options.intra_latency } else { &self.options.latency };
        latency.sample(from, to, &mut self.client_random)
    }

    // ---- Measuring ----

    /// Collects what became visible at a node.
    pub(crate) fn collect_visibility(&mut self, id: ServerId) {
        let machine = &mut self.machines[id.index()];
        let Some(node) = &mut machine.node else { return };
        let clock = &self.hosts[machine.host as usize].clock;
        self.seen.extend(node.take_visibility().into_iter().map(|sample| Seen {
            version: sample.version,
            replica: machine.replica,
            visible_us: clock.when_monotonic(sample.visible_us),
        }));
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
pub(crate) fn keep_replies<P: Protocol>(node: &mut NodeOf<P>, outputs: Vec<OutputOf<P>>) -> Vec<OutputOf<P>> {
    for output in &outputs {
        if let Output::Reply { slot, request, result, .. } = output {
            keep_reply::<P>(node, *slot, *request, result);
        }
    }
    outputs
}
