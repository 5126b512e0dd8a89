//! `dkvf anomalies`.

use crate::{assert_status, fields, json, run, text};

const COLUMNS: [&str; 8] = [
    "causality-violation",
    "dirty-read",
    "dirty-write",
    "long-fork",
    "lost-update",
    "non-repeatable-read",
    "stale-read",
    "write-skew",
];

#[test]
fn the_matrix_names_what_was_observed_and_where() {
    let output = run([
        "anomalies",
        "eventual",
        "causalspartan",
        "--json",
        "-",
        "--seeds",
        "10",
    ]);
    assert_status(&output, 0);
    let report = json(&output.stdout);
    let matrix = &report["matrix"];
    assert_eq!(fields(matrix), ["causalspartan", "eventual"]);
    assert_eq!(fields(&matrix["eventual"]), COLUMNS);
    assert_eq!(matrix["eventual"]["causality-violation"], "observed");
    assert_eq!(matrix["causalspartan"]["causality-violation"], "forbidden");
    assert_eq!(matrix["eventual"]["write-skew"], "not-applicable");
    let schedule = &report["schedules"]["eventual"]["causality-violation"];
    assert_eq!(fields(schedule), ["explanation", "scenario", "seed"]);
    assert!(
        schedule["explanation"]
            .as_str()
            .unwrap()
            .starts_with("causality-violation")
    );
}

#[test]
fn the_table_has_a_row_per_protocol_and_schedules_on_request() {
    let output = run(["anomalies", "eventual", "--seeds", "5", "--schedules"]);
    assert_status(&output, 0);
    let table = text(&output.stdout);
    assert!(
        table.contains("stale-read") && table.contains("eventual, stale-read, scenario "),
        "{table}"
    );
}

#[test]
fn a_protocol_that_does_not_exist_is_bad_usage() {
    let output = run(["anomalies", "paxos"]);
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("the library has"));
}
