//! Random schedules of faults.

use std::collections::{BTreeMap, BTreeSet};

use dkvf_core::{ServerId, Topology};
use dkvf_workload::faults::{
    Disk, Fault, FaultKind, FaultKinds, NemesisOptions, Schedule, Timed, links,
};

const HORIZON_US: u64 = 10_000_000;

fn everything() -> FaultKinds {
    FaultKind::ALL.into_iter().collect()
}

fn options(seed: u64) -> NemesisOptions {
    NemesisOptions {
        timer_us: 20_000,
        latency_us: 1_000,
        ..NemesisOptions::new(everything(), seed, HORIZON_US)
    }
}

fn schedules(count: u64) -> impl Iterator<Item = Schedule> {
    let topology = Topology::grid(2, 3);
    (0..count).map(move |seed| Schedule::random(&options(seed), &topology))
}

fn ended_us(timed: &Timed) -> u64 {
    timed.at_us + timed.for_us.unwrap_or(0)
}

#[test]
fn one_seed_is_one_schedule_and_another_seed_another() {
    let all: Vec<Schedule> = schedules(50).collect();
    assert!(schedules(50).eq(all.iter().cloned()));
    let texts: BTreeSet<String> = all
        .iter()
        .map(|schedule| schedule.write(&Topology::grid(2, 3)))
        .collect();
    assert_eq!(texts.len(), all.len());
}

/// Written down, so that a change of the generator, or a machine that draws otherwise, shows.
#[test]
fn a_seed_is_the_same_schedule_on_every_machine() {
    let options = NemesisOptions {
        kinds: "all".parse().unwrap(),
        ..options(31)
    };
    let topology = Topology::grid(2, 2);
    assert_eq!(
        Schedule::random(&options, &topology).write(&topology),
        r#"{"at_ms":1619.474,"fault":"disk-full","node":"1_0","for_ms":8.077}
{"at_ms":2615.334,"fault":"pause","node":"0_0","for_ms":675.341}
{"at_ms":6377.201,"fault":"pause","node":"0_0","for_ms":1622.799}
{"at_ms":6448.971,"fault":"hold","sides":[["0_0","1_0"],["0_1","1_1"]],"for_ms":305.762}
{"at_ms":7818.603,"fault":"partition","link":"0_1-1_0","for_ms":181.397}
"#
    );
}

#[test]
fn every_kind_occurs_and_each_seed_has_some_of_them() {
    let kinds: Vec<FaultKinds> = schedules(200)
        .map(|schedule| FaultKinds::of(&schedule))
        .collect();
    for kind in FaultKind::ALL {
        let seeds = kinds.iter().filter(|kinds| kinds.contains(kind)).count();
        assert!(
            (40..160).contains(&seeds),
            "{kind:?} in {seeds} of 200 seeds"
        );
    }
    assert!(kinds.iter().all(|kinds| !kinds.is_empty()));
}

#[test]
fn only_the_kinds_that_were_asked_for_occur() {
    let topology = Topology::grid(2, 3);
    for kind in FaultKind::ALL {
        let one: FaultKinds = [kind].into_iter().collect();
        for seed in 0..20 {
            let schedule = Schedule::random(
                &NemesisOptions {
                    kinds: one,
                    ..options(seed)
                },
                &topology,
            );
            assert_eq!(FaultKinds::of(&schedule), one, "{schedule:?}");
        }
    }
    let none = Schedule::random(
        &NemesisOptions {
            kinds: FaultKinds::NONE,
            ..options(1)
        },
        &topology,
    );
    assert_eq!(none, Schedule::default());
}

#[test]
fn all_faults_end_before_the_quiet_time_and_none_contradicts_another() {
    for schedule in schedules(200) {
        assert_eq!(schedule.conflict(), None);
        assert!(schedule.faults.is_sorted_by_key(|timed| timed.at_us));
        for timed in &schedule.faults {
            let is_step = matches!(timed.fault, Fault::Step { .. });
            assert_eq!(timed.for_us.is_none(), is_step, "{timed:?}");
            assert_ne!(timed.for_us, Some(0));
            assert!(ended_us(timed) <= HORIZON_US - HORIZON_US / 5, "{timed:?}");
            let lasting = schedule
                .faults
                .iter()
                .filter(|other| other.at_us <= timed.at_us && timed.at_us < ended_us(other));
            assert!(lasting.count() <= 3, "{schedule:?}");
        }
    }
}

#[test]
fn durations_lie_around_the_timer_the_latency_and_the_length_of_the_run() {
    let mut durations: Vec<u64> = schedules(200)
        .flat_map(|schedule| schedule.faults)
        .filter_map(|timed| timed.for_us)
        .collect();
    durations.sort_unstable();
    let at = |share: f64| durations[(durations.len() as f64 * share) as usize];
    assert!(
        durations[0] >= 300,
        "no shorter than 0.3 latencies but where the run ends"
    );
    assert!(at(0.1) < 6_000, "shorter than 0.3 timers: {}", at(0.1));
    assert!((20_000..200_000).contains(&at(0.5)), "{}", at(0.5));
    assert!(at(0.9) > 600_000, "longer than 30 timers: {}", at(0.9));
}

#[test]
fn partitions_have_every_shape() {
    let topology = Topology::grid(2, 3);
    let cuts: BTreeSet<Vec<(ServerId, ServerId)>> = schedules(400)
        .flat_map(|schedule| schedule.faults)
        .filter_map(|timed| match timed.fault {
            Fault::Cut { links } => Some(links),
            _ => None,
        })
        .collect();
    let has = |cut: &Vec<(ServerId, ServerId)>| cuts.contains(cut);
    let replica = links::replica(&topology, 1);
    for one_way in [false, true] {
        let mut alone = topology
            .ids()
            .map(|id| links::around(&[id], &topology, one_way));
        assert!(alone.any(|cut| has(&cut)), "one server");
        assert!(
            has(&links::around(&replica, &topology, one_way)),
            "a replica"
        );
        let links = if one_way { 1 } else { 2 };
        assert!(cuts.iter().any(|cut| cut.len() == links), "a link");
    }
    // Halves of six servers, and of the five beside a bridge: 3 x 3 and 2 x 3 links and back.
    for links in [18, 12] {
        assert!(cuts.iter().any(|cut| cut.len() == links), "{links} links");
    }
}

#[test]
fn clocks_stay_within_the_bound() {
    for schedule in schedules(300) {
        let mut clocks: BTreeMap<ServerId, i64> = BTreeMap::new();
        for timed in &schedule.faults {
            let moved = match timed.fault {
                Fault::Step { node, by_us } => Some((node, by_us)),
                Fault::Drift { node, ppm } => {
                    assert!(ppm.unsigned_abs() <= 500);
                    Some((
                        node,
                        i64::from(ppm) * timed.for_us.unwrap() as i64 / 1_000_000,
                    ))
                }
                _ => None,
            };
            if let Some((node, moved_us)) = moved {
                let clock = clocks.entry(node).or_default();
                *clock += moved_us;
                assert!(clock.unsigned_abs() <= 100_000, "{schedule:?}");
            }
        }
    }
}

#[test]
fn small_clusters_and_short_runs_have_schedules_too() {
    for (replicas, partitions) in [(1, 1), (1, 2), (2, 1)] {
        let topology = Topology::grid(replicas, partitions);
        for horizon_us in [0, 1, 2, 3, 1000, HORIZON_US] {
            for seed in 0..50 {
                let options = NemesisOptions {
                    horizon_us,
                    heal_us: 0,
                    ..options(seed)
                };
                let schedule = Schedule::random(&options, &topology);
                assert_eq!(schedule.conflict(), None);
                assert!(
                    schedule
                        .faults
                        .iter()
                        .all(|timed| ended_us(timed) <= horizon_us)
                );
                assert!(
                    schedule.faults.is_empty() == (horizon_us < 2),
                    "{horizon_us}: {schedule:?}"
                );
            }
        }
    }
}

#[test]
fn words_choose_kinds() {
    let kinds = |text: &str| {
        text.parse::<FaultKinds>()
            .map(|kinds| kinds.iter().collect::<Vec<_>>())
    };
    assert_eq!(kinds("none"), Ok(vec![]));
    assert_eq!(kinds("crash"), Ok(vec![FaultKind::Crash]));
    assert_eq!(
        kinds("skew, partition"),
        Ok(vec![
            FaultKind::Partition,
            FaultKind::Step,
            FaultKind::Drift
        ])
    );
    let all = "all".parse::<FaultKinds>().unwrap();
    assert!(!all.contains(FaultKind::Break) && !all.contains(FaultKind::CrashEmpty));
    assert_eq!(all.iter().count(), FaultKind::ALL.len() - 2);
    let error = "crash,flood".parse::<FaultKinds>().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("\"flood\" is no kind of fault; there are none, crash, crash-empty,"),
        "{error}"
    );
}

#[test]
fn a_kind_is_that_of_its_fault() {
    let node = ServerId(0);
    for (disk, kind) in [
        (Disk::Kept, FaultKind::Crash),
        (Disk::Torn, FaultKind::Torn),
        (Disk::Empty, FaultKind::CrashEmpty),
    ] {
        assert_eq!(FaultKind::of(&Fault::Crash { node, disk }), Some(kind));
    }
    assert_eq!(FaultKind::of(&Fault::Restart { node }), None);
}
