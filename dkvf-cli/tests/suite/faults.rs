//! `dkvf compare --faults`.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::{assert_status, compare, fields, json, path, text};

/// A schedule file with these lines. It is gone with the folder.
pub fn schedule(lines: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("faults.jsonl");
    std::fs::write(&file, lines).unwrap();
    (folder, file)
}

/// The only run of a comparison with these faults, checked, and how the command ended.
fn checked(words: &str, lines: &str, status: i32) -> Value {
    let (_folder, file) = schedule(lines);
    let output = compare(&format!(
        "eventual {words} --check --faults {} --json -",
        path(&file)
    ));
    assert_status(&output, status);
    json(&output.stdout)["runs"][0].clone()
}

/// Each fault that was carried out: its name, and whether it lasted for as long as it should or, without `for_ms`, ended.
fn carried_out(run: &Value) -> Vec<(&str, bool)> {
    let faults = run["faults"].as_array().unwrap();
    let number = |fault: &Value, field: &str| fault[field].as_f64();
    faults
        .iter()
        .map(|fault| {
            let begun_ms = number(fault, "begun_ms").unwrap();
            assert!(begun_ms >= number(fault, "at_ms").unwrap(), "{fault}");
            let lasted = number(fault, "ended_ms").is_some_and(|ended_ms| {
                // It began late by as much as it took to carry it out, and may end on time.
                let for_ms = number(fault, "for_ms").unwrap_or(0.0);
                ended_ms >= number(fault, "at_ms").unwrap() + for_ms
            });
            (fault["fault"].as_str().unwrap(), lasted)
        })
        .collect()
}

#[test]
fn replicas_that_were_cut_off_converge_after_the_partition() {
    let run = checked(
        "",
        r#"{"at_ms":50,"fault":"partition","replica":1,"for_ms":150}
           {"at_ms":250,"fault":"partition","link":"0_0>1_0"}"#,
        0,
    );
    assert_eq!(run["check"]["verdict"], "satisfied");
    assert_eq!(
        carried_out(&run),
        [("partition", true), ("partition", true)]
    );
    assert!(run["operations"].as_u64().unwrap() > 0);
    assert_eq!(run["failed"], 0, "clients reach their own replica");
}

#[test]
fn delays_held_links_and_steps_of_clocks_break_no_promise() {
    let run = checked(
        "",
        r#"{"at_ms":10,"fault":"delay","link":"*","by_ms":20,"jitter_ms":10,"for_ms":100}
           {"at_ms":50,"fault":"hold","node":"0_1","for_ms":100}
           {"at_ms":100,"fault":"step","node":"0_0","by_ms":50}
           {"at_ms":200,"fault":"skew","node":"1_0","by_ms":-50}"#,
        0,
    );
    assert_eq!(run["check"]["verdict"], "satisfied");
    let steps = ("step", false);
    assert_eq!(
        carried_out(&run),
        [("delay", true), ("hold", true), steps, steps],
        "a step has no end"
    );
    assert!(
        text(&serde_json::to_vec(&run["notes"]).unwrap())
            .contains("claimed under partition, delay, skew")
    );
}

#[cfg(unix)]
#[test]
fn a_server_that_was_killed_comes_back_empty_and_nothing_is_claimed() {
    let crash = r#"{"at_ms":100,"fault":"crash","node":"1_0","for_ms":100}"#;
    let run = checked("--processes --partitions 1", crash, 2);
    assert_eq!(carried_out(&run), [("crash", true)]);
    assert_eq!(
        fields(&run["check"]),
        [
            "model",
            "not_claimed_under",
            "operations",
            "seconds",
            "verdict"
        ]
    );
    assert_eq!(run["check"]["verdict"], "unknown");
    assert_eq!(run["check"]["not_claimed_under"][0], "crash-replaced");
    assert!(run["operations"].as_u64().unwrap() > 0);
}

#[cfg(unix)]
#[test]
fn a_server_that_crashes_for_good_is_started_again_at_the_end_and_a_restart_comes_before() {
    let run = checked(
        "--processes --partitions 1",
        r#"{"at_ms":100,"fault":"crash","node":"0_0"}
           {"at_ms":150,"fault":"restart","node":"0_0"}
           {"at_ms":200,"fault":"crash","node":"1_0"}
           {"at_ms":10,"fault":"partition","link":"0_0-1_0"}"#,
        2,
    );
    assert_eq!(
        carried_out(&run),
        [("partition", true), ("crash", true), ("crash", true)]
    );
}

#[cfg(unix)]
#[test]
fn a_server_that_stands_still_for_a_while_breaks_no_promise() {
    let run = checked(
        "--processes --partitions 1",
        r#"{"at_ms":50,"fault":"pause","node":"1_0","for_ms":200}
           {"at_ms":100,"fault":"partition","link":"*","for_ms":50}"#,
        0,
    );
    assert_eq!(run["check"]["verdict"], "satisfied");
    assert_eq!(carried_out(&run), [("pause", true), ("partition", true)]);
}

#[cfg(unix)]
#[test]
fn the_table_tells_the_faults_and_that_nothing_was_claimed() {
    let (_folder, file) = schedule(r#"{"at_ms":100,"fault":"crash","node":"1_0","for_ms":50}"#);
    let words = format!(
        "eventual --processes --partitions 1 --check --faults {}",
        path(&file)
    );
    let output = compare(&words);
    assert_status(&output, 2);
    let table = text(&output.stdout);
    for words in [
        "  not claimed ",
        "eventual: 1 fault: crash at 0.",
        "operations: not claimed under crash-replaced",
        "eventual: claimed under partition, delay, skew",
        "servers that crashed lost count",
    ] {
        assert!(table.contains(words), "{words:?} is not in: {table}");
    }
}

#[test]
fn faults_are_drawn_from_the_seed() {
    let runs: Vec<Value> = (0..2)
        .map(|_| {
            let output = compare("eventual --faults partition,delay --seed 5 --json -");
            assert_status(&output, 0);
            json(&output.stdout)["runs"][0]["faults"].clone()
        })
        .collect();
    let planned = |faults: &Value| -> Vec<Value> {
        let faults = faults.as_array().unwrap().iter().cloned();
        faults
            .map(|mut fault| {
                let fields = fault.as_object_mut().unwrap();
                fields.remove("begun_ms");
                fields.remove("ended_ms");
                fault
            })
            .collect()
    };
    assert!(!planned(&runs[0]).is_empty());
    assert_eq!(planned(&runs[0]), planned(&runs[1]));
}

#[test]
fn kinds_that_a_run_cannot_have_are_left_out_and_named() {
    let output = compare("eventual --faults all --json -");
    assert_status(&output, 0);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("left out: crash, torn, disk-full, pause, slow, drift\n"),
        "{stderr}"
    );
}

#[test]
fn faults_that_cannot_be_are_refused_before_the_start_with_file_line_and_remedy() {
    let crash = r#"{"at_ms":1,"fault":"crash","node":"0_0"}"#;
    let table: &[(&str, &str, &[&str])] = &[
        (crash, "", &["faults.jsonl:2: ", "give --processes"]),
        (
            r#"{"at_ms":1,"fault":"pause","node":"0_0"}"#,
            "",
            &["faults.jsonl:2: ", "give --processes"],
        ),
        (
            r#"{"at_ms":1,"fault":"torn","node":"0_0"}"#,
            "--processes",
            &["faults.jsonl:2: ", "durability none", "simulator"],
        ),
        (
            r#"{"at_ms":1,"fault":"disk-full","node":"0_0"}"#,
            "--processes",
            &["faults.jsonl:2: ", "simulator"],
        ),
        (
            r#"{"at_ms":1,"fault":"slow","node":"0_0","factor":2}"#,
            "",
            &["faults.jsonl:2: ", "simulator"],
        ),
        (
            r#"{"at_ms":1,"fault":"drift","node":"0_0","ppm":2}"#,
            "",
            &["faults.jsonl:2: ", "simulator"],
        ),
        (
            r#"{"at_ms":1,"fault":"break","link":"*","lose_permille":2}"#,
            "",
            &["faults.jsonl:2: ", "simulator"],
        ),
        (
            r#"{"at_ms":400,"fault":"partition","link":"*"}"#,
            "",
            &["faults.jsonl:2: ", "ends after 400 ms", "--seconds"],
        ),
        (
            r#"{"at_ms":1,"fault":"partition","node":"7_7"}"#,
            "",
            &["faults.jsonl:2: node: ", "7_7", "0_0, 0_1"],
        ),
    ];
    for (line, words, named) in table {
        let (_folder, file) = schedule(&format!("# what goes wrong\n{line}\n"));
        let output = compare(&format!("eventual {words} --faults {}", path(&file)));
        assert_status(&output, 2);
        assert_eq!(text(&output.stdout), "", "{line}");
        let stderr = text(&output.stderr);
        for word in *named {
            assert!(
                stderr.contains(word),
                "{line}: {word:?} is not in: {stderr}"
            );
        }
    }
    for (words, named) in [
        ("--faults floods", "\"floods\" is no kind of fault"),
        ("--faults floods", "no such file"),
        ("--faults crash", "--faults crash: servers in this process"),
    ] {
        let output = compare(&format!("eventual {words}"));
        assert_status(&output, 2);
        assert!(
            text(&output.stderr).contains(named),
            "{}",
            text(&output.stderr)
        );
    }
}
