//! A whole cluster in this process, on loopback TCP: what `dkvf compare`, benchmarks and tests start.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::Context as _;

use super::connection::Address;
use super::host::{self, Listeners, NodeHandle, NodeSpec};
use super::status::ServerStatus;
use super::worker::Worker;
use crate::config::NodeConfig;
use crate::node::VisibilitySample;
use crate::storage::StoreOptions;
use crate::{Protocol, ServerId, Topology};

/// Which thread runs what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// A worker per replica, at most one per core, with the sessions bound to that replica: only replication
    /// crosses threads.
    #[default]
    ReplicaLocal,
    /// All nodes on one worker and all sessions on another.
    Split,
}

/// A running cluster. Dropping it stops it.
pub struct Cluster<P: Protocol> {
    topology: Topology,
    layout: Layout,
    /// Declared before the load worker, whose sessions they serve.
    servers: Vec<Worker>,
    load: Option<Worker>,
    clients: Vec<Address>,
    controls: Vec<Address>,
    /// By id: the node's number on its worker.
    nodes: Vec<usize>,
    protocol: std::marker::PhantomData<P>,
}

/// What each member of an embedded cluster is configured with.
pub trait Configure {
    /// The configuration of a member; its ports are ignored.
    fn config(&self, id: ServerId, topology: &Topology) -> NodeConfig;
    /// Its store; the protocol decides how many versions it keeps.
    fn store(&self, id: ServerId, topology: &Topology) -> StoreOptions;
}

impl<P: Protocol> Cluster<P> {
    /// Starts all servers of `topology` on free loopback ports.
    ///
    /// # Errors
    /// A port, a store or the protocol refuses; what was started is stopped.
    pub fn start(
        topology: Topology,
        layout: Layout,
        configure: &dyn Configure,
        watch_visibility: bool,
    ) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let server_workers = match layout {
            Layout::ReplicaLocal => topology.replicas().clamp(1, cores),
            Layout::Split => 1,
        };
        let worker =
            |index: usize, role: &str| Worker::start(index, &format!("dkvf-{role}-{index}"));
        let servers = (0..server_workers)
            .map(|index| worker(index, "replica"))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let load = match layout {
            Layout::ReplicaLocal => None,
            Layout::Split => Some(worker(server_workers, "load")?),
        };
        let mut bound = Vec::new();
        for id in topology.ids() {
            let mut config = configure.config(id, &topology);
            (config.client_port, config.server_port, config.control_port) = (0, 0, 0);
            bound.push((Listeners::bind(&config)?, config));
        }
        let addresses =
            |which: fn(&Listeners) -> &std::net::TcpListener| -> anyhow::Result<Vec<Address>> {
                bound
                    .iter()
                    .map(|(listeners, _)| Ok(Address::Socket(which(listeners).local_addr()?)))
                    .collect()
            };
        let clients = addresses(|listeners| &listeners.client)?;
        let controls = addresses(|listeners| &listeners.control)?;
        let server_addresses = addresses(|listeners| &listeners.server)?;
        let mut cluster = Cluster {
            topology: topology.clone(),
            layout,
            servers,
            load,
            clients,
            controls,
            nodes: Vec::new(),
            protocol: std::marker::PhantomData,
        };
        for (id, (listeners, config)) in topology.ids().zip(bound) {
            let store = StoreOptions {
                versions: P::VERSIONS,
                ..configure.store(id, &topology)
            };
            let (topology, addresses) = (topology.clone(), server_addresses.clone());
            let node = cluster.worker_of(id).call(move |local| {
                let spec = NodeSpec {
                    config,
                    topology,
                    me: id,
                    addresses,
                    listeners,
                    store,
                    watch_visibility,
                };
                host::start::<P>(local, spec).map(|handle| local.keep(Rc::new(handle)))
            })??;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// The cluster's members.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Where clients connect, by id.
    pub fn client_addresses(&self) -> &[Address] {
        &self.clients
    }

    /// Where the control ports are, by id.
    pub fn control_addresses(&self) -> &[Address] {
        &self.controls
    }

    /// How many workers run sessions.
    pub fn session_workers(&self) -> usize {
        if self.load.is_some() {
            1
        } else {
            self.servers.len()
        }
    }

    /// The worker for the sessions bound to `replica`.
    pub fn session_worker(&self, replica: usize) -> &Worker {
        self.load
            .as_ref()
            .unwrap_or_else(|| &self.servers[replica % self.servers.len()])
    }

    fn worker_of(&self, id: ServerId) -> &Worker {
        let replica = usize::from(self.topology.member(id).replica);
        &self.servers[replica % self.servers.len()]
    }

    fn with_node<T: Send + 'static>(
        &self,
        id: ServerId,
        look: impl FnOnce(&NodeHandle<P>) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let node = *self
            .nodes
            .get(id.index())
            .context("the server was not started")?;
        self.worker_of(id)
            .call(move |local| look(&local.kept::<NodeHandle<P>>(node)))
    }

    /// Figures of a server.
    ///
    /// # Errors
    /// Its worker died.
    pub fn status(&self, id: ServerId) -> anyhow::Result<ServerStatus> {
        self.with_node(id, NodeHandle::status)
    }

    /// The visibility samples of a server since the last call.
    ///
    /// # Errors
    /// Its worker died.
    pub fn take_visibility(&self, id: ServerId) -> anyhow::Result<Vec<VisibilitySample>> {
        self.with_node(id, NodeHandle::take_visibility)
    }

    /// Stops a server cleanly.
    ///
    /// # Errors
    /// Its worker died.
    pub fn stop(&self, id: ServerId) -> anyhow::Result<()> {
        self.with_node(id, NodeHandle::stop)
    }

    /// The layout in use.
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

impl<P: Protocol> Drop for Cluster<P> {
    fn drop(&mut self) {
        for id in self.topology.ids() {
            // A server whose worker died has nothing left to close.
            let _ = self.stop(id);
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Socket(address)
    }
}
