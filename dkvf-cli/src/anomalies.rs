//! `dkvf anomalies`: the anomaly matrix, found by running the scenarios.

use std::collections::BTreeMap;

use clap::Args;
use dkvf_sim::anomalies::{Cell, Phenomenon};
use serde::Serialize;

use crate::{Ending, output, subject};

/// Which anomalies protocols let happen, found by running small workloads that ask for them in the simulator.
#[derive(Args)]
#[command(
    after_help = "A cell is `observed` if a checker found the anomaly in the history of a run, `forbidden` if it was in none of the runs, and
`not-applicable` if the protocol's clients cannot show it: dirty writes, non-repeatable reads, lost updates and write
skew need transactions of several operations; a long fork needs at least read-only transactions. For a client of single keys
every operation is a transaction of its own. What each column means and how it is looked for is in docs/simulator.md.

Examples:
  dkvf anomalies
  dkvf anomalies eventual causalspartan --seeds 200 --json matrix.json"
)]
pub struct Arguments {
    /// The protocols, or bug:NAME; all of the library if none is named.
    #[arg(value_name = "PROTOCOL")]
    protocols: Vec<String>,
    /// Runs of each scenario.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Shows where each anomaly was observed.
    #[arg(long)]
    schedules: bool,
    /// Writes the matrix as JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// By protocol and anomaly.
type Matrix<T> = BTreeMap<String, BTreeMap<&'static str, T>>;

#[derive(Serialize)]
struct Report {
    matrix: Matrix<&'static str>,
    /// Where what is observed was observed.
    schedules: Matrix<Schedule>,
    /// Runs of each scenario.
    seeds: u64,
}

#[derive(Serialize)]
struct Schedule {
    scenario: &'static str,
    seed: u64,
    explanation: String,
}

/// Runs the command.
///
/// # Errors
/// There is no such protocol, a run fails, or the matrix cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let library = || {
        dkvf_protocols::NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    };
    let protocols: Vec<String> = if arguments.protocols.is_empty() {
        library()
    } else {
        arguments.protocols.clone()
    };
    let rows = rows(&protocols, arguments.seeds)?;
    let report = report(&protocols, &rows, arguments.seeds);
    if let Some(target) = &arguments.json {
        output::write_json(target, &report)?;
    }
    if arguments.json.as_deref() != Some("-") {
        output::print(&describe(&protocols, &rows, &report, arguments.schedules))?;
    }
    Ok(Ending::Done)
}

/// A thread for each protocol: they take about as long as each other.
fn rows(protocols: &[String], seeds: u64) -> anyhow::Result<Vec<Vec<Cell>>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = protocols
            .iter()
            .map(|protocol| scope.spawn(move || subject::find(protocol)?.anomalies(seeds)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    })
}

fn report(protocols: &[String], rows: &[Vec<Cell>], seeds: u64) -> Report {
    let named = |row: &[Cell]| -> Vec<(&'static str, Cell)> {
        Phenomenon::ALL
            .iter()
            .map(|phenomenon| phenomenon.name())
            .zip(row.iter().cloned())
            .collect()
    };
    let mut report = Report {
        matrix: BTreeMap::new(),
        schedules: BTreeMap::new(),
        seeds,
    };
    for (protocol, row) in protocols.iter().zip(rows) {
        let cells = report.matrix.entry(protocol.clone()).or_default();
        let schedules = report.schedules.entry(protocol.clone()).or_default();
        for (name, cell) in named(row) {
            cells.insert(name, cell.name());
            if let Cell::Observed(observation) = cell {
                let (scenario, seed, explanation) =
                    (observation.scenario, observation.seed, observation.text);
                schedules.insert(
                    name,
                    Schedule {
                        scenario,
                        seed,
                        explanation,
                    },
                );
            }
        }
    }
    report
}

fn describe(protocols: &[String], rows: &[Vec<Cell>], report: &Report, schedules: bool) -> String {
    let names = Phenomenon::ALL.iter().map(|phenomenon| phenomenon.name());
    let header: Vec<&str> = std::iter::once("protocol").chain(names).collect();
    let mut table = output::table(&header);
    for (protocol, row) in protocols.iter().zip(rows) {
        let word = |cell: &Cell| {
            if *cell == Cell::NotApplicable {
                "-"
            } else {
                cell.name()
            }
        };
        let cells = row.iter().map(|cell| word(cell).to_owned());
        table.add_row(std::iter::once(protocol.clone()).chain(cells));
    }
    let mut text = format!(
        "{table}\n\n{} runs of each scenario; - is not applicable\n",
        report.seeds
    );
    for (protocol, observed) in report.schedules.iter().filter(|_| schedules) {
        for (
            name,
            Schedule {
                scenario,
                seed,
                explanation,
            },
        ) in observed
        {
            text +=
                &format!("\n{protocol}, {name}, scenario {scenario}, seed {seed}: {explanation}\n");
        }
    }
    text
}
