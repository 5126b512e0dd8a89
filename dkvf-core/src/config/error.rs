//! Errors that say where, what and what to do.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The result of reading, checking or asking a configuration.
pub type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// A configuration is wrong. Shown as `node.xml:7: <client_prot>: unknown element; did you mean
/// <client_port>? ...`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {element}: {problem}")]
pub struct ConfigError {
    origin: Origin,
    element: String,
    problem: String,
}

impl ConfigError {
    pub(super) fn new(
        origin: &Origin,
        element: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self {
            origin: origin.clone(),
            element: element.into(),
            problem: problem.into(),
        }
    }

    /// The file and line at fault.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The element at fault, as `<client_port>` or `<property key="dc_id">`.
    pub fn element(&self) -> &str {
        &self.element
    }

    /// What is wrong, then the remedy.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// The place something was written at, shown as `file:line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// The line, from 1; `None` for the file as a whole and for what was never in a file.
    pub line: Option<u32>,
}

impl Origin {
    pub(super) fn whole(file: &str) -> Self {
        Self {
            file: file.into(),
            line: None,
        }
    }

    pub(super) fn at(&self, line: u32) -> Self {
        Self {
            file: self.file.clone(),
            line: Some(line),
        }
    }
}

/// What a program made, rather than a file.
impl Default for Origin {
    fn default() -> Self {
        Self::whole("(configuration in memory)")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// Something carried along that is no part of what a configuration says: all values are equal, so
/// that two configurations that say the same are equal wherever they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Aside<T>(pub(super) T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Aside<T> {}

impl<T> Deref for Aside<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Aside<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A user's text in a message: quoted, without control characters, and short.
pub(super) fn quote(text: &str) -> String {
    let short = shorten(text);
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}

/// The beginning of a text that a message repeats, however long the text is.
pub(super) fn shorten(text: &str) -> &str {
    const CHARS_MAX: usize = 100;
    let end = text.char_indices().nth(CHARS_MAX);
    end.map_or(text, |(end, _)| &text[..end])
}

/// The candidate that `given` is most likely a slip of: one letter in three may differ.
fn closest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = given.chars().count();
    if length > super::limits::NAME_BYTES_MAX {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(given, candidate), candidate))
        .filter(|(distance, _)| *distance <= length.div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What to write instead of an unknown word: the one likely meant, and all that are allowed, each
/// as `shown`.
pub(super) fn remedy<'a>(
    given: &str,
    allowed: impl Iterator<Item = &'a str> + Clone,
    shown: impl Fn(&str) -> String,
) -> String {
    let list = allowed.clone().map(&shown).collect::<Vec<_>>().join(", ");
    match closest(given, allowed) {
        _ if list.is_empty() => "remove it: nothing is allowed here".to_owned(),
        Some(likely) => format!("did you mean {}? Allowed here: {list}", shown(likely)),
        None => format!("allowed here: {list}"),
    }
}

/// Insertions, deletions and replacements between two words (Levenshtein), upper and lower case
/// being equal.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
