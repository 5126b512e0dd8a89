//! What several tests need.

use dkvf_check::{Model, Options as CheckOptions, Verdict};
use dkvf_core::Protocol;
use dkvf_protocols::Visitor;
use dkvf_sim::{Options, Outcome, run};
use dkvf_workload::WorkloadSpec;

/// Options of a small run in strict mode.
pub fn options(seed: u64, operations: u64) -> Options {
    let workload = WorkloadSpec::load(
        "a",
        [
            ("recordcount", "30"),
            ("fieldcount", "1"),
            ("fieldlength", "16"),
        ],
    )
    .unwrap();
    Options {
        strict: true,
        ..Options::new(seed, workload, operations)
    }
}

/// Runs the protocol called `name`.
pub fn simulate(name: &str, options: &Options) -> Outcome {
    struct Run<'a>(&'a Options);
    impl Visitor for Run<'_> {
        type Output = Outcome;
        fn visit<P: Protocol>(self) -> Outcome {
            run::<P>(self.0).unwrap()
        }
    }
    dkvf_protocols::visit(name, Run(options)).unwrap()
}

/// What of its claims the history breaks; `None` if it keeps them all.
pub fn violation(name: &str, outcome: &Outcome) -> Option<String> {
    let entry = dkvf_protocols::entries()
        .find(|entry| entry.name == name)
        .unwrap();
    entry.claims.models.iter().find_map(|model| {
        let model: Model = model.parse().unwrap();
        match model.check(&outcome.history, &CheckOptions::default()) {
            Verdict::Satisfied => None,
            verdict => Some(format!("{model:?}: {verdict:?}")),
        }
    })
}
