//! Schedules as JSON Lines.

use dkvf_core::{ServerId, Topology};
use serde::Serialize;
use serde_json::Number;

use super::links::{self, Sides};
use super::{Disk, Fault, Links, Schedule, Timed};

/// A fault as a line of a schedule file says it. Fields that a fault has not are absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    at_ms: Number,
    fault: &'static str,
    #[serde(flatten)]
    target: Target,
    #[serde(flatten)]
    details: Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_ms: Option<Number>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Target {
    Node {
        node: String,
        #[serde(skip_serializing_if = "is_false")]
        one_way: bool,
    },
    Replica {
        replica: u16,
        #[serde(skip_serializing_if = "is_false")]
        one_way: bool,
    },
    Sides {
        sides: [Vec<String>; 2],
        #[serde(skip_serializing_if = "is_false")]
        one_way: bool,
    },
    Link {
        link: String,
    },
    Links {
        link: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Details {
    Nothing {},
    Disk {
        disk: &'static str,
    },
    Factor {
        factor: u32,
    },
    By {
        by_ms: Number,
        #[serde(skip_serializing_if = "Option::is_none")]
        jitter_ms: Option<Number>,
    },
    Rate {
        ppm: i32,
    },
    Broken {
        lose_permille: u16,
        repeat_permille: u16,
        reorder_permille: u16,
    },
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl Schedule {
    /// The schedule as a file, which [`super::ScheduleFile::parse`] reads back, given the same topology.
    pub fn write(&self, topology: &Topology) -> String {
        self.faults
            .iter()
            .map(|timed| timed.to_json(topology) + "\n")
            .collect()
    }
}

impl Timed {
    /// The fault as a line of a schedule file, without the line's end.
    pub fn to_json(&self, topology: &Topology) -> String {
        serde_json::to_string(&self.line(topology))
            .expect("invariant: names, words and numbers can be written as JSON")
    }

    fn line(&self, topology: &Topology) -> Line {
        let (fault, details) = word_and_details(&self.fault);
        Line {
            at_ms: milliseconds(self.at_us as i64),
            fault,
            target: target(&self.fault, topology),
            details,
            for_ms: self.for_us.map(|us| milliseconds(us as i64)),
        }
    }
}

fn word_and_details(fault: &Fault) -> (&'static str, Details) {
    let nothing = Details::Nothing {};
    match fault {
        Fault::Crash { disk, .. } => {
            let disk = match disk {
                Disk::Kept => "kept",
                Disk::Torn => "torn",
                Disk::Empty => "empty",
            };
            ("crash", Details::Disk { disk })
        }
        Fault::Restart { .. } => ("restart", nothing),
        Fault::Pause { .. } => ("pause", nothing),
        Fault::Cut { .. } => ("partition", nothing),
        Fault::Delay {
            by_us, jitter_us, ..
        } => (
            "delay",
            Details::By {
                by_ms: milliseconds(*by_us as i64),
                jitter_ms: (*jitter_us > 0).then(|| milliseconds(*jitter_us as i64)),
            },
        ),
        Fault::Hold { .. } => ("hold", nothing),
        Fault::Slow { factor, .. } => ("slow", Details::Factor { factor: *factor }),
        Fault::Step { by_us, .. } => (
            "step",
            Details::By {
                by_ms: milliseconds(*by_us),
                jitter_ms: None,
            },
        ),
        Fault::Drift { ppm, .. } => ("drift", Details::Rate { ppm: *ppm }),
        Fault::DiskFull { .. } => ("disk-full", nothing),
        Fault::Break {
            lose_permille,
            repeat_permille,
            reorder_permille,
            ..
        } => (
            "break",
            Details::Broken {
                lose_permille: *lose_permille,
                repeat_permille: *repeat_permille,
                reorder_permille: *reorder_permille,
            },
        ),
    }
}

fn target(fault: &Fault, topology: &Topology) -> Target {
    match fault {
        Fault::Crash { node, .. }
        | Fault::Restart { node }
        | Fault::Pause { node }
        | Fault::Slow { node, .. }
        | Fault::Step { node, .. }
        | Fault::Drift { node, .. }
        | Fault::DiskFull { node } => Target::Node {
            node: topology.member(*node).name.clone(),
            one_way: false,
        },
        Fault::Cut { links }
        | Fault::Delay { links, .. }
        | Fault::Hold { links }
        | Fault::Break { links, .. } => link_target(links, topology),
    }
}

/// The shortest way to say which links are meant.
fn link_target(links: &Links, topology: &Topology) -> Target {
    let links = links::normalised(links.clone());
    let members = topology.members().len();
    if !links.is_empty() && links.len() == members * (members - 1) && members > 2 {
        return Target::Link {
            link: "*".to_owned(),
        };
    }
    match Sides::of(&links) {
        Some(sides) => sides_target(sides, topology),
        None => Target::Links {
            link: link_names(&links, topology),
        },
    }
}

fn sides_target(sides: Sides, topology: &Topology) -> Target {
    let Sides {
        first,
        second,
        one_way,
    } = sides;
    let names = |side: &[ServerId]| -> Vec<String> {
        side.iter()
            .map(|id| topology.member(*id).name.clone())
            .collect()
    };
    if let ([first], [second]) = (first.as_slice(), second.as_slice()) {
        return Target::Link {
            link: link_name(topology, *first, *second, one_way),
        };
    }
    let everybody = first.len() + second.len() == topology.members().len();
    // What is one way leaves the first side.
    let mut alone = [Some(&first), (!one_way).then_some(&second)]
        .into_iter()
        .flatten();
    if everybody && let Some(side) = alone.clone().find(|side| side.len() == 1) {
        return Target::Node {
            node: names(side).remove(0),
            one_way,
        };
    }
    let replica_of = |side: &[ServerId]| topology.member(side[0]).replica;
    if everybody
        && let Some(side) = alone.find(|side| links::replica(topology, replica_of(side)) == **side)
    {
        return Target::Replica {
            replica: replica_of(side),
            one_way,
        };
    }
    Target::Sides {
        sides: [names(&first), names(&second)],
        one_way,
    }
}

/// Each link, or both directions of it.
fn link_names(links: &Links, topology: &Topology) -> Vec<String> {
    let mut names = Vec::new();
    for (from, to) in links {
        let both_ways = links.binary_search(&(*to, *from)).is_ok();
        if !both_ways || from < to {
            names.push(link_name(topology, *from, *to, !both_ways));
        }
    }
    names
}

/// `A-B` could be read in two ways if names have a `-`; none has `<` or `>`.
fn link_name(topology: &Topology, from: ServerId, to: ServerId, one_way: bool) -> String {
    let (from, to) = (&topology.member(from).name, &topology.member(to).name);
    let arrow = match (one_way, from.contains('-') || to.contains('-')) {
        (true, _) => ">",
        (false, false) => "-",
        (false, true) => "<>",
    };
    format!("{from}{arrow}{to}")
}

/// Whole milliseconds as such, others with up to three decimals, which is exact to the microsecond.
fn milliseconds(us: i64) -> Number {
    if us % 1000 == 0 {
        Number::from(us / 1000)
    } else {
        Number::from_f64(us as f64 / 1000.0).expect("invariant: a finite number")
    }
}
