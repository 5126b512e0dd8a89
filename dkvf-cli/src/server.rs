//! `dkvf server`: one server as a process.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use dkvf_core::config::NodeConfig;
use dkvf_core::net::Address;
use dkvf_core::net::host::{self, Listeners, NodeHandle, NodeSpec};
use dkvf_core::net::worker::Worker;
use dkvf_core::storage::StoreOptions;
use dkvf_core::{Protocol, Topology};
use dkvf_protocols::Visitor;

use crate::signals::Interrupt;
use crate::{Ending, no_such_protocol, output, usage};

/// Runs one server until Ctrl-C, SIGTERM or `POST /shutdown` on its control port.
#[derive(Args)]
#[command(after_help = "Examples:
  dkvf server --config schemas/examples/server.xml
  dkvf server --config node.xml --protocol eventual --storage sled")]
pub struct Arguments {
    /// The node's configuration (schemas/Config.xsd).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The protocol to run, if the configuration does not say or says otherwise.
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,
    /// The storage engine, if the configuration does not say or says otherwise.
    #[arg(long, value_name = "NAME")]
    storage: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, a port is taken, the store cannot be opened, or the server broke.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let mut config = NodeConfig::load(&arguments.config).map_err(usage)?;
    for warning in config.warnings() {
        eprintln!("dkvf: warning: {warning}");
    }
    if let Some(storage) = &arguments.storage {
        config.storage.engine.clone_from(storage);
    }
    let protocol = arguments.protocol.clone().or_else(|| config.protocol.clone()).ok_or_else(|| {
        let file = arguments.config.display();
        usage(format!("{file}: which protocol? Add <protocol>NAME</protocol> or give --protocol NAME, one of: {}", dkvf_protocols::NAMES.join(", ")))
    })?;
    dkvf_protocols::visit(&protocol, Serve(config)).ok_or_else(|| no_such_protocol(&protocol))?
}

struct Serve(NodeConfig);

impl Visitor for Serve {
    type Output = anyhow::Result<Ending>;

    fn visit<P: Protocol>(self) -> anyhow::Result<Ending> {
        let config = self.0;
        anyhow::ensure!(config.durability == Default::default(), usage(config.error("durability", "this version offers `none` only")));
        let topology = Topology::of(&config)?;
        let me = topology.find(&config.name).ok_or_else(|| usage(config.error("id", "is not a member of its own cluster")))?;
        let addresses = config.servers().iter().map(|server| Address::new(&server.host, server.port)).collect();
        let listeners = Listeners::bind(&config)?;
        let store = StoreOptions {
            engine: config.storage.engine.clone(),
            directory: config.storage.directory.clone(),
            node: me,
            versions: P::VERSIONS,
            properties: config.storage.properties.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        };
        let interrupt = Interrupt::listen()?;
        let (clients, control) = (listeners.client.local_addr()?, listeners.control.local_addr()?);
        let name = config.name.clone();
        let worker = Worker::start(0, "dkvf-server")?;
        let (stopped, has_stopped) = mpsc::channel();
        let spec = NodeSpec { config, topology, me, addresses, listeners, store, watch_visibility: false };
        let node = worker.call(move |local| {
            let handle = Rc::new(host::start::<P>(local, spec)?);
            let watched = handle.clone();
            tokio::task::spawn_local(async move {
                watched.stopped().await;
                let _ = stopped.send(watched.failure());
            });
            anyhow::Ok(local.keep(handle))
        })??;
        output::print(&format!("server {name} runs {}: clients on {clients}, control on http://{control}/status\n", P::NAME))?;
        loop {
            match has_stopped.recv_timeout(Duration::from_millis(100)) {
                Ok(None) => return Ok(Ending::Done),
                Ok(Some(failure)) => anyhow::bail!("server {name} stopped: {failure}"),
                Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("server {name}: its thread has died"),
                Err(mpsc::RecvTimeoutError::Timeout) if interrupt.is_set() => worker.call(move |local| local.kept::<NodeHandle<P>>(node).stop())?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
