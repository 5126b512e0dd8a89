//! Behaviour of the protocols, on schedules directed by hand and on random ones. Each file is a scenario or a theme.

mod checker;
mod clock_skew;
mod clocks;
mod conformance;
mod convergence;
mod cut_off_through_a_local_write;
mod dependencies_of_cops;
mod dependency_checks;
mod generated_code;
mod heartbeat_promise;
mod hostile;
mod late_cut_off;
mod message_costs;
mod newer_version_is_not_enough;
mod pruning;
mod random;
mod random_schedules;
mod read_only_transactions;
mod requests;
mod unstable_dependency;
mod version_read_is_a_dependency;
mod visibility;

use dkvf_core::Protocol;
use dkvf_core::script::{Channel, Script};

/// The state of a server as its encoding shows it.
fn state<P: Protocol>(script: &Script<P>, replica: usize, partition: usize) -> serde_json::Value {
    serde_json::to_value(script.server(script.at(replica, partition))).expect("a server's state can be encoded")
}

/// Delivers everything except what is on `held` links, until nothing else moves.
fn run_except<P: Protocol>(script: &mut Script<P>, held: &[Channel]) {
    while let Some(channel) = script.channels().into_iter().find(|channel| !held.contains(channel)) {
        script.deliver(channel);
    }
}

/// Has every server send a heartbeat, and delivers everything between the replicas.
fn exchange_heartbeats<P: Protocol>(script: &mut Script<P>) {
    script.advance(20_000);
    let between = |script: &Script<P>, channel: &Channel| match channel {
        Channel::Link(from, to) => script.topology().member(*from).replica != script.topology().member(*to).replica,
        _ => false,
    };
    while let Some(channel) = script.channels().into_iter().find(|channel| between(script, channel)) {
        script.deliver(channel);
    }
}

/// Has the root of replica 0 publish what its servers have received. The published cut-off is on its way to the others.
fn publish_cut_off<P: Protocol>(script: &mut Script<P>) {
    script.advance(5_000);
    for partition in 1..script.topology().partitions() {
        script.deliver_link(script.at(0, partition), script.at(0, 0));
    }
    script.advance(5_000);
}
