//! Files that are read and written as a whole.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;

use crate::usage;

/// A larger file is refused.
const BYTES_MAX: u64 = 16 << 20;

/// The text of a file that `option` names.
///
/// # Errors
/// It cannot be read, is too large, or not UTF-8.
pub fn read(option: &str, file: &str) -> anyhow::Result<String> {
    let wrong = |error: std::io::Error| usage(format!("{option} {file}: {error}"));
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(wrong)?;
    opened
        .take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(wrong)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(usage(format!(
            "{option} {file}: larger than {BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// Checks before a long run that a file can be written. It is not emptied: what it has stays until there is something new.
///
/// # Errors
/// It cannot.
pub fn prepare(option: &str, file: &Path) -> anyhow::Result<()> {
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file);
    opened.map_err(|error| {
        usage(format!(
            "{option} {}: cannot write it: {error}",
            file.display()
        ))
    })?;
    Ok(())
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
pub fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
