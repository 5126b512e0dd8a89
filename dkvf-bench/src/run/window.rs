//! Warm-up and measured window.

use dkvf_core::Protocol;
use dkvf_core::net::clock::HostClock;
use dkvf_workload::Window;

use super::RunOptions;
use super::injector::Injector;
use super::load::Load;
use super::patience::{Look, Watched, watch};

/// What the window was, beside what its sessions measured.
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) whole_seconds: f64,
    pub(super) server_cpu_s: f64,
    pub(super) client_cpu_s: f64,
    /// Why it is shorter than asked for, if it is.
    pub(super) ended_early: Option<String>,
    /// Whether sessions are still waiting for answers, so that nothing more can be asked of them.
    pub(super) abandoned: bool,
}

/// Warm-up and measured window, with their faults; all are over when it returns, or about to be.
pub(super) fn run_window<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
    injector: &mut Injector,
) -> anyhow::Result<Measured> {
    load.progress.reset();
    let clock = HostClock::new(0);
    // A moment ahead, so that all workers start together.
    let start_us = clock.monotonic_us() + 2_000;
    let measure_us = start_us + options.warmup.as_micros() as u64;
    let window = Window {
        start_us,
        measure_us,
        end_us: measure_us + options.duration.as_micros() as u64,
    };
    load.observer.phase(
        "running",
        (options.warmup + options.duration).as_millis() as u64,
    );
    let finished = load
        .start_phase(move |driver, sessions, finished| driver.run(&sessions, window, finished))?;
    let mut cpu_at_measure = None;
    injector.begin(clock, start_us);
    let watched = watch(load, &finished, || {
        let now_us = clock.monotonic_us();
        if now_us >= measure_us {
            cpu_at_measure.get_or_insert_with(|| (load.target.cpu(), now_us));
        }
        let done = now_us.saturating_sub(start_us) / 1000;
        if now_us >= window.end_us || load.progress.is_stopped() {
            // Sessions that wait for a server that is down shall not wait for longer.
            injector.heal()?;
            return Ok(Look::usual(done));
        }
        Ok(Look {
            done,
            again_in: injector.advance()?,
        })
    })?;
    injector.heal()?;
    let end_us = clock.monotonic_us().clamp(measure_us, window.end_us);
    let (server_cpu, client_cpu) = load.target.cpu();
    let ((server_before, client_before), _) =
        cpu_at_measure.unwrap_or(((server_cpu, client_cpu), end_us));
    let seconds = (end_us.max(measure_us + 1) - measure_us) as f64 / 1e6;
    let ended_early = (end_us < window.end_us).then(|| {
        let why = if load.observer.interrupts() > 0 {
            "interrupted"
        } else if options.check.is_some() && load.progress.is_stopped() {
            "the recorder is full, and all that it has is checked"
        } else {
            "operationcount is reached"
        };
        format!(
            "ended after {seconds:.2} of {} s: {why}",
            options.duration.as_secs_f64()
        )
    });
    Ok(Measured {
        seconds,
        whole_seconds: (end_us.max(start_us + 1) - start_us) as f64 / 1e6,
        server_cpu_s: server_cpu - server_before,
        client_cpu_s: client_cpu - client_before,
        ended_early,
        abandoned: watched == Watched::Abandoned,
    })
}
