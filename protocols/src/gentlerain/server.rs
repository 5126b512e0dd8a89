//! The server of GentleRain (pseudocode in docs/protocols/gentlerain.md).

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Key, Server, ServerId, Step};
use serde::{Deserialize, Serialize};

use super::metadata::*;
use crate::causal::{CutOff as _, ReadOnly, Stabiliser, intervals, replica_of};

/// Server `(m, n)`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GentleRainServer {
    m: usize,
    /// Everything of replica i with ut ≤ `vv[i]` is inserted here.
    vv: Vec<u64>,
    /// Everything with ut ≤ `gst` is inserted on every server of this replica.
    gst: u64,
    /// No snapshot in use or to come is older.
    oldest: u64,
    stabiliser: Stabiliser<(u64, u64)>,
    rotx: ReadOnly<u64, Row>,
    heartbeat_us: u64,
}

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Time to look whether a heartbeat is due.
    Heartbeat,
    /// Time to compute the global stable time.
    Gst,
}

impl Server for GentleRainServer {
    type Metadata = Metadata;
    type Timer = Timer;

    fn new(config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        let (heartbeat, gst) = intervals(config, &["gst_computation_interval", "gst_comutation_interval"])?;
        cx.every(Timer::Heartbeat, heartbeat / 2);
        cx.every(Timer::Gst, gst);
        Ok(GentleRainServer {
            m: cx.replica(),
            vv: vec![0; cx.topology().replicas()],
            gst: 0,
            oldest: 0,
            stabiliser: Stabiliser::new(config, cx)?,
            rotx: ReadOnly::new(config),
            heartbeat_us: heartbeat.as_micros() as u64,
        })
    }

    fn handle_client_message(&mut self, cx: &mut Context<Self>, client: ClientId, message: &ClientMessage) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value, dt, gst }) => {
                self.refuse_unknown(cx, *gst)?; // GR.S1
                cx.refuse_drift(*dt)?; // GR.S2
                cx.merge_max(&mut self.gst, *gst); // GR.S1
                cx.wait_until_clock(dt + 1)?; // GR.S2
                let ut = cx.clock().max(self.vv[self.m] + 1); // GR.S3
                self.insert(cx, key, Record { value: value.clone(), ut, sr: self.m as u32 }); // GR.S3
                self.vv[self.m] = ut; // GR.S3
                cx.broadcast(cx.peers(), Replicate { key: key.clone(), value: value.clone(), ut }); // GR.S3
                cx.reply(client, PutReply { ut, gst: self.gst }); // GR.S3
            }
            ClientMessage::Get(GetMessage { key, gst }) => {
                self.refuse_unknown(cx, *gst)?; // GR.S8
                self.gst.join(gst); // GR.S8
                let record = cx.latest(key, |d| self.visible(d)).map(|d| d.into_owned()); // GR.S8
                cx.reply(client, GetReply { record, gst: self.gst }); // GR.S8
            }
            ClientMessage::Rotx(RotxMessage { keys, gst, dt }) => {
                self.rotx.refuse_large(cx, keys)?;
                self.refuse_unknown(cx, *gst)?; // GR.S10
                cx.refuse_drift(*dt)?; // GR.S10
                cx.merge_max(&mut self.gst, *gst); // GR.S10
                cx.wait_until_reached(self.gst, *dt)?; // GR.S10
                let st = self.gst; // GR.S10
                let (id, slices) = self.rotx.start(cx, client, keys, st); // GR.S11
                for (server, keys) in slices {
                    cx.send(server, SliceRequest { id, keys, st }); // GR.S11
                }
            }
        }
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, from: ServerId, message: &ServerMessage) -> Step {
        let i = replica_of(cx, from);
        match message {
            ServerMessage::Replicate(Replicate { key, value, ut }) => {
                self.insert(cx, key, Record { value: value.clone(), ut: *ut, sr: i as u32 }); // GR.S4
                self.vv[i].join(ut); // GR.S4
            }
            ServerMessage::Heartbeat(Heartbeat { time }) => self.vv[i].join(time), // GR.S6
            ServerMessage::Agg(Agg { lst, oldest }) => self.stabiliser.report(from, &(*lst, *oldest)), // GR.S7
            ServerMessage::Cut(Cut { gst, oldest }) => self.publish(cx, *gst, *oldest), // GR.S7
            ServerMessage::SliceRequest(SliceRequest { id, keys, st }) => {
                let in_reach = *st <= self.lst(); // GR.S12
                if in_reach {
                    self.gst.join(st); // GR.S12
                }
                let mut read = |key: &Key| cx.latest(key, |d| d.ut <= *st).map(|d| d.into_owned()); // GR.S12
                let (rows, refused) = self.rotx.read(keys, in_reach, |key| Row { key: key.clone(), record: read(key) }); // GR.S12
                cx.send(from, Slice { id: *id, rows, refused }); // GR.S12
            }
            ServerMessage::Slice(Slice { id, rows, refused }) => {
                if let Some((client, st, rows)) = self.rotx.slice(cx, *id, from, rows, *refused) {
                    cx.reply(client, RotxReply { rows, st }); // GR.S11
                }
            }
        }
        Ok(())
    }

    fn handle_timer(&mut self, cx: &mut Context<Self>, timer: Timer) -> Step {
        match timer {
            Timer::Heartbeat => {
                if cx.clock() >= self.vv[self.m] + self.heartbeat_us {
                    self.vv[self.m] = cx.clock(); // GR.S5
                    cx.broadcast_latest(cx.peers(), Heartbeat { time: self.vv[self.m] }); // GR.S5
                }
            }
            Timer::Gst => {
                self.rotx.expire(cx);
                let (lst, oldest) = self.stabiliser.aggregate((self.lst(), self.rotx.oldest(self.gst))); // GR.S7
                match self.stabiliser.parent() {
                    Some(parent) => cx.send_latest(parent, Agg { lst, oldest }), // GR.S7
                    None => self.publish(cx, lst, oldest),                       // GR.S7
                }
            }
        }
        Ok(())
    }

    fn visible(&self, d: &Record) -> bool {
        d.sr as usize == self.m || d.ut <= self.gst // GR.S8
    }

    fn invariant(&self) -> Result<(), String> {
        if self.oldest <= self.gst && self.gst <= self.lst() {
            return Ok(());
        }
        Err(format!("oldest snapshot {} ≤ stable {} ≤ received {} does not hold", self.oldest, self.gst, self.lst()))
    }
}

impl GentleRainServer {
    /// The local stable time: the own replica is part of it, so that no later local write is in a snapshot.
    fn lst(&self) -> u64 {
        self.vv.iter().copied().min().unwrap_or(0) // GR.S7
    }

    /// What is stable was received here, so a larger stable time is not one that this replica has told the client.
    fn refuse_unknown(&self, cx: &mut Context<Self>, gst: u64) -> Step {
        if gst > self.lst() { cx.refuse(Code::ClockDrift) } else { Ok(()) }
    }

    /// Inserts, and drops the versions of the key that no snapshot in use or to come can see.
    fn insert(&mut self, cx: &mut Context<Self>, key: &Key, d: Record) {
        cx.put(key, d);
        cx.prune(key, |d| d.ut <= self.oldest);
    }

    /// A cut-off of the root: merged, never assigned, and handed down.
    fn publish(&mut self, cx: &mut Context<Self>, gst: u64, oldest: u64) {
        self.gst.join(&gst); // GR.S7
        self.oldest.join(&oldest);
        for child in self.stabiliser.children() {
            cx.send_latest(child, Cut { gst, oldest }); // GR.S7
        }
    }
}
