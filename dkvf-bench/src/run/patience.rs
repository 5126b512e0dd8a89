//! How long a run waits, and for what.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::bail;
use dkvf_core::Protocol;
use dkvf_core::net::status::ServerStatus;

use super::load::Load;
use super::{Interrupted, Observer, RunOptions};
use crate::target::Target;

/// Time within which something must move: an operation end, a link get shorter, a record become visible. Delays of links
/// come on top.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at the user, and at whether a phase has ended.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that sessions have to finish their operations after the user's interrupt.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(1);
/// First and longest pause between two questions to the servers that were in vain.
const POLL_PAUSE: Duration = Duration::from_millis(5);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(320);

/// How long to wait for the servers where they decide: until the user has enough, or nothing moves any more.
pub(super) struct Patience<'a> {
    pub(super) observer: &'a dyn Observer,
    /// Interrupts that came before.
    pub(super) interrupts: u32,
    /// Time within which something must move.
    pub(super) patience: Duration,
}

impl<'a> Patience<'a> {
    /// Interrupts of earlier phases do not count.
    pub(super) fn from_now(options: &RunOptions, observer: &'a dyn Observer) -> Self {
        let slowest_ms = options
            .servers
            .delays
            .iter()
            .map(|delay| delay.ms + delay.jitter_ms)
            .max();
        // There, back, and there again: what protocols wait for.
        let patience = PATIENCE + 3 * Duration::from_millis(slowest_ms.unwrap_or(0));
        Patience {
            observer,
            interrupts: observer.interrupts(),
            patience,
        }
    }

    /// # Errors
    /// [`Interrupted`].
    pub(super) fn look(&self) -> anyhow::Result<()> {
        if self.observer.interrupts() > self.interrupts {
            Err(Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// Waits for a message of a phase whose operations count in `load.progress`.
    ///
    /// # Errors
    /// [`Interrupted`], a server stopped, or no operation ended for longer than a request may take.
    pub(super) fn wait<P: Protocol, T>(
        &self,
        load: &Load<P>,
        answer: &mpsc::Receiver<T>,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<T> {
        let (mut done, mut moved, mut looked) = (0, Instant::now(), Instant::now());
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(answer) => return Ok(answer),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a worker thread has died"),
            }
            self.look()?;
            if load.progress.operations() != done {
                (done, moved) = (load.progress.operations(), Instant::now());
            }
            tell(done);
            if looked.elapsed() > Duration::from_secs(1) {
                load.look_after_servers()?;
                looked = Instant::now();
            }
            if moved.elapsed() > self.patience + load.timeout {
                bail!(
                    "the servers have answered no read for {:?}",
                    self.patience + load.timeout
                );
            }
        }
    }
}

/// Pauses between questions that become longer: each costs the servers new sessions.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Self {
        Pauses(POLL_PAUSE)
    }

    pub(super) fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(POLL_PAUSE_MAX);
    }
}

/// How [`watch`] ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    Finished,
    /// By the user, while operations were waiting for answers that did not come.
    Abandoned,
}

/// What a look at a phase shows.
pub(super) struct Look {
    /// How far it is.
    pub(super) done: u64,
    /// When to look again.
    pub(super) again_in: Duration,
}

impl Look {
    /// A look that nothing hurries.
    pub(super) fn usual(done: u64) -> Self {
        Look {
            done,
            again_in: LOOK_EVERY,
        }
    }
}

/// Waits for a phase to end, looking after the user and the servers meanwhile.
pub(super) fn watch<P: Protocol>(
    load: &Load<P>,
    finished: &mpsc::Receiver<()>,
    mut look: impl FnMut() -> anyhow::Result<Look>,
) -> anyhow::Result<Watched> {
    let mut left = load.drivers.len();
    let mut looked = Instant::now();
    let mut stopped: Option<Instant> = None;
    let mut again_in = Duration::ZERO;
    while left > 0 {
        match finished.recv_timeout(again_in) {
            Ok(()) => left -= 1,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a worker thread has died"),
        }
        let seen = look()?;
        again_in = seen.again_in.min(LOOK_EVERY);
        load.observer.done(seen.done);
        let interrupted = load.observer.interrupts() > 0;
        if stopped.is_none() && (interrupted || load.progress.is_stopped()) {
            load.stop()?;
            stopped = Some(Instant::now());
        }
        if interrupted && stopped.is_some_and(|since| since.elapsed() > INTERRUPT_PATIENCE) {
            return Ok(Watched::Abandoned);
        }
        if !interrupted && looked.elapsed() > Duration::from_secs(1) {
            match load.look_after_servers() {
                // The user may have come while a server did not answer: then what was measured goes before.
                Err(error) if load.observer.interrupts() == 0 => return Err(error),
                _ => looked = Instant::now(),
            }
        }
    }
    Ok(Watched::Finished)
}

/// Waits until no link keeps anything, or nothing leaves them any more.
pub(super) fn wait_until_drained(
    target: &dyn Target,
    patience: &Patience,
) -> anyhow::Result<Vec<ServerStatus>> {
    let (mut least, mut deadline) = (u64::MAX, Instant::now() + patience.patience);
    let mut pauses = Pauses::new();
    loop {
        patience.look()?;
        let statuses = target.statuses()?;
        any_failure(&statuses)?;
        let links = || statuses.iter().flat_map(|status| &status.links);
        let kept = links().map(|link| link.kept_frames).sum::<u64>();
        if kept < least {
            (least, deadline) = (kept, Instant::now() + patience.patience);
        }
        // Heartbeats are always under way: a few kept frames per link are none.
        if kept <= links().count() as u64 || Instant::now() > deadline {
            return Ok(statuses);
        }
        pauses.pause();
    }
}

pub(super) fn any_failure(statuses: &[ServerStatus]) -> anyhow::Result<()> {
    match statuses
        .iter()
        .find_map(|status| Some((&status.server, status.failure.as_ref()?)))
    {
        Some((server, failure)) => bail!("server {server} stopped: {failure}"),
        None => Ok(()),
    }
}
