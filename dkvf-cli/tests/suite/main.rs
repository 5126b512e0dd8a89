//! The `dkvf` binary as its users have it: arguments, output, exit status. One file per command.

mod calibrate;
mod check;
mod client_and_server;
mod compare;
mod faults;
mod find_the_bug;
mod interrupts;
mod library;
mod matrix;
mod simulate;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes on a busy machine: a command that hangs fails its test instead of all tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A plain command, for processes that a test talks to.
fn dkvf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dkvf"));
    command.env_remove("DKVF_LOG");
    command
}

/// Runs `dkvf` with these arguments to its end.
fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = assert_cmd::Command::from_std(dkvf());
    command.args(arguments).timeout(TIMEOUT);
    command.output().unwrap()
}

/// `dkvf compare` of runs that take a moment, with these further words.
fn compare(words: &str) -> Output {
    run(["compare", "--seconds", "0.3", "--warmup", "0.1"]
        .into_iter()
        .chain(words.split_whitespace()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts how a command ended, showing what it said if it ended otherwise.
#[track_caller]
fn assert_status(output: &Output, expected: i32) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(expected),
        "stdout:\n{stdout}\nstderr:\n{stderr}"
    );
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", text(bytes)))
}

/// The names of an object's fields, in alphabetical order.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
