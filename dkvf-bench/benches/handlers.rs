//! Nanoseconds per operation through client, handler and storage, without a network, for each protocol.
//!
//! `cargo bench -p dkvf-bench --bench handlers [-- --operations N] [PROTOCOL]`
//!
//! One server alone, whose timers run as often as its own time says, so that versions are pruned. For instructions instead of time:
//! `valgrind --tool=callgrind` on the benchmark's binary, with one protocol and few operations.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dkvf_core::config::NodeConfig;
use dkvf_core::storage::MemoryStore;
use dkvf_core::{
    Client, ClientContext, ClientId, ClientPort, Failure, Key, Metadata, Node, NodeOptions, Now,
    Outcome, Output, Protocol, Reason, ServerId, Topology,
};
use dkvf_protocols::Visitor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 10_000;
const VALUE_BYTES: usize = 64;

fn main() -> anyhow::Result<()> {
    let mut operations = 2_000_000;
    let mut chosen = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--operations" => {
                operations = words
                    .next()
                    .ok_or_else(|| anyhow::anyhow!("--operations needs a number"))?
                    .parse()?
            }
            name => chosen.push(name.to_owned()),
        }
    }
    println!(
        "{:>14} {:>8} {:>8}   ns per operation, {KEYS} keys, {VALUE_BYTES}-byte values",
        "protocol", "get", "put"
    );
    for name in dkvf_protocols::NAMES {
        if chosen.is_empty() || chosen.iter().any(|word| word == name) {
            let [get, put] = dkvf_protocols::visit(name, Measure(operations))
                .ok_or_else(|| anyhow::anyhow!("no protocol {name}"))??;
            println!("{name:>14} {get:>8.0} {put:>8.0}");
        }
    }
    Ok(())
}

struct Measure(usize);

impl Visitor for Measure {
    type Output = anyhow::Result<[f64; 2]>;

    fn visit<P: Protocol>(self) -> anyhow::Result<[f64; 2]> {
        let topology = Topology::grid(1, 1);
        let store = Box::new(MemoryStore::new(ServerId(0), P::VERSIONS));
        let now = Cell::new(Now {
            clock_us: 1 << 50,
            monotonic_us: 0,
        });
        let node = Node::<P::Server>::new(
            &NodeConfig::new("0_0"),
            topology.clone(),
            ServerId(0),
            store,
            now.get(),
            NodeOptions::default(),
        )?;
        let port = Rc::new(Direct::<P> {
            node: RefCell::new(node),
            now,
            reply: RefCell::default(),
        });
        let mut client = P::Client::new(ClientContext::new(port, topology, 0, 0));
        let keys: Vec<Key> = (0..KEYS)
            .map(|number| format!("user{number:019}").into())
            .collect();
        let value = |number: usize| vec![number as u8; VALUE_BYTES].into();
        for (number, key) in keys.iter().enumerate() {
            finish(client.put(key.clone(), value(number)))?;
        }
        // A stride that visits all keys in an order the cache does not guess.
        let order = |number: usize| number * 7_919 % KEYS;
        let get = time(self.0, |number| {
            finish(client.get(keys[order(number)].clone())).map(drop)
        })?;
        let put = time(self.0, |number| {
            finish(client.put(keys[order(number)].clone(), value(number)))
        })?;
        Ok([get, put])
    }
}

/// Nanoseconds per call.
fn time(operations: usize, mut operation: impl FnMut(usize) -> Outcome<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    for number in 0..operations {
        operation(number)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / operations as f64)
}

/// A client and a server face to face.
struct Direct<P: Protocol> {
    node: RefCell<Node<P::Server>>,
    now: Cell<Now>,
    reply: RefCell<Option<Outcome<<P::Metadata as Metadata>::ClientReply>>>,
}

impl<P: Protocol> ClientPort<P::Metadata> for Direct<P> {
    fn send(
        &self,
        _session: u32,
        _server: ServerId,
        request: u64,
        message: <P::Metadata as Metadata>::ClientMessage,
    ) -> Result<(), Reason> {
        let Now {
            clock_us,
            monotonic_us,
        } = self.now.get();
        // As if an operation took a microsecond.
        let now = Now {
            clock_us: clock_us + 1,
            monotonic_us: monotonic_us + 1,
        };
        self.now.set(now);
        let mut node = self.node.borrow_mut();
        if node
            .next_tick_us()
            .is_some_and(|due_us| due_us <= now.monotonic_us)
        {
            node.tick(now)
                .map_err(|error| Reason::NotSent(error.to_string()))?;
        }
        node.client_message(now, 0, ClientId(1), request, message)
            .map_err(|error| Reason::NotSent(error.to_string()))?;
        let mut outputs = node.take_outputs();
        for output in outputs.drain(..) {
            if let Output::Reply {
                slot,
                request,
                result,
                ..
            } = output
            {
                *self.reply.borrow_mut() = Some(
                    result
                        .clone()
                        .map_err(|code| Failure::Failed(Reason::Refused(code))),
                );
                node.keep_reply(slot, request, result);
            }
        }
        node.recycle(outputs);
        Ok(())
    }

    fn poll(
        &self,
        _session: u32,
        _request: u64,
        _waker: &Waker,
    ) -> Poll<Outcome<<P::Metadata as Metadata>::ClientReply>> {
        Poll::Ready(self.reply.take().unwrap_or(Err(Failure::Unknown)))
    }

    fn now_us(&self) -> u64 {
        self.now.get().monotonic_us
    }

    fn wake_at(&self, _session: u32, _time_us: u64) {}
}

/// Polls a client's operation to its end: here every request is answered at once.
fn finish<T>(operation: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    match std::pin::pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Failure::Unknown),
    }
}
