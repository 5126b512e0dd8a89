//! The log of early Jepsen (2014), in which old public histories of registers are: lines of tool output, among them
//! `INFO jepsen.util - process :type :f value`. Their order is that of time.

use std::io::BufRead;

use crate::history::History;

use super::datum::{Data, Datum, Syntax};
use super::input::{Lines, ReadError};
use super::jepsen::Reader;

const MARK: &[u8] = b"jepsen.util - ";

/// Reads the events among the lines of a log.
pub(super) fn read(mut lines: Lines<impl BufRead>) -> Result<History, ReadError> {
    let mut reader = Reader::new();
    while let Some(line) = lines.next()? {
        let start = line.windows(MARK.len()).position(|window| window == MARK);
        let Some(start) = start else {
            continue;
        };
        let event = event(&line[start + MARK.len()..]);
        let accepted = event.and_then(|event| event.map_or(Ok(()), |event| reader.event(&event)));
        accepted.map_err(|reason| lines.malformed(reason))?;
    }
    Ok(reader.into_history())
}

/// The event of a line; `None` if the line says something else.
fn event(line: &[u8]) -> Result<Option<Datum>, String> {
    let reason = |error: ReadError| match error {
        ReadError::Malformed { reason, .. } => reason,
        ReadError::Io(error) => error.to_string(),
    };
    let mut data = Data::new(line, Syntax::Edn);
    let mut words = Vec::new();
    while words.len() < 4 && data.peek().map_err(reason)?.is_some() {
        words.push(data.datum().map_err(reason)?);
    }
    let Ok([process, kind, f, value]) = <[Datum; 4]>::try_from(words) else {
        return Ok(None);
    };
    let is_event = |kind: &str| matches!(kind, "invoke" | "ok" | "fail" | "info");
    if !matches!(process, Datum::Number(_)) || !kind.name().is_some_and(is_event) {
        return Ok(None);
    }
    let fields = [
        ("process", process),
        ("type", kind),
        ("f", f),
        ("value", value),
    ];
    let fields = fields.map(|(name, value)| (Datum::Name(name.to_owned()), value));
    Ok(Some(Datum::Map(fields.into())))
}
