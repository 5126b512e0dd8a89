//! Histories and what belongs to them, from files.

use std::fs::File;
use std::io::{self, BufWriter, Read};

use anyhow::Context as _;
use dkvf_check::History;
use dkvf_check::formats::{self, Format, ReadError};

use crate::usage;

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
        return Err(usage(format!("--export {format}: this format can only be read")));
    }
    let written = File::create(target)
        .and_then(|file| formats::write(format, history, BufWriter::new(file)));
    let losses = written.with_context(|| format!("cannot write {target}"))?;
    if losses.is_empty() {
        eprintln!("dkvf: {target} keeps all of the history");
    } else {
        eprintln!("dkvf: {target} does not keep {losses}");
    }
    Ok(())
}

fn format(option: &str, name: &str) -> anyhow::Result<Format> {
    name.parse().map_err(|error| usage(format!("{option}: {error}")))
}
