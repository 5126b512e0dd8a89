//! Protocols that do not keep their word: a run says so, and why; and one whose servers do not answer ends all the same.

use std::cell::Cell;
use std::time::Duration;

use dkvf_bench::report::RunReport;
use dkvf_bench::run::{Interrupted, Observer, Placement, RunOptions, Silent, run};
use dkvf_bench::target::{ScratchDirectory, ServerOptions};
use dkvf_core::config::NodeConfig;
use dkvf_core::net::cluster::Layout;
use dkvf_core::{
    About, Claims, ClientId, Context, Order, Protocol, Server, ServerId, Sources, Step, Versions,
};
use dkvf_protocols::eventual::EventualClient;
use dkvf_protocols::eventual::metadata::*;
use dkvf_workload::{Tag, WorkloadSpec};
use serde::{Deserialize, Serialize};

/// What is wrong with a server.
mod fault {
    /// It keeps every third write from the other replicas.
    pub const NOT_REPLICATED: u8 = 0;
    /// It acknowledges every third write and forgets it.
    pub const FORGOTTEN: u8 = 1;
    /// It does not answer writes.
    pub const SILENT_ON_PUT: u8 = 2;
    /// It does not answer reads.
    pub const SILENT_ON_GET: u8 = 3;
    /// It does not answer writes once all is loaded.
    pub const SILENT_ON_UPDATE: u8 = 4;
    /// It waits after it has written, which is forbidden.
    pub const STOPS: u8 = 5;
}

/// Eventual consistency, but for one fault.
struct Toy<const FAULT: u8>;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ToyServer<const FAULT: u8> {
    last_ts: u64,
    updates: u64,
}

impl<const FAULT: u8> Server for ToyServer<FAULT> {
    type Metadata = Metadata;
    type Timer = ();

    fn new(_config: &NodeConfig, _cx: &mut Context<Self>) -> anyhow::Result<Self> {
        Ok(ToyServer {
            last_ts: 0,
            updates: 0,
        })
    }

    fn handle_client_message(
        &mut self,
        cx: &mut Context<Self>,
        client: ClientId,
        message: &ClientMessage,
    ) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value }) => {
                let loaded = Tag::parse(value).is_some_and(Tag::is_loaded);
                self.updates += u64::from(!loaded);
                let third = !loaded && self.updates.is_multiple_of(3);
                self.last_ts = cx.clock().max(self.last_ts + 1);
                let record = Record {
                    value: value.clone(),
                    ts: self.last_ts,
                    origin: cx.replica() as u32,
                };
                let reply = PutReply {
                    ts: record.ts,
                    origin: record.origin,
                };
                if FAULT == fault::SILENT_ON_PUT || FAULT == fault::SILENT_ON_UPDATE && !loaded {
                    return Ok(());
                }
                if !(FAULT == fault::FORGOTTEN && third) {
                    cx.put(key, record.clone());
                    if !(FAULT == fault::NOT_REPLICATED && third) {
                        cx.broadcast(
                            cx.peers(),
                            Replicate {
                                key: key.clone(),
                                record: Some(record),
                            },
                        );
                    }
                }
                if FAULT == fault::STOPS && !loaded {
                    cx.wait_until(false)?;
                }
                cx.reply(client, reply);
            }
            ClientMessage::Get(GetMessage { key }) => {
                let record = cx.latest(key, |_| true).map(|record| record.into_owned());
                if FAULT != fault::SILENT_ON_GET {
                    cx.reply(client, GetReply { record });
                }
            }
            ClientMessage::Scan(_) => cx.reply(client, ScanReply { rows: Vec::new() }),
        }
        Ok(())
    }

    fn handle_server_message(
        &mut self,
        cx: &mut Context<Self>,
        _from: ServerId,
        message: &ServerMessage,
    ) -> Step {
        let ServerMessage::Replicate(Replicate { key, record }) = message;
        if let Some(record) = record {
            cx.put(key, record.clone());
        }
        Ok(())
    }
}

impl<const FAULT: u8> Protocol for Toy<FAULT> {
    const NAME: &'static str = "toy";
    type Metadata = Metadata;
    type Server = ToyServer<FAULT>;
    type Client = EventualClient;
    const VERSIONS: Versions = Versions::Single;

    fn claims() -> Claims {
        let models: &[&str] = if FAULT == fault::FORGOTTEN {
            &["read-your-writes"]
        } else {
            &["convergence"]
        };
        Claims {
            models,
            order: Order::Session,
            entity_groups: false,
            tolerates: &[],
        }
    }

    fn about() -> About {
        About {
            guarantee: "none",
            paper: "none",
            status: "broken",
            sources: Sources {
                server: "",
                client: "",
                metadata: "",
            },
        }
    }
}

/// A short checked run whose requests never time out, so that only what is tested can end it.
fn run_toy<const FAULT: u8>(observer: &dyn Observer) -> anyhow::Result<RunReport> {
    let scratch = ScratchDirectory::create()?;
    let options = RunOptions {
        servers: ServerOptions::new(2, 1, "memory", scratch.0.clone()),
        placement: Placement::Embedded(Layout::ReplicaLocal),
        workload: WorkloadSpec::load(
            "a",
            [
                ("operationcount", "2000"),
                ("recordcount", "100"),
                ("valuesize", "32"),
            ],
        )?,
        clients: 16,
        duration: Duration::from_secs(3_600),
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(3_600),
        seed: 1,
        check: Some(100_000),
        history: None,
        faults: Default::default(),
    };
    Ok(run::<Toy<FAULT>>(&options, observer)?.report)
}

#[test]
fn lost_replication_violates_convergence() {
    let check = run_toy::<{ fault::NOT_REPLICATED }>(&Silent)
        .unwrap()
        .check
        .unwrap();
    assert_eq!(
        (check.model.as_str(), check.verdict.as_str()),
        ("convergence", "violated")
    );
    assert!(
        check.explanation.contains("user"),
        "it names the key: {}",
        check.explanation
    );
}

#[test]
fn a_forgotten_write_violates_read_your_writes() {
    let check = run_toy::<{ fault::FORGOTTEN }>(&Silent)
        .unwrap()
        .check
        .unwrap();
    assert_eq!(
        (check.model.as_str(), check.verdict.as_str()),
        ("read-your-writes", "violated")
    );
    assert!(
        check.explanation.contains("user"),
        "it names the key: {}",
        check.explanation
    );
    assert!(
        check.explanation.contains("session"),
        "it names the session: {}",
        check.explanation
    );
}

#[test]
fn a_stopped_server_fails_the_run_with_its_reason() {
    let error = run_toy::<{ fault::STOPS }>(&Silent).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.starts_with("server ") && text.contains(" stopped: "),
        "{text}"
    );
}

/// A user who presses Ctrl-C in a phase, just before the third time that somebody looks.
struct Impatient {
    phase: &'static str,
    looks_left: Cell<Option<u32>>,
}

impl Impatient {
    fn during(phase: &'static str) -> Self {
        Impatient {
            phase,
            looks_left: Cell::new(None),
        }
    }
}

impl Observer for Impatient {
    fn phase(&self, name: &str, _total: u64) {
        if name == self.phase {
            self.looks_left.set(Some(3));
        }
    }

    fn done(&self, _done: u64) {}

    fn interrupts(&self) -> u32 {
        self.looks_left
            .set(self.looks_left.get().map(|left| left.saturating_sub(1)));
        u32::from(self.looks_left.get() == Some(0))
    }
}

#[test]
fn the_load_phase_listens_to_the_user_while_servers_are_silent() {
    let error = run_toy::<{ fault::SILENT_ON_PUT }>(&Impatient::during("loading")).unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
}

#[test]
fn waiting_for_replication_listens_to_the_user_while_servers_are_silent() {
    let error = run_toy::<{ fault::SILENT_ON_GET }>(&Impatient::during("replicating")).unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
}

#[test]
fn the_run_keeps_what_it_measured_when_the_user_ends_it_while_servers_are_silent() {
    let report = run_toy::<{ fault::SILENT_ON_UPDATE }>(&Impatient::during("running")).unwrap();
    assert!(report.operations > 0, "reads were answered");
    assert!(
        report.notes.iter().any(|note| note.contains("interrupted")),
        "{:?}",
        report.notes
    );
    let check = report.check.unwrap();
    assert_eq!((check.verdict.as_str(), check.operations), ("unknown", 0));
}

#[test]
fn the_check_listens_to_the_user() {
    // The replicas never agree, and the user does not wait for that.
    let report = run_toy::<{ fault::NOT_REPLICATED }>(&Impatient::during("settling")).unwrap();
    assert_eq!(report.check.unwrap().verdict, "unknown");
}
