//! Traces as space-time diagrams.

mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use dkvf_check::picture::{Bar, Diagram, Lane, Mark, Message, Step};
use dkvf_check::{Anomaly, History};

use self::sessions::{is_by, sessions};
use crate::trace::{Place, TraceEvent};

/// More messages than this are not drawn: those of the most frequent names are left out, heartbeats mostly.
const MESSAGES_MAX: usize = 60;
/// More operations than this are not drawn: a picture without a violation shows the first.
const OPERATIONS_MAX: usize = 60;
/// What surrounds a violation and is drawn with it, as a share of its length.
const MARGIN: u64 = 8;
/// Sessions from here on are those of the final reads.
const FINAL_SESSIONS_MIN: u32 = 1 << 30;

/// What a picture of a trace is about.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its title.
    pub title: String,
    /// What came of the run, in one line.
    pub verdict: String,
    /// The operations it is about, by session and time of invocation. If there are none, it is about all.
    pub involved: BTreeSet<(u32, u64)>,
}

impl View {
    /// A picture of the run in which `anomaly` was found.
    pub fn of_anomaly(title: &str, history: &History, anomaly: &Anomaly) -> Self {
        let edges = anomaly.edges.iter().flat_map(|edge| [edge.from, edge.to]);
        let operations = anomaly.operations.iter().copied().chain(edges);
        let involved = operations.map(|operation| {
            let transaction = history.transaction_of(operation);
            (transaction.session, transaction.invoke_us)
        });
        View {
            title: title.to_owned(),
            verdict: format!("{} on key {}", anomaly.kind.name(), anomaly.key),
            involved: involved.collect(),
        }
    }
}

/// Draws a trace: servers and sessions as lanes, operations as bars, messages as arrows, faults as marks. Of a long one the
/// part around the operations it is about, with the sessions that touch the same keys; otherwise its beginning.
/// O(n log n) in the trace.
pub fn diagram(trace: &[TraceEvent], view: &View) -> Diagram {
    let mut diagram = Diagram {
        title: view.title.clone(),
        verdict: view.verdict.clone(),
        ..Diagram::default()
    };
    let Some(window) = window(trace, view) else {
        diagram.caption.push("Nothing happened.".to_owned());
        return diagram;
    };
    let sessions = sessions(trace, view, &window);
    let is_shown =
        |event: &&TraceEvent| is_within(event, &window) && is_by(event, sessions.as_ref());
    let seen: Vec<&TraceEvent> = trace.iter().filter(is_shown).collect();
    let frequent = frequent_names(&seen);
    let lanes = Lanes::new(&seen, &frequent);
    for event in seen {
        add(&mut diagram, event, view, &lanes, &frequent);
    }
    diagram.lanes = lanes.lanes;
    diagram
        .caption
        .extend(what_is_missing(&window, trace, &frequent));
    diagram
}

/// From when to when, in microseconds.
fn window(trace: &[TraceEvent], view: &View) -> Option<RangeInclusive<u64>> {
    let operations = trace.iter().filter_map(|event| match event {
        TraceEvent::Operation {
            session, start_us, ..
        } => Some((*session, *start_us, end_us(event))),
        _ => None,
    });
    let is_involved = |session, start_us| {
        view.involved.is_empty() || view.involved.contains(&(session, start_us))
    };
    let shown = operations.filter(|(session, start_us, _)| is_involved(*session, *start_us));
    let shown: Vec<(u64, u64)> = shown
        .map(|(_, start_us, end_us)| (start_us, end_us))
        .take(OPERATIONS_MAX)
        .collect();
    let from_us = shown.iter().map(|(start_us, _)| *start_us).min()?;
    let until_us = shown.iter().map(|(_, end_us)| *end_us).max()?;
    let margin_us = (until_us - from_us) / MARGIN + 1;
    Some(from_us.saturating_sub(margin_us)..=until_us + margin_us)
}

/// When it was over, as far as it is known.
fn end_us(event: &TraceEvent) -> u64 {
    let end_us = match event {
        TraceEvent::Message { delivered_us, .. } => *delivered_us,
        TraceEvent::Operation { end_us, .. } => *end_us,
        _ => None,
    };
    end_us.unwrap_or_else(|| event.begin_us())
}

fn is_within(event: &TraceEvent, window: &RangeInclusive<u64>) -> bool {
    event.begin_us() <= *window.end() && end_us(event) >= *window.start()
}

/// The names of messages between servers that there are too many of, and how many.
fn frequent_names(events: &[&TraceEvent]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for event in events {
        if let TraceEvent::Message {
            from: Place::Server(_),
            to: Place::Server(_),
            name,
            ..
        } = event
        {
            *counts.entry(name).or_default() += 1;
            total += 1;
        }
    }
    let mut frequent = BTreeMap::new();
    while total > MESSAGES_MAX {
        let Some((name, count)) = counts
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(name, count)| (*name, *count))
        else {
            break;
        };
        counts.remove(name);
        total -= count;
        frequent.insert(name.to_owned(), count);
    }
    frequent
}

fn is_shown(event: &TraceEvent, frequent: &BTreeMap<String, usize>) -> bool {
    !matches!(event, TraceEvent::Message { name, .. } if frequent.contains_key(name))
}

/// Where everybody is.
struct Lanes {
    lanes: Vec<Lane>,
    by_place: BTreeMap<Place, usize>,
}

impl Lanes {
    /// Of all who do something: by replica first the sessions, then the servers.
    fn new(events: &[&TraceEvent], frequent: &BTreeMap<String, usize>) -> Self {
        let mut replicas: BTreeMap<Place, u16> = BTreeMap::new();
        for event in events.iter().filter(|event| is_shown(event, frequent)) {
            for (place, replica) in places(event) {
                let known = replica.or_else(|| replica_of(&place));
                let entry = replicas.entry(place).or_default();
                *entry = known.unwrap_or(*entry);
            }
        }
        let mut order: Vec<(u16, bool, Place)> = replicas
            .into_iter()
            .map(|(place, replica)| (replica, matches!(place, Place::Server(_)), place))
            .collect();
        order.sort_unstable();
        let lane = |(replica, _, place): &(u16, bool, Place)| Lane {
            name: match place {
                Place::Server(name) => name.clone(),
                Place::Client(session) if *session >= FINAL_SESSIONS_MIN => "final read".to_owned(),
                Place::Client(session) => format!("session {session}"),
            },
            group: format!("dc{replica}"),
        };
        Lanes {
            lanes: order.iter().map(lane).collect(),
            by_place: order
                .into_iter()
                .enumerate()
                .map(|(index, (.., place))| (place, index))
                .collect(),
        }
    }

    fn of(&self, place: &Place) -> Option<usize> {
        self.by_place.get(place).copied()
    }

    fn of_server(&self, name: &str) -> Option<usize> {
        self.of(&Place::Server(name.to_owned()))
    }
}

/// Who takes part in an event, and their replica where the event says so.
fn places(event: &TraceEvent) -> Vec<(Place, Option<u16>)> {
    match event {
        TraceEvent::Message { from, to, .. } => vec![
            (from.clone(), replica_of(from).or_else(|| replica_of(to))),
            (to.clone(), replica_of(to).or_else(|| replica_of(from))),
        ],
        TraceEvent::Operation {
            session, replica, ..
        } => vec![(Place::Client(*session), Some(*replica))],
        TraceEvent::Crash { node, .. } | TraceEvent::Restart { node, .. } => {
            vec![(Place::Server(node.clone()), None)]
        }
        TraceEvent::Fault { .. } | TraceEvent::Peer { .. } => Vec::new(),
    }
}

/// A server's name begins with its replica.
fn replica_of(place: &Place) -> Option<u16> {
    match place {
        Place::Server(name) => name.split('_').next()?.parse().ok(),
        Place::Client(_) => None,
    }
}

fn add(
    diagram: &mut Diagram,
    event: &TraceEvent,
    view: &View,
    lanes: &Lanes,
    frequent: &BTreeMap<String, usize>,
) {
    match event {
        TraceEvent::Message {
            from,
            to,
            name,
            sent_us,
            delivered_us,
        } if is_shown(event, frequent) => {
            if let (Some(from), Some(to)) = (lanes.of(from), lanes.of(to)) {
                diagram.messages.push(Message {
                    from,
                    sent_us: *sent_us,
                    to,
                    received_us: *delivered_us,
                    text: name.clone(),
                    detail: String::new(),
                });
            }
        }
        TraceEvent::Message { .. } => {}
        TraceEvent::Operation { session, .. } => {
            if let Some(lane) = lanes.of(&Place::Client(*session)) {
                diagram.bars.extend(bar(event, lane, view));
            }
        }
        TraceEvent::Fault {
            at_us,
            text,
            begins,
        } => {
            let what = if *begins {
                text.clone()
            } else {
                format!("end: {text}")
            };
            diagram.marks.push(mark(None, *at_us, what));
        }
        TraceEvent::Crash { node, at_us } => {
            diagram
                .marks
                .push(mark(lanes.of_server(node), *at_us, format!("{node} stops")));
        }
        TraceEvent::Restart {
            node,
            at_us,
            recovered,
        } => {
            let how = if *recovered {
                "with its state"
            } else {
                "empty"
            };
            diagram.marks.push(mark(
                lanes.of_server(node),
                *at_us,
                format!("{node} starts {how}"),
            ));
        }
        // What servers are told of each other follows from the faults.
        TraceEvent::Peer { .. } => {}
    }
}

fn mark(lane: Option<usize>, at_us: u64, text: String) -> Mark {
    Mark {
        lane,
        at_us,
        until_us: None,
        text,
        detail: String::new(),
    }
}

fn bar(event: &TraceEvent, lane: usize, view: &View) -> Option<Bar> {
    let TraceEvent::Operation {
        session,
        kind,
        key,
        value,
        start_us,
        end_us,
        failed,
        ..
    } = event
    else {
        return None;
    };
    let is_involved = view.involved.is_empty() || view.involved.contains(&(*session, *start_us));
    let value = value.as_deref().unwrap_or("nothing");
    let arrow = if kind == "write" { ":=" } else { "=" };
    let ending = match (failed, end_us) {
        (true, _) => " failed",
        (false, None) => " ?",
        (false, Some(_)) => "",
    };
    let step = Step {
        name: String::new(),
        text: format!("{key} {arrow} {value}{ending}"),
        detail: format!("{kind} of {key} by session {session}"),
        is_involved,
    };
    Some(Bar {
        lane,
        start_us: *start_us,
        end_us: *end_us,
        name: String::new(),
        steps: vec![step],
        is_involved,
        is_certain: end_us.is_some() && !failed,
        detail: String::new(),
    })
}

fn what_is_missing(
    window: &RangeInclusive<u64>,
    trace: &[TraceEvent],
    frequent: &BTreeMap<String, usize>,
) -> Vec<String> {
    let mut sentences = Vec::new();
    let outside = trace
        .iter()
        .filter(|event| !is_within(event, window))
        .count();
    if outside > 0 {
        sentences.push(format!("{outside} events before and after are not shown."));
    }
    let names: Vec<String> = frequent
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if !names.is_empty() {
        sentences.push(format!(
            "Messages between servers that are not shown: {}.",
            names.join(", ")
        ));
    }
    sentences
}
