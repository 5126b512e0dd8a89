//! Claims hold under the faults that links and disks hide.

use dkvf_sim::{Durability, Faults, Options};

use crate::common::{options, simulate, violation};

fn claims_hold(kinds: &str, durability: Durability, seeds: std::ops::Range<u64>) {
    let mut wrong = Vec::new();
    for protocol in dkvf_protocols::NAMES {
        for seed in seeds.clone() {
            let options = Options {
                faults: Faults::Random(kinds.parse().unwrap()),
                durability,
                spread_us: Some(2_000_000),
                ..options(seed, 400)
            };
            let outcome = simulate(protocol, &options);
            let failure = outcome.failure.as_ref().map(ToString::to_string);
            if let Some(text) = failure.or_else(|| violation(protocol, &outcome)) {
                wrong.push(format!(
                    "{protocol} {kinds} {durability:?} seed {seed}: {text}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}

#[test]
fn claims_hold_when_links_are_cut() {
    claims_hold("partition", Durability::None, 0..20);
}

#[test]
fn claims_hold_when_links_are_slow_or_hold_everything_back() {
    claims_hold("delay", Durability::None, 0..20);
}

#[test]
fn claims_hold_when_servers_stand_still_or_are_slow() {
    claims_hold("pause", Durability::None, 0..20);
    claims_hold("slow", Durability::None, 0..20);
}

#[test]
fn claims_hold_when_clocks_jump_and_drift() {
    claims_hold("skew", Durability::None, 0..20);
}

#[test]
fn claims_hold_when_servers_crash_and_come_back_with_what_was_durable() {
    claims_hold("crash", Durability::Sync, 0..20);
    claims_hold("crash", Durability::Group, 0..20);
    claims_hold("disk", Durability::Group, 0..20);
}

#[test]
fn claims_hold_under_everything_at_once() {
    claims_hold("all", Durability::Sync, 0..20);
}
