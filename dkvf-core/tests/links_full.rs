//! A peer that cannot be reached fills its link: clients are refused in time, servers may go on a little, nothing is lost.

mod common;

use bytes::BytesMut;
use common::eventually;
use common::site::{Running, Site};
use common::toy::{Ask, Verb};
use dkvf_core::{Code, Message};

const CAPACITY: usize = 40_000;

/// Three nodes; node 1 is not there. Node 2 sends to node 0, which must not refuse it.
fn without_node_1() -> (Site, Running, Running) {
    let mut site = Site::with(3, |config| config.channel_capacity = CAPACITY);
    site.unbind(1);
    let (zero, two) = (site.start(0), site.start(2));
    (site, zero, two)
}

/// Fills the link to node 1 until a client is refused. Returns how many numbers it keeps.
fn fill(node: &Running) -> u64 {
    let mut caller = node.call();
    let mut kept = 0;
    loop {
        match caller.ask(Ask::append(1, kept + 1, 1, 900)) {
            Ok(_) => kept += 1,
            Err(code) => {
                assert_eq!(code, Code::Overloaded);
                return kept;
            }
        }
        assert!(kept < 100, "the link must fill");
    }
}

#[test]
fn clients_are_refused_before_any_effect_and_what_is_kept_arrives_later() {
    let (mut site, zero, _two) = without_node_1();
    let kept = fill(&zero);
    let status = zero.status();
    assert!(status.links[0].congested);
    assert_eq!(status.links[0].kept_frames, kept);

    // Refused without a look at it: nothing was counted, though counting needs no link.
    let mut caller = zero.call();
    for _ in 0..20 {
        assert_eq!(caller.ask(Ask::to(Verb::Count)), Err(Code::Overloaded));
    }
    assert_eq!(zero.status().node.requests, kept);

    let one = site.start(1);
    one.call().expect_received(0, 1..=kept);
    eventually("there is room again", || !zero.status().links[0].congested);
    assert_eq!(
        caller.numbers(Ask::to(Verb::Count)),
        [1],
        "the refused ones had no effect"
    );
    assert_eq!(zero.failure(), None);
}

#[test]
fn a_parked_request_waits_for_the_end_of_a_congestion_and_then_goes_on_by_itself() {
    let (mut site, zero, two) = without_node_1();
    let mut caller = zero.call();
    caller.send(Ask::to(Verb::Until).first(1));
    fill(&zero);
    let mut open = BytesMut::new();
    Message::encode(&Ask::to(Verb::Open).first(1), &mut open);
    two.call()
        .ask(Ask::to(Verb::Tell).peer(0).payload(open))
        .expect("its links have room");
    eventually("its wait is over", || zero.status().node.messages == 1);
    assert_eq!(zero.status().node.parked, 1, "it would send more");

    let _one = site.start(1);
    assert!(caller.receive().2.is_ok());
    assert_eq!(zero.status().node.messages, 1, "no other event helped");
}

#[test]
fn a_request_that_was_taken_is_not_refused_when_it_comes_again() {
    let (_site, zero, _two) = without_node_1();
    let mut caller = zero.call();
    assert_eq!(caller.numbers(Ask::to(Verb::Count)), [1]);
    fill(&zero);
    // The client did not see the reply. `Overloaded` would tell it that there was no effect.
    caller.send_as(0, 1, &Ask::to(Verb::Count));
    let (_, request, result) = caller.receive();
    assert_eq!(
        (request, result.expect("the first reply").numbers),
        (1, vec![1])
    );
}

#[test]
fn servers_may_use_the_reserve_and_a_node_that_exhausts_it_names_the_link() {
    let (_site, zero, two) = without_node_1();
    fill(&zero);
    // A message of a server that makes node 0 send to node 1.
    let mut relay = two.call();
    let reserve = (CAPACITY / 4) as u64;
    relay
        .ask(relayed(reserve / 2))
        .expect("the link to node 0 has room");
    eventually("it is handled", || zero.status().node.messages == 1);
    assert!(zero.is_running(), "half of the reserve is left");
    assert!(zero.status().links[0].kept_bytes > (CAPACITY - CAPACITY / 4) as u64);

    relay
        .ask(relayed(reserve))
        .expect("the link to node 0 has room");
    eventually("the node stops", || !zero.is_running());
    let failure = zero.failure().expect("a reason");
    assert!(
        failure.contains("the link to 1_0 is full") && failure.contains("channel_capacity"),
        "{failure}"
    );
}

/// Has node 0 send `bytes` bytes to node 1 because node 2 said so.
fn relayed(bytes: u64) -> Ask {
    Ask::to(Verb::Forward).peer(0).first(1).bytes(bytes)
}

#[test]
fn heartbeats_never_fill_a_link() {
    let (mut site, zero, _two) = without_node_1();
    let mut caller = zero.call();
    for number in 1..=200 {
        caller
            .ask(
                Ask::to(Verb::AppendLatest)
                    .peer(1)
                    .first(number)
                    .count(10)
                    .bytes(900),
            )
            .expect("never refused");
    }
    assert_eq!(
        zero.status().links[0].kept_frames,
        0,
        "the newest waits outside of the log"
    );

    // With a link that clients have filled, they go on as well, and take nothing of the reserve.
    let kept = fill(&zero);
    let before = zero.status().links[0].kept_bytes;
    let mut two = _two.call();
    for _ in 0..50 {
        two.ask(Ask::to(Verb::ForwardLatest).peer(0).first(1).bytes(3000))
            .expect("the link to node 0 has room");
    }
    eventually("they are handled", || zero.status().node.messages == 50);
    assert_eq!(zero.status().links[0].kept_bytes, before);
    assert!(zero.is_running());

    // FIFO to the end: the last heartbeat before the messages, the messages, the newest heartbeat.
    let one = site.start(1);
    one.call()
        .expect_received(0, std::iter::once(209).chain(1..=kept).chain([1]));
}
