//! The conformance suite itself: what it runs, and what it calls a defect.

use std::collections::BTreeSet;

use dkvf_check::Model;
use dkvf_core::storage::Versions;
use dkvf_core::{About, Claims, Fault, Order, Protocol};
use dkvf_protocols::eventual::{self, Eventual, EventualClient, EventualServer};
use dkvf_protocols::gentlerain::GentleRain;
use dkvf_sim::conformance::{self, DefectKind};
use dkvf_sim::{Faults, Options};
use dkvf_workload::faults::FaultKinds;

/// Eventual consistency that claims to be linearizable, as long as no link is slow.
struct Boastful;

impl Protocol for Boastful {
    const NAME: &'static str = "boastful";
    type Metadata = eventual::metadata::Metadata;
    type Server = EventualServer;
    type Client = EventualClient;
    const VERSIONS: Versions = Versions::Single;

    fn claims() -> Claims {
        let tolerates = &[Fault::Partition, Fault::CrashRecovered];
        Claims {
            models: &["linearizable"],
            order: Order::RealTime,
            entity_groups: false,
            tolerates,
        }
    }

    fn about() -> About {
        Eventual::about()
    }
}

fn kinds(word: &str) -> FaultKinds {
    word.parse().unwrap()
}

#[test]
fn a_claim_counts_without_faults_and_under_those_that_the_protocol_tolerates() {
    for faults in ["none", "partition"] {
        let defects = (0..5)
            .filter_map(|seed| conformance::run_and_judge::<Boastful>(seed, kinds(faults)).err());
        let found: Vec<DefectKind> = defects.map(|found| found.0.kind).collect();
        assert!(
            found.contains(&DefectKind::Model(Model::Linearizable)),
            "{faults}: {found:?}"
        );
    }
    for faults in ["delay", "skew", "crash-empty"] {
        let defects = (0..5)
            .filter_map(|seed| conformance::run_and_judge::<Boastful>(seed, kinds(faults)).err());
        assert_eq!(defects.count(), 0, "{faults}");
    }
}

#[test]
fn a_protocol_is_put_through_all_faults_that_it_tolerates_at_once() {
    assert_eq!(conformance::tolerated::<Boastful>(), "crash,disk,partition");
    assert_eq!(
        conformance::tolerated::<Eventual>(),
        "crash,disk,pause,slow,partition,delay,skew"
    );
}

#[test]
fn a_failure_names_the_run_and_the_command_that_repeats_it() {
    let panic =
        std::panic::catch_unwind(|| conformance::claims_hold::<Boastful>("none")).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let seed = lines[0]
        .strip_prefix("boastful, seed ")
        .and_then(|rest| rest.strip_suffix(", faults none"))
        .unwrap();
    assert!(lines[1].starts_with("linearizable: violated"), "{text}");
    let command = format!("again: dkvf sim boastful --seed {seed} --faults none --conformance");
    assert_eq!(lines.last(), Some(&command.as_str()));
}

/// Everything of a run but its faults and what servers recover from.
fn world(options: Options) -> String {
    let Options {
        seed,
        replicas,
        partitions,
        clients,
        operations,
        workload,
        spread_us,
        latency,
        intra_latency,
        clocks,
        ..
    } = options;
    format!(
        "{seed} {replicas} {partitions} {clients} {operations} {workload:?} {spread_us:?} {latency:?} {intra_latency:?} {clocks:?}"
    )
}

#[test]
fn the_world_of_a_seed_is_the_same_under_all_faults() {
    for seed in conformance::SEEDS {
        let with = |faults: &str| conformance::options::<GentleRain>(seed, kinds(faults));
        assert_eq!(with("none").faults, Faults::None);
        assert_eq!(with("delay").faults, Faults::Random(kinds("delay")));
        assert_eq!(world(with("none")), world(with("delay")));
        assert_eq!(world(with("none")), world(with("crash")));
    }
}

#[test]
fn the_seeds_of_a_test_are_different_worlds() {
    let worlds = || {
        conformance::SEEDS.map(|seed| conformance::options::<GentleRain>(seed, FaultKinds::NONE))
    };
    let sizes: BTreeSet<_> = worlds()
        .map(|options| (options.replicas, options.partitions))
        .collect();
    assert_eq!(sizes, BTreeSet::from([(2, 2), (2, 3), (3, 2), (3, 3)]));
    let all: BTreeSet<_> = worlds().map(world).collect();
    assert_eq!(all.len(), conformance::SEEDS.count());
    assert!(worlds().any(|options| options.clocks.skew_us >= 50_000));
    assert!(worlds().any(|options| options.intra_latency == options.latency));
}

#[test]
fn read_only_transactions_occur_where_the_protocol_has_them() {
    let share = |options: Options| options.workload.mix.read_only;
    assert!(
        conformance::SEEDS
            .clone()
            .any(|seed| share(conformance::options::<GentleRain>(seed, FaultKinds::NONE)) > 0.0)
    );
    assert!(
        conformance::SEEDS
            .clone()
            .all(|seed| share(conformance::options::<Eventual>(seed, FaultKinds::NONE)) == 0.0)
    );
}
