//! Kinds of faults: what `--faults` chooses, and what a protocol's claim says about each.

use std::str::FromStr;

use dkvf_core::Fault as Tolerated;

use super::{Disk, Fault, Schedule};

/// A kind of fault, as people ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Servers crash and come back with what was durable.
    Crash,
    /// Servers crash and come back empty.
    CrashEmpty,
    /// Servers crash, and their last write is torn.
    Torn,
    /// Disks are full for a while.
    DiskFull,
    /// Servers stand still.
    Pause,
    /// Servers work slower.
    Slow,
    /// Links are cut.
    Partition,
    /// Links are slow.
    Delay,
    /// Links hold everything back for a while.
    Hold,
    /// Clocks jump.
    Step,
    /// Clocks run at another speed.
    Drift,
    /// Links lose, repeat and reorder messages.
    Break,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 12] = [
        FaultKind::Crash,
        FaultKind::CrashEmpty,
        FaultKind::Torn,
        FaultKind::DiskFull,
        FaultKind::Pause,
        FaultKind::Slow,
        FaultKind::Partition,
        FaultKind::Delay,
        FaultKind::Hold,
        FaultKind::Step,
        FaultKind::Drift,
        FaultKind::Break,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Crash => "crash",
            FaultKind::CrashEmpty => "crash-empty",
            FaultKind::Torn => "torn",
            FaultKind::DiskFull => "disk-full",
            FaultKind::Pause => "pause",
            FaultKind::Slow => "slow",
            FaultKind::Partition => "partition",
            FaultKind::Delay => "delay",
            FaultKind::Hold => "hold",
            FaultKind::Step => "step",
            FaultKind::Drift => "drift",
            FaultKind::Break => "break",
        }
    }

    /// The kind of a fault; a restart is part of a crash and has none of its own.
    pub fn of(fault: &Fault) -> Option<FaultKind> {
        Some(match fault {
            Fault::Restart { .. } => return None,
            Fault::Crash { disk, .. } => match disk {
                Disk::Kept => FaultKind::Crash,
                Disk::Torn => FaultKind::Torn,
                Disk::Empty => FaultKind::CrashEmpty,
            },
            Fault::DiskFull { .. } => FaultKind::DiskFull,
            Fault::Pause { .. } => FaultKind::Pause,
            Fault::Slow { .. } => FaultKind::Slow,
            Fault::Cut { .. } => FaultKind::Partition,
            Fault::Delay { .. } => FaultKind::Delay,
            Fault::Hold { .. } => FaultKind::Hold,
            Fault::Step { .. } => FaultKind::Step,
            Fault::Drift { .. } => FaultKind::Drift,
            Fault::Break { .. } => FaultKind::Break,
        })
    }

    /// What a protocol has to tolerate to keep a claim under this kind; `None`: no claim covers it.
    ///
    /// Where nothing is durable, a server that crashes comes back empty whatever its disk does: who runs a cluster
    /// that way asks for [`FaultKind::CrashEmpty`] instead.
    pub fn tolerated_as(self) -> Option<Tolerated> {
        match self {
            FaultKind::Crash | FaultKind::Torn | FaultKind::DiskFull => {
                Some(Tolerated::CrashRecovered)
            }
            FaultKind::CrashEmpty => Some(Tolerated::CrashReplaced),
            FaultKind::Partition => Some(Tolerated::Partition),
            FaultKind::Pause | FaultKind::Slow | FaultKind::Delay | FaultKind::Hold => {
                Some(Tolerated::Delay)
            }
            FaultKind::Step | FaultKind::Drift => Some(Tolerated::Skew),
            FaultKind::Break => None,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultKinds(u16);

/// The words for sets of kinds.
const WORDS: [(&str, &[FaultKind]); 12] = {
    use FaultKind::*;
    [
        ("none", &[]),
        ("crash", &[Crash]),
        ("crash-empty", &[CrashEmpty]),
        ("disk", &[Torn, DiskFull]),
        ("pause", &[Pause]),
        ("slow", &[Slow]),
        ("partition", &[Partition]),
        ("delay", &[Delay, Hold]),
        ("skew", &[Step, Drift]),
        ("drift", &[Drift]),
        // All that servers and links survive by themselves: an empty server and a broken promise are asked for by name.
        (
            "all",
            &[
                Crash, Torn, DiskFull, Pause, Slow, Partition, Delay, Hold, Step, Drift,
            ],
        ),
        ("break", &[Break]),
    ]
};

impl FaultKinds {
    /// No kind.
    pub const NONE: FaultKinds = FaultKinds(0);

    /// The words that [`FaultKinds::from_str`] knows.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().map(|(word, _)| word)
    }

    /// The kinds that occur in a schedule.
    pub fn of(schedule: &Schedule) -> FaultKinds {
        schedule
            .faults
            .iter()
            .filter_map(|timed| FaultKind::of(&timed.fault))
            .collect()
    }

    /// Whether it has this kind.
    pub fn contains(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// Whether it has no kind.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its kinds.
    pub fn iter(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<FaultKind> for FaultKinds {
    fn from_iter<I: IntoIterator<Item = FaultKind>>(kinds: I) -> Self {
        FaultKinds(
            kinds
                .into_iter()
                .fold(0, |set, kind| set | 1 << kind as u16),
        )
    }
}

/// A word that stands for no kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of fault; there are {words}, and lists of them with commas", words = FaultKinds::words().collect::<Vec<_>>().join(", "))]
pub struct UnknownKind(pub String);

/// A word, or several with commas.
impl FromStr for FaultKinds {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let mut kinds = Vec::new();
        for word in text.split(',').map(str::trim) {
            let known = WORDS.iter().find(|(known, _)| *known == word);
            let (_, meant) = known.ok_or_else(|| UnknownKind(word.to_owned()))?;
            kinds.extend_from_slice(meant);
        }
        Ok(kinds.into_iter().collect())
    }
}
