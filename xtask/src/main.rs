//! The chores of the project.
//!
//! `cargo xtask verify` is the test command of the README and of CI: it changes nothing.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, bail};

const HELP: &str = "\
cargo xtask verify [--long]   formatting, lints, tests, documentation; --long also fuzzes for 10 minutes
                              and runs `conformance`
cargo xtask conformance       1,000 seeds of the conformance suite for each protocol, with all faults at once
cargo xtask fix               formats and applies what clippy can mend
cargo xtask fuzz [SECONDS]    fuzzes the decoders of everything that comes from a socket (default 60)
cargo xtask bench             the benchmarks whose figures docs/performance.md quotes";

/// The command under test, as cargo runs it.
const DKVF: [&str; 6] = ["run", "--release", "--locked", "-p", "dkvf-cli", "--"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["verify"] => verify(),
        ["verify", "--long"] => verify()
            .and_then(|()| fuzz("600"))
            .and_then(|()| conformance()),
        ["conformance"] => conformance(),
        ["fix"] => fix(),
        ["fuzz"] => fuzz("60"),
        ["fuzz", seconds] => fuzz(seconds),
        ["bench"] => bench(),
        _ => {
            println!("{HELP}");
            return ExitCode::from(if matches!(words.as_slice(), [] | ["help" | "--help"]) {
                0
            } else {
                2
            });
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads only. Cheap steps first; the tests' own summary lines come last.
fn verify() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])
        .context("formatting differs: `cargo xtask fix` mends it")?;
    cargo(
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
        &[],
    )?;
    cargo(
        &["doc", "--workspace", "--no-deps", "--locked"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    cargo(&["test", "--workspace", "--locked"], &[])
}

fn fix() -> anyhow::Result<()> {
    cargo(
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--fix",
            "--allow-dirty",
            "--allow-staged",
        ],
        &[],
    )?;
    cargo(&["fmt", "--all"], &[])
}

fn fuzz(seconds: &str) -> anyhow::Result<()> {
    if seconds.parse::<u64>().is_err() {
        bail!("{seconds:?} is no number of seconds");
    }
    cargo(
        &[
            "run",
            "--release",
            "--locked",
            "-p",
            "dkvf-core",
            "--example",
            "fuzz",
            "--",
            seconds,
        ],
        &[],
    )
}

/// The runs that `cargo test` makes 20 of, on all cores; the clusters are of one size, so that times can be compared.
fn conformance() -> anyhow::Result<()> {
    for protocol in protocols()? {
        let run = [&DKVF[..], &["sim", &protocol, "--conformance"]].concat();
        let seeds = ["--seeds", "0..1000", "--faults", "all"];
        let size = [
            "--replicas",
            "2",
            "--partitions",
            "3",
            "--clients",
            "8",
            "--ops",
            "400",
        ];
        cargo(&[&run[..], &seeds, &size].concat(), &[])?;
    }
    Ok(())
}

/// The names of all protocols.
fn protocols() -> anyhow::Result<Vec<String>> {
    let listing = Command::new(cargo_path())
        .args(DKVF)
        .args(["protocols", "--json", "-"])
        .output()?;
    let library: serde_json::Value =
        serde_json::from_slice(&listing.stdout).with_context(|| {
            format!(
                "dkvf protocols: {}",
                String::from_utf8_lossy(&listing.stderr)
            )
        })?;
    let names = library["protocols"].as_array().into_iter().flatten();
    let names = names.filter_map(|protocol| Some(protocol["name"].as_str()?.to_owned()));
    Ok(names.collect())
}

fn bench() -> anyhow::Result<()> {
    cargo(&["bench", "--locked", "-p", "dkvf-bench"], &[])
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    println!("==> {line}");
    let start = Instant::now();
    let status = Command::new(cargo_path())
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("cannot run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    println!("==> {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
