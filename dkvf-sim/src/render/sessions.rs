//! The sessions of a trace, and which of them a picture shows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{View, is_within, replica_of};
use crate::trace::{Place, TraceEvent};

/// The trace with one number for each session. A message has the number of the connection's session, an operation that of
/// the history: those belong together that begin most often at the same time at the same replica.
pub(super) fn with_sessions_of_history(trace: &[TraceEvent]) -> Vec<TraceEvent> {
    let mut operations: BTreeMap<(u16, u64), Vec<u32>> = BTreeMap::new();
    for event in trace {
        if let TraceEvent::Operation {
            session,
            replica,
            start_us,
            ..
        } = event
        {
            operations
                .entry((*replica, *start_us))
                .or_default()
                .push(*session);
        }
    }
    let mut votes: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
    for event in trace {
        if let TraceEvent::Message {
            from: Place::Client(number),
            to,
            sent_us,
            ..
        } = event
            && let Some(sessions) =
                replica_of(to).and_then(|replica| operations.get(&(replica, *sent_us)))
        {
            for session in sessions {
                *votes
                    .entry(*number)
                    .or_default()
                    .entry(*session)
                    .or_default() += 1;
            }
        }
    }
    let session_of = |number: u32| {
        let sessions = votes.get(&number)?.iter();
        sessions
            .max_by_key(|(_, votes)| **votes)
            .map(|(session, _)| *session)
    };
    let named = |place: &mut Place| {
        if let Place::Client(number) = place {
            *number = session_of(*number).unwrap_or(*number);
        }
    };
    let mut trace = trace.to_vec();
    for event in &mut trace {
        if let TraceEvent::Message { from, to, .. } = event {
            named(from);
            named(to);
        }
    }
    trace
}

/// The sessions of a picture: those of the operations it is about, and those that touch the same keys meanwhile. `None` if it
/// is about all.
pub(super) fn sessions(
    trace: &[TraceEvent],
    view: &View,
    window: &RangeInclusive<u64>,
) -> Option<BTreeSet<u32>> {
    if view.involved.is_empty() {
        return None;
    }
    let operations = || {
        trace
            .iter()
            .filter(|event| is_within(event, window))
            .filter_map(|event| match event {
                TraceEvent::Operation {
                    session,
                    start_us,
                    key,
                    ..
                } => Some((*session, *start_us, key)),
                _ => None,
            })
    };
    let involved = |session: u32, start_us: u64| view.involved.contains(&(session, start_us));
    let keys: BTreeSet<&String> = operations()
        .filter(|(session, start_us, _)| involved(*session, *start_us))
        .map(|(.., key)| key)
        .collect();
    Some(
        operations()
            .filter(|(.., key)| keys.contains(key))
            .map(|(session, ..)| session)
            .collect(),
    )
}

/// Whether an event is not of a session that is left out.
pub(super) fn is_by(event: &TraceEvent, sessions: Option<&BTreeSet<u32>>) -> bool {
    let Some(sessions) = sessions else {
        return true;
    };
    let is_shown = |place: &Place| match place {
        Place::Client(session) => sessions.contains(session),
        Place::Server(_) => true,
    };
    match event {
        TraceEvent::Message { from, to, .. } => is_shown(from) && is_shown(to),
        TraceEvent::Operation { session, .. } => sessions.contains(session),
        _ => true,
    }
}
