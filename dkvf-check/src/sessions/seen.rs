//! Which writes of a key a session wrote or read, and when.

use crate::check::Budget;
use crate::history::KeyId;
use crate::prepass::{Committed, INIT, Node, Rows, Undecided};

/// A session came to know a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The transaction of the session that wrote it, or that first read something of its writer.
    pub(super) at: Node,
    pub(super) writer: Node,
}

/// What sessions came to know, key by key.
pub(super) struct Seen {
    /// By key, ascending by `at`, so that those of a session lie together.
    entries: Rows<Entry>,
}

impl Seen {
    /// What sessions wrote.
    pub(super) fn writes(committed: &Committed) -> Self {
        let mut entries = Rows::default();
        for key in committed.history.keys() {
            entries.push(committed.writers(key).iter().map(|write| Entry {
                at: write.node,
                writer: write.node,
            }));
        }
        Seen { entries }
    }

    /// What sessions read, with all other writes of the transactions that they read from.
    pub(super) fn reads(committed: &Committed, budget: &Budget) -> Result<Self, Undecided> {
        let mut pairs: Vec<(u32, Entry)> = Vec::new();
        // By node: the last session that read from it, plus one.
        let mut read_by = vec![0; committed.node_count()];
        for at in committed.nodes() {
            let session = committed.session(at) as u32 + 1;
            let sources = committed.reads(at).iter().map(|read| read.from);
            for writer in sources.filter(|&from| from != INIT) {
                budget.spend(1)?;
                if std::mem::replace(&mut read_by[writer as usize], session) == session {
                    continue;
                }
                let writes = committed.writes(writer);
                budget.spend(writes.len())?;
                pairs.extend(
                    writes
                        .iter()
                        .map(|write| (write.key.index() as u32, Entry { at, writer })),
                );
                budget.reserve(pairs.len() * 3 * size_of::<Entry>())?;
            }
        }
        let entries = Rows::new(committed.history.key_count(), &pairs);
        Ok(Seen { entries })
    }

    /// The entries of a key.
    pub(super) fn of(&self, key: KeyId) -> &[Entry] {
        self.entries.row(key.index())
    }

    /// Where the entries of a key lie among those of all keys.
    pub(super) fn start(&self, key: KeyId) -> usize {
        self.entries.range(key.index()).start
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.item_count()
    }
}
