//! The control port: what it says, to whom it listens, and that nobody blocks it.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::Bytes;
use common::site::{Running, Site};
use common::toy::{Ask, Verb};
use common::{DEADLINE, eventually};
use dkvf_core::config::ControlToken;
use dkvf_core::net::status::ServerStatus;
use dkvf_core::net::{Address, control_request};

/// Calls a control port as the command line does.
fn call(address: SocketAddr, method: &str, path: &str) -> anyhow::Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(control_request(
        &Address::Socket(address),
        method,
        path,
        Some(&ControlToken::new("secret")),
    ))
}

/// Sends a request byte for byte and returns the whole answer.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a deadline is allowed");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("it answers and closes");
    answer
}

fn status_of(node: &Running) -> ServerStatus {
    serde_json::from_slice(&call(node.control, "GET", "/status").expect("an answer"))
        .expect("it is the status")
}

fn pair() -> Vec<Running> {
    let nodes = Site::new(2).start_all();
    eventually("both links are up", || {
        nodes.iter().all(|node| node.status().links[0].connected)
    });
    nodes
}

#[test]
fn the_status_tells_who_it_is_and_what_it_has() {
    let nodes = pair();
    let mut caller = nodes[0].call();
    caller
        .ask(Ask::append(1, 1, 10, 10))
        .expect("the link has room");
    caller
        .ask(Ask::to(Verb::Put).payload("key"))
        .expect("an answer");
    nodes[1].call().expect_received(0, 1..=10);
    let mut waiter = nodes[0].call();
    waiter.send(Ask::to(Verb::Until).first(1));
    eventually("it waits", || status_of(&nodes[0]).node.parked == 1);
    eventually("all is acknowledged", || {
        status_of(&nodes[0]).links[0].kept_frames == 0
    });

    let status = status_of(&nodes[0]);
    assert_eq!(
        status,
        ServerStatus {
            uptime_ms: status.uptime_ms,
            ..nodes[0].status()
        }
    );
    assert_eq!(
        (status.server.as_str(), status.protocol.as_str()),
        ("0_0", "toy")
    );
    assert_eq!(
        (
            status.replica,
            status.partition,
            status.running,
            &status.failure
        ),
        (0, 0, true, &None)
    );
    assert_eq!(status.client_connections, 2);
    assert_eq!(
        (
            status.node.requests,
            status.node.refused,
            status.node.sessions
        ),
        (3, 0, 2)
    );
    assert_eq!(status.node.parked_at.len(), 1);
    assert!(
        status.node.parked_at[0].0.contains("toy.rs:"),
        "where it waits"
    );
    assert_eq!(status.node.store.keys, 1);
    assert_eq!(
        (
            status.traffic.requests,
            status.traffic.replies,
            status.traffic.messages
        ),
        (3, 2, 10)
    );
    let link = &status.links[0];
    assert_eq!(
        (
            link.peer.as_str(),
            link.connected,
            link.congested,
            link.connections
        ),
        ("1_0", true, false, 1)
    );
    assert_eq!(status_of(&nodes[1]).links[0].taken_frames, 10);
    // The field names are what people and scripts read.
    let json = String::from_utf8(
        call(nodes[0].control, "GET", "/status")
            .expect("an answer")
            .to_vec(),
    )
    .expect("text");
    for field in [
        "\"server\"",
        "\"incarnation\"",
        "\"links\"",
        "\"kept_bytes\"",
        "\"capacity_bytes\"",
        "\"parked\"",
        "\"sessions\"",
        "\"traffic\"",
    ] {
        assert!(json.contains(field), "{field} is missing in {json}");
    }
}

#[test]
fn the_metrics_are_prometheus_text_and_agree_with_the_status() {
    let nodes = pair();
    let mut caller = nodes[0].call();
    caller
        .ask(Ask::append(1, 1, 5, 10))
        .expect("the link has room");
    caller
        .ask(
            Ask::to(Verb::AppendLatest)
                .peer(1)
                .first(6)
                .count(1)
                .bytes(10),
        )
        .expect("the link has room");
    nodes[1].call().expect_received(0, 1..=6);
    eventually("all is acknowledged", || {
        status_of(&nodes[0]).links[0].kept_frames == 0
    });

    let text = String::from_utf8(
        call(nodes[0].control, "GET", "/metrics")
            .expect("an answer")
            .to_vec(),
    )
    .expect("text");
    let values = parse_metrics(&text);
    let value = |name: &str| values[&format!("dkvf_{name}{{server=\"0_0\"}}")];
    let status = nodes[0].status();
    assert_eq!(value("requests_total"), status.traffic.requests);
    assert_eq!(value("reply_bytes_total"), status.traffic.reply_bytes);
    assert_eq!(
        (value("messages_total"), value("message_bytes_total")),
        (5, status.traffic.message_bytes)
    );
    assert_eq!(
        (
            value("periodic_messages_total"),
            value("periodic_message_bytes_total")
        ),
        (1, status.traffic.periodic_bytes)
    );
    assert_eq!(
        (
            value("client_connections"),
            value("sessions"),
            value("parked")
        ),
        (1, 1, 0)
    );
    assert_eq!(
        values["dkvf_link_connected{server=\"0_0\",peer=\"1_0\"}"],
        1
    );
    assert_eq!(
        values["dkvf_link_kept_bytes{server=\"0_0\",peer=\"1_0\"}"],
        0
    );
}

/// `name{labels} value` lines; every other line must be a comment that says what a metric is.
fn parse_metrics(text: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            assert!(
                ["HELP ", "TYPE ", "UNIT ", "EOF"]
                    .iter()
                    .any(|word| comment.starts_with(word)),
                "{line}"
            );
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let twice = values.insert(name.to_owned(), value.parse().expect("a number"));
        assert_eq!(twice, None, "{name} is there twice");
    }
    values
}

#[test]
fn a_shutdown_from_this_machine_stops_the_node_and_is_answered() {
    let nodes = pair();
    assert_eq!(
        call(nodes[0].control, "POST", "/shutdown").expect("an answer"),
        "stopped\n"
    );
    assert!(!nodes[0].is_running());
    assert_eq!(nodes[0].failure(), None);
    eventually("nobody listens any more", || {
        TcpStream::connect(nodes[0].control).is_err()
            && TcpStream::connect(nodes[0].client).is_err()
    });
    eventually("its peer sees it", || !nodes[1].status().links[0].connected);
}

#[test]
fn a_web_page_on_this_machine_may_not_shut_a_server_down() {
    let nodes = pair();
    let from_a_page = "POST /shutdown HTTP/1.1\r\nHost: x\r\nOrigin: http://example.org\r\n";
    assert!(exchange(nodes[0].control, &format!("{from_a_page}\r\n")).starts_with("HTTP/1.1 403"));
    assert!(
        exchange(
            nodes[0].control,
            &format!("{from_a_page}Authorization: Bearer wrong\r\n\r\n")
        )
        .starts_with("HTTP/1.1 403")
    );
    assert!(nodes[0].is_running());
}

#[test]
fn the_token_opens_what_the_place_of_the_caller_does_not() {
    let mut site = Site::with(1, |config| {
        config.control_token = Some(ControlToken::new("secret"))
    });
    let node = site.start(0);
    let with = |token: &str| {
        format!(
            "POST /shutdown HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
    };
    assert!(exchange(node.control, &with("secre")).starts_with("HTTP/1.1 403"));
    assert!(exchange(node.control, &with("secret2")).starts_with("HTTP/1.1 403"));
    assert!(node.is_running());
    assert!(exchange(node.control, &with("secret")).starts_with("HTTP/1.1 200"));
    assert!(!node.is_running());
}

#[test]
fn a_wrong_method_or_path_is_told_what_is_right() {
    let nodes = pair();
    let answer = |request: &str| {
        exchange(
            nodes[0].control,
            &format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
    };
    for (request, status, help) in [
        ("GET /shutdown", "405", "allow: POST"),
        ("GET /links", "405", "allow: POST"),
        ("PUT /clock", "405", "allow: POST"),
        ("POST /status", "405", "allow: GET"),
        ("DELETE /metrics", "405", "allow: GET"),
        ("GET /", "404", "GET /status"),
        ("GET /status/more", "404", "GET /status"),
        ("GET /../etc/passwd", "404", "GET /status"),
    ] {
        let text = answer(request);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")) && text.contains(help),
            "{request}: {text}"
        );
    }
    assert!(exchange(nodes[0].control, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100_000));
    let mut stream = TcpStream::connect(nodes[0].control).expect("it listens");
    let _ = stream.write_all(long.as_bytes());
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(nodes[0].is_running());
    assert!(call(nodes[0].control, "GET", "/status").is_ok());
}

#[test]
fn connections_that_come_and_go_or_say_nothing_do_not_block_the_port() {
    let nodes = pair();
    for _ in 0..500 {
        drop(TcpStream::connect(nodes[0].control).expect("it listens"));
    }
    // Thirty silent connections stay while others are answered.
    let silent: Vec<TcpStream> = (0..30)
        .map(|_| TcpStream::connect(nodes[0].control).expect("it listens"))
        .collect();
    for _ in 0..50 {
        assert!(call(nodes[0].control, "GET", "/status").is_ok());
    }
    // With as many as are allowed, others wait; when they leave there is room again.
    let more: Vec<TcpStream> = (0..70)
        .map(|_| TcpStream::connect(nodes[0].control).expect("it listens"))
        .collect();
    assert!(nodes[0].call().ask(Ask::echo("others are served")).is_ok());
    drop((silent, more));
    eventually("there is room again", || {
        call(nodes[0].control, "GET", "/status").is_ok()
    });
}

#[test]
fn the_caller_of_a_control_port_is_told_what_went_wrong() {
    let nodes = pair();
    let message = |result: anyhow::Result<Bytes>| format!("{:#}", result.expect_err("it fails"));
    let not_found = message(call(nodes[0].control, "GET", "/nothing"));
    assert!(
        not_found.contains("404")
            && not_found.contains("GET /nothing")
            && not_found.contains("GET /status"),
        "{not_found}"
    );
    // Nobody listens; somebody who speaks no HTTP; somebody who hangs up.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = port.local_addr().expect("it is bound");
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = port.accept().expect("it is called");
        let _ = (
            stream.read(&mut [0; 1000]),
            stream.write_all(b"good morning\r\n\r\n"),
        );
        drop(stream);
        drop(port.accept());
    });
    assert!(call(address, "GET", "/status").is_err());
    assert!(call(address, "GET", "/status").is_err());
    stranger.join().expect("it only hung up");
    let refused = message(call(address, "GET", "/status"));
    assert!(
        refused.contains(&format!("cannot connect to {address}")),
        "{refused}"
    );
    assert!(call(nodes[0].control, "BAD METHOD", "/status").is_err());
}
