//! Read-only transactions: which slices a coordinator misses, and which snapshots are in use.

use std::collections::{BTreeMap, BTreeSet};

use dkvf_core::{ClientId, Context, Gather, Key, Server, ServerId, Value};
use serde::{Deserialize, Serialize};

use super::CutOff;

/// The read-only transactions that this server coordinates: `S` is a snapshot, `R` a row of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadOnly<S, R> {
    started: u64,
    snapshots: BTreeMap<u64, S>,
    slices: Gather<u64, ClientId, Vec<R>>,
}

impl<S, R> Default for ReadOnly<S, R> {
    fn default() -> Self {
        ReadOnly { started: 0, snapshots: BTreeMap::new(), slices: Gather::default() }
    }
}

impl<S: CutOff, R> ReadOnly<S, R> {
    /// Opens a transaction: its number, and whom to ask for which keys. This server is always among them, which costs no message.
    pub fn start<C: Server>(&mut self, cx: &Context<C>, client: ClientId, keys: &[Key], snapshot: S) -> (u64, BTreeMap<ServerId, Vec<Key>>) {
        let mut slices = BTreeMap::from([(cx.me(), Vec::new())]);
        for key in keys.iter().collect::<BTreeSet<_>>() {
            slices.entry(cx.server_of(key)).or_default().push(key.clone());
        }
        self.started += 1;
        self.snapshots.insert(self.started, snapshot);
        self.slices.start(self.started, slices.keys().copied(), client);
        (self.started, slices)
    }

    /// Takes a slice. With the last one the transaction is closed and handed back: client, snapshot, rows.
    pub fn slice(&mut self, id: u64, from: ServerId, rows: &[R]) -> Option<(ClientId, S, Vec<R>)>
    where
        R: Clone,
    {
        let (client, slices) = self.slices.reply(&id, from, rows.to_vec())?;
        let snapshot = self.snapshots.remove(&id)?;
        Some((client, snapshot, slices.into_iter().flat_map(|(_, rows)| rows).collect()))
    }

    /// The pointwise minimum of `cut`, where the next snapshots will be at least, and all snapshots in use. It never
    /// goes back, so a version that it has passed is not needed any more.
    pub fn oldest(&self, mut cut: S) -> S {
        self.snapshots.values().for_each(|snapshot| cut.meet(snapshot));
        cut
    }
}

/// The client's part: the values read, in the order in which the keys were asked for.
pub fn in_order(keys: &[Key], read: impl Iterator<Item = (Key, Value)>) -> Vec<Option<Value>> {
    let values: BTreeMap<_, _> = read.collect();
    keys.iter().map(|key| values.get(key).cloned()).collect()
}
