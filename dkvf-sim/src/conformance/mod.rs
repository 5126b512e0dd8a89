//! The conformance suite: what every protocol is put through, with one line in a test file.
//!
//! ```ignore
//! dkvf_sim::conformance!(MyProtocol);
//! ```
//!
//! Each test is 20 [runs](options) of one kind of faults: a swarm of small clusters whose sessions crowd on a few keys
//! while messages straggle, between replicas and within them. A run is [judged](judge) by what the protocol
//! [claims](dkvf_core::Claims): its models, under the faults it tolerates. Under other faults it need not keep them, but no
//! server may stop, nothing may wait for ever, and the cluster must go on serving.
//!
//! A test that fails says which run it was, in words and as a command that repeats it.

mod defects;
mod swarm;

use std::ops::Range;

use dkvf_core::Protocol;
use dkvf_workload::faults::{FaultKind, FaultKinds};

use crate::{Outcome, run};

pub use defects::{Defect, DefectKind, judge};
pub(crate) use swarm::offers_read_only;
pub use swarm::options;

/// The seeds that a test runs.
pub const SEEDS: Range<u64> = 0..20;
/// The seeds that a test runs twice.
const SEEDS_TWICE: Range<u64> = 0..3;

/// Kinds of faults as `dkvf sim --faults` calls them, one for each test. All at once are those of them that a protocol
/// tolerates.
const KINDS: [&str; 8] = [
    "crash",
    "crash-empty",
    "disk",
    "pause",
    "slow",
    "partition",
    "delay",
    "skew",
];

/// Makes the tests of the suite for a protocol. They are called after what they check, so two protocols need two modules.
#[macro_export]
macro_rules! conformance {
    ($protocol:ty) => {
        $crate::conformance! { @tests $protocol;
            its_claims_hold_without_faults: "none",
            its_claims_hold_when_servers_crash_and_recover: "crash",
            its_claims_hold_when_writes_are_torn_and_disks_are_full: "disk",
            its_claims_hold_when_servers_stand_still: "pause",
            its_claims_hold_when_servers_are_slow: "slow",
            its_claims_hold_when_links_are_cut: "partition",
            its_claims_hold_when_links_are_slow: "delay",
            its_claims_hold_when_clocks_jump_and_drift: "skew",
            it_goes_on_when_servers_come_back_empty: "crash-empty",
        }

        #[test]
        fn its_claims_hold_under_all_faults_that_it_tolerates() {
            $crate::conformance::claims_hold::<$protocol>(&$crate::conformance::tolerated::<$protocol>());
        }

        #[test]
        fn a_seed_is_one_run() {
            $crate::conformance::a_seed_is_one_run::<$protocol>();
        }
    };
    (@tests $protocol:ty; $($name:ident: $faults:literal,)+) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::claims_hold::<$protocol>($faults);
            }
        )+
    };
}

/// The kinds of faults that a protocol tolerates, as `dkvf sim --faults` calls them; `none` if it tolerates none.
pub fn tolerated<P: Protocol>() -> String {
    let words = KINDS.into_iter().filter(|word| tolerates::<P>(kinds(word)));
    let words: Vec<&str> = words.collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(",")
    }
}

/// Whether the claims of a protocol hold under faults of all these kinds.
pub(crate) fn tolerates<P: Protocol>(kinds: FaultKinds) -> bool {
    let claims = P::claims();
    let tolerated = |kind: FaultKind| {
        kind.tolerated_as()
            .is_some_and(|fault| claims.tolerates.contains(&fault))
    };
    kinds.iter().all(tolerated)
}

/// # Panics
/// If `faults` has a word that is no kind of fault.
fn kinds(faults: &str) -> FaultKinds {
    faults.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The run of a seed, judged.
///
/// # Errors
/// What is wrong with it, and what came of it.
///
/// # Panics
/// If the cluster cannot be simulated: the protocol refuses to start.
pub fn run_and_judge<P: Protocol>(
    seed: u64,
    faults: FaultKinds,
) -> Result<Outcome, Box<(Defect, Outcome)>> {
    let outcome = run_one::<P>(seed, faults);
    match judge::<P>(&outcome) {
        Ok(()) => Ok(outcome),
        Err(defect) => Err(Box::new((defect, outcome))),
    }
}

fn run_one<P: Protocol>(seed: u64, faults: FaultKinds) -> Outcome {
    run::<P>(&options::<P>(seed, faults))
        .unwrap_or_else(|error| panic!("{} cannot be simulated: {error:#}", P::NAME))
}

/// A test of the suite: all its seeds with faults of these kinds.
///
/// # Panics
/// If one of them is no good.
pub fn claims_hold<P: Protocol>(faults: &str) {
    for seed in SEEDS {
        if let Err(found) = run_and_judge::<P>(seed, kinds(faults)) {
            panic!(
                "{}\n{}\nagain: {}",
                headline::<P>(seed, faults),
                found.0,
                command::<P>(seed, faults)
            );
        }
    }
}

/// A test of the suite: the same seed gives the same run.
///
/// # Panics
/// If one does not.
pub fn a_seed_is_one_run<P: Protocol>() {
    let faults = tolerated::<P>();
    for seed in SEEDS_TWICE {
        let fingerprint = || {
            let outcome = run_one::<P>(seed, kinds(&faults));
            (
                outcome.events,
                outcome.virtual_us,
                outcome.state_hash,
                outcome.history_hash(),
            )
        };
        let (first, second) = (fingerprint(), fingerprint());
        let again = command::<P>(seed, &faults);
        assert_eq!(
            first,
            second,
            "{}: events, time, state, history differ\nagain: {again}",
            headline::<P>(seed, &faults)
        );
    }
}

fn headline<P: Protocol>(seed: u64, faults: &str) -> String {
    format!("{}, seed {seed}, faults {faults}", P::NAME)
}

/// The command that repeats a run, if the protocol is in the library.
pub fn command<P: Protocol>(seed: u64, faults: &str) -> String {
    format!(
        "dkvf sim {} --seed {seed} --faults {faults} --conformance",
        P::NAME
    )
}
