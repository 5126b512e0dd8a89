//! Nodes and clients that have nothing to do: many connections, little memory, no work.

mod common;

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use common::eventually;
use common::raw::{Raw, client_hello};
use common::site::Site;
use common::toy::{Ask, Verb};

/// Connections that the test wants, and with how few it is content where the system allows no more.
const CONNECTIONS: usize = 10_000;
const CONNECTIONS_MIN: usize = 4_000;
/// Memory that an idle connection may cost in this process, both of its ends and its thread-less client included.
const BYTES_PER_CONNECTION: usize = 16 << 10;

/// A line of a file in /proc.
fn proc_field(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(file).expect("the system has /proc");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the field is there");
    line.split_whitespace()
        .find_map(|word| word.parse().ok())
        .expect("a number")
}

fn resident_bytes() -> usize {
    proc_field("/proc/self/status", "VmRSS:") * 1024
}

/// Raises the number of files this process may open as far as it may. Returns how many that is.
fn raise_file_limit() -> usize {
    let files = |column: usize| {
        let limits = std::fs::read_to_string("/proc/self/limits").expect("the system has /proc");
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))
            .expect("the limit is there");
        line.split_whitespace()
            .nth(column)
            .and_then(|word| word.parse().ok())
            .unwrap_or(usize::MAX)
    };
    let (soft, hard) = (files(0), files(1));
    if soft < hard && soft < 3 * CONNECTIONS {
        let pid = std::process::id().to_string();
        let _ = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--nofile={hard}:{hard}")])
            .status();
    }
    files(0)
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_disturb_nobody() {
    // Both ends of each connection are in this process.
    let files = raise_file_limit();
    let connections = CONNECTIONS.min((files - 500) / 2);
    println!("{connections} connections ({files} files may be open)");
    assert!(
        connections >= CONNECTIONS_MIN,
        "this machine allows {files} open files: too few"
    );

    let node = Site::new(1).start(0);
    let mut caller = node.call();
    let before = resident_bytes();
    let mut idle = Vec::new();
    for n in 0..connections {
        let mut raw = Raw::connect(node.client);
        raw.say_hello(&client_hello(n as u64, 1));
        assert_eq!(raw.welcome().expect("a welcome").refusal, "");
        idle.push(raw);
        if n % 1000 == 0 {
            caller.ask(Ask::echo("served")).expect("an answer");
        }
    }
    assert_eq!(node.status().client_connections, connections + 1);
    let after = resident_bytes();
    let each = after.saturating_sub(before) / connections;
    println!("{each} bytes per connection");
    assert!(
        each < BYTES_PER_CONNECTION,
        "{each} bytes per idle connection"
    );

    // All of them are still served, and leave nothing behind.
    for raw in idle.iter_mut().step_by(997) {
        let mut frame = bytes::BytesMut::new();
        dkvf_core::net::wire::encode_request(&mut frame, 0, 1, &Ask::echo("still here"));
        raw.write(&frame);
        assert!(raw.frame().is_some());
    }
    drop(idle);
    eventually("all are gone", || node.status().client_connections == 1);
    caller.ask(Ask::echo("served")).expect("an answer");
}

/// How often the thread with this name went to sleep.
fn sleeps_of(thread: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system has /proc");
    tasks
        .flatten()
        .map(|task| task.path().display().to_string())
        .filter(|task| {
            std::fs::read_to_string(format!("{task}/comm")).is_ok_and(|name| name.trim() == thread)
        })
        .map(|task| proc_field(&format!("{task}/status"), "voluntary_ctxt_switches:"))
        .sum()
}

#[test]
fn an_idle_node_with_links_and_clients_does_nothing() {
    let nodes = Site::new(2).start_all();
    let mut callers = [nodes[0].call(), nodes[1].call()];
    callers[0]
        .ask(Ask::append(1, 1, 10, 10))
        .expect("the link has room");
    callers[1].expect_received(0, 1..=10);
    eventually("all is acknowledged", || {
        nodes
            .iter()
            .all(|node| node.status().links[0].connected && node.status().links[0].kept_frames == 0)
    });
    let sleeps = || {
        nodes
            .iter()
            .map(|node| sleeps_of(&node.thread))
            .sum::<usize>()
    };
    let before = sleeps();
    // The passing of time is what is looked at here: there is nothing to wait for.
    std::thread::sleep(Duration::from_millis(300));
    let woken = sleeps() - before;
    assert!(woken < 10, "idle nodes woke up {woken} times");
}

#[test]
fn connections_that_only_come_and_go_leave_nothing_behind() {
    let node = Site::new(2).start(0);
    for _ in 0..300 {
        for address in [node.client, node.server, node.control] {
            drop(TcpStream::connect(address).expect("it listens"));
        }
    }
    eventually("all are gone", || node.status().client_connections == 0);
    node.call().ask(Ask::echo("served")).expect("an answer");
}

#[test]
fn a_node_that_stops_while_time_passes_leaves_its_thread_to_others() {
    let node = Site::new(1).start(0);
    let soon = std::time::SystemTime::now() + Duration::from_millis(50);
    let since_epoch = soon
        .duration_since(std::time::UNIX_EPOCH)
        .expect("it is later than 1970");
    let clock = since_epoch.as_micros() as u64;
    // When the first one breaks the rule, the second one is still due.
    let mut caller = node.call();
    for session in 0..2 {
        caller.send_as(session, 1, &Ask::to(Verb::ClockThenIgnoreWait).first(clock));
    }
    std::thread::sleep(Duration::from_millis(200));
    // Answered by that thread.
    assert!(!node.is_running());
    let failure = node.failure().expect("a broken rule");
    assert!(failure.contains("toy.rs:"), "{failure}");
}
