//! A protocol that needs no client: every few milliseconds each server sends the next number to all others, and each
//! remembers what it got from whom.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dkvf_core::config::{NodeConfig, Properties};
use dkvf_core::{
    About, Claims, Client, ClientContext, ClientId, Context, Key, Message, Metadata, Order,
    Outcome, PeerState, Protocol, Reason, Server, ServerId, Sources, Step, Value, VersionKey,
    Versions,
};
use dkvf_sim::{Latency, Options, Simulation};
use serde::{Deserialize, Serialize};

use crate::common;

/// Period of the numbers, in microseconds.
pub const PERIOD_US: u64 = 3_000;

/// All there is to say.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub struct Word {
    /// Number of the message among those of its sender, from 1.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The sender's life: another one after it came back empty.
    #[prost(uint64, tag = "2")]
    pub life: u64,
    /// Superfluous when a newer one comes.
    #[prost(bool, tag = "3")]
    pub beat: bool,
    #[prost(bytes = "bytes", tag = "4")]
    pub ballast: Bytes,
}

impl Message for Word {
    fn encode(&self, buffer: &mut BytesMut) {
        prost::Message::encode(self, buffer).unwrap();
    }
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        prost::Message::decode(bytes)
    }
    fn name(&self) -> &'static str {
        if self.beat { "Beat" } else { "Number" }
    }
}

impl dkvf_core::Record for Word {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey(self.number.into())
    }
    fn detach(&mut self) {}
}

#[derive(Debug)]
pub struct Words;

impl Metadata for Words {
    type Record = Word;
    type ClientMessage = Word;
    type ServerMessage = Word;
    type ClientReply = Word;
}

/// What a server has sent and got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chatter {
    pub life: u64,
    pub sent: u64,
    pub beats: u64,
    /// Numbers by sender and its life, in the order they came.
    pub got: BTreeMap<(ServerId, u64), Vec<u64>>,
    /// Beats by sender and its life.
    pub got_beats: BTreeMap<(ServerId, u64), Vec<u64>>,
    /// What it was told about peers: 0 down, 1 up, 2 replaced; and when, on its monotonic clock.
    pub changes: Vec<(ServerId, u8, u64)>,
    last: u64,
    ballast: usize,
    /// Depends on more than the server's inputs, where the property `impure` asks for it.
    noise: u64,
    impure: bool,
}

/// What no simulator can bring back.
static NOISE: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    Number,
    Beat,
}

impl Server for Chatter {
    type Metadata = Words;
    type Timer = Timer;

    fn new(config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        cx.every(Timer::Number, Duration::from_micros(PERIOD_US));
        if config.protocol_properties.get("beats", true)? {
            cx.every(Timer::Beat, Duration::from_micros(PERIOD_US));
        }
        Ok(Chatter {
            life: cx.choose(1 << 60),
            sent: 0,
            beats: 0,
            got: BTreeMap::new(),
            got_beats: BTreeMap::new(),
            changes: Vec::new(),
            last: config.protocol_properties.get("last", u64::MAX)?,
            ballast: config.protocol_properties.get("ballast", 0)?,
            noise: 0,
            impure: config.protocol_properties.get("impure", false)?,
        })
    }

    fn handle_client_message(
        &mut self,
        cx: &mut Context<Self>,
        client: ClientId,
        message: &Word,
    ) -> Step {
        cx.reply(client, message.clone());
        Ok(())
    }

    fn handle_server_message(
        &mut self,
        _cx: &mut Context<Self>,
        from: ServerId,
        word: &Word,
    ) -> Step {
        let list = if word.beat {
            &mut self.got_beats
        } else {
            &mut self.got
        };
        list.entry((from, word.life)).or_default().push(word.number);
        Ok(())
    }

    fn handle_timer(&mut self, cx: &mut Context<Self>, timer: Timer) -> Step {
        if self.impure {
            self.noise = NOISE.fetch_add(1, Ordering::Relaxed);
        }
        let others: Vec<ServerId> = cx.topology().ids().filter(|id| *id != cx.me()).collect();
        match timer {
            Timer::Number if self.sent < self.last => {
                self.sent += 1;
                let ballast = Bytes::from(vec![7; self.ballast]);
                let word = Word {
                    number: self.sent,
                    life: self.life,
                    beat: false,
                    ballast,
                };
                others.into_iter().for_each(|to| cx.send(to, word.clone()));
            }
            Timer::Number => {}
            Timer::Beat => {
                self.beats += 1;
                let word = Word {
                    number: self.beats,
                    life: self.life,
                    beat: true,
                    ballast: Bytes::new(),
                };
                others
                    .into_iter()
                    .for_each(|to| cx.send_latest(to, word.clone()));
            }
        }
        Ok(())
    }

    fn handle_peer_change(
        &mut self,
        cx: &mut Context<Self>,
        peer: ServerId,
        state: PeerState,
    ) -> Step {
        let state = match state {
            PeerState::Down => 0,
            PeerState::Up => 1,
            PeerState::Replaced => 2,
        };
        self.changes.push((peer, state, cx.monotonic()));
        Ok(())
    }
}

pub struct Mute(ClientContext<Words>);

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
        Err(Reason::Unsupported("words").into())
    }
    async fn put(&mut self, _key: Key, _value: Value) -> Outcome<()> {
        Err(Reason::Unsupported("words").into())
    }
}

pub struct ChatterProtocol;

impl Protocol for ChatterProtocol {
    const NAME: &'static str = "chatter";
    type Metadata = Words;
    type Server = Chatter;
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

/// A cluster that chatters.
pub type Chat = Simulation<ChatterProtocol>;

pub const A: ServerId = ServerId(0);
pub const B: ServerId = ServerId(1);
pub const C: ServerId = ServerId(2);

/// Properties of the protocol.
pub fn properties(pairs: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::default();
    for (name, value) in pairs {
        properties.set(*name, *value);
    }
    properties
}

/// Three replicas exactly 1 ms apart, whose servers send 200 numbers each.
pub fn options(seed: u64) -> Options {
    Options {
        replicas: 3,
        partitions: 1,
        latency: Latency::Constant(1_000),
        properties: properties(&[("last", "200")]),
        strict: false,
        ..common::options(seed, 0)
    }
}

/// What a server that is up has sent and got.
pub fn server(chat: &Chat, id: ServerId) -> &Chatter {
    chat.server(id).expect("the server is up")
}

/// What `to` got from the present life of `from`.
pub fn got(chat: &Chat, from: ServerId, to: ServerId) -> Vec<u64> {
    let life = server(chat, from).life;
    server(chat, to)
        .got
        .get(&(from, life))
        .cloned()
        .unwrap_or_default()
}
