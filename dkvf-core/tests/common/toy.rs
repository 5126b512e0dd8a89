//! A protocol whose requests say what its servers shall do: send, wait, answer, break a rule.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dkvf_core::config::NodeConfig;
use dkvf_core::{
    About, Claims, Client, ClientContext, ClientId, Context, Key, Message, Metadata, Order,
    Outcome, Parked, PeerState, Progress, Protocol, Server, ServerId, Sources, Step, Value,
    VersionKey, Versions,
};
use serde::{Deserialize, Serialize};

/// What a request or a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Verb {
    /// Not a message.
    Nothing = 0,
    /// Answer with `payload`.
    Echo = 1,
    /// Send the numbers `first..first + count` to `peer`, each with `bytes` bytes.
    Append = 2,
    /// The same with `send_latest`.
    AppendLatest = 3,
    /// Remember `first` and whom it came from: what the two above send.
    Number = 4,
    /// Answer with the numbers that came from `peer`.
    Received = 5,
    /// Answer with the changes of links, see [`change`].
    Changes = 6,
    /// Count, and answer with the count.
    Count = 7,
    /// Answer with `bytes` bytes.
    Big = 8,
    /// Raise value `peer` to `first`.
    Raise = 9,
    /// Wait until value 0 has reached `first`.
    Reach = 10,
    /// Wait until values 0 and 1 have reached `first` and `count`.
    ReachAll = 11,
    /// Open gate `first`.
    Open = 12,
    /// Wait for gate `first`.
    Until = 13,
    /// Wait for gate `first` and hold the link meanwhile.
    Hold = 14,
    /// Wait until the clock has reached `first`.
    Clock = 15,
    /// Wait until the key `payload` is there.
    Key = 16,
    /// Write the key `payload`.
    Put = 17,
    /// Wake those who wait for the key `payload`.
    Wake = 18,
    /// Do not answer.
    Silent = 19,
    /// Answer twice.
    Twice = 20,
    /// Start the periodic timer `first` with a period of `count` microseconds.
    Every = 21,
    /// Start the single timer `first`, `count` microseconds from now.
    After = 22,
    /// Cancel the timer `first`.
    Cancel = 23,
    /// Write, then wait.
    EffectFirst = 24,
    /// Wait and go on regardless.
    IgnoreWait = 25,
    /// Count before a wait for gate `first`.
    ChangeFirst = 26,
    /// Raise value 0 to `count` before a wait for gate `first`.
    MergeFirst = 27,
    /// Send the number `first` and a wait for the key `payload` and the write of it to itself.
    TellSelf = 28,
    /// Refuse the stamp `first` if it is too far ahead.
    Drift = 29,
    /// Never come to rest again.
    Spin = 30,
    /// Wait until value 0 has reached `first`, then for gate `count`.
    ReachThenUntil = 31,
    /// Wait for gate `first`, then hold the link for gate `count`.
    UntilThenHold = 32,
    /// A rule that waits.
    WaitInRule = 33,
    /// Have `peer` send the number `first` with `bytes` bytes to node 1.
    Forward = 34,
    /// The same with `send_latest`.
    ForwardLatest = 35,
    /// Send the request in `payload` to `peer`.
    Tell = 36,
    /// Ignore a refusal.
    IgnoreRefusal = 37,
    /// Send to node 1, then put the key in `payload`, then send again.
    SendAndPut = 38,
    /// Refuse a key of another partition.
    Foreign = 39,
    /// Put the key in `payload`, then have every other kind of effect.
    PutFirst = 40,
    /// Break a rule once the clock has reached `first`.
    ClockThenIgnoreWait = 41,
}

/// A request, and a message between servers.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub struct Ask {
    #[prost(enumeration = "Verb", tag = "1")]
    verb: i32,
    #[prost(uint32, tag = "2")]
    peer: u32,
    #[prost(uint64, tag = "3")]
    first: u64,
    #[prost(uint64, tag = "4")]
    count: u64,
    #[prost(uint64, tag = "5")]
    bytes: u64,
    #[prost(bytes = "bytes", tag = "6")]
    payload: Bytes,
    /// Noted when it was done, unless 0.
    #[prost(uint64, tag = "7")]
    id: u64,
}

impl Ask {
    pub fn to(verb: Verb) -> Self {
        Ask {
            verb: verb as i32,
            ..Ask::default()
        }
    }
    pub fn peer(self, peer: u32) -> Self {
        Ask { peer, ..self }
    }
    pub fn first(self, first: u64) -> Self {
        Ask { first, ..self }
    }
    pub fn count(self, count: u64) -> Self {
        Ask { count, ..self }
    }
    pub fn bytes(self, bytes: u64) -> Self {
        Ask { bytes, ..self }
    }
    pub fn payload(self, payload: impl Into<Bytes>) -> Self {
        Ask {
            payload: payload.into(),
            ..self
        }
    }
    pub fn id(self, id: u64) -> Self {
        Ask { id, ..self }
    }
    /// Sends `count` numbers of `bytes` bytes from `first` on to `peer`.
    pub fn append(peer: u32, first: u64, count: u64, bytes: u64) -> Self {
        Ask::to(Verb::Append)
            .peer(peer)
            .first(first)
            .count(count)
            .bytes(bytes)
    }
    pub fn echo(payload: &'static str) -> Self {
        Ask::to(Verb::Echo).payload(payload)
    }
}

impl Message for Ask {
    fn encode(&self, buffer: &mut BytesMut) {
        prost::Message::encode_raw(self, buffer);
    }
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }
    #[expect(deprecated, reason = "prost offers no other way to make this error")]
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        let ask: Ask = prost::Message::decode(bytes)?;
        match Verb::try_from(ask.verb) {
            Ok(Verb::Nothing) | Err(_) => Err(prost::DecodeError::new("Ask: no verb")),
            Ok(_) => Ok(ask),
        }
    }
    fn name(&self) -> &'static str {
        "Ask"
    }
}

/// A reply.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub struct Answer {
    #[prost(bytes = "bytes", tag = "1")]
    pub payload: Bytes,
    #[prost(uint64, repeated, tag = "2")]
    pub numbers: Vec<u64>,
}

impl Message for Answer {
    fn encode(&self, buffer: &mut BytesMut) {
        prost::Message::encode_raw(self, buffer);
    }
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        prost::Message::decode(bytes)
    }
    fn name(&self) -> &'static str {
        "Answer"
    }
}

/// A version of a key.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub struct Record {
    #[prost(uint64, tag = "1")]
    stamp: u64,
}

impl dkvf_core::Record for Record {
    fn version(&self, node: ServerId) -> VersionKey {
        VersionKey::stamped(self.stamp, u64::from(node.0))
    }
    fn detach(&mut self) {}
}

/// The messages.
#[derive(Debug)]
pub struct ToyMetadata;

impl Metadata for ToyMetadata {
    type Record = Record;
    type ClientMessage = Ask;
    type ServerMessage = Ask;
    type ClientReply = Answer;
}

/// A server.
#[derive(Clone, Serialize, Deserialize)]
pub struct Toy {
    received: Vec<Vec<u64>>,
    changes: Vec<u64>,
    /// Values that only grow.
    values: [u64; 2],
    /// Follows value 0 one by one, by a rule.
    level: u64,
    gates: Vec<u64>,
    count: u64,
    /// Ids in the order in which they were done.
    pub done: Vec<u64>,
    /// Timers in the order in which they fired.
    pub fired: Vec<u64>,
    spinning: bool,
    waits_in_rule: bool,
    /// How often a handler ran; no part of the state.
    #[serde(skip)]
    pub calls: u64,
}

/// A change of the link to `peer`, as [`Verb::Changes`] reports it.
pub fn change(peer: u64, state: PeerState) -> u64 {
    10 * peer
        + match state {
            PeerState::Down => 1,
            PeerState::Up => 2,
            PeerState::Replaced => 3,
        }
}

impl Server for Toy {
    type Metadata = ToyMetadata;
    type Timer = u64;

    fn new(config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        // Greets a peer at once, to show that what is sent from here leaves the node.
        if let Some(peer) = config
            .protocol_properties
            .get("greets", -1)?
            .try_into()
            .ok()
            .map(ServerId)
        {
            cx.send(
                peer,
                Ask::to(Verb::Number)
                    .first(7)
                    .bytes(1)
                    .payload([7].to_vec()),
            );
        }
        Ok(Toy {
            received: vec![Vec::new(); cx.topology().members().len()],
            changes: Vec::new(),
            values: [0; 2],
            level: 0,
            gates: Vec::new(),
            count: 0,
            done: Vec::new(),
            fired: Vec::new(),
            spinning: false,
            waits_in_rule: false,
            calls: 0,
        })
    }

    fn handle_client_message(
        &mut self,
        cx: &mut Context<Self>,
        client: ClientId,
        ask: &Ask,
    ) -> Step {
        let Some(answer) = self.act(cx, cx.me(), ask)? else {
            return Ok(());
        };
        if ask.verb() == Verb::Twice {
            cx.reply(client, answer.clone());
        }
        cx.reply(client, answer);
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, from: ServerId, ask: &Ask) -> Step {
        self.act(cx, from, ask).map(|_| ())
    }

    fn handle_timer(&mut self, _cx: &mut Context<Self>, timer: u64) -> Step {
        self.fired.push(timer);
        Ok(())
    }

    fn handle_peer_change(
        &mut self,
        _cx: &mut Context<Self>,
        peer: ServerId,
        state: PeerState,
    ) -> Step {
        self.changes.push(change(u64::from(peer.0), state));
        Ok(())
    }

    fn rules(&mut self, cx: &mut Context<Self>) -> Progress {
        if self.waits_in_rule {
            let _ = cx.wait_until(false);
        }
        if self.spinning {
            return Progress::Made;
        }
        if self.level < self.values[0] {
            self.level += 1;
            return Progress::Made;
        }
        Progress::None
    }

    fn invariant(&self) -> Result<(), String> {
        if self.count < 1_000_000 {
            Ok(())
        } else {
            Err("it counted too far".to_owned())
        }
    }
}

impl Toy {
    fn act(
        &mut self,
        cx: &mut Context<Self>,
        from: ServerId,
        ask: &Ask,
    ) -> Result<Option<Answer>, Parked> {
        self.calls += 1;
        let mut answer = Answer::default();
        let is_open = |gates: &[u64], gate: u64| gates.contains(&gate);
        match ask.verb() {
            Verb::Nothing => unreachable!("not decoded"),
            Verb::Echo => answer.payload = ask.payload.clone(),
            Verb::Append | Verb::AppendLatest => {
                for number in ask.first..ask.first + ask.count {
                    let payload = vec![number as u8; ask.bytes as usize];
                    let message = Ask::to(Verb::Number)
                        .first(number)
                        .bytes(ask.bytes)
                        .payload(payload);
                    let peer = ServerId(ask.peer as u16);
                    if ask.verb() == Verb::Append {
                        cx.send(peer, message)
                    } else {
                        cx.send_latest(peer, message)
                    }
                }
            }
            Verb::Number => {
                let intact = ask.payload.len() as u64 == ask.bytes
                    && ask.payload.iter().all(|byte| *byte == ask.first as u8);
                assert!(intact, "number {} was damaged", ask.first);
                self.received[from.index()].push(ask.first);
            }
            Verb::Received => answer.numbers = self.received[ask.peer as usize].clone(),
            Verb::Changes => answer.numbers = self.changes.clone(),
            Verb::Count => {
                self.count += ask.count.max(1);
                answer.numbers.push(self.count);
            }
            Verb::Big => answer.payload = vec![7; ask.bytes as usize].into(),
            Verb::Raise => {
                self.values[ask.peer as usize] = self.values[ask.peer as usize].max(ask.first)
            }
            Verb::Reach => cx.wait_until_reached(self.values[0], ask.first)?,
            Verb::ReachAll => cx.wait_until_all_reached(&self.values, &[ask.first, ask.count])?,
            Verb::Open => self.gates.push(ask.first),
            Verb::Until => cx.wait_until(is_open(&self.gates, ask.first))?,
            Verb::Hold => cx.hold_link_until(is_open(&self.gates, ask.first))?,
            Verb::Clock => cx.wait_until_clock(ask.first)?,
            Verb::Key => {
                let there = cx.latest(&ask.payload, |_| true).is_some();
                cx.wait_on(&ask.payload, there)?;
            }
            Verb::Put => {
                cx.put(&ask.payload, Record { stamp: 1 });
            }
            Verb::Wake => cx.wake(&ask.payload),
            Verb::Silent => return Ok(None),
            Verb::Twice => {}
            Verb::Every => cx.every(ask.first, Duration::from_micros(ask.count)),
            Verb::After => cx.after(ask.first, Duration::from_micros(ask.count)),
            Verb::Cancel => cx.cancel(ask.first),
            Verb::EffectFirst => {
                cx.put(b"effect", Record { stamp: 1 });
                cx.wait_until(false)?;
            }
            Verb::IgnoreWait => drop(cx.wait_until(false)),
            Verb::ClockThenIgnoreWait => {
                cx.wait_until_clock(ask.first)?;
                drop(cx.wait_until(false));
            }
            Verb::IgnoreRefusal => drop(cx.refuse(dkvf_core::Code::Unavailable)),
            Verb::Foreign => cx.refuse_foreign(&ask.payload)?,
            Verb::SendAndPut => {
                cx.send(ServerId(1), Ask::to(Verb::Count));
                cx.put(&ask.payload, Record { stamp: 1 });
                cx.send(ServerId(1), Ask::to(Verb::Count));
            }
            Verb::PutFirst => {
                cx.put(&ask.payload, Record { stamp: 1 });
                cx.put(b"another", Record { stamp: 1 });
                cx.send(cx.me(), Ask::to(Verb::Count));
                cx.send_latest(ServerId(1), Ask::to(Verb::Count));
                cx.broadcast(cx.peers(), Ask::to(Verb::Count));
                cx.broadcast_latest(cx.peers(), Ask::to(Verb::Count));
                cx.every(1, Duration::from_millis(1));
                cx.after(2, Duration::from_millis(1));
                cx.wait_until(false)?;
            }
            Verb::ChangeFirst => {
                self.count += 1;
                cx.wait_until(is_open(&self.gates, ask.first))?;
            }
            Verb::MergeFirst => {
                cx.merge_max(&mut self.values[0], ask.count);
                cx.wait_until(is_open(&self.gates, ask.first))?;
            }
            Verb::TellSelf => {
                let me = cx.me();
                cx.send(me, Ask::to(Verb::Number).first(ask.first));
                cx.send(
                    me,
                    Ask::to(Verb::Key)
                        .payload(ask.payload.clone())
                        .id(ask.first),
                );
                cx.send(me, Ask::to(Verb::Put).payload(ask.payload.clone()));
            }
            Verb::Drift => cx.refuse_drift(ask.first)?,
            Verb::Forward | Verb::ForwardLatest => {
                let verb = if ask.verb() == Verb::Forward {
                    Verb::Append
                } else {
                    Verb::AppendLatest
                };
                cx.send(
                    ServerId(ask.peer as u16),
                    Ask::to(verb)
                        .peer(1)
                        .first(ask.first)
                        .count(1)
                        .bytes(ask.bytes),
                );
            }
            Verb::Tell => {
                let told = <Ask as Message>::decode(ask.payload.clone()).expect("a request");
                cx.send(ServerId(ask.peer as u16), told);
            }
            Verb::Spin => self.spinning = true,
            Verb::ReachThenUntil => {
                cx.wait_until_reached(self.values[0], ask.first)?;
                cx.wait_until(is_open(&self.gates, ask.count))?;
            }
            Verb::UntilThenHold => {
                cx.wait_until(is_open(&self.gates, ask.first))?;
                cx.hold_link_until(is_open(&self.gates, ask.count))?;
            }
            Verb::WaitInRule => self.waits_in_rule = true,
        }
        if ask.id > 0 {
            self.done.push(ask.id);
        }
        Ok(Some(answer))
    }
}

/// A session: a store of empty values.
pub struct ToyClient {
    cx: ClientContext<ToyMetadata>,
}

#[async_trait(?Send)]
impl Client for ToyClient {
    type Metadata = ToyMetadata;

    fn new(cx: ClientContext<ToyMetadata>) -> Self {
        ToyClient { cx }
    }

    fn context(&mut self) -> &mut ClientContext<ToyMetadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let server = self.cx.server_of(&key);
        let answer: Answer = self
            .cx
            .request(server, Ask::to(Verb::Echo).payload(key))
            .await?;
        Ok(Some(answer.payload))
    }

    async fn put(&mut self, key: Key, _value: Value) -> Outcome<()> {
        let server = self.cx.server_of(&key);
        let _: Answer = self
            .cx
            .request(server, Ask::to(Verb::Put).payload(key))
            .await?;
        Ok(())
    }
}

/// The protocol.
pub struct ToyProtocol;

impl Protocol for ToyProtocol {
    const NAME: &'static str = "toy";
    type Metadata = ToyMetadata;
    type Server = Toy;
    type Client = ToyClient;
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
            guarantee: "none",
            paper: "none",
            status: "a toy for tests",
            sources: Sources {
                server: "",
                client: "",
                metadata: "",
            },
        }
    }
}
