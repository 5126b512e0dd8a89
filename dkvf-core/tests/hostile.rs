//! Bytes that nobody should send, on every port: the server closes that connection and goes on serving others.

mod common;

use std::io::Write;

use bytes::BytesMut;
use common::eventually;
use common::raw::{Caller, Raw, client_hello, server_hello};
use common::site::{Running, Site};
use common::toy::{Ask, Verb};
use dkvf_core::Code;
use dkvf_core::config::NodeConfig;
use dkvf_core::net::wire::{self, Hello};

/// One node of a cluster of two; the other one is played by the tests.
fn one_node(configure: impl Fn(&mut NodeConfig)) -> Running {
    Site::with(2, configure).start(0)
}

/// A client that was there before and must not notice anything.
struct Bystander(Caller);

impl Bystander {
    fn of(node: &Running) -> Self {
        Bystander(node.call())
    }

    #[track_caller]
    fn check(&mut self) {
        assert_eq!(
            self.0.ask(Ask::echo("hello")).expect("an answer").payload,
            "hello"
        );
    }
}

fn admitted_client(node: &Running) -> Raw {
    let mut raw = Raw::connect(node.client);
    raw.say_hello(&client_hello(77, 2));
    assert_eq!(raw.welcome().expect("a welcome").refusal, "");
    raw
}

fn admitted_server(node: &Running) -> Raw {
    let mut raw = Raw::connect(node.server);
    raw.say_hello(&server_hello("1_0", 77, 2));
    assert_eq!(raw.welcome().expect("a welcome").refusal, "");
    raw
}

fn garbage() -> Vec<u8> {
    (0..500u32).map(|n| (n * 7919 % 251) as u8).collect()
}

#[test]
fn garbage_instead_of_a_hello_closes_the_connection() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    for port in [node.client, node.server, node.control] {
        for bytes in [
            &garbage()[..],
            &[0xff; 64],
            &[0, 0, 0, 0],
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            let mut raw = Raw::connect(port);
            raw.write(bytes);
            raw.finish();
            // The control port answers garbage in HTTP, the others not at all.
            if port == node.control {
                read_to_the_end(raw)
            } else {
                raw.expect_closed("garbage")
            }
            bystander.check();
        }
    }
}

fn read_to_the_end(mut raw: Raw) {
    let _ = std::io::Read::read_to_end(&mut raw.stream, &mut Vec::new());
}

#[test]
fn a_hello_that_fits_not_is_refused_with_a_reason() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    let refusal = |address, hello: &Hello| {
        let mut raw = Raw::connect(address);
        raw.say_hello(hello);
        let welcome = raw.welcome().expect("an answer with the reason");
        raw.expect_closed("refused");
        welcome.refusal
    };
    for (address, hello) in [
        (node.client, client_hello(1, 2)),
        (node.server, server_hello("1_0", 1, 2)),
    ] {
        let other_protocol = Hello {
            protocol: "poem".to_owned(),
            ..hello.clone()
        };
        assert!(refusal(address, &other_protocol).contains("runs toy, the caller speaks \"poem\""));
        let other_cluster = Hello {
            partitions: 3,
            ..hello
        };
        assert!(refusal(address, &other_cluster).contains("has 1 partitions, the caller's has 3"));
        bystander.check();
    }
    // As many nodes and partitions, but other ones.
    let other_members = Hello {
        fingerprint: 1,
        ..server_hello("1_0", 1, 2)
    };
    assert!(refusal(node.server, &other_members).contains("other servers than this one's"));
    // A client that knows one of the two replicas only.
    let mut some_replicas = Raw::connect(node.client);
    some_replicas.say_hello(&client_hello(1, 1));
    assert_eq!(some_replicas.welcome().expect("a welcome").refusal, "");
    for name in ["", "nobody", "0_0"] {
        let reason = refusal(node.server, &server_hello(name, 1, 2));
        assert!(reason.contains("is a peer of 0_0"), "{reason}");
        bystander.check();
    }
}

#[test]
fn a_hello_with_the_wrong_magic_closes_the_connection() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    for address in [node.client, node.server] {
        let mut raw = Raw::connect(address);
        raw.say_hello(&Hello {
            magic: 7,
            ..server_hello("1_0", 1, 2)
        });
        raw.expect_closed("another wire format");
        bystander.check();
    }
}

#[test]
fn garbage_after_a_good_handshake_closes_the_connection() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    for admitted in [admitted_client, admitted_server] {
        let mut raw = admitted(&node);
        raw.write(&[0xff; 100]);
        raw.expect_closed("a frame of 4 GiB");
        let mut raw = admitted(&node);
        raw.write_frame(&[]);
        raw.expect_closed("an empty frame");
        bystander.check();
    }
    let mut raw = admitted_server(&node);
    raw.write_frame(&garbage());
    raw.expect_closed("no message");
    bystander.check();
}

#[test]
fn a_request_that_is_no_message_is_answered_so_and_the_connection_lives() {
    let node = one_node(|_| {});
    let mut caller = node.call();
    let mut body = vec![0, 9];
    body.extend(garbage());
    caller.raw().write_frame(&body);
    assert_eq!(caller.receive(), (0, 9, Err(Code::Malformed)));
    caller.send_as(0, 10, &Ask::echo("again"));
    assert_eq!(caller.receive().2.expect("an answer").payload, "again");
}

#[test]
fn a_length_over_the_limit_closes_the_connection_before_anything_is_kept_for_it() {
    let node = one_node(|config| config.message_bytes_max = 1000);
    let mut bystander = Bystander::of(&node);
    let mut raw = admitted_client(&node);
    raw.write_frame(&vec![0; 1001]);
    raw.expect_closed("over message_bytes_max");
    let mut raw = admitted_server(&node);
    raw.write_frame(&vec![0; 2001]);
    raw.expect_closed("over twice message_bytes_max");
    bystander.check();
}

#[test]
fn a_caller_that_stops_within_a_hello_or_a_frame_is_not_waited_for() {
    let node = one_node(|config| config.idle_timeout_ms = 50);
    let mut bystander = Bystander::of(&node);
    // Nothing, one byte, and half of a hello.
    let mut hello = BytesMut::new();
    wire::encode_handshake(&mut hello, &server_hello("1_0", 1, 2));
    for address in [node.client, node.server] {
        for bytes in [0, 1, hello.len() - 1] {
            let mut raw = Raw::connect(address);
            raw.write(&hello[..bytes]);
            raw.expect_closed("it never said who it is");
        }
    }
    // Half a frame after a good handshake.
    for admitted in [admitted_client, admitted_server] {
        for bytes in [&[5][..], &[100, 0, 0, 0, 1]] {
            let mut raw = admitted(&node);
            raw.write(bytes);
            raw.expect_closed("half a frame for ever");
        }
    }
    // A bystander that said hello and is silent between its requests is no such caller.
    bystander.check();
}

#[test]
fn numbers_at_the_extremes_are_taken_or_refused_and_confuse_nobody() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    let mut caller = node.call();
    for (session, request) in [
        (0, 1),
        (0xff_ffff, 1),
        (0xff_ffff, u64::MAX),
        (1, u64::MAX),
        (1, u64::MAX),
    ] {
        caller.send_as(session, request, &Ask::echo("extreme"));
        let (session_back, request_back, result) = caller.receive();
        assert_eq!((session_back, request_back), (session, request));
        assert_eq!(result.expect("an answer").payload, "extreme");
    }
    // Session 2^24 would be taken for session 0 of the same process, and requests are numbered from 1.
    for (session, request) in [(1 << 24, 2), (u32::MAX, 2), (0, 0)] {
        let mut caller = node.call();
        caller.send_as(session, request, &Ask::echo("out of range"));
        caller.raw().expect_closed("no such number is given");
    }
    let mut raw = admitted_client(&node);
    raw.write_frame(&[0xff; 30]);
    raw.expect_closed("a number that does not end");
    bystander.check();
}

#[test]
fn a_second_request_of_a_session_while_one_is_open_does_not_get_the_first_ones_answer() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    let mut caller = node.call();
    caller.send_as(0, 1, &Ask::to(Verb::Until).first(1));
    caller.send_as(0, 2, &Ask::echo("too early"));
    assert_eq!(caller.receive(), (0, 2, Err(Code::Malformed)));
    bystander
        .0
        .ask(Ask::to(Verb::Open).first(1))
        .expect("an answer");
    let (_, request, result) = caller.receive();
    assert_eq!((request, result.is_ok()), (1, true));
    bystander.check();
    assert_eq!(node.failure(), None);
}

#[test]
fn two_connections_of_one_client_process_share_its_sessions() {
    let node = one_node(|_| {});
    let mut first = Caller::connect_as(node.client, 2, 500);
    let mut second = Caller::connect_as(node.client, 2, 500);
    assert_eq!(first.numbers(Ask::to(Verb::Count)), [1]);
    // The same number on the other connection is the same request.
    assert_eq!(second.numbers(Ask::to(Verb::Count)), [1]);
    // A request that came on one and is repeated on the other is answered there, once.
    first.send_as(0, 2, &Ask::to(Verb::Until).first(5));
    eventually("it waits", || node.status().node.parked == 1);
    second.send_as(0, 2, &Ask::to(Verb::Until).first(5));
    second.send_as(1, 1, &Ask::to(Verb::Open).first(5));
    let mut answered = [second.receive(), second.receive()]
        .map(|(session, request, result)| (session, request, result.is_ok()));
    answered.sort_unstable();
    assert_eq!(answered, [(0, 2, true), (1, 1, true)]);
    assert_eq!(node.status().node.sessions, 2);
}

#[test]
fn a_client_that_never_reads_is_held_up_and_then_closed_while_others_are_served() {
    let node = one_node(|config| {
        config.request_timeout_ms = 100;
        config.idle_timeout_ms = 100;
    });
    let mut bystander = Bystander::of(&node);
    let mut greedy = admitted_client(&node);
    greedy.stream.set_nonblocking(true).expect("it is a socket");
    let mut frame = BytesMut::new();
    for session in 0..200_000 {
        wire::encode_request(&mut frame, session, 1, &Ask::to(Verb::Big).bytes(100_000));
    }
    let mut written = 0;
    eventually("its connection is closed", || {
        bystander.check();
        match greedy.stream.write(&frame[written..]) {
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
        node.status().client_connections == 1
    });
    let traffic = node.status().traffic;
    assert!(
        traffic.reply_bytes < 40_000_000,
        "it was held up after a few replies: {} bytes",
        traffic.reply_bytes
    );
}

#[test]
fn a_peer_that_acknowledges_what_it_never_got_loses_nothing_but_its_connection() {
    let mut site = Site::new(2);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    site.route(0, 1, listener.local_addr().expect("it is bound"));
    let node = site.start(0);
    let mut bystander = Bystander::of(&node);
    bystander
        .0
        .ask(Ask::append(1, 1, 3, 10))
        .expect("the link has room");
    // Acknowledgements in excess, of a wrong length, and a claim in the welcome.
    for (taken, ack) in [
        (0, &4u64.to_le_bytes()[..]),
        (0, &u64::MAX.to_le_bytes()),
        (0, &[1, 2, 3]),
        (0, &[0; 100]),
        (7, &[]),
    ] {
        let (stream, _) = listener.accept().expect("it calls");
        let mut peer = Raw::accepted(stream);
        let hello = peer.frame().expect("a hello");
        assert_eq!(wire::decode_hello(&hello).expect("a hello").server, "0_0");
        peer.welcome_with(99, taken);
        if taken == 0 {
            for _ in 0..3 {
                peer.frame().expect("all three messages, again and again");
            }
            peer.write_frame(ack);
        }
        peer.expect_closed("it contradicts itself");
        bystander.check();
        assert_eq!(node.status().links[0].kept_frames, 3, "nothing is dropped");
    }
    assert_eq!(node.failure(), None);
}

#[test]
fn a_peer_that_closes_in_the_middle_of_a_message_may_come_back() {
    let node = one_node(|_| {});
    let mut bystander = Bystander::of(&node);
    let mut frame = BytesMut::new();
    wire::encode_message(&mut frame, &Ask::to(Verb::Number).first(1));
    for bytes in 0..frame.len() {
        let mut peer = admitted_server(&node);
        peer.write(&frame[..bytes]);
        peer.finish();
        peer.expect_closed("it left");
    }
    let mut peer = admitted_server(&node);
    peer.write(&frame);
    bystander.0.expect_received(1, 1..=1);
}

#[test]
fn a_reply_over_the_limit_is_not_sent_and_the_connection_lives() {
    let node = one_node(|config| config.message_bytes_max = 1000);
    let mut caller = node.call();
    caller.send_as(0, 1, &Ask::to(Verb::Big).bytes(5000));
    caller.send_as(1, 1, &Ask::echo("small"));
    let (session, _, result) = caller.receive();
    assert_eq!(
        (session, result.expect("an answer").payload),
        (1, "small".into())
    );
}

#[test]
fn a_message_over_the_limit_stops_its_sender_and_names_the_peer() {
    let node = one_node(|config| config.message_bytes_max = 1000);
    let mut caller = node.call();
    caller.send(Ask::append(1, 1, 1, 5000));
    eventually("it stops", || !node.is_running());
    let failure = node.failure().expect("a reason");
    assert!(
        failure.contains("1_0") && failure.contains("message_bytes_max"),
        "{failure}"
    );
}

#[test]
fn clients_over_connections_max_are_turned_away_until_one_leaves() {
    let node = one_node(|config| config.connections_max = 3);
    let mut callers: Vec<Caller> = (0..3).map(|_| node.call()).collect();
    let mut fourth = Raw::connect(node.client);
    fourth.expect_closed("no room");
    callers.pop();
    eventually("its place is free", || {
        node.status().client_connections == 2
    });
    assert!(node.call().ask(Ask::echo("in")).is_ok());
}

#[test]
fn a_repeated_request_is_answered_from_memory_only_if_its_reply_was_short_and_sent() {
    let node = one_node(|config| config.message_bytes_max = 100_000);
    let mut caller = node.call();
    // Kept; sent and not kept; over twice message_bytes_max, so never sent.
    for (request, bytes, answers) in [(1, 1_000, 2), (2, 150_000, 1), (3, 300_000, 0)] {
        for _ in 0..2 {
            caller.send_as(0, request, &Ask::to(Verb::Big).bytes(bytes));
        }
        caller.send_as(1, request, &Ask::echo("after them"));
        for _ in 0..answers {
            let (session, answered, result) = caller.receive();
            assert_eq!((session, answered), (0, request));
            assert_eq!(result.expect("an answer").payload.len(), bytes as usize);
        }
        assert_eq!(caller.receive().0, 1, "nothing more for {bytes} bytes");
    }
    assert_eq!(node.failure(), None);
}

#[test]
fn a_request_with_an_over_long_key_is_refused_and_the_node_goes_on() {
    let node = one_node(|_| {});
    let mut caller = node.call();
    let long = Ask::to(Verb::Put).payload(vec![7; 1 << 16]);
    assert_eq!(caller.ask(long), Err(Code::Malformed));
    assert!(caller.ask(Ask::echo("again")).is_ok());
    assert_eq!(node.failure(), None);
}
