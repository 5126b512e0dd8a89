//! Looks for a run of the conformance suite that catches each bug: `cargo run --release -p dkvf-known-bugs --example hunt
//! [SEEDS [BUG…]]`. It prints the table of docs/known-bugs.md and the fields of the patches.

#![expect(clippy::disallowed_types, reason = "how long a bug is looked for is real time")]

use std::time::Instant;

use anyhow::Context as _;
use dkvf_known_bugs::{BUGS, Bug, subject};
use dkvf_sim::Subject;

/// Seeds that are tried with each kind of faults, unless the command says otherwise.
const SEEDS: u64 = 2_000;
/// One kind after the other, the simplest first.
const FAULTS: [&str; 8] = ["none", "delay", "pause", "partition", "slow", "skew", "crash", "all"];

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let seeds = words.next().map_or(Ok(SEEDS), |seeds| seeds.parse())?;
    let names: Vec<String> = words.collect();
    println!("| bug | faults | seed | caught | virtual s | runs | real s |\n| --- | --- | --- | --- | --- | --- | --- |");
    for bug in BUGS.iter().filter(|bug| names.is_empty() || names.iter().any(|name| name == bug.name)) {
        hunt(bug, seeds)?;
    }
    Ok(())
}

/// Prints the row of a bug.
fn hunt(bug: &Bug, seeds: u64) -> anyhow::Result<()> {
    let (name, start) = (bug.name, Instant::now());
    let subject = subject(name).context("invariant: the bug is in the table")?;
    let runs = FAULTS.into_iter().flat_map(|faults| (0..seeds).map(move |seed| (faults, seed)));
    for ((faults, seed), runs) in runs.zip(1..) {
        if let Some((caught, virtual_us)) = find(&subject, faults, seed)? {
            let (virtual_s, real_s) = (virtual_us as f64 / 1e6, start.elapsed().as_secs_f64());
            println!("| {name} | {faults} | {seed} | {caught} | {virtual_s:.1} | {runs} | {real_s:.2} |");
            return Ok(());
        }
    }
    let real_s = start.elapsed().as_secs_f64();
    println!("| {name} | not in {seeds} seeds of each kind of faults | | | | | {real_s:.2} |");
    Ok(())
}

/// What a run finds, after how much virtual time.
fn find(subject: &Subject, faults: &str, seed: u64) -> anyhow::Result<Option<(&'static str, u64)>> {
    let outcome = subject.run(&subject.conformance(seed, faults.parse()?))?;
    let defect = subject.judge(&outcome).err();
    Ok(defect.map(|defect| (defect.kind.name(), outcome.virtual_us)))
}
