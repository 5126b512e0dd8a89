//! The engine over sled. See [`SledEngine`].

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::engine::{Batch, Engine, EngineVisit};
use crate::marker::{self, io_error};
use crate::watermark::Watermark;
use crate::{Capabilities, ServerId, StorageError, Versions};

/// Name of the engine.
pub(crate) const NAME: &str = "sled";

/// What the engine can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    persistent: true,
    syncs: true,
};

/// Size of sled's page cache unless the property `cache_mib` says otherwise, in MiB.
pub(crate) const CACHE_MIB_DEFAULT: u64 = 64;

/// The engine's own entry: how many batches were applied.
const BATCHES: &[u8] = &[];

/// An [`Engine`] over [sled](https://docs.rs/sled/0.34) 0.34: a log of pages with a tree in memory.
///
/// # What is durable when
///
/// A batch is in sled's buffer when [`Engine::apply`] returns; it reaches the operating system when the
/// buffer fills, at a sync, or when the engine is dropped. [`Engine::sync`] calls sled's `flush`, which on
/// Linux starts and awaits the write-back of file ranges and is no fsync, and then does what is missing:
/// it fsyncs the files of values too large for the log, and the log. sled's periodic flush is off, so
/// nothing else costs I/O time behind one's back. Dropping the engine syncs.
///
/// # What is noticed
///
/// sled answers damage to its files in three ways: with an error, with a panic, and by forgetting
/// what it cannot read. Panics are caught here and become errors (the default panic hook still prints
/// them). What was forgotten shows when fewer batches are there than the last sync had seen, and
/// through the checksums and counts of [`EngineStore`](crate::EngineStore). Not noticed is the loss of
/// batches that were never synced.
pub struct SledEngine {
    directory: PathBuf,
    /// `None` only while dropping.
    db: Option<sled::Db>,
    /// sled's log, for fsync.
    log: File,
    /// Batches applied, ever.
    batches: u64,
    watermark: Watermark,
    /// The newest of the synced files in `blobs`: their names are ascending numbers.
    blobs_synced: i64,
    health: Cell<Health>,
    /// Keeps other stores out of the directory; released last.
    _lock: File,
}

#[derive(Clone, Copy, PartialEq)]
enum Health {
    Sound,
    /// A write or sync failed: what is on disk is unknown until the next opening.
    Failed,
    /// sled panicked: it must not be touched again.
    Panicked,
}

impl SledEngine {
    /// Opens or creates the engine in `directory`, with a page cache of about `cache_mib` MiB.
    ///
    /// Creates the directory if need be. Opening reads the log, O(its size).
    ///
    /// # Errors
    ///
    /// A directory that is not ours, is another store's or is damaged; see [`StorageError`].
    pub fn open(
        directory: &Path,
        node: ServerId,
        versions: Versions,
        cache_mib: u64,
    ) -> Result<Self, StorageError> {
        let lock = marker::prepare(directory, NAME, node, versions)?;
        let watermark = Watermark::open(directory)?;
        let log_path = directory.join("db");
        // sled would begin a new log.
        if watermark.batches() > 0 && !log_path.exists() {
            return Err(damaged(directory, "the file `db` is missing".into()));
        }
        let config = sled::Config::new()
            .path(directory)
            .cache_capacity(cache_mib.saturating_mul(1024 * 1024))
            .flush_every_ms(None);
        let db = match catch(|| config.open()) {
            Ok(Ok(db)) => db,
            Ok(Err(error)) => return Err(engine_error(directory, "open", error)),
            Err(panic) => return Err(damaged(directory, panic)),
        };
        let mut engine = SledEngine {
            directory: directory.into(),
            db: Some(db),
            log: File::open(&log_path).map_err(io_error("open", &log_path))?,
            batches: 0,
            watermark,
            blobs_synced: -1,
            health: Cell::new(Health::Sound),
            _lock: lock,
        };
        engine.batches = engine.read_batches()?;
        marker::sync_directory(directory).map_err(io_error("sync", directory))?;
        Ok(engine)
    }

    /// Reads the number of batches and compares it with the watermark.
    fn read_batches(&self) -> Result<u64, StorageError> {
        let batches = match self.get(BATCHES)? {
            None => 0,
            Some(number) => match number.try_into() {
                Ok(number) => u64::from_le_bytes(number),
                Err(_) => {
                    return Err(damaged(
                        &self.directory,
                        "the number of batches is not a number".into(),
                    ));
                }
            },
        };
        let synced = self.watermark.batches();
        if batches < synced {
            return Err(damaged(
                &self.directory,
                format!("{synced} batches were synced, {batches} are there"),
            ));
        }
        Ok(batches)
    }

    /// Runs `f` unless the engine has failed, and turns what sled throws into errors.
    fn guard<T>(
        &self,
        action: &'static str,
        f: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, StorageError> {
        let Some(db) = self
            .db
            .as_ref()
            .filter(|_| self.health.get() == Health::Sound)
        else {
            return Err(StorageError::Engine {
                location: self.location(),
                action,
                source: "an earlier write failed".into(),
            });
        };
        match catch(|| f(db)) {
            Ok(result) => result.map_err(|error| engine_error(&self.directory, action, error)),
            Err(panic) => {
                self.health.set(Health::Panicked);
                Err(damaged(&self.directory, panic))
            }
        }
    }

    /// Notes that a write failed.
    fn fail_on_error<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        if result.is_err() && self.health.get() == Health::Sound {
            self.health.set(Health::Failed);
        }
        result
    }

    fn sync_files(&mut self) -> Result<(), StorageError> {
        self.guard("flush", |db| db.flush())?;
        let blobs = self.directory.join("blobs");
        self.blobs_synced =
            sync_newer_files(&blobs, self.blobs_synced).map_err(io_error("sync", &blobs))?;
        self.log
            .sync_data()
            .map_err(io_error("sync the log in", &self.directory))?;
        self.watermark.raise(self.batches)
    }
}

impl Engine for SledEngine {
    fn location(&self) -> String {
        location(&self.directory)
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.guard("read", |db| db.get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut EngineVisit<'_>,
    ) -> Result<(), StorageError> {
        let mut entries = self.guard("scan", |db| Ok(db.range(from..to)))?;
        while let Some((key, value)) = self.guard("scan", |_| entries.next().transpose())? {
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StorageError> {
        let next = self.batches + 1;
        let mut writes = sled::Batch::default();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => writes.insert(key, value),
                None => writes.remove(key),
            }
        }
        writes.insert(BATCHES, &next.to_le_bytes());
        let applied = self.guard("write", |db| db.apply_batch(writes));
        self.fail_on_error(applied)?;
        self.batches = next;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        let synced = self.sync_files();
        self.fail_on_error(synced)
    }
}

impl Drop for SledEngine {
    fn drop(&mut self) {
        if self.health.get() == Health::Sound
            && self.batches > self.watermark.batches()
            && let Err(error) = self.sync()
        {
            tracing::warn!(%error, "a store could not be synced while closing");
        }
        let db = self.db.take();
        if self.health.get() == Health::Panicked {
            // Its destructors would work on the broken state; it keeps its lock instead.
            std::mem::forget(db);
            return;
        }
        let closed = catch(|| drop(db)).and_then(|()| {
            // sled locks this file, and its threads may hold it a moment longer than `db`. Whoever
            // reopens the directory next must find it free; our own lock has kept all others out.
            self.log.lock().map_err(|error| error.to_string())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "a store could not be closed");
        }
    }
}

/// Runs `f`; a panic becomes its message.
///
/// sled has no other way to say that what it read makes no sense. What it leaves half done is not used
/// again, so there is nothing that could be seen in a broken state.
fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        format!("sled panicked: {message}")
    })
}

/// Syncs the files of `directory` whose name is a number over `synced`, and then the names; returns the
/// highest number.
fn sync_newer_files(directory: &Path, synced: i64) -> io::Result<i64> {
    let mut highest = synced;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(OsStr::to_str)
            .and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|&number| number > synced) else {
            continue;
        };
        match File::open(&path) {
            Ok(file) => file.sync_all()?,
            // sled's threads remove values that were replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        highest = highest.max(number);
    }
    if highest > synced {
        marker::sync_directory(directory)?;
    }
    Ok(highest)
}

fn engine_error(directory: &Path, action: &'static str, error: sled::Error) -> StorageError {
    match error {
        sled::Error::Io(_) => StorageError::Engine {
            location: location(directory),
            action,
            source: error.into(),
        },
        sled::Error::Corruption { .. } => damaged(
            directory,
            format!("cannot {action}: sled read what it did not write"),
        ),
        _ => damaged(directory, format!("cannot {action}: {error}")),
    }
}

fn damaged(directory: &Path, reason: String) -> StorageError {
    StorageError::Damaged {
        location: location(directory),
        reason,
    }
}

fn location(directory: &Path) -> String {
    format!("{NAME} in {}", directory.display())
}
