//! Linearizability is local (Herlihy and Wing 1990): keys that no transaction ties together are judged apart.

use crate::history::{Action, History, KeyId, TxnId};

/// The keys of a history in the order of their bytes, where scans need it.
pub(super) struct KeyRanges {
    sorted: Vec<KeyId>,
}

impl KeyRanges {
    /// Sorts the keys if there are scans.
    pub(super) fn new(history: &History) -> Self {
        let is_scan = |action| matches!(action, Action::Scan(_));
        let mut sorted = Vec::new();
        if history.operations().iter().any(|op| is_scan(op.action)) {
            sorted = history.keys().collect();
            sorted.sort_by(|&a, &b| history.key(a).cmp(history.key(b)));
        }
        KeyRanges { sorted }
    }

    /// The keys in `[low, high)`.
    pub(super) fn keys_in(&self, history: &History, low: &[u8], high: Option<&[u8]>) -> &[KeyId] {
        let start = self.sorted.partition_point(|&key| history.key(key) < low);
        let end = match high {
            Some(high) => self.sorted.partition_point(|&key| history.key(key) < high),
            None => self.sorted.len(),
        };
        self.sorted.get(start..end).unwrap_or_default()
    }

    /// The keys that a transaction accesses, with repetitions.
    pub(super) fn keys_of(&self, history: &History, id: TxnId) -> Vec<KeyId> {
        let mut keys = Vec::new();
        for op in history.operations_of(id) {
            let operation = history.operations()[op];
            match operation.action {
                Action::Scan(scan) => {
                    let scan = history.scan(scan);
                    keys.extend(self.keys_in(history, &scan.low, scan.high.as_deref()));
                }
                _ => keys.push(operation.key),
            }
        }
        keys
    }
}

/// Transactions by the part they belong to: pairs of a part's name and a transaction, sorted. Takes O(n log n) time.
pub(super) fn parts(history: &History, ranges: &KeyRanges) -> Vec<(u32, TxnId)> {
    let mut forest = Forest::new(history.key_count());
    let mut first = Vec::new();
    for id in 0..history.transactions().len() {
        let operations = history.operations_of(id);
        if let [operation] = &history.operations()[operations]
            && !matches!(operation.action, Action::Scan(_))
        {
            first.push((operation.key.index() as u32, id));
            continue;
        }
        let keys = ranges.keys_of(history, id);
        for pair in keys.windows(2) {
            forest.join(pair[0].index() as u32, pair[1].index() as u32);
        }
        first.extend(keys.first().map(|key| (key.index() as u32, id)));
    }
    for (key, _) in &mut first {
        *key = forest.root(*key);
    }
    first.sort_unstable();
    first
}

/// Disjoint sets.
struct Forest {
    parents: Vec<u32>,
}

impl Forest {
    fn new(size: usize) -> Self {
        Forest {
            parents: (0..size as u32).collect(),
        }
    }

    fn root(&mut self, mut node: u32) -> u32 {
        while self.parents[node as usize] != node {
            let grandparent = self.parents[self.parents[node as usize] as usize];
            self.parents[node as usize] = grandparent;
            node = grandparent;
        }
        node
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b) as usize] = a.min(b);
    }
}
