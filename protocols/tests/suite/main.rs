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
#[path = "../schedules/mod.rs"]
mod schedules;
mod unstable_dependency;
mod version_read_is_a_dependency;
mod visibility;

use dkvf_core::Protocol;
use dkvf_core::script::Script;

use schedules::{exchange_heartbeats, publish_cut_off, run_except};

/// The state of a server as its encoding shows it.
fn state<P: Protocol>(script: &Script<P>, replica: usize, partition: usize) -> serde_json::Value {
    serde_json::to_value(script.server(script.at(replica, partition))).expect("a server's state can be encoded")
}
