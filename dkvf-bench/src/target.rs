//! A cluster to put load on: in this process, or as processes of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dkvf_core::config::{Delay, Flush, NodeConfig, PeerFlush, ServerEntry};
use dkvf_core::net::cluster::{Cluster, Configure, Layout};
use dkvf_core::net::host::Listeners;
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::worker::Worker;
use dkvf_core::net::{Address, control_request};
use dkvf_core::node::VisibilitySample;
use dkvf_core::storage::StoreOptions;
use dkvf_core::{Protocol, ServerId, Topology};
use tempfile::TempDir;

use crate::run::Interrupted;
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
    /// How many workers run sessions.
    fn session_workers(&self) -> usize;
    /// The worker for the sessions of a replica.
    fn session_worker(&self, replica: usize) -> &Worker;
    /// Figures of all servers.
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

/// Each server a process of its own, started from this program.
pub struct Processes {
    topology: Topology,
    children: Vec<Child>,
    clients: Vec<Address>,
    controls: Vec<Address>,
    workers: Vec<Worker>,
    runtime: tokio::runtime::Runtime,
    /// Holds the configuration files, and what the servers said.
    directory: ScratchDirectory,
}

/// How often servers are started on other ports because one was taken.
const START_ATTEMPTS_MAX: u32 = 3;
/// How long a server process may take to answer on its control port.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server process may take to stop, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The most of a server's own words that an error repeats, in bytes from the end.
const LAST_WORDS_BYTES_MAX: usize = 2_000;

impl Processes {
    /// Starts `program server --config FILE --stop-with-stdin` for each server, as long as `interrupted` does not hold.
    ///
    /// # Errors
    /// A server does not start; its own words are in the error. [`Interrupted`].
    pub fn start<P: Protocol>(
        options: &ServerOptions,
        program: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let mut attempts_left = START_ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            match Self::try_start::<P>(options, program, interrupted) {
                // Somebody else took a port between our giving it back and the server's taking it.
                Err(error)
                    if attempts_left > 0 && error.to_string().contains("cannot listen on") => {}
                started => return started,
            }
        }
    }

    fn try_start<P: Protocol>(
        options: &ServerOptions,
        program: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let topology = Topology::grid(options.replicas, options.partitions);
        let directory = ScratchDirectory::create()?;
        let mut configs = Vec::new();
        let mut reserved = Vec::new();
        for id in topology.ids() {
            let mut config = options.config(id, &topology);
            config.protocol = Some(P::NAME.to_owned());
            (config.client_port, config.server_port, config.control_port) = (0, 0, 0);
            // The ports are known to everybody before anybody starts: they are taken now and given back just before.
            let listeners = Listeners::bind(&config)?;
            config.client_port = listeners.client.local_addr()?.port();
            config.server_port = listeners.server.local_addr()?.port();
            config.control_port = listeners.control.local_addr()?.port();
            reserved.push(listeners);
            configs.push(config);
        }
        let entries: Vec<ServerEntry> = configs
            .iter()
            .map(|config| {
                let mut entry =
                    ServerEntry::new(&config.name, config.bind.to_string(), config.server_port);
                (entry.client_port, entry.control_port) =
                    (Some(config.client_port), Some(config.control_port));
                (entry.replica, entry.partition) = (config.replica, config.partition);
                entry
            })
            .collect();
        drop(reserved);
        let address = |config: &NodeConfig, port: u16| Address::new(&config.bind.to_string(), port);
        let clients = configs
            .iter()
            .map(|config| address(config, config.client_port))
            .collect();
        let controls = configs
            .iter()
            .map(|config| address(config, config.control_port))
            .collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = (0..topology.replicas().clamp(1, cores))
            .map(|index| Worker::start(index, &format!("dkvf-load-{index}")))
            .collect::<anyhow::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut processes = Processes {
            topology,
            children: Vec::new(),
            clients,
            controls,
            workers,
            runtime,
            directory,
        };
        for mut config in configs {
            config.connect_to = entries
                .iter()
                .filter(|entry| entry.name != config.name)
                .cloned()
                .collect();
            let file = processes.file(&config.name, "xml");
            std::fs::write(&file, config.to_xml())
                .with_context(|| format!("cannot write {}", file.display()))?;
            let log = processes.file(&config.name, "log");
            // Not a pipe: nobody would empty it.
            let log = std::fs::File::create(&log)
                .with_context(|| format!("cannot write {}", log.display()))?;
            let mut command = Command::new(program);
            command
                .args(["server", "--stop-with-stdin", "--config"])
                .arg(&file)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log);
            // Ctrl-C in a terminal goes to all of its foreground group: how the servers end is for this process to say.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            processes.children.push(
                command
                    .spawn()
                    .with_context(|| format!("cannot start {}", program.display()))?,
            );
        }
        processes.wait_until_up(interrupted)?;
        Ok(processes)
    }

    /// The file of a server with this extension.
    fn file(&self, server: &str, extension: &str) -> PathBuf {
        self.directory.0.join(format!("{server}.{extension}"))
    }

    fn wait_until_up(&mut self, interrupted: &dyn Fn() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = self.statuses() {
            for (child, member) in self.children.iter_mut().zip(self.topology.members()) {
                if let Some(status) = child.try_wait()? {
                    bail!(
                        "server {} ended with {status}: {}",
                        member.name,
                        last_words(&self.directory.0.join(format!("{}.log", member.name)))
                    );
                }
            }
            if interrupted() {
                return Err(Interrupted.into());
            }
            if Instant::now() > deadline {
                return Err(
                    error.context(format!("the servers are not up after {START_TIMEOUT:?}"))
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The end of what a server wrote to its log.
fn last_words(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(LAST_WORDS_BYTES_MAX)..];
    match String::from_utf8_lossy(end).trim() {
        "" => "it said nothing".to_owned(),
        words => words.to_owned(),
    }
}

impl Target for Processes {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn client_addresses(&self) -> Vec<Address> {
        self.clients.clone()
    }

    fn session_workers(&self) -> usize {
        self.workers.len()
    }

    fn session_worker(&self, replica: usize) -> &Worker {
        &self.workers[replica % self.workers.len()]
    }

    fn statuses(&self) -> anyhow::Result<Vec<ServerStatus>> {
        // All at once: the time of one that does not answer is not multiplied.
        let requests = self.controls.iter().map(|address| {
            let address = address.clone();
            self.runtime
                .spawn(async move { control_request(&address, "GET", "/status", None).await })
        });
        let requests: Vec<_> = requests.collect();
        let mut statuses = Vec::new();
        for (request, member) in requests.into_iter().zip(self.topology.members()) {
            let answer = self.runtime.block_on(request)?.with_context(|| {
                format!(
                    "server {} does not answer; its last words: {}",
                    member.name,
                    last_words(&self.file(&member.name, "log"))
                )
            })?;
            statuses.push(
                serde_json::from_slice(&answer).with_context(|| {
                    format!("the status of server {} makes no sense", member.name)
                })?,
            );
        }
        Ok(statuses)
    }

    fn take_visibility(&self) -> anyhow::Result<Vec<Vec<VisibilitySample>>> {
        // The clocks of different processes have different origins.
        Ok(Vec::new())
    }

    fn cpu(&self) -> (f64, f64) {
        let servers = self
            .children
            .iter()
            .map(|child| usage::process_cpu(child.id()))
            .sum();
        (
            servers,
            usage::thread_cpu()
                .iter()
                .filter(|(name, _)| name.starts_with("dkvf-load"))
                .map(|(_, seconds)| seconds)
                .sum(),
        )
    }

    fn peak_rss_bytes(&self) -> u64 {
        usage::peak_rss_bytes(None)
            + self
                .children
                .iter()
                .map(|child| usage::peak_rss_bytes(Some(child.id())))
                .sum::<u64>()
    }

    fn layout(&self) -> &'static str {
        "processes"
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The end of its input tells a server to stop.
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // One that did not listen is not asked again, and one that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
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
