//! The options of `dkvf sim`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::usage;
use crate::workload::WorkloadArguments;

/// Most seeds of one command.
const SEEDS_MAX: u64 = 100_000_000;

/// Simulates a protocol in virtual time, with faults: one seed is one run, on every machine.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "PROTOCOL is a protocol of the library or bug:NAME, one of its known bugs; `bug:` lists them.
Ctrl-C ends after the runs that have begun; a second one ends at once.
Exit status: 0 done, or all claims hold; 1 a claim is violated, or a run failed; 2 could not tell, or bad usage.
Output and model are explained in docs/simulator.md.

Examples:
  dkvf sim gentlerain --seeds 0..100 --faults all --check
  dkvf sim causalspartan --latency aws --replicas 5 --skew 10 --ops 20000
  dkvf sim bug:cops-no-dependency-check --conformance --explain bug.svg"
)]
pub struct Arguments {
    /// The protocol, or bug:NAME.
    pub protocol: String,
    #[command(flatten)]
    pub runs: RunArguments,
    #[command(flatten)]
    pub workload: WorkloadArguments,
    #[command(flatten)]
    pub world: WorldArguments,
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Which runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runs")]
pub struct RunArguments {
    /// The run: everything random is drawn from it.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u64>,
    /// Runs of several seeds, on all cores: from A to B-1, or A..=B. The first violation ends it.
    #[arg(long, value_name = "A..B")]
    pub seeds: Option<String>,
    /// Goes on after a violation.
    #[arg(long, requires = "seeds")]
    pub keep_going: bool,
    /// Operations, over all clients [default: 1000].
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// Client sessions, bound to the replicas in turn [default: 8].
    #[arg(long, value_name = "N")]
    pub clients: Option<u32>,
    /// The run of the conformance suite for each seed: cluster, workload, latencies, clocks and durability are drawn, too.
    /// Other options change it. Implies --check.
    #[arg(long, conflicts_with_all = ["workload", "properties", "records", "value_size", "get_proportion", "target"])]
    pub conformance: bool,
    /// Judges each history by what the protocol claims; a violation is made small and shown.
    #[arg(long)]
    pub check: bool,
    /// Shows the violated run as it is.
    #[arg(long)]
    pub no_shrink: bool,
}

/// The cluster, and what surrounds it. `None` is the default.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "World")]
pub struct WorldArguments {
    /// Full copies of the data [default: 2].
    #[arg(long, value_name = "R")]
    pub replicas: Option<u16>,
    /// Parts of the key space [default: 3].
    #[arg(long, value_name = "P")]
    pub partitions: Option<u16>,
    /// Spreads the operations over so many virtual milliseconds, or none: each session as fast as it is answered
    /// [default: 2000 with --faults, otherwise none].
    #[arg(long, value_name = "MS|none")]
    pub spread: Option<String>,
    /// One-way latency between replicas: constant:MS, uniform:MS or uniform:MS:SPREAD, normal:MS:DEVIATION, aws, gcp,
    /// or a matrix file [default: uniform:10:5].
    #[arg(long, value_name = "LATENCY")]
    pub latency: Option<String>,
    /// The same within a replica, clients included [default: uniform:0.25:0.15].
    #[arg(long, value_name = "LATENCY")]
    pub intra_latency: Option<String>,
    /// Bytes per second that a link between servers transmits [default: none, as many as there are].
    #[arg(long, value_name = "BYTES|none")]
    pub bandwidth: Option<String>,
    /// Physical clocks are at first up to this far from true time.
    #[arg(long, value_name = "MS")]
    pub skew: Option<f64>,
    /// Clocks run up to so many millionths too fast or slow.
    #[arg(long, value_name = "PPM")]
    pub drift: Option<u32>,
    /// Clocks are corrected every INTERVAL, to within ERROR, in milliseconds [default: none; --ntp alone: 16000:5].
    #[arg(long, value_name = "INTERVAL:ERROR|none", num_args = 0..=1, require_equals = true, default_missing_value = "16000:5")]
    pub ntp: Option<String>,
    /// What work costs on the servers: a file of `dkvf calibrate` [default: none, nothing].
    #[arg(long, value_name = "FILE|none")]
    pub cpu: Option<String>,
    /// What goes wrong: none, crash, crash-empty, disk, pause, slow, partition, delay, skew, drift, break, all, several of these
    /// with commas, drawn from the seed; or a schedule, as a file or given here line by line (docs/faults.md).
    #[arg(long, value_name = "KINDS|FILE|JSON", action = ArgAction::Append)]
    pub faults: Vec<String>,
    /// The storage engine: those that are a function of their input can be simulated, so far `memory`.
    #[arg(long, value_name = "NAME")]
    pub storage: Option<String>,
    /// What survives a crash: none, async, group or sync [default: none; group with faults that need a disk].
    #[arg(long, value_name = "MODE")]
    pub durability: Option<String>,
    /// Milliseconds after which a client gives up [default: 2000].
    #[arg(long, value_name = "MS")]
    pub timeout: Option<f64>,
    /// A property of the protocol, such as heartbeat_interval=20.
    #[arg(long, value_name = "KEY=VALUE", action = ArgAction::Append)]
    pub protocol_property: Vec<String>,
    /// Whether handlers that wait are run twice, to find those that changed something.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict: Option<bool>,
}

/// What is shown and written. Of a violated run it is the smallest one found.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArguments {
    /// Writes the counterexample of a violated run: .svg, .html or .txt.
    #[arg(long, value_name = "FILE")]
    pub explain: Option<PathBuf>,
    /// Writes what happened, of the violated run or the only one: .jsonl, .svg or .html.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Writes the history, of the violated run or the only one, for `dkvf check`.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Writes the results as JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

impl Arguments {
    /// Whether histories are judged.
    pub fn checks(&self) -> bool {
        self.runs.check || self.runs.conformance
    }
}

impl RunArguments {
    /// The seeds to run, of which there is at least one.
    ///
    /// # Errors
    /// They are no range, or too many.
    pub fn seeds(&self) -> anyhow::Result<Range<u64>> {
        let Some(text) = &self.seeds else {
            let seed = self.seed.unwrap_or(1);
            return match seed.checked_add(1) {
                Some(end) => Ok(seed..end),
                None => Err(usage(format!("--seed {seed}: at most {}", u64::MAX - 1))),
            };
        };
        let seeds = parse_range(text)
            .filter(|seeds| !seeds.is_empty() && seeds.end - seeds.start <= SEEDS_MAX);
        seeds.ok_or_else(|| {
            usage(format!(
                "--seeds {text}: write A..B (without B) or A..=B, with A less than B, for at most {SEEDS_MAX} seeds"
            ))
        })
    }
}

fn parse_range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once("..")?;
    let start = start.trim().parse().ok()?;
    let end: u64 = match end.strip_prefix('=') {
        Some(last) => last.trim().parse::<u64>().ok()?.checked_add(1)?,
        None => end.trim().parse().ok()?,
    };
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rust_writes_them() {
        assert_eq!(parse_range("3..7"), Some(3..7));
        assert_eq!(parse_range("3..=7"), Some(3..8));
        assert_eq!(parse_range("7"), None);
        assert_eq!(parse_range("0..=18446744073709551615"), None);
        assert_eq!(parse_range("-1..2"), None);
    }
}
