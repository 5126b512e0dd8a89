//! `dkvf sim`.

use std::process::Command;

use serde_json::Value;

use crate::{assert_status, dkvf, fields, json, path, run, text};

/// A known bug that shows without faults, and quickly.
const BUG: &str = "bug:eventual-forgets-a-replica";

fn sim(words: &str) -> std::process::Output {
    run(std::iter::once("sim").chain(words.split_whitespace()))
}

fn last_line(output: &std::process::Output) -> String {
    text(&output.stdout)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn equal_arguments_print_the_same_last_line_and_other_seeds_another() {
    let words = "gentlerain --ops 300 --faults all --skew 5 --latency normal:8:3";
    let line = last_line(&sim(words));
    assert!(line.starts_with("seed 1: events "), "{line}");
    for part in [
        ", virtual ",
        ", state ",
        ", history ",
        ", verdict unchecked",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(last_line(&sim(words)), line);
    assert_ne!(last_line(&sim(&format!("{words} --seed 2"))), line);
}

#[test]
fn a_run_is_described_and_checked() {
    let output = sim("causalspartan --ops 400 --check");
    assert_status(&output, 0);
    let stdout = text(&output.stdout);
    for part in [
        "2 replicas x 3 partitions, 8 clients",
        "visible elsewhere",
        "stale by",
        "Replicate",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(last_line(&output).ends_with("verdict satisfied"));
    assert_eq!(
        text(&output.stderr),
        "",
        "no progress bar without a terminal"
    );
}

#[test]
fn seeds_end_with_a_line_each_in_their_order() {
    let output = sim("eventual --seeds 3..9 --ops 100 --check");
    assert_status(&output, 0);
    let stdout = text(&output.stdout);
    let seeds: Vec<&str> = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("seed ")?.split(':').next())
        .collect();
    assert_eq!(seeds, ["3", "4", "5", "6", "7", "8"]);
    // A run does not depend on the company it is in.
    let alone = last_line(&sim("eventual --seed 5 --ops 100 --check"));
    assert!(stdout.contains(&alone), "{alone}\n{stdout}");
    assert_eq!(
        text(&sim("eventual --seeds 3..=8 --ops 100 --check").stdout),
        stdout
    );
}

/// The names are a contract with scripts: a name that is missing here may not disappear, and a new one is added here.
#[test]
fn json_has_the_fields_of_the_contract() {
    let output = sim("cops --ops 200 --check --json -");
    assert_status(&output, 0);
    let report = json(&output.stdout);
    assert_eq!(
        fields(&report),
        ["commit", "events_per_second", "protocol", "runs"]
    );
    assert!(report["events_per_second"].as_f64().unwrap() > 0.0);
    let run = &report["runs"][0];
    assert_eq!(
        fields(run),
        [
            "deliveries",
            "events",
            "failed",
            "faults",
            "history_hash",
            "latency_us",
            "messages",
            "operations",
            "recovery",
            "reproduce",
            "seed",
            "staleness_us",
            "state_hash",
            "unknown",
            "verdict",
            "virtual_us",
            "visibility_us",
        ]
    );
    assert_eq!(
        (&run["seed"], &run["operations"]),
        (&Value::from(1), &Value::from(200))
    );
    assert_eq!(run["verdict"], "satisfied");
}

/// Runs a command that was printed, as a shell would.
fn again(command: &str) -> std::process::Output {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_dkvf"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    Command::new("sh")
        .args(["-c", command])
        .env("PATH", path)
        .env_remove("DKVF_LOG")
        .output()
        .unwrap()
}

#[test]
fn the_reproduce_command_of_a_run_repeats_it() {
    let words = "gentlerain --seed 4 --ops 200 --clients 5 --faults delay,skew --latency constant:3 --intra-latency uniform:1 \
                 --ntp --drift 50 --timeout 700 --spread 900.5 --protocol-property heartbeat_interval=7 --records 9 --json -";
    let report = json(&sim(words).stdout);
    let run = &report["runs"][0];
    let repeated = again(&format!("{} --json -", run["reproduce"].as_str().unwrap()));
    assert_status(&repeated, 0);
    let repeated = &json(&repeated.stdout)["runs"][0];
    for field in [
        "events",
        "virtual_us",
        "state_hash",
        "history_hash",
        "reproduce",
    ] {
        assert_eq!(repeated[field], run[field], "{field}");
    }
}

#[test]
fn a_violated_run_is_made_small_explained_and_repeated_by_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("bug.svg");
    let output = run([
        "sim",
        BUG,
        "--seeds",
        "0..50",
        "--check",
        "--explain",
        path(&picture),
    ]);
    assert_status(&output, 1);
    let stdout = text(&output.stdout);
    assert!(text(&output.stderr).contains("A write is not sent to the last of its peers"));
    assert!(stdout.contains("convergence is violated"), "{stdout}");
    assert!(
        stdout.contains("shrunk: 6 servers, 8 clients, 1000 operations, 0 faults -> "),
        "{stdout}"
    );
    assert!(last_line(&output).ends_with("verdict violated"), "{stdout}");
    assert!(
        std::fs::read_to_string(picture)
            .unwrap()
            .starts_with("<svg")
    );

    let command = stdout
        .lines()
        .find_map(|line| line.strip_prefix("reproduce: "))
        .unwrap();
    let repeated = again(command);
    assert_status(&repeated, 1);
    assert!(
        text(&repeated.stdout).contains("convergence is violated"),
        "{command}"
    );
}

#[test]
fn a_violation_under_faults_is_repeated_with_the_faults_it_needs() {
    let output = sim(
        "bug:cops-newer-version-satisfies --conformance --faults partition --seeds 14..40 --json -",
    );
    assert_status(&output, 1);
    let violation = &json(&output.stdout)["violation"];
    assert_eq!(violation["defect"], "causal");
    assert!(
        violation["operations"].as_u64().unwrap() < 400,
        "{violation}"
    );
    let repeated = again(&format!(
        "{} --no-shrink --json -",
        violation["reproduce"].as_str().unwrap()
    ));
    assert_status(&repeated, 1);
    assert_eq!(
        json(&repeated.stdout)["runs"][0]["defect"],
        violation["defect"]
    );
}

#[test]
fn the_lowest_violated_seed_is_reported_and_keep_going_runs_them_all() {
    let first = json(
        &sim(&format!(
            "{BUG} --seeds 0..6 --ops 60 --check --no-shrink --json -"
        ))
        .stdout,
    );
    let all = json(
        &sim(&format!(
            "{BUG} --seeds 0..6 --ops 60 --check --no-shrink --keep-going --json -"
        ))
        .stdout,
    );
    assert_eq!(all["runs"].as_array().unwrap().len(), 6);
    let runs = all["runs"].as_array().unwrap();
    let lowest = runs
        .iter()
        .find(|run| run["verdict"] == "violated")
        .unwrap();
    assert_eq!(first["violation"]["seed"], lowest["seed"]);
    assert_eq!(
        first["runs"].as_array().unwrap().last().unwrap()["seed"],
        lowest["seed"]
    );
}

#[test]
fn histories_and_traces_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (history, events, picture, page) = (
        file("h.jsonl"),
        file("t.jsonl"),
        file("t.svg"),
        file("t.html"),
    );
    for trace in [&events, &picture, &page] {
        let output = run([
            "sim",
            "eventual",
            "--ops",
            "40",
            "--history",
            path(&history),
            "--trace",
            path(trace),
        ]);
        assert_status(&output, 0);
    }
    let read = |file| std::fs::read_to_string(file).unwrap();
    assert!(read(&history).starts_with("{\"h\":1"));
    let events = read(&events);
    assert!(
        events
            .lines()
            .all(|line| json(line.as_bytes())["event"].is_string())
    );
    assert!(events.contains("\"Replicate\""), "{events}");
    assert!(read(&picture).starts_with("<svg"));
    assert!(read(&page).starts_with("<!"));
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let faults = folder.path().join("faults.jsonl");
    std::fs::write(
        &faults,
        "{\"at_ms\":1,\"fault\":\"crash\",\"node\":\"7_7\"}\n",
    )
    .unwrap();
    let matrix = folder.path().join("matrix");
    std::fs::write(&matrix, "one-way\n0 10\n10 0\n").unwrap();
    for (words, said) in [
        ("eventul", "the library has: eventual"),
        ("bug:nothing", "there are:\n  causalspartan-"),
        ("eventual --faults flood", "flood"),
        ("eventual --storage sled", "use memory here"),
        (
            "eventual --durability sync-each",
            "one of none, async, group, sync",
        ),
        ("eventual --latency fast", "constant:MS"),
        ("eventual --seeds 5..5", "A less than B"),
        ("eventual --seed 1 --seeds 1..2", "cannot be used with"),
        ("eventual --clients 0", "from 1 to"),
        ("eventual --spread 0", "--spread 0"),
        ("eventual --ntp=5", "INTERVAL:ERROR"),
        ("eventual --explain bug.svg", "add --check"),
        ("eventual --trace trace.png", ".jsonl, .svg, .html"),
        ("eventual --cpu /no/such/file", "/no/such/file"),
        ("eventual --ops 10 --timeout 0", "--timeout 0"),
        (
            &format!("eventual --faults {}", path(&faults)),
            "faults.jsonl:1",
        ),
        (
            &format!("eventual --replicas 3 --latency {}", path(&matrix)),
            "2 replicas",
        ),
        (
            "eventual -p requestdistribution=nonsense",
            "requestdistribution",
        ),
    ] {
        let output = sim(words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {stderr}");
        assert!(stderr.contains(said), "{words}: {stderr}");
    }
}

/// Files written by `dkvf calibrate` are read, and work then takes time.
#[test]
fn a_cost_model_slows_servers_down() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("cpu.json");
    std::fs::write(&model, r#"{"cpu":{"per_message_ns":500000}}"#).unwrap();
    let virtual_us = |words: &[&str]| {
        let arguments = ["sim", "eventual", "--ops", "500", "--json", "-"];
        let output = run(arguments.iter().chain(words).copied());
        assert_status(&output, 0);
        json(&output.stdout)["runs"][0]["latency_us"]["get"]["p99"]
            .as_u64()
            .unwrap()
    };
    assert!(virtual_us(&["--cpu", path(&model)]) > virtual_us(&[]) + 400);
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_with_the_runs_that_were_made() {
    let mut command = dkvf();
    command.args([
        "sim",
        "eventual",
        "--seeds",
        "0..100000000",
        "--ops",
        "200",
        "--json",
        "-",
    ]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    crate::interrupts::wait_until_busy(child.id(), std::time::Duration::from_millis(500));
    crate::interrupts::signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("interrupted: "));
    assert!(!json(&output.stdout)["runs"].as_array().unwrap().is_empty());
}
