//! JSON of dbcop: sessions of transactions, `[[{"events":[{"Write":{"variable":0,"version":1}}],"committed":true}]]`, alone or
//! as the `data` of an object. Events are also read in the short form `["w",0,1]`.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::history::{History, Operation};

use super::datum::{Data, Datum, Syntax};
use super::export::{Ability, Export};
use super::input::ReadError;
use super::losses::Losses;
use super::sessions::Sessions;

/// Reads a history.
pub(super) fn read(bytes: &[u8]) -> Result<History, ReadError> {
    let mut data = Data::new(bytes, Syntax::Json);
    let mut sessions = Sessions::new("dbcop");
    let mut is_found = false;
    if data.open(b'{')? {
        while !data.close(b'}')? {
            let field = data.datum()?;
            if field.name() == Some("data") {
                read_sessions(&mut data, &mut sessions)?;
                is_found = true;
            } else {
                data.datum()?;
            }
        }
    } else {
        read_sessions(&mut data, &mut sessions)?;
        is_found = true;
    }
    match data.peek()? {
        None if is_found => Ok(sessions.history),
        None => Err(data.malformed("the object has no field data")),
        Some(_) => Err(data.malformed("something follows the history")),
    }
}

fn read_sessions(data: &mut Data, sessions: &mut Sessions) -> Result<(), ReadError> {
    let expected = "a list of sessions, each a list of transactions, is expected";
    if !data.open(b'[')? {
        return Err(data.malformed(expected));
    }
    for session in 0.. {
        if data.close(b']')? {
            break;
        }
        if !data.open(b'[')? {
            return Err(data.malformed(expected));
        }
        while !data.close(b']')? {
            let transaction = data.datum()?;
            let pushed = push(sessions, session, &transaction);
            pushed.map_err(|reason| data.malformed(reason))?;
        }
    }
    Ok(())
}

fn push(sessions: &mut Sessions, session: u32, transaction: &Datum) -> Result<(), String> {
    let events = transaction.field("events").and_then(Datum::list);
    let events = events.ok_or("a transaction has no list of events")?;
    let operations = events.iter().map(|event| operation(sessions, event));
    let operations = operations.collect::<Result<_, _>>()?;
    match transaction.field("committed") {
        Some(&Datum::Bool(is_committed)) => sessions.push(session, is_committed, operations),
        _ => return Err("a transaction does not say whether it committed".to_owned()),
    };
    Ok(())
}

fn operation(sessions: &mut Sessions, event: &Datum) -> Result<Operation, String> {
    let (is_write, key, version) = match event.list() {
        Some([f, key, version]) => (f.name() == Some("w"), Some(key), Some(version)),
        _ => {
            let write = event.field("Write");
            let fields = write.or(event.field("Read"));
            let fields = fields.ok_or("an event is neither a Read nor a Write")?;
            (
                write.is_some(),
                fields.field("variable"),
                fields.field("version"),
            )
        }
    };
    let key = key
        .and_then(Datum::bytes)
        .ok_or("an event has no variable")?;
    let version = match version {
        Some(Datum::Nil) if !is_write => None,
        Some(version) => Some(version.bytes().ok_or("a version is not a number")?),
        None => return Err("an event has no version".to_owned()),
    };
    let key = sessions.history.key_id(&key);
    let version = version.map(|version| sessions.history.value_id(&version));
    Ok(sessions.access(is_write, key, version))
}

/// Writes the sessions alone, a transaction a line.
pub(super) fn write(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    let ability = Ability {
        failed: true,
        zero: true,
        words: false,
    };
    let export = Export::new(history, ability, losses);
    out.write_all(b"[")?;
    for (i, session) in export.sessions.iter().enumerate() {
        out.write_all(if i == 0 { b"[\n" } else { b",[\n" })?;
        for (j, exported) in session.iter().enumerate() {
            let events = exported.accesses.iter().map(|access| {
                let kind = if access.is_write { "Write" } else { "Read" };
                json!({kind: {"variable": export.key(access.key), "version": access.value}})
            });
            let transaction = json!({
                "events": events.collect::<Value>(),
                "committed": exported.is_committed,
            });
            out.write_all(if j == 0 { b"" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &transaction)?;
        }
        out.write_all(b"]")?;
    }
    out.write_all(b"]\n")
}
