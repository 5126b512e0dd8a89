//! Looks for a run of the conformance suite that catches each bug: `cargo run --release -p dkvf-known-bugs --example hunt
//! [SEEDS [BUG…]]`. It prints the table of docs/known-bugs.md and the fields of the patches.

#![expect(clippy::disallowed_types, reason = "how long a bug is looked for is real time")]

use std::time::Instant;

use dkvf_core::Protocol;
use dkvf_known_bugs::{BUGS, Bug, visit};
use dkvf_protocols::Visitor;
use dkvf_sim::conformance;

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
        let start = Instant::now();
        let mut runs = 0;
        let found = FAULTS.into_iter().find_map(|faults| {
            (0..seeds).find_map(|seed| {
                runs += 1;
                let (caught, virtual_us) = visit(bug.name, Run { faults, seed })??;
                Some((faults, seed, caught, virtual_us))
            })
        });
        row(bug, found, runs, start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn row(bug: &Bug, found: Option<(&str, u64, &str, u64)>, runs: u64, real_s: f64) {
    let name = bug.name;
    match found {
        Some((faults, seed, caught, virtual_us)) => {
            let virtual_s = virtual_us as f64 / 1e6;
            println!("| {name} | {faults} | {seed} | {caught} | {virtual_s:.1} | {runs} | {real_s:.2} |");
        }
        None => println!("| {name} | not found | | | | {runs} | {real_s:.2} |"),
    }
}

/// A run, and what it finds after how much virtual time.
struct Run {
    faults: &'static str,
    seed: u64,
}

impl Visitor for Run {
    type Output = Option<(&'static str, u64)>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let kinds = self.faults.parse().ok()?;
        let found = conformance::run_and_judge::<P>(self.seed, kinds).err()?;
        let (defect, outcome) = *found;
        Some((defect.kind.name(), outcome.virtual_us))
    }
}
