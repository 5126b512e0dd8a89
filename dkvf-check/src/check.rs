//! The one door to all checkers: [`Model::check`].

use std::cell::Cell;

use crate::groups::Groups;
use crate::history::History;
use crate::linear::DataType;
use crate::model::{Model, Order};
use crate::verdict::Verdict;
use crate::{causal, convergence, graph, linear, sessions};

/// Which evidence on the order of versions a check uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// Key by key: the order that the protocol reports, where it reports one
    /// for every version involved, otherwise what clients saw.
    #[default]
    Auto,
    /// Only the order that the protocol reports; where it is missing the
    /// verdict is unknown.
    WhiteBox,
    /// Only what clients saw: some order of the versions must explain it.
    BlackBox,
}

/// How a history is judged.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Which evidence counts.
    pub evidence: Evidence,
    /// Which order beside the data the model includes; `None` is [`Model::usual_order`].
    pub order: Option<Order>,
    /// What the keys hold, for [`Model::Linearizable`]; `None` is [`DataType::of`] the history.
    pub datatype: Option<DataType>,
    /// What registers and texts hold in the beginning, for [`Model::Linearizable`]; `None` is the absent value.
    pub initial: Option<Vec<u8>>,
    /// Groups of keys within which [`Model::Psi`] must be snapshot isolation.
    pub groups: Option<&'a Groups>,
    /// What may be spent.
    pub budget: Budget<'a>,
}

/// Bounds what a check may spend. Past them its verdict is [`Verdict::Unknown`].
#[derive(Clone, Debug)]
pub struct Budget<'a> {
    /// Asked now and then whether it is time to give up; without it a check takes the time it needs.
    pub is_over: Option<&'a dyn IsOver>,
    /// Bytes that the tables of a check may take beside the history.
    pub memory_bytes: usize,
    /// Steps since it was last asked.
    steps: Cell<u32>,
}

/// Whether time is up. The checkers read no clock: their caller does.
pub trait IsOver: std::fmt::Debug {
    /// Whether it is time to give up.
    fn is_over(&self) -> bool;
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget {
            is_over: None,
            memory_bytes: 2 << 30,
            steps: Cell::new(0),
        }
    }
}

/// A bound of a [`Budget`] was reached: the verdict is unknown, and this is why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted(pub(crate) String);

impl<'a> Budget<'a> {
    /// Steps between two questions: a step is about a visit of an edge.
    const STEPS_PER_QUESTION: u32 = 1 << 14;

    /// A budget that ends when `is_over` says so or a check needs more than `memory_bytes`.
    pub fn new(is_over: Option<&'a dyn IsOver>, memory_bytes: usize) -> Self {
        Budget {
            is_over,
            memory_bytes,
            steps: Cell::new(0),
        }
    }

    /// Counts `steps` of work.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), Exhausted> {
        let total = self
            .steps
            .get()
            .saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if total < Self::STEPS_PER_QUESTION {
            self.steps.set(total);
            return Ok(());
        }
        self.steps.set(0);
        match self.is_over {
            Some(limit) if limit.is_over() => {
                Err(Exhausted("the time limit was reached".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Asks for a table of `bytes`.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Exhausted> {
        if bytes <= self.memory_bytes {
            return Ok(());
        }
        Err(Exhausted(format!(
            "a table of {} MiB does not fit in the memory limit of {} MiB",
            bytes.div_ceil(1 << 20),
            self.memory_bytes >> 20,
        )))
    }
}

impl Options<'_> {
    /// Judge with the usual order and no limit of time, by this evidence.
    pub fn with(evidence: Evidence) -> Self {
        Options {
            evidence,
            ..Options::default()
        }
    }
}

impl Model {
    /// Judges `history`.
    pub fn check(self, history: &History, options: &Options) -> Verdict {
        if let Some(reason) = history.incomplete() {
            return Verdict::Unknown(format!("the history is incomplete: {reason}"));
        }
        match self {
            Model::Convergence => convergence::check(history, options),
            Model::ReadYourWrites
            | Model::MonotonicReads
            | Model::MonotonicWrites
            | Model::WritesFollowReads
            | Model::Pram => sessions::check(self, history, options),
            Model::Causal | Model::CausalWeak | Model::CausalMemory | Model::ReadAtomic => {
                causal::check(self, history, options)
            }
            Model::Linearizable => linear::check(history, options),
            Model::ReadUncommitted
            | Model::CommittedReads
            | Model::ReadCommitted
            | Model::Prefix
            | Model::Psi
            | Model::Si
            | Model::Serializable
            | Model::StrictSerializable
            | Model::Sequential => graph::check(self, history, options),
        }
    }
}
