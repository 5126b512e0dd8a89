//! Nodes on loopback, each on a thread of its own, that can be stopped, lost and started again on the same ports.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dkvf_core::config::{Flush, NodeConfig};
use dkvf_core::net::Address;
use dkvf_core::net::host::{self, Listeners, NodeHandle, NodeSpec};
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::worker::Worker;
use dkvf_core::storage::StoreOptions;
use dkvf_core::{Protocol, ServerId, Topology};

use super::raw::Caller;
use super::toy::ToyProtocol;

thread_local! {
    /// The node of a worker's thread.
    static NODE: RefCell<Option<NodeHandle<ToyProtocol>>> = const { RefCell::new(None) };
}

/// Nodes started in this process, for the names of their threads.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A cluster that is planned: its ports are known and its configuration can be changed.
pub struct Site {
    topology: Topology,
    places: Vec<Place>,
}

struct Place {
    config: NodeConfig,
    /// Bound in advance for the first start.
    listeners: Option<Listeners>,
    client: SocketAddr,
    server: SocketAddr,
    control: SocketAddr,
    /// Where it reaches the others.
    routes: Vec<SocketAddr>,
}

impl Site {
    /// `nodes` replicas of one partition.
    pub fn new(nodes: u16) -> Self {
        Site::with(nodes, |_| {})
    }

    /// The same, configured.
    pub fn with(nodes: u16, configure: impl Fn(&mut NodeConfig)) -> Self {
        let topology = Topology::grid(nodes, 1);
        let mut places: Vec<Place> = topology
            .members()
            .iter()
            .map(|member| Place::new(&member.name, &configure))
            .collect();
        let servers: Vec<SocketAddr> = places.iter().map(|place| place.server).collect();
        for place in &mut places {
            place.routes.clone_from(&servers);
        }
        Site { topology, places }
    }

    pub fn nodes(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn server_address(&self, id: usize) -> SocketAddr {
        self.places[id].server
    }

    pub fn client_address(&self, id: usize) -> SocketAddr {
        self.places[id].client
    }

    pub fn control_address(&self, id: usize) -> SocketAddr {
        self.places[id].control
    }

    /// Has node `from` reach node `to` at `address`.
    pub fn route(&mut self, from: usize, to: usize, address: SocketAddr) {
        self.places[from].routes[to] = address;
    }

    pub fn configure(&mut self, id: usize, configure: impl FnOnce(&mut NodeConfig)) {
        configure(&mut self.places[id].config);
    }

    /// Closes the ports of a node that has not started.
    pub fn unbind(&mut self, id: usize) {
        self.places[id].listeners = None;
    }

    /// Starts a node; a former one on the same ports must be gone.
    pub fn start(&mut self, id: usize) -> Running {
        let place = &mut self.places[id];
        let listeners = place
            .listeners
            .take()
            .unwrap_or_else(|| Listeners::bind(&place.config).expect("its ports are free again"));
        let me = ServerId(id as u16);
        let store = StoreOptions {
            engine: "memory".to_owned(),
            directory: None,
            node: me,
            versions: ToyProtocol::VERSIONS,
            properties: Default::default(),
        };
        let spec = NodeSpec {
            config: place.config.clone(),
            topology: self.topology.clone(),
            me,
            addresses: place.routes.iter().copied().map(Address::Socket).collect(),
            listeners,
            store,
            watch_visibility: false,
        };
        let thread = format!("site-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let worker = Worker::start(id, &thread).expect("a thread");
        worker
            .call(move |local| {
                let handle = host::start::<ToyProtocol>(local, spec)?;
                NODE.set(Some(handle));
                anyhow::Ok(())
            })
            .expect("the worker lives")
            .expect("the node starts");
        Running {
            worker,
            thread,
            client: place.client,
            server: place.server,
            control: place.control,
            nodes: self.places.len() as u32,
        }
    }

    pub fn start_all(&mut self) -> Vec<Running> {
        (0..self.places.len()).map(|id| self.start(id)).collect()
    }
}

impl Place {
    fn new(name: &str, configure: impl Fn(&mut NodeConfig)) -> Self {
        let mut config = NodeConfig::new(name);
        config.connector_sleep_time_ms = 1;
        config.flush = Flush::Adaptive;
        configure(&mut config);
        let listeners = bind_ports_that_stay_free(&mut config);
        let address =
            |listener: &std::net::TcpListener| listener.local_addr().expect("it is bound");
        let (client, server, control) = (
            address(&listeners.client),
            address(&listeners.server),
            address(&listeners.control),
        );
        Place {
            config,
            listeners: Some(listeners),
            client,
            server,
            control,
            routes: Vec::new(),
        }
    }
}

/// Binds three ports below those that the system gives to outgoing connections: while a node is down, nobody takes its
/// ports by chance.
fn bind_ports_that_stay_free(config: &mut NodeConfig) -> Listeners {
    static TRIED: AtomicUsize = AtomicUsize::new(0);
    const FIRST: usize = 10_000;
    const PORTS: usize = 20_000;
    for _ in 0..PORTS {
        // Programs that run beside each other begin at different ports.
        let place = std::process::id() as usize * 97 + 3 * TRIED.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + place % PORTS) as u16;
        (config.client_port, config.server_port, config.control_port) = (port, port + 1, port + 2);
        if let Ok(listeners) = Listeners::bind(config) {
            return listeners;
        }
    }
    panic!("no three ports in a row are free from {FIRST} on");
}

/// A node that runs. To drop it is to lose it: its sockets close and nothing is said.
pub struct Running {
    worker: Worker,
    /// The name of its thread.
    pub thread: String,
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub control: SocketAddr,
    nodes: u32,
}

impl Running {
    pub fn call(&self) -> Caller {
        Caller::connect(self.client, self.nodes)
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&NodeHandle<ToyProtocol>) -> T + Send + 'static,
    ) -> T {
        self.worker
            .call(move |_| NODE.with_borrow(|node| look(node.as_ref().expect("it was started"))))
            .expect("the worker lives")
    }

    pub fn status(&self) -> ServerStatus {
        self.look(NodeHandle::status)
    }

    /// Why it stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.look(NodeHandle::failure)
    }

    pub fn is_running(&self) -> bool {
        self.status().running
    }

    /// Stops it cleanly and keeps what is left of it.
    pub fn stop(&self) {
        self.look(NodeHandle::stop);
    }
}
