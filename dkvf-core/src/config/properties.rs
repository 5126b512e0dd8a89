//! Free `key = value` pairs, read by protocols and storage engines with types and defaults of their
//! own.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use super::error::{Aside, ConfigError, Origin, Result, quote};
use super::limits::TIME_MS_MAX;

/// The properties of `<protocol_properties>` or `<storage>`.
///
/// Every getter parses, takes a default, and on bad input names file, line and property:
/// ```
/// # use dkvf_core::config::Properties;
/// # use std::time::Duration;
/// # fn main() -> anyhow::Result<()> {
/// let mut properties = Properties::default();
/// properties.set("heartbeat_interval", 20);
/// let default = Duration::from_millis(10);
/// assert_eq!(properties.duration_ms("heartbeat_interval", default)?, Duration::from_millis(20));
/// assert_eq!(properties.get("fanout", 2)?, 2);
/// # Ok(())
/// # }
/// ```
/// They also remember what was asked for, see [`unused`](Self::unused).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    origin: Aside<Origin>,
    entries: BTreeMap<String, Property>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Property {
    value: String,
    origin: Aside<Origin>,
    asked: Aside<OnceLock<()>>,
}

impl Properties {
    /// No properties yet, of the element that begins at `origin`.
    pub(super) fn new(origin: Origin) -> Self {
        Self {
            origin: Aside(origin),
            entries: BTreeMap::new(),
        }
    }

    /// Adds a property that a file gives.
    ///
    /// # Errors
    /// The file gives the key twice.
    pub(super) fn add(&mut self, key: &str, value: &str, origin: &Origin) -> Result<()> {
        if let Some(first) = self.entries.get(key) {
            let problem = format!("also given at {}; remove one of them", first.origin.0);
            return Err(ConfigError::new(origin, label(key), problem));
        }
        let property = Property {
            value: value.to_owned(),
            origin: Aside(origin.clone()),
            asked: Aside::default(),
        };
        self.entries.insert(key.to_owned(), property);
        Ok(())
    }

    /// Sets a property, replacing the value it has.
    pub fn set(&mut self, key: impl Into<String>, value: impl Display) {
        let property = Property {
            value: value.to_string(),
            origin: Aside::default(),
            asked: Aside::default(),
        };
        self.entries.insert(key.into(), property);
    }

    /// All keys and values, ordered by key. Does not count as asking for them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(key, property)| (key.as_str(), property.value.as_str()))
    }

    /// The value of a property, or the default if it is not given.
    ///
    /// # Errors
    /// The value cannot be read as a `T`.
    pub fn get<T: FromStr<Err: Display>>(&self, key: &str, default: T) -> Result<T> {
        self.get_any(&[key], default)
    }

    /// As [`get`](Self::get), for a property that goes by several names.
    ///
    /// # Errors
    /// The value cannot be read as a `T`, or the property is given under two of its names.
    pub fn get_any<T: FromStr<Err: Display>>(&self, keys: &[&str], default: T) -> Result<T> {
        Ok(self
            .find(keys)?
            .map(|(key, property)| parse(key, property, &property.value))
            .transpose()?
            .unwrap_or(default))
    }

    /// The value of a property that has no default.
    ///
    /// # Errors
    /// The property is missing, or cannot be read as a `T`.
    pub fn require<T: FromStr<Err: Display>>(&self, key: &str) -> Result<T> {
        match self.find(&[key])? {
            Some((key, property)) => parse(key, property, &property.value),
            None => Err(ConfigError::new(
                &self.origin,
                label(key),
                format!("missing; add <property key=\"{key}\" value=\"...\"/>"),
            )),
        }
    }

    /// A time, given in whole milliseconds.
    ///
    /// # Errors
    /// The value is not a whole number, or is longer than a day.
    pub fn duration_ms(&self, key: &str, default: Duration) -> Result<Duration> {
        self.duration_ms_any(&[key], default)
    }

    /// As [`duration_ms`](Self::duration_ms), for a property that goes by several names.
    ///
    /// # Errors
    /// The value is not a whole number or longer than a day, or the property is given under two of
    /// its names.
    pub fn duration_ms_any(&self, keys: &[&str], default: Duration) -> Result<Duration> {
        let Some((key, property)) = self.find(keys)? else {
            return Ok(default);
        };
        let ms = parse(key, property, &property.value)?;
        if ms > TIME_MS_MAX {
            let problem =
                format!("{ms} is longer than a day; write 0 to {TIME_MS_MAX} (milliseconds)");
            return Err(ConfigError::new(&property.origin, label(key), problem));
        }
        Ok(Duration::from_millis(ms))
    }

    /// A list, split at commas; empty if the property is not given or blank.
    ///
    /// # Errors
    /// An item is blank or cannot be read as a `T`.
    pub fn list<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Vec<T>> {
        match self.find(&[key])? {
            Some((key, property)) if !property.value.trim().is_empty() => property
                .value
                .split(',')
                .map(|item| parse(key, property, item))
                .collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// A warning for each property that nobody has asked for, most likely a slip: with file, line
    /// and key.
    pub fn unused(&self) -> Vec<String> {
        let unused = self
            .entries
            .iter()
            .filter(|(_, property)| property.asked.get().is_none());
        unused
            .map(|(key, property)| {
                ConfigError::new(
                    &property.origin,
                    label(key),
                    "nothing reads this property; correct its key or remove it",
                )
                .to_string()
            })
            .collect()
    }

    /// An error about a property, for values that parse and yet make no sense to the protocol.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        let origin = self
            .entries
            .get(key)
            .map_or(&self.origin, |property| &property.origin);
        ConfigError::new(origin, label(key), problem)
    }

    /// The property under the one of its names that is given.
    fn find<'a>(&'a self, keys: &[&'a str]) -> Result<Option<(&'a str, &'a Property)>> {
        let mut found: Option<(&str, &Property)> = None;
        for key in keys {
            let Some(property) = self.entries.get(*key) else {
                continue;
            };
            // A flag that is up already is as good.
            let _ = property.asked.set(());
            if let Some((first, _)) = found {
                let problem = format!(
                    "another name of the property {}, which is given too; remove one of them",
                    quote(first)
                );
                return Err(ConfigError::new(&property.origin, label(key), problem));
            }
            found = Some((key, property));
        }
        Ok(found)
    }
}

fn label(key: &str) -> String {
    format!("<property key={}>", quote(key))
}

fn parse<T: FromStr<Err: Display>>(key: &str, property: &Property, value: &str) -> Result<T> {
    value.trim().parse().map_err(|error| {
        let kind = std::any::type_name::<T>()
            .rsplit("::")
            .next()
            .unwrap_or_default();
        let problem = format!(
            "{} is not a {kind}: {error}; correct the value",
            quote(value.trim())
        );
        ConfigError::new(&property.origin, label(key), problem)
    })
}
