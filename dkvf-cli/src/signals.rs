//! Ctrl-C and SIGTERM: the first ends a command cleanly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often the user has asked to stop.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// Starts to listen. The `last` signal ends the process at once, whatever it is doing.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn listen(last: u32) -> anyhow::Result<Self> {
        let interrupt = Interrupt(Arc::new(AtomicU32::new(0)));
        let flag = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut signals = {
            let _context = runtime.enter();
            Signals::new()?
        };
        let listen = async move {
            loop {
                signals.next().await;
                if flag.0.fetch_add(1, Ordering::Relaxed) + 1 >= last {
                    std::process::exit(130);
                }
            }
        };
        std::thread::Builder::new()
            .name("dkvf-signals".to_owned())
            .spawn(move || runtime.block_on(listen))?;
        Ok(interrupt)
    }

    /// How many signals came.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The signals that mean "stop". They are taken from the moment this is made: none is lost between two.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Elsewhere only Ctrl-C.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            // Nothing can be heard here: the system's own way of ending processes remains.
            std::future::pending::<()>().await;
        }
    }
}
