//! `dkvf compare`.

use std::path::Path;

use crate::{assert_status, compare, fields, json, path, text};

#[test]
fn eventual_keeps_its_promises() {
    let output = compare("eventual --check");
    assert_status(&output, 0);
    let table = text(&output.stdout);
    assert!(table.contains("satisfied"), "{table}");
    assert!(table.contains("loaded 1,000 records in "), "{table}");
    assert_eq!(
        text(&output.stderr),
        "",
        "no progress bar without a terminal"
    );
}

/// The names are a contract with scripts: a name that is missing here may not disappear, and a new one is added here.
#[test]
fn json_has_the_fields_of_the_contract() {
    let output = compare("eventual --check --json -");
    assert_status(&output, 0);
    let comparison = json(&output.stdout);
    assert_eq!(fields(&comparison), ["commit", "machine", "runs", "seed"]);
    assert_eq!(fields(&comparison["machine"]), ["cpus", "kernel"]);
    assert_eq!(comparison["seed"], 1);
    let runs = comparison["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(
        fields(run),
        [
            "bytes_per_op",
            "check",
            "client_cpu_s",
            "clients",
            "durability",
            "failed",
            "generator_lag_us",
            "latency_us",
            "layout",
            "load_records_s",
            "load_seconds",
            "messages_per_op",
            "not_found",
            "notes",
            "operations",
            "partitions",
            "peak_rss_bytes",
            "periodic_messages_s",
            "protocol",
            "records",
            "replicas",
            "seconds",
            "server_cpu_s",
            "storage",
            "throughput_ops_s",
            "unknown",
            "visibility_us",
            "workload",
        ]
    );
    for (name, value) in [
        ("protocol", "eventual"),
        ("workload", "a"),
        ("storage", "memory"),
        ("durability", "none"),
        ("layout", "replica-local"),
    ] {
        assert_eq!(run[name], value);
    }
    for (name, value) in [
        ("replicas", 2),
        ("partitions", 3),
        ("clients", 32),
        ("failed", 0),
        ("unknown", 0),
    ] {
        assert_eq!(run[name], value);
    }
    assert_eq!(fields(&run["latency_us"]), ["get", "put"]);
    for operation in ["get", "put"] {
        let latency = &run["latency_us"][operation];
        assert_eq!(
            fields(latency),
            ["count", "max", "mean", "p50", "p95", "p99", "p999"]
        );
        assert!(latency["count"].as_u64().unwrap() > 0);
    }
    assert_eq!(fields(&run["visibility_us"]), ["count", "p50", "p99"]);
    assert_eq!(
        fields(&run["check"]),
        ["model", "operations", "seconds", "verdict"]
    );
    assert_eq!(
        run["check"]["model"],
        "convergence,read-your-writes,monotonic-reads"
    );
    assert_eq!(run["check"]["verdict"], "satisfied");
    assert!(
        run["check"]["operations"].as_u64() >= run["operations"].as_u64(),
        "the warm-up is checked too"
    );
}

#[test]
fn arguments_that_cannot_be_met_are_named_with_a_remedy() {
    let table: &[(&str, &[&str])] = &[
        ("nosuch", &["nosuch", "eventual"]),
        ("eventual --storage nosuch", &["nosuch", "memory"]),
        (
            "eventual --workload nosuch",
            &["--workload nosuch", "a, b, c"],
        ),
        (
            "eventual -p readproportion",
            &["-p readproportion", "KEY=VALUE"],
        ),
        (
            "eventual -p readproportion=x",
            &["readproportion", "\"x\"", "allowed"],
        ),
        ("eventual --records 0", &["recordcount"]),
        ("eventual --value-size 15", &["--value-size 15", "from 16"]),
        ("eventual --target -1", &["--target -1"]),
        (
            "eventual --get-proportion 1.5",
            &["--get-proportion 1.5", "from 0 to 1"],
        ),
        ("eventual --warmup -1", &["--warmup"]),
        ("eventual --replicas 0", &["--replicas 0", "from 1"]),
        ("eventual --clients 0", &["--clients 0", "from 1"]),
        (
            "eventual --delay 0_0-7_7=1",
            &["--delay", "7_7", "0_0 to 1_2"],
        ),
        ("eventual --delay 0_0-1_0=x", &["FROM-TO=MS"]),
        ("eventual --delay /no/such/file", &["/no/such/file"]),
        ("eventual --skew 9_9=1", &["--skew", "9_9"]),
        ("eventual --flush never", &["--flush never", "adaptive"]),
        ("eventual --durability sync", &["--durability sync", "none"]),
        (
            "eventual --replicas 64 --partitions 16",
            &["open files", "ulimit"],
        ),
        ("eventual --check --record-max 3", &["--record-max 3"]),
        (
            "eventual --processes --layout split",
            &["--layout split", "--processes"],
        ),
        ("eventual --out /proc/no", &["--out /proc/no"]),
        ("eventual --json /proc/no", &["--json /proc/no"]),
        (
            "eventual --check --history /proc/no",
            &["--history /proc/no"],
        ),
        ("eventual --history somewhere", &["--check"]),
        ("eventual --nosuch", &["--nosuch"]),
    ];
    for (words, named) in table {
        // The later of two equal arguments would be a mistake of its own.
        let output = if words.contains("--warmup") {
            crate::run(["compare"].into_iter().chain(words.split_whitespace()))
        } else {
            compare(words)
        };
        assert_status(&output, 2);
        assert_eq!(text(&output.stdout), "", "{words}");
        let stderr = text(&output.stderr);
        for word in *named {
            assert!(
                stderr.contains(word),
                "{words}: {word:?} is not in: {stderr}"
            );
        }
    }
}

#[test]
fn a_property_file_of_ycsb_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("workloadb");
    let properties = "# Yahoo! Cloud System Benchmark\n\
        # Workload B: Read mostly workload\n\n\
        recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\n\n\
        readallfields=true\n\nreadproportion=0.95\nupdateproportion=0.05\nscanproportion=0\ninsertproportion=0\n\n\
        requestdistribution=zipfian\n\n";
    std::fs::write(&file, properties).unwrap();
    let output = compare(&format!(
        "eventual --workload {} -p recordcount=50 --json -",
        path(&file)
    ));
    assert_status(&output, 0);
    assert_eq!(text(&output.stderr), "", "no warning");
    let run = &json(&output.stdout)["runs"][0];
    assert_eq!(run["workload"], path(&file));
    assert_eq!(run["records"], 50, "-p goes before the file");
    let count = |operation: &str| run["latency_us"][operation]["count"].as_u64().unwrap();
    assert!(count("get") > 10 * count("put"));
}

#[test]
fn operationcount_ends_a_run_early() {
    let output = compare("eventual -p operationcount=500 --json -");
    assert_status(&output, 0);
    let run = &json(&output.stdout)["runs"][0];
    assert_eq!(run["operations"], 500);
    assert!(run["notes"][0].as_str().unwrap().contains("operationcount"));
}

#[test]
fn a_full_recorder_ends_a_run_that_is_still_checked() {
    let output = compare("eventual --check --record-max 5000 --json -");
    // With luck the window begins before the recorder is full; the verdict is never one on a part of the history.
    match output.status.code() {
        Some(0) => assert_eq!(
            json(&output.stdout)["runs"][0]["check"]["verdict"],
            "satisfied"
        ),
        _ => {
            assert_status(&output, 1);
            assert!(text(&output.stderr).contains("the recorder is full"));
        }
    }
}

#[test]
fn results_are_written_to_a_folder_one_file_per_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path());
    let output = compare(&format!(
        "eventual --storage memory,sled --check --history {out}/histories --out {out}/results --json {out}/again.json --ycsb"
    ));
    assert_status(&output, 0);
    assert!(text(&output.stdout).contains("[READ], AverageLatency(us), "));
    let read = |file: &str| {
        std::fs::read(Path::new(out).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    assert_eq!(
        json(&read("results/results.json")),
        json(&read("again.json"))
    );
    assert_eq!(
        json(&read("again.json"))["runs"].as_array().unwrap().len(),
        2
    );
    for engine in ["memory", "sled"] {
        assert!(
            text(&read(&format!("results/eventual-{engine}.ycsb")))
                .starts_with("[OVERALL], RunTime(ms), ")
        );
        assert!(!read(&format!("histories/eventual-{engine}.jsonl")).is_empty());
    }
}

#[test]
fn servers_may_be_processes_of_their_own() {
    let output = compare("eventual --processes --partitions 1 --check --json -");
    assert_status(&output, 0);
    let run = &json(&output.stdout)["runs"][0];
    assert_eq!(run["layout"], "processes");
    assert_eq!(run["check"]["verdict"], "satisfied");
}

#[test]
fn an_open_loop_reports_latency_from_the_intended_start_and_from_the_real_one() {
    let output = compare("eventual --target 500 --json -");
    assert_status(&output, 0);
    let run = &json(&output.stdout)["runs"][0];
    assert_eq!(fields(&run["service_us"]), ["get", "put"]);
}
