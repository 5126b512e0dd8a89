//! `dkvf client`: one client against a running cluster.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand};
use dkvf_core::config::NodeConfig;
use dkvf_core::net::pool::{ClientPool, PoolOptions};
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::worker::Worker;
use dkvf_core::net::{Address, control_request};
use dkvf_core::{Client, Failure, Key, Outcome, Protocol, Topology, Value};
use dkvf_protocols::Visitor;

use crate::{Ending, no_such_protocol, output, usage};

/// Talks to a running cluster: one operation, or many in a session of its own.
#[derive(Args)]
#[command(after_help = "Examples:
  dkvf client --config schemas/examples/client.xml put greeting hello
  dkvf client --config schemas/examples/client.xml repl")]
pub struct Arguments {
    /// The client's configuration: its servers with their client ports.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The protocol the servers run, if the configuration does not say.
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,
    /// The replica to bind to, if the configuration does not say or says otherwise.
    #[arg(long, value_name = "R")]
    replica: Option<u32>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Prints the value of a key; exit status 1 if it has none.
    #[command(after_help = "Examples:
  dkvf client --config schemas/examples/client.xml get greeting
  dkvf client --config schemas/examples/client.xml --replica 0 get greeting || echo none")]
    Get {
        /// The key.
        key: String,
    },
    /// Writes a value.
    #[command(after_help = "Examples:
  dkvf client --config schemas/examples/client.xml put greeting hello
  dkvf client --config schemas/examples/client.xml --replica 1 put greeting 'two words'")]
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Asks every server's control port; exit status 1 if one does not answer or does not run.
    #[command(after_help = "Examples:
  dkvf client --config schemas/examples/client.xml status
  dkvf client --config schemas/examples/client.xml status --json - | jq '.servers[].running'")]
    Status {
        /// Write JSON to this file, or to standard output for `-`.
        #[arg(long, value_name = "FILE")]
        json: Option<String>,
    },
    /// Reads commands from standard input: one session, line by line; exit status 1 if one failed.
    #[command(after_help = "Examples:
  dkvf client --config schemas/examples/client.xml repl
  printf 'put k v\\nget k\\n' | dkvf client --config schemas/examples/client.xml repl")]
    Repl,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, a server cannot be reached, or the operation failed.
pub fn run(arguments: Arguments) -> anyhow::Result<Ending> {
    let mut config = NodeConfig::load_client(&arguments.config).map_err(usage)?;
    for warning in config.warnings() {
        eprintln!("dkvf: warning: {warning}");
    }
    if let Some(replica) = arguments.replica {
        config.replica = replica;
    }
    if let Action::Status { json } = &arguments.action {
        return status(&config, json.as_deref());
    }
    let protocol = arguments.protocol.clone().or_else(|| config.protocol.clone()).ok_or_else(|| {
        let file = arguments.config.display();
        usage(format!("{file}: which protocol do the servers run? Add <protocol>NAME</protocol> or give --protocol NAME"))
    })?;
    dkvf_protocols::visit(&protocol, Talk(config, arguments.action))
        .ok_or_else(|| no_such_protocol(&protocol))?
}

struct Talk(NodeConfig, Action);

impl Visitor for Talk {
    type Output = anyhow::Result<Ending>;

    fn visit<P: Protocol>(self) -> anyhow::Result<Ending> {
        let Talk(config, action) = self;
        let session = Session::open::<P>(&config)?;
        match action {
            Action::Get { key } => match session.ask(Request::Get(key.into()))? {
                Answer::Value(Some(value)) => {
                    output::print(&format!("{}\n", String::from_utf8_lossy(&value)))?;
                    Ok(Ending::Done)
                }
                _ => {
                    eprintln!("no such key");
                    Ok(Ending::Violated)
                }
            },
            Action::Put { key, value } => {
                session.ask(Request::Put(key.into(), value.into()))?;
                Ok(Ending::Done)
            }
            Action::Repl => repl(&session, &config),
            Action::Status { .. } => {
                unreachable!("invariant: handled before the protocol is known")
            }
        }
    }
}

enum Request {
    Get(Key),
    Put(Key, Value),
    Scan(Key, usize),
}

enum Answer {
    Value(Option<Value>),
    Written,
    Rows(Vec<(Key, Value)>),
}

/// One client session on a thread of its own, for callers that block.
struct Session {
    requests: tokio::sync::mpsc::UnboundedSender<(Request, mpsc::Sender<anyhow::Result<Answer>>)>,
    _worker: Worker,
}

impl Session {
    fn open<P: Protocol>(config: &NodeConfig) -> anyhow::Result<Self> {
        let topology = Topology::of(config)?;
        let replica = u16::try_from(config.replica)
            .ok()
            .filter(|replica| usize::from(*replica) < topology.replicas());
        let replica = replica.ok_or_else(|| {
            usage(format!(
                "there is no replica {}: the cluster has {}",
                config.replica,
                topology.replicas()
            ))
        })?;
        let addresses = config
            .servers()
            .iter()
            .map(|server| Address::new(&server.host, server.port_for_clients()))
            .collect();
        let options = PoolOptions {
            topology,
            addresses,
            protocol: P::NAME,
            timeout: Duration::from_millis(config.request_timeout_ms),
            flush: config.flush,
            message_bytes_max: config.message_bytes_max,
        };
        let worker = Worker::start(0, "dkvf-client")?;
        let (requests, mut received) = tokio::sync::mpsc::unbounded_channel::<(
            Request,
            mpsc::Sender<anyhow::Result<Answer>>,
        )>();
        worker.run(move |local| {
            let pool = ClientPool::<P::Metadata>::start(local, options);
            let open = move |pool: &std::rc::Rc<ClientPool<P::Metadata>>| {
                P::Client::new(pool.session(replica).1)
            };
            tokio::task::spawn_local(async move {
                let mut client = open(&pool);
                while let Some((request, answer)) = received.recv().await {
                    let outcome = perform(&mut client, request).await;
                    if matches!(outcome, Err(Failure::Unknown)) {
                        // What it remembers may no longer be what happened: whoever goes on is somebody else.
                        client = open(&pool);
                    }
                    let outcome = outcome.map_err(|failure| match pool.last_error() {
                        Some(error) => anyhow::anyhow!("{failure} ({error})"),
                        None => anyhow::anyhow!(failure),
                    });
                    let _ = answer.send(outcome);
                }
            });
        });
        Ok(Session {
            requests,
            _worker: worker,
        })
    }

    fn ask(&self, request: Request) -> anyhow::Result<Answer> {
        let (sender, answer) = mpsc::channel();
        let _ = self.requests.send((request, sender));
        answer
            .recv()
            .unwrap_or_else(|_| anyhow::bail!("the session's thread has died"))
    }
}

async fn perform<C: Client>(client: &mut C, request: Request) -> Outcome<Answer> {
    Ok(match request {
        Request::Get(key) => Answer::Value(client.get(key).await?),
        Request::Put(key, value) => {
            client.put(key, value).await?;
            Answer::Written
        }
        Request::Scan(from, count) => Answer::Rows(client.scan(from, count).await?),
    })
}

const REPL_HELP: &str =
    "get KEY | put KEY VALUE (the rest of the line) | scan FROM COUNT | status | help | exit\n";

/// Reads commands until `exit` or the end of the input. Without a terminal it reads plain lines: the scripted mode.
fn repl(session: &Session, config: &NodeConfig) -> anyhow::Result<Ending> {
    let mut editor = rustyline::DefaultEditor::new()?;
    let mut failed = false;
    // A script is told which line failed; a person sees it.
    let scripted = !std::io::stdin().is_terminal();
    for number in 1.. {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(
                rustyline::error::ReadlineError::Eof | rustyline::error::ReadlineError::Interrupted,
            ) => break,
            Err(error) => return Err(error.into()),
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        // History is a convenience.
        let _ = editor.add_history_entry(line);
        if line == "exit" || line == "quit" {
            break;
        }
        match command(session, config, line) {
            Ok(text) => output::print(&text)?,
            Err(error) => {
                failed = true;
                if scripted {
                    eprintln!("line {number}: {error:#}");
                } else {
                    eprintln!("{error:#}");
                }
            }
        }
    }
    Ok(if failed {
        Ending::Violated
    } else {
        Ending::Done
    })
}

fn command(session: &Session, config: &NodeConfig, line: &str) -> anyhow::Result<String> {
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words = rest.trim().split_once(char::is_whitespace);
    let owned = |text: &str| text.trim().to_owned();
    match (verb, rest.trim(), words) {
        ("get", key, None) if !key.is_empty() => {
            match session.ask(Request::Get(owned(key).into()))? {
                Answer::Value(Some(value)) => Ok(format!("{}\n", String::from_utf8_lossy(&value))),
                _ => Ok("(no such key)\n".to_owned()),
            }
        }
        ("put", _, Some((key, value))) => {
            session.ask(Request::Put(owned(key).into(), owned(value).into()))?;
            Ok("ok\n".to_owned())
        }
        ("scan", _, Some((from, count))) => {
            let count = count
                .trim()
                .parse()
                .map_err(|_| anyhow::anyhow!("{count:?} is no number; write scan FROM COUNT"))?;
            let Answer::Rows(rows) = session.ask(Request::Scan(owned(from).into(), count))? else {
                return Ok(String::new());
            };
            Ok(rows
                .iter()
                .map(|(key, value)| {
                    format!(
                        "{}\t{}\n",
                        String::from_utf8_lossy(key),
                        String::from_utf8_lossy(value)
                    )
                })
                .collect())
        }
        ("status", "", _) => Ok(describe(&ask_all(config)?)),
        ("help", ..) => Ok(REPL_HELP.to_owned()),
        _ => anyhow::bail!("{line:?} is not a command; {}", REPL_HELP.trim_end()),
    }
}

type Asked = Vec<(String, anyhow::Result<ServerStatus>)>;

fn ask_all(config: &NodeConfig) -> anyhow::Result<Asked> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ask = |server: dkvf_core::config::ServerEntry| {
        let status = match server.control_port {
            None => Err(anyhow::anyhow!(
                "its control port is not known: add control_port=\"...\" to its <server>"
            )),
            Some(port) => {
                let answer = runtime.block_on(control_request(
                    &Address::new(&server.host, port),
                    "GET",
                    "/status",
                    config.control_token.as_ref(),
                ));
                answer.and_then(|json| Ok(serde_json::from_slice(&json)?))
            }
        };
        (server.name, status)
    };
    Ok(config.servers().into_iter().map(ask).collect())
}

fn status(config: &NodeConfig, json: Option<&str>) -> anyhow::Result<Ending> {
    let asked = ask_all(config)?;
    let all_answer = asked
        .iter()
        .all(|(_, status)| status.as_ref().is_ok_and(|status| status.running));
    if let Some(target) = json {
        let servers: Vec<serde_json::Value> = asked
            .iter()
            .map(|(name, status)| match status {
                Ok(status) => serde_json::to_value(status).unwrap_or_default(),
                Err(error) => serde_json::json!({"server": name, "running": false, "failure": format!("{error:#}")}),
            })
            .collect();
        output::write_json(target, &serde_json::json!({ "servers": servers }))?;
    }
    if json != Some("-") {
        output::print(&describe(&asked))?;
    }
    Ok(if all_answer {
        Ending::Done
    } else {
        Ending::Violated
    })
}

fn describe(asked: &Asked) -> String {
    let mut table = output::table(&[
        "server",
        "protocol",
        "clients",
        "links up",
        "kept bytes",
        "parked",
        "keys",
        "requests",
    ]);
    let mut problems = String::new();
    for (name, status) in asked {
        match status {
            Ok(status) => {
                let up = status.links.iter().filter(|link| link.connected).count();
                let kept: u64 = status.links.iter().map(|link| link.kept_bytes).sum();
                table.add_row([
                    name.clone(),
                    status.protocol.clone(),
                    status.client_connections.to_string(),
                    format!("{up}/{}", status.links.len()),
                    output::thousands(kept),
                    status.node.parked.to_string(),
                    output::thousands(status.node.store.keys),
                    output::thousands(status.node.requests),
                ]);
                if let Some(failure) = &status.failure {
                    problems += &format!("{name} stopped: {failure}\n");
                }
            }
            Err(error) => problems += &format!("{name}: {error:#}\n"),
        }
    }
    format!("{table}\n{problems}")
}
