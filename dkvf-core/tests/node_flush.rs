//! Every way of writing to the network delivers the same, also when connections break and when a node stops itself.

mod common;

use common::eventually;
use common::proxy::{Cut, Proxy};
use common::site::Site;
use common::toy::{Ask, Verb};
use dkvf_core::config::{Flush, PeerFlush};

const FLUSHES: [Flush; 3] = [
    Flush::Adaptive,
    Flush::EveryMessage,
    Flush::Interval { us: 500 },
];
const PEER_FLUSHES: [PeerFlush; 3] = [
    PeerFlush::Protocol,
    PeerFlush::Eager,
    PeerFlush::Lazy {
        us: 500,
        bytes: 300,
    },
];

fn all_modes() -> impl Iterator<Item = (Flush, PeerFlush)> {
    FLUSHES
        .into_iter()
        .flat_map(|flush| PEER_FLUSHES.map(|peer_flush| (flush, peer_flush)))
}

#[test]
fn messages_and_replies_arrive_in_every_mode_through_broken_connections() {
    for (flush, peer_flush) in all_modes() {
        let mut site = Site::with(2, |config| {
            (config.flush, config.peer_flush) = (flush, peer_flush)
        });
        let proxy = Proxy::start(
            site.server_address(1),
            [
                Cut::forward(20),
                Cut::forward(150),
                Cut::backward(30),
                Cut::forward(500),
            ],
        );
        site.route(0, 1, proxy.address());
        let nodes = site.start_all();
        let (mut sender, mut receiver) = (nodes[0].call(), nodes[1].call());
        for n in 0..100 {
            sender
                .ask(Ask::append(1, 5 * n + 1, 5, 20))
                .expect("the link has room");
        }
        receiver.expect_received(0, 1..=500);
        eventually("all is acknowledged", || {
            nodes[0].status().links[0].kept_frames == 0
        });
        // A reply that the kernel does not take at once.
        assert_eq!(
            sender
                .ask(Ask::to(Verb::Big).bytes(10_000_000))
                .expect("a reply")
                .payload
                .len(),
            10_000_000
        );
        assert!(
            nodes.iter().all(|node| node.failure().is_none()),
            "{flush:?} {peer_flush:?}"
        );
    }
}

#[test]
fn a_message_marked_for_later_while_the_link_is_down_leaves_when_it_is_up() {
    for (flush, peer_flush) in all_modes() {
        let mut site = Site::with(2, |config| {
            (config.flush, config.peer_flush) = (flush, peer_flush)
        });
        site.unbind(1);
        let zero = site.start(0);
        let mut sender = zero.call();
        sender
            .ask(Ask::append(1, 1, 1, 10))
            .expect("the link has room");
        let one = site.start(1);
        one.call().expect_received(0, 1..=1);
        sender
            .ask(Ask::append(1, 2, 1, 10))
            .expect("the link has room");
        one.call().expect_received(0, 1..=2);
    }
}

#[test]
fn a_node_that_breaks_while_it_carries_out_what_a_handler_wants_stops_cleanly_in_every_mode() {
    for (flush, peer_flush) in all_modes() {
        let mut site = Site::with(2, |config| {
            (config.flush, config.peer_flush) = (flush, peer_flush);
            config.channel_capacity = 5000;
        });
        let nodes = site.start_all();
        let mut caller = nodes[0].call();
        let mut bystander = nodes[0].call();
        eventually("the link is up", || nodes[0].status().links[0].connected);
        caller.send(Ask::append(1, 1, 100, 1000));
        eventually("it stops", || !nodes[0].is_running());
        assert!(
            nodes[0].failure().expect("a reason").contains("is full"),
            "{flush:?} {peer_flush:?}"
        );
        caller.raw().expect_closed("the node stopped");
        bystander.raw().expect_closed("the node stopped");
        eventually("its peer sees it", || !nodes[1].status().links[0].connected);
    }
}
