//! Servers at work: what arrives, and what they make of it.

use dkvf_core::{Code, Message, Protocol, ServerId};
use dkvf_workload::faults::Disk;
use rand::RngExt;

use crate::clients::client_id;
use crate::disk::Input;
use crate::link::Envelope;
use crate::machine::Work;
use crate::outputs::{OutputOf, keep_replies};
use crate::queue::Event;
use crate::simulation::{ServerMessageOf, Simulation};
use crate::trace::{Place, TraceEvent};

type InputOf<P> = Input<<P as Protocol>::Metadata>;

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
            self.queue
                .push_numbered(time_us, number, Event::Frame { link });
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
        if self.links[id as usize].broken_promise.is_some()
            || self.links[id as usize].overtaken.is_some()
        {
            return self.break_promise(id, incarnation, envelope);
        }
        self.step(
            to,
            u64::from(envelope.bytes),
            Input::Message {
                from,
                incarnation,
                envelope,
            },
        );
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
        let (from, to, bytes) = (
            ServerId(link.from),
            ServerId(link.to),
            u64::from(envelope.bytes),
        );
        let overtaken = link.overtaken.take();
        let mut happens = |permille: u16| self.promise_random.random_range(0..1_000) < permille;
        let (lost, repeated, reordered) = (
            happens(promise.lose_permille),
            happens(promise.repeat_permille),
            happens(promise.reorder_permille),
        );
        if reordered && overtaken.is_none() {
            self.links[id as usize].overtaken = Some(envelope.message);
            return;
        }
        let times = if lost { 0 } else { 1 + usize::from(repeated) };
        let messages = std::iter::repeat_n(envelope.message, times).chain(overtaken);
        let (number, latest) = (envelope.number, envelope.latest);
        for message in messages.collect::<Vec<_>>() {
            let envelope = Envelope {
                number,
                bytes: envelope.bytes,
                latest,
                message,
            };
            self.step(
                to,
                bytes,
                Input::Message {
                    from,
                    incarnation,
                    envelope,
                },
            );
        }
    }

    pub(crate) fn request_due(&mut self, connection: u32, number: u64) {
        let place = &mut self.connections[connection as usize];
        let Some(next) = place.requests.arrive(number) else {
            return;
        };
        if let Some((time_us, number)) = next {
            self.queue
                .push_numbered(time_us, number, Event::Request { connection });
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
        let bytes = if self.options.cpu.per_byte_ns > 0 {
            frame.body.message.encoded_len() as u64
        } else {
            0
        };
        let message = frame.body.message;
        self.step(
            server,
            bytes,
            Input::Request {
                port,
                client,
                request,
                message,
            },
        );
    }

    // ---- A step ----

    /// Gives a node an input of `bytes` bytes and carries out what it wants.
    pub(crate) fn step(&mut self, id: ServerId, bytes: u64, input: InputOf<P>) {
        let machine = &mut self.machines[id.index()];
        let congested = machine.congested_links > 0;
        if congested != machine.told_congested {
            machine.told_congested = congested;
            self.step(id, 0, Input::Congested(congested));
        }
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
        let result = input
            .apply(node, now)
            .and_then(|()| node.commit().map(|_| ()));
        let outputs = node.take_outputs();
        let done_us = host.cpu.work(
            now_us,
            bytes,
            node.storage_accesses() - accesses,
            outputs.len() as u64,
        );
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
            let Some(node) = &mut machine.node else {
                return;
            };
            let outputs = keep_replies::<P>(node, outputs);
            let now_outputs = journal.hold(outputs);
            if let Some(due_us) = journal.start_sync(self.now_us) {
                let generation = machine.starts;
                self.queue.push(
                    due_us,
                    Event::Synced {
                        node: u32::from(id.0),
                        generation,
                    },
                );
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
            self.queue.push(
                due_us,
                Event::Synced {
                    node: u32::from(id.0),
                    generation,
                },
            );
        }
        self.carry_out_kept(id, self.now_us, outputs);
    }

    /// Puts the node's next tick into the queue unless an earlier one is there.
    pub(crate) fn arm_tick(&mut self, id: ServerId) {
        let machine = &mut self.machines[id.index()];
        let Some(node) = &machine.node else { return };
        let due = node.next_due();
        let clock = &mut self.hosts[machine.host as usize].clock;
        let mut time_us = due
            .monotonic_us
            .map_or(u64::MAX, |due_us| clock.when_monotonic(due_us));
        if let Some(clock_us) = due.clock_us {
            time_us = time_us.min(clock.when_physical(self.now_us, clock_us));
        }
        let time_us = time_us.max(self.now_us);
        if time_us < machine.tick_us {
            machine.tick_us = time_us;
            self.queue.push(
                time_us,
                Event::Tick {
                    node: u32::from(id.0),
                },
            );
        }
    }
}
