//! Schedules from files of JSON Lines.

mod fields;
mod places;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use dkvf_core::Topology;

use self::fields::{Fields, Problem};
use super::{Disk, Fault, Schedule, Timed};

/// A larger file is refused.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most faults of a schedule.
pub const FAULTS_MAX: usize = 100_000;
/// Most links in all faults of a schedule together.
pub const LINKS_MAX: usize = 1 << 22;
/// Latest time, longest duration and largest step, in microseconds (one day).
pub const TIME_US_MAX: u64 = 86_400_000_000;
/// Fastest and slowest clock, in millionths from the right rate: no clock stands still or runs back.
const PPM_MAX: i64 = 999_999;
/// Slowest server, in times as long.
const FACTOR_MAX: u64 = 1_000_000;

/// A schedule that was read, and where each of its faults stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleFile {
    /// The file.
    pub name: String,
    /// The faults.
    pub schedule: Schedule,
    /// By fault: its line, from 1. A line may have several faults.
    pub lines: Vec<u32>,
}

/// A schedule could not be read. Shown as `FILE:LINE: FIELD: PROBLEM`, and the problem ends with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}{}: {problem}", line.map_or(String::new(), |line| format!(":{line}")), field.as_ref().map_or(String::new(), |field| format!(": {field}")))]
pub struct ScheduleError {
    /// The file.
    pub file: String,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<u32>,
    /// The field at fault; `None` for the line as a whole.
    pub field: Option<String>,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// The words for faults.
const WORDS: [&str; 13] = [
    "crash",
    "restart",
    "pause",
    "partition",
    "delay",
    "hold",
    "slow",
    "step",
    "skew",
    "drift",
    "disk-full",
    "torn",
    "break",
];

impl Schedule {
    /// Reads the text of a schedule file, which errors call `file`; names are those of `topology`'s members.
    ///
    /// # Errors
    /// As [`ScheduleFile::parse`].
    pub fn parse(file: &str, text: &[u8], topology: &Topology) -> Result<Self, ScheduleError> {
        ScheduleFile::parse(file, text, topology).map(|read| read.schedule)
    }
}

impl ScheduleFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, is longer than [`FILE_BYTES_MAX`], or as [`ScheduleFile::parse`].
    pub fn read(path: &Path, topology: &Topology) -> Result<Self, ScheduleError> {
        let name = path.display().to_string();
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
        match read {
            Ok(_) => ScheduleFile::parse(&name, &text, topology),
            Err(error) => Err(whole(&name, format!("cannot read it: {error}"))),
        }
    }

    /// Reads the text of a schedule file, which errors call `file`; names are those of `topology`'s members. Lines that
    /// are blank or begin with `#` are skipped.
    ///
    /// # Errors
    /// It is longer than [`FILE_BYTES_MAX`] or not UTF-8; a line is not an object with the fields of its fault; it has more
    /// than [`FAULTS_MAX`] faults or [`LINKS_MAX`] links; faults contradict each other ([`Schedule::conflict`]).
    pub fn parse(file: &str, text: &[u8], topology: &Topology) -> Result<Self, ScheduleError> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(whole(
                file,
                format!("longer than {FILE_BYTES_MAX} bytes: not a schedule of faults"),
            ));
        }
        let text = str::from_utf8(text).map_err(|_| {
            whole(
                file,
                "not UTF-8: a schedule of faults is JSON Lines, one object per line".to_owned(),
            )
        })?;
        let mut faults: Vec<(u32, Timed)> = Vec::new();
        let mut links = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |problem: Problem| problem.at(file, number);
            for timed in faults_of(line, topology).map_err(at)? {
                links += link_count(&timed.fault);
                faults.push((number, timed));
            }
            if faults.len() > FAULTS_MAX || links > LINKS_MAX {
                return Err(at(Problem::of_line(format!(
                    "more than {FAULTS_MAX} faults, or {LINKS_MAX} links in them: use a shorter schedule"
                ))));
            }
        }
        faults.sort_by_key(|(_, timed)| timed.at_us);
        let (lines, faults) = faults.into_iter().unzip();
        let read = ScheduleFile {
            name: file.to_owned(),
            schedule: Schedule { faults },
            lines,
        };
        match read.conflict(topology) {
            Some(conflict) => Err(conflict),
            None => Ok(read),
        }
    }

    /// Where a fault stands, as `FILE:LINE`.
    pub fn place(&self, fault: usize) -> String {
        format!("{}:{}", self.name, self.lines[fault])
    }

    fn conflict(&self, topology: &Topology) -> Option<ScheduleError> {
        let conflict = self.schedule.conflict()?;
        let target = conflict.target(topology);
        let problem = match conflict.with {
            Some(with) => format!(
                "{target} is still under the fault of line {} then: let that end before this begins",
                self.lines[with]
            ),
            None => format!(
                "{target} has not crashed then: restart it while it is down, or remove this line"
            ),
        };
        Some(Problem::of_line(problem).at(&self.name, self.lines[conflict.fault]))
    }
}

fn whole(file: &str, problem: String) -> ScheduleError {
    ScheduleError {
        file: file.to_owned(),
        line: None,
        field: None,
        problem,
    }
}

fn link_count(fault: &Fault) -> usize {
    match fault {
        Fault::Cut { links }
        | Fault::Delay { links, .. }
        | Fault::Hold { links }
        | Fault::Break { links, .. } => links.len(),
        _ => 0,
    }
}

/// The faults of a line: one, or one for each of its servers.
fn faults_of(line: &str, topology: &Topology) -> Result<Vec<Timed>, Problem> {
    let mut fields = Fields::read(line)?;
    let at_us = fields.required("at_ms", Fields::time)?;
    let word = fields.required("fault", Fields::text)?;
    let mut for_us = None;
    if !matches!(word.as_str(), "restart" | "step" | "skew") {
        for_us = fields.length("for_ms")?;
    }
    let faults = match word.as_str() {
        "crash" => {
            let disk = fields.disk()?;
            fields.each_node(topology, |node| Fault::Crash { node, disk })?
        }
        "torn" => fields.each_node(topology, |node| Fault::Crash {
            node,
            disk: Disk::Torn,
        })?,
        "restart" => fields.each_node(topology, |node| Fault::Restart { node })?,
        "pause" => fields.each_node(topology, |node| Fault::Pause { node })?,
        "disk-full" => fields.each_node(topology, |node| Fault::DiskFull { node })?,
        "slow" => {
            let factor = fields.required("factor", |fields, name| {
                fields.integer(name, 2, FACTOR_MAX as i64)
            })? as u32;
            fields.each_node(topology, |node| Fault::Slow { node, factor })?
        }
        "step" | "skew" => {
            let by_us = fields.required("by_ms", Fields::signed_time)?;
            fields.each_node(topology, |node| Fault::Step { node, by_us })?
        }
        "drift" => {
            let ppm = fields.required("ppm", |fields, name| {
                fields.integer(name, -PPM_MAX, PPM_MAX)
            })? as i32;
            fields.each_node(topology, |node| Fault::Drift { node, ppm })?
        }
        "partition" => vec![Fault::Cut {
            links: fields.links(topology)?,
        }],
        "hold" => vec![Fault::Hold {
            links: fields.links(topology)?,
        }],
        "delay" => vec![Fault::Delay {
            by_us: fields.required("by_ms", Fields::time)?,
            jitter_us: fields.time("jitter_ms")?.unwrap_or(0),
            links: fields.links(topology)?,
        }],
        "break" => vec![fields.broken(topology)?],
        _ => {
            return Err(Problem::of_field(
                "fault",
                format!(
                    "{} is no fault; there are {}",
                    fields::quote(&word),
                    WORDS.join(", ")
                ),
            ));
        }
    };
    fields.nothing_else(&word)?;
    Ok(faults
        .into_iter()
        .map(|fault| Timed {
            at_us,
            for_us,
            fault,
        })
        .collect())
}

/// The fields of single kinds of faults.
impl Fields {
    fn disk(&mut self) -> Result<Disk, Problem> {
        match self.text("disk")?.as_deref() {
            None | Some("kept") => Ok(Disk::Kept),
            Some("torn") => Ok(Disk::Torn),
            Some("empty") => Ok(Disk::Empty),
            Some(other) => Err(Problem::of_field(
                "disk",
                format!(
                    "{} is no state of a disk; there are kept, torn, empty",
                    fields::quote(other)
                ),
            )),
        }
    }

    fn broken(&mut self, topology: &Topology) -> Result<Fault, Problem> {
        let permille = |fields: &mut Fields, name| {
            Ok::<_, Problem>(fields.integer(name, 0, 1000)?.unwrap_or(0) as u16)
        };
        let lose_permille = permille(self, "lose_permille")?;
        let repeat_permille = permille(self, "repeat_permille")?;
        let reorder_permille = permille(self, "reorder_permille")?;
        if lose_permille + repeat_permille + reorder_permille == 0 {
            return Err(Problem::of_line(
                "nothing breaks: give lose_permille, repeat_permille or reorder_permille, from 1 to 1000",
            ));
        }
        Ok(Fault::Break {
            links: self.links(topology)?,
            lose_permille,
            repeat_permille,
            reorder_permille,
        })
    }
}
