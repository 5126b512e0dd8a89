//! Reading the native format.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::BufRead;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::formats::events::{Completion, Events, Invocation};
use crate::formats::{Lines, ReadError};
use crate::history::{About, Action, History, Operation, Outcome, Scan, Stamps, ValueId};

use super::bytes::{json_to_bytes, order_key, stamp, version};

#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) h: u32,
    #[serde(default)]
    pub(super) workload: String,
    #[serde(default)]
    pub(super) initial: Value,
    #[serde(default)]
    pub(super) clock: String,
    #[serde(default)]
    pub(super) claims: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sites: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

#[derive(Deserialize)]
struct Event<'l> {
    t: u64,
    #[serde(borrow)]
    r#type: Cow<'l, str>,
    process: u32,
    session: Option<u32>,
    #[serde(borrow)]
    site: Option<Cow<'l, str>>,
    #[serde(borrow)]
    f: Option<Cow<'l, str>>,
    value: Value,
    #[serde(default)]
    wb: WhiteBox,
}

/// Whether an event is not of a client but, for example, of the nemesis.
fn is_foreign(line: &[u8]) -> bool {
    serde_json::from_slice(line).is_ok_and(|event: Value| event["process"].is_string())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WhiteBox {
    order: BTreeMap<String, Value>,
    start: Vec<Value>,
    commit: Vec<Value>,
}

/// Reads a history, one line at a time.
///
/// A transaction without a second event has an unknown outcome.
///
/// # Errors
///
/// [`ReadError::Io`] when `source` fails, [`ReadError::Malformed`] with the
/// first line that is not of the format.
pub fn read(source: impl BufRead) -> Result<History, ReadError> {
    let mut reader = Reader::default();
    let mut lines = Lines::new(source);
    while let Some(line) = lines.next()? {
        let accepted = reader.accept(line);
        accepted.map_err(|reason| lines.malformed(reason))?;
    }
    match reader.header {
        Some(_) => Ok(reader.events.into_history()),
        None => Err(ReadError::at(1, "the header is missing")),
    }
}

#[derive(Default)]
struct Reader {
    header: Option<(Value, Unit)>,
    events: Events,
}

/// Unit of the clock that stamped the events.
enum Unit {
    Nanosecond,
    Microsecond,
    Millisecond,
}

impl Reader {
    fn accept(&mut self, line: &[u8]) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if !line.starts_with(b"{") {
            return Err("not a JSON object".to_owned());
        }
        if self.header.is_none() {
            return self.accept_header(line);
        }
        let event: Event = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(_) if is_foreign(line) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        if let Some(f) = event.f.as_deref().filter(|&f| f != "txn") {
            return Err(format!("f is {f:?}; only \"txn\" is known"));
        }
        match &*event.r#type {
            "invoke" => self.invoke(&event),
            "ok" => self.complete(&event, Outcome::Ok),
            "fail" => self.complete(&event, Outcome::Fail),
            "info" => self.complete(&event, Outcome::Info),
            other => Err(format!(
                "type is {other:?}; allowed are invoke, ok, fail and info"
            )),
        }
    }

    fn accept_header(&mut self, line: &[u8]) -> Result<(), String> {
        let header: Header = serde_json::from_slice(line)
            .map_err(|error| format!("the first line is not a header: {error}"))?;
        if header.h != 1 {
            return Err(format!("version {} of the format is not known", header.h));
        }
        let (clock, unit) = match header.clock.rsplit_once('-') {
            Some((clock, "ns")) => (clock, Unit::Nanosecond),
            Some((clock, "us")) => (clock, Unit::Microsecond),
            Some((clock, "ms")) => (clock, Unit::Millisecond),
            _ => {
                return Err(format!(
                    "the clock {:?} does not end in -ns, -us or -ms",
                    header.clock
                ));
            }
        };
        self.events = Events::new(History::new(About {
            workload: header.workload,
            clock: clock.to_owned(),
            claims: header.claims,
            seed: header.seed,
        }));
        for site in &header.sites {
            self.events.site(site)?;
        }
        if let Some(reason) = header.incomplete {
            self.events.history.mark_incomplete(reason);
        }
        self.header = Some((header.initial, unit));
        Ok(())
    }

    fn microseconds(&self, t: u64) -> Result<u64, String> {
        match self.header {
            Some((_, Unit::Nanosecond)) => Ok(t / 1000),
            Some((_, Unit::Millisecond)) => t
                .checked_mul(1000)
                .ok_or_else(|| format!("t is {t} ms, which is out of range")),
            _ => Ok(t),
        }
    }

    fn invoke(&mut self, event: &Event) -> Result<(), String> {
        let invocation = Invocation {
            process: event.process,
            session: event.session.unwrap_or(event.process),
            site: self
                .events
                .site(event.site.as_deref().unwrap_or_default())?,
            at_us: self.microseconds(event.t)?,
            operations: self.elements(event)?,
        };
        self.events.invoke(invocation)
    }

    fn complete(&mut self, event: &Event, outcome: Outcome) -> Result<(), String> {
        let mut operations = self.elements(event)?;
        for operation in &mut operations {
            let key = order_key(self.events.history.key(operation.key));
            let place = event.wb.order.get(&key);
            operation.version = place.map(version).transpose()?;
        }
        let stamps = Stamps {
            start: event.wb.start.iter().map(stamp).collect::<Result<_, _>>()?,
            commit: event
                .wb
                .commit
                .iter()
                .map(stamp)
                .collect::<Result<_, _>>()?,
        };
        self.events.complete(Completion {
            process: event.process,
            at_us: self.microseconds(event.t)?,
            outcome,
            operations: Some(operations),
            stamps,
        })
    }

    /// The elements of the event's transaction.
    fn elements(&mut self, event: &Event) -> Result<Vec<Operation>, String> {
        let elements = event.value.as_array().ok_or("the value is not a list")?;
        elements.iter().map(|value| self.element(value)).collect()
    }

    fn element(&mut self, element: &Value) -> Result<Operation, String> {
        let (key, action) = match element.as_array().map(Vec::as_slice) {
            Some([f, key, value]) => {
                let unknown = || format!("the element {element} is not known");
                let action = self.action(f, value)?.ok_or_else(unknown)?;
                (json_to_bytes(key)?, action)
            }
            Some([Value::String(f), _, low, _, high, rows]) if f == "scan" => {
                (json_to_bytes(low)?, self.scan(low, high, rows)?)
            }
            _ => {
                return Err("an element is not of the form [\"r\" or \"w\", key, value]".to_owned());
            }
        };
        Ok(Operation {
            key: self.events.history.key_id(&key),
            action,
            version: None,
        })
    }

    /// What `f` does; `None` if it is not known.
    fn action(&mut self, f: &Value, value: &Value) -> Result<Option<Action>, String> {
        Ok(Some(match (f.as_str(), value) {
            (Some("r"), Value::Array(values)) => {
                let elements = values
                    .iter()
                    .map(|value| self.value(value)?.ok_or("null in a list".to_owned()));
                let elements = elements.collect::<Result<Vec<_>, _>>()?;
                Action::ReadList(self.events.history.list_id(&elements))
            }
            (Some("r"), value) => Action::Read(self.value(value)?),
            (Some("w"), value) => Action::Write(self.value(value)?),
            (Some("append"), value) => {
                Action::Append(self.value(value)?.ok_or("null is appended")?)
            }
            (Some("cas"), Value::Array(values)) if values.len() == 2 => Action::Cas {
                expected: self.value(&values[0])?,
                new: self.value(&values[1])?,
            },
            (Some("acquire"), _) => Action::Acquire,
            (Some("release"), _) => Action::Release,
            _ => return Ok(None),
        }))
    }

    fn scan(&mut self, low: &Value, high: &Value, rows: &Value) -> Result<Action, String> {
        let low = json_to_bytes(low)?;
        let high = match high {
            Value::Null => None,
            high => Some(json_to_bytes(high)?),
        };
        let rows = rows.as_array().ok_or("the rows of a scan are not a list")?;
        let rows = rows
            .iter()
            .map(|row| match row.as_array().map(Vec::as_slice) {
                Some([key, value]) => {
                    let key = json_to_bytes(key)?;
                    let is_within = key >= low && high.as_ref().is_none_or(|high| key < *high);
                    if !is_within {
                        return Err(format!("the row {row} is not in the range of its scan"));
                    }
                    let value = self.value(value)?.ok_or("a row of a scan is null")?;
                    Ok((self.events.history.key_id(&key), value))
                }
                _ => Err(format!("the row {row} is not of the form [key, value]")),
            });
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let scan = Scan { low, high, rows };
        Ok(Action::Scan(self.events.history.scan_id(scan)))
    }

    fn value(&mut self, value: &Value) -> Result<Option<ValueId>, String> {
        let initial = self.header.as_ref().map(|(initial, _)| initial);
        match value {
            Value::Null => Ok(None),
            value if Some(value) == initial => Ok(None),
            value => Ok(Some(self.events.history.value_id(&json_to_bytes(value)?))),
        }
    }
}
