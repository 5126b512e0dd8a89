//! The load side of a run: sessions on their workers.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dkvf_core::config::{Flush, NodeConfig};
use dkvf_core::net::Address;
use dkvf_core::net::pool::{ClientPool, PoolOptions};
use dkvf_core::net::worker::Local;
use dkvf_core::{Outcome, Protocol, Topology};
use dkvf_workload::{Driver, NamedKey, Progress, READERS, Recorder, Tag, Workload};

use super::patience::{Patience, any_failure};
use super::{Observer, RunOptions};
use crate::target::Target;

/// Sessions of the final reads are numbered below this in the history.
const FINAL_SESSIONS: u32 = u32::MAX - 1;

/// The load side of a run: one driver per session worker.
pub(super) struct Load<'a, P: Protocol> {
    pub(super) target: &'a dyn Target,
    pub(super) workload: Workload,
    pub(super) progress: Arc<Progress>,
    pub(super) observer: &'a dyn Observer,
    /// Of a request.
    pub(super) timeout: Duration,
    /// By worker: the number of its driver there.
    pub(super) drivers: Vec<usize>,
    protocol: std::marker::PhantomData<P>,
}

pub(super) struct LocalDriver<P: Protocol> {
    pub(super) driver: Rc<Driver<P::Client>>,
    pub(super) pool: Rc<ClientPool<P::Metadata>>,
}

impl<'a, P: Protocol> Load<'a, P> {
    pub(super) fn start(
        options: &RunOptions,
        observer: &'a dyn Observer,
        target: &'a dyn Target,
    ) -> anyhow::Result<Self> {
        let workload = Workload::new(options.workload.clone(), options.seed, options.clients);
        let progress = Arc::new(Progress::default());
        let workers = target.session_workers();
        let mut drivers = Vec::new();
        for worker in 0..workers {
            let (topology, addresses) = (target.topology().clone(), target.client_addresses());
            let (workload, progress, timeout, flush) = (
                workload.clone(),
                progress.clone(),
                options.timeout,
                options.servers.flush,
            );
            let recorder = options
                .check
                .map(|operations| Recorder::new(operations / workers));
            drivers.push(target.session_worker(worker).call(move |local| {
                start_driver::<P>(
                    local, topology, addresses, timeout, flush, workload, progress, recorder,
                )
            })?);
        }
        Ok(Load {
            target,
            workload,
            progress,
            observer,
            timeout: options.timeout,
            drivers,
            protocol: std::marker::PhantomData,
        })
    }

    /// The sessions of a worker: numbers in the workload, each with its replica.
    fn sessions_of(&self, worker: usize) -> Vec<(u32, u16)> {
        let replicas = self.target.topology().replicas() as u32;
        let sessions =
            (0..self.workload.sessions()).map(|session| (session, (session % replicas) as u16));
        sessions
            .filter(|(_, replica)| usize::from(*replica) % self.drivers.len() == worker)
            .collect()
    }

    pub(super) fn with_driver<T: Send + 'static>(
        &self,
        worker: usize,
        job: impl FnOnce(&LocalDriver<P>) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let number = self.drivers[worker];
        self.target
            .session_worker(worker)
            .call(move |local| job(&local.kept::<LocalDriver<P>>(number)))
    }

    /// Starts a phase on every worker; the receiver gets one message per finished worker.
    pub(super) fn start_phase(
        &self,
        start: impl Fn(&Driver<P::Client>, Vec<(u32, u16)>, Box<dyn FnOnce()>) + Send + Clone + 'static,
    ) -> anyhow::Result<mpsc::Receiver<()>> {
        let (finished, all_finished) = mpsc::channel();
        for worker in 0..self.drivers.len() {
            let (sessions, start, finished) =
                (self.sessions_of(worker), start.clone(), finished.clone());
            self.with_driver(worker, move |local| {
                start(
                    &local.driver,
                    sessions,
                    Box::new(move || {
                        let _ = finished.send(());
                    }),
                )
            })?;
        }
        Ok(all_finished)
    }

    /// Reads `keys` at every replica; the answers by replica. `done` is told how many were read.
    pub(super) fn read_everywhere(
        &self,
        keys: &[NamedKey],
        patience: &Patience,
        done: &dyn Fn(u64),
    ) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
        let mut answers = Vec::new();
        for replica in 0..self.target.topology().replicas() {
            self.progress.reset();
            let worker = replica % self.drivers.len();
            let (finished, answer) = mpsc::channel();
            let copy = keys.to_vec();
            let session = FINAL_SESSIONS - READERS * (1 + replica as u32);
            self.with_driver(worker, move |local| {
                local
                    .driver
                    .read_all(session, replica as u16, copy, move |answers| {
                        drop(finished.send(answers))
                    })
            })?;
            let read_before = (replica * keys.len()) as u64;
            answers.push(patience.wait(self, &answer, &|read| done(read_before + read))?);
        }
        Ok(answers)
    }

    /// What stopped a server, if something did.
    pub(super) fn look_after_servers(&self) -> anyhow::Result<()> {
        any_failure(&self.target.statuses()?)
    }

    /// Ends the phase: no session starts another operation, and those that sleep end now.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.progress.stop();
        for worker in 0..self.drivers.len() {
            self.with_driver(worker, |local| local.driver.look_at_stop_sign())?;
        }
        Ok(())
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of a driver, handed to another thread"
)]
fn start_driver<P: Protocol>(
    local: &Rc<Local>,
    topology: Topology,
    addresses: Vec<Address>,
    timeout: Duration,
    flush: Flush,
    workload: Workload,
    progress: Arc<Progress>,
    recorder: Option<Recorder>,
) -> usize {
    let options = PoolOptions {
        topology,
        addresses,
        protocol: P::NAME,
        timeout,
        flush,
        message_bytes_max: NodeConfig::new("client").message_bytes_max,
    };
    let pool = ClientPool::<P::Metadata>::start(local, options);
    let sessions = pool.clone();
    let driver = Driver::<P::Client>::new(
        Rc::new(pool.clone()),
        Box::new(move |replica| sessions.session(replica)),
        workload,
        progress,
        recorder,
    );
    pool.set_executor(driver.clone());
    local.keep(Rc::new(LocalDriver::<P> { driver, pool }))
}
