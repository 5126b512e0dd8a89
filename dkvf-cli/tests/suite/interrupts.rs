//! Ctrl-C, and servers that die, during `dkvf compare`.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::faults::schedule;
use crate::{TIMEOUT, assert_status, dkvf, json, path, text};

/// A run that only something from outside ends.
fn endless(words: &str) -> Child {
    let mut command = dkvf();
    command.args([
        "compare",
        "eventual",
        "--partitions",
        "1",
        "--seconds",
        "10000",
        "--warmup",
        "0",
        "--json",
        "-",
    ]);
    command
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until a process has used this much CPU time: it is beyond whatever it does first.
pub fn wait_until_busy(pid: u32, cpu: Duration) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        // Fields 14 and 15 of proc(5), in hundredths of a second; field 3 is the first after the name.
        let ticks: u64 = [14, 15]
            .iter()
            .map(|field| fields[field - 3].parse::<u64>().unwrap())
            .sum();
        if Duration::from_millis(ticks * 10) >= cpu {
            return;
        }
        assert!(Instant::now() < deadline, "process {pid} does nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn signal(name: &str, pid: u32) {
    assert!(
        Command::new("kill")
            .args([name, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// The processes that `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let is_child = |stat: &str| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.split_whitespace().nth(1) == Some(&pid.to_string()))
    };
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|other| {
            std::fs::read_to_string(format!("/proc/{other}/stat")).is_ok_and(|stat| is_child(&stat))
        })
        .collect()
}

#[test]
fn ctrl_c_ends_a_run_and_prints_what_was_measured() {
    let run = endless("--check");
    wait_until_busy(run.id(), Duration::from_secs(1));
    signal("-INT", run.id());
    let output = run.wait_with_output().unwrap();
    assert_status(&output, 0);
    let run = &json(&output.stdout)["runs"][0];
    assert!(run["operations"].as_u64().unwrap() > 0);
    assert!(run["notes"][0].as_str().unwrap().contains("interrupted"));
    assert_eq!(run["check"]["verdict"], "satisfied");
}

#[test]
fn ctrl_c_in_the_load_phase_says_that_nothing_was_measured() {
    let run = endless("--records 1000000000 --value-size 16");
    wait_until_busy(run.id(), Duration::from_millis(300));
    signal("-INT", run.id());
    let output = run.wait_with_output().unwrap();
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("interrupted: 0 of 1 runs measured"));
    assert_eq!(json(&output.stdout)["runs"].as_array().unwrap().len(), 0);
}

#[test]
fn ctrl_c_leaves_no_server_process_behind() {
    let run = endless("--processes");
    wait_until_busy(run.id(), Duration::from_secs(1));
    let servers = children(run.id());
    assert_eq!(servers.len(), 2);
    signal("-INT", run.id());
    assert_status(&run.wait_with_output().unwrap(), 0);
    for server in servers {
        assert!(
            !std::path::Path::new(&format!("/proc/{server}")).exists(),
            "{server} still runs"
        );
    }
}

#[test]
fn a_run_whose_server_dies_fails_and_says_which() {
    let run = endless("--processes");
    wait_until_busy(run.id(), Duration::from_secs(1));
    signal("-KILL", children(run.id())[0]);
    let output = run.wait_with_output().unwrap();
    assert_status(&output, 1);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("eventual on memory: server 0_0")
            || stderr.contains("eventual on memory: server 1_0"),
        "{stderr}"
    );
    assert_eq!(json(&output.stdout)["failures"][0]["protocol"], "eventual");
}

/// Waits until a child of `pid` stands still.
fn wait_until_one_stands_still(pid: u32) {
    let stands_still = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/stat"))
            .is_ok_and(|stat| stat.rsplit(')').next().unwrap().trim().starts_with('T'))
    };
    let deadline = Instant::now() + TIMEOUT;
    while !children(pid).iter().any(stands_still) {
        assert!(Instant::now() < deadline, "no server stands still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A run in which server 1_0 stands still for good, and the process of each server.
fn run_with_a_server_that_stands_still() -> (Child, Vec<u32>) {
    let (folder, file) = schedule(r#"{"at_ms":0,"fault":"pause","node":"1_0"}"#);
    let run = endless(&format!("--processes --faults {}", path(&file)));
    wait_until_one_stands_still(run.id());
    drop(folder);
    let servers = children(run.id());
    assert_eq!(servers.len(), 2);
    (run, servers)
}

#[test]
fn ctrl_c_leaves_no_server_behind_that_stands_still() {
    let (run, servers) = run_with_a_server_that_stands_still();
    signal("-INT", run.id());
    let output = run.wait_with_output().unwrap();
    assert_status(&output, 0);
    let faults = &json(&output.stdout)["runs"][0]["faults"];
    assert!(faults[0]["ended_ms"].is_number(), "{faults}");
    for server in servers {
        assert!(
            !std::path::Path::new(&format!("/proc/{server}")).exists(),
            "{server} still runs"
        );
    }
}

#[test]
fn a_run_that_is_killed_leaves_no_server_behind_that_stands_still() {
    let (mut run, servers) = run_with_a_server_that_stands_still();
    run.kill().unwrap();
    run.wait().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    for server in servers {
        while std::fs::read_to_string(format!("/proc/{server}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
        {
            assert!(Instant::now() < deadline, "{server} still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
