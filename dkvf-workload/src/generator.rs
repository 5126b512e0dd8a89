//! From a workload to operations.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::distribution::{Chooser, Lengths};
use crate::naming::KeyNaming;
use crate::spec::{Mix, ValueSize, WorkloadSpec};
use crate::value::{Filler, Tag};

/// Keys and values are cut from chunks of this size. Whoever keeps a key or a
/// value alive keeps its chunk alive: a store copies what it stores.
const CHUNK_BYTES: usize = 8 << 10;

/// A key and the index of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// Index of the record.
    pub index: u64,
    /// The key.
    pub bytes: Bytes,
}

/// A value and the tag it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedValue {
    /// The first [`Tag::BYTES`] of `bytes`.
    pub tag: Tag,
    /// The value.
    pub bytes: Bytes,
}

/// A new record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: NamedKey,
    /// Its value.
    pub value: TaggedValue,
}

/// What a session is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the value of a key.
    Read {
        /// The key.
        key: NamedKey,
    },
    /// Replace the value of a key that exists.
    Update {
        /// The key.
        key: NamedKey,
        /// Its new value.
        value: TaggedValue,
    },
    /// Add a record.
    Insert(Record),
    /// Read a key, then replace its value.
    ReadModifyWrite {
        /// The key.
        key: NamedKey,
        /// Its new value.
        value: TaggedValue,
    },
    /// Read records in the order of keys.
    Scan {
        /// The first key.
        from: NamedKey,
        /// How many records.
        count: u32,
    },
    /// Add all records, one after the other; one operation for the clock.
    AmplifiedInsert(Vec<Record>),
    /// Read several keys, none twice, as one snapshot.
    ReadOnly {
        /// The keys.
        keys: Vec<NamedKey>,
    },
}

impl Operation {
    /// Its kind.
    pub fn kind(&self) -> OperationKind {
        match self {
            Operation::Read { .. } => OperationKind::Read,
            Operation::Update { .. } => OperationKind::Update,
            Operation::Insert(_) => OperationKind::Insert,
            Operation::ReadModifyWrite { .. } => OperationKind::ReadModifyWrite,
            Operation::Scan { .. } => OperationKind::Scan,
            Operation::AmplifiedInsert(_) => OperationKind::AmplifiedInsert,
            Operation::ReadOnly { .. } => OperationKind::ReadOnly,
        }
    }
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Update`].
    Update,
    /// [`Operation::Insert`].
    Insert,
    /// [`Operation::Scan`].
    Scan,
    /// [`Operation::ReadModifyWrite`].
    ReadModifyWrite,
    /// [`Operation::AmplifiedInsert`].
    AmplifiedInsert,
    /// [`Operation::ReadOnly`].
    ReadOnly,
}

impl OperationKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [OperationKind; 7] = [
        OperationKind::Read,
        OperationKind::Update,
        OperationKind::Insert,
        OperationKind::Scan,
        OperationKind::ReadModifyWrite,
        OperationKind::AmplifiedInsert,
        OperationKind::ReadOnly,
    ];

    /// The name that YCSB, or DKVF's fork of it, prints.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Read => "READ",
            OperationKind::Update => "UPDATE",
            OperationKind::Insert => "INSERT",
            OperationKind::Scan => "SCAN",
            OperationKind::ReadModifyWrite => "READ-MODIFY-WRITE",
            OperationKind::AmplifiedInsert => "AMP_INSERT",
            OperationKind::ReadOnly => "ROTX",
        }
    }
}

/// One run of a workload: a specification, a seed and a number of sessions.
///
/// Sessions share nothing that changes, so they may run on any threads. Instead
/// of a common counter, session `s` of `S` inserts the records whose index is `s`
/// modulo `S`, counted from `recordcount`: no two sessions insert the same key.
///
/// A session chooses only among records it knows to exist: the loaded ones and
/// its own inserts, as if each had succeeded. So `latest` means the latest of the
/// own inserts, and a read that finds nothing means that a record is lost, or
/// late, or that its insert failed.
#[derive(Clone)]
pub struct Workload {
    shared: Arc<Shared>,
}

struct Shared {
    spec: WorkloadSpec,
    seed: u64,
    sessions: u32,
    filler: Filler,
    /// Kind `i` is chosen by numbers below `cumulative[i]`, which end in 1.
    cumulative: [f64; OperationKind::ALL.len()],
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload")
            .field("spec", &self.shared.spec)
            .field("seed", &self.shared.seed)
            .field("sessions", &self.shared.sessions)
            .finish()
    }
}

impl Workload {
    /// A run of `spec` with `sessions` sessions, at least one.
    pub fn new(spec: WorkloadSpec, seed: u64, sessions: u32) -> Self {
        let value_bytes_max = match &spec.value_size {
            ValueSize::Constant(bytes) => *bytes,
            ValueSize::Fields { count, bytes } => count * bytes.max(),
        };
        let cumulative = cumulative(&spec.mix);
        Workload {
            shared: Arc::new(Shared {
                spec,
                seed,
                sessions: sessions.max(1),
                filler: Filler::new((value_bytes_max as usize).max(Tag::BYTES)),
                cumulative,
            }),
        }
    }

    /// What is run.
    pub fn spec(&self) -> &WorkloadSpec {
        &self.shared.spec
    }

    /// The number of sessions.
    pub fn sessions(&self) -> u32 {
        self.shared.sessions
    }

    /// The operations of session `session`, which is below [`Workload::sessions`].
    pub fn session(&self, session: u32) -> Session {
        let spec = self.spec();
        Session {
            session,
            chooser: Chooser::new(spec.requests, spec.insert_count, session, self.sessions()),
            scan_length: spec.scan_length.clone(),
            maker: Maker::new(self, session, "run"),
            inserted: 0,
            written: 0,
        }
    }

    /// How many operations session `session` contributes to `operationcount`;
    /// `None` when that is not limited.
    pub fn operations_of(&self, session: u32) -> Option<u64> {
        let total = self.spec().operation_count?;
        Some(share(total, session, self.sessions()))
    }

    /// The records that session `session` loads.
    pub fn load(&self, session: u32) -> Load {
        Load {
            next: self.spec().insert_start + u64::from(session),
            left: share(self.spec().insert_count, session, self.sessions()),
            maker: Maker::new(self, session, "load"),
        }
    }
}

/// Session `session`'s part of `total`, when sessions take turns.
fn share(total: u64, session: u32, sessions: u32) -> u64 {
    let (session, sessions) = (u64::from(session), u64::from(sessions));
    total / sessions + u64::from(session < total % sessions)
}

fn cumulative(mix: &Mix) -> [f64; OperationKind::ALL.len()] {
    let weights = OperationKind::ALL.map(|kind| match kind {
        OperationKind::Read => mix.read,
        OperationKind::Update => mix.update,
        OperationKind::Insert => mix.insert,
        OperationKind::Scan => mix.scan,
        OperationKind::ReadModifyWrite => mix.read_modify_write,
        OperationKind::AmplifiedInsert => mix.amplified_insert,
        OperationKind::ReadOnly => mix.read_only,
    });
    let sum: f64 = weights.iter().sum();
    let mut below = 0.0;
    weights.map(|weight| {
        below += weight;
        below / sum
    })
}

/// Draws numbers and makes keys and values for one session.
struct Maker {
    workload: Workload,
    rng: Pcg64Mcg,
    value_size: ValueSize,
    naming: KeyNaming,
    buffer: BytesMut,
}

impl Maker {
    fn new(workload: &Workload, session: u32, phase: &str) -> Self {
        let stream = [phase.as_bytes(), &session.to_be_bytes()].concat();
        let spec = workload.spec();
        Maker {
            rng: Pcg64Mcg::new(xxh3_128_with_seed(&stream, workload.shared.seed)),
            value_size: spec.value_size.clone(),
            naming: spec.naming,
            buffer: BytesMut::new(),
            workload: workload.clone(),
        }
    }

    /// Makes room for `bytes`, so that nothing is copied to a larger buffer.
    fn reserve(&mut self, bytes: usize) {
        if self.buffer.capacity() < bytes {
            self.buffer.reserve(bytes.max(CHUNK_BYTES));
        }
    }

    fn key(&mut self, index: u64) -> NamedKey {
        self.reserve(self.naming.name_bytes_max());
        self.naming.write(index, &mut self.buffer);
        NamedKey {
            index,
            bytes: self.buffer.split().freeze(),
        }
    }

    fn value(&mut self, tag: Tag) -> TaggedValue {
        let bytes = self.value_bytes();
        self.reserve(bytes);
        let filler = &self.workload.shared.filler;
        filler.write(tag, bytes, &mut self.buffer);
        TaggedValue {
            tag,
            bytes: self.buffer.split().freeze(),
        }
    }

    fn value_bytes(&mut self) -> usize {
        let bytes = match &mut self.value_size {
            ValueSize::Constant(bytes) => *bytes,
            ValueSize::Fields { count, bytes } => {
                (0..*count).map(|_| bytes.sample(&mut self.rng)).sum()
            }
        };
        (bytes as usize).max(Tag::BYTES)
    }
}

/// The operations of one session: a function of the workload, the seed and the
/// number of the session.
pub struct Session {
    session: u32,
    chooser: Chooser,
    scan_length: Lengths,
    maker: Maker,
    /// Records inserted so far.
    inserted: u64,
    /// Values written so far.
    written: u64,
}

impl Session {
    /// What to do next. Constant time, but for the length of keys and values and
    /// the number of amplified inserts; allocates once per 8 KiB of keys and
    /// values, and not at all once those before are dropped.
    pub fn next_operation(&mut self) -> Operation {
        match self.choose_kind() {
            OperationKind::Read => Operation::Read {
                key: self.existing_key(),
            },
            OperationKind::Update => Operation::Update {
                key: self.existing_key(),
                value: self.new_value(),
            },
            OperationKind::Insert => Operation::Insert(self.new_record()),
            OperationKind::ReadModifyWrite => Operation::ReadModifyWrite {
                key: self.existing_key(),
                value: self.new_value(),
            },
            OperationKind::Scan => Operation::Scan {
                from: self.existing_key(),
                count: self.scan_length.sample(&mut self.maker.rng),
            },
            OperationKind::AmplifiedInsert => {
                let records = 0..self.maker.workload.spec().amplification;
                Operation::AmplifiedInsert(records.map(|_| self.new_record()).collect())
            }
            OperationKind::ReadOnly => Operation::ReadOnly {
                keys: self.different_keys(),
            },
        }
    }

    /// A value of this session that differs from all others, for an operation
    /// that the workload did not ask for.
    pub fn new_value(&mut self) -> TaggedValue {
        self.written += 1;
        self.maker.value(Tag {
            session: u64::from(self.session),
            counter: self.written,
        })
    }

    fn choose_kind(&mut self) -> OperationKind {
        let drawn: f64 = self.maker.rng.random();
        let cumulative = &self.maker.workload.shared.cumulative;
        // The last sum is 1 up to rounding; what is beyond it belongs to the last
        // kind that has a weight.
        let last = cumulative[cumulative.len() - 1];
        let drawn = drawn.min(last.next_down());
        let index = cumulative.partition_point(|&below| below <= drawn);
        OperationKind::ALL[index]
    }

    fn existing_key(&mut self) -> NamedKey {
        let loaded = self.maker.workload.spec().insert_count;
        let item = self
            .chooser
            .sample(loaded + self.inserted, &mut self.maker.rng);
        let index = match item.checked_sub(loaded) {
            None => self.maker.workload.spec().insert_start + item,
            Some(own) => self.inserted_index(own),
        };
        self.maker.key(index)
    }

    /// The keys of a read-only transaction: fewer than the workload says if one is drawn twice.
    fn different_keys(&mut self) -> Vec<NamedKey> {
        let count = self.maker.workload.spec().read_only_keys;
        let mut keys: Vec<NamedKey> = (0..count).map(|_| self.existing_key()).collect();
        keys.sort_unstable_by_key(|key| key.index);
        keys.dedup_by_key(|key| key.index);
        keys
    }

    fn new_record(&mut self) -> Record {
        let index = self.inserted_index(self.inserted);
        self.inserted += 1;
        Record {
            key: self.maker.key(index),
            value: self.new_value(),
        }
    }

    /// Index of the `own`-th record that this session inserts.
    fn inserted_index(&self, own: u64) -> u64 {
        let Shared { spec, sessions, .. } = &*self.maker.workload.shared;
        spec.record_count + own * u64::from(*sessions) + u64::from(self.session)
    }
}

/// The records that one session loads, in the order of their index.
pub struct Load {
    next: u64,
    left: u64,
    maker: Maker,
}

impl Iterator for Load {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        self.next += u64::from(self.maker.workload.sessions());
        Some(Record {
            key: self.maker.key(index),
            value: self.maker.value(Tag::loaded(index)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}
