//! The fields of one line, taken one after the other: what is left over is unknown.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::{ScheduleError, TIME_US_MAX};

/// Most characters of the file that a message repeats.
const QUOTED_CHARS_MAX: usize = 80;

/// What is wrong with a line, before it is known which line it is.
#[derive(Debug)]
pub(super) struct Problem {
    field: Option<String>,
    problem: String,
}

impl Problem {
    pub(super) fn of_line(problem: impl Into<String>) -> Self {
        Problem {
            field: None,
            problem: problem.into(),
        }
    }

    pub(super) fn of_field(field: &str, problem: impl Into<String>) -> Self {
        Problem {
            field: Some(field.to_owned()),
            problem: problem.into(),
        }
    }

    pub(super) fn at(self, file: &str, line: u32) -> ScheduleError {
        ScheduleError {
            file: file.to_owned(),
            line: Some(line),
            field: self.field,
            problem: self.problem,
        }
    }
}

/// A text of the file in a message: quoted, without control characters, and short.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The same of a value; a number or list is shown as it was written.
fn quote_value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// An object's fields. Those that were asked for are the ones that may be there.
pub(super) struct Fields {
    left: Vec<(String, Value)>,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(super) fn read(line: &str) -> Result<Self, Problem> {
        let Object(left) = serde_json::from_str(line).map_err(|error| {
            Problem::of_line(format!(
                "{error}: write one object per line, such as {{\"at_ms\":500,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":200}}"
            ))
        })?;
        Ok(Fields {
            left,
            asked: Vec::new(),
        })
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        let place = self.left.iter().position(|(field, _)| field == name)?;
        Some(self.left.swap_remove(place).1)
    }

    /// A field that must be there.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<Option<T>, Problem>,
    ) -> Result<T, Problem> {
        read(self, name)?.ok_or_else(|| Problem::of_line(format!("{name:?} is missing: add it")))
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, &other, "a text in quotes")),
        }
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
        self.take(name)
            .map(|value| match value {
                Value::String(text) => Ok(vec![text]),
                value => texts(name, value),
            })
            .transpose()
    }

    /// A list of lists of texts.
    pub(super) fn lists(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Vec<Vec<String>>>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(lists)) => {
                let lists = lists.into_iter().map(|list| texts(name, list));
                lists.collect::<Result<_, _>>().map(Some)
            }
            Some(other) => Err(wrong(name, &other, "a list of lists of servers")),
        }
    }

    /// A boolean; false where it is absent.
    pub(super) fn boolean(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong(name, &other, "true or false")),
        }
    }

    pub(super) fn integer(
        &mut self,
        name: &'static str,
        min: i64,
        max: i64,
    ) -> Result<Option<i64>, Problem> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_i64() {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(
                name,
                &value,
                &format!("a whole number from {min} to {max}"),
            )),
        }
    }

    /// A time of at most [`TIME_US_MAX`], from milliseconds to microseconds.
    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        let time = self.milliseconds(name, 0.0)?;
        Ok(time.map(|us| us.unsigned_abs()))
    }

    /// The same, back if negative.
    pub(super) fn signed_time(&mut self, name: &'static str) -> Result<Option<i64>, Problem> {
        self.milliseconds(name, -(TIME_US_MAX as f64))
    }

    /// How long something lasts: at least a microsecond.
    pub(super) fn length(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        match self.time(name)? {
            Some(0) => Err(Problem::of_field(
                name,
                "a fault that lasts no time: give more than 0, or leave this out for one that lasts to the end",
            )),
            time => Ok(time),
        }
    }

    fn milliseconds(&mut self, name: &'static str, min_us: f64) -> Result<Option<i64>, Problem> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let us = value.as_f64().map(|ms| libm::round(ms * 1000.0));
        match us {
            Some(us) if (min_us..=TIME_US_MAX as f64).contains(&us) => Ok(Some(us as i64)),
            _ => {
                let allowed = format!(
                    "milliseconds from {} to {}",
                    min_us / 1000.0,
                    TIME_US_MAX / 1000
                );
                Err(wrong(name, &value, &allowed))
            }
        }
    }

    /// # Errors
    /// A field is left that nobody asked for.
    pub(super) fn nothing_else(&self, fault: &str) -> Result<(), Problem> {
        match self.left.first() {
            None => Ok(()),
            Some((field, _)) => Err(Problem::of_field(
                &quote(field),
                format!(
                    "{fault} has no such field; it has {}",
                    self.asked.join(", ")
                ),
            )),
        }
    }
}

fn texts(name: &str, value: Value) -> Result<Vec<String>, Problem> {
    const ALLOWED: &str = "a text in quotes or a list of them";
    let Value::Array(values) = value else {
        return Err(wrong(name, &value, ALLOWED));
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, &other, ALLOWED)),
    };
    values.into_iter().map(text).collect()
}

fn wrong(field: &str, value: &Value, allowed: &str) -> Problem {
    Problem::of_field(
        field,
        format!("it is {}; allowed: {allowed}", quote_value(value)),
    )
}

/// An object with each of its fields once.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                /// Far more than a fault has.
                const FIELDS_MAX: usize = 32;
                let mut fields: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom(format!("{} is there twice", quote(&name))));
                    }
                    if fields.len() == FIELDS_MAX {
                        return Err(A::Error::custom("no fault has so many fields"));
                    }
                    fields.push((name, value));
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
