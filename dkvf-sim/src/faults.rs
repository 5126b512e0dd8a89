//! What goes wrong: faults begin and end.

use dkvf_core::{Protocol, ServerId};
use dkvf_workload::faults::{Fault, Links, Schedule};

use crate::disk::Input;
use crate::link::{BrokenPromise, Envelope};
use crate::queue::Event;
use crate::simulation::Simulation;
use crate::trace::TraceEvent;

/// A fault that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Injected {
    fault: Fault,
    /// Its index in the schedule, if it has one.
    scheduled: Option<usize>,
    lasts: bool,
    /// The rate that the clock of a drifting host had, in millionths.
    drift_before_ppm: i32,
}

impl<P: Protocol> Simulation<P> {
    /// Follows a schedule, whose times begin now.
    pub fn follow(&mut self, schedule: Schedule) {
        self.schedule_start_us = self.now_us;
        self.changes = schedule.changes();
        self.schedule = schedule;
        for index in 0..self.changes.len() {
            let time_us = self
                .schedule_start_us
                .saturating_add(self.changes[index].at_us);
            self.queue.push(
                time_us,
                Event::Change {
                    index: index as u32,
                },
            );
        }
    }

    pub(crate) fn change(&mut self, index: usize) {
        let Some(change) = self.changes.get(index).copied() else {
            return;
        };
        if change.begins {
            let fault = self.schedule.faults[change.fault].fault.clone();
            self.begin(fault, Some(change.fault));
            return;
        }
        let begun = self
            .injected
            .iter()
            .position(|injected| injected.scheduled == Some(change.fault));
        if let Some(fault) = begun {
            self.end_injected(fault);
        }
    }

    /// A fault begins now and lasts `for_us` microseconds, or until [`Simulation::heal`].
    pub fn inject(&mut self, fault: Fault, for_us: Option<u64>) {
        let index = self.injected.len() as u32;
        self.begin(fault, None);
        if let Some(for_us) = for_us {
            self.queue.push(
                self.now_us.saturating_add(for_us),
                Event::Ends { fault: index },
            );
        }
    }

    /// Ends all faults, drops those of the schedule that are still to come, and starts every server that is down.
    pub fn heal(&mut self) {
        self.changes.clear();
        for fault in 0..self.injected.len() {
            self.end_injected(fault);
        }
        for host in 0..self.hosts.len() as u32 {
            self.restart_host(host);
        }
    }

    fn begin(&mut self, fault: Fault, scheduled: Option<usize>) {
        let text = format!("{fault:?}");
        self.note(|simulation| TraceEvent::Fault {
            at_us: simulation.now_us,
            text,
            begins: true,
        });
        let mut drift_before_ppm = 0;
        match &fault {
            Fault::Crash { node, disk } => self.crash_host(self.host_of(*node), *disk),
            Fault::Restart { node } => self.restart_host(self.host_of(*node)),
            Fault::Pause { node } => {
                let host = self.host_of(*node);
                self.hosts[host as usize].pauses += 1;
            }
            Fault::Cut { links } => self.for_links(links, |simulation, id| {
                simulation.links[id as usize].cuts += 1;
                simulation.break_link(id);
            }),
            Fault::Delay {
                links,
                by_us,
                jitter_us,
            } => self.for_links(links, |simulation, id| {
                simulation.links[id as usize]
                    .delays
                    .push((*by_us, *jitter_us));
            }),
            Fault::Hold { links } => {
                self.for_links(links, |simulation, id| {
                    simulation.links[id as usize].holds += 1
                });
            }
            Fault::Slow { node, factor } => {
                let host = self.host_of(*node);
                self.hosts[host as usize].cpu.set_slow(*factor);
            }
            Fault::Step { node, by_us } => {
                let (host, now_us) = (self.host_of(*node), self.now_us);
                self.hosts[host as usize].clock.step(now_us, *by_us);
                self.clock_changed(host);
            }
            Fault::Drift { node, ppm } => {
                let (host, now_us) = (self.host_of(*node), self.now_us);
                let clock = &mut self.hosts[host as usize].clock;
                drift_before_ppm = clock.drift_ppm();
                clock.set_drift(now_us, *ppm);
                self.clock_changed(host);
            }
            Fault::DiskFull { node } => self.machines[node.index()].disk_full = true,
            Fault::Break {
                links,
                lose_permille,
                repeat_permille,
                reorder_permille,
            } => {
                let promise = BrokenPromise {
                    lose_permille: *lose_permille,
                    repeat_permille: *repeat_permille,
                    reorder_permille: *reorder_permille,
                };
                self.for_links(links, |simulation, id| {
                    simulation.links[id as usize].broken_promise = Some(promise);
                });
            }
        }
        let lasts = !matches!(fault, Fault::Restart { .. } | Fault::Step { .. });
        self.injected.push(Injected {
            fault,
            scheduled,
            lasts,
            drift_before_ppm,
        });
    }

    pub(crate) fn end_injected(&mut self, index: usize) {
        let injected = &mut self.injected[index];
        if !std::mem::take(&mut injected.lasts) {
            return;
        }
        let Injected {
            fault,
            drift_before_ppm,
            ..
        } = injected.clone();
        let text = format!("{fault:?}");
        self.note(|simulation| TraceEvent::Fault {
            at_us: simulation.now_us,
            text,
            begins: false,
        });
        match &fault {
            Fault::Crash { node, .. } => self.restart_host(self.host_of(*node)),
            Fault::Pause { node } => {
                let host = self.host_of(*node);
                self.hosts[host as usize].pauses -= 1;
                self.arm_work(host);
            }
            Fault::Cut { links } => self.for_links(links, |simulation, id| {
                simulation.links[id as usize].cuts -= 1;
                simulation.dial(id);
            }),
            Fault::Delay {
                links,
                by_us,
                jitter_us,
            } => self.for_links(links, |simulation, id| {
                let delays = &mut simulation.links[id as usize].delays;
                if let Some(place) = delays
                    .iter()
                    .position(|delay| *delay == (*by_us, *jitter_us))
                {
                    delays.remove(place);
                }
            }),
            Fault::Hold { links } => self.for_links(links, Self::release_hold),
            Fault::Slow { node, .. } => {
                let host = self.host_of(*node);
                self.hosts[host as usize].cpu.set_slow(1);
            }
            Fault::Drift { node, .. } => {
                let (host, now_us) = (self.host_of(*node), self.now_us);
                self.hosts[host as usize]
                    .clock
                    .set_drift(now_us, drift_before_ppm);
                self.clock_changed(host);
            }
            Fault::DiskFull { node } => {
                let machine = &mut self.machines[node.index()];
                machine.disk_full = false;
                if machine.stopped_by_disk {
                    self.restart_host(self.host_of(*node));
                }
            }
            Fault::Break { links, .. } => self.for_links(links, Self::keep_promise),
            Fault::Restart { .. } | Fault::Step { .. } => {}
        }
    }

    fn host_of(&self, node: ServerId) -> u32 {
        self.machines[node.index()].host
    }

    fn for_links(&mut self, links: &Links, mut change: impl FnMut(&mut Self, u32)) {
        for (from, to) in links {
            let id = self.link_id(*from, *to);
            change(self, id);
        }
    }

    /// Waits for the clock may end earlier than they were expected to.
    fn clock_changed(&mut self, host: u32) {
        for node in self.hosts[host as usize].nodes.clone() {
            self.arm_tick(ServerId(node as u16));
        }
    }

    fn release_hold(&mut self, id: u32) {
        let now_us = self.now_us;
        let link = &mut self.links[id as usize];
        link.holds -= 1;
        if link.holds == 0
            && let Some((time_us, number)) = link.wire.release(now_us)
        {
            self.queue
                .push_numbered(time_us, number, Event::Frame { link: id });
        }
    }

    /// A message that was to be overtaken by one that never came is delivered.
    fn keep_promise(&mut self, id: u32) {
        let link = &mut self.links[id as usize];
        link.broken_promise = None;
        let (from, to, incarnation, number) = (
            ServerId(link.from),
            ServerId(link.to),
            link.taken_from,
            link.taken,
        );
        if let Some(message) = link.overtaken.take() {
            let envelope = Envelope {
                number,
                bytes: 0,
                latest: false,
                message,
            };
            self.step(
                to,
                0,
                Input::Message {
                    from,
                    incarnation,
                    envelope,
                },
            );
        }
    }
}
