//! What is wrong with the operations on a key, in words and arrows.

use crate::history::{History, KeyId, OpId, Outcome};
use crate::verdict::{Anomaly, AnomalyKind, Edge, EdgeKind};

use super::calls::{Calls, Chosen, definite_return};
use super::search::Stuck;
use super::ties::Precedence;
use super::zones::{Cluster, Moment, NoRegister};

/// So many operations of an order are named.
const NAMED_MAX: usize = 8;

fn key_of(history: &History, op: OpId) -> KeyId {
    history.operations()[op].key
}

fn edge(from: OpId, to: OpId, kind: EdgeKind) -> Edge {
    Edge { from, to, kind }
}

/// Sorted by invocation, each once.
fn by_invocation(history: &History, mut operations: Vec<OpId>) -> Vec<OpId> {
    operations.sort_unstable_by_key(|&op| (history.transaction_of(op).invoke_us, op));
    operations.dedup();
    operations
}

/// A read of what was not written, or was not yet.
pub(super) fn not_written(history: &History, flaw: &NoRegister) -> Option<Anomaly> {
    match *flaw {
        NoRegister::RepeatedValue => None,
        NoRegister::NotWritten { read, failed_write } => {
            Some(read_of_nothing(history, read, failed_write))
        }
        NoRegister::ReadBeforeWrite { read, write } => {
            let because =
                format!("#{read} returned before #{write} was invoked, which wrote what it read.");
            let anomaly = Anomaly::new(
                history,
                AnomalyKind::NotLinearizable,
                key_of(history, read),
                vec![read, write],
                vec![because],
            );
            let edges = vec![
                edge(read, write, EdgeKind::RealTime),
                edge(write, read, EdgeKind::ReadsFrom),
            ];
            Some(anomaly.with_edges(edges))
        }
    }
}

fn read_of_nothing(history: &History, read: OpId, failed_write: Option<OpId>) -> Anomaly {
    let key = key_of(history, read);
    match failed_write {
        Some(write) => {
            let because = format!("#{write} failed, yet #{read} read what it wrote.");
            let operations = vec![write, read];
            Anomaly::new(
                history,
                AnomalyKind::AbortedRead,
                key,
                operations,
                vec![because],
            )
            .with_edges(vec![edge(write, read, EdgeKind::ReadsFrom)])
        }
        None => {
            let because = format!("No operation wrote what #{read} read.");
            Anomaly::new(
                history,
                AnomalyKind::ThinAirRead,
                key,
                vec![read],
                vec![because],
            )
        }
    }
}

/// The operations of a cluster that show that it comes before and behind another one.
struct Witness {
    /// Returned before an operation of the other cluster was invoked; `None` is the initial version.
    first: Option<OpId>,
    /// Was invoked after an operation of the other cluster had returned.
    last: OpId,
}

impl Witness {
    /// Prefers the write, for a counterexample needs it anyway.
    fn new(history: &History, cluster: &Cluster, other: &Cluster) -> Option<Self> {
        let time = |op: OpId| history.transaction_of(op);
        let is_early = |&op: &OpId| {
            definite_return(time(op)).is_some_and(|returned| Moment::from(returned) < other.until.0)
        };
        let is_late = |&op: &OpId| Moment::from(time(op).invoke_us) > other.from.0;
        Some(Witness {
            first: cluster
                .write
                .filter(is_early)
                .or(cluster.from.1.filter(|_| cluster.write.is_some())),
            last: cluster.write.filter(is_late).or(cluster.until.1)?,
        })
    }
}

/// Two values each of which must have been current before the other one.
pub(super) fn zones(history: &History, a: &Cluster, b: &Cluster) -> Anomaly {
    let (old, new) = match overtakes(history, a, b) {
        true => (b, a),
        false => (a, b),
    };
    let witnesses = Witness::new(history, old, new).zip(Witness::new(history, new, old));
    let (of_old, of_new) = witnesses.expect("invariant: clusters in conflict have operations");
    let is_stale = overtakes(history, new, old);
    let kind = match is_stale {
        true => AnomalyKind::StaleRead,
        false => AnomalyKind::NotLinearizable,
    };
    let mut because = vec![
        stretch(history, old, &of_old),
        stretch(history, new, &of_new),
    ];
    because.push(match is_stale {
        true => format!(
            "However, {} was replaced before #{} was invoked: a contradiction.",
            history.value_text(old.value),
            of_old.last,
        ),
        false => "However, a register holds one value at a time, and each was written once: a contradiction.".to_owned(),
    });
    let operations = [
        old.write,
        new.write,
        of_old.first,
        of_new.first,
        Some(of_old.last),
        Some(of_new.last),
    ];
    let operations = by_invocation(history, operations.into_iter().flatten().collect());
    let mut edges = Vec::new();
    edges.extend(
        of_old
            .first
            .map(|first| edge(first, of_new.last, EdgeKind::RealTime)),
    );
    edges.extend(
        of_new
            .first
            .map(|first| edge(first, of_old.last, EdgeKind::RealTime)),
    );
    for (cluster, witness) in [(old, &of_old), (new, &of_new)] {
        let reads = [witness.first, Some(witness.last)];
        for read in by_invocation(history, reads.into_iter().flatten().collect()) {
            let from = cluster.write.filter(|&write| write != read);
            edges.extend(from.map(|write| edge(write, read, EdgeKind::ReadsFrom)));
        }
    }
    let key = key_of(history, of_old.last);
    Anomaly::new(history, kind, key, operations, because).with_edges(edges)
}

/// Whether `new` certainly replaced `old`, and `old` was read afterwards.
fn overtakes(history: &History, new: &Cluster, old: &Cluster) -> bool {
    let Some(new_write) = new.write else {
        return false;
    };
    let invoked = history.transaction_of(new_write).invoke_us;
    let was_there = |write: OpId| {
        definite_return(history.transaction_of(write)).is_some_and(|returned| returned < invoked)
    };
    old.write.is_none_or(was_there) && new.from.0 < old.until.0
}

/// Two values whose order in time contradicts the order that the protocol reports.
pub(super) fn versions(history: &History, older: &Cluster, newer: &Cluster) -> Anomaly {
    let ends = newer.from.1.zip(older.until.1);
    let (first, last) = ends.expect("invariant: only operations contradict an order");
    let is_read = older.write != Some(last);
    let kind = match is_read {
        true => AnomalyKind::StaleRead,
        false => AnomalyKind::RealTimeViolation,
    };
    let because = vec![
        format!(
            "The protocol says that {} is older than {}.",
            history.value_text(older.value),
            history.value_text(newer.value)
        ),
        format!(
            "However, #{first} of the newer one returned before #{last} of the older one was invoked: a contradiction."
        ),
    ];
    let writes = [older.write, newer.write];
    let operations = writes.into_iter().flatten().chain([first, last]).collect();
    let operations = by_invocation(history, operations);
    let order = older.write.zip(newer.write);
    let order = order.map(|(older, newer)| edge(older, newer, EdgeKind::VersionOrder));
    let edges = order
        .into_iter()
        .chain([edge(first, last, EdgeKind::RealTime)]);
    let key = key_of(history, last);
    Anomaly::new(history, kind, key, operations, because).with_edges(edges.collect())
}

/// When a value must have been current.
fn stretch(history: &History, cluster: &Cluster, witness: &Witness) -> String {
    let last = witness.last;
    let text = format!(
        "{} = {}",
        history.key_text(key_of(history, last)),
        history.value_text(cluster.value)
    );
    let invoked = history.transaction_of(last).invoke_us;
    let until = format!("t={invoked} us, when #{last} was invoked");
    let Some(first) = witness.first else {
        return format!("{text} must have been current from the beginning to {until}.");
    };
    let returned = definite_return(history.transaction_of(first)).unwrap_or(u64::MAX);
    let from = format!("t={returned} us, when #{first} returned");
    match returned < invoked {
        true => format!("{text} must have been current from {from}, to {until}."),
        false => format!("{text} must have been current at some time between {until}, and {from}."),
    }
}

/// Values that must each have been current before the next one, and the last before the first.
pub(super) fn cycle(history: &History, cycle: &[Precedence]) -> Anomaly {
    let mut because: Vec<String> = cycle
        .iter()
        .map(|&Precedence { first, second, by_session }| match by_session {
            true => format!(
                "#{first} comes before #{second}, because session {} did it first.",
                history.transaction_of(first).session
            ),
            false => format!("#{first} comes before #{second}, because it returned before the other was invoked."),
        })
        .collect();
    because.push(
        "However, the operations on a value come together, the write first, and the initial value comes before all others: \
         a contradiction."
            .to_owned(),
    );
    let edges = cycle
        .iter()
        .map(|precedence| {
            let kind = match precedence.by_session {
                true => EdgeKind::Session,
                false => EdgeKind::RealTime,
            };
            edge(precedence.first, precedence.second, kind)
        })
        .collect();
    let operations = cycle
        .iter()
        .flat_map(|precedence| [precedence.first, precedence.second]);
    let operations = with_writes(history, operations.collect());
    let key = key_of(history, operations[0]);
    Anomaly::new(
        history,
        AnomalyKind::NotLinearizable,
        key,
        operations,
        because,
    )
    .with_edges(edges)
}

/// `operations` of one register and the writes of what they read.
fn with_writes(history: &History, mut operations: Vec<OpId>) -> Vec<OpId> {
    use crate::history::Action::{Read, Write};
    let all = history.operations();
    let values: Vec<_> = operations
        .iter()
        .filter_map(|&op| match all[op].action {
            Read(value) => value,
            _ => None,
        })
        .collect();
    let key = key_of(history, operations[0]);
    let wrote = |&op: &OpId| {
        matches!(all[op].action, Write(Some(value)) if all[op].key == key && values.contains(&value))
            && history.transaction_of(op).outcome != Outcome::Fail
    };
    operations.extend((0..all.len()).filter(wrote));
    by_invocation(history, operations)
}

/// Calls without a linearization, and how far one comes.
pub(super) fn stuck(
    history: &History,
    calls: &mut Calls,
    chosen: &[Chosen],
    stuck: &Stuck,
) -> Anomaly {
    let operations_of = |call: usize| history.operations_of(calls.calls[call].transaction);
    let name = |call: usize| format!("#{}", operations_of(call).start);
    let blocked = operations_of(stuck.blocked).start;
    let operations = chosen
        .iter()
        .flat_map(|chosen| operations_of(chosen.call))
        .collect();
    let operations = by_invocation(history, operations);
    let key = key_of(history, blocked);
    // The key of a scan is the lower end of its range, which need not be one that was ever written.
    let key = if calls.keys.contains(&key) {
        key
    } else {
        calls.keys[0]
    };
    if let ([_], true) = (chosen, calls.calls[stuck.blocked].is_read) {
        return read_of_nothing(history, blocked, None);
    }
    let slot = calls.keys.partition_point(|&other| other < key) as u32;
    let holds = calls.object.text(history, stuck.state, slot);
    let key_text = history.key_text(key);
    let mut because = Vec::new();
    if stuck.longest.is_empty() {
        because.push(format!("In the beginning {key_text} = {holds}."));
    } else {
        let skipped = stuck.longest.len().saturating_sub(NAMED_MAX);
        let names: Vec<String> = stuck.longest[skipped..]
            .iter()
            .map(|&call| name(call))
            .collect();
        let dots = if skipped > 0 { "…, " } else { "" };
        because.push(format!(
            "The longest order that agrees with real time and all results is {dots}{}; then {key_text} = {holds}.",
            names.join(", "),
        ));
    }
    let returned = calls.calls[stuck.blocked].complete_us.unwrap_or(u64::MAX);
    because.push(format!(
        "#{blocked} must take effect before t={returned} us, when it returned."
    ));
    because.push(
        "However, neither this order nor any other one can be completed: a contradiction."
            .to_owned(),
    );
    let order: Vec<usize> = stuck
        .longest
        .iter()
        .copied()
        .chain([stuck.blocked])
        .collect();
    let edges = order
        .windows(2)
        .map(|pair| {
            let (first, second) = (&calls.calls[pair[0]], &calls.calls[pair[1]]);
            let kind = if first
                .complete_us
                .is_some_and(|returned| returned < second.invoke_us)
            {
                EdgeKind::RealTime
            } else if calls.keys.len() == 1
                && !first.is_read
                && second.is_read
                && pair[1] != stuck.blocked
            {
                EdgeKind::ReadsFrom
            } else {
                EdgeKind::Inferred
            };
            edge(
                operations_of(pair[0]).start,
                operations_of(pair[1]).start,
                kind,
            )
        })
        .collect();
    Anomaly::new(
        history,
        AnomalyKind::NotLinearizable,
        key,
        operations,
        because,
    )
    .with_edges(edges)
}
