//! "Send to all, wait for replies" on a server: [`Gather`] and [`Quorum`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ServerId;

/// Operations that wait for one reply from each of several servers.
///
/// `K` names an operation, `C` is what is needed to finish it, `R` a reply. Replies of strangers, of unknown
/// operations and repeated ones are ignored, so retries do no harm. All calls cost O(log n).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather<K: Ord, C, R> {
    open: BTreeMap<K, Open<C, R>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open<C, R> {
    context: C,
    missing: BTreeSet<ServerId>,
    replies: Vec<(ServerId, R)>,
}

impl<K: Ord, C, R> Default for Gather<K, C, R> {
    fn default() -> Self {
        Gather {
            open: BTreeMap::new(),
        }
    }
}

impl<K: Ord, C, R> Gather<K, C, R> {
    /// Opens an operation that needs a reply of each of `from`.
    pub fn start(&mut self, operation: K, from: impl IntoIterator<Item = ServerId>, context: C) {
        self.open.insert(
            operation,
            Open {
                context,
                missing: from.into_iter().collect(),
                replies: Vec::new(),
            },
        );
    }

    /// Takes a reply. With the last one the operation is closed and handed back with all replies in the order they came.
    pub fn reply(
        &mut self,
        operation: &K,
        from: ServerId,
        reply: R,
    ) -> Option<(C, Vec<(ServerId, R)>)> {
        let open = self.open.get_mut(operation)?;
        if !open.missing.remove(&from) {
            return None;
        }
        open.replies.push((from, reply));
        if !open.missing.is_empty() {
            return None;
        }
        let open = self.open.remove(operation)?;
        Some((open.context, open.replies))
    }

    /// Operations that still wait.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// Counts the distinct servers that have answered, up to a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    needed: usize,
    from: BTreeSet<ServerId>,
}

impl Quorum {
    /// Needs `needed` servers.
    pub fn of(needed: usize) -> Self {
        Quorum {
            needed,
            from: BTreeSet::new(),
        }
    }

    /// Needs more than half of `servers`.
    pub fn majority(servers: usize) -> Self {
        Quorum::of(servers / 2 + 1)
    }

    /// Counts `from`. True exactly once: when it completes the quorum.
    pub fn ack(&mut self, from: ServerId) -> bool {
        self.from.insert(from) && self.from.len() == self.needed
    }

    /// Whether the quorum is complete.
    pub fn reached(&self) -> bool {
        self.from.len() >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_closes_with_the_last_missing_reply_and_ignores_the_rest() {
        let mut gather = Gather::default();
        gather.start("op", [ServerId(1), ServerId(2)], "context");
        assert_eq!(gather.reply(&"op", ServerId(2), 20), None);
        assert_eq!(gather.reply(&"op", ServerId(2), 21), None, "repeated");
        assert_eq!(gather.reply(&"op", ServerId(3), 30), None, "a stranger");
        assert_eq!(gather.reply(&"other", ServerId(1), 10), None);
        assert_eq!(
            gather.reply(&"op", ServerId(1), 10),
            Some(("context", vec![(ServerId(2), 20), (ServerId(1), 10)]))
        );
        assert!(gather.is_empty());
    }

    #[test]
    fn a_quorum_completes_once_and_counts_a_server_once() {
        let mut quorum = Quorum::majority(4);
        assert!(!quorum.ack(ServerId(0)));
        assert!(!quorum.ack(ServerId(0)));
        assert!(!quorum.ack(ServerId(1)));
        assert!(quorum.ack(ServerId(2)));
        assert!(!quorum.ack(ServerId(3)));
        assert!(quorum.reached());
    }
}
