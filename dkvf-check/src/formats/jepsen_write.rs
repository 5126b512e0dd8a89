//! Writing histories for Jepsen's tools and for Porcupine.

use std::io::{self, Write};

use crate::history::{Action, History, Operation, Outcome, TxnId, ValueId};

use super::datum::Syntax;
use super::events::{Phase, events_by_time};
use super::losses::{Loss, Losses};

/// Writes a history. Transactions become those of Elle; if there are compare-and-sets or locks, single operations become
/// those of Knossos, with the key in the value.
pub(super) fn write(
    history: &History,
    syntax: Syntax,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    losses.add_common(history);
    losses.add_if(!history.about.has_time(), Loss::RealTime);
    let is_moved =
        |transaction: &crate::history::Transaction| transaction.session != transaction.process;
    losses.add_if(history.transactions().iter().any(is_moved), Loss::Sessions);
    let writer = Writer {
        history,
        notation: Notation { syntax },
        is_of_objects: history.operations().iter().any(|op| {
            matches!(
                op.action,
                Action::Cas { .. } | Action::Acquire | Action::Release
            )
        }),
    };
    let is_array = syntax == Syntax::Json;
    let mut separator = if is_array { "[" } else { "" };
    let mut index = 0;
    for (at_us, id, phase) in events_by_time(history) {
        let Some((f, value)) = writer.value(id, phase, losses) else {
            continue;
        };
        let fields = [
            ("index", index.to_string()),
            ("time", (u128::from(at_us) * 1000).to_string()),
            ("type", writer.notation.name(kind(history, id, phase))),
            ("process", history.transactions()[id].process.to_string()),
            ("f", writer.notation.name(f)),
            ("value", value),
        ];
        let fields = fields.map(|(name, value)| writer.notation.field(name, &value));
        write!(out, "{separator}{{{}}}", fields.join(", "))?;
        separator = if is_array { ",\n" } else { "\n" };
        index += 1;
    }
    match (is_array, index) {
        (true, 0) => out.write_all(b"[]\n"),
        (true, _) => out.write_all(b"]\n"),
        (false, 0) => Ok(()),
        (false, _) => out.write_all(b"\n"),
    }
}

/// Writes gets, puts and appends of texts.
pub(super) fn write_kv(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    losses.add_common(history);
    losses.add_if(history.about.has_time(), Loss::Times);
    losses.add_if(!history.about.has_time(), Loss::RealTime);
    let is_moved =
        |transaction: &crate::history::Transaction| transaction.session != transaction.process;
    losses.add_if(history.transactions().iter().any(is_moved), Loss::Sessions);
    let kept = losses.kept(history, false);
    let notation = Notation {
        syntax: Syntax::Edn,
    };
    for (_, id, phase) in events_by_time(history) {
        let transaction = &history.transactions()[id];
        let [op] = &history.operations()[history.operations_of(id)] else {
            losses.0.insert(Loss::Operations);
            continue;
        };
        let is_unknown = transaction.outcome == Outcome::Info && phase == Phase::Complete;
        let (f, value) = match op.action {
            _ if !kept[id] || is_unknown => continue,
            Action::Read(_) if phase == Phase::Invoke => ("get", "nil".to_owned()),
            Action::Read(None) => ("get", "\"\"".to_owned()),
            Action::Read(value) => ("get", notation.text(history, value, losses)),
            Action::Write(None) => ("put", "\"\"".to_owned()),
            Action::Write(value) => ("put", notation.text(history, value, losses)),
            Action::Append(value) => ("append", notation.text(history, Some(value), losses)),
            _ => {
                losses.0.insert(Loss::Operations);
                continue;
            }
        };
        let fields = [
            ("process", transaction.process.to_string()),
            ("type", notation.name(kind(history, id, phase))),
            ("f", notation.name(f)),
            ("key", notation.quoted(history.key(op.key), losses)),
            ("value", value),
        ];
        let fields = fields.map(|(name, value)| notation.field(name, &value));
        writeln!(out, "{{{}}}", fields.join(", "))?;
    }
    Ok(())
}

fn kind(history: &History, id: TxnId, phase: Phase) -> &'static str {
    match (phase, history.transactions()[id].outcome) {
        (Phase::Invoke, _) => "invoke",
        (Phase::Complete, Outcome::Ok) => "ok",
        (Phase::Complete, Outcome::Fail) => "fail",
        (Phase::Complete, Outcome::Info) => "info",
    }
}

struct Writer<'h> {
    history: &'h History,
    notation: Notation,
    is_of_objects: bool,
}

impl Writer<'_> {
    /// `:f` and `:value` of an event; `None` if nothing of the transaction can be said.
    fn value(
        &self,
        id: TxnId,
        phase: Phase,
        losses: &mut Losses,
    ) -> Option<(&'static str, String)> {
        let operations = &self.history.operations()[self.history.operations_of(id)];
        if let ([operation], true) = (operations, self.is_of_objects) {
            return self.object(operation, phase, losses);
        }
        let elements: Vec<String> = operations
            .iter()
            .filter_map(|operation| {
                let (f, value) = self.element(operation, phase, losses)?;
                let key = self
                    .notation
                    .scalar(self.history.key(operation.key), losses);
                Some(self.notation.list(&[self.notation.name(f), key, value]))
            })
            .collect();
        (!elements.is_empty()).then(|| ("txn", self.notation.list(&elements)))
    }

    fn object(
        &self,
        operation: &Operation,
        phase: Phase,
        losses: &mut Losses,
    ) -> Option<(&'static str, String)> {
        let key = self
            .notation
            .scalar(self.history.key(operation.key), losses);
        let (f, value) = self.element(operation, phase, losses)?;
        Some(match f {
            "acquire" | "release" => (f, key),
            "r" => ("read", self.notation.list(&[key, value])),
            "w" => ("write", self.notation.list(&[key, value])),
            _ => (f, self.notation.list(&[key, value])),
        })
    }

    fn element(
        &self,
        operation: &Operation,
        phase: Phase,
        losses: &mut Losses,
    ) -> Option<(&'static str, String)> {
        let mut scalar = |value: Option<ValueId>| match value {
            Some(value) => self.notation.scalar(self.history.value(value), losses),
            None => self.notation.nil(),
        };
        Some(match operation.action {
            Action::Read(_) | Action::ReadList(_) if phase == Phase::Invoke => ("r", scalar(None)),
            Action::Read(value) => ("r", scalar(value)),
            Action::ReadList(list) => {
                let elements = self.history.list(list).iter();
                let elements: Vec<String> = elements.map(|&value| scalar(Some(value))).collect();
                ("r", self.notation.list(&elements))
            }
            Action::Write(value) => ("w", scalar(value)),
            Action::Append(value) => ("append", scalar(Some(value))),
            Action::Cas { expected, new } => {
                let values = [scalar(expected), scalar(new)];
                ("cas", self.notation.list(&values))
            }
            Action::Acquire => ("acquire", scalar(None)),
            Action::Release => ("release", scalar(None)),
            Action::Scan(_) => {
                losses.0.insert(Loss::Operations);
                return None;
            }
        })
    }
}

/// How values are written in one of the two syntaxes.
struct Notation {
    syntax: Syntax,
}

impl Notation {
    fn nil(&self) -> String {
        match self.syntax {
            Syntax::Edn => "nil".to_owned(),
            Syntax::Json => "null".to_owned(),
        }
    }

    fn name(&self, name: &str) -> String {
        match self.syntax {
            Syntax::Edn => format!(":{name}"),
            Syntax::Json => format!("\"{name}\""),
        }
    }

    fn field(&self, name: &str, value: &str) -> String {
        match self.syntax {
            Syntax::Edn => format!(":{name} {value}"),
            Syntax::Json => format!("\"{name}\": {value}"),
        }
    }

    fn list(&self, elements: &[String]) -> String {
        let separator = match self.syntax {
            Syntax::Edn => " ",
            Syntax::Json => ", ",
        };
        format!("[{}]", elements.join(separator))
    }

    /// A number if the bytes are one that every reader knows exactly, else a text.
    fn scalar(&self, bytes: &[u8], losses: &mut Losses) -> String {
        let number = str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        let is_exact = |number: &i64| {
            number.unsigned_abs() <= 1 << 53 && number.to_string().as_bytes() == bytes
        };
        match number.filter(is_exact) {
            Some(number) => number.to_string(),
            None => self.quoted(bytes, losses),
        }
    }

    fn text(&self, history: &History, value: Option<ValueId>, losses: &mut Losses) -> String {
        match value {
            Some(value) => self.quoted(history.value(value), losses),
            None => self.nil(),
        }
    }

    /// A text. The escapes of JSON are those of EDN, too.
    fn quoted(&self, bytes: &[u8], losses: &mut Losses) -> String {
        let text = String::from_utf8_lossy(bytes);
        losses.add_if(text.as_bytes() != bytes, Loss::Bytes);
        serde_json::Value::from(text.into_owned()).to_string()
    }
}
