//! One server as a process: started, killed, stopped for a while.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dkvf_core::config::NodeConfig;

use super::START_TIMEOUT;
use crate::usage;

/// The most of a server's own words that an error repeats, in bytes from the end.
const LAST_WORDS_BYTES_MAX: usize = 2_000;

/// A server's process, and how to start another one in its place.
pub(super) struct ServerProcess {
    program: PathBuf,
    config: NodeConfig,
    /// Its configuration file, and what it says.
    file: PathBuf,
    log: PathBuf,
    child: Child,
    state: State,
    /// CPU seconds of the processes before this one.
    cpu_before: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Since it was started again, or went on.
    Starting(Instant),
    Paused,
    Down,
}

impl ServerProcess {
    /// Starts `program server --config FILE --stop-with-stdin`, with its files in `directory`.
    pub(super) fn start(
        program: &Path,
        config: NodeConfig,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let file = directory.join(format!("{}.xml", config.name));
        let log = directory.join(format!("{}.log", config.name));
        Ok(ServerProcess {
            program: program.to_owned(),
            child: spawn(program, &config, &file, &log)?,
            config,
            file,
            log,
            state: State::Up,
            cpu_before: 0.0,
        })
    }

    /// Whether it is neither down nor paused, nor known to be still starting.
    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether it was started again, or went on, and has not answered since.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting(_))
    }

    /// It answers.
    pub(super) fn has_started(&mut self) {
        self.state = State::Up;
    }

    /// It does not answer yet, after it was started again or went on.
    ///
    /// # Errors
    /// It has ended, or it had time enough.
    pub(super) fn has_not_started(&mut self) -> anyhow::Result<()> {
        let State::Starting(since) = self.state else {
            return Ok(());
        };
        let in_time = since.elapsed() < START_TIMEOUT;
        match self.end()? {
            // Somebody has one of its ports for a moment: a connection that was made while it was down.
            Some(words) if in_time && words.contains("cannot listen on") => {
                std::fs::write(&self.log, "")?;
                self.child = spawn(&self.program, &self.config, &self.file, &self.log)?;
                Ok(())
            }
            Some(words) => bail!("{words}"),
            None if in_time => Ok(()),
            None => bail!(
                "server {} does not answer {START_TIMEOUT:?} after a fault had ended",
                self.config.name
            ),
        }
    }

    /// How it ended, if it did, with its last words.
    pub(super) fn end(&mut self) -> anyhow::Result<Option<String>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| {
            format!(
                "server {} ended with {status}: {}",
                self.config.name,
                self.last_words()
            )
        }))
    }

    /// The end of what it wrote to its log.
    pub(super) fn last_words(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let end = &bytes[bytes.len().saturating_sub(LAST_WORDS_BYTES_MAX)..];
        match String::from_utf8_lossy(end).trim() {
            "" => "it said nothing".to_owned(),
            words => words.to_owned(),
        }
    }

    /// Kills it.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        self.cpu_before += usage::process_cpu(self.child.id());
        self.child.kill()?;
        self.child.wait()?;
        self.state = State::Down;
        Ok(())
    }

    /// Starts it again after a crash: empty, with its clock `clock_us` from where it was at first.
    pub(super) fn restart(&mut self, clock_us: i64) -> anyhow::Result<()> {
        // Nothing is durable: what an engine has on disk is of a server that is no more.
        if let Some(data) = &self.config.storage.directory
            && data.exists()
        {
            std::fs::remove_dir_all(data)
                .with_context(|| format!("cannot empty {}", data.display()))?;
        }
        let mut config = self.config.clone();
        config.clock_skew_us = config.clock_skew_us.saturating_add(clock_us);
        self.child = spawn(&self.program, &config, &self.file, &self.log)?;
        self.state = State::Starting(Instant::now());
        Ok(())
    }

    /// Has it stand still.
    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        signal(&self.child, Signal::Stop)?;
        self.state = State::Paused;
        Ok(())
    }

    /// Has it go on; it may have been stopped while it was starting.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        signal(&self.child, Signal::Continue)?;
        self.state = State::Starting(Instant::now());
        Ok(())
    }

    /// CPU seconds so far, of all its processes.
    pub(super) fn cpu(&self) -> f64 {
        match self.state {
            State::Down => self.cpu_before,
            _ => self.cpu_before + usage::process_cpu(self.child.id()),
        }
    }

    /// Peak memory of the present process, in bytes.
    pub(super) fn peak_rss_bytes(&self) -> u64 {
        usage::peak_rss_bytes(Some(self.child.id()))
    }

    /// Asks it to stop: the end of its input tells it to.
    pub(super) fn ask_to_stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until it has stopped, and kills it at the deadline, or at once if it stands still.
    pub(super) fn wait_or_kill(&mut self, deadline: Instant) {
        while self.state != State::Paused
            && matches!(self.child.try_wait(), Ok(None))
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that did not listen is not asked again, and one that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, config: &NodeConfig, file: &Path, log: &Path) -> anyhow::Result<Child> {
    std::fs::write(file, config.to_xml())
        .with_context(|| format!("cannot write {}", file.display()))?;
    // Not a pipe: nobody would empty it. A server that comes back goes on in the log of the one before.
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command
        .args(["server", "--stop-with-stdin", "--config"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log);
    // Ctrl-C in a terminal goes to all of its foreground group: how the servers end is for this process to say. Should this
    // process be killed, the group is an orphan, and the system continues and ends those in it that stand still.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

/// What a process can be told.
#[derive(Clone, Copy)]
enum Signal {
    Stop,
    Continue,
}

#[cfg(unix)]
fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    use rustix::process;
    let signal = match signal {
        Signal::Stop => process::Signal::STOP,
        Signal::Continue => process::Signal::CONT,
    };
    process::kill_process(process::Pid::from_child(child), signal)
        .context("cannot stop or continue a server's process")
}

#[cfg(not(unix))]
fn signal(_child: &Child, _signal: Signal) -> anyhow::Result<()> {
    bail!("this system cannot stop a process for a while")
}
