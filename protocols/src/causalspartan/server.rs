//! The server of CausalSpartan (pseudocode in docs/protocols/causalspartan.md, variant A).

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Key, Server, ServerId, Step};
use serde::{Deserialize, Serialize};

use super::metadata::*;
use crate::causal::{CutOff as _, Hlc, ReadOnly, Stabiliser, covers, intervals, refuse_hostile, refuse_longer, replica_of};

/// Server `(m, n)`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CausalSpartanServer {
    m: usize,
    hlc: Hlc,
    /// Everything of replica i with ut ≤ `vv[i]` is inserted here.
    vv: Vec<u64>,
    /// Everything of replica i with ut ≤ `dsv[i]` is inserted on every server of this replica.
    dsv: Vec<u64>,
    /// No snapshot in use or to come is older.
    oldest: Vec<u64>,
    stabiliser: Stabiliser<(Vec<u64>, Vec<u64>)>,
    rot: ReadOnly<Vec<u64>, Row>,
    last_send_us: u64,
    heartbeat_us: u64,
}

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Time to look whether a heartbeat is due.
    Heartbeat,
    /// Time to compute the stable vector.
    Dsv,
}

impl Server for CausalSpartanServer {
    type Metadata = Metadata;
    type Timer = Timer;

    fn new(config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        let (heartbeat, dsv) = intervals(config, &["dsv_computation_interval", "dsv_comutation_interval"])?;
        cx.every(Timer::Heartbeat, heartbeat / 2);
        cx.every(Timer::Dsv, dsv);
        let zeros = vec![0; cx.topology().replicas()];
        Ok(CausalSpartanServer {
            m: cx.replica(),
            hlc: Hlc::new(config),
            vv: zeros.clone(),
            dsv: zeros.clone(),
            oldest: zeros,
            stabiliser: Stabiliser::new(config, cx)?,
            rot: ReadOnly::new(config),
            last_send_us: cx.monotonic(),
            heartbeat_us: heartbeat.as_micros() as u64,
        })
    }

    fn handle_client_message(&mut self, cx: &mut Context<Self>, client: ClientId, message: &ClientMessage) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value, ds, dsv }) => {
                refuse_hostile(cx, ds)?; // CS.S1
                self.refuse_unknown(cx, dsv)?; // CS.S1
                self.dsv.join(dsv); // CS.S1
                let ut = self.hlc.tick(cx.clock(), ds); // CS.S2
                self.insert(cx, key, Record { value: value.clone(), ut, sr: self.m as u32, ds: ds.clone() }); // CS.S2
                self.vv[self.m] = ut; // CS.S2
                cx.broadcast(cx.peers(), Replicate { key: key.clone(), value: value.clone(), ut, ds: ds.clone() }); // CS.S2
                self.last_send_us = cx.monotonic(); // CS.S4
                cx.reply(client, PutReply { ut, dsv: self.dsv.clone() }); // CS.S2
            }
            ClientMessage::Get(GetMessage { key, dsv }) => {
                self.refuse_unknown(cx, dsv)?; // CS.S7
                self.dsv.join(dsv); // CS.S7
                let record = cx.latest(key, |d| self.visible(d)).map(|d| d.into_owned()); // CS.S7
                cx.reply(client, GetReply { record, dsv: self.dsv.clone() }); // CS.S7
            }
            ClientMessage::Rot(RotMessage { keys, dsv, ds }) => {
                self.rot.refuse_large(cx, keys)?;
                refuse_hostile(cx, ds)?; // CS.R1
                self.refuse_unknown(cx, dsv)?; // CS.R1
                self.dsv.join(dsv); // CS.R1
                let remote: Vec<_> = ds.iter().enumerate().map(|(i, h)| if i == self.m { 0 } else { *h }).collect(); // CS.R1
                cx.wait_until_all_reached(&self.dsv, &remote)?; // CS.R1
                let mut sv = self.dsv.clone(); // CS.R1
                sv[self.m] = sv[self.m].max(ds.get(self.m).copied().unwrap_or(0)).max(self.hlc.last()); // CS.R1
                let (id, slices) = self.rot.start(cx, client, keys, sv.clone()); // CS.R2
                for (server, keys) in slices {
                    cx.send(server, SliceRequest { id, keys, sv: sv.clone(), dsv: self.dsv.clone() }); // CS.R2
                }
            }
        }
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, from: ServerId, message: &ServerMessage) -> Step {
        let (i, replicas) = (replica_of(cx, from), self.vv.len());
        match message {
            ServerMessage::Replicate(Replicate { key, value, ut, ds }) => {
                refuse_longer(cx, ds, replicas)?;
                self.insert(cx, key, Record { value: value.clone(), ut: *ut, sr: i as u32, ds: ds.clone() }); // CS.S3
                self.vv[i].join(ut); // CS.S3
            }
            ServerMessage::Heartbeat(Heartbeat { time }) => self.vv[i].join(time), // CS.S5
            ServerMessage::Agg(Agg { vec, oldest }) => {
                refuse_longer(cx, vec, replicas)?;
                refuse_longer(cx, oldest, replicas)?;
                self.stabiliser.report(from, &(vec.clone(), oldest.clone())); // CS.S6
            }
            ServerMessage::Cut(Cut { dsv, oldest }) => {
                refuse_longer(cx, dsv, replicas)?;
                refuse_longer(cx, oldest, replicas)?;
                self.publish(cx, dsv, oldest); // CS.S6
            }
            ServerMessage::SliceRequest(SliceRequest { id, keys, sv, dsv }) => {
                refuse_longer(cx, sv, replicas)?;
                refuse_longer(cx, dsv, replicas)?;
                let in_reach = covers(&self.vv, dsv) && self.hlc.merge(cx.clock(), sv.get(self.m).copied().unwrap_or(0)); // CS.R3
                if in_reach {
                    self.dsv.join(dsv); // CS.R3
                }
                let mut read = |key: &Key| cx.latest(key, |d| in_snapshot(d, sv)).map(|d| d.into_owned()); // CS.R3
                let (rows, refused) = self.rot.read(keys, in_reach, |key| Row { key: key.clone(), record: read(key) }); // CS.R3
                cx.send(from, Slice { id: *id, rows, refused }); // CS.R3
            }
            ServerMessage::Slice(Slice { id, rows, refused }) => {
                if let Some((client, _, rows)) = self.rot.slice(cx, *id, from, rows, *refused) {
                    cx.reply(client, RotReply { rows, dsv: self.dsv.clone() }); // CS.R2
                }
            }
        }
        Ok(())
    }

    fn handle_timer(&mut self, cx: &mut Context<Self>, timer: Timer) -> Step {
        match timer {
            Timer::Heartbeat => {
                if cx.monotonic() >= self.last_send_us + self.heartbeat_us {
                    self.vv[self.m] = self.hlc.tick(cx.clock(), &[]); // CS.S4
                    cx.broadcast_latest(cx.peers(), Heartbeat { time: self.vv[self.m] }); // CS.S4
                    self.last_send_us = cx.monotonic(); // CS.S4
                }
            }
            Timer::Dsv => {
                self.rot.expire(cx);
                let (vec, oldest) = self.stabiliser.aggregate((self.vv.clone(), self.rot.oldest(self.dsv.clone()))); // CS.S6
                match self.stabiliser.parent() {
                    Some(parent) => cx.send_latest(parent, Agg { vec, oldest }), // CS.S6
                    None => self.publish(cx, &vec, &oldest),                     // CS.S6
                }
            }
        }
        Ok(())
    }

    fn visible(&self, d: &Record) -> bool {
        d.sr as usize == self.m || d.ds.iter().zip(&self.dsv).enumerate().all(|(i, (h, stable))| i == self.m || h <= stable) // CS.S8
    }

    fn invariant(&self) -> Result<(), String> {
        // I1, locally: what is stable was received here.
        if covers(&self.dsv, &self.oldest) && covers(&self.vv, &self.dsv) && self.vv[self.m] <= self.hlc.last() {
            return Ok(());
        }
        Err(format!("oldest {:?} ≤ stable {:?} ≤ received {:?} ≤ {:?} does not hold", self.oldest, self.dsv, self.vv, self.hlc))
    }
}

impl CausalSpartanServer {
    /// What is stable was received here, so a larger stable vector is not one that this replica has told the client.
    fn refuse_unknown(&self, cx: &mut Context<Self>, dsv: &[u64]) -> Step {
        refuse_longer(cx, dsv, self.vv.len())?;
        if covers(&self.vv, dsv) { Ok(()) } else { cx.refuse(Code::ClockDrift) }
    }

    /// Inserts, and drops the versions of the key that no snapshot in use or to come can see.
    fn insert(&mut self, cx: &mut Context<Self>, key: &Key, d: Record) {
        cx.put(key, d);
        cx.prune(key, |d| in_snapshot(d, &self.oldest));
    }

    /// A cut-off of the root: merged, never assigned, and handed down.
    fn publish(&mut self, cx: &mut Context<Self>, dsv: &Vec<u64>, oldest: &Vec<u64>) {
        self.dsv.join(dsv); // CS.S6
        self.oldest.join(oldest);
        for child in self.stabiliser.children() {
            cx.send_latest(child, Cut { dsv: dsv.clone(), oldest: oldest.clone() }); // CS.S6
        }
    }
}

/// Whether a snapshot contains a version.
fn in_snapshot(d: &Record, sv: &[u64]) -> bool {
    sv.get(d.sr as usize).is_some_and(|time| d.ut <= *time) && covers(sv, &d.ds) // CS.R3
}
