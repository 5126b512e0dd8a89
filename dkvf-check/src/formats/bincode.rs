//! The binary files of the first dbcop (2019), which PolySI and other checkers read: little-endian numbers of 64 bits.
//!
//! ```text
//! history     = id nodes variables transactions events  info start end  sessions
//! info, start, end = length bytes
//! sessions    = length session*      session = length transaction*
//! transaction = length event* success       event = is_write key value success
//! ```
//! `is_write` and `success` are single bytes. The value 0 is the initial version.

use std::io::{self, Write};

use crate::history::History;

use super::export::{Ability, Export};
use super::input::ReadError;
use super::losses::Losses;
use super::sessions::{Sessions, without_zero};

/// Reads a history.
pub(super) fn read(bytes: &[u8]) -> Result<History, ReadError> {
    let mut bytes = Bytes { bytes, at: 0 };
    let history = bytes.history();
    history.map_err(|reason| ReadError::at(1, format!("{reason} (byte {})", bytes.at)))
}

struct Bytes<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Bytes<'_> {
    fn history(&mut self) -> Result<History, String> {
        for _ in 0..5 {
            self.number()?;
        }
        for _ in 0..3 {
            let length = self.length(1)?;
            self.at += length;
        }
        let mut sessions = Sessions::new("dbcop");
        let session_count = self.length(8)?;
        for session in 0..session_count as u32 {
            for _ in 0..self.length(9)? {
                self.transaction(&mut sessions, session)?;
            }
        }
        match self.bytes.len() - self.at {
            0 => Ok(without_zero(sessions.history)),
            rest => Err(format!("{rest} bytes follow the history")),
        }
    }

    fn transaction(&mut self, sessions: &mut Sessions, session: u32) -> Result<(), String> {
        let mut operations = Vec::new();
        for _ in 0..self.length(18)? {
            let is_write = self.flag()?;
            let (key, value) = (self.number()?, self.number()?);
            if self.flag()? {
                let (key, value) = (sessions.key(key), sessions.value(value));
                operations.push(sessions.access(is_write, key, Some(value)));
            }
        }
        let is_committed = self.flag()?;
        sessions.push(session, is_committed, operations);
        Ok(())
    }

    fn number(&mut self) -> Result<u64, String> {
        let number = self.bytes[self.at..].first_chunk::<8>();
        let number = number.ok_or("the file ends within a number")?;
        self.at += 8;
        Ok(u64::from_le_bytes(*number))
    }

    fn flag(&mut self) -> Result<bool, String> {
        let flag = self
            .bytes
            .get(self.at)
            .ok_or("the file ends where a flag is expected")?;
        self.at += 1;
        match flag {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("a flag is {other}")),
        }
    }

    /// A number of things of at least `size` bytes each: more than fit in the rest of the file are malformed.
    fn length(&mut self, size: usize) -> Result<usize, String> {
        let length = self.number()?;
        let rest = (self.bytes.len() - self.at) / size;
        match usize::try_from(length) {
            Ok(length) if length <= rest => Ok(length),
            _ => Err(format!(
                "a length is {length}, which is beyond the end of the file"
            )),
        }
    }
}

/// Writes a history.
pub(super) fn write(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    let ability = Ability {
        failed: true,
        ..Ability::default()
    };
    let export = Export::new(history, ability, losses);
    let transactions = export.sessions.iter().flatten();
    let events = transactions.clone().map(|exported| exported.accesses.len());
    let (transactions, events) = (transactions.count(), events.sum());
    for number in [
        0,
        export.sessions.len(),
        history.key_count(),
        transactions,
        events,
    ] {
        write_number(out, number as u64)?;
    }
    for text in ["dkvf", "", ""] {
        write_number(out, text.len() as u64)?;
        out.write_all(text.as_bytes())?;
    }
    write_number(out, export.sessions.len() as u64)?;
    for session in &export.sessions {
        write_number(out, session.len() as u64)?;
        for exported in session {
            write_number(out, exported.accesses.len() as u64)?;
            for access in &exported.accesses {
                out.write_all(&[u8::from(access.is_write)])?;
                write_number(out, export.key(access.key))?;
                write_number(out, access.value.unwrap_or(0))?;
                out.write_all(&[1])?;
            }
            out.write_all(&[u8::from(exported.is_committed)])?;
        }
    }
    Ok(())
}

fn write_number(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}
