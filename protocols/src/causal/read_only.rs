//! Read-only transactions: which slices a coordinator misses, which snapshots are in use, and how much one may ask for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Key, Server, ServerId, Step, Value};
use prost::Message;
use serde::{Deserialize, Serialize};

use super::{CutOff, refuse_longer};

/// The most keys of one transaction: more are `Malformed`.
pub const KEYS_MAX: usize = 1_024;
/// The most bytes of one answer, if the run allows messages as long: more are `Malformed`.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The read-only transactions that this server coordinates: `S` is a snapshot, `R` a row of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadOnly<S, R> {
    started: u64,
    open: BTreeMap<u64, Open<S, R>>,
    bytes_max: usize,
    timeout_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open<S, R> {
    client: ClientId,
    snapshot: S,
    since_us: u64,
    missing: BTreeSet<ServerId>,
    rows: Vec<R>,
    bytes: usize,
}

impl<S: CutOff, R: Message + Clone> ReadOnly<S, R> {
    /// None yet. They may take as long as a request may wait.
    pub fn new(config: &NodeConfig) -> Self {
        let bytes_max = config.message_bytes_max.min(ANSWER_BYTES_MAX);
        ReadOnly { started: 0, open: BTreeMap::new(), bytes_max, timeout_us: config.request_timeout_ms.saturating_mul(1_000) }
    }

    /// Refuses a transaction of too many keys.
    ///
    /// # Errors
    /// [`Code::Malformed`].
    pub fn refuse_large<C: Server>(&self, cx: &mut Context<C>, keys: &[Key]) -> Step {
        refuse_longer(cx, keys, KEYS_MAX)
    }

    /// Opens a transaction: its number, and whom to ask for which keys. This server is always among them, which costs no message.
    pub fn start<C: Server>(&mut self, cx: &Context<C>, client: ClientId, keys: &[Key], snapshot: S) -> (u64, BTreeMap<ServerId, Vec<Key>>) {
        let mut slices = BTreeMap::from([(cx.me(), Vec::new())]);
        for key in keys.iter().collect::<BTreeSet<_>>() {
            slices.entry(cx.server_of(key)).or_default().push(key.clone());
        }
        let missing = slices.keys().copied().collect();
        self.started += 1;
        self.open.insert(self.started, Open { client, snapshot, since_us: cx.monotonic(), missing, rows: Vec::new(), bytes: 0 });
        (self.started, slices)
    }

    /// The rows of a slice, and why it is refused (0: it is not): this server cannot answer for the snapshot, or the rows are too long.
    pub fn read(&self, keys: &[Key], in_reach: bool, mut row: impl FnMut(&Key) -> R) -> (Vec<R>, u32) {
        if !in_reach {
            return (Vec::new(), Code::ClockDrift as u32);
        }
        let mut bytes = 0;
        let mut within = |row: R| {
            bytes += row.encoded_len();
            (bytes <= self.bytes_max).then_some(row)
        };
        let rows: Option<Vec<_>> = keys.iter().map(|key| within(row(key))).collect();
        rows.map_or_else(|| (Vec::new(), Code::Malformed as u32), |rows| (rows, 0))
    }

    /// Takes a slice. With the last one the transaction is closed and handed back: client, snapshot, rows. With a refused one,
    /// or one too many bytes, it is closed and the client is told.
    pub fn slice<C: Server>(&mut self, cx: &mut Context<C>, id: u64, from: ServerId, rows: &[R], refused: u32) -> Option<(ClientId, S, Vec<R>)> {
        let Entry::Occupied(mut entry) = self.open.entry(id) else { return None };
        let open = entry.get_mut();
        if !open.missing.remove(&from) {
            return None;
        }
        open.bytes += rows.iter().map(R::encoded_len).sum::<usize>();
        let refused = if open.bytes > self.bytes_max { Code::Malformed as u32 } else { refused };
        if refused != 0 {
            let code = u8::try_from(refused).ok().and_then(Code::from_u8).unwrap_or(Code::Unavailable);
            cx.reply_error(entry.remove().client, code);
            return None;
        }
        open.rows.extend_from_slice(rows);
        if !open.missing.is_empty() {
            return None;
        }
        let Open { client, snapshot, rows, .. } = entry.remove();
        Some((client, snapshot, rows))
    }

    /// Closes the transactions that a sibling has not answered in time: their snapshots would keep old versions for ever.
    pub fn expire<C: Server>(&mut self, cx: &mut Context<C>) {
        while let Some(first) = self.open.first_entry().filter(|first| cx.monotonic() >= first.get().since_us.saturating_add(self.timeout_us)) {
            cx.reply_error(first.remove().client, Code::Timeout);
        }
    }

    /// The pointwise minimum of `cut`, where the next snapshots will be at least, and all snapshots in use. It never
    /// goes back, so a version that it has passed is not needed any more.
    pub fn oldest(&self, mut cut: S) -> S {
        self.open.values().for_each(|open| cut.meet(&open.snapshot));
        cut
    }
}

/// The client's part: the values read, in the order in which the keys were asked for.
pub fn in_order(keys: &[Key], read: impl Iterator<Item = (Key, Value)>) -> Vec<Option<Value>> {
    let values: BTreeMap<_, _> = read.collect();
    keys.iter().map(|key| values.get(key).cloned()).collect()
}
