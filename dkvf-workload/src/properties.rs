//! Property files as Java and YCSB read them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

/// A larger property file is refused.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A workload could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PropertyError {
    /// The file could not be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error("{path} is larger than {FILE_BYTES_MAX} bytes: not a property file")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// A line is not a property.
    #[error("{place}: {reason}")]
    Syntax {
        /// File and line.
        place: Place,
        /// What is wrong with the line.
        reason: String,
    },
    /// A property has a value that is not allowed.
    #[error("{place}: {key} is {value:?}; allowed: {allowed}")]
    Value {
        /// Where it was set.
        place: Place,
        /// The property.
        key: String,
        /// Its value.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A property without a default is not set.
    #[error("{source_name}: {key} is not set; it has no default")]
    Missing {
        /// The file, or the name of the built-in workload.
        source_name: String,
        /// The property.
        key: String,
    },
    /// Properties that are right one by one contradict each other.
    #[error("{source_name}: {reason}")]
    Contradiction {
        /// The file, or the name of the built-in workload.
        source_name: String,
        /// What they contradict each other in.
        reason: String,
    },
}

/// Where a property was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a line of a file, from 1; the first of a continued line.
    Line {
        /// The file.
        file: String,
        /// The line.
        line: u32,
    },
    /// On the command line.
    Override,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::Override => write!(f, "-p"),
        }
    }
}

struct Property {
    value: String,
    /// `None` for an override.
    line: Option<u32>,
}

/// The properties of one file and the overrides on top.
///
/// The syntax is that of `java.util.Properties`: comments start with `#` or `!`,
/// `=`, `:` or blanks separate key and value, a backslash escapes or, at the end
/// of a line, continues it; the last of several equal keys counts. The text is
/// UTF-8, or Latin-1 where it is not valid UTF-8. Unlike in Java, blanks around a
/// value do not count.
pub struct Properties {
    source_name: String,
    entries: BTreeMap<String, Property>,
}

impl Properties {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is larger than [`FILE_BYTES_MAX`] or has a
    /// malformed escape.
    pub fn read(path: &Path) -> Result<Self, PropertyError> {
        let name = path.display().to_string();
        let io_error = |error| PropertyError::Io {
            path: name.clone(),
            error,
        };
        let file = File::open(path).map_err(io_error)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(io_error)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(PropertyError::TooLarge { path: name });
        }
        Properties::parse(name, &bytes)
    }

    /// Reads the text of a property file; errors call it `source_name`.
    ///
    /// # Errors
    ///
    /// When an escape is malformed.
    pub fn parse(source_name: impl Into<String>, text: &[u8]) -> Result<Self, PropertyError> {
        let mut properties = Properties {
            source_name: source_name.into(),
            entries: BTreeMap::new(),
        };
        let text = match str::from_utf8(text) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
            Err(_) => text.iter().map(|&byte| char::from(byte)).collect(),
        };
        for (line, text) in logical_lines(&text) {
            let (key, value) = key_and_value(&text).map_err(|reason| PropertyError::Syntax {
                place: properties.line(line),
                reason,
            })?;
            let line = Some(line);
            properties.entries.insert(key, Property { value, line });
        }
        Ok(properties)
    }

    /// Sets a property as `-p key=value` does.
    pub fn set(&mut self, key: &str, value: &str) {
        let property = Property {
            value: value.trim().to_owned(),
            line: None,
        };
        self.entries.insert(key.trim().to_owned(), property);
    }

    /// The file, or the name of the built-in workload.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// All keys, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The value of `key`, if it is set.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|entry| entry.value.as_str())
    }

    /// Where `key` was set, if it was.
    pub fn place(&self, key: &str) -> Option<Place> {
        let entry = self.entries.get(key)?;
        Some(entry.line.map_or(Place::Override, |line| self.line(line)))
    }

    fn line(&self, line: u32) -> Place {
        Place::Line {
            file: self.source_name.clone(),
            line,
        }
    }

    /// The whole number `key`, or `None` when it is not set.
    ///
    /// # Errors
    ///
    /// When it is not a whole number of `range`.
    pub fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, PropertyError> {
        let allowed = || {
            let (low, high) = (range.start(), range.end());
            format!("a whole number from {low} to {high}")
        };
        self.parsed(key, |number| range.contains(number), allowed)
    }

    /// The number `key`, or `default` when it is not set.
    ///
    /// # Errors
    ///
    /// When it is not a number of `range`.
    pub fn number(
        &self,
        key: &str,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> Result<f64, PropertyError> {
        let allowed = || {
            let (low, high) = (range.start(), range.end());
            if *high == f64::MAX {
                format!("a number, at least {low}")
            } else {
                format!("a number from {low} to {high}")
            }
        };
        let number = self.parsed(key, |number| range.contains(number), allowed)?;
        Ok(number.unwrap_or(default))
    }

    /// Whether `key` is `true`, or `default` when it is not set.
    ///
    /// # Errors
    ///
    /// When it is neither `true` nor `false`.
    pub fn boolean(&self, key: &str, default: bool) -> Result<bool, PropertyError> {
        self.choice(key, default, &[("true", true), ("false", false)])
    }

    /// What `key` stands for among `choices`, or `default` when it is not set.
    /// The case of letters does not matter.
    ///
    /// # Errors
    ///
    /// When it is none of them.
    pub fn choice<T: Copy>(
        &self,
        key: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, PropertyError> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let chosen = choices
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(value));
        match chosen {
            Some(&(_, choice)) => Ok(choice),
            None => {
                let names: Vec<_> = choices.iter().map(|&(name, _)| name).collect();
                Err(self.invalid(key, names.join(", ")))
            }
        }
    }

    fn parsed<T: FromStr>(
        &self,
        key: &str,
        is_allowed: impl Fn(&T) -> bool,
        allowed: impl Fn() -> String,
    ) -> Result<Option<T>, PropertyError> {
        match self.get(key) {
            None => Ok(None),
            Some(text) => match text.parse().ok().filter(is_allowed) {
                Some(value) => Ok(Some(value)),
                None => Err(self.invalid(key, allowed())),
            },
        }
    }

    /// The error that `key` has a value which is not `allowed`.
    pub(crate) fn invalid(&self, key: &str, allowed: impl Into<String>) -> PropertyError {
        PropertyError::Value {
            place: self.place(key).unwrap_or(Place::Override),
            key: key.to_owned(),
            value: self.get(key).unwrap_or_default().to_owned(),
            allowed: allowed.into(),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// The lines that hold properties, each with the number of its first natural
/// line and joined with those that continue it.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<(u32, String)> = None;
    for (number, line) in (1..).zip(unix.split('\n')) {
        let line = line.trim_start_matches(is_blank);
        let (first, mut joined) = match open.take() {
            Some(open) => open,
            None if line.is_empty() || line.starts_with(['#', '!']) => continue,
            None => (number, String::new()),
        };
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        if backslashes % 2 == 1 {
            joined.push_str(&line[..line.len() - 1]);
            open = Some((first, joined));
        } else {
            joined.push_str(line);
            lines.push((first, joined));
        }
    }
    lines.extend(open);
    lines
}

fn key_and_value(line: &str) -> Result<(String, String), String> {
    let mut escaped = false;
    let is_end = |c: char| {
        let is_separator = !escaped && (is_blank(c) || matches!(c, '=' | ':'));
        escaped = !escaped && c == '\\';
        is_separator
    };
    let (key, rest) = line.split_at(line.find(is_end).unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    Ok((unescape(key)?, unescape(value.trim_matches(is_blank))?))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            result.push(c);
            continue;
        }
        match rest.next() {
            Some('t') => result.push('\t'),
            Some('n') => result.push('\n'),
            Some('r') => result.push('\r'),
            Some('f') => result.push('\x0c'),
            Some('u') => {
                let digits: String = rest.by_ref().take(4).collect();
                let unit = u16::from_str_radix(&digits, 16)
                    .ok()
                    .filter(|_| digits.len() == 4 && !digits.starts_with('+'));
                let unit = unit.ok_or_else(|| {
                    format!("\\u{digits} is not an escape: \\u and four hexadecimal digits are")
                })?;
                // Java strings are UTF-16; half of a surrogate pair names no
                // character, and no property needs one.
                result.push(char::from_u32(u32::from(unit)).unwrap_or('\u{fffd}'));
            }
            Some(other) => result.push(other),
            None => {}
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: impl AsRef<[u8]>) -> Properties {
        Properties::parse("file", text.as_ref()).unwrap()
    }

    #[track_caller]
    fn assert_pairs(text: impl AsRef<[u8]>, expected: &[(&str, &str)]) {
        let properties = parse(text);
        let pairs: Vec<_> = properties
            .keys()
            .map(|key| (key, properties.get(key).unwrap()))
            .collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn all_separators_and_comments_are_understood() {
        assert_pairs(
            "# one\n! two\n  # three\n\na=1\nb = 2\nc:3\nd : 4\ne 5\nf\t=\t6\n\x0cg=7\nh\ni=\nj==k",
            &[
                ("a", "1"),
                ("b", "2"),
                ("c", "3"),
                ("d", "4"),
                ("e", "5"),
                ("f", "6"),
                ("g", "7"),
                ("h", ""),
                ("i", ""),
                ("j", "=k"),
            ],
        );
    }

    #[test]
    fn lines_end_in_any_of_three_ways() {
        assert_pairs(
            "a=1\r\nb=2\rc=3\nd=4",
            &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
        );
    }

    #[test]
    fn a_backslash_continues_a_line_and_an_even_number_does_not() {
        assert_pairs(
            "a=1,\\\n   2,\\\r\n\t#3\nb=x\\\\\nc=y\\",
            &[("a", "1,2,#3"), ("b", "x\\"), ("c", "y")],
        );
        assert_pairs("# comment \\\na=1", &[("a", "1")]);
    }

    #[test]
    fn escapes_are_resolved_in_keys_and_values() {
        assert_pairs(r"a\=b\:c\ d = \t\u0041\q\\ ", &[("a=b:c d", "\tAq\\")]);
        assert_pairs(r"a\\=b", &[("a\\", "b")]);
    }

    #[test]
    fn malformed_escapes_are_refused_with_their_line() {
        for text in ["\na=\\u12", "\na=\\u12g4", "\na=\\u+123"] {
            let error = Properties::parse("w.properties", text.as_bytes())
                .err()
                .expect("an error");
            assert!(
                error.to_string().starts_with("w.properties:2: \\u"),
                "{error}"
            );
        }
    }

    #[test]
    fn text_is_utf8_or_else_latin1() {
        assert_pairs("a=é".as_bytes(), &[("a", "é")]);
        assert_pairs(b"a=\xe9", &[("a", "é")]);
        assert_pairs("\u{feff}a=1", &[("a", "1")]);
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_an_override_beats_it() {
        let mut properties = parse("a=1\na=2\nb=3");
        assert_eq!(properties.get("a"), Some("2"));
        assert_eq!(properties.place("a").unwrap().to_string(), "file:2");
        properties.set("a", " 4 ");
        assert_eq!(properties.get("a"), Some("4"));
        assert_eq!(properties.place("a"), Some(Place::Override));
        assert_eq!(properties.place("c"), None);
    }

    #[test]
    fn errors_name_place_key_value_and_what_is_allowed() {
        let mut properties =
            parse("\nrecordcount=12x\nproportion=1.5\nflag=yes\norder=random\\\n!");
        let text = |error: Option<PropertyError>| error.expect("an error").to_string();
        assert_eq!(
            text(properties.integer("recordcount", 1..=9).err()),
            "file:2: recordcount is \"12x\"; allowed: a whole number from 1 to 9"
        );
        assert_eq!(
            text(properties.number("proportion", 0.0, 0.0..=1.0).err()),
            "file:3: proportion is \"1.5\"; allowed: a number from 0 to 1"
        );
        assert_eq!(
            text(properties.boolean("flag", true).err()),
            "file:4: flag is \"yes\"; allowed: true, false"
        );
        assert_eq!(
            text(
                properties
                    .choice("order", 0, &[("hashed", 1), ("ordered", 2)])
                    .err()
            ),
            "file:5: order is \"random!\"; allowed: hashed, ordered"
        );
        properties.set("recordcount", "10");
        assert_eq!(
            text(properties.integer("recordcount", 1..=9).err()),
            "-p: recordcount is \"10\"; allowed: a whole number from 1 to 9"
        );
        properties.set("proportion", "NaN");
        assert_eq!(
            text(properties.number("proportion", 0.0, 0.0..=f64::MAX).err()),
            "-p: proportion is \"NaN\"; allowed: a number, at least 0"
        );
    }

    #[test]
    fn typed_values_and_defaults() {
        let properties = parse("n=7\nx=0.25\nb=TRUE\nc=Ordered");
        assert_eq!(properties.integer("n", 0..=9).unwrap(), Some(7));
        assert_eq!(properties.integer("absent", 0..=9).unwrap(), None);
        assert_eq!(properties.number("x", 0.5, 0.0..=1.0).unwrap(), 0.25);
        assert_eq!(properties.number("absent", 0.5, 0.0..=1.0).unwrap(), 0.5);
        assert!(properties.boolean("b", false).unwrap());
        assert!(properties.boolean("absent", true).unwrap());
        let choices = [("hashed", 1), ("ordered", 2)];
        assert_eq!(properties.choice("c", 1, &choices).unwrap(), 2);
    }

    #[test]
    fn files_that_cannot_be_read_are_errors() {
        let absent = Path::new("no/such/file");
        assert!(matches!(
            Properties::read(absent),
            Err(PropertyError::Io { .. })
        ));
        assert!(matches!(
            Properties::read(Path::new(".")),
            Err(PropertyError::Io { .. })
        ));
        #[cfg(unix)]
        assert!(matches!(
            Properties::read(Path::new("/dev/zero")),
            Err(PropertyError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Properties::parse("file", &bytes);
        }

        #[test]
        fn no_text_of_special_characters_makes_the_parser_panic(text in "[a-c=: \\\\u0-9\r\n#!]{0,60}") {
            let _ = Properties::parse("file", text.as_bytes());
        }
    }
}
