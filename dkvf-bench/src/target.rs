//! A cluster to put load on.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use dkvf_core::config::{Delay, Flush, NodeConfig, PeerFlush};
use dkvf_core::net::Address;
use dkvf_core::net::cluster::{Cluster, Configure, Layout};
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::worker::Worker;
use dkvf_core::node::VisibilitySample;
use dkvf_core::storage::StoreOptions;
use dkvf_core::{Protocol, ServerId, Topology};
use tempfile::TempDir;

use crate::usage;

/// How the servers of a run are configured.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Full copies of the data.
    pub replicas: u16,
    /// Parts of the key space.
    pub partitions: u16,
    /// The storage engine.
    pub storage: String,
    /// Where engines on disk keep their files; a folder per server is made in it.
    pub data_directory: PathBuf,
    /// When output is written.
    pub flush: Flush,
    /// When messages to other servers are written.
    pub peer_flush: PeerFlush,
    /// Delays of links, by server names.
    pub delays: Vec<Delay>,
    /// Clock skew by server name, in microseconds.
    pub skews: Vec<(String, i64)>,
    /// Properties of the protocol.
    pub properties: Vec<(String, String)>,
}

impl ServerOptions {
    /// Servers without delays or skew, with the protocol's own settings.
    pub fn new(replicas: u16, partitions: u16, storage: &str, data_directory: PathBuf) -> Self {
        ServerOptions {
            replicas,
            partitions,
            storage: storage.to_owned(),
            data_directory,
            flush: Flush::Adaptive,
            peer_flush: PeerFlush::Protocol,
            delays: Vec::new(),
            skews: Vec::new(),
            properties: Vec::new(),
        }
    }
}

impl Configure for ServerOptions {
    fn config(&self, id: ServerId, topology: &Topology) -> NodeConfig {
        let member = topology.member(id);
        let mut config = NodeConfig::new(&member.name);
        (config.replica, config.partition) =
            (u32::from(member.replica), u32::from(member.partition));
        config.flush = self.flush;
        config.peer_flush = self.peer_flush;
        config.delays.clone_from(&self.delays);
        config.clock_skew_us = self
            .skews
            .iter()
            .find(|(name, _)| *name == member.name)
            .map_or(0, |(_, skew_us)| *skew_us);
        config.storage.engine.clone_from(&self.storage);
        config.storage.directory = Some(self.data_directory.join(&member.name));
        for (key, value) in &self.properties {
            config.protocol_properties.set(key, value);
        }
        config
    }

    fn store(&self, id: ServerId, topology: &Topology) -> StoreOptions {
        StoreOptions {
            engine: self.storage.clone(),
            directory: Some(self.data_directory.join(&topology.member(id).name)),
            node: id,
            versions: dkvf_core::Versions::Multi,
            properties: Default::default(),
        }
    }
}

/// A running cluster.
pub trait Target {
    /// Its members.
    fn topology(&self) -> &Topology;
    /// Where clients connect, by id.
    fn client_addresses(&self) -> Vec<Address>;
    /// Where the control ports are, by id.
    fn control_addresses(&self) -> Vec<Address>;
    /// How many workers run sessions.
    fn session_workers(&self) -> usize;
    /// The worker for the sessions of a replica.
    fn session_worker(&self, replica: usize) -> &Worker;
    /// Figures of all servers that are up ([`Target::is_up`]).
    ///
    /// # Errors
    /// A server does not answer.
    fn statuses(&self) -> anyhow::Result<Vec<ServerStatus>>;
    /// The visibility samples since the last call, by server; empty if they cannot be had.
    ///
    /// # Errors
    /// A server does not answer.
    fn take_visibility(&self) -> anyhow::Result<Vec<Vec<VisibilitySample>>>;
    /// CPU seconds so far of servers and of load.
    fn cpu(&self) -> (f64, f64);
    /// Peak memory in bytes.
    fn peak_rss_bytes(&self) -> u64;
    /// Which thread or process runs what.
    fn layout(&self) -> &'static str;

    /// Whether a server runs and answers: not one that crashed or stands still on purpose, and not one that is still
    /// starting after a crash.
    ///
    /// # Errors
    /// A server that should start does not.
    fn is_up(&self, _id: ServerId) -> anyhow::Result<bool> {
        Ok(true)
    }

    /// Changes whether a server runs.
    ///
    /// # Errors
    /// It cannot: only servers that are processes can.
    fn control(&self, _id: ServerId, _change: Change) -> anyhow::Result<()> {
        bail!("a server in this process cannot crash or stand still alone")
    }
}

/// What can be done to a server as a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is killed.
    Crash,
    /// It starts again, empty.
    Restart {
        /// How far its clock is from where it was at first, in microseconds.
        clock_us: i64,
    },
    /// It stands still.
    Pause,
    /// It goes on.
    Resume,
}

/// All servers in this process.
pub struct Embedded<P: Protocol>(Cluster<P>);

impl<P: Protocol> Embedded<P> {
    /// Starts them.
    ///
    /// # Errors
    /// A server refuses.
    pub fn start(options: &ServerOptions, layout: Layout) -> anyhow::Result<Self> {
        let topology = Topology::grid(options.replicas, options.partitions);
        Ok(Embedded(Cluster::start(topology, layout, options, true)?))
    }
}

impl<P: Protocol> Target for Embedded<P> {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn client_addresses(&self) -> Vec<Address> {
        self.0.client_addresses().to_vec()
    }

    fn control_addresses(&self) -> Vec<Address> {
        self.0.control_addresses().to_vec()
    }

    fn session_workers(&self) -> usize {
        self.0.session_workers()
    }

    fn session_worker(&self, replica: usize) -> &Worker {
        self.0.session_worker(replica)
    }

    fn statuses(&self) -> anyhow::Result<Vec<ServerStatus>> {
        self.topology().ids().map(|id| self.0.status(id)).collect()
    }

    fn take_visibility(&self) -> anyhow::Result<Vec<Vec<VisibilitySample>>> {
        self.topology()
            .ids()
            .map(|id| self.0.take_visibility(id))
            .collect()
    }

    fn cpu(&self) -> (f64, f64) {
        let threads = usage::thread_cpu();
        let of = |role: &str| {
            threads
                .iter()
                .filter(|(name, _)| name.starts_with(role))
                .map(|(_, seconds)| seconds)
                .sum()
        };
        (of("dkvf-replica"), of("dkvf-load"))
    }

    fn peak_rss_bytes(&self) -> u64 {
        usage::peak_rss_bytes(None)
    }

    fn layout(&self) -> &'static str {
        match self.0.layout() {
            Layout::ReplicaLocal => "replica-local",
            Layout::Split => "split",
        }
    }
}

/// A folder of our own that is removed at the end.
pub struct ScratchDirectory(
    pub PathBuf,
    #[expect(dead_code, reason = "removes the folder when dropped")] TempDir,
);

impl ScratchDirectory {
    /// Makes a new folder in the system's place for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dkvf-")
            .tempdir()
            .context("cannot create a temporary folder")?;
        Ok(ScratchDirectory(folder.path().to_owned(), folder))
    }
}
