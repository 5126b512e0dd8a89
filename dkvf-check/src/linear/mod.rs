//! Is every key linearizable (Herlihy and Wing, TOPLAS 1990)? Between its invocation and its return every operation takes
//! effect in one moment, so that all results are those of a sequential object.
//!
//! Keys that no transaction ties together are judged apart, for linearizability is local. Reads and writes of a register
//! whose values are written once are judged by [`zones`] in near-linear time; everything else by a complete [`search`].
//! A transaction of several operations is one step.
//!
//! Real time orders two operations if one returned before the other was invoked. If it returned in the very instant of the
//! other's invocation the two overlap, unless they are of one session.

mod calls;
mod explain;
mod object;
mod parts;
mod search;
mod shrink;
mod ties;
mod zones;

use std::fmt;
use std::str::FromStr;

use crate::check::{Evidence, Exhausted, Options};
use crate::history::{Action, History, OpId, TxnId};
use crate::model::Order;
use crate::verdict::{Anomaly, Verdict};

use calls::Calls;
use object::value_named;
use parts::KeyRanges;
use search::{Found, search};
use zones::{NoRegister, Register};

/// What the keys of a history hold, and with it what operations on them mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataType {
    /// A value that is read and written.
    Register,
    /// A register with compare-and-set.
    CasRegister,
    /// Registers, with or without compare-and-set, of which a transaction accesses several at once.
    MultiRegister,
    /// Texts that are got, put and appended to, several at once if need be; an absent text is empty.
    Kv,
    /// A lock. It does not matter who gives it back.
    Mutex,
    /// Lists that are read and appended to, several at once if need be.
    ListAppend,
}

impl DataType {
    /// Every data type.
    pub const ALL: [DataType; 6] = [
        DataType::Register,
        DataType::CasRegister,
        DataType::MultiRegister,
        DataType::Kv,
        DataType::Mutex,
        DataType::ListAppend,
    ];

    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            DataType::Register => "register",
            DataType::CasRegister => "cas-register",
            DataType::MultiRegister => "multi-register",
            DataType::Kv => "kv",
            DataType::Mutex => "mutex",
            DataType::ListAppend => "list-append",
        }
    }

    /// The simplest type that has the actions of `history`. Appends are to lists, unless values are read or written too.
    pub fn of(history: &History) -> DataType {
        let any = |test: fn(Action) -> bool| history.operations().iter().any(|op| test(op.action));
        if any(|action| matches!(action, Action::Acquire | Action::Release)) {
            DataType::Mutex
        } else if any(|action| matches!(action, Action::Append(_))) {
            match any(|action| matches!(action, Action::Read(_) | Action::Write(_))) {
                true => DataType::Kv,
                false => DataType::ListAppend,
            }
        } else if any(|action| matches!(action, Action::ReadList(_))) {
            DataType::ListAppend
        } else if !history.is_single() || any(|action| matches!(action, Action::Scan(_))) {
            DataType::MultiRegister
        } else if any(|action| matches!(action, Action::Cas { .. })) {
            DataType::CasRegister
        } else {
            DataType::Register
        }
    }

    fn has(self, action: Action) -> bool {
        match action {
            Action::Read(_) | Action::Write(_) => {
                !matches!(self, DataType::Mutex | DataType::ListAppend)
            }
            Action::Cas { .. } => matches!(self, DataType::CasRegister | DataType::MultiRegister),
            Action::Append(_) => matches!(self, DataType::Kv | DataType::ListAppend),
            Action::ReadList(_) => self == DataType::ListAppend,
            Action::Acquire | Action::Release => self == DataType::Mutex,
            Action::Scan(_) => matches!(self, DataType::Kv | DataType::MultiRegister),
        }
    }

    fn has_transactions(self) -> bool {
        matches!(
            self,
            DataType::MultiRegister | DataType::Kv | DataType::ListAppend
        )
    }

    /// Whether a read names the writes it saw: then writes that nobody saw may be left out.
    fn keeps_what_was_written(self) -> bool {
        !matches!(self, DataType::Kv | DataType::Mutex)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = UnknownDataType;

    fn from_str(name: &str) -> Result<Self, UnknownDataType> {
        DataType::ALL
            .into_iter()
            .find(|datatype| datatype.name() == name)
            .ok_or_else(|| UnknownDataType(name.to_owned()))
    }
}

/// There is no data type of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no data type {0:?}; there are: {names}", names = DataType::ALL.map(DataType::name).join(", "))]
pub struct UnknownDataType(pub String);

/// Judges every key. Takes O(n log n) time for registers whose values are written once, else time that is exponential in the
/// number of overlapping operations; past the budget the verdict is unknown.
pub(crate) fn check(history: &History, options: &Options) -> Verdict {
    let datatype = options.datatype.unwrap_or_else(|| DataType::of(history));
    if options.order.is_some_and(|order| order != Order::RealTime) {
        return Verdict::Unknown(
            "linearizability is about real time; without it check sequential".to_owned(),
        );
    }
    if !history.about.has_time() {
        return Verdict::Unknown("the history does not say when operations happened".to_owned());
    }
    if let Some(reason) = misfit(history, datatype) {
        return Verdict::Unknown(reason);
    }
    let judge = Judge {
        history,
        options,
        datatype,
        ranges: KeyRanges::new(history),
    };
    judge.all()
}

/// Why `datatype` is not that of the history, if it is not.
fn misfit(history: &History, datatype: DataType) -> Option<String> {
    let foreign = |&op: &OpId| !datatype.has(history.operations()[op].action);
    if let Some(op) = (0..history.operations().len()).find(foreign) {
        return Some(format!(
            "a {datatype} is not {} (#{op}): name another data type",
            history.action_text(op),
        ));
    }
    let several = |&id: &TxnId| history.operations_of(id).len() > 1;
    let transaction = (0..history.transactions().len()).find(several)?;
    (!datatype.has_transactions()).then(|| {
        format!("T{transaction} has several operations, which a {datatype} does not: name another data type")
    })
}

/// Everything that the judgement of a part depends on.
struct Judge<'a> {
    history: &'a History,
    options: &'a Options<'a>,
    datatype: DataType,
    ranges: KeyRanges,
}

impl Judge<'_> {
    fn all(&self) -> Verdict {
        let parts = parts::parts(self.history, &self.ranges);
        let mut anomalies = Vec::new();
        let mut exhausted = None;
        for part in parts.chunk_by(|a, b| a.0 == b.0) {
            match self.part(part) {
                Ok(anomaly) => anomalies.extend(anomaly),
                Err(Exhausted(reason)) => {
                    let key =
                        self.history.operations()[self.history.operations_of(part[0].1).start].key;
                    let key = self.history.key_text(key);
                    exhausted.get_or_insert(format!("key {key}: {reason}"));
                }
            }
            let is_over = exhausted.is_some() && self.is_over();
            if is_over || anomalies.len() == Verdict::ANOMALIES_MAX {
                break;
            }
        }
        match exhausted {
            _ if !anomalies.is_empty() => Verdict::Violated(anomalies),
            Some(reason) => Verdict::Unknown(reason),
            None => Verdict::Satisfied,
        }
    }

    /// Whether time is up; asks at once.
    fn is_over(&self) -> bool {
        self.options.budget.spend(usize::MAX).is_err()
    }

    fn part(&self, part: &[(u32, TxnId)]) -> Result<Option<Anomaly>, Exhausted> {
        self.options.budget.spend(part.len())?;
        if let Some(register) = self.as_register(part) {
            return match register {
                Ok(register) => self.by_zones(&register),
                Err(flaw) => Ok(explain::not_written(self.history, &flaw)),
            };
        }
        if self.options.evidence == Evidence::WhiteBox {
            let reason = "only registers whose values are written once have an order of versions";
            return Err(Exhausted(reason.to_owned()));
        }
        let transactions: Vec<TxnId> = part.iter().map(|&(_, id)| id).collect();
        let budget = &self.options.budget;
        let mut calls = Calls::new(
            self.history,
            self.datatype,
            self.options.initial.as_deref(),
            &transactions,
            &self.ranges,
            budget,
        )?;
        let all = calls.all();
        let mut steps = u64::MAX;
        match search(self.history, &mut calls, &all, budget, &mut steps)? {
            Found::Linearization => Ok(None),
            Found::Stuck(stuck) => {
                let (chosen, stuck) = shrink::shrink(self.history, &mut calls, stuck, budget);
                Ok(Some(explain::stuck(
                    self.history,
                    &mut calls,
                    &chosen,
                    &stuck,
                )))
            }
        }
    }

    /// The operations of a part as a register whose values are written once, if they are that.
    fn as_register(&self, part: &[(u32, TxnId)]) -> Option<Result<Register<'_>, NoRegister>> {
        let single = |&(_, id): &(u32, TxnId)| {
            let operations = &self.history.operations()[self.history.operations_of(id)];
            matches!(operations, [op] if matches!(op.action, Action::Read(_) | Action::Write(_)))
        };
        if self.datatype == DataType::Kv || !part.iter().all(single) {
            return None;
        }
        let operations = part
            .iter()
            .map(|&(_, id)| self.history.operations_of(id).start);
        let initial = self.options.initial.as_deref();
        let initial = initial.map(|value| value_named(self.history, value));
        match Register::new(self.history, operations, initial) {
            Err(NoRegister::RepeatedValue) => None,
            other => Some(other),
        }
    }

    fn by_zones(&self, register: &Register) -> Result<Option<Anomaly>, Exhausted> {
        if self.options.evidence == Evidence::WhiteBox {
            let conflict = register.version_conflict().map_err(Exhausted)?;
            if let Some((older, newer)) = conflict {
                return Ok(Some(explain::versions(self.history, &older, &newer)));
            }
        }
        if let Some((a, b)) = register.conflict() {
            return Ok(Some(explain::zones(self.history, &a, &b)));
        }
        let cycle = ties::cycle(register, &self.options.budget)?;
        Ok((!cycle.is_empty()).then(|| explain::cycle(self.history, &cycle)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_data_types_are_inverse() {
        for datatype in DataType::ALL {
            assert_eq!(datatype.name().parse(), Ok(datatype));
        }
        let error = "queue".parse::<DataType>().unwrap_err().to_string();
        assert!(error.starts_with("no data type \"queue\"; there are: register, cas-register"));
    }
}
