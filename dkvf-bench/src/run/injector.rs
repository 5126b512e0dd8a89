//! Carries out the faults of a schedule on a running cluster, and heals it.
//!
//! What is wrong with links is state: for each server and peer there is one order that says all of it. Whoever was not told
//! the present one, because it was down, paused or has just started, is told as soon as it is up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dkvf_core::net::clock::HostClock;
use dkvf_core::net::control_post;
use dkvf_core::net::orders::{ClockOrder, LinkOrder};
use dkvf_core::{Fault as Tolerated, ServerId};
use dkvf_workload::faults::{self, Fault, FaultKind, Links, Schedule};
use tokio::task::JoinSet;

use super::patience::{LOOK_EVERY, Patience, Pauses};
use crate::report::FaultReport;
use crate::target::{Change, Target};

/// What is wrong with a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkFault {
    cut: bool,
    hold: bool,
    delay_us: u64,
    jitter_us: u64,
}

pub(super) struct Injector<'a> {
    target: &'a dyn Target,
    schedule: &'a Schedule,
    changes: Vec<faults::Change>,
    /// Of the next change.
    next: usize,
    /// The clock of the run, and when its clients start.
    clock: HostClock,
    start_us: u64,
    healed: bool,
    /// What is wrong now, by sender and receiver.
    links: BTreeMap<(ServerId, ServerId), LinkFault>,
    /// How far clocks are from where they were, in microseconds.
    clocks: BTreeMap<ServerId, i64>,
    /// What servers were told last since they started, by server and peer.
    told: BTreeMap<(ServerId, ServerId), LinkOrder>,
    /// How far the clocks of servers have gone.
    stepped: BTreeMap<ServerId, i64>,
    /// By fault.
    applied: Vec<Applied>,
    runtime: tokio::runtime::Runtime,
}

/// When a fault began and ended, in microseconds since the clients started.
#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    begun_us: Option<u64>,
    ended_us: Option<u64>,
}

impl<'a> Injector<'a> {
    pub(super) fn new(schedule: &'a Schedule, target: &'a dyn Target) -> anyhow::Result<Self> {
        Ok(Injector {
            target,
            schedule,
            changes: schedule.changes(),
            next: 0,
            clock: HostClock::new(0),
            start_us: 0,
            healed: false,
            links: BTreeMap::new(),
            clocks: BTreeMap::new(),
            told: BTreeMap::new(),
            stepped: BTreeMap::new(),
            applied: vec![Applied::default(); schedule.faults.len()],
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
        })
    }

    /// The clients start at `start_us` of `clock`.
    pub(super) fn begin(&mut self, clock: HostClock, start_us: u64) {
        (self.clock, self.start_us) = (clock, start_us);
    }

    fn now_us(&self) -> u64 {
        self.clock.monotonic_us().saturating_sub(self.start_us)
    }

    /// Carries out what is due. Returns how soon to ask again.
    ///
    /// # Errors
    /// A server cannot be reached, or does not start.
    pub(super) fn advance(&mut self) -> anyhow::Result<Duration> {
        while let Some(change) = self.changes.get(self.next).copied()
            && self.start_us + change.at_us <= self.clock.monotonic_us()
        {
            self.next += 1;
            self.carry_out(change)?;
        }
        self.tell()?;
        let next = self.changes.get(self.next);
        Ok(next.map_or(LOOK_EVERY, |change| {
            Duration::from_micros(change.at_us.saturating_sub(self.now_us()))
        }))
    }

    fn carry_out(&mut self, change: faults::Change) -> anyhow::Result<()> {
        let schedule = self.schedule;
        let timed = &schedule.faults[change.fault];
        match &timed.fault {
            Fault::Crash { node, .. } if change.begins => {
                self.target.control(*node, Change::Crash)?;
                self.told.retain(|(server, _), _| server != node);
            }
            Fault::Crash { node, .. } => {
                let clock_us = self.clocks.get(node).copied().unwrap_or(0);
                self.target.control(*node, Change::Restart { clock_us })?;
                self.stepped.insert(*node, clock_us);
            }
            Fault::Pause { node } if change.begins => self.target.control(*node, Change::Pause)?,
            Fault::Pause { node } => self.target.control(*node, Change::Resume)?,
            Fault::Step { node, by_us } => *self.clocks.entry(*node).or_default() += by_us,
            Fault::Cut { links } => self.change_links(links, |link| link.cut = change.begins),
            Fault::Hold { links } => self.change_links(links, |link| link.hold = change.begins),
            Fault::Delay {
                links,
                by_us,
                jitter_us,
            } => self.change_links(links, |link| {
                (link.delay_us, link.jitter_us) = if change.begins {
                    (*by_us, *jitter_us)
                } else {
                    (0, 0)
                };
            }),
            refused @ (Fault::Restart { .. }
            | Fault::Slow { .. }
            | Fault::Drift { .. }
            | Fault::DiskFull { .. }
            | Fault::Break { .. }) => bail!("no cluster on TCP can have {refused:?}"),
        }
        self.tell()?;
        let now_us = self.now_us();
        let applied = &mut self.applied[change.fault];
        if change.begins {
            applied.begun_us = Some(now_us);
        } else {
            applied.ended_us = Some(now_us);
        }
        Ok(())
    }

    fn change_links(&mut self, links: &Links, change: impl Fn(&mut LinkFault)) {
        for link in links {
            let fault = self.links.entry(*link).or_default();
            change(fault);
            if *fault == LinkFault::default() {
                self.links.remove(link);
            }
        }
    }

    /// What each server should have been told, by server and peer: of a link that is cut, both ends.
    fn orders(&self) -> BTreeMap<(ServerId, ServerId), LinkOrder> {
        let mut orders: BTreeMap<(ServerId, ServerId), LinkOrder> = BTreeMap::new();
        let name = |id: &ServerId| &self.target.topology().member(*id).name;
        for ((from, to), fault) in &self.links {
            let sender = orders
                .entry((*from, *to))
                .or_insert_with(|| LinkOrder::mended(name(to)));
            sender.cut_to = fault.cut;
            sender.hold = fault.hold;
            (sender.delay_us, sender.jitter_us) = (fault.delay_us, fault.jitter_us);
            if fault.cut {
                let receiver = orders
                    .entry((*to, *from))
                    .or_insert_with(|| LinkOrder::mended(name(from)));
                receiver.cut_from = true;
            }
        }
        orders
    }

    /// Tells the servers that are up what they do not know yet.
    fn tell(&mut self) -> anyhow::Result<()> {
        self.tell_links()?;
        self.tell_clocks()
    }

    fn tell_links(&mut self) -> anyhow::Result<()> {
        let orders = self.orders();
        let concerned: BTreeSet<(ServerId, ServerId)> =
            orders.keys().chain(self.told.keys()).copied().collect();
        let mut news = Vec::new();
        for key in concerned {
            let (server, peer) = key;
            if orders.get(&key) == self.told.get(&key) || !self.target.is_up(server)? {
                continue;
            }
            let mended = || LinkOrder::mended(&self.target.topology().member(peer).name);
            let order = orders.get(&key).cloned().unwrap_or_else(mended);
            news.push((server, order));
            match orders.get(&key) {
                Some(order) => self.told.insert(key, order.clone()),
                None => self.told.remove(&key),
            };
        }
        self.post("/links", news)
    }

    fn tell_clocks(&mut self) -> anyhow::Result<()> {
        let mut news = Vec::new();
        for (server, clock_us) in &self.clocks {
            let stepped_us = self.stepped.get(server).copied().unwrap_or(0);
            let step_us = clock_us - stepped_us;
            if step_us != 0 && self.target.is_up(*server)? {
                self.stepped.insert(*server, *clock_us);
                news.push((*server, ClockOrder { step_us }));
            }
        }
        self.post("/clock", news)
    }

    /// Gives orders to servers, all at the same time.
    fn post<T: serde::Serialize + Send + Sync + 'static>(
        &self,
        path: &'static str,
        orders: Vec<(ServerId, T)>,
    ) -> anyhow::Result<()> {
        if orders.is_empty() {
            return Ok(());
        }
        let addresses = self.target.control_addresses();
        self.runtime.block_on(async {
            let mut posts = JoinSet::new();
            for (server, order) in orders {
                let address = addresses[server.index()].clone();
                let name = self.target.topology().member(server).name.clone();
                posts.spawn(async move {
                    control_post(&address, path, None, &order)
                        .await
                        .with_context(|| format!("server {name} has not carried out a fault"))
                });
            }
            while let Some(posted) = posts.join_next().await {
                posted??;
            }
            Ok(())
        })
    }

    /// Ends all faults that last; no later one begins. Servers that have to start are not waited for.
    ///
    /// # Errors
    /// As [`Injector::advance`].
    pub(super) fn heal(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.healed, true) {
            return self.tell();
        }
        self.next = self.changes.len();
        for fault in 0..self.applied.len() {
            let Applied { begun_us, ended_us } = self.applied[fault];
            let has_end = !matches!(self.schedule.faults[fault].fault, Fault::Step { .. });
            if begun_us.is_some() && ended_us.is_none() && has_end {
                self.carry_out(faults::Change {
                    at_us: self.now_us(),
                    fault,
                    begins: false,
                })?;
            }
        }
        Ok(())
    }

    /// Waits until all servers are up and know that nothing is wrong.
    ///
    /// # Errors
    /// [`super::Interrupted`], or a server that does not start.
    pub(super) fn wait_until_healed(&mut self, patience: &Patience) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience.patience;
        let mut pauses = Pauses::new();
        loop {
            self.heal()?;
            let mut all_up = true;
            for id in self.target.topology().ids() {
                all_up &= self.target.is_up(id)?;
            }
            if all_up && self.told.is_empty() {
                return Ok(());
            }
            patience.look()?;
            if Instant::now() > deadline {
                bail!(
                    "not all servers are up {:?} after the last fault",
                    patience.patience
                );
            }
            pauses.pause();
        }
    }

    /// The kinds of the faults that have begun.
    fn kinds(&self) -> impl Iterator<Item = FaultKind> {
        let faults = self.schedule.faults.iter().zip(&self.applied);
        faults
            .filter(|(_, applied)| applied.begun_us.is_some())
            .filter_map(|(timed, _)| FaultKind::of(&timed.fault))
    }

    /// Whether a server has come back: what the former one counted is lost.
    pub(super) fn has_crashed_a_server(&self) -> bool {
        self.kinds()
            .any(|kind| matches!(kind, FaultKind::Crash | FaultKind::CrashEmpty))
    }

    /// The faults, as claims name them, that have happened and that `tolerated` does not contain. Nothing is durable: who
    /// crashes comes back empty.
    pub(super) fn not_tolerated(&self, tolerated: &[Tolerated]) -> Vec<&'static str> {
        let happened = self.kinds().filter_map(|kind| match kind {
            FaultKind::Crash => FaultKind::CrashEmpty.tolerated_as(),
            kind => kind.tolerated_as(),
        });
        let names: BTreeSet<&'static str> = happened
            .filter(|fault| !tolerated.contains(fault))
            .map(Tolerated::name)
            .collect();
        names.into_iter().collect()
    }

    /// What people should know about the faults when they read the figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let begins = self.changes.iter().filter(|change| change.begins);
        let missed = begins
            .filter(|change| self.applied[change.fault].begun_us.is_none())
            .count();
        if missed > 0 {
            notes.push(format!(
                "{missed} faults were to come after the run had ended"
            ));
        }
        if self.has_crashed_a_server() {
            notes.push(
                "messages and bytes are not known: servers that crashed lost count".to_owned(),
            );
        }
        notes
    }

    /// The faults that were carried out.
    pub(super) fn report(&self) -> Vec<FaultReport> {
        let milliseconds = |us: u64| us as f64 / 1000.0;
        let topology = self.target.topology();
        let faults = self.schedule.faults.iter().zip(&self.applied);
        faults
            .filter_map(|(timed, applied)| {
                Some(FaultReport {
                    fault: serde_json::from_str(&timed.to_json(topology))
                        .expect("invariant: what was written as JSON is JSON"),
                    begun_ms: milliseconds(applied.begun_us?),
                    ended_ms: applied.ended_us.map(milliseconds),
                })
            })
            .collect()
    }
}
