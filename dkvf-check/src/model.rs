//! The consistency models that histories can be checked against.

use std::fmt;
use std::str::FromStr;

/// A consistency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// Once writing has stopped, all replicas answer alike.
    Convergence,
    /// A session sees its own earlier writes.
    ReadYourWrites,
    /// A session never sees an older state than it saw before.
    MonotonicReads,
    /// Whoever sees a write of a session sees its earlier ones.
    MonotonicWrites,
    /// Whoever sees a write sees what its session had seen before it.
    WritesFollowReads,
    /// Pipelined RAM: read-your-writes, monotonic reads and monotonic writes, with one order of the versions of each
    /// key. (That of Lipton and Sandberg gives each session an order of its own; causal memory includes that one, not
    /// this.)
    Pram,
    /// Causal consistency with convergent conflict handling (CCv of Bouajjani et al., POPL 2017).
    Causal,
    /// Causal memory (CM of Bouajjani et al.; Ahamad et al. 1995). For single operations.
    CausalMemory,
    /// Causal consistency without convergence (CC of Bouajjani et al.). Each key that a transaction read may be
    /// explained by an order of its own.
    CausalWeak,
    /// PL-1 of Adya: no dirty write (G0).
    ReadUncommitted,
    /// No read of an aborted (G1a) or an intermediate (G1b) value; nothing else.
    CommittedReads,
    /// PL-2 of Adya: also no circular information flow (G1c).
    ReadCommitted,
    /// No fractured reads (Bailis et al., SIGMOD 2014).
    ReadAtomic,
    /// Prefix consistency: every snapshot is a prefix of one commit order.
    Prefix,
    /// Parallel snapshot isolation (Sovran et al., SOSP 2011).
    Psi,
    /// Snapshot isolation.
    Si,
    /// Serializability.
    Serializable,
    /// Serializability in an order that agrees with real time.
    StrictSerializable,
    /// Sequential consistency (Lamport 1979): serializability of single operations with session order.
    Sequential,
    /// Linearizability of each key (Herlihy and Wing 1990).
    Linearizable,
}

/// Which order beside the data a model includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// None.
    None,
    /// The order of transactions within a session.
    Session,
    /// Real time, and with it session order: what returned before another was invoked comes first.
    RealTime,
}

impl Model {
    /// Every model.
    pub const ALL: [Model; 20] = [
        Model::Convergence,
        Model::ReadYourWrites,
        Model::MonotonicReads,
        Model::MonotonicWrites,
        Model::WritesFollowReads,
        Model::Pram,
        Model::CausalWeak,
        Model::Causal,
        Model::CausalMemory,
        Model::ReadUncommitted,
        Model::CommittedReads,
        Model::ReadCommitted,
        Model::ReadAtomic,
        Model::Prefix,
        Model::Psi,
        Model::Si,
        Model::Serializable,
        Model::StrictSerializable,
        Model::Sequential,
        Model::Linearizable,
    ];

    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            Model::Convergence => "convergence",
            Model::ReadYourWrites => "read-your-writes",
            Model::MonotonicReads => "monotonic-reads",
            Model::MonotonicWrites => "monotonic-writes",
            Model::WritesFollowReads => "writes-follow-reads",
            Model::Pram => "pram",
            Model::Causal => "causal",
            Model::CausalMemory => "causal-memory",
            Model::CausalWeak => "causal-weak",
            Model::ReadUncommitted => "read-uncommitted",
            Model::CommittedReads => "committed-reads",
            Model::ReadCommitted => "read-committed",
            Model::ReadAtomic => "read-atomic",
            Model::Prefix => "prefix",
            Model::Psi => "psi",
            Model::Si => "si",
            Model::Serializable => "serializable",
            Model::StrictSerializable => "strict-serializable",
            Model::Sequential => "sequential",
            Model::Linearizable => "linearizable",
        }
    }

    /// The order that its usual definition includes.
    pub fn usual_order(self) -> Order {
        match self {
            Model::Convergence | Model::ReadUncommitted | Model::CommittedReads => Order::None,
            Model::StrictSerializable | Model::Linearizable => Order::RealTime,
            _ => Order::Session,
        }
    }

    /// The models that this one directly includes: a history that violates one of them violates this one, too (the
    /// ladder of VERIFICATION, section 2).
    ///
    /// That is so with equal orders and equal evidence; linearizability, causal memory and weak causality look only at
    /// what clients saw. Linearizability includes session order only if nothing follows an operation of unknown outcome
    /// in its session, for such an operation may take effect at any later time.
    pub fn includes(self) -> &'static [Model] {
        match self {
            Model::StrictSerializable => &[Model::Serializable, Model::Linearizable],
            Model::Linearizable => &[Model::Sequential],
            Model::Serializable => &[Model::Si],
            Model::Si => &[Model::Prefix, Model::Psi],
            Model::Prefix | Model::Psi => &[Model::Causal],
            Model::Causal => &[
                Model::CausalWeak,
                Model::ReadAtomic,
                Model::Pram,
                Model::WritesFollowReads,
            ],
            Model::ReadAtomic => &[Model::ReadCommitted],
            Model::ReadCommitted => &[Model::ReadUncommitted, Model::CommittedReads],
            Model::Sequential => &[Model::CausalMemory, Model::Causal],
            Model::CausalMemory => &[Model::CausalWeak],
            Model::Pram => &[
                Model::ReadYourWrites,
                Model::MonotonicReads,
                Model::MonotonicWrites,
            ],
            Model::CausalWeak
            | Model::ReadYourWrites
            | Model::MonotonicReads
            | Model::MonotonicWrites
            | Model::WritesFollowReads => &[Model::CommittedReads],
            Model::Convergence | Model::ReadUncommitted | Model::CommittedReads => &[],
        }
    }

    /// Whether a history that violates `weaker` violates this model: it is this one, or included directly or not.
    pub fn implies(self, weaker: Model) -> bool {
        self == weaker || self.includes().iter().any(|model| model.implies(weaker))
    }
}

impl Order {
    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            Order::None => "none",
            Order::Session => "session",
            Order::RealTime => "realtime",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Order {
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

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(name: &str) -> Result<Self, UnknownOrder> {
        [Order::None, Order::Session, Order::RealTime]
            .into_iter()
            .find(|order| order.name() == name)
            .ok_or_else(|| UnknownOrder(name.to_owned()))
    }
}

/// There is no checker of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no checker for the model {0:?}; there are: {names}", names = Model::ALL.map(Model::name).join(", "))]
pub struct UnknownModel(pub String);

/// There is no order of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no order {0:?}; there are: none, session, realtime")]
pub struct UnknownOrder(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_models_are_inverse() {
        for model in Model::ALL {
            assert_eq!(model.name().parse(), Ok(model));
        }
        let error = "causal-ish".parse::<Model>().unwrap_err().to_string();
        assert!(
            error.starts_with(
                "no checker for the model \"causal-ish\"; there are: convergence, read-your-writes"
            ),
            "{error}"
        );
    }

    #[test]
    fn no_model_includes_itself_through_others() {
        fn depth(model: Model) -> usize {
            1 + model
                .includes()
                .iter()
                .copied()
                .map(depth)
                .max()
                .unwrap_or(0)
        }
        for model in Model::ALL {
            assert!(depth(model) <= Model::ALL.len(), "{model}");
        }
    }
}
