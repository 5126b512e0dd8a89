//! Histories and what belongs to them, from files.

use std::fs::File;
use std::io::{self, BufWriter, Read};

use anyhow::Context as _;
use dkvf_check::formats::{self, Format, ReadError};
use dkvf_check::{Groups, History};

use crate::usage;

/// More entity groups are refused.
const GROUPS_MAX: usize = 10_000;
/// A longer file of entity groups is refused.
const GROUPS_BYTES_MAX: u64 = 64 << 20;

/// Reads a history from a file, or from standard input for `-`.
///
/// # Errors
/// The file cannot be read or is malformed; the message names it, the line and the reason.
pub fn read(file: &str, format: &str) -> anyhow::Result<History> {
    let format = match format {
        "auto" => None,
        name => Some(self::format("--format", name)?),
    };
    let source: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin()),
        name => {
            let opened = File::open(name);
            Box::new(opened.map_err(|error| usage(format!("cannot open {name}: {error}")))?)
        }
    };
    let read = match format {
        Some(format) => formats::read(format, source),
        None => formats::read_any(source, file).map(|(_, history)| history),
    };
    read.map_err(|error| match error {
        ReadError::Malformed { .. } => usage(format!(
            "{file}: {error}; repair it, or name its format with --format"
        )),
        ReadError::Io(_) => usage(format!("{file}: {error}")),
    })
}

/// Writes `history` in another format and says what that loses.
///
/// # Errors
/// There is no such format, it can only be read, or the file cannot be written.
pub fn export(history: &History, format: &str, target: &str) -> anyhow::Result<()> {
    let format = self::format("--export", format)?;
    if format == Format::JepsenLog {
        return Err(usage(format!(
            "--export {format}: this format can only be read"
        )));
    }
    let written =
        File::create(target).and_then(|file| formats::write(format, history, BufWriter::new(file)));
    let losses = written.with_context(|| format!("cannot write {target}"))?;
    let lost: Vec<&str> = losses.0.iter().map(|loss| loss.text()).collect();
    if lost.is_empty() {
        eprintln!("dkvf: {target} keeps all of the history");
    } else {
        eprintln!("dkvf: {target} does not keep: {}", lost.join("; "));
    }
    Ok(())
}

/// Reads which key belongs to which entity group: on each line a key, a tab and the name of its group.
///
/// # Errors
/// The file cannot be read, a line has no tab, or there is too much of it.
pub fn groups(file: &str) -> anyhow::Result<Groups> {
    let wrong = |problem: String| usage(format!("--groups {file}: {problem}"));
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| wrong(error.to_string()))?;
    let mut opened = opened.take(GROUPS_BYTES_MAX + 1);
    opened
        .read_to_string(&mut text)
        .map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > GROUPS_BYTES_MAX {
        return Err(wrong(format!("longer than {GROUPS_BYTES_MAX} bytes")));
    }
    let mut groups = Groups::default();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let Some((key, group)) = line.split_once('\t') else {
            return Err(wrong(format!(
                "line {number}: not a key, a tab and the name of its group"
            )));
        };
        groups.insert(key.as_bytes(), group);
        if groups.names().len() > GROUPS_MAX {
            return Err(wrong(format!(
                "line {number}: more than {GROUPS_MAX} groups"
            )));
        }
    }
    Ok(groups)
}

fn format(option: &str, name: &str) -> anyhow::Result<Format> {
    name.parse()
        .map_err(|error| usage(format!("{option}: {error}")))
}
