//! Histories of Jepsen, in EDN or JSON: maps with `:type :process :f :value`, and `:time` in nanoseconds.
//!
//! Known are the transactions of Elle (`:f :txn` or none), the registers of Knossos (`:read :write :cas`, with a key as
//! independent keys have it, `[key value]`, or one key for all), locks (`:acquire :release`) and the texts of Porcupine
//! (`:get :put :append` with `:key`). Without times the order of the events is that of their times.

use crate::history::{About, Action, History, Operation, Outcome, Stamps, ValueId};

use super::datum::{Data, Datum, Syntax};
use super::events::{Completion, Events, Invocation};
use super::input::ReadError;

/// The key of operations that name none.
const ONLY_KEY: &[u8] = b"x";

/// Reads a history.
pub(super) fn read(bytes: &[u8], syntax: Syntax) -> Result<History, ReadError> {
    let mut data = Data::new(bytes, syntax);
    let mut reader = Reader::new();
    let bracket = match data.peek()? {
        Some(b'[') => Some(b']'),
        Some(b'(') => Some(b')'),
        _ => None,
    };
    let is_list = data.open(b'[')? || data.open(b'(')?;
    loop {
        let is_end = match bracket {
            Some(bracket) if is_list => data.close(bracket)?,
            _ => data.peek()?.is_none(),
        };
        if is_end {
            break;
        }
        data.peek()?;
        let line = data.line();
        let datum = data.datum()?;
        reader
            .event(&datum)
            .map_err(|reason| ReadError::at(line, reason))?;
    }
    match data.peek()? {
        Some(_) => Err(data.malformed("something follows the history")),
        None => Ok(reader.into_history()),
    }
}

/// Puts events of Jepsen together.
pub(super) struct Reader {
    events: Events,
    /// Whether the events have times; the first one tells.
    is_timed: Option<bool>,
    count: u64,
}

impl Reader {
    pub(super) fn new() -> Self {
        let about = About {
            workload: "jepsen".to_owned(),
            clock: "monotonic".to_owned(),
            ..About::default()
        };
        Reader {
            events: Events::new(History::new(about)),
            is_timed: None,
            count: 0,
        }
    }

    /// An event; those of the nemesis are passed over.
    pub(super) fn event(&mut self, event: &Datum) -> Result<(), String> {
        let Datum::Map(_) = event else {
            return Err("an event is not a map".to_owned());
        };
        let process = match event.field("process") {
            None => 0,
            Some(Datum::Number(number)) => number
                .parse()
                .map_err(|_| format!("the process {number} is not a whole number below 2^32"))?,
            Some(_) => return Ok(()),
        };
        let at_us = self.time(event)?;
        let kind = event.field("type").and_then(Datum::name);
        let outcome = match kind.ok_or("an event has no type")? {
            "invoke" => return self.invoke(process, at_us, event),
            "ok" => Outcome::Ok,
            "fail" => Outcome::Fail,
            "info" => Outcome::Info,
            other => {
                return Err(format!(
                    "type is {other:?}; allowed are invoke, ok, fail and info"
                ));
            }
        };
        if outcome == Outcome::Info && !self.events.is_waiting(process) {
            return Ok(());
        }
        let operations = match (outcome, event.field("value")) {
            (Outcome::Ok, Some(value)) if *value != Datum::Nil || is_read(event) => {
                Some(self.operations(event)?)
            }
            _ => None,
        };
        self.events.complete(Completion {
            process,
            at_us,
            outcome,
            operations,
            stamps: Stamps::default(),
        })
    }

    fn invoke(&mut self, process: u32, at_us: u64, event: &Datum) -> Result<(), String> {
        let invocation = Invocation {
            process,
            session: process,
            site: self.events.site("")?,
            at_us,
            operations: self.operations(event)?,
        };
        self.events.invoke(invocation)
    }

    fn time(&mut self, event: &Datum) -> Result<u64, String> {
        let time = event.field("time").filter(|time| **time != Datum::Nil);
        let is_timed = *self.is_timed.get_or_insert(time.is_some());
        self.count += 1;
        match time {
            Some(time) if is_timed => {
                let nanoseconds: u64 = time
                    .whole()
                    .ok_or("a time is not a number of nanoseconds")?;
                Ok(nanoseconds / 1000)
            }
            None if is_timed => Err("an event has no time, although others have".to_owned()),
            _ => Ok(self.count),
        }
    }

    fn operations(&mut self, event: &Datum) -> Result<Vec<Operation>, String> {
        let nil = Datum::Nil;
        let value = event.field("value").unwrap_or(&nil);
        match event.field("f").and_then(Datum::name) {
            None | Some("txn") => {
                let elements = value.list().ok_or("the value is not a list")?;
                elements
                    .iter()
                    .map(|element| self.element(element))
                    .collect()
            }
            Some(f) => Ok(vec![self.single(f, event.field("key"), value)?]),
        }
    }

    /// `[:r key value]` and its like.
    fn element(&mut self, element: &Datum) -> Result<Operation, String> {
        let Some([f, key, value]) = element.list() else {
            return Err("an element is not of the form [:r or :w, key, value]".to_owned());
        };
        let f = f.name().unwrap_or_default();
        self.operation(f, Some(key), value)
    }

    /// The operation of an event that is no transaction.
    fn single(&mut self, f: &str, key: Option<&Datum>, value: &Datum) -> Result<Operation, String> {
        match (f, key, value.list()) {
            ("acquire" | "release", None, _) if *value != Datum::Nil => {
                self.operation(f, Some(value), &Datum::Nil)
            }
            ("read" | "write" | "w" | "r", None, Some([key, value])) => {
                self.operation(f, Some(key), value)
            }
            ("cas", None, Some([key, value @ Datum::List(_)])) => {
                self.operation(f, Some(key), value)
            }
            _ => self.operation(f, key, value),
        }
    }

    fn operation(
        &mut self,
        f: &str,
        key: Option<&Datum>,
        value: &Datum,
    ) -> Result<Operation, String> {
        let action = match f {
            "r" | "read" | "get" => match value {
                Datum::List(elements) => {
                    let elements = elements
                        .iter()
                        .map(|element| self.value(element)?.ok_or("nil in a list".to_owned()))
                        .collect::<Result<Vec<_>, _>>()?;
                    Action::ReadList(self.events.history.list_id(&elements))
                }
                value => Action::Read(self.value(value)?),
            },
            "w" | "write" | "put" => Action::Write(self.value(value)?),
            "append" => Action::Append(self.value(value)?.ok_or("nil is appended")?),
            "cas" => match value.list() {
                Some([expected, new]) => Action::Cas {
                    expected: self.value(expected)?,
                    new: self.value(new)?,
                },
                _ => return Err("a cas without [expected new]".to_owned()),
            },
            "acquire" => Action::Acquire,
            "release" => Action::Release,
            _ => return Err(format!("the operation {f:?} is not known")),
        };
        let key = match key {
            None => ONLY_KEY.to_vec(),
            Some(key) => key
                .bytes()
                .ok_or("a key is neither a text, a number nor a keyword")?,
        };
        Ok(Operation {
            key: self.events.history.key_id(&key),
            action,
            version: None,
        })
    }

    fn value(&mut self, value: &Datum) -> Result<Option<ValueId>, String> {
        if *value == Datum::Nil {
            return Ok(None);
        }
        let bytes = value
            .bytes()
            .ok_or("a value is neither a text, a number nor a keyword")?;
        Ok(Some(self.events.history.value_id(&bytes)))
    }

    /// In a history of lists, `nil` is the empty list.
    pub(super) fn into_history(mut self) -> History {
        let is_scalar = |operation: &Operation| {
            matches!(
                operation.action,
                Action::Read(Some(_)) | Action::Write(_) | Action::Cas { .. }
            )
        };
        let is_list = |operation: &Operation| {
            matches!(operation.action, Action::Append(_) | Action::ReadList(_))
        };
        if self.events.operations().any(is_list) && !self.events.operations().any(is_scalar) {
            self.events.for_each_operation(|history, operation| {
                if operation.action == Action::Read(None) {
                    operation.action = Action::ReadList(history.list_id(&[]));
                }
            });
        }
        self.events.into_history()
    }
}

fn is_read(event: &Datum) -> bool {
    let f = event.field("f").and_then(Datum::name);
    matches!(f, Some("read" | "get" | "r"))
}
