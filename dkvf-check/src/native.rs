//! Histories as JSON lines, in the layout of Jepsen's.
//!
//! The first line is a header. Then come the events, each with the microsecond
//! `t` it happened in, for every operation an `invoke` and, if the client learnt
//! the outcome or gave up, an `ok`, `fail` or `info` of the same process:
//!
//! ```json
//! {"h":1,"workload":"a","initial":null,"clock":"virtual-us","claims":["causal"],"seed":7,"sites":["dc1"]}
//! {"i":0,"t":12,"type":"invoke","process":3,"session":3,"site":"dc1","f":"txn","value":[["w","x","3-1"]]}
//! {"i":1,"t":19,"type":"ok","process":3,"f":"txn","value":[["w","x","3-1"]],"wb":{"order":{"x":17}}}
//! ```
//!
//! Every operation is a transaction of one element, `["r", key, value]` or
//! `["w", key, value]`; `null` is the initial version. `wb.order` is the place
//! of the version in the protocol's own order, a string where a JSON number is
//! not exact. Keys and values that are not UTF-8 are written `{"hex":"00ff"}`;
//! numbers are read as their decimal text. In the header, `sites` lists all
//! replicas and `incomplete` says why operations are missing. The unit of `t` is
//! the end of `clock`: `ns`, `us` or `ms`; nanoseconds are rounded down. Events
//! whose process is not a number (Jepsen's nemesis) are passed over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::history::{About, History, Kind, OpId, Operation, Outcome, SiteId};

/// A longer line is malformed.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// More sites are malformed.
pub const SITES_MAX: usize = 1024;

/// JSON numbers up to here survive readers that use floating point.
const EXACT_MAX: u128 = 1 << 53;

/// A history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
    /// A line is not what the format asks for.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    h: u32,
    #[serde(default)]
    workload: String,
    #[serde(default)]
    initial: Value,
    #[serde(default)]
    clock: String,
    #[serde(default)]
    claims: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sites: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    i: usize,
    t: u64,
    r#type: &'a str,
    process: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<&'a str>,
    f: &'a str,
    value: [(&'a str, Value, Value); 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    wb: Option<Value>,
}

#[derive(Deserialize)]
struct Event {
    t: u64,
    r#type: String,
    process: u32,
    session: Option<u32>,
    site: Option<String>,
    f: Option<String>,
    value: Value,
    wb: Option<WhiteBox>,
}

#[derive(Deserialize)]
struct WhiteBox {
    #[serde(default)]
    order: BTreeMap<String, Value>,
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
    for (i, (t, id, step)) in events_by_time(history).into_iter().enumerate() {
        serde_json::to_writer(&mut out, &event(history, i, t, id, step))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Invoke,
    Complete,
}

/// All events by time. Within a process the order is that of the program even
/// where an operation takes no time, because the sort is stable.
fn events_by_time(history: &History) -> Vec<(u64, OpId, Step)> {
    let operations = history.operations();
    let mut ids: Vec<OpId> = (0..operations.len()).collect();
    ids.sort_by_key(|&id| (operations[id].process, operations[id].invoke_us));
    let mut events = Vec::with_capacity(2 * ids.len());
    for id in ids {
        let op = &operations[id];
        events.push((op.invoke_us, id, Step::Invoke));
        if let Some(complete_us) = op.complete_us {
            events.push((complete_us, id, Step::Complete));
        }
    }
    events.sort_by_key(|&(t, ..)| t);
    events
}

fn event(history: &History, i: usize, t: u64, id: OpId, step: Step) -> Written<'_> {
    let op = &history.operations()[id];
    let f = match op.kind {
        Kind::Read => "r",
        Kind::Write => "w",
    };
    let value = match (step, op.kind) {
        (Step::Invoke, Kind::Read) => None,
        _ => op.value,
    };
    let order = |version: u128| {
        let place = if version <= EXACT_MAX {
            json!(version as u64)
        } else {
            json!(version.to_string())
        };
        json!({"order": {order_key(history.key(op.key)): place}})
    };
    let invoked = step == Step::Invoke;
    Written {
        i,
        t,
        r#type: match (step, op.outcome) {
            (Step::Invoke, _) => "invoke",
            (Step::Complete, Outcome::Ok) => "ok",
            (Step::Complete, Outcome::Fail) => "fail",
            (Step::Complete, Outcome::Info) => "info",
        },
        process: op.process,
        session: invoked.then_some(op.session),
        site: invoked.then(|| history.site(op.site)),
        f: "txn",
        value: [(
            f,
            bytes_to_json(history.key(op.key)),
            value.map_or(Value::Null, |value| bytes_to_json(history.value(value))),
        )],
        wb: op.version.filter(|_| !invoked).map(order),
    }
}

fn bytes_to_json(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"hex": hex(bytes)}),
    }
}

/// The name of a key in `wb.order`, where JSON admits only strings.
fn order_key(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| hex(bytes), str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads a history, one line at a time.
///
/// An operation without a second event has an unknown outcome.
///
/// # Errors
///
/// [`ReadError::Io`] when `source` fails, [`ReadError::Malformed`] with the
/// first line that is not of the format.
pub fn read(mut source: impl BufRead) -> Result<History, ReadError> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let length = (&mut source).take(limit).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        let accepted = if line.len() > LINE_BYTES_MAX {
            Err(format!("longer than {LINE_BYTES_MAX} bytes"))
        } else {
            reader.accept(line.trim_ascii())
        };
        accepted.map_err(|reason| ReadError::Malformed {
            line: number,
            reason,
        })?;
    }
    match reader.header {
        Some(_) => Ok(reader.into_history()),
        None => Err(ReadError::Malformed {
            line: 1,
            reason: "the header is missing".to_owned(),
        }),
    }
}

#[derive(Default)]
struct Reader {
    header: Option<(Value, Unit)>,
    history: History,
    operations: Vec<Operation>,
    /// The operation that each process waits for.
    open: BTreeMap<u32, OpId>,
}

struct Element {
    kind: Kind,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
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
        let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if value["process"].is_string() {
            return Ok(());
        }
        let event: Event = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if let Some(f) = event.f.as_deref().filter(|&f| f != "txn") {
            return Err(format!("f is {f:?}; only \"txn\" is known"));
        }
        match event.r#type.as_str() {
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
        self.history = History::new(About {
            workload: header.workload,
            clock: clock.to_owned(),
            claims: header.claims,
            seed: header.seed,
        });
        for site in &header.sites {
            self.site(site)?;
        }
        if let Some(reason) = header.incomplete {
            self.history.mark_incomplete(reason);
        }
        self.header = Some((header.initial, unit));
        Ok(())
    }

    /// The site called `name`; a file cannot make more of them than a history has room for.
    fn site(&mut self, name: &str) -> Result<SiteId, String> {
        let known = self.history.sites();
        if known.len() >= SITES_MAX && !known.iter().any(|site| site == name) {
            return Err(format!("more than {SITES_MAX} sites"));
        }
        Ok(self.history.site_id(name))
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
        let Element { kind, key, value } = self.element(event)?;
        if kind == Kind::Write && value.is_none() {
            return Err("a write without a value".to_owned());
        }
        let id = self.operations.len();
        if let Some(open) = self.open.insert(event.process, id) {
            return Err(format!(
                "process {} invokes an operation although operation {open} has not returned",
                event.process
            ));
        }
        let site = event.site.as_deref().unwrap_or_default();
        let operation = Operation {
            process: event.process,
            session: event.session.unwrap_or(event.process),
            site: self.site(site)?,
            kind,
            key: self.history.key_id(&key),
            value: match kind {
                Kind::Read => None,
                Kind::Write => value.map(|value| self.history.value_id(&value)),
            },
            version: None,
            invoke_us: self.microseconds(event.t)?,
            complete_us: None,
            outcome: Outcome::Info,
        };
        self.operations.push(operation);
        Ok(())
    }

    fn complete(&mut self, event: &Event, outcome: Outcome) -> Result<(), String> {
        let Element { kind, key, value } = self.element(event)?;
        let Some(id) = self.open.remove(&event.process) else {
            return Err(format!(
                "process {} completes an operation that it did not invoke",
                event.process
            ));
        };
        let complete_us = self.microseconds(event.t)?;
        let key_id = self.history.key_id(&key);
        let value = value.map(|value| self.history.value_id(&value));
        let operation = &mut self.operations[id];
        if operation.kind != kind || operation.key != key_id {
            return Err(format!(
                "process {} completes another operation than the one it invoked",
                event.process
            ));
        }
        if complete_us < operation.invoke_us {
            return Err("the operation returns before it was invoked".to_owned());
        }
        match kind {
            Kind::Read if outcome == Outcome::Ok => operation.value = value,
            Kind::Write if operation.value != value => {
                return Err("the value differs from the one invoked".to_owned());
            }
            _ => {}
        }
        operation.version = match &event.wb {
            Some(wb) => wb.order.get(&order_key(&key)).map(version).transpose()?,
            None => None,
        };
        operation.complete_us = Some(complete_us);
        operation.outcome = outcome;
        Ok(())
    }

    /// The one element of the event's transaction.
    fn element(&self, event: &Event) -> Result<Element, String> {
        let elements = event.value.as_array().map_or(&[][..], Vec::as_slice);
        let [element] = elements else {
            return Err(format!(
                "a transaction of {} elements; only single reads and writes are supported",
                elements.len()
            ));
        };
        let Some([f, key, value]) = element.as_array().map(Vec::as_slice) else {
            return Err("an element is not of the form [\"r\" or \"w\", key, value]".to_owned());
        };
        let kind = match f.as_str() {
            Some("r") => Kind::Read,
            Some("w") => Kind::Write,
            _ => {
                return Err(format!(
                    "the element {f} is not known; only \"r\" and \"w\" are"
                ));
            }
        };
        let initial = self.header.as_ref().map(|(initial, _)| initial);
        let value = match value {
            Value::Null => None,
            value if Some(value) == initial => None,
            value => Some(json_to_bytes(value)?),
        };
        let key = json_to_bytes(key)?;
        Ok(Element { kind, key, value })
    }

    fn into_history(mut self) -> History {
        for operation in self.operations {
            self.history.push(operation);
        }
        self.history
    }
}

fn json_to_bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Number(number) => Ok(number.to_string().into_bytes()),
        Value::Object(fields) => fields
            .get("hex")
            .and_then(Value::as_str)
            .and_then(unhex)
            .ok_or_else(|| format!("{value} is neither a string nor {{\"hex\":\"…\"}}")),
        _ => Err(format!("{value} is neither a string nor a number")),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |byte: u8| (byte as char).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? * 16 + digit(low)?).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

fn version(value: &Value) -> Result<u128, String> {
    let version = match value {
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    version.ok_or_else(|| format!("{value} is not a version: a whole number below 2^128"))
}
