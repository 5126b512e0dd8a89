//! The rules of waiting: what a handler may do before a wait, what is tried again when, and in which order.

mod common;

use common::alone::Alone;
use common::toy::{Ask, Verb};
use dkvf_core::{Code, NodeError, NodeOptions, Output, Topology};

fn reach(threshold: u64) -> Ask {
    Ask::to(Verb::Reach).first(threshold)
}

fn raise(value: u64) -> Ask {
    Ask::to(Verb::Raise).first(value)
}

fn until(gate: u64) -> Ask {
    Ask::to(Verb::Until).first(gate)
}

fn open(gate: u64) -> Ask {
    Ask::to(Verb::Open).first(gate)
}

fn lenient() -> Alone {
    Alone::with(NodeOptions::default())
}

// ---- Before a wait ----

#[test]
fn an_effect_before_a_wait_that_parks_is_an_error_with_the_source_line() {
    let error = lenient()
        .try_client(1, Ask::to(Verb::EffectFirst))
        .expect_err("a write came first");
    assert!(matches!(
        error,
        NodeError::EffectsBeforeWait { effects: 1, .. }
    ));
    let text = error.to_string();
    assert!(
        text.contains("toy.rs:") && text.contains("1 effect(s)"),
        "{text}"
    );
}

#[test]
fn a_wait_whose_result_is_ignored_is_an_error_with_the_source_line() {
    let error = lenient()
        .try_server(1, Ask::to(Verb::IgnoreWait))
        .expect_err("it went on");
    assert!(
        matches!(error, NodeError::IgnoredWait { .. }) && error.to_string().contains("toy.rs:"),
        "{error}"
    );
}

#[test]
fn a_refusal_whose_result_is_ignored_is_an_error_with_the_source_line() {
    let error = lenient()
        .try_client(1, Ask::to(Verb::IgnoreRefusal))
        .expect_err("it went on");
    assert!(
        matches!(error, NodeError::IgnoredWait { .. }) && error.to_string().contains("toy.rs:"),
        "{error}"
    );
}

#[test]
fn a_key_of_another_partition_is_refused() {
    let topology = Topology::grid(1, 2);
    let partition_of = |key: &u8| topology.partition_of(&[*key]);
    let key_of = |partition| (0..).find(|key| partition_of(key) == partition);
    let mut alone = Alone::in_cluster(topology.clone(), NodeOptions::default());
    for (client, partition) in [(1, 0), (2, 1)] {
        let key = key_of(partition).expect("some key is there");
        alone.client(client, Ask::to(Verb::Foreign).payload(vec![key]));
    }
    let replies = alone.replies();
    assert!(replies[0].1.is_ok());
    assert_eq!(replies[1], (2, Err(Code::WrongPartition)));
}

#[test]
fn a_rule_that_waits_is_an_error() {
    let error = lenient()
        .try_client(1, Ask::to(Verb::WaitInRule))
        .expect_err("a rule has nothing to park");
    assert!(matches!(error, NodeError::IgnoredWait { .. }), "{error}");
}

#[test]
fn a_change_of_state_before_a_wait_is_found_by_a_strict_node() {
    let error = Alone::new()
        .try_client(1, Ask::to(Verb::ChangeFirst))
        .expect_err("it counted first");
    assert!(
        matches!(error, NodeError::StateChangedBeforeWait { .. })
            && error.to_string().contains("toy.rs:"),
        "{error}"
    );
}

#[test]
fn a_monotone_merge_may_come_before_a_wait() {
    let mut alone = Alone::new();
    alone.client(1, Ask::to(Verb::MergeFirst).count(9).first(1));
    alone.client(2, reach(9).id(2));
    assert_eq!(
        alone.done(),
        [2],
        "the merge counts although its message is parked"
    );
    assert_eq!(alone.parked(), 1);
}

#[test]
fn an_invariant_that_breaks_stops_a_strict_node() {
    let error = Alone::new()
        .try_client(1, Ask::to(Verb::Count).count(2_000_000))
        .expect_err("it counts too far");
    assert_eq!(error.to_string(), "invariant broken: it counted too far");
}

#[test]
fn a_request_is_answered_once() {
    let error = lenient()
        .try_client(7, Ask::to(Verb::Twice))
        .expect_err("two replies");
    assert!(
        matches!(error, NodeError::NothingToAnswer { client } if client.0 == 7),
        "{error}"
    );
}

// ---- Order ----

#[test]
fn of_the_messages_whose_wait_is_over_the_oldest_comes_first() {
    let mut alone = Alone::new();
    // Parked in this order, waiting for different things.
    alone.server(1, until(1).id(1));
    alone.server(2, reach(5).id(2));
    alone.server(1, Ask::to(Verb::Key).payload("k").id(3));
    alone.server(2, until(1).id(4));
    assert_eq!(alone.parked(), 4);
    alone.server(1, raise(5).id(10));
    assert_eq!(alone.done(), [10, 2]);
    // One event ends the waits of the others.
    alone.server(1, Ask::to(Verb::Put).payload("k").id(11));
    alone.server(1, open(1).id(12));
    assert_eq!(alone.done(), [10, 2, 11, 3, 12, 1, 4]);
    assert_eq!(alone.parked(), 0);
}

#[test]
fn a_retried_message_that_opens_the_way_for_an_older_one_lets_it_come_next() {
    let mut alone = Alone::new();
    alone.client(1, until(9).id(1));
    alone.client(2, until(8).id(2));
    alone.client(3, Ask::to(Verb::ReachThenUntil).first(1).count(7).id(3));
    alone.client(4, raise(1).id(4));
    alone.client(4, open(8).id(5));
    alone.client(4, open(9).id(6));
    alone.client(4, open(7).id(7));
    assert_eq!(alone.done(), [4, 5, 2, 6, 1, 7, 3]);
}

#[test]
fn messages_to_itself_come_before_any_other_event_and_before_parked_ones() {
    let mut alone = Alone::new();
    alone.client(1, Ask::to(Verb::TellSelf).first(5).payload("key"));
    // Among them are a wait for a key and the write of that key, in this order: the wake-up is not lost.
    assert_eq!(alone.done(), [5]);
    assert_eq!(alone.parked(), 0);
    alone.client(2, Ask::to(Verb::Received).peer(0));
    assert_eq!(
        alone
            .replies()
            .pop()
            .expect("a reply")
            .1
            .expect("numbers")
            .numbers,
        [5]
    );
}

#[test]
fn rules_run_to_a_fixpoint_after_every_event() {
    let mut alone = Alone::new();
    alone.client(1, raise(1000));
    let state = format!(
        "{:?}",
        serde_json::to_value(alone.node.server()).expect("it has a form")["level"]
    );
    assert_eq!(state, "Number(1000)");
}

#[test]
fn a_node_that_never_comes_to_rest_is_stopped() {
    let error = lenient()
        .try_client(1, Ask::to(Verb::Spin))
        .expect_err("its rules never end");
    assert!(matches!(error, NodeError::Livelock), "{error}");
}

// ---- What a wait costs ----

#[test]
fn ten_thousand_messages_below_one_threshold_cost_one_retry_an_event() {
    let mut alone = lenient();
    for n in 0..10_000 {
        alone.server(1, reach(100 + n));
    }
    let before = alone.node.server().calls;
    for value in 1..=50 {
        alone.server(2, raise(value));
    }
    assert_eq!(
        alone.node.server().calls - before,
        100,
        "the event itself and the lowest threshold"
    );
    // A threshold that is reached lets exactly those go on that waited for it or less.
    let before = alone.node.server().calls;
    alone.server(2, raise(100 + 4999));
    assert_eq!(alone.parked(), 5000);
    assert_eq!(alone.node.server().calls - before, 1 + 5000 + 1);
}

#[test]
fn a_message_that_goes_on_to_another_wait_lets_those_behind_it_be_tried() {
    let mut alone = Alone::new();
    alone.client(3, open(8));
    // Both wait at one source line; only the gate of the second one is open.
    alone.client(1, Ask::to(Verb::ReachThenUntil).first(1).count(9).id(1));
    alone.client(2, Ask::to(Verb::ReachThenUntil).first(2).count(8).id(2));
    alone.client(3, raise(2).id(3));
    assert_eq!(
        alone.done(),
        [3, 2],
        "the first one waits for a gate now and stands before nobody"
    );
    assert_eq!(alone.parked(), 1);
}

#[test]
fn a_wait_for_several_values_ends_when_all_are_reached() {
    let mut alone = Alone::new();
    alone.client(1, Ask::to(Verb::ReachAll).first(5).count(6).id(1));
    alone.client(2, Ask::to(Verb::Raise).peer(1).first(6));
    assert_eq!(alone.done(), [0; 0]);
    alone.client(2, raise(5));
    assert_eq!(alone.done(), [1]);
}

#[test]
fn a_wait_for_a_key_is_tried_when_the_key_is_written_or_woken_and_not_otherwise() {
    let mut alone = lenient();
    alone.client(1, Ask::to(Verb::Key).payload("a").id(1));
    let mut calls = alone.node.server().calls;
    let mut retries = |alone: &mut Alone, ask: Ask| {
        alone.client(2, ask);
        let now = alone.node.server().calls;
        std::mem::replace(&mut calls, now).abs_diff(now) - 1
    };
    assert_eq!(retries(&mut alone, Ask::to(Verb::Put).payload("b")), 0);
    assert_eq!(retries(&mut alone, Ask::to(Verb::Wake).payload("b")), 0);
    assert_eq!(
        retries(&mut alone, Ask::to(Verb::Wake).payload("a")),
        1,
        "tried, though in vain"
    );
    assert_eq!(retries(&mut alone, Ask::to(Verb::Put).payload("a")), 1);
    assert_eq!(alone.done(), [1]);
}

// ---- Clocks ----

#[test]
fn a_wait_for_the_clock_ends_by_the_tick_it_asks_for() {
    let mut alone = Alone::new();
    let start = alone.now;
    alone.client(1, Ask::to(Verb::Clock).first(start.clock_us + 700).id(1));
    alone.client(2, Ask::to(Verb::Clock).first(start.clock_us + 300).id(2));
    assert!(alone.node.waits_for_clock());
    assert_eq!(alone.node.next_tick_us(), Some(start.monotonic_us + 300));
    alone.pass(299);
    assert_eq!(alone.done(), [0; 0]);
    alone.pass(1);
    assert_eq!(alone.done(), [2]);
    alone.pass(400);
    assert_eq!(alone.done(), [2, 1]);
    assert!(!alone.node.waits_for_clock());
}

#[test]
fn a_clock_that_is_set_back_stands_still() {
    let mut alone = Alone::new();
    let time = alone.now.clock_us;
    alone.now.clock_us -= 500;
    alone.client(1, Ask::to(Verb::Clock).first(time).id(1));
    assert_eq!(alone.done(), [1]);
}

#[test]
fn a_stamp_too_far_ahead_is_refused_before_any_effect() {
    let mut alone = Alone::with(NodeOptions {
        max_drift_us: 1000,
        strict: true,
        ..NodeOptions::default()
    });
    let clock = alone.now.clock_us;
    alone.client(1, Ask::to(Verb::Drift).first(clock + 1000));
    alone.client(2, Ask::to(Verb::Drift).first(clock + 1001));
    alone.client(3, Ask::to(Verb::Drift).first(u64::MAX));
    let results: Vec<_> = alone
        .replies()
        .into_iter()
        .map(|(client, result)| (client, result.map(|_| ())))
        .collect();
    assert_eq!(
        results,
        [
            (1, Ok(())),
            (2, Err(Code::ClockDrift)),
            (3, Err(Code::ClockDrift))
        ]
    );
}

// ---- Held links ----

#[test]
fn a_held_link_keeps_its_later_messages_back_and_no_others() {
    let mut alone = Alone::new();
    alone.server(1, Ask::to(Verb::Hold).first(1).id(1));
    alone.server(1, Ask::to(Verb::Number).first(7).id(2));
    alone.server(1, Ask::to(Verb::Number).first(8).id(3));
    alone.server(2, Ask::to(Verb::Number).first(9).id(4));
    alone.client(1, raise(1).id(5));
    assert_eq!(alone.done(), [4, 5]);
    assert_eq!(alone.parked(), 3, "what is behind it counts");
    alone.server(2, open(1).id(6));
    assert_eq!(alone.done(), [4, 5, 6, 1, 2, 3]);
    alone.server(1, Ask::to(Verb::Number).first(10).id(7));
    assert_eq!(alone.done().last(), Some(&7), "the link is free again");
}

#[test]
fn a_message_behind_a_held_link_may_hold_it_again() {
    let mut alone = Alone::new();
    alone.server(1, Ask::to(Verb::Hold).first(1).id(1));
    alone.server(1, Ask::to(Verb::Hold).first(2).id(2));
    alone.server(1, Ask::to(Verb::Number).first(7).id(3));
    alone.client(1, open(1));
    assert_eq!(alone.done(), [1]);
    alone.client(1, open(2));
    assert_eq!(alone.done(), [1, 2, 3]);
}

#[test]
fn a_link_that_two_messages_hold_is_held_until_both_are_done() {
    let mut alone = Alone::new();
    // The first one holds the link only after its first wait, when the second one holds it already.
    alone.server(1, Ask::to(Verb::UntilThenHold).first(1).count(2).id(1));
    alone.server(1, Ask::to(Verb::Hold).first(3).id(2));
    alone.server(1, Ask::to(Verb::Number).first(7).id(3));
    alone.client(1, open(1));
    alone.client(1, open(2));
    assert_eq!(alone.done(), [1], "the second one still holds it");
    alone.client(1, open(3));
    assert_eq!(alone.done(), [1, 2, 3]);
}

// ---- Bounds and deadlines ----

#[test]
fn a_request_over_parked_max_is_refused_and_may_be_tried_again() {
    let mut alone = Alone::with(NodeOptions {
        parked_max: 2,
        ..NodeOptions::default()
    });
    alone.client(1, until(1));
    alone.client(2, until(1));
    alone.client(3, until(1));
    assert_eq!(alone.replies(), [(3, Err(Code::Overloaded))]);
    // Requests that need not wait are still served.
    alone.client(4, raise(1));
    assert!(alone.replies()[0].1.is_ok());
    alone.client(4, open(1));
    alone.client(3, until(1));
    let answered: Vec<_> = alone
        .replies()
        .into_iter()
        .map(|(client, result)| (client, result.is_ok()))
        .collect();
    assert_eq!(answered, [(4, true), (1, true), (2, true), (3, true)]);
}

#[test]
fn a_message_of_a_server_over_parked_max_stops_the_node_and_says_where_most_wait() {
    let options = NodeOptions {
        parked_max: 3,
        ..NodeOptions::default()
    };
    let mut alone = Alone::with(options);
    for _ in 0..3 {
        alone.server(1, until(1));
    }
    let error = alone.try_server(1, until(1)).expect_err("one too many");
    assert!(
        matches!(error, NodeError::ParkedFull { parked: 3, .. })
            && error.to_string().contains("toy.rs:"),
        "{error}"
    );

    // Messages behind a held link count as well: they are kept, too.
    let mut alone = Alone::with(options);
    alone.server(1, Ask::to(Verb::Hold).first(1));
    alone.server(1, raise(1));
    alone.server(1, raise(1));
    let error = alone.try_server(1, raise(1)).expect_err("one too many");
    assert!(
        matches!(error, NodeError::ParkedFull { parked: 3, .. }),
        "{error}"
    );
}

#[test]
fn a_parked_request_past_its_deadline_is_answered_timeout_and_never_handled() {
    let mut alone = Alone::with(NodeOptions {
        request_timeout_us: 1000,
        strict: true,
        ..NodeOptions::default()
    });
    alone.client(1, until(1).id(1));
    alone.server(1, until(1).id(2));
    assert_eq!(
        alone.node.next_tick_us(),
        Some(alone.now.monotonic_us + 1000)
    );
    alone.pass(999);
    assert_eq!(alone.replies(), []);
    alone.pass(1);
    assert_eq!(alone.replies(), [(1, Err(Code::Timeout))]);
    // A message of a server has no deadline.
    alone.server(2, open(1));
    assert_eq!(alone.done(), [2]);
    assert_eq!(alone.node.next_tick_us(), None, "nothing left to wait for");
}

#[test]
fn a_wait_that_ends_at_its_deadline_is_over_and_not_late() {
    let mut alone = Alone::with(NodeOptions {
        request_timeout_us: 1000,
        strict: true,
        ..NodeOptions::default()
    });
    alone.client(
        1,
        Ask::to(Verb::Clock).first(alone.now.clock_us + 1000).id(1),
    );
    alone.pass(1000);
    assert!(alone.replies()[0].1.is_ok());
}

#[test]
fn a_deadline_frees_the_link_that_its_request_held() {
    let mut alone = Alone::with(NodeOptions {
        request_timeout_us: 1000,
        ..NodeOptions::default()
    });
    alone.client(1, Ask::to(Verb::Hold).first(1));
    alone.pass(1000);
    alone.client(1, raise(1));
    let results: Vec<_> = alone
        .replies()
        .into_iter()
        .map(|(_, result)| result.map(|_| ()))
        .collect();
    assert_eq!(results, [Err(Code::Timeout), Ok(())]);
    assert_eq!(alone.parked(), 0);
}

// ---- Puts that no store takes ----

fn with_long_key(verb: Verb) -> Ask {
    Ask::to(verb).payload(vec![7; 1 << 16])
}

#[test]
fn a_request_that_puts_an_over_long_key_first_is_refused_without_effect() {
    let mut alone = Alone::new();
    alone.client(1, with_long_key(Verb::PutFirst));
    let outputs = alone.node.take_outputs();
    assert!(
        matches!(
            outputs[..],
            [Output::Reply {
                result: Err(Code::Malformed),
                ..
            }]
        ),
        "{outputs:?}"
    );
    assert_eq!(alone.node.status().store.versions, 0);
    assert_eq!(alone.node.next_tick_us(), None, "no timer");
}

#[test]
fn a_request_that_sends_before_it_puts_an_over_long_key_is_unknown_and_its_session_goes_on() {
    let mut alone = Alone::new();
    alone.client(1, with_long_key(Verb::SendAndPut));
    let outputs = alone.node.take_outputs();
    assert!(
        matches!(outputs[..], [Output::Send { .. }]),
        "what came before, no reply, and nothing after: {outputs:?}"
    );
    alone.client(1, raise(1));
    assert!(alone.replies()[0].1.is_ok());
}

#[test]
fn a_message_of_a_server_that_puts_an_over_long_key_is_dropped() {
    let mut alone = Alone::new();
    alone.server(1, with_long_key(Verb::PutFirst));
    assert!(alone.node.take_outputs().is_empty());
    alone.client(1, raise(1));
    assert!(alone.replies()[0].1.is_ok());
}

// ---- Congestion ----

#[test]
fn parked_requests_stay_parked_while_links_are_congested_and_those_of_servers_go_on() {
    let mut alone = Alone::with(NodeOptions {
        request_timeout_us: 1000,
        strict: true,
        ..NodeOptions::default()
    });
    alone.client(1, reach(1).id(1));
    alone.server(1, reach(2).id(2));
    alone.client(2, until(9));
    alone.node.set_congested(true);
    alone.server(2, raise(2).id(3));
    assert_eq!(alone.done(), [3, 2]);
    alone.pass(1);
    alone.node.set_congested(false);
    alone.pass(1);
    assert_eq!(alone.done(), [3, 2, 1]);
    // Its deadline applies all the same.
    alone.node.set_congested(true);
    alone.server(2, open(9));
    alone.pass(1000);
    let late = alone.replies().pop().expect("a reply");
    assert_eq!(late, (2, Err(Code::Timeout)));
}

// ---- Timers ----

#[test]
fn timers_fire_when_due_and_not_after_they_are_cancelled() {
    let mut alone = Alone::new();
    let timer = |verb, timer, us| Ask::to(verb).first(timer).count(us);
    alone.client(1, timer(Verb::Every, 1, 100));
    alone.client(1, timer(Verb::After, 2, 150));
    alone.client(1, timer(Verb::After, 3, 150));
    alone.client(1, timer(Verb::Cancel, 3, 0));
    let mut fired = Vec::new();
    for _ in 0..4 {
        alone.pass(100);
        fired.push(alone.node.server().fired.len());
    }
    assert_eq!(alone.node.server().fired, [1, 2, 1, 1, 1]);
    assert_eq!(fired, [1, 3, 4, 5]);
    // Periods that were missed are skipped, and a cancelled timer leaves nothing to wake up for.
    alone.pass(10_000);
    assert_eq!(alone.node.server().fired.len(), 6);
    alone.client(1, timer(Verb::Cancel, 1, 0));
    assert_eq!(alone.node.next_tick_us(), None);
}
