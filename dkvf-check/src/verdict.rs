//! What a checker answers.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::history::{History, KeyId, OpId};
use crate::sessions::Evidence;
use crate::{convergence, monotonic_reads, read_your_writes};

/// A consistency model that histories can be checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// Once writing has stopped, all replicas answer alike.
    Convergence,
    /// A session sees its own earlier writes.
    ReadYourWrites,
    /// A session never sees an older state than it saw before.
    MonotonicReads,
}

impl Model {
    /// Every model, weakest promise first.
    pub const ALL: [Model; 3] = [
        Model::Convergence,
        Model::ReadYourWrites,
        Model::MonotonicReads,
    ];

    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            Model::Convergence => "convergence",
            Model::ReadYourWrites => "read-your-writes",
            Model::MonotonicReads => "monotonic-reads",
        }
    }

    /// Judges `history`. Time is O(n log n) in its operations.
    pub fn check(self, history: &History, evidence: Evidence) -> Verdict {
        match self {
            Model::Convergence => convergence(history, evidence),
            Model::ReadYourWrites => read_your_writes(history, evidence),
            Model::MonotonicReads => monotonic_reads(history, evidence),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        Model::ALL
            .into_iter()
            .find(|model| model.name() == name)
            .ok_or_else(|| UnknownModel(name.to_owned()))
    }
}

/// There is no checker of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no checker for the model {0:?}; there are: {names}", names = Model::ALL.map(Model::name).join(", "))]
pub struct UnknownModel(pub String);

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

/// What is wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyKind {
    /// A read returned a value that nobody wrote.
    ThinAirRead,
    /// A read returned a value whose write failed.
    AbortedRead,
    /// A session did not see its own earlier write.
    OwnWriteMissed,
    /// A session saw an older state than before.
    NonMonotonicRead,
    /// Replicas answer differently after writing has stopped.
    Divergence,
    /// All replicas answer with a state older than a write that took effect.
    LostWrite,
}

impl AnomalyKind {
    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::ThinAirRead => "thin-air-read",
            AnomalyKind::AbortedRead => "aborted-read",
            AnomalyKind::OwnWriteMissed => "own-write-missed",
            AnomalyKind::NonMonotonicRead => "non-monotonic-read",
            AnomalyKind::Divergence => "divergence",
            AnomalyKind::LostWrite => "lost-write",
        }
    }
}

/// A counterexample: a few operations that no allowed history contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What is wrong.
    pub kind: AnomalyKind,
    /// The key it is wrong on, as text.
    pub key: String,
    /// The operations that suffice to show it, in the order of the argument.
    pub operations: Vec<OpId>,
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
            because,
        }
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
    fn names_and_models_are_inverse() {
        for model in Model::ALL {
            assert_eq!(model.name().parse(), Ok(model));
        }
        let error = "causal-ish".parse::<Model>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no checker for the model \"causal-ish\"; there are: \
             convergence, read-your-writes, monotonic-reads"
        );
    }

    #[test]
    fn anomaly_names_in_json_are_those_of_the_text() {
        for kind in [
            AnomalyKind::ThinAirRead,
            AnomalyKind::AbortedRead,
            AnomalyKind::OwnWriteMissed,
            AnomalyKind::NonMonotonicRead,
            AnomalyKind::Divergence,
            AnomalyKind::LostWrite,
        ] {
            let json = serde_json::to_string(&kind).unwrap();
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
