//! Each server as a process of its own.

mod server;

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use dkvf_core::config::{NodeConfig, ServerEntry};
use dkvf_core::net::cluster::Configure;
use dkvf_core::net::host::Listeners;
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::worker::Worker;
use dkvf_core::net::{Address, control_request};
use dkvf_core::node::VisibilitySample;
use dkvf_core::{Protocol, ServerId, Topology};

use self::server::ServerProcess;
use crate::run::Interrupted;
use crate::target::{Change, ScratchDirectory, ServerOptions, Target};
use crate::usage;

/// Each server a process of its own, started from this program.
pub struct Processes {
    topology: Topology,
    servers: RefCell<Vec<ServerProcess>>,
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
        let processes = Processes {
            topology,
            servers: RefCell::default(),
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
            let server = ServerProcess::start(program, config, &processes.directory.0)?;
            processes.servers.borrow_mut().push(server);
        }
        processes.wait_until_up(interrupted)?;
        Ok(processes)
    }

    fn wait_until_up(&self, interrupted: &dyn Fn() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = self.statuses() {
            for server in self.servers.borrow_mut().iter_mut() {
                if let Some(words) = server.end()? {
                    bail!("{words}");
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

impl Target for Processes {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn client_addresses(&self) -> Vec<Address> {
        self.clients.clone()
    }

    fn control_addresses(&self) -> Vec<Address> {
        self.controls.clone()
    }

    fn session_workers(&self) -> usize {
        self.workers.len()
    }

    fn session_worker(&self, replica: usize) -> &Worker {
        &self.workers[replica % self.workers.len()]
    }

    fn statuses(&self) -> anyhow::Result<Vec<ServerStatus>> {
        for id in self.topology.ids() {
            // Those that come back are to be seen again.
            self.is_up(id)?;
        }
        let servers = self.servers.borrow();
        // All at once: the time of one that does not answer is not multiplied.
        let requests: Vec<_> = servers
            .iter()
            .zip(&self.controls)
            .zip(self.topology.members())
            .filter(|((server, _), _)| server.is_up())
            .map(|((server, address), member)| {
                (server, member, self.runtime.spawn(status(address.clone())))
            })
            .collect();
        let mut statuses = Vec::new();
        for (server, member, request) in requests {
            let answer = self.runtime.block_on(request)?.with_context(|| {
                format!(
                    "server {} does not answer; its last words: {}",
                    member.name,
                    server.last_words()
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
        let servers = self.servers.borrow().iter().map(ServerProcess::cpu).sum();
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
                .servers
                .borrow()
                .iter()
                .map(ServerProcess::peak_rss_bytes)
                .sum::<u64>()
    }

    fn layout(&self) -> &'static str {
        "processes"
    }

    fn is_up(&self, id: ServerId) -> anyhow::Result<bool> {
        let server = &mut self.servers.borrow_mut()[id.index()];
        if server.is_starting() {
            let address = self.controls[id.index()].clone();
            match self.runtime.block_on(status(address)) {
                Ok(_) => server.has_started(),
                Err(_) => server.has_not_started()?,
            }
        }
        Ok(server.is_up())
    }

    fn control(&self, id: ServerId, change: Change) -> anyhow::Result<()> {
        let server = &mut self.servers.borrow_mut()[id.index()];
        match change {
            Change::Crash => server.crash(),
            Change::Restart { clock_us } => server.restart(clock_us),
            Change::Pause => server.pause(),
            Change::Resume => server.resume(),
        }
    }
}

async fn status(address: Address) -> anyhow::Result<Bytes> {
    control_request(&address, "GET", "/status", None).await
}

impl Drop for Processes {
    fn drop(&mut self) {
        let servers = self.servers.get_mut();
        servers.iter_mut().for_each(ServerProcess::ask_to_stop);
        let deadline = Instant::now() + STOP_TIMEOUT;
        servers
            .iter_mut()
            .for_each(|server| server.wait_or_kill(deadline));
    }
}
