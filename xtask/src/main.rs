//! The chores of the project.
//!
//! `cargo xtask verify` is the test command of the README and of CI: it changes nothing.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, bail};

const HELP: &str = "\
cargo xtask verify [--long]   formatting, lints, tests, documentation; --long also fuzzes for 10 minutes
cargo xtask fix               formats and applies what clippy can mend
cargo xtask fuzz [SECONDS]    fuzzes the decoders of everything that comes from a socket (default 60)
cargo xtask bench             the benchmarks whose figures docs/performance.md quotes";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["verify"] => verify(),
        ["verify", "--long"] => verify().and_then(|()| fuzz("600")),
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

fn bench() -> anyhow::Result<()> {
    cargo(&["bench", "--locked", "-p", "dkvf-bench"], &[])
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    println!("==> {line}");
    let start = Instant::now();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
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
