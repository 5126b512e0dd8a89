//! The text files of PolySI, Plume and IsoVista: `r(key,value,session,transaction)` or `w(…)` a line, the value 0 being the
//! initial version. Plume says -1 for a transaction that failed; what belongs together then is not known.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use crate::history::{History, Operation};

use super::export::{Ability, Export};
use super::input::{Lines, ReadError};
use super::losses::Losses;
use super::sessions::{Sessions, without_zero};

/// Reads a history. The order of the transactions of a session is that of their first lines.
pub(super) fn read(mut lines: Lines<impl BufRead>) -> Result<History, ReadError> {
    let mut reader = Reader::default();
    let mut sessions = Sessions::new("polysi");
    while let Some(line) = lines.next()? {
        let accepted = match str::from_utf8(line) {
            Ok("") => Ok(()),
            Ok(text) => reader.access(&mut sessions, text),
            Err(_) => Err("the line is not UTF-8".to_owned()),
        };
        accepted.map_err(|reason| lines.malformed(reason))?;
    }
    for (session, is_committed, operations) in reader.transactions {
        sessions.push(session, is_committed, operations);
    }
    Ok(without_zero(sessions.history))
}

#[derive(Default)]
struct Reader {
    /// Session, whether it committed, operations.
    transactions: Vec<(u32, bool, Vec<Operation>)>,
    /// By transaction: its place and its session.
    places: BTreeMap<u64, (usize, u64)>,
    sessions: BTreeMap<u64, u32>,
}

impl Reader {
    fn access(&mut self, sessions: &mut Sessions, line: &str) -> Result<(), String> {
        let unknown = || format!("{line:?} is not of the form r(key,value,session,transaction)");
        let (f, rest) = line.split_once('(').ok_or_else(unknown)?;
        let fields: Vec<&str> = rest
            .strip_suffix(')')
            .ok_or_else(unknown)?
            .split(',')
            .collect();
        let [key, value, session, transaction] = fields[..] else {
            return Err(unknown());
        };
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| unknown());
        let (key, value, session) = (number(key)?, number(value)?, number(session)?);
        let is_write = match f {
            "r" => false,
            "w" => true,
            _ => return Err(unknown()),
        };
        let (key, value) = (sessions.key(key), sessions.value(value));
        let operation = sessions.access(is_write, key, Some(value));
        let next = self.sessions.len() as u32;
        let number_of_session = *self.sessions.entry(session).or_insert(next);
        if transaction.trim() == "-1" {
            self.transactions
                .push((number_of_session, false, vec![operation]));
            return Ok(());
        }
        let transaction = number(transaction)?;
        let new = (self.transactions.len(), session);
        let (place, its_session) = *self.places.entry(transaction).or_insert(new);
        if its_session != session {
            return Err(format!(
                "transaction {transaction} is of the sessions {its_session} and {session}"
            ));
        }
        if place == self.transactions.len() {
            self.transactions
                .push((number_of_session, true, Vec::new()));
        }
        self.transactions[place].2.push(operation);
        Ok(())
    }
}

/// Writes what committed.
pub(super) fn write(
    history: &History,
    out: &mut impl Write,
    losses: &mut Losses,
) -> io::Result<()> {
    let export = Export::new(history, Ability::default(), losses);
    let mut transaction = 0;
    for (session, transactions) in export.sessions.iter().enumerate() {
        for exported in transactions {
            transaction += 1;
            for access in &exported.accesses {
                let f = if access.is_write { 'w' } else { 'r' };
                let (key, value) = (export.key(access.key), access.value.unwrap_or(0));
                writeln!(out, "{f}({key},{value},{},{transaction})", session + 1)?;
            }
        }
    }
    Ok(())
}
