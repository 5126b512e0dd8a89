//! Where results go: tables and JSON; and progress bars.

use std::io::{IsTerminal, Write};

use anyhow::Context as _;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Writes `value` as JSON to a file, or to standard output if the name is `-`.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(target: &str, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    if target == "-" {
        print(&text)
    } else {
        std::fs::write(target, text).with_context(|| format!("cannot write {target}"))
    }
}

/// Prints to standard output. A reader that has gone away, as `head` does, is no error.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A table whose first column is text and whose others are numbers.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number people can read: `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whether standard error may be coloured: it is a terminal, and the user has not set `NO_COLOR`.
pub fn is_coloured() -> bool {
    std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A progress bar on standard error, if that is a terminal.
pub fn progress_bar() -> ProgressBar {
    if std::io::stderr().is_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    }
}

/// What a progress bar shows beside what it is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: nobody knows how much there is to do.
    Wait,
    /// How far it has come.
    Bar,
    /// And how many per second.
    Speed,
}

impl Shape {
    /// The style of indicatif for this.
    pub fn style(self) -> ProgressStyle {
        let template = match self {
            Shape::Wait => "{msg:<32}",
            Shape::Bar => "{msg:<32} {wide_bar} {percent:>3}% {eta:>4}",
            Shape::Speed => "{msg:<32} {wide_bar} {percent:>3}% {per_sec} {eta:>4}",
        };
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
