//! A protocol that can be simulated, with its type erased.
//!
//! A simulation is compiled for each protocol, which takes its time. Who has many of them, or chooses one by name, compiles
//! them once, where [`Subject::of`] is called, and hands the result around.

use dkvf_core::{Claims, Protocol};
use dkvf_workload::faults::FaultKinds;

use crate::anomalies::{self, Cell};
use crate::conformance::{self, Defect};
use crate::{Options, Outcome, run};

/// What can be done with a protocol in the simulator.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    run: fn(&Options) -> anyhow::Result<Outcome>,
    judge: fn(&Outcome) -> Result<(), Defect>,
    conformance: fn(u64, FaultKinds) -> Options,
    anomalies: fn(u64) -> anyhow::Result<Vec<Cell>>,
    claims: fn() -> Claims,
}

impl Subject {
    /// Protocol `P`.
    pub fn of<P: Protocol>() -> Self {
        Subject {
            run: run::<P>,
            judge: conformance::judge::<P>,
            conformance: conformance::options::<P>,
            anomalies: anomalies::row::<P>,
            claims: P::claims,
        }
    }

    /// Simulates one run: [`run`].
    ///
    /// # Errors
    /// Options that contradict themselves or cannot be simulated.
    pub fn run(&self, options: &Options) -> anyhow::Result<Outcome> {
        (self.run)(options)
    }

    /// Judges a run as the conformance suite does: [`conformance::judge`].
    ///
    /// # Errors
    /// The first defect.
    pub fn judge(&self, outcome: &Outcome) -> Result<(), Defect> {
        (self.judge)(outcome)
    }

    /// A run of the conformance suite: [`conformance::options`].
    pub fn conformance(&self, seed: u64, faults: FaultKinds) -> Options {
        (self.conformance)(seed, faults)
    }

    /// Its row in the anomaly matrix: [`anomalies::row`].
    ///
    /// # Errors
    /// A run fails, or a checker cannot tell.
    pub fn anomalies(&self, seeds: u64) -> anyhow::Result<Vec<Cell>> {
        (self.anomalies)(seeds)
    }

    /// What it claims.
    pub fn claims(&self) -> Claims {
        (self.claims)()
    }
}
