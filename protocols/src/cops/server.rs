//! The server of COPS (pseudocode in docs/protocols/cops.md).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Key, PeerState, Server, ServerId, Step, Value};
use serde::{Deserialize, Serialize};

use super::metadata::*;
use crate::causal::{refuse_longer, replica_of};

/// A version has 48 bits for Lamport time.
const LAMPORT_LAST: u64 = (1 << 48) - 1;
/// A session's word moves Lamport time at most to one step per 2^4 µs since 1970, which leaves half of it until 2041.
const CREDIBLE_STEP: u32 = 4;
/// The most dependencies of a write.
const NEAREST_MAX: usize = 1 << 16;

/// Server `(m, n)`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopsServer {
    m: usize,
    lam: u64,
    /// Every version of replica i up to `low[i]` is applied here.
    low: Vec<u64>,
    /// The versions of replica i above.
    pend: Vec<BTreeMap<u64, Pending>>,
    /// Who waits for a version to be applied here.
    wait_dep: BTreeMap<u64, BTreeSet<(ServerId, u64)>>,
    /// Versions that are not applied yet, by token.
    updates: BTreeMap<u64, Update>,
    token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Pending {
    Received,
    Applied,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Update {
    key: Key,
    value: Value,
    ver: u64,
    missing: BTreeSet<(ServerId, u64)>,
}

impl Server for CopsServer {
    type Metadata = Metadata;
    type Timer = ();

    fn new(_config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self> {
        let replicas = cx.topology().replicas();
        Ok(CopsServer {
            m: cx.replica(),
            lam: 0,
            low: vec![0; replicas],
            pend: vec![BTreeMap::new(); replicas],
            wait_dep: BTreeMap::new(),
            updates: BTreeMap::new(),
            token: 0,
        })
    }

    fn handle_client_message(&mut self, cx: &mut Context<Self>, client: ClientId, message: &ClientMessage) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value, nearest }) => {
                self.refuse_malformed(cx, nearest)?;
                let newest = nearest.iter().map(|x| lamport(x.ver)).max().unwrap_or(0); // CO.S1
                let lam = self.lam.max(newest.min(cx.clock() >> CREDIBLE_STEP)) + 1; // CO.S1
                if lam > LAMPORT_LAST {
                    return cx.refuse(Code::ClockDrift);
                }
                self.lam = lam; // CO.S1
                let ver = self.lam << 16 | self.m as u64; // CO.S1
                cx.put(key, Record { value: value.clone(), ver }); // CO.S1, CO.S7
                cx.broadcast(cx.peers(), Replicate { key: key.clone(), value: value.clone(), ver, nearest: nearest.clone() }); // CO.S1
                cx.reply(client, PutReply { ver }); // CO.S1
            }
            ClientMessage::Get(GetMessage { key }) => {
                let record = cx.latest(key, |_| true).map(|d| d.into_owned()); // CO.S8
                cx.reply(client, GetReply { record }); // CO.S8
            }
        }
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, from: ServerId, message: &ServerMessage) -> Step {
        match message {
            ServerMessage::Replicate(Replicate { key, value, ver, nearest }) => {
                let i = origin(*ver);
                self.refuse_malformed(cx, nearest)?;
                if i != replica_of(cx, from) {
                    return cx.refuse(Code::Malformed);
                }
                if self.applied(*ver) || self.pend[i].contains_key(ver) {
                    return Ok(());
                }
                self.lam = self.lam.max(lamport(*ver)); // CO.S2
                self.pend[i].insert(*ver, Pending::Received); // CO.S2
                let deps = nearest.iter().filter(|x| origin(x.ver) != self.m); // CO.S2
                let missing: BTreeSet<_> = deps.map(|x| (cx.server_of(&x.key), x.ver)).collect(); // CO.S2
                let u = Update { key: key.clone(), value: value.clone(), ver: *ver, missing }; // CO.S2
                if u.missing.is_empty() {
                    self.finish(cx, u); // CO.S2
                } else {
                    self.token += 1;
                    u.send_checks(cx, self.token, |_| true); // CO.S2
                    self.updates.insert(self.token, u);
                }
            }
            ServerMessage::DepCheck(DepCheck { token, ver }) => {
                if self.applied(*ver) {
                    cx.send(from, DepOk { token: *token, ver: *ver }); // CO.S3
                } else {
                    self.wait_dep.entry(*ver).or_default().insert((from, *token)); // CO.S3
                }
            }
            ServerMessage::DepOk(DepOk { token, ver }) => {
                if let Entry::Occupied(mut u) = self.updates.entry(*token) {
                    u.get_mut().missing.remove(&(from, *ver)); // CO.S5
                    if u.get().missing.is_empty() {
                        let u = u.remove();
                        self.finish(cx, u); // CO.S5
                    }
                }
            }
        }
        Ok(())
    }

    fn handle_peer_change(&mut self, cx: &mut Context<Self>, peer: ServerId, state: PeerState) -> Step {
        if state == PeerState::Replaced {
            self.updates.iter().for_each(|(token, u)| u.send_checks(cx, *token, |server| server == peer)); // CO.S2
        }
        Ok(())
    }

    fn invariant(&self) -> Result<(), String> {
        let compact = |(low, pend): (&u64, &BTreeMap<_, _>)| pend.first_key_value().is_none_or(|(ver, state)| ver > low && *state == Pending::Received);
        if self.low.iter().zip(&self.pend).all(compact) {
            return Ok(());
        }
        Err(format!("applied up to {:?}, and above {:?}: not compact", self.low, self.pend))
    }
}

impl CopsServer {
    /// No write has as many dependencies, or one that no replica can have written.
    fn refuse_malformed(&self, cx: &mut Context<Self>, nearest: &[Dependency]) -> Step {
        refuse_longer(cx, nearest, NEAREST_MAX)?;
        if nearest.iter().any(|x| origin(x.ver) >= self.low.len()) { cx.refuse(Code::Malformed) } else { Ok(()) }
    }

    /// Whether exactly this version was applied; a newer one of its key is not enough.
    fn applied(&self, ver: u64) -> bool {
        let i = origin(ver); // CO.S4
        let above = self.pend.get(i).and_then(|pend| pend.get(&ver)); // CO.S4
        i == self.m || self.low.get(i).is_some_and(|low| ver <= *low) || above == Some(&Pending::Applied) // CO.S4
    }

    fn finish(&mut self, cx: &mut Context<Self>, u: Update) {
        let (ver, i) = (u.ver, origin(u.ver));
        cx.put(&u.key, Record { value: u.value, ver }); // CO.S6, CO.S7: the store keeps the larger version
        self.pend[i].insert(ver, Pending::Applied); // CO.S6
        while let Some(first) = self.pend[i].first_entry().filter(|first| *first.get() == Pending::Applied) {
            (self.low[i], _) = first.remove_entry(); // CO.S6
        }
        for (requester, token) in self.wait_dep.remove(&ver).unwrap_or_default() {
            cx.send(requester, DepOk { token, ver }); // CO.S6
        }
    }
}

impl Update {
    fn send_checks(&self, cx: &mut Context<CopsServer>, token: u64, to: impl Fn(ServerId) -> bool) {
        for (server, ver) in self.missing.iter().filter(|(server, _)| to(*server)) {
            cx.send(*server, DepCheck { token, ver: *ver }); // CO.S2
        }
    }
}

fn lamport(ver: u64) -> u64 {
    ver >> 16
}

fn origin(ver: u64) -> usize {
    (ver & 0xffff) as usize
}
