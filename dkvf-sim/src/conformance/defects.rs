//! What is wrong with a run, by the claims of its protocol.

use std::fmt;

use dkvf_check::{Model, Options, Order, Outcome as Recorded, Verdict};
use dkvf_core::{Claims, Fault, Protocol};
use dkvf_workload::faults::FaultKinds;

use super::tolerates;
use crate::outcome::Outcome;

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Of what kind it is.
    pub kind: DefectKind,
    /// The argument: operations and sentences.
    pub text: String,
}

/// A kind of defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefectKind {
    /// The run failed by itself ([`Outcome::failure`]).
    Failure,
    /// A model that the protocol claims is violated, or the history does not tell.
    Model(Model),
    /// A replica no longer served its clients once the faults were over.
    Service,
}

impl DefectKind {
    /// `failure`, the name of the model, or `service`.
    pub fn name(self) -> &'static str {
        match self {
            DefectKind::Failure => "failure",
            DefectKind::Model(model) => model.name(),
            DefectKind::Service => "service",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

/// Judges a run by the claims of its protocol, as far as they reach for the faults that happened.
///
/// # Errors
/// The first defect.
pub fn judge<P: Protocol>(outcome: &Outcome) -> Result<(), Defect> {
    if let Some(failure) = &outcome.failure {
        return Err(Defect {
            kind: DefectKind::Failure,
            text: failure.to_string(),
        });
    }
    let claims = P::claims();
    if claims_reach::<P>(&claims, outcome) {
        for name in claims.models {
            keeps(name, &claims, outcome)?;
        }
    }
    serves(outcome)
}

fn claims_reach<P: Protocol>(claims: &Claims, outcome: &Outcome) -> bool {
    let replaced = outcome.recovery.replaced > 0;
    tolerates::<P>(FaultKinds::of(&outcome.schedule))
        && (!replaced || claims.tolerates.contains(&Fault::CrashReplaced))
}

fn keeps(name: &str, claims: &Claims, outcome: &Outcome) -> Result<(), Defect> {
    let model: Model = name
        .parse()
        .expect("invariant: a protocol claims models that exist");
    let order = match claims.order {
        dkvf_core::Order::None => Order::None,
        dkvf_core::Order::Session => Order::Session,
        dkvf_core::Order::RealTime => Order::RealTime,
    };
    let options = Options {
        order: Some(order),
        ..Options::default()
    };
    match model.check(&outcome.history, &options) {
        Verdict::Satisfied => Ok(()),
        verdict => Err(Defect {
            kind: DefectKind::Model(model),
            text: verdict.explain(&outcome.history).to_string(),
        }),
    }
}

/// After the last fault, sessions of every replica succeed.
fn serves(outcome: &Outcome) -> Result<(), Defect> {
    let history = &outcome.history;
    // A schedule begins with the clients, whose records were loaded before.
    let clients = history
        .transactions()
        .iter()
        .filter(|transaction| transaction.session != u32::MAX);
    let begin_us = clients
        .map(|transaction| transaction.invoke_us)
        .min()
        .unwrap_or(0);
    let ends = outcome
        .schedule
        .faults
        .iter()
        .map(|timed| timed.at_us + timed.for_us.unwrap_or(0));
    let healed_us = begin_us + ends.max().unwrap_or(0);
    for (site, name) in history.sites().iter().enumerate() {
        let served = history.transactions().iter().any(|transaction| {
            transaction.site.index() == site
                && transaction.invoke_us >= healed_us
                && transaction.outcome == Recorded::Ok
        });
        if !served {
            let text = format!("at {name} nothing succeeded after the last fault");
            return Err(Defect {
                kind: DefectKind::Service,
                text,
            });
        }
    }
    Ok(())
}
