//! A schedule followed through time: when each fault begins and ends, and which contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use dkvf_core::{ServerId, Topology};

use super::{Fault, Schedule};

/// A fault begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in microseconds since the clients started.
    pub at_us: u64,
    /// Index of the fault in [`Schedule::faults`].
    pub fault: usize,
    /// Whether it begins; otherwise it ends.
    pub begins: bool,
}

/// A fault that makes no sense while an earlier one lasts, or without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Index of the fault in [`Schedule::faults`].
    pub fault: usize,
    /// Index of the one that is still going on, if that is the trouble.
    pub with: Option<usize>,
    /// The server or link.
    target: Target,
}

impl Conflict {
    /// What it is about: a server's name, or `FROM>TO`.
    pub fn target(&self, topology: &Topology) -> String {
        let name = |id: ServerId| &topology.member(id).name;
        match self.target {
            Target::Server(id) => name(id).clone(),
            Target::Link(from, to) => format!("{}>{}", name(from), name(to)),
        }
    }
}

/// What only one fault at a time can have hold of. A server that is down cannot be paused or crash again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aspect {
    Running,
    Speed,
    ClockRate,
    Connected,
    Latency,
    Passing,
    Promise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Server(ServerId),
    Link(ServerId, ServerId),
}

impl Fault {
    /// What the fault has hold of while it lasts.
    fn holds(&self) -> Vec<(Aspect, Target)> {
        let (aspect, links) = match self {
            Fault::Crash { node, .. } | Fault::Pause { node } | Fault::DiskFull { node } => {
                return vec![(Aspect::Running, Target::Server(*node))];
            }
            Fault::Slow { node, .. } => return vec![(Aspect::Speed, Target::Server(*node))],
            Fault::Drift { node, .. } => return vec![(Aspect::ClockRate, Target::Server(*node))],
            Fault::Restart { .. } | Fault::Step { .. } => return Vec::new(),
            Fault::Cut { links } => (Aspect::Connected, links),
            Fault::Delay { links, .. } => (Aspect::Latency, links),
            Fault::Hold { links } => (Aspect::Passing, links),
            Fault::Break { links, .. } => (Aspect::Promise, links),
        };
        links
            .iter()
            .map(|(from, to)| (aspect, Target::Link(*from, *to)))
            .collect()
    }

    /// Whether the two cannot last at the same time.
    pub(super) fn excludes(&self, other: &Fault) -> bool {
        let held: BTreeSet<_> = other.holds().into_iter().collect();
        self.holds().iter().any(|hold| held.contains(hold))
    }
}

/// What following a schedule shows.
struct Followed {
    /// By fault: when it ends; `None` for those that last, and those without length.
    ends: Vec<Option<u64>>,
    conflict: Option<Conflict>,
}

impl Schedule {
    /// What happens, in the order of time: of equal times, ends come first. A restart is the end of a crash, a step of a
    /// clock only begins, and what lasts to the end of the run does not end here.
    ///
    /// O(n log n) for n faults and links.
    pub fn changes(&self) -> Vec<Change> {
        let begins = |fault: &Fault| !matches!(fault, Fault::Restart { .. });
        let begin = self
            .faults
            .iter()
            .enumerate()
            .filter(|(_, timed)| begins(&timed.fault))
            .map(|(fault, timed)| Change {
                at_us: timed.at_us,
                fault,
                begins: true,
            });
        let ends = self.follow().ends;
        let end = ends.iter().enumerate().filter_map(|(fault, end)| {
            Some(Change {
                at_us: (*end)?,
                fault,
                begins: false,
            })
        });
        let mut changes: Vec<Change> = begin.chain(end).collect();
        changes.sort_by_key(|change| (change.at_us, change.begins));
        changes
    }

    /// The first fault that contradicts an earlier one: of what a fault has hold of (whether a server runs, its speed, the
    /// rate of its clock; whether a link is connected, its latency, whether it passes frames on, what it promises), no
    /// other may take hold before it has ended, and only what has crashed can be restarted.
    ///
    /// O(n log n) for n faults and links.
    pub fn conflict(&self) -> Option<Conflict> {
        self.follow().conflict
    }

    fn follow(&self) -> Followed {
        let mut held: BTreeMap<(Aspect, Target), usize> = BTreeMap::new();
        let mut followed = Followed {
            ends: Vec::new(),
            conflict: None,
        };
        for (index, timed) in self.faults.iter().enumerate() {
            let has_length = !matches!(timed.fault, Fault::Restart { .. } | Fault::Step { .. });
            let end = timed
                .for_us
                .map(|for_us| timed.at_us.saturating_add(for_us));
            followed.ends.push(end.filter(|_| has_length));
            let lasts = |ends: &[Option<u64>], fault: usize| {
                ends[fault].is_none_or(|end| end > timed.at_us)
            };
            for hold in timed.fault.holds() {
                let former = held.insert(hold, index);
                if let Some(former) = former.filter(|former| lasts(&followed.ends, *former)) {
                    followed.conflict.get_or_insert(Conflict {
                        fault: index,
                        with: Some(former),
                        target: hold.1,
                    });
                }
            }
            if let Fault::Restart { node } = timed.fault {
                let target = Target::Server(node);
                let crash = held.get(&(Aspect::Running, target)).filter(|former| {
                    matches!(self.faults[**former].fault, Fault::Crash { .. })
                        && lasts(&followed.ends, **former)
                });
                match crash {
                    Some(crash) => followed.ends[*crash] = Some(timed.at_us),
                    None => {
                        followed.conflict.get_or_insert(Conflict {
                            fault: index,
                            with: None,
                            target,
                        });
                    }
                }
            }
        }
        followed
    }
}
