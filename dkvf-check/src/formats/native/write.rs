//! Writing the native format.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::formats::events::{Phase, events_by_time};
use crate::history::{Action, History, Operation, Outcome, TxnId, ValueId};

use super::bytes::{bytes_to_json, number_to_json, order_key};
use super::read::Header;

#[derive(Serialize)]
struct Event<'a> {
    i: usize,
    t: u64,
    r#type: &'a str,
    process: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<&'a str>,
    f: &'a str,
    value: Vec<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    wb: Map<String, Value>,
}

/// Writes `history`. Takes O(n log n) time to bring the events of n operations
/// into the order of time, and 24 bytes of memory for each event.
///
/// # Errors
///
/// Those of `out`.
pub fn write(history: &History, mut out: impl Write) -> io::Result<()> {
    let header = Header {
        h: 1,
        workload: history.about.workload.clone(),
        initial: Value::Null,
        clock: format!("{}-us", history.about.clock),
        claims: history.about.claims.clone(),
        seed: history.about.seed,
        sites: history.sites().to_vec(),
        incomplete: history.incomplete().map(str::to_owned),
    };
    serde_json::to_writer(&mut out, &header)?;
    out.write_all(b"\n")?;
    for (i, (t, id, phase)) in events_by_time(history).into_iter().enumerate() {
        serde_json::to_writer(&mut out, &event(history, i, t, id, phase))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn event(history: &History, i: usize, t: u64, id: TxnId, phase: Phase) -> Event<'_> {
    let transaction = &history.transactions()[id];
    let operations = &history.operations()[history.operations_of(id)];
    let invoked = phase == Phase::Invoke;
    let elements = operations.iter().map(|op| element(history, op, phase));
    Event {
        i,
        t,
        r#type: match (phase, transaction.outcome) {
            (Phase::Invoke, _) => "invoke",
            (Phase::Complete, Outcome::Ok) => "ok",
            (Phase::Complete, Outcome::Fail) => "fail",
            (Phase::Complete, Outcome::Info) => "info",
        },
        process: transaction.process,
        session: invoked.then_some(transaction.session),
        site: invoked.then(|| history.site(transaction.site)),
        f: "txn",
        value: elements.collect(),
        wb: match phase {
            Phase::Invoke => Map::new(),
            Phase::Complete => white_box(history, id, operations),
        },
    }
}

fn white_box(history: &History, id: TxnId, operations: &[Operation]) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(stamps) = history.stamps(id) {
        for (name, stamp) in [("start", &stamps.start), ("commit", &stamps.commit)] {
            if !stamp.is_empty() {
                let entries = stamp.iter().map(|&entry| number_to_json(entry.into()));
                fields.insert(name.to_owned(), entries.collect());
            }
        }
    }
    let places = operations.iter().filter_map(|op| {
        let place = number_to_json(op.version?);
        Some((order_key(history.key(op.key)), place))
    });
    let order: Map<_, _> = places.collect();
    if !order.is_empty() {
        fields.insert("order".to_owned(), order.into());
    }
    fields
}

fn element(history: &History, op: &Operation, phase: Phase) -> Value {
    let text = |value: Option<ValueId>| {
        value.map_or(Value::Null, |value| bytes_to_json(history.value(value)))
    };
    let key = bytes_to_json(history.key(op.key));
    match op.action {
        Action::Read(_) | Action::ReadList(_) if phase == Phase::Invoke => json!(["r", key, null]),
        Action::Read(value) => json!(["r", key, text(value)]),
        Action::ReadList(list) => {
            let elements = history.list(list).iter();
            json!([
                "r",
                key,
                elements.map(|&value| text(Some(value))).collect::<Value>()
            ])
        }
        Action::Write(value) => json!(["w", key, text(value)]),
        Action::Append(value) => json!(["append", key, text(Some(value))]),
        Action::Cas { expected, new } => json!(["cas", key, [text(expected), text(new)]]),
        Action::Acquire => json!(["acquire", key, null]),
        Action::Release => json!(["release", key, null]),
        Action::Scan(scan) => {
            let scan = history.scan(scan);
            let (low, high) = (
                bytes_to_json(&scan.low),
                scan.high.as_deref().map(bytes_to_json),
            );
            let rows = scan.rows.iter().filter(|_| phase == Phase::Complete);
            let rows = rows
                .map(|&(key, value)| json!([bytes_to_json(history.key(key)), text(Some(value))]));
            json!(["scan", null, low, high, high, rows.collect::<Value>()])
        }
    }
}
