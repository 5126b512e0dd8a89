//! What a checker answers.

use std::fmt;

use serde::Serialize;

use crate::history::{History, KeyId, OpId};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The model allows the history.
    Satisfied,
    /// The model forbids the history; at least one anomaly, at most
    /// [`Verdict::ANOMALIES_MAX`].
    Violated(Vec<Anomaly>),
    /// The history does not tell; the reason.
    Unknown(String),
}

impl Verdict {
    /// A verdict names this many anomalies; one refutes a model, and a reader
    /// needs few.
    pub const ANOMALIES_MAX: usize = 16;

    /// `satisfied`, `violated` or `unknown`.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Satisfied => "satisfied",
            Verdict::Violated(_) => "violated",
            Verdict::Unknown(_) => "unknown",
        }
    }

    /// The worst of several verdicts: one violation outweighs everything, and
    /// an unknown outweighs what is satisfied. Of equals the first; unknown if
    /// there is none, for then nothing was checked.
    pub fn worst(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let severity = |verdict: &Verdict| match verdict {
            Verdict::Satisfied => 0,
            Verdict::Unknown(_) => 1,
            Verdict::Violated(_) => 2,
        };
        let worse = |worst, verdict| {
            if severity(&verdict) > severity(&worst) {
                verdict
            } else {
                worst
            }
        };
        let worst = verdicts.into_iter().reduce(worse);
        worst.unwrap_or_else(|| Verdict::Unknown("no model was checked".to_owned()))
    }

    /// The verdict as text: its name, then the reason or each anomaly.
    pub fn explain<'a>(&'a self, history: &'a History) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            f.write_str(self.name())?;
            match self {
                Verdict::Satisfied => Ok(()),
                Verdict::Unknown(reason) => write!(f, ": {reason}"),
                Verdict::Violated(anomalies) => anomalies
                    .iter()
                    .try_for_each(|anomaly| write!(f, "\n{}", anomaly.explain(history))),
            }
        })
    }
}

macro_rules! anomaly_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)+) => {
        /// What is wrong with a history.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum AnomalyKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)+
        }

        impl AnomalyKind {
            /// Every kind.
            pub const ALL: &[AnomalyKind] = &[$(AnomalyKind::$kind),+];

            /// The name people and scripts use.
            pub fn name(self) -> &'static str {
                match self {
                    $(AnomalyKind::$kind => $name,)+
                }
            }
        }
    };
}

anomaly_kinds! {
    /// A read returned a value that nobody wrote.
    ThinAirRead = "thin-air-read",
    /// A read returned a value whose transaction failed (G1a).
    AbortedRead = "aborted-read",
    /// A read returned a value that its transaction overwrote itself (G1b).
    IntermediateRead = "intermediate-read",
    /// A transaction read a value that it wrote only later.
    FutureRead = "future-read",
    /// A transaction did not read what it had written or read itself before (INT).
    InternalRead = "internal-read",
    /// A transaction read a key twice and got two versions.
    NonRepeatableRead = "non-repeatable-read",
    /// Two reads of a list are not prefixes of one list, or a list holds an element twice.
    IncompatibleOrder = "incompatible-order",
    /// Writes of transactions interleave (G0).
    DirtyWrite = "dirty-write",
    /// Information flows in a circle (G1c).
    CircularInformationFlow = "circular-information-flow",
    /// A transaction saw a part of another one's writes.
    FracturedRead = "fractured-read",
    /// A transaction saw one key before and another after a third transaction (G-single).
    ReadSkew = "read-skew",
    /// A transaction that had read a version of a key wrote a newer one without having seen one between them (P4); often
    /// two transactions read the same version and both replace it.
    LostUpdate = "lost-update",
    /// Two transactions saw two independent writes in opposite orders (G-nonadjacent).
    LongFork = "long-fork",
    /// A cycle with anti-dependencies that are not adjacent (G-nonadjacent).
    NonadjacentCycle = "nonadjacent-cycle",
    /// Two transactions read what the other one writes (G2-item).
    WriteSkew = "write-skew",
    /// A cycle with adjacent anti-dependencies (G2-item).
    AntiDependencyCycle = "anti-dependency-cycle",
    /// Operations are their own causes (CyclicCO).
    CyclicCausality = "cyclic-causality",
    /// A read missed a write in its causal past (WriteCORead, WriteCOInitRead).
    CausalityViolation = "causality-violation",
    /// Causality and what was read ask for contradicting orders of versions (CyclicCF).
    ConflictOrderCycle = "conflict-order-cycle",
    /// No order of what a session knows explains its reads (CyclicHB).
    UnexplainedSession = "unexplained-session",
    /// A session did not see its own earlier write.
    OwnWriteMissed = "own-write-missed",
    /// A session saw an older state than before.
    NonMonotonicRead = "non-monotonic-read",
    /// A later write of a session was seen without its earlier one.
    NonMonotonicWrite = "non-monotonic-write",
    /// A write was seen without what its session had seen before it.
    WriteBeforeItsCause = "write-before-its-cause",
    /// A read returned a value that had been replaced before the read was invoked.
    StaleRead = "stale-read",
    /// A transaction that returned before another began comes after it.
    RealTimeViolation = "real-time-violation",
    /// No order that agrees with real time explains the results of the operations on a key.
    NotLinearizable = "not-linearizable",
    /// The stamps that the protocol reports contradict what was read.
    StampOrder = "stamp-order",
    /// Replicas answer differently after writing has stopped.
    Divergence = "divergence",
    /// All replicas answer with a state older than a write that took effect.
    LostWrite = "lost-write",
}

/// Why one operation must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeKind {
    /// The same session issued it later.
    Session,
    /// It was invoked after the other one had returned.
    RealTime,
    /// It read what the other one wrote (WR).
    ReadsFrom,
    /// It wrote the next version (WW).
    VersionOrder,
    /// It replaced the version that the other one read (RW).
    AntiDependency,
    /// It follows from the model and other edges.
    Inferred,
}

impl EdgeKind {
    /// As papers abbreviate it.
    pub fn label(self) -> &'static str {
        match self {
            EdgeKind::Session => "so",
            EdgeKind::RealTime => "rt",
            EdgeKind::ReadsFrom => "wr",
            EdgeKind::VersionOrder => "ww",
            EdgeKind::AntiDependency => "rw",
            EdgeKind::Inferred => "inferred",
        }
    }
}

/// An arrow of a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Edge {
    /// What comes first.
    pub from: OpId,
    /// What comes after it.
    pub to: OpId,
    /// Why.
    pub kind: EdgeKind,
}

/// A counterexample: a few operations that no allowed history contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What is wrong.
    pub kind: AnomalyKind,
    /// The key it is wrong on, as text; of several keys the first.
    pub key: String,
    /// The operations that suffice to show it, in the order of the argument.
    pub operations: Vec<OpId>,
    /// The arrows of a picture of it. Those of a cycle come in its order.
    pub edges: Vec<Edge>,
    /// The argument, sentence by sentence.
    pub because: Vec<String>,
}

impl Anomaly {
    pub(crate) fn new(
        history: &History,
        kind: AnomalyKind,
        key: KeyId,
        operations: Vec<OpId>,
        because: Vec<String>,
    ) -> Self {
        Anomaly {
            kind,
            key: history.key_text(key),
            operations,
            edges: Vec::new(),
            because,
        }
    }

    pub(crate) fn with_edges(mut self, edges: Vec<Edge>) -> Self {
        self.edges = edges;
        self
    }

    /// The anomaly as text: its operations, then the argument. `history` is the
    /// one it was found in.
    pub fn explain<'a>(&'a self, history: &'a History) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            write!(f, "{} on key {}", self.kind.name(), self.key)?;
            for &operation in &self.operations {
                write!(f, "\n  {}", history.describe(operation))?;
            }
            for sentence in &self.because {
                write!(f, "\n  {sentence}")?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anomaly_names_in_json_are_those_of_the_text() {
        for kind in AnomalyKind::ALL {
            let json = serde_json::to_string(kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
    }

    #[test]
    fn the_worst_verdict_wins() {
        let unknown = || Verdict::Unknown("cap".to_owned());
        let violated = || Verdict::Violated(Vec::new());
        assert!(matches!(Verdict::worst([]), Verdict::Unknown(_)));
        assert_eq!(
            Verdict::worst([Verdict::Satisfied, unknown()]),
            Verdict::Unknown("cap".to_owned())
        );
        assert_eq!(
            Verdict::worst([unknown(), violated(), Verdict::Satisfied]),
            violated()
        );
    }
}
