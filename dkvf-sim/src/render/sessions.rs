//! Which sessions of a trace a picture shows.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::{View, is_within};
use crate::trace::{Place, TraceEvent};

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
