//! `dkvf check`: verdicts on files.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::{assert_status, dkvf, fields, json, path, run, text};

/// A folder with a history in it.
struct Recorded {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Recorded {
    /// Transactions of a session, one after another: `[(1, "[[\"w\",\"x\",\"a\"]]")]`.
    fn new(claims: &str, transactions: &[(u32, &str)]) -> Self {
        let mut lines = format!(
            "{{\"h\":1,\"clock\":\"virtual-us\",\"claims\":{claims},\"sites\":[\"dc1\"]}}\n"
        );
        for (place, (session, value)) in transactions.iter().enumerate() {
            for (t, kind) in [(10 * place, "invoke"), (10 * place + 5, "ok")] {
                writeln!(
                    lines,
                    "{{\"t\":{t},\"type\":\"{kind}\",\"process\":{session},\"site\":\"dc1\",\"f\":\"txn\",\"value\":{value}}}"
                )
                .unwrap();
            }
        }
        Recorded::of(&lines)
    }

    fn of(content: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        std::fs::write(&file, content).unwrap();
        Recorded { folder, file }
    }

    /// Runs `dkvf check` on it.
    fn check(&self, words: &[&str]) -> std::process::Output {
        run(["check", path(&self.file)]
            .into_iter()
            .chain(words.iter().copied()))
    }

    fn sibling(&self, name: &str) -> String {
        path(&self.folder.path().join(name)).to_owned()
    }
}

/// Session 1 does not see its own write.
fn own_write_missed() -> Recorded {
    Recorded::new(
        "[\"read-your-writes\"]",
        &[(1, "[[\"w\",\"x\",\"a\"]]"), (1, "[[\"r\",\"x\",null]]")],
    )
}

/// Everybody sees what was written last.
fn correct() -> Recorded {
    Recorded::new(
        "[\"read-your-writes\"]",
        &[(1, "[[\"w\",\"x\",\"a\"]]"), (2, "[[\"r\",\"x\",\"a\"]]")],
    )
}

fn result(verdict: &Value, model: &str) -> Value {
    let results = verdict["results"].as_array().unwrap();
    let mut results = results.iter();
    results
        .find(|result| result["model"] == model)
        .unwrap()
        .clone()
}

#[test]
fn a_history_that_the_model_allows_is_satisfied() {
    let output = correct().check(&["--model", "read-your-writes,monotonic-reads"]);
    assert_status(&output, 0);
    let shown = text(&output.stdout);
    assert_eq!(shown.matches("satisfied").count(), 2, "{shown}");
}

#[test]
fn a_violation_is_shown_with_its_operations() {
    let output = own_write_missed().check(&["--model", "read-your-writes"]);
    assert_status(&output, 1);
    let shown = text(&output.stdout);
    assert!(
        shown.contains(
            "read-your-writes violated (own-write-missed). pram and stronger fall with it."
        ),
        "{shown}"
    );
    assert!(shown.contains("[#0 wrote x = a]"), "{shown}");
    assert!(
        shown.contains("because #1 comes later in session 1"),
        "{shown}"
    );
}

#[test]
fn without_a_model_the_claims_of_the_history_are_judged() {
    assert_status(&own_write_missed().check(&[]), 1);
    let output = Recorded::new("[]", &[]).check(&[]);
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("--model"));
}

#[test]
fn scripts_get_json() {
    let recorded = own_write_missed();
    let output = recorded.check(&["--model", "read-your-writes,monotonic-reads", "--json", "-"]);
    assert_status(&output, 1);
    let verdict = json(&output.stdout);
    assert_eq!(
        fields(&verdict),
        ["file", "operations", "results", "seconds", "transactions"]
    );
    assert_eq!(verdict["file"], path(&recorded.file));
    assert_eq!(
        (&verdict["operations"], &verdict["transactions"]),
        (&2.into(), &2.into())
    );
    let violated = result(&verdict, "read-your-writes");
    assert_eq!(
        (&violated["verdict"], &violated["order"]),
        (&"violated".into(), &"session".into())
    );
    assert_eq!(violated["anomalies"][0]["kind"], "own-write-missed");
    assert_eq!(
        violated["anomalies"][0]["operations"],
        serde_json::json!([0, 1])
    );
    let satisfied = result(&verdict, "monotonic-reads");
    assert_eq!(
        fields(&satisfied),
        ["anomalies", "model", "order", "verdict"]
    );
    assert_eq!(satisfied["verdict"], "satisfied");
}

#[test]
fn a_ladder_says_which_models_fall_with_the_weakest() {
    let output = own_write_missed().check(&["--model", "all", "--json", "-"]);
    assert_status(&output, 1);
    let verdict = json(&output.stdout);
    assert_eq!(result(&verdict, "read-your-writes")["verdict"], "violated");
    let pram = result(&verdict, "pram");
    assert_eq!(
        (&pram["verdict"], &pram["falls_with"]),
        (&"violated".into(), &"read-your-writes".into())
    );
    assert_eq!(result(&verdict, "monotonic-reads")["verdict"], "satisfied");

    let shown = text(&own_write_missed().check(&["--model", "all"]).stdout);
    let weakest = shown
        .lines()
        .find(|line| line.starts_with("weakest refuted: "))
        .unwrap();
    assert!(
        weakest.contains("read-your-writes") && !weakest.contains("pram"),
        "{shown}"
    );
}

#[test]
fn models_of_single_operations_are_no_rungs_for_transactions() {
    let transactions = Recorded::new(
        "[]",
        &[
            (1, "[[\"w\",\"x\",\"a\"],[\"w\",\"y\",\"b\"]]"),
            (2, "[[\"r\",\"x\",\"a\"]]"),
        ],
    );
    let verdict = json(
        &transactions
            .check(&["--model", "all", "--json", "-"])
            .stdout,
    );
    let results = verdict["results"].as_array().unwrap();
    assert!(
        results
            .iter()
            .any(|result| result["model"] == "serializable")
    );
    assert!(!results.iter().any(|result| result["model"] == "sequential"));
    // Asked for by name, it is answered.
    let output = transactions.check(&["--model", "sequential"]);
    assert_status(&output, 2);
    assert!(text(&output.stdout).contains("single operations"));
}

#[test]
fn a_history_comes_from_standard_input_too() {
    let recorded = own_write_missed();
    let mut command = assert_cmd::Command::from_std(dkvf());
    command.args(["check", "-", "--format", "native", "--json", "-"]);
    let output = command
        .pipe_stdin(&recorded.file)
        .unwrap()
        .timeout(crate::TIMEOUT)
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert_eq!(json(&output.stdout)["file"], "-");
}

#[test]
fn a_counterexample_is_written_in_every_form() {
    let recorded = own_write_missed();
    for (name, begins) in [
        ("c.svg", "<svg "),
        ("c.html", "<!doctype html>"),
        ("c.txt", "own-write-missed on key x\n"),
        ("c.dot", "digraph "),
        ("c.mmd", "flowchart "),
    ] {
        let target = recorded.sibling(name);
        assert_status(&recorded.check(&["--explain", &target]), 1);
        let written = std::fs::read_to_string(&target).unwrap();
        assert!(written.starts_with(begins), "{name}: {written}");
        assert!(written.contains("wrote x = a"), "{name}: {written}");
    }
    let output = recorded.check(&["--explain", "c.png"]);
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("--explain c.png: the name ends in .svg, .html"));
}

#[test]
fn without_a_violation_nothing_is_explained() {
    let recorded = correct();
    let target = recorded.sibling("c.svg");
    let output = recorded.check(&["--explain", &target]);
    assert_status(&output, 0);
    assert!(text(&output.stderr).contains("was not written"));
    assert!(!std::path::Path::new(&target).exists());
}

#[test]
fn past_its_time_a_check_is_unknown() {
    let output = own_write_missed().check(&["--time-limit", "0", "--json", "-"]);
    assert_status(&output, 2);
    let unknown = result(&json(&output.stdout), "read-your-writes");
    assert_eq!(
        (&unknown["verdict"], &unknown["reason"]),
        (&"unknown".into(), &"the time limit was reached".into())
    );
}

#[test]
fn a_malformed_file_is_named_with_line_and_reason() {
    let recorded =
        Recorded::of("{\"h\":1,\"clock\":\"virtual-us\"}\n{\"t\":1,\"type\":\"invoke\"}\n");
    let output = recorded.check(&["--model", "causal", "--format", "native"]);
    assert_status(&output, 2);
    let shown = text(&output.stderr);
    assert!(
        shown.contains("history.jsonl: line 2: missing field"),
        "{shown}"
    );
}

#[test]
fn mistakes_in_the_arguments_are_explained() {
    let recorded = correct();
    for (words, part) in [
        (
            &["--model", "causal-ish"] as &[&str],
            "there are: convergence, read-your-writes",
        ),
        (&["--white-box", "yes"], "auto, on or off"),
        (&["--order", "total"], "none, session, realtime"),
        (&["--format", "xml"], "there are: native, jepsen-edn"),
        (&["--time-limit", "-1"], "--time-limit -1"),
        (&["--groups", "/no/such/file"], "/no/such/file"),
    ] {
        let output = recorded.check(words);
        assert_status(&output, 2);
        let shown = text(&output.stderr);
        assert!(shown.contains(part), "{words:?}: {shown}");
    }
    let output = run(["check", "/no/such/history"]);
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("/no/such/history"));
}

#[test]
fn an_export_says_what_it_loses() {
    let recorded = correct();
    let target = recorded.sibling("history.hist");
    let output = recorded.check(&["--export", "dbcop-hist", &target]);
    assert_status(&output, 0);
    assert!(
        text(&output.stderr).contains("does not keep"),
        "{}",
        text(&output.stderr)
    );
    let judged = run([
        "check",
        &target,
        "--format",
        "dbcop-hist",
        "--model",
        "read-your-writes",
    ]);
    assert_status(&judged, 0);
}

#[test]
fn past_its_memory_a_check_is_unknown() {
    let output = own_write_missed().check(&["--model", "causal", "--memory-limit", "0"]);
    assert_status(&output, 2);
    assert!(text(&output.stdout).contains("memory limit of 0 MiB"));
}

#[test]
fn the_order_that_a_model_includes_can_be_chosen() {
    for (order, verdict) in [("none", "satisfied"), ("session", "violated")] {
        let words = ["--model", "serializable", "--order", order, "--json", "-"];
        let result = result(
            &json(&own_write_missed().check(&words).stdout),
            "serializable",
        );
        assert_eq!(
            (&result["order"], &result["verdict"]),
            (&order.into(), &verdict.into())
        );
    }
}

#[test]
fn within_an_entity_group_psi_is_si() {
    let fork = Recorded::new(
        "[]",
        &[
            (1, "[[\"w\",\"x\",\"1\"]]"),
            (2, "[[\"w\",\"y\",\"1\"]]"),
            (3, "[[\"r\",\"x\",\"1\"],[\"r\",\"y\",null]]"),
            (4, "[[\"r\",\"y\",\"1\"],[\"r\",\"x\",null]]"),
        ],
    );
    assert_status(&fork.check(&["--model", "psi"]), 0);
    let groups = fork.sibling("groups.tsv");
    for (content, status) in [("x\ta\ny\ta\n", 1), ("x\ta\ny\tb\n", 0), ("x a\n", 2)] {
        std::fs::write(&groups, content).unwrap();
        assert_status(
            &fork.check(&["--model", "psi", "--groups", &groups]),
            status,
        );
    }
}

#[test]
fn the_order_that_the_protocol_reports_counts_unless_it_is_switched_off() {
    let event = |t: u64, kind: &str, process: u32, value: &str, version: &str| {
        format!(
            "{{\"t\":{t},\"type\":\"{kind}\",\"process\":{process},\"f\":\"txn\",\"value\":{value}{version}}}\n"
        )
    };
    let mut lines = "{\"h\":1,\"clock\":\"virtual-us\"}\n".to_owned();
    let operations = [
        (
            1,
            "[[\"w\",\"x\",\"new\"]]",
            ",\"wb\":{\"order\":{\"x\":2}}",
        ),
        (
            2,
            "[[\"w\",\"x\",\"old\"]]",
            ",\"wb\":{\"order\":{\"x\":1}}",
        ),
        (1, "[[\"r\",\"x\",\"old\"]]", ""),
    ];
    for (place, (process, value, version)) in (0..).zip(operations) {
        lines += &event(10 * place, "invoke", process, value, "");
        lines += &event(10 * place + 5, "ok", process, value, version);
    }
    let recorded = Recorded::of(&lines);
    for (how, status) in [("auto", 1), ("on", 1), ("off", 0)] {
        let words = ["--model", "read-your-writes", "--white-box", how];
        assert_status(&recorded.check(&words), status);
    }
}
