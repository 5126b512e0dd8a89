//! Two nodes with a proxy between them that cuts, stalls and reconnects: what is sent arrives once and in order.

mod common;

use common::eventually;
use common::proxy::{Cut, Proxy};
use common::raw::Caller;
use common::site::{Running, Site};
use common::toy::{Ask, Verb, change};
use dkvf_core::PeerState;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bytes from the server before and with its second acknowledgement: a connection that is cut there made progress.
const SOME_PROGRESS: usize = 60;

/// Node 0 reaches node 1 through a proxy that makes `cuts`.
fn through_a_proxy(cuts: impl IntoIterator<Item = Cut>) -> (Proxy, Vec<Running>) {
    let mut site = Site::new(2);
    let proxy = Proxy::start(site.server_address(1), cuts);
    site.route(0, 1, proxy.address());
    let nodes = site.start_all();
    (proxy, nodes)
}

/// Sends numbers from node 0 to node 1 until all cuts were made, then checks what arrived.
fn send_through_all_cuts(cuts: Vec<Cut>, bytes: u64) {
    let (proxy, nodes) = through_a_proxy(cuts);
    let (mut sender, mut receiver) = (nodes[0].call(), nodes[1].call());
    let mut sent = 0;
    eventually("all cuts are made", || {
        // Always something to write, and enough that acknowledgements do not wait for the idle timer.
        let kept = nodes[0].status().links[0].kept_frames;
        if kept < 400 {
            sender
                .ask(Ask::append(1, sent + 1, 40, bytes))
                .expect("the link has room");
            sent += 40;
        }
        proxy.cuts_left() == 0
    });
    sender
        .ask(Ask::append(1, sent + 1, 10, bytes))
        .expect("the link has room");
    receiver.expect_received(0, 1..=sent + 10);
    assert_eq!(nodes[0].failure(), None);
    assert_eq!(nodes[1].failure(), None);
}

#[test]
fn a_connection_may_be_cut_after_any_byte_towards_the_receiver() {
    let cuts = (0..=200).flat_map(|bytes| [Cut::forward(bytes), Cut::backward(SOME_PROGRESS)]);
    send_through_all_cuts(cuts.collect(), 10);
}

#[test]
fn a_connection_may_be_cut_after_any_byte_towards_the_sender() {
    let cuts = (0..=100).flat_map(|bytes| [Cut::backward(bytes), Cut::backward(SOME_PROGRESS)]);
    send_through_all_cuts(cuts.collect(), 10);
}

#[test]
fn a_connection_may_be_cut_anywhere_in_a_stream_of_large_and_small_messages() {
    for seed in 0..4 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut cuts = Vec::new();
        for _ in 0..40 {
            let most = 1 << random.random_range(6..20);
            cuts.push(Cut {
                forward: random.random_range(0..most),
                backward: random.random_range(0..500),
            });
            cuts.push(Cut::backward(SOME_PROGRESS));
        }
        send_through_all_cuts(cuts, if seed % 2 == 0 { 5000 } else { 40 });
    }
}

#[test]
fn a_stalled_connection_delays_messages_and_loses_none() {
    let (proxy, nodes) = through_a_proxy([]);
    let (mut sender, mut receiver) = (nodes[0].call(), nodes[1].call());
    sender
        .ask(Ask::append(1, 1, 10, 100))
        .expect("the link has room");
    receiver.expect_received(0, 1..=10);

    // While nothing gets through, more is sent than the kernel takes.
    proxy.stall(true);
    for first in (11..=2000).step_by(10) {
        sender
            .ask(Ask::append(1, first, 10, 20_000))
            .expect("the link has room");
    }
    assert!(
        receiver.received(0).len() <= 10 + 3,
        "only what was under way can have arrived"
    );
    assert!(
        nodes[0].status().links[0].kept_frames >= 1900,
        "the rest is kept"
    );

    // It goes on, is cut in the middle, and goes on again.
    proxy.stall(false);
    eventually("some more arrive", || receiver.received(0).len() > 20);
    proxy.cut();
    receiver.expect_received(0, 1..=2000);
    eventually("everything is acknowledged", || {
        nodes[0].status().links[0].kept_frames == 0
    });
}

#[test]
fn what_is_sent_without_a_connection_is_kept_and_the_protocol_hears_of_both_changes() {
    let (proxy, nodes) = through_a_proxy([]);
    let (mut sender, mut receiver) = (nodes[0].call(), nodes[1].call());
    sender
        .ask(Ask::append(1, 1, 5, 10))
        .expect("the link has room");
    receiver.expect_received(0, 1..=5);
    proxy.cut();
    eventually("the link is back", || {
        changes(&mut sender) == [change(1, PeerState::Down), change(1, PeerState::Up)]
    });
    sender
        .ask(Ask::append(1, 6, 5, 10))
        .expect("the link has room");
    receiver.expect_received(0, 1..=10);
    assert_eq!(nodes[0].status().links[0].connections, 2);
}

#[test]
fn a_server_that_takes_calls_and_hangs_up_is_not_called_without_pause() {
    let mut site = Site::with(2, |config| config.connector_sleep_time_ms = 50);
    // Every connection breaks right after the handshake.
    let proxy = Proxy::start(site.server_address(1), (0..1000).map(|_| Cut::forward(50)));
    site.route(0, 1, proxy.address());
    let nodes = site.start_all();
    let mut sender = nodes[0].call();
    sender
        .ask(Ask::append(1, 1, 5, 100))
        .expect("the link has room");
    eventually("it was called three times", || proxy.connections() >= 3);
    // Pauses of 50, 100, 200 ms and so on: these requests take far less than the next of them.
    let before = proxy.connections();
    for _ in 0..200 {
        sender.ask(Ask::echo("still here")).expect("an answer");
    }
    assert!(
        proxy.connections() <= before + 3,
        "no loop of calls: {} and then {}",
        before,
        proxy.connections()
    );
}

#[test]
fn a_link_with_a_delay_keeps_order_and_survives_cuts() {
    let mut site = Site::new(2);
    site.configure(0, |config| {
        config
            .delays
            .push(dkvf_core::config::Delay::new("0_0", "1_0", 5, 5))
    });
    let proxy = Proxy::start(
        site.server_address(1),
        (0..20).map(|cut| Cut::forward(50 + 40 * cut)),
    );
    site.route(0, 1, proxy.address());
    let nodes = site.start_all();
    let (mut sender, mut receiver) = (nodes[0].call(), nodes[1].call());
    for first in 1..=200 {
        sender
            .ask(Ask::append(1, first, 1, 10))
            .expect("the link has room");
    }
    receiver.expect_received(0, 1..=200);
}

fn changes(caller: &mut Caller) -> Vec<u64> {
    caller.numbers(Ask::to(Verb::Changes))
}
