//! The text notation of dbcop: `[x:=1 y==2 z==?]` is a transaction that wrote 1 to `x`, read 2 from `y` and found `z` initial;
//! `!` behind it says that it failed, `---` begins another session, `//` a comment.

use std::io::{self, BufRead, Write};

use crate::history::{History, Operation};

use super::export::{Ability, Export};
use super::input::{Lines, ReadError};
use super::losses::Losses;
use super::sessions::Sessions;

/// Reads a history.
pub(super) fn read(mut lines: Lines<impl BufRead>) -> Result<History, ReadError> {
    let mut sessions = Sessions::new("dbcop");
    let mut session = 0;
    while let Some(line) = lines.next()? {
        if line.starts_with(b"---") || line == b"-" || line == b"--" {
            session += 1;
            continue;
        }
        let accepted = match str::from_utf8(line) {
            Ok(text) => read_line(&mut sessions, session, text),
            Err(_) => Err("the line is not UTF-8".to_owned()),
        };
        accepted.map_err(|reason| lines.malformed(reason))?;
    }
    Ok(sessions.history)
}

fn read_line(sessions: &mut Sessions, session: u32, line: &str) -> Result<(), String> {
    let mut rest = line;
    while !rest.is_empty() && !rest.starts_with("//") {
        let inside = rest
            .strip_prefix('[')
            .ok_or_else(|| format!("{rest:?} does not begin with ["))?;
        let (events, behind) = inside
            .split_once(']')
            .ok_or("a transaction does not end with ]")?;
        let operations = events
            .split_whitespace()
            .map(|event| operation(sessions, event));
        let operations = operations.collect::<Result<_, _>>()?;
        let aborted = behind.strip_prefix('!');
        sessions.push(session, aborted.is_none(), operations);
        rest = aborted.unwrap_or(behind).trim_start();
    }
    Ok(())
}

fn operation(sessions: &mut Sessions, event: &str) -> Result<Operation, String> {
    let unknown = || format!("{event:?} is none of x:=1, x==1 and x==?");
    let write = event.split_once(":=");
    let (key, version) = write.or(event.split_once("==")).ok_or_else(unknown)?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    if key.is_empty() || !key.chars().all(is_name) {
        return Err(unknown());
    }
    let version = match version {
        "?" if write.is_none() => None,
        version => {
            let number: u64 = version.parse().map_err(|_| unknown())?;
            Some(sessions.value(number))
        }
    };
    let key = sessions.key(key);
    Ok(sessions.access(write.is_some(), key, version))
}

/// Writes a transaction a line.
pub(super) fn write(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    let ability = Ability {
        failed: true,
        zero: true,
        words: true,
    };
    let export = Export::new(history, ability, losses);
    for (i, session) in export.sessions.iter().enumerate() {
        if i > 0 {
            writeln!(out, "---")?;
        }
        for exported in session {
            let events: Vec<String> = exported
                .accesses
                .iter()
                .map(|access| {
                    let key = export.word(access.key);
                    match access.value {
                        Some(value) if access.is_write => format!("{key}:={value}"),
                        Some(value) => format!("{key}=={value}"),
                        None => format!("{key}==?"),
                    }
                })
                .collect();
            let mark = if exported.is_committed { "" } else { "!" };
            writeln!(out, "[{}]{mark}", events.join(" "))?;
        }
    }
    Ok(())
}
