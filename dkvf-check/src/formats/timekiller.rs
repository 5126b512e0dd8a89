//! JSON of Chronos and Aion ("TimeKiller"): transactions with the stamps of their snapshot and their commit,
//! `[{"tid":1,"sid":1,"sts":{"p":5,"l":0},"cts":{"p":7,"l":0},"ops":[{"t":"w","k":7,"v":2}]}]`. Operations are `r`, `w` and, on
//! lists, `a`. Stamps are hybrid clocks: a physical part and a logical one. The place of a version is its commit stamp.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::history::{Action, History, Operation, Stamps};

use super::datum::{Data, Datum, Syntax};
use super::export::{Ability, Export};
use super::input::ReadError;
use super::losses::{Loss, Losses};
use super::sessions::{Sessions, without_zero};

/// Reads a history. The order of the transactions of a session is that of the file.
pub(super) fn read(bytes: &[u8]) -> Result<History, ReadError> {
    let mut data = Data::new(bytes, Syntax::Json);
    let mut sessions = Sessions::new("timekiller");
    let mut numbers = BTreeMap::new();
    if !data.open(b'[')? {
        return Err(data.malformed("a list of transactions is expected"));
    }
    while !data.close(b']')? {
        let line = data.line();
        let transaction = data.datum()?;
        let pushed = push(&mut sessions, &mut numbers, &transaction);
        pushed.map_err(|reason| ReadError::at(line, reason))?;
    }
    match data.peek()? {
        None => Ok(without_zero(sessions.history)),
        Some(_) => Err(data.malformed("something follows the history")),
    }
}

fn push(
    sessions: &mut Sessions,
    numbers: &mut BTreeMap<Vec<u8>, u32>,
    transaction: &Datum,
) -> Result<(), String> {
    let stamps = Stamps {
        start: stamp(transaction, "sts")?,
        commit: stamp(transaction, "cts")?,
    };
    let session = transaction.field("sid").and_then(Datum::bytes);
    let next = numbers.len() as u32;
    let session = *numbers
        .entry(session.ok_or("a transaction has no sid")?)
        .or_insert(next);
    let ops = transaction
        .field("ops")
        .and_then(Datum::list)
        .ok_or("a transaction has no ops")?;
    let place = stamps
        .commit
        .iter()
        .fold(0, |place, &part| place << 64 | u128::from(part));
    let operations = ops.iter().map(|op| operation(sessions, op, place));
    let operations = operations.collect::<Result<_, _>>()?;
    if let Some(id) = sessions.push(session, true, operations) {
        sessions.history.set_stamps(id, stamps);
    }
    Ok(())
}

fn stamp(transaction: &Datum, name: &str) -> Result<Vec<u64>, String> {
    let stamp = transaction.field(name);
    let part = |part: &str| stamp?.field(part)?.whole::<u64>();
    match (part("p"), part("l")) {
        (Some(physical), Some(logical)) => Ok(vec![physical, logical]),
        _ => Err(format!(
            "a transaction has no {name} with whole numbers p and l"
        )),
    }
}

fn operation(sessions: &mut Sessions, op: &Datum, place: u128) -> Result<Operation, String> {
    let key = op
        .field("k")
        .and_then(Datum::bytes)
        .ok_or("an operation has no k")?;
    let key = sessions.history.key_id(&key);
    let mut named = |value: &Datum| -> Result<_, String> {
        let bytes = value.bytes().ok_or("a value is not a number")?;
        Ok(sessions.history.value_id(&bytes))
    };
    let kind = op
        .field("t")
        .and_then(Datum::name)
        .unwrap_or_default()
        .to_lowercase();
    let value = op.field("v").filter(|value| **value != Datum::Nil);
    let action = match (kind.as_str(), value) {
        ("r" | "read", Some(Datum::List(elements))) => {
            let elements = elements.iter().map(named).collect::<Result<Vec<_>, _>>()?;
            Action::ReadList(sessions.history.list_id(&elements))
        }
        ("r" | "read", value) => Action::Read(value.map(named).transpose()?),
        ("w" | "write", value) => Action::Write(value.map(named).transpose()?),
        ("a" | "append", Some(value)) => Action::Append(named(value)?),
        _ => {
            return Err(format!(
                "the operation {kind:?} is not known, or has no value"
            ));
        }
    };
    Ok(Operation {
        key,
        action,
        version: action.is_write().then_some(place),
    })
}

/// Writes the transactions that have stamps, one a line. Stamps of more than two entries are no hybrid clocks.
pub(super) fn write(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    let export = Export::new(history, Ability::default(), losses);
    losses.0.remove(&Loss::VersionOrder);
    losses.0.remove(&Loss::Stamps);
    let mut separator = "[\n";
    for (session, transactions) in export.sessions.iter().enumerate() {
        for exported in transactions {
            let stamps = history.stamps(exported.transaction).and_then(hybrid);
            let Some((start, commit)) = stamps else {
                losses.0.insert(Loss::Unstamped);
                continue;
            };
            let ops = exported.accesses.iter().map(|access| {
                let kind = if access.is_write { "w" } else { "r" };
                json!({"t": kind, "k": export.key(access.key), "v": access.value})
            });
            let transaction = json!({
                "tid": exported.transaction,
                "sid": session,
                "sts": start,
                "cts": commit,
                "ops": ops.collect::<Value>(),
            });
            write!(out, "{separator}{transaction}")?;
            separator = ",\n";
        }
    }
    out.write_all(if separator == "[\n" {
        b"[]\n"
    } else {
        b"\n]\n"
    })
}

/// The stamps as hybrid clocks, if they are that. A transaction that wrote nothing commits in its snapshot.
fn hybrid(stamps: &Stamps) -> Option<(Value, Value)> {
    let clock = |stamp: &[u64]| match *stamp {
        [physical] => Some(json!({"p": physical, "l": 0})),
        [physical, logical] => Some(json!({"p": physical, "l": logical})),
        _ => None,
    };
    let start = clock(&stamps.start)?;
    let commit = match stamps.commit.is_empty() {
        true => start.clone(),
        false => clock(&stamps.commit)?,
    };
    Some((start, commit))
}
