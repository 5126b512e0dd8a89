//! What clients asked and what they were answered.

use std::fmt;
use std::num::NonZero;

use crate::intern::Interner;

/// Index of an operation in [`History::operations`].
pub type OpId = usize;

/// A key of one [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

/// A written value of one [`History`]. The initial version of a key has no
/// `ValueId`: where one is optional, `None` is the initial version, which is
/// also what a read of an absent key returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(NonZero<u32>);

/// The site (replica) that a session was bound to when it issued an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(u16);

impl SiteId {
    /// Index in [`History::sites`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Whether an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Returns the value of a key.
    Read,
    /// Replaces the value of a key.
    Write,
}

/// How an operation ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It certainly did not happen and never will.
    Fail,
    /// Unknown: a timeout, a lost connection, a crashed client. Such a write
    /// counts as soon as a successful read returns its value; such a read
    /// constrains nothing.
    Info,
}

/// One read or write of one key by one client.
///
/// A session is sequential: its operations are ordered by invocation time,
/// ties by their place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The logical thread that issued it; one operation at a time. After an
    /// [`Outcome::Info`] a client continues under a new process.
    pub process: u32,
    /// The session whose order the session guarantees speak of.
    pub session: u32,
    /// Where it was issued.
    pub site: SiteId,
    /// Read or write.
    pub kind: Kind,
    /// The key.
    pub key: KeyId,
    /// The value written, or the value a successful read returned.
    pub value: Option<ValueId>,
    /// Place of the version read or written in the order that the protocol
    /// itself gives to the versions of the key, if it told; greater is newer.
    pub version: Option<u128>,
    /// When the client sent the request, in microseconds of the history's clock.
    pub invoke_us: u64,
    /// When the client learnt the outcome, in microseconds; `None` if it never did.
    pub complete_us: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}

/// Where a history comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Name of the workload.
    pub workload: String,
    /// Kind of clock that stamped the events: `virtual` or `monotonic`.
    pub clock: String,
    /// Models that the protocol claims.
    pub claims: Vec<String>,
    /// Seed that the run is reproduced with.
    pub seed: Option<u64>,
}

/// A recorded run: operations, and the keys, values and sites they name.
///
/// Keys and values are interned, so an operation takes 80 bytes whatever their
/// length, and a few million of them fit in memory.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Where the history comes from; no checker depends on it.
    pub about: About,
    operations: Vec<Operation>,
    keys: Interner,
    values: Interner,
    sites: Vec<String>,
    incomplete: Option<String>,
}

impl History {
    /// An empty history.
    pub fn new(about: About) -> Self {
        History {
            about,
            ..History::default()
        }
    }

    /// The name of `key` in this history.
    pub fn key_id(&mut self, key: &[u8]) -> KeyId {
        KeyId(self.keys.intern(key))
    }

    /// The name of the written value `value` in this history.
    pub fn value_id(&mut self, value: &[u8]) -> ValueId {
        let number = self.values.intern(value).wrapping_add(1);
        ValueId(NonZero::new(number).expect("fewer than 2^32 - 1 values"))
    }

    /// The name of the site called `site`. Declare every site that takes part,
    /// also one that never answers: [`convergence`](crate::convergence) then
    /// knows that it is missing. Time is linear in the number of sites.
    ///
    /// # Panics
    ///
    /// When there are more than 65,536 sites.
    pub fn site_id(&mut self, site: &str) -> SiteId {
        let known = self.sites.iter().position(|name| name == site);
        let index = known.unwrap_or_else(|| {
            self.sites.push(site.to_owned());
            self.sites.len() - 1
        });
        SiteId(u16::try_from(index).expect("at most 65,536 sites"))
    }

    /// Adds an operation. The order of operations of one session that were
    /// invoked in the same microsecond is the order of these calls; beyond that
    /// the order does not matter.
    pub fn push(&mut self, operation: Operation) -> OpId {
        self.operations.push(operation);
        self.operations.len() - 1
    }

    /// Says that operations are missing and why. Every verdict on an incomplete
    /// history is unknown; the first reason is kept.
    pub fn mark_incomplete(&mut self, reason: impl Into<String>) {
        self.incomplete.get_or_insert_with(|| reason.into());
    }

    /// Why operations are missing, if any are.
    pub fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// All operations, in the order they were added.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The bytes of a key.
    pub fn key(&self, key: KeyId) -> &[u8] {
        self.keys.get(key.0)
    }

    /// The bytes of a value.
    pub fn value(&self, value: ValueId) -> &[u8] {
        self.values.get(value.0.get() - 1)
    }

    /// The name of a site.
    pub fn site(&self, site: SiteId) -> &str {
        &self.sites[site.index()]
    }

    /// The declared sites, in the order of their first mention.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// How many different keys are named.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// A key as people write it: text as it is, other bytes escaped.
    pub(crate) fn key_text(&self, key: KeyId) -> String {
        String::from_utf8_lossy(self.key(key))
            .escape_debug()
            .to_string()
    }

    /// A value as people write it; the initial version is `initial`.
    pub(crate) fn value_text(&self, value: Option<ValueId>) -> String {
        match value {
            Some(value) => String::from_utf8_lossy(self.value(value))
                .escape_debug()
                .to_string(),
            None => "initial".to_owned(),
        }
    }

    /// One line about an operation: who, where, what and when.
    pub fn describe(&self, id: OpId) -> impl fmt::Display + '_ {
        Description { history: self, id }
    }
}

struct Description<'h> {
    history: &'h History,
    id: OpId,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let History { operations, .. } = self.history;
        let op = &operations[self.id];
        let verb = match op.kind {
            Kind::Read => "read",
            Kind::Write => "wrote",
        };
        write!(f, "#{} session {}", self.id, op.session)?;
        match self.history.site(op.site) {
            "" => {}
            site => write!(f, " at {site}")?,
        }
        write!(
            f,
            " {verb} {} = {}",
            self.history.key_text(op.key),
            self.history.value_text(op.value),
        )?;
        if let Some(version) = op.version {
            write!(f, " (version {version:#x})")?;
        }
        write!(f, " [{}..", op.invoke_us)?;
        if let Some(complete_us) = op.complete_us {
            write!(f, "{complete_us}")?;
        }
        write!(f, " us]")?;
        match op.outcome {
            Outcome::Ok => Ok(()),
            Outcome::Fail => write!(f, ", failed"),
            Outcome::Info => write!(f, ", outcome unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_takes_eighty_bytes() {
        assert_eq!(size_of::<Operation>(), 80);
    }

    #[test]
    fn a_description_names_everything_a_reader_needs() {
        let mut history = History::default();
        let operation = Operation {
            process: 3,
            session: 2,
            site: history.site_id("dc1"),
            kind: Kind::Write,
            key: history.key_id(b"x\n\xff"),
            value: Some(history.value_id(b"2-1")),
            version: Some(0x2a),
            invoke_us: 10,
            complete_us: None,
            outcome: Outcome::Info,
        };
        let id = history.push(operation);
        assert_eq!(
            history.describe(id).to_string(),
            "#0 session 2 at dc1 wrote x\\n\u{fffd} = 2-1 (version 0x2a) [10.. us], outcome unknown"
        );
    }

    #[test]
    fn the_first_reason_for_missing_operations_is_kept() {
        let mut history = History::default();
        assert_eq!(history.incomplete(), None);
        history.mark_incomplete("cap");
        history.mark_incomplete("other");
        assert_eq!(history.incomplete(), Some("cap"));
    }
}
