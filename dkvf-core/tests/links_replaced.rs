//! A node is lost and started again, empty: its peers hear of it, and nothing of the old numbering is delivered.

mod common;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use common::eventually;
use common::proxy::{Cut, Proxy};
use common::raw::{Caller, Raw, server_hello};
use common::site::{Running, Site};
use common::toy::{Ask, Verb, change};
use dkvf_core::PeerState;
use dkvf_core::net::wire;

fn changes(caller: &mut Caller) -> Vec<u64> {
    caller.numbers(Ask::to(Verb::Changes))
}

fn expect_replaced(caller: &mut Caller, peer: u64) {
    let replaced = change(peer, PeerState::Replaced);
    eventually("the protocol hears that its peer was replaced", || {
        changes(caller).contains(&replaced)
    });
    let times = changes(caller)
        .iter()
        .filter(|change| **change == replaced)
        .count();
    assert_eq!(times, 1, "it hears it once");
}

#[test]
fn messages_for_a_former_incarnation_are_dropped_and_the_new_one_starts_afresh() {
    let mut site = Site::new(2);
    let mut nodes = site.start_all();
    let mut sender = nodes[0].call();
    sender
        .ask(Ask::append(1, 1, 10, 10))
        .expect("the link has room");
    nodes[1].call().expect_received(0, 1..=10);

    // The receiver is lost; what is sent meanwhile is for the incarnation that nobody will see again.
    drop(nodes.pop());
    sender
        .ask(Ask::append(1, 11, 10, 10))
        .expect("the link has room");

    let new = site.start(1);
    expect_replaced(&mut sender, 1);
    assert_eq!(nodes[0].status().links[0].kept_frames, 0, "dropped");
    sender
        .ask(Ask::append(1, 100, 10, 10))
        .expect("the link has room");
    new.call().expect_received(0, 100..110);
}

#[test]
fn the_protocol_hears_of_a_replacement_before_anything_from_the_new_incarnation() {
    // Node 0 cannot reach node 1 a second time: it hears of the replacement because node 1 calls.
    let mut site = Site::new(2);
    let proxy = Proxy::start(
        site.server_address(1),
        std::iter::once(Cut::NEVER).chain((0..10_000).map(|_| Cut::ALWAYS)),
    );
    site.route(0, 1, proxy.address());
    let mut nodes = site.start_all();
    let mut first = nodes[0].call();
    eventually("the link is up", || nodes[0].status().links[0].connected);
    nodes[1]
        .call()
        .ask(Ask::append(0, 1, 3, 10))
        .expect("the link has room");
    first.expect_received(1, 1..=3);
    drop(nodes.pop());
    first
        .ask(Ask::append(1, 1, 3, 10))
        .expect("the link has room");

    let new = site.start(1);
    expect_replaced(&mut first, 1);
    new.call()
        .ask(Ask::append(0, 50, 3, 10))
        .expect("the link has room");
    first.expect_received(1, [1, 2, 3, 50, 51, 52].into_iter());

    // What is said to the new incarnation before it can be reached is kept for it.
    first
        .ask(Ask::append(1, 60, 3, 10))
        .expect("the link has room");
    assert_eq!(nodes[0].status().links[0].kept_frames, 3);
}

#[test]
fn a_replaced_sender_is_numbered_afresh_and_its_former_connection_is_closed() {
    let mut site = Site::new(2);
    let node = site.start(0);
    let mut observer = node.call();

    // The first incarnation sends two messages and half of a third.
    let mut old = Raw::connect(node.server);
    old.say_hello(&server_hello("1_0", 111, 2));
    assert_eq!(old.welcome().expect("it is admitted").taken, 0);
    for number in 1..=2 {
        old.write(&number_frame(number));
    }
    old.write(&number_frame(3)[..7]);
    observer.expect_received(1, 1..=2);

    // The second one is a stranger to it.
    let mut new = Raw::connect(node.server);
    new.say_hello(&server_hello("1_0", 222, 2));
    assert_eq!(
        new.welcome().expect("it is admitted").taken,
        0,
        "nothing of the new incarnation was taken"
    );
    old.write(&number_frame(3)[7..]);
    old.write(&number_frame(4));
    old.expect_closed("it was replaced");
    new.write(&number_frame(10));
    observer.expect_received(1, [1, 2, 10].into_iter());

    // A belated call of the first one does not bring it back.
    let mut ghost = Raw::connect(node.server);
    ghost.say_hello(&server_hello("1_0", 111, 2));
    let welcome = ghost.welcome().expect("an answer");
    assert!(
        welcome.refusal.contains("was replaced"),
        "{}",
        welcome.refusal
    );
    ghost.expect_closed("it was refused");
    new.write(&number_frame(11));
    observer.expect_received(1, [1, 2, 10, 11].into_iter());
}

#[test]
fn a_second_call_of_the_same_incarnation_goes_on_where_the_first_was_and_closes_it() {
    let mut site = Site::new(2);
    let node = site.start(0);
    let mut observer = node.call();
    let mut first = Raw::connect(node.server);
    first.say_hello(&server_hello("1_0", 111, 2));
    first.welcome().expect("it is admitted");
    first.write(&number_frame(1));
    observer.expect_received(1, 1..=1);
    let mut second = Raw::connect(node.server);
    second.say_hello(&server_hello("1_0", 111, 2));
    assert_eq!(second.welcome().expect("it is admitted").taken, 1);
    first.write(&number_frame(2));
    first.expect_closed("another connection took its place");
    second.write(&number_frame(2));
    observer.expect_received(1, 1..=2);
}

fn number_frame(number: u64) -> Vec<u8> {
    let mut frame = bytes::BytesMut::new();
    wire::encode_message(&mut frame, &Ask::to(Verb::Number).first(number));
    frame.to_vec()
}

#[test]
fn a_message_sent_while_a_server_is_made_leaves_at_once() {
    let mut site = Site::new(2);
    site.configure(0, |config| config.protocol_properties.set("greets", 1));
    let nodes = site.start_all();
    nodes[1].call().expect_received(0, 7..=7);
}

#[test]
fn a_stopped_node_closes_its_links_and_leaves_no_connection_behind() {
    let mut site = Site::new(2);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    site.route(0, 1, listener.local_addr().expect("it is bound"));
    let node = site.start(0);
    let mut called = Raw::accepted(listener.accept().expect("it calls").0);
    called.frame().expect("a hello");
    called.welcome_with(111, 0);
    let mut calling = Raw::connect(node.server);
    calling.say_hello(&server_hello("1_0", 111, 2));
    calling.welcome().expect("it is admitted");
    eventually("the link is up", || node.status().links[0].connected);
    // Its handle is still there: what closes the connections is the stop.
    node.stop();
    called.expect_closed("the node stopped");
    calling.expect_closed("the node stopped");
    assert!(!node.is_running());
}

#[test]
fn a_connection_that_the_former_incarnation_never_read_does_not_block_the_new_one() {
    const MESSAGES: u64 = 200;
    let mut site = Site::new(2);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    site.route(0, 1, listener.local_addr().expect("it is bound"));
    let node = site.start(0);
    let mut sender = node.call();
    let accept = |incarnation| {
        let mut peer = Raw::accepted(listener.accept().expect("it calls").0);
        peer.frame().expect("a hello");
        peer.welcome_with(incarnation, 0);
        peer
    };
    // It takes nothing, until the kernel takes nothing more either. Its connection stays open.
    let _stuck = accept(111);
    sender
        .ask(Ask::append(1, 1, MESSAGES, 50_000))
        .expect("the link has room");

    let mut calling = Raw::connect(node.server);
    calling.say_hello(&server_hello("1_0", 222, 2));
    calling.welcome().expect("it is admitted");
    expect_replaced(&mut sender, 1);
    let mut peer = accept(222);
    sender
        .ask(Ask::append(1, 1, MESSAGES, 50_000))
        .expect("the link has room");
    for _ in 0..MESSAGES {
        peer.frame().expect("a message");
    }
}

/// Set in a process that is to be a server: the name of the variable that holds its ports.
const BE_SERVER: &str = "DKVF_TEST_BE_SERVER";

/// Not a test by itself: the process that `kill -9` ends is this test binary, run again with [`BE_SERVER`] set and told to
/// run this function only.
#[test]
fn be_a_server_when_run_as_a_process() {
    let Ok(ports) = std::env::var(BE_SERVER) else {
        return;
    };
    let ports: Vec<u16> = ports
        .split(',')
        .map(|port| port.parse().expect("a port"))
        .collect();
    let mut site = Site::new(2);
    site.unbind(1);
    site.configure(1, |config| {
        (config.client_port, config.server_port, config.control_port) =
            (ports[0], ports[1], ports[2])
    });
    site.route(1, 0, ([127, 0, 0, 1], ports[3]).into());
    let _node = site.start(1);
    // The parent ends it; should the parent die, the end of its pipe does.
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

struct Process(Child);

impl Process {
    fn start(site: &Site, node: &Running) -> Self {
        let (client, server, control) = (
            site.client_address(1).port(),
            site.server_address(1).port(),
            site.control_address(1).port(),
        );
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "be_a_server_when_run_as_a_process",
                "--nocapture",
            ])
            .env(
                BE_SERVER,
                format!("{client},{server},{control},{}", node.server.port()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("this binary can be run again");
        Process(child)
    }

    /// Ends it with SIGKILL.
    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn a_process_killed_and_started_again_is_a_replaced_peer() {
    let mut site = Site::new(2);
    site.unbind(1);
    let node = site.start(0);
    let mut sender = node.call();
    let process = Process::start(&site, &node);
    eventually("the process is up", || node.status().links[0].connected);
    let mut receiver = Caller::connect(site.client_address(1), 2);
    sender
        .ask(Ask::append(1, 1, 100, 100))
        .expect("the link has room");
    receiver.expect_received(0, 1..=100);

    // It is killed in the middle of a stream of messages.
    sender
        .ask(Ask::append(1, 101, 5000, 1000))
        .expect("the link has room");
    process.kill();
    let process = Process::start(&site, &node);
    expect_replaced(&mut sender, 1);
    sender
        .ask(Ask::append(1, 10_000, 100, 100))
        .expect("the link has room");
    let mut receiver = Caller::connect(site.client_address(1), 2);
    receiver.expect_received(0, 10_000..10_100);
    receiver
        .ask(Ask::append(0, 1, 10, 10))
        .expect("the link has room");
    sender.expect_received(1, 1..=10);
    process.kill();
    assert_eq!(node.failure(), None);
}
