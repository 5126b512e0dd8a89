//! How fast the simulator is: messages a second of one core, beside a bare event loop that delivers as many.
//!
//! `cargo bench -p dkvf-bench --bench sim [-- --operations N]`
//!
//! - *bare*: a binary heap of messages by time and a table of handlers that do nothing but send the next one.
//! - *empty*: the simulator with servers whose handlers do the same.
//! - protocols: whole runs of YCSB's workload a with GentleRain and the others, on memory.
//! - *idle*: 100 servers of the eventual protocol for ten virtual minutes without clients.
//!
//! Seconds are those for which this thread had a processor, where the system tells: other work on the machine makes
//! them a little longer, not many times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;
use std::time::Instant;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dkvf_core::config::NodeConfig;
use dkvf_core::{
    About, Claims, Client, ClientContext, ClientId, Context, Key, Message, Metadata, Order,
    Outcome, Protocol, Reason, Record, Server, ServerId, Sources, Step, Value, VersionKey,
    Versions,
};
use dkvf_protocols::Visitor;
use dkvf_sim::{Latency, Options, Simulation};
use dkvf_workload::WorkloadSpec;
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SERVERS: u16 = 6;
/// Messages that circulate at the same time.
const TOKENS: u64 = 60;
const LATENCY_US: u64 = 1_000;
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    let mut operations = 300_000;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--operations" => {
                operations = words
                    .next()
                    .ok_or_else(|| anyhow::anyhow!("--operations needs a number"))?
                    .parse()?;
            }
            other => anyhow::bail!("{other}: only --operations is known"),
        }
    }
    let deliveries = 3_000_000;
    let (mut bare, mut empty) = (Vec::new(), Vec::new());
    // In turn, so that a noisy machine is noisy for both.
    for _ in 0..ROUNDS {
        bare.push(bare_loop(deliveries));
        empty.push(empty_handlers(deliveries)?);
    }
    let (bare, empty) = (median(bare), median(empty));
    println!("{:>14} {:>12} {:>12}", "", "messages/s", "events/s");
    println!("{:>14} {bare:>12.0} {bare:>12.0}", "bare");
    println!("{:>14} {empty:>12.0} {empty:>12.0}", "empty");
    let mut gentlerain = 0.0;
    for name in dkvf_protocols::NAMES {
        let runs: anyhow::Result<Vec<(f64, f64)>> = (0..3)
            .map(|_| {
                dkvf_protocols::visit(name, Load(operations))
                    .unwrap_or_else(|| anyhow::bail!("no {name}"))
            })
            .collect();
        let runs = runs?;
        let messages = median(runs.iter().map(|run| run.0).collect());
        let events = median(runs.iter().map(|run| run.1).collect());
        if *name == "gentlerain" {
            gentlerain = messages;
        }
        println!("{name:>14} {messages:>12.0} {events:>12.0}");
    }
    let idle =
        dkvf_protocols::visit("eventual", Idle).unwrap_or_else(|| anyhow::bail!("no eventual"))?;
    println!(
        "{:>14} {idle:>12.6} s for 100 servers x 10 virtual minutes",
        "idle"
    );
    println!(
        "sim: over bare {:.2} gentlerain {gentlerain:.0} messages/s idle {idle:.6} s",
        empty / bare
    );
    Ok(())
}

/// Seconds for which this thread has had a processor, or of real time where the system does not tell.
fn processor_seconds() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A whole run; messages and events a second.
struct Load(u64);

impl Visitor for Load {
    type Output = anyhow::Result<(f64, f64)>;
    fn visit<P: Protocol>(self) -> Self::Output {
        let overrides = [
            ("recordcount", "1000"),
            ("fieldcount", "1"),
            ("fieldlength", "64"),
        ];
        let workload = WorkloadSpec::load("a", overrides)?;
        let mut options = Options {
            clients: 64,
            ..Options::new(1, workload, self.0)
        };
        options.visibility.one_in = 0;
        let start = processor_seconds();
        let outcome = dkvf_sim::run::<P>(&options)?;
        let seconds = processor_seconds() - start;
        anyhow::ensure!(outcome.failure.is_none(), "{:?}", outcome.failure);
        Ok((
            outcome.deliveries as f64 / seconds,
            outcome.events as f64 / seconds,
        ))
    }
}

/// Seconds of real time, for it is too short for the other, for ten virtual minutes of 100 servers without clients.
struct Idle;

impl Visitor for Idle {
    type Output = anyhow::Result<f64>;
    fn visit<P: Protocol>(self) -> anyhow::Result<f64> {
        let workload = WorkloadSpec::load("a", [])?;
        let options = Options {
            replicas: 10,
            partitions: 10,
            ..Options::new(1, workload, 0)
        };
        let start = Instant::now();
        let mut simulation = Simulation::<P>::new(&options)?;
        simulation.run_until(600_000_000);
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Deliveries a second of a loop that has a heap and nothing else.
fn bare_loop(deliveries: u64) -> f64 {
    struct Flying(u64, u64, u16, Word);
    impl PartialEq for Flying {
        fn eq(&self, other: &Self) -> bool {
            (self.0, self.1) == (other.0, other.1)
        }
    }
    impl Eq for Flying {}
    impl PartialOrd for Flying {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Flying {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            (self.0, self.1).cmp(&(other.0, other.1))
        }
    }
    trait Handler {
        fn handle(&mut self, word: &Word) -> (u16, Word);
    }
    struct Next(u16);
    impl Handler for Next {
        fn handle(&mut self, word: &Word) -> (u16, Word) {
            ((self.0 + 1) % SERVERS, word.clone())
        }
    }
    let mut handlers: Vec<Box<dyn Handler>> = (0..SERVERS)
        .map(|server| Box::new(Next(server)) as _)
        .collect();
    let mut heap = BinaryHeap::new();
    for token in 0..TOKENS {
        heap.push(Reverse(Flying(
            token,
            token,
            (token % u64::from(SERVERS)) as u16,
            Word::new(),
        )));
    }
    let mut number = TOKENS;
    let start = processor_seconds();
    for _ in 0..deliveries {
        let Some(Reverse(Flying(time_us, _, to, word))) = heap.pop() else {
            break;
        };
        let (to, word) = handlers[usize::from(to)].handle(&word);
        number += 1;
        heap.push(Reverse(Flying(time_us + LATENCY_US, number, to, word)));
    }
    deliveries as f64 / (processor_seconds() - start)
}

/// Deliveries a second of the simulator with handlers that send the next message.
fn empty_handlers(deliveries: u64) -> anyhow::Result<f64> {
    let workload = WorkloadSpec::load("a", [])?;
    let latency = Latency::Constant(LATENCY_US);
    let options = Options {
        replicas: SERVERS,
        partitions: 1,
        latency,
        ..Options::new(1, workload, 0)
    };
    let mut simulation = Simulation::<Relay>::new(&options)?;
    let start = processor_seconds();
    simulation.run_until(deliveries / TOKENS * LATENCY_US);
    let seconds = processor_seconds() - start;
    anyhow::ensure!(simulation.failure().is_none(), "{:?}", simulation.failure());
    Ok(simulation.deliveries() as f64 / seconds)
}

/// A message of the size of a small write.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
struct Word {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
    #[prost(uint64, tag = "3")]
    stamp: u64,
}

impl Word {
    fn new() -> Self {
        Word {
            key: Bytes::from_static(b"user6284781860667377211"),
            value: vec![7; 64].into(),
            stamp: 1 << 50,
        }
    }
}

impl Message for Word {
    fn encode(&self, buffer: &mut BytesMut) {
        // A growing buffer takes everything.
        let _ = prost::Message::encode(self, buffer);
    }
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        prost::Message::decode(bytes)
    }
    fn name(&self) -> &'static str {
        "Word"
    }
}

impl Record for Word {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey(self.stamp.into())
    }
    fn detach(&mut self) {}
}

#[derive(Debug)]
struct Words;

impl Metadata for Words {
    type Record = Word;
    type ClientMessage = Word;
    type ServerMessage = Word;
    type ClientReply = Word;
}

#[derive(Clone, Serialize, Deserialize)]
struct Handler;

impl Handler {
    fn next(cx: &Context<Self>) -> ServerId {
        ServerId((cx.me().0 + 1) % SERVERS)
    }
}

impl Server for Handler {
    type Metadata = Words;
    type Timer = ();

    fn new(_config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        for _ in 0..TOKENS / u64::from(SERVERS) {
            cx.send(Handler::next(cx), Word::new());
        }
        Ok(Handler)
    }

    fn handle_client_message(
        &mut self,
        cx: &mut Context<Self>,
        client: ClientId,
        word: &Word,
    ) -> Step {
        cx.reply(client, word.clone());
        Ok(())
    }

    fn handle_server_message(
        &mut self,
        cx: &mut Context<Self>,
        _from: ServerId,
        word: &Word,
    ) -> Step {
        cx.send(Handler::next(cx), word.clone());
        Ok(())
    }
}

struct Mute(ClientContext<Words>);

#[async_trait(?Send)]
impl Client for Mute {
    type Metadata = Words;
    fn new(cx: ClientContext<Words>) -> Self {
        Mute(cx)
    }
    fn context(&mut self) -> &mut ClientContext<Words> {
        &mut self.0
    }
    async fn get(&mut self, _key: Key) -> Outcome<Option<Value>> {
        Err(Reason::Unsupported("relays").into())
    }
    async fn put(&mut self, _key: Key, _value: Value) -> Outcome<()> {
        Err(Reason::Unsupported("relays").into())
    }
}

struct Relay;

impl Protocol for Relay {
    const NAME: &'static str = "relay";
    type Metadata = Words;
    type Server = Handler;
    type Client = Mute;
    const VERSIONS: Versions = Versions::Single;
    fn claims() -> Claims {
        Claims {
            models: &[],
            order: Order::None,
            entity_groups: false,
            tolerates: &[],
        }
    }
    fn about() -> About {
        About {
            guarantee: "",
            paper: "",
            status: "",
            sources: Sources {
                server: "",
                client: "",
                metadata: "",
            },
        }
    }
}
