//! What a server has written down: its journal, and what waits for it to be stable.
//!
//! The journal has every input of a node with the clocks it was given, so a fresh node that is fed the same inputs
//! comes to the same state. Outputs of an input are held until its entry is stable, so nobody ever sees what a crash
//! can undo.

use std::collections::VecDeque;

use dkvf_core::{ClientId, Metadata, Node, NodeError, Now, Output, PeerState, Server, ServerId};
use dkvf_workload::faults::Disk;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::link::Envelope;
use crate::options::{DiskModel, Durability};

/// Outside strict mode the state is compared at every so many entries when a journal is replayed.
const FINGERPRINT_EVERY: usize = 32;

/// Something that a node is told.
#[derive(Debug)]
pub(crate) enum Input<M: Metadata> {
    Request {
        port: u32,
        client: ClientId,
        request: u64,
        message: M::ClientMessage,
    },
    Message {
        from: ServerId,
        incarnation: u32,
        envelope: Envelope<M::ServerMessage>,
    },
    Tick,
    Peer {
        peer: ServerId,
        state: PeerState,
    },
    Congested(bool),
    Disconnected {
        port: u32,
    },
    /// Nothing for the node: its links to `to` go on after `number`, which a forgotten past has used.
    Skip {
        to: ServerId,
        number: u64,
    },
}

impl<M: Metadata> Clone for Input<M> {
    fn clone(&self) -> Self {
        match self {
            Input::Request {
                port,
                client,
                request,
                message,
            } => Input::Request {
                port: *port,
                client: *client,
                request: *request,
                message: message.clone(),
            },
            Input::Message {
                from,
                incarnation,
                envelope,
            } => Input::Message {
                from: *from,
                incarnation: *incarnation,
                envelope: envelope.clone(),
            },
            Input::Tick => Input::Tick,
            Input::Peer { peer, state } => Input::Peer {
                peer: *peer,
                state: *state,
            },
            Input::Congested(congested) => Input::Congested(*congested),
            Input::Disconnected { port } => Input::Disconnected { port: *port },
            Input::Skip { to, number } => Input::Skip {
                to: *to,
                number: *number,
            },
        }
    }
}

impl<M: Metadata> Input<M> {
    /// Has the node take the input.
    ///
    /// # Errors
    /// The node is broken.
    #[inline]
    pub(crate) fn apply<S: Server<Metadata = M>>(
        self,
        node: &mut Node<S>,
        now: Now,
    ) -> Result<(), NodeError> {
        match self {
            Input::Request {
                port,
                client,
                request,
                message,
            } => node.client_message(now, port, client, request, message),
            Input::Message { from, envelope, .. } => {
                node.server_message(now, from, envelope.message)
            }
            Input::Tick => node.tick(now),
            Input::Peer { peer, state } => node.peer_change(now, peer, state),
            Input::Congested(congested) => {
                node.set_congested(congested);
                Ok(())
            }
            Input::Disconnected { port } => {
                node.disconnected(port);
                Ok(())
            }
            Input::Skip { .. } => Ok(()),
        }
    }
}

/// An input as it was written.
#[derive(Debug)]
pub(crate) struct Entry<M: Metadata> {
    pub(crate) now: Now,
    pub(crate) input: Input<M>,
    /// The state after it, at some entries.
    pub(crate) fingerprint: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Idle,
    /// Waits for the next point of the interval.
    Waiting,
    /// Makes so many entries stable.
    Running(usize),
}

/// A node's journal.
#[derive(Debug)]
pub(crate) struct Journal<M: Metadata> {
    durability: Durability,
    model: DiskModel,
    /// What the node was started with.
    pub(crate) started: Now,
    pub(crate) entries: Vec<Entry<M>>,
    stable: usize,
    sync: Sync,
    /// Outputs with the number of entries they depend on, ascending.
    held: VecDeque<(usize, Vec<Output<M>>)>,
    fingerprint_every: usize,
}

/// What becomes of a journal in a crash.
pub(crate) struct Lost<M: Metadata> {
    /// The entries that did not survive, the oldest first.
    pub(crate) entries: Vec<Entry<M>>,
    /// Whether one of them was found torn.
    pub(crate) torn: bool,
}

impl<M: Metadata> Journal<M> {
    /// A journal for a run whose servers survive crashes; `None` if they do not.
    pub(crate) fn new(
        durability: Durability,
        model: DiskModel,
        started: Now,
        strict: bool,
    ) -> Option<Self> {
        (durability != Durability::None).then(|| Journal {
            durability,
            model,
            started,
            entries: Vec::new(),
            stable: 0,
            sync: Sync::Idle,
            held: VecDeque::new(),
            fingerprint_every: if strict { 1 } else { FINGERPRINT_EVERY },
        })
    }

    pub(crate) fn append(&mut self, now: Now, input: Input<M>) {
        self.entries.push(Entry {
            now,
            input,
            fingerprint: None,
        });
    }

    /// Whether the state after the last entry is to be noted.
    pub(crate) fn wants_fingerprint(&self) -> bool {
        self.entries.len().is_multiple_of(self.fingerprint_every)
    }

    pub(crate) fn note_fingerprint(&mut self, fingerprint: u64) {
        if let Some(entry) = self.entries.last_mut() {
            entry.fingerprint = Some(fingerprint);
        }
    }

    /// Holds the outputs of the last entry, or hands them back if they need not wait.
    pub(crate) fn hold(&mut self, outputs: Vec<Output<M>>) -> Option<Vec<Output<M>>> {
        if self.durability == Durability::Async
            || (self.stable == self.entries.len() && self.held.is_empty())
        {
            return Some(outputs);
        }
        if !outputs.is_empty() {
            self.held.push_back((self.entries.len(), outputs));
        }
        None
    }

    /// Starts to make entries stable if there are any and it is not under way. Returns when [`Journal::synced`] is due.
    pub(crate) fn start_sync(&mut self, now_us: u64) -> Option<u64> {
        if self.sync != Sync::Idle || self.stable == self.entries.len() {
            return None;
        }
        if self.durability == Durability::Sync {
            self.sync = Sync::Running(self.entries.len());
            return Some(now_us + self.model.sync_us);
        }
        self.sync = Sync::Waiting;
        let interval_us = self.model.group_us.max(1);
        Some((now_us / interval_us + 1) * interval_us)
    }

    /// The disk is ready for its next step. Returns the outputs that nothing holds any more, and when the next step is
    /// due.
    pub(crate) fn synced(&mut self, now_us: u64) -> (Vec<Output<M>>, Option<u64>) {
        match self.sync {
            Sync::Idle => (Vec::new(), None),
            Sync::Waiting => {
                self.sync = Sync::Running(self.entries.len());
                (Vec::new(), Some(now_us + self.model.sync_us))
            }
            Sync::Running(stable) => {
                self.stable = stable;
                self.sync = Sync::Idle;
                let mut outputs = Vec::new();
                while let Some((_, released)) =
                    self.held.pop_front_if(|(entries, _)| *entries <= stable)
                {
                    outputs.extend(released);
                }
                (outputs, self.start_sync(now_us))
            }
        }
    }

    /// The node crashes: what is stable survives, and of the rest as much as chance has it.
    pub(crate) fn crash(&mut self, disk: Disk, random: &mut Pcg64Mcg) -> Lost<M> {
        let unstable = self.entries.len() - self.stable;
        let written = random.random_range(0..=unstable);
        let torn = disk == Disk::Torn && unstable > 0;
        // The torn entry is the last one that was being written. Its checksum is wrong, so it does not count.
        let survive = if torn { written.max(1) - 1 } else { written };
        let entries = self.entries.split_off(self.stable + survive);
        self.stable = self.entries.len();
        self.sync = Sync::Idle;
        self.held.clear();
        Lost { entries, torn }
    }

    /// Whether replies, or messages that are no heartbeats, wait for the disk.
    pub(crate) fn holds_messages(&self) -> bool {
        let is_message = |output: &Output<M>| match output {
            Output::Send { latest, .. } | Output::Broadcast { latest, .. } => !latest,
            Output::Reply { .. } => true,
        };
        self.held
            .iter()
            .any(|(_, outputs)| outputs.iter().any(is_message))
    }
}
