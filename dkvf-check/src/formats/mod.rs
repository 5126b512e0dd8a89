//! Histories of other tools, and ours: [`read()`] and [`write()`].
//!
//! Every byte of a file is taken for hostile: lengths, nesting and memory are bounded, and an error names the line.

mod bincode;
mod datum;
mod dbcop_json;
mod dbcop_text;
mod detect;
mod events;
mod export;
mod input;
mod jepsen;
mod jepsen_log;
mod jepsen_write;
mod losses;
pub mod native;
mod polysi;
mod sessions;
mod timekiller;

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use crate::history::History;

pub use detect::detect;
pub use input::{FILE_BYTES_MAX, LINE_BYTES_MAX, ReadError};
pub use losses::{Loss, Losses};

use datum::Syntax;
use input::{Input, Lines};

/// More sites are malformed.
pub const SITES_MAX: usize = 1024;

/// A format of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// JSON lines of ours: [`native`].
    Native,
    /// `history.edn` of Jepsen: transactions of Elle, or reads, writes and compare-and-sets of Knossos.
    JepsenEdn,
    /// The same fields as an array of JSON objects, or one on each line.
    JepsenJson,
    /// `INFO jepsen.util - 0 :invoke :read nil`, the log of early Jepsen. Can only be read.
    JepsenLog,
    /// EDN maps with a `:key` and texts as values, of the tests of Porcupine.
    PorcupineKv,
    /// Sessions of transactions of dbcop, as JSON.
    DbcopJson,
    /// `[x:=1 y==2]` of dbcop.
    DbcopHist,
    /// The binary files of the first dbcop (2019), which PolySI reads.
    DbcopBincode,
    /// `r(key,value,session,transaction)` of PolySI, Plume and IsoVista.
    PolysiText,
    /// Transactions with stamps, of Chronos and Aion.
    TimekillerJson,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 10] = [
        Format::Native,
        Format::JepsenEdn,
        Format::JepsenJson,
        Format::JepsenLog,
        Format::PorcupineKv,
        Format::DbcopJson,
        Format::DbcopHist,
        Format::DbcopBincode,
        Format::PolysiText,
        Format::TimekillerJson,
    ];

    /// The name people and scripts use.
    pub fn name(self) -> &'static str {
        match self {
            Format::Native => "native",
            Format::JepsenEdn => "jepsen-edn",
            Format::JepsenJson => "jepsen-json",
            Format::JepsenLog => "jepsen-log",
            Format::PorcupineKv => "porcupine-kv",
            Format::DbcopJson => "dbcop-json",
            Format::DbcopHist => "dbcop-hist",
            Format::DbcopBincode => "dbcop-bincode",
            Format::PolysiText => "polysi-text",
            Format::TimekillerJson => "timekiller-json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// There is no format of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no format {0:?}; there are: {names}", names = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat(pub String);

/// Reads a history, also one that gzip has compressed.
///
/// # Errors
///
/// [`ReadError::Io`] when `source` fails, [`ReadError::Malformed`] with the first line that is not of the format.
pub fn read(format: Format, source: impl Read) -> Result<History, ReadError> {
    read_input(format, Input::open(source)?)
}

/// Reads a history of whatever format it seems to be, judged by its beginning and the name of its file.
///
/// # Errors
///
/// As [`read`], and if the format is not recognised.
pub fn read_any(source: impl Read, file_name: &str) -> Result<(Format, History), ReadError> {
    let mut input = Input::open(source)?;
    let head = input.head()?;
    let format = detect(head, file_name).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        ReadError::at(
            1,
            format!("the format is not recognised; name one of: {names}"),
        )
    })?;
    Ok((format, read_input(format, input)?))
}

fn read_input<R: Read>(format: Format, mut input: Input<R>) -> Result<History, ReadError> {
    match format {
        Format::Native => native::read(input),
        Format::JepsenEdn | Format::PorcupineKv => jepsen::read(&input.all()?, Syntax::Edn),
        Format::JepsenJson => jepsen::read(&input.all()?, Syntax::Json),
        Format::JepsenLog => jepsen_log::read(Lines::new(input)),
        Format::DbcopJson => dbcop_json::read(&input.all()?),
        Format::DbcopHist => dbcop_text::read(Lines::new(input)),
        Format::DbcopBincode => bincode::read(&input.all()?),
        Format::PolysiText => polysi::read(Lines::new(input)),
        Format::TimekillerJson => timekiller::read(&input.all()?),
    }
}

/// Writes `history` and says what the file does not keep of it.
///
/// # Errors
///
/// Those of `out`; [`io::ErrorKind::Unsupported`] for [`Format::JepsenLog`].
pub fn write(format: Format, history: &History, mut out: impl Write) -> io::Result<Losses> {
    let mut losses = Losses::default();
    match format {
        Format::Native => native::write(history, &mut out)?,
        Format::JepsenEdn => jepsen_write::write(history, Syntax::Edn, &mut out, &mut losses)?,
        Format::JepsenJson => jepsen_write::write(history, Syntax::Json, &mut out, &mut losses)?,
        Format::PorcupineKv => jepsen_write::write_kv(history, &mut out, &mut losses)?,
        Format::JepsenLog => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the format jepsen-log can only be read",
            ));
        }
        Format::DbcopJson => dbcop_json::write(history, &mut out, &mut losses)?,
        Format::DbcopHist => dbcop_text::write(history, &mut out, &mut losses)?,
        Format::DbcopBincode => bincode::write(history, &mut out, &mut losses)?,
        Format::PolysiText => polysi::write(history, &mut out, &mut losses)?,
        Format::TimekillerJson => timekiller::write(history, &mut out, &mut losses)?,
    }
    out.flush()?;
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_formats_are_inverse() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let error = "xml".parse::<Format>().unwrap_err().to_string();
        assert!(
            error.starts_with("no format \"xml\"; there are: native, jepsen-edn"),
            "{error}"
        );
    }
}
