//! What happened, kept for the checkers.

use dkvf_check::{About, Action, History, Operation, Outcome, Transaction, ValueId};

use crate::generator::Workload;
use crate::value::Tag;

/// Whether an entry reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns the value of a key.
    Read,
    /// Replaces the value of a key.
    Write,
}

/// One read or write of one key, in a fixed number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The logical thread; a new one after every unknown outcome.
    pub process: u32,
    /// The session whose order counts.
    pub session: u32,
    /// Index of the site that the session is bound to.
    pub site: u16,
    /// Read or write.
    pub kind: Kind,
    /// Index of the record.
    pub key_index: u64,
    /// The value written or read; `None` for a read that found nothing.
    pub value: Option<Tag>,
    /// Place of the version in the protocol's own order, if it told.
    pub version: Option<u128>,
    /// When the request was sent, in microseconds.
    pub invoke_us: u64,
    /// When its outcome was known, in microseconds; `None` if it never was.
    pub complete_us: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it is a part of the same transaction as the entry before it.
    pub same_transaction: bool,
}

/// Keeps up to a fixed number of operations in memory that is reserved before
/// the run, so that recording costs a copy and never an allocation.
///
/// Use one per thread and combine them with [`Recorder::history`]. All
/// operations belong into it, also those of a warm-up: a read of a value whose
/// write was not recorded looks like a value that nobody wrote.
#[derive(Debug)]
pub struct Recorder {
    entries: Vec<Entry>,
    cap: usize,
    /// What came after `cap`: at most `reserve` operations, kept apart so that nothing large is ever moved.
    late: Vec<Entry>,
    reserve: usize,
    dropped: u64,
}

impl Recorder {
    /// Bytes of memory that each operation takes.
    pub const ENTRY_BYTES: usize = size_of::<Entry>();

    /// Keeps at most `cap` operations; reserves `cap` times
    /// [`Recorder::ENTRY_BYTES`].
    pub fn new(cap: usize) -> Self {
        Recorder {
            entries: Vec::with_capacity(cap),
            cap,
            late: Vec::new(),
            reserve: 0,
            dropped: 0,
        }
    }

    /// Also keeps `operations` that come when it is full: those under way then, and the final reads. Their memory is not
    /// taken before they come.
    pub fn reserve(&mut self, operations: usize) {
        self.reserve += operations;
    }

    /// Keeps `entry`, or counts it as dropped. Constant time. The operations of a
    /// session that start in the same microsecond are recorded in their order, and
    /// those of a transaction one after the other.
    pub fn record(&mut self, entry: Entry) {
        if self.entries.len() < self.cap {
            self.entries.push(entry);
        } else if self.late.len() < self.reserve {
            self.late.push(entry);
        } else {
            self.dropped += 1;
        }
    }

    /// Whether no further operation should be started.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.cap
    }

    /// The operations kept, in the order they were recorded.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.late)
    }

    /// How many operations found no place.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The history of a run of `workload` at `sites`, from all its recorders.
    /// If one of them dropped an operation the history says that it is
    /// incomplete, and no checker will call it satisfied.
    ///
    /// Loaded records appear as writes that returned before anything else, by a
    /// session and a process of their own, `u32::MAX`. Only records that somebody
    /// read as loaded, or did not find, are named. Time is O(n log n).
    pub fn history<'a>(
        recorders: impl IntoIterator<Item = &'a Recorder>,
        workload: &Workload,
        sites: &[String],
        about: About,
    ) -> History {
        let mut history = History::new(about);
        let site_ids: Vec<_> = sites.iter().map(|site| history.site_id(site)).collect();
        let recorders: Vec<&Recorder> = recorders.into_iter().collect();
        let dropped: u64 = recorders.iter().map(|recorder| recorder.dropped).sum();
        if dropped > 0 {
            let kept: usize = recorders.iter().map(|r| r.entries().count()).sum();
            history.mark_incomplete(format!(
                "the recorder was full after {kept} operations and dropped {dropped}"
            ));
        }
        let naming = &workload.spec().naming;
        let entries = || recorders.iter().flat_map(|recorder| recorder.entries());
        let loader_site = site_ids.first().copied();
        for index in loaded_and_read(entries(), workload) {
            let transaction = Transaction {
                process: u32::MAX,
                session: u32::MAX,
                site: loader_site.unwrap_or_else(|| history.site_id("")),
                invoke_us: 0,
                complete_us: Some(0),
                outcome: Outcome::Ok,
            };
            let operation = Operation {
                key: history.key_id(&naming.name(index)),
                action: Action::Write(Some(value_id(&mut history, Tag::loaded(index)))),
                version: None,
            };
            history.push(transaction, [operation]);
        }
        let entries: Vec<&Entry> = entries().collect();
        let mut operations = Vec::new();
        for transaction in entries.chunk_by(|_, next| next.same_transaction) {
            let entry = transaction[0];
            let site = site_ids.get(usize::from(entry.site)).copied();
            let about = Transaction {
                process: entry.process,
                session: entry.session,
                site: site.unwrap_or_else(|| history.site_id(&format!("site {}", entry.site))),
                invoke_us: entry.invoke_us,
                complete_us: entry.complete_us,
                outcome: entry.outcome,
            };
            for entry in transaction {
                let value = entry.value.map(|tag| value_id(&mut history, tag));
                operations.push(Operation {
                    key: history.key_id(&naming.name(entry.key_index)),
                    action: match entry.kind {
                        Kind::Read => Action::Read(value),
                        Kind::Write => Action::Write(value),
                    },
                    version: entry.version,
                });
            }
            history.push(about, operations.drain(..));
        }
        history
    }
}

/// The loaded records that some read returned or missed, ascending.
fn loaded_and_read<'a>(entries: impl Iterator<Item = &'a Entry>, workload: &Workload) -> Vec<u64> {
    let spec = workload.spec();
    let loaded = spec.insert_start..spec.insert_start + spec.insert_count;
    let mut indexes: Vec<u64> = entries
        .filter(|entry| entry.kind == Kind::Read && entry.outcome == Outcome::Ok)
        .filter(|entry| entry.value.is_none_or(Tag::is_loaded))
        .map(|entry| entry.key_index)
        .filter(|index| loaded.contains(index))
        .collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

fn value_id(history: &mut History, tag: Tag) -> ValueId {
    history.value_id(tag.to_string().as_bytes())
}
