//! Worker threads: one thread, one single-threaded runtime, and what the nodes and sessions on it share.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Context as _;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;

use super::flush::Flusher;
use crate::config::Flush as FlushMode;

type Job = Box<dyn FnOnce(&Rc<Local>) + Send>;

/// A worker thread. Dropping it ends the thread and everything on it.
pub struct Worker {
    jobs: Option<mpsc::UnboundedSender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What belongs to a worker's thread.
pub struct Local {
    flushers: RefCell<Vec<(FlushMode, Rc<Flusher>)>>,
    random: RefCell<Pcg64Mcg>,
    index: usize,
    kept: RefCell<Vec<Rc<dyn Any>>>,
}

impl Worker {
    /// Starts worker number `index` of this process; its thread is called `name`.
    ///
    /// # Errors
    /// The system gives no thread or no event queue.
    pub fn start(index: usize, name: &str) -> anyhow::Result<Self> {
        let (jobs, mut receiver) = mpsc::unbounded_channel::<Job>();
        let (started, has_started) = std::sync::mpsc::channel();
        let run = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
            {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(()));
            runtime.block_on(async move {
                let local = Local::new(index);
                while let Some(job) = receiver.recv().await {
                    job(&local);
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .context("cannot start a worker thread")?;
        has_started
            .recv()
            .context("a worker thread died")?
            .context("cannot start a worker's runtime")?;
        Ok(Worker {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs `job` on the worker; it may spawn local tasks.
    pub fn run(&self, job: impl FnOnce(&Rc<Local>) + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only after the sender is gone, unless a job panicked: then the join reports it.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Runs `job` on the worker and waits for its result.
    ///
    /// # Errors
    /// The worker's thread is gone.
    pub fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<Local>) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.run(move |local| {
            let _ = sender.send(job(local));
        });
        receiver.recv().context("a worker thread has died")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker thread panicked");
        }
    }
}

impl Local {
    /// What a thread needs to host nodes and sessions. Call it inside a local runtime.
    pub fn new(index: usize) -> Rc<Self> {
        Rc::new(Local {
            flushers: RefCell::default(),
            random: RefCell::new(Pcg64Mcg::seed_from_u64(os_random())),
            index,
            kept: RefCell::default(),
        })
    }

    /// The number of this worker.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Keeps something that cannot leave this thread, for later jobs. Returns the number to ask for.
    pub fn keep<T: 'static>(&self, value: Rc<T>) -> usize {
        let mut kept = self.kept.borrow_mut();
        kept.push(value);
        kept.len() - 1
    }

    /// What [`Local::keep`] kept under this number.
    ///
    /// # Panics
    /// If the number is of something else.
    pub fn kept<T: 'static>(&self, number: usize) -> Rc<T> {
        self.kept.borrow()[number]
            .clone()
            .downcast()
            .expect("invariant: the number of such a value")
    }

    /// A number nobody else will have: an incarnation, a client process. Only the host on TCP needs such.
    pub fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// The flusher of this worker for a mode.
    pub(crate) fn flusher(&self, mode: FlushMode) -> Rc<Flusher> {
        let mut flushers = self.flushers.borrow_mut();
        let known = flushers
            .iter()
            .find(|(known, _)| *known == mode)
            .map(|(_, flusher)| flusher.clone());
        known.unwrap_or_else(|| {
            let flusher = Flusher::start(mode);
            flushers.push((mode, flusher.clone()));
            flusher
        })
    }
}

/// The operating system's randomness, by way of the standard library's hash seeds.
fn os_random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
