//! Hosts, and the servers on them.

use std::collections::VecDeque;

use dkvf_core::config::NodeConfig;
use dkvf_core::storage::{MemoryStore, Store};
use dkvf_core::{Member, Metadata, Node, NodeOptions, Now, PeerState, Protocol, ServerId};

use crate::disk::Journal;
use crate::measure::Seen;
use crate::options::Options;
use crate::random::{derived_seed, stream};
use crate::simulation::Simulation;
use crate::world::{Clock, Cpu};

/// Something that a host's processor is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Take the oldest frame that has arrived on this link.
    Frame { link: u32 },
    /// Take the oldest request that has arrived on this connection.
    Request { connection: u32 },
    /// Look at a node's timers.
    Tick { node: u32 },
    /// Tell a node about a peer.
    Peer {
        node: u32,
        peer: ServerId,
        state: PeerState,
    },
    /// Release what waited for a node's disk.
    Synced { node: u32 },
}

/// A machine that servers run on.
pub(crate) struct Host {
    pub(crate) nodes: Vec<u32>,
    pub(crate) clock: Clock,
    pub(crate) cpu: Cpu,
    /// What has arrived while the processor was busy or the host stood still.
    pub(crate) inbox: VecDeque<Work>,
    pub(crate) work_armed: bool,
    pub(crate) pauses: u32,
}

impl Host {
    /// Host `number`; `host_of` has the host of each server.
    pub(crate) fn new(options: &Options, number: u32, host_of: &[u32]) -> Self {
        let nodes = (0..).zip(host_of).filter(|(_, host)| **host == number);
        Host {
            nodes: nodes.map(|(node, _)| node).collect(),
            clock: Clock::new(
                &options.clocks,
                stream(options.seed, "clock", u64::from(number)),
            ),
            cpu: Cpu::new(options.cpu),
            inbox: VecDeque::new(),
            work_armed: false,
            pauses: 0,
        }
    }
}

/// A server and what the host keeps for it.
pub(crate) struct Machine<P: Protocol> {
    /// `None` while it is down.
    pub(crate) node: Option<Node<P::Server>>,
    pub(crate) config: NodeConfig,
    pub(crate) host: u32,
    pub(crate) replica: u16,
    pub(crate) incarnation: u32,
    /// Counts starts, so that events of its disk from before a crash are recognised.
    pub(crate) starts: u32,
    /// When its next tick is in the queue.
    pub(crate) tick_us: u64,
    pub(crate) congested_links: u32,
    /// What the node was told of congestion.
    pub(crate) told_congested: bool,
    pub(crate) journal: Option<Journal<P::Metadata>>,
    /// Writes to its disk fail.
    pub(crate) disk_full: bool,
    /// It stopped because of that.
    pub(crate) stopped_by_disk: bool,
    /// The latest that its physical clock has shown.
    pub(crate) clock_max_us: u64,
}

impl<P: Protocol> Machine<P> {
    /// A server that was never started.
    pub(crate) fn new(options: &Options, member: &Member, host: u32) -> Self {
        let mut config = NodeConfig::new(member.name.clone());
        config.protocol_properties = options.properties.clone();
        Machine {
            node: None,
            config,
            host,
            replica: member.replica,
            incarnation: 0,
            starts: 0,
            tick_us: u64::MAX,
            congested_links: 0,
            told_congested: false,
            journal: None,
            disk_full: false,
            stopped_by_disk: false,
            clock_max_us: 0,
        }
    }
}

impl<P: Protocol> Simulation<P> {
    /// Makes the node of a server that has nothing. What it draws depends on its incarnation.
    pub(crate) fn new_node(
        &mut self,
        id: ServerId,
        incarnation: u32,
        now: Now,
    ) -> anyhow::Result<Node<P::Server>> {
        let options = NodeOptions {
            request_timeout_us: (self.options.request_timeout_us / 2).max(1),
            max_drift_us: self.options.max_drift_us,
            seed: derived_seed(
                self.options.seed,
                &format!("choices of incarnation {incarnation}"),
            ),
            strict: self.options.strict,
            ..NodeOptions::default()
        };
        let machine = &self.machines[id.index()];
        let mut node = Node::new(
            &machine.config,
            self.topology.clone(),
            id,
            store::<P>(id),
            now,
            options,
        )?;
        node.watch_visibility(self.options.visibility);
        Ok(node)
    }

    /// Collects what became visible at a node.
    pub(crate) fn collect_visibility(&mut self, id: ServerId) {
        let machine = &mut self.machines[id.index()];
        let Some(node) = &mut machine.node else {
            return;
        };
        let clock = &self.hosts[machine.host as usize].clock;
        self.seen
            .extend(node.take_visibility().into_iter().map(|sample| Seen {
                version: sample.version,
                replica: machine.replica,
                visible_us: clock.when_monotonic(sample.visible_us),
            }));
    }
}

/// The store of a server. Engines that are simulated with their files go here.
fn store<P: Protocol>(id: ServerId) -> Box<dyn Store<<P::Metadata as Metadata>::Record>> {
    Box::new(MemoryStore::new(id, P::VERSIONS))
}
