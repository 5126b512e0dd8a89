//! Crashes, and what comes back.

use std::collections::BTreeSet;

use dkvf_core::{Metadata, Node, NodeError, Now, Output, PeerState, Protocol, ServerId};
use dkvf_workload::faults::Disk;

use crate::disk::{Entry, Input, Journal, Lost};
use crate::link::{Connection, Envelope, FORGOTTEN, UNKNOWN};
use crate::outcome::FailureKind;
use crate::outputs::{frame_bytes, keep_replies};
use crate::simulation::{ServerMessageOf, Simulation};
use crate::trace::TraceEvent;

impl<P: Protocol> Simulation<P> {
    /// Starts a server that has nothing, as a new incarnation.
    ///
    /// # Errors
    /// The protocol refuses its properties.
    pub(crate) fn start_empty(&mut self, id: ServerId) -> anyhow::Result<()> {
        let now = self.clock_of(id);
        let incarnation = self.machines[id.index()].incarnation + 1;
        let mut node = self.new_node(id, incarnation, now)?;
        let outputs = node.take_outputs();
        let machine = &mut self.machines[id.index()];
        machine.incarnation = incarnation;
        machine.journal = Journal::new(
            self.options.durability,
            self.options.disk,
            now,
            self.options.strict,
        );
        self.put_in_service(id, node);
        self.after_step(id, self.now_us, outputs);
        Ok(())
    }

    fn put_in_service(&mut self, id: ServerId, node: Node<P::Server>) {
        let machine = &mut self.machines[id.index()];
        machine.node = Some(node);
        machine.starts += 1;
        machine.tick_us = u64::MAX;
        machine.told_congested = false;
        machine.stopped_by_disk = false;
    }

    pub(crate) fn clock_of(&mut self, id: ServerId) -> Now {
        let host = self.machines[id.index()].host;
        self.hosts[host as usize].clock.read(self.now_us)
    }

    // ---- Crash ----

    /// A host stops at once, with all servers on it.
    pub(crate) fn crash_host(&mut self, host: u32, disk: Disk) {
        self.hosts[host as usize].inbox.clear();
        self.hosts[host as usize].cpu.reset();
        for node in self.hosts[host as usize].nodes.clone() {
            self.crash(ServerId(node as u16), disk);
        }
    }

    fn crash(&mut self, id: ServerId, disk: Disk) {
        if self.machines[id.index()].node.is_none() {
            return;
        }
        self.recovery.crashes += 1;
        self.note(|simulation| TraceEvent::Crash {
            node: simulation.name(id),
            at_us: simulation.now_us,
        });
        self.collect_visibility(id);
        self.machines[id.index()].node = None;
        for other in self.topology.ids().filter(|other| *other != id) {
            let incoming = self.link_id(other, id);
            self.break_link(incoming);
            let outgoing = self.link_id(id, other);
            self.silence(outgoing);
        }
        for connection in 0..self.connections.len() as u32 {
            if self.connections[connection as usize].server == id {
                self.break_connection(connection);
            }
        }
        self.lose_journal(id, disk);
    }

    /// The sender of a link is dead. What has left it still arrives; its log is gone.
    fn silence(&mut self, id: u32) {
        let now_us = self.now_us;
        let link = &mut self.links[id as usize];
        link.wire.drop_sent_after(now_us);
        link.generation += 1;
        link.connection = Connection::Idle;
    }

    /// What was not stable is lost as far as chance has it; messages of other servers are given back to them.
    fn lose_journal(&mut self, id: ServerId, disk: Disk) {
        let machine = &mut self.machines[id.index()];
        if disk == Disk::Empty {
            machine.journal = None;
        }
        let Some(journal) = &mut machine.journal else {
            return;
        };
        let Lost { entries, torn } = journal.crash(disk, &mut self.disk_random);
        self.recovery.lost += entries.len() as u64;
        self.recovery.torn += u64::from(torn);
        for Entry { input, .. } in entries.into_iter().rev() {
            match input {
                Input::Message {
                    from,
                    incarnation,
                    envelope,
                } => self.give_back(id, from, incarnation, envelope),
                // The node has to be told again.
                Input::Peer {
                    peer,
                    state: PeerState::Replaced,
                } => {
                    let link = self.link_id(id, peer);
                    self.links[link as usize].receiver = FORGOTTEN;
                }
                _ => {}
            }
        }
    }

    fn give_back(
        &mut self,
        id: ServerId,
        from: ServerId,
        incarnation: u32,
        envelope: Envelope<ServerMessageOf<P>>,
    ) {
        let link = self.link_id(from, id);
        let place = &mut self.links[link as usize];
        // Messages of an incarnation that is gone are gone with it.
        if place.taken_from != incarnation {
            return;
        }
        place.taken = envelope.number - 1;
        // A sender that is down has lost its log; its own journal will give it back.
        if self.machines[from.index()].node.is_some()
            && self.machines[from.index()].incarnation == incarnation
        {
            self.links[link as usize].give_back(self.now_us, envelope);
            self.note_congestion(link);
        }
    }

    // ---- Restart ----

    /// A host starts again, with all servers on it that are down. A server that cannot is a failure of the run.
    pub(crate) fn restart_host(&mut self, host: u32) {
        for node in self.hosts[host as usize].nodes.clone() {
            let id = ServerId(node as u16);
            if self.machines[id.index()].node.is_none() {
                self.restart(id);
            }
        }
    }

    fn restart(&mut self, id: ServerId) {
        let recovered = self.machines[id.index()].journal.is_some();
        self.note(|simulation| TraceEvent::Restart {
            node: simulation.name(id),
            at_us: simulation.now_us,
            recovered,
        });
        for other in self.topology.ids().filter(|other| *other != id) {
            let outgoing = self.link_id(id, other);
            let link = &mut self.links[outgoing as usize];
            link.drop_kept();
            link.emitted = 0;
            link.overtaken = None;
            link.connection = Connection::Dialling {
                since_us: self.now_us,
                first: true,
            };
            self.note_congestion(outgoing);
        }
        let started = if recovered {
            self.recover(id)
        } else {
            self.replace(id)
        };
        if let Err(error) = started {
            return self.fail(
                id,
                FailureKind::Stopped,
                format!("the server does not start again: {error:#}"),
            );
        }
        for other in self.topology.ids().filter(|other| *other != id) {
            let (outgoing, incoming) = (self.link_id(id, other), self.link_id(other, id));
            self.dial(outgoing);
            self.dial(incoming);
        }
        for connection in 0..self.connections.len() as u32 {
            if self.connections[connection as usize].server == id {
                self.dial_server(connection);
            }
        }
    }

    /// An empty server takes the place of the former one. Peers learn it when one of them reaches the other.
    fn replace(&mut self, id: ServerId) -> anyhow::Result<()> {
        self.recovery.replaced += 1;
        let incarnation = self.machines[id.index()].incarnation + 1;
        for other in self.topology.ids().filter(|other| *other != id) {
            let (outgoing, incoming) = (self.link_id(id, other), self.link_id(other, id));
            let link = &mut self.links[outgoing as usize];
            (link.taken, link.taken_from, link.receiver) = (0, incarnation, UNKNOWN);
            self.links[incoming as usize].taken = 0;
        }
        self.start_empty(id)
    }

    /// A fresh node is given all that the journal has, and so comes to the state it had.
    fn recover(&mut self, id: ServerId) -> anyhow::Result<()> {
        let Some(journal) = self.machines[id.index()].journal.take() else {
            return Ok(());
        };
        let mut node = self.new_node(id, self.machines[id.index()].incarnation, journal.started)?;
        let outputs = node.take_outputs();
        self.emit_again(id, &mut node, outputs);
        for (position, entry) in journal.entries.iter().enumerate() {
            self.replay(id, &mut node, entry)?;
            if entry
                .fingerprint
                .is_some_and(|fingerprint| fingerprint != node.fingerprint())
            {
                let text = format!(
                    "input {position} of the journal leads to another state than before the crash"
                );
                self.fail(id, FailureKind::Replay, text);
                return Ok(());
            }
        }
        // What became visible before the crash was collected then.
        node.take_visibility();
        self.recovery.recovered += 1;
        self.recovery.replayed += journal.entries.len() as u64;
        let down = peers_down(&journal);
        self.machines[id.index()].journal = Some(journal);
        self.put_in_service(id, node);
        for peer in down {
            let link = self.link_id(id, peer);
            self.links[link as usize].connection = Connection::Dialling {
                since_us: self.now_us,
                first: false,
            };
        }
        self.after_recovery(id);
        Ok(())
    }

    fn replay(
        &mut self,
        id: ServerId,
        node: &mut Node<P::Server>,
        entry: &Entry<P::Metadata>,
    ) -> anyhow::Result<()> {
        match &entry.input {
            // What was sent before was for the peer's former incarnation.
            Input::Peer {
                peer,
                state: PeerState::Replaced,
            } => {
                let link = self.link_id(id, *peer);
                self.links[link as usize].drop_kept();
            }
            Input::Skip { to, number } => {
                let link = self.link_id(id, *to);
                let link = &mut self.links[link as usize];
                link.emitted = link.emitted.max(*number);
            }
            _ => {}
        }
        entry.input.clone().apply(node, entry.now)?;
        node.commit()?;
        let outputs = node.take_outputs();
        self.emit_again(id, node, outputs);
        Ok(())
    }

    /// What a node wants when its inputs are replayed. Replies are kept, for clients ask again; messages that their
    /// receiver has taken are done with, and the others are in the links again.
    fn emit_again(
        &mut self,
        id: ServerId,
        node: &mut Node<P::Server>,
        outputs: Vec<Output<P::Metadata>>,
    ) {
        for output in keep_replies::<P>(node, outputs) {
            match output {
                Output::Send {
                    to,
                    message,
                    latest,
                } => self.send_again(id, to, message, latest),
                Output::Broadcast {
                    to,
                    message,
                    latest,
                } => {
                    to.for_each(|to| self.send_again(id, to, message.clone(), latest));
                }
                Output::Reply { .. } => {}
            }
        }
    }

    fn send_again(
        &mut self,
        from: ServerId,
        to: ServerId,
        message: ServerMessageOf<P>,
        latest: bool,
    ) {
        let (now_us, capacity) = (self.now_us, self.options.links.capacity_bytes);
        let id = self.link_id(from, to);
        let link = &mut self.links[id as usize];
        if link.emitted < link.taken {
            link.emitted += 1;
            return;
        }
        let bytes = frame_bytes(&message);
        if latest {
            link.push_latest(now_us, bytes, message, capacity, true);
        } else if !link.push(now_us, bytes, message, capacity) {
            let error = NodeError::LinkFull {
                peer: self.name(to),
                capacity: capacity as usize,
            };
            return self.stop(from, &error);
        }
        self.note_congestion(id);
    }

    /// What the outside knows and the recovered node does not: its clients' connections are gone, and, where replies
    /// and messages did not wait for the disk, peers may have taken more than it remembers to have sent.
    fn after_recovery(&mut self, id: ServerId) {
        for connection in 0..self.connections.len() {
            let connection = &self.connections[connection];
            if connection.server == id {
                let port = u32::from(connection.process);
                self.step(id, 0, Input::Disconnected { port });
            }
        }
        for to in self.topology.ids().filter(|to| *to != id) {
            let link = self.link_id(id, to);
            let link = &mut self.links[link as usize];
            let number = link.taken;
            if link.emitted < number {
                link.emitted = number;
                self.step(id, 0, Input::Skip { to, number });
            }
        }
        self.arm_tick(id);
    }
}

/// The peers that a node was told of as down last.
fn peers_down<M: Metadata>(journal: &Journal<M>) -> BTreeSet<ServerId> {
    let mut down = BTreeSet::new();
    for entry in &journal.entries {
        match entry.input {
            Input::Peer {
                peer,
                state: PeerState::Down,
            } => {
                down.insert(peer);
            }
            Input::Peer { peer, .. } => {
                down.remove(&peer);
            }
            _ => {}
        }
    }
    down
}
