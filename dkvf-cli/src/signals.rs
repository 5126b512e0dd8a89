//! Ctrl-C: the first ends a command cleanly, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user wants to stop.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to listen for Ctrl-C and for SIGTERM.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn listen() -> anyhow::Result<Self> {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let flag = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("dkvf-signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                wait_for_signal().await;
                flag.0.store(true, Ordering::Relaxed);
                wait_for_signal().await;
                std::process::exit(130);
            });
        })?;
        Ok(interrupt)
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

async fn wait_for_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
