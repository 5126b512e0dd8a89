//! Faults on purpose, over the control port: links that are cut, held and delayed, and clocks that jump.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use common::site::{Running, Site};
use common::toy::{Ask, Verb};
use common::{DEADLINE, eventually};
use dkvf_core::config::{Delay, NodeConfig};
use dkvf_core::net::orders::{ClockOrder, LinkOrder};
use dkvf_core::net::{Address, control_post};
use serde::Serialize;

const HOUR_US: i64 = 3_600_000_000;

fn post(node: &Running, path: &str, order: &impl Serialize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = Address::Socket(node.control);
    runtime.block_on(control_post(&address, path, None, order))
}

#[track_caller]
fn order(node: &Running, order: &LinkOrder) {
    post(node, "/links", order).expect("it obeys");
}

fn pair_with(configure: impl Fn(&mut NodeConfig)) -> Vec<Running> {
    let nodes = Site::with(2, configure).start_all();
    eventually("both links are up", || {
        nodes.iter().all(|node| node.status().links[0].connected)
    });
    nodes
}

/// Two nodes of which the first has sent 1 to 10 to the second.
fn pair() -> Vec<Running> {
    let nodes = pair_with(|_| {});
    append(&nodes[0], 1, 1);
    nodes[1].call().expect_received(0, 1..=10);
    eventually("all is acknowledged", || {
        nodes[0].status().links[0].kept_frames == 0
    });
    nodes
}

/// Has `node` send ten numbers from `first` on.
fn append(node: &Running, to: u32, first: u64) {
    node.call()
        .ask(Ask::append(to, first, 10, 10))
        .expect("the link has room");
}

/// The other direction works, and when it has, nothing more has come in this one.
#[track_caller]
fn expect_only_the_first_ten(nodes: &[Running]) {
    append(&nodes[1], 0, 500);
    nodes[0].call().expect_received(1, 500..510);
    assert_eq!(nodes[1].call().received(0), Vec::from_iter(1..=10));
    assert_eq!(nodes[0].status().links[0].kept_frames, 10);
}

#[test]
fn a_cut_at_the_sender_lets_nothing_through_one_way_and_loses_nothing() {
    let nodes = pair();
    order(
        &nodes[0],
        &LinkOrder {
            cut_to: true,
            ..LinkOrder::mended("1_0")
        },
    );
    append(&nodes[0], 1, 11);
    expect_only_the_first_ten(&nodes);
    let link = nodes[0].status().links[0].clone();
    assert!(!link.connected);
    assert_eq!(link.connections, 1, "it is not dialled");

    order(&nodes[0], &LinkOrder::mended("1_0"));
    nodes[1].call().expect_received(0, 1..=20);
}

#[test]
fn a_cut_at_the_receiver_turns_the_sender_away_and_loses_nothing() {
    let nodes = pair();
    order(
        &nodes[1],
        &LinkOrder {
            cut_from: true,
            ..LinkOrder::mended("0_0")
        },
    );
    eventually("the connection breaks", || {
        !nodes[0].status().links[0].connected
    });
    append(&nodes[0], 1, 11);
    expect_only_the_first_ten(&nodes);

    order(&nodes[1], &LinkOrder::mended("0_0"));
    nodes[1].call().expect_received(0, 1..=20);
}

#[test]
fn a_held_link_stays_connected_and_delivers_everything_at_the_end() {
    let nodes = pair();
    order(
        &nodes[0],
        &LinkOrder {
            hold: true,
            ..LinkOrder::mended("1_0")
        },
    );
    append(&nodes[0], 1, 11);
    expect_only_the_first_ten(&nodes);
    assert!(nodes[0].status().links[0].connected);

    order(&nodes[0], &LinkOrder::mended("1_0"));
    nodes[1].call().expect_received(0, 1..=20);
    assert_eq!(nodes[0].status().links[0].connections, 1);
}

#[test]
fn a_delay_ends_when_the_order_does_also_for_what_it_held_back() {
    let nodes = pair();
    order(
        &nodes[0],
        &LinkOrder {
            delay_us: HOUR_US as u64,
            jitter_us: HOUR_US as u64,
            ..LinkOrder::mended("1_0")
        },
    );
    append(&nodes[0], 1, 11);
    expect_only_the_first_ten(&nodes);

    order(&nodes[0], &LinkOrder::mended("1_0"));
    append(&nodes[0], 1, 21);
    nodes[1].call().expect_received(0, 1..=30);
}

#[test]
fn a_held_link_that_has_a_distance_keeps_it() {
    let nodes = pair_with(|config| config.delays = vec![Delay::new("0_0", "1_0", 1, 1)]);
    let hold = LinkOrder {
        hold: true,
        ..LinkOrder::mended("1_0")
    };
    for round in 0..3 {
        order(&nodes[0], &hold);
        append(&nodes[0], 1, 10 * round + 1);
        order(&nodes[0], &LinkOrder::mended("1_0"));
        nodes[1].call().expect_received(0, 1..=10 * round + 10);
    }
}

#[test]
fn a_link_that_was_cut_while_it_was_down_is_not_dialled_before_it_is_mended() {
    let mut site = Site::new(2);
    let sender = site.start(0);
    order(
        &sender,
        &LinkOrder {
            cut_to: true,
            ..LinkOrder::mended("1_0")
        },
    );
    append(&sender, 1, 1);
    let receiver = site.start(1);
    append(&receiver, 0, 1);
    sender.call().expect_received(1, 1..=10);
    assert_eq!(sender.status().links[0].connections, 0);
    order(&sender, &LinkOrder::mended("1_0"));
    receiver.call().expect_received(0, 1..=10);
}

fn step(node: &Running, step_us: i64) {
    post(node, "/clock", &ClockOrder { step_us }).expect("it obeys");
}

fn machine_time_us() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    since_epoch.as_micros() as i64
}

#[test]
fn a_clock_that_jumps_ahead_lets_those_go_on_who_waited_for_it() {
    let node = Site::new(1).start(0);
    let mut waiter = node.call();
    let in_an_hour = (machine_time_us() + HOUR_US) as u64;
    waiter.send(Ask::to(Verb::Clock).first(in_an_hour));
    eventually("it waits", || node.status().node.parked == 1);
    step(&node, HOUR_US);
    assert!(waiter.receive().2.is_ok());
}

#[test]
fn a_clock_that_is_set_back_stands_still_for_the_protocol() {
    let node = Site::new(1).start(0);
    let mut caller = node.call();
    step(&node, HOUR_US);
    let seen = Ask::to(Verb::Clock).first((machine_time_us() + HOUR_US) as u64);
    caller.ask(seen.clone()).expect("the clock is there");
    step(&node, -2 * HOUR_US);
    caller.ask(seen).expect("the clock has not gone back");
    // It is two hours behind itself: what is to come is far away.
    let mut waiter = node.call();
    waiter.send(Ask::to(Verb::Clock).first((machine_time_us() + HOUR_US + 1_000_000) as u64));
    eventually("it waits", || node.status().node.parked == 1);
    step(&node, 3 * HOUR_US);
    assert!(waiter.receive().2.is_ok());
}

/// The answer to a request with these further headers and this body.
fn answer(address: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a deadline is allowed");
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    // A body that is refused unread may end the connection hard.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_web_page_on_this_machine_may_not_order_faults() {
    let nodes = pair();
    let cut = "{\"peer\":\"1_0\",\"cut_to\":true}";
    for (path, body) in [("/links", cut), ("/clock", "{\"step_us\":1}")] {
        let refused = answer(nodes[0].control, path, "Origin: http://x\r\n", body);
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    assert!(nodes[0].status().links[0].connected);
}

#[test]
fn orders_that_make_no_sense_are_refused_with_the_reason() {
    let nodes = pair();
    let long = format!("{{\"peer\":\"{}\"}}", "x".repeat(5000));
    let table = [
        ("/links", "", "400", "EOF while parsing"),
        ("/links", "{\"cut_to\":true}", "400", "missing field `peer`"),
        (
            "/links",
            "{\"peer\":\"1_0\",\"cut\":true}",
            "400",
            "unknown field `cut`",
        ),
        (
            "/links",
            "{\"peer\":\"2_0\"}",
            "400",
            "no server \"2_0\" is a peer of 0_0",
        ),
        (
            "/links",
            "{\"peer\":\"0_0\"}",
            "400",
            "no server \"0_0\" is a peer of 0_0",
        ),
        (
            "/links",
            "{\"peer\":\"1_0\",\"delay_us\":86400000001}",
            "400",
            "86400000001 is more",
        ),
        (
            "/links",
            "{\"peer\":\"1_0\",\"delay_us\":-1}",
            "400",
            "invalid value",
        ),
        (
            "/clock",
            "{\"step_us\":86400000001}",
            "400",
            "86400000001 is more",
        ),
        ("/clock", "{}", "400", "missing field `step_us`"),
        ("/links", &long, "413", "longer than 4096 bytes"),
    ];
    for (path, body, status, reason) in table {
        let text = answer(nodes[0].control, path, "", body);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")),
            "{body}: {text}"
        );
        assert!(text.contains(reason), "{body}: {text}");
    }
    append(&nodes[0], 1, 11);
    nodes[1].call().expect_received(0, 1..=20);
}
