//! One node without a network.

use dkvf_core::config::NodeConfig;
use dkvf_core::storage::MemoryStore;
use dkvf_core::{
    ClientId, Code, Node, NodeError, NodeOptions, Now, Output, PeerState, Protocol, ServerId,
    Topology,
};

use super::toy::{Answer, Ask, Toy, ToyMetadata, ToyProtocol};

/// Node 0 of a cluster of three, with clocks that the test sets.
pub struct Alone {
    pub node: Node<Toy>,
    pub now: Now,
    next_request: u64,
}

impl Alone {
    pub fn new() -> Self {
        Alone::with(NodeOptions {
            strict: true,
            ..NodeOptions::default()
        })
    }

    pub fn with(options: NodeOptions) -> Self {
        Alone::in_cluster(Topology::grid(3, 1), options)
    }

    /// Node 0 of another cluster.
    pub fn in_cluster(topology: Topology, options: NodeOptions) -> Self {
        let now = Now {
            clock_us: 1_000_000,
            monotonic_us: 1_000,
        };
        let store = Box::new(MemoryStore::new(ServerId(0), ToyProtocol::VERSIONS));
        let node = Node::new(
            &NodeConfig::new("0_0"),
            topology,
            ServerId(0),
            store,
            now,
            options,
        )
        .expect("it starts");
        Alone {
            node,
            now,
            next_request: 0,
        }
    }

    /// A request of client number `client`, on a connection of the same number.
    pub fn try_client(&mut self, client: u64, ask: Ask) -> Result<(), NodeError> {
        self.next_request += 1;
        self.node.client_message(
            self.now,
            client as u32,
            ClientId(client),
            self.next_request,
            ask,
        )
    }

    #[track_caller]
    pub fn client(&mut self, client: u64, ask: Ask) {
        self.try_client(client, ask).expect("no rule is broken");
    }

    pub fn try_server(&mut self, from: u16, ask: Ask) -> Result<(), NodeError> {
        self.node.server_message(self.now, ServerId(from), ask)
    }

    #[track_caller]
    pub fn server(&mut self, from: u16, ask: Ask) {
        self.try_server(from, ask).expect("no rule is broken");
    }

    #[track_caller]
    pub fn peer_change(&mut self, peer: u16, state: PeerState) {
        self.node
            .peer_change(self.now, ServerId(peer), state)
            .expect("no rule is broken");
    }

    /// Both clocks go on by `us`.
    #[track_caller]
    pub fn pass(&mut self, us: u64) {
        self.now.clock_us += us;
        self.now.monotonic_us += us;
        self.node.tick(self.now).expect("no rule is broken");
    }

    /// The replies since the last call, by client; outputs to servers are dropped.
    pub fn replies(&mut self) -> Vec<(u64, Result<Answer, Code>)> {
        let mut replies = Vec::new();
        for output in self.node.take_outputs() {
            let Output::<ToyMetadata>::Reply {
                client,
                request,
                slot,
                result,
                ..
            } = output
            else {
                continue;
            };
            self.node.keep_reply(slot, request, result.clone());
            replies.push((client.0, result));
        }
        replies
    }

    /// The ids that are done, in order.
    pub fn done(&self) -> &[u64] {
        &self.node.server().done
    }

    pub fn parked(&self) -> usize {
        self.node.status().parked
    }
}
