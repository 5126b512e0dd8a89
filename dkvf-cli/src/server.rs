//! `dkvf server`: one server as a process.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use dkvf_core::config::{NodeConfig, Role};
use dkvf_core::net::Address;
use dkvf_core::net::host::{self, Listeners, NodeHandle, NodeSpec};
use dkvf_core::net::worker::Worker;
use dkvf_core::storage::{ENGINES, StoreOptions};
use dkvf_core::{Protocol, Topology};
use dkvf_protocols::Visitor;

use crate::signals::Interrupt;
use crate::{Ending, logging, no_such_protocol, output, usage};

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
    /// Also stop when standard input ends: for programs that start servers and must not leave any behind.
    #[arg(long)]
    stop_with_stdin: bool,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, a port is taken, the store cannot be opened, or the server broke.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let mut config = NodeConfig::load(&arguments.config).map_err(usage)?;
    logging::of_server(&config)?;
    for warning in config.warnings() {
        eprintln!("dkvf: warning: {warning}");
    }
    if let Some(storage) = &arguments.storage {
        config.storage.engine.clone_from(storage);
    }
    if !ENGINES
        .iter()
        .any(|engine| engine.name == config.storage.engine)
    {
        let known: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        return Err(usage(config.error(
            "storage",
            format!(
                "there is no engine {:?}; there are: {}",
                config.storage.engine,
                known.join(", ")
            ),
        )));
    }
    let protocol = arguments.protocol.clone().or_else(|| config.protocol.clone()).ok_or_else(|| {
        let file = arguments.config.display();
        usage(format!("{file}: which protocol? Add <protocol>NAME</protocol> or give --protocol NAME, one of: {}", dkvf_protocols::NAMES.join(", ")))
    })?;
    dkvf_protocols::visit(&protocol, Serve(config, arguments.stop_with_stdin))
        .ok_or_else(|| no_such_protocol(&protocol))?
}

struct Serve(NodeConfig, bool);

impl Visitor for Serve {
    type Output = anyhow::Result<Ending>;

    fn visit<P: Protocol>(self) -> anyhow::Result<Ending> {
        let Serve(config, stop_with_stdin) = self;
        anyhow::ensure!(
            config.role != Role::Client,
            usage(config.error("role", "this file is a client's: use it with `dkvf client`"))
        );
        anyhow::ensure!(
            config.durability == Default::default(),
            usage(config.error("durability", "this version offers `none` only"))
        );
        let topology = Topology::of(&config)?;
        let me = topology
            .find(&config.name)
            .ok_or_else(|| usage(config.error("id", "is not a member of its own cluster")))?;
        let addresses = config
            .servers()
            .iter()
            .map(|server| Address::new(&server.host, server.port))
            .collect();
        let listeners =
            Listeners::bind(&config).with_context(|| format!("server {}", config.name))?;
        let store = StoreOptions {
            engine: config.storage.engine.clone(),
            directory: config.storage.directory.clone(),
            node: me,
            versions: P::VERSIONS,
            properties: config
                .storage
                .properties
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        };
        let interrupt = Interrupt::listen(2)?;
        let (clients, control) = (
            listeners.client.local_addr()?,
            listeners.control.local_addr()?,
        );
        let name = config.name.clone();
        let worker = Worker::start(0, "dkvf-server")?;
        let (stopped, has_stopped) = mpsc::channel();
        let spec = NodeSpec {
            config,
            topology,
            me,
            addresses,
            listeners,
            store,
            watch_visibility: false,
        };
        let node = worker.call(move |local| {
            let handle = Rc::new(host::start::<P>(local, spec)?);
            let watched = handle.clone();
            tokio::task::spawn_local(async move {
                watched.stopped().await;
                let _ = stopped.send(watched.failure());
            });
            anyhow::Ok(local.keep(handle))
        })??;
        let stdin_ended = stop_with_stdin.then(watch_stdin).transpose()?;
        output::print(&format!(
            "server {name} runs {}: clients on {clients}, control on http://{control}/status\n",
            P::NAME
        ))?;
        loop {
            match has_stopped.recv_timeout(Duration::from_millis(100)) {
                Ok(None) => return Ok(Ending::Done),
                Ok(Some(failure)) => anyhow::bail!("server {name} stopped: {failure}"),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("server {name}: its thread has died")
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let left_alone = stdin_ended
                        .as_ref()
                        .is_some_and(|ended| ended.load(Ordering::Relaxed));
                    if interrupt.count() > 0 || left_alone {
                        worker.call(move |local| local.kept::<NodeHandle<P>>(node).stop())?;
                    }
                }
            }
        }
    }
}

/// Turns true when standard input ends.
fn watch_stdin() -> std::io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    std::thread::Builder::new()
        .name("dkvf-stdin".to_owned())
        .spawn(move || {
            // An input that cannot be read has ended too.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            flag.store(true, Ordering::Relaxed);
        })?;
    Ok(ended)
}
