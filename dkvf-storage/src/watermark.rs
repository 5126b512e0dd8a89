//! The file that says how much a directory must contain. See [`Watermark`].

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::StorageError;
use crate::marker::io_error;

/// Name of the watermark file.
pub(crate) const FILE: &str = "dkvf-storage.synced";

/// How many batches a sync has made durable, in a file beside the engine's.
///
/// An engine that repairs itself by forgetting the end of its log looks healthy; fewer batches than the
/// watermark give it away. The file is written after each sync and not synced itself: it may lag
/// behind the truth, and never runs ahead of it.
pub(crate) struct Watermark {
    file: File,
    path: PathBuf,
    batches: u64,
}

impl Watermark {
    /// Opens the watermark of `directory`, or begins one at zero.
    pub(crate) fn open(directory: &Path) -> Result<Self, StorageError> {
        let path = directory.join(FILE);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io_error("open", &path))?;
        let batches = read(&path)?;
        Ok(Watermark {
            file,
            path,
            batches,
        })
    }

    /// The batches that must be there.
    pub(crate) fn batches(&self) -> u64 {
        self.batches
    }

    /// Raises the watermark; call it when so many batches are durable.
    pub(crate) fn raise(&mut self, batches: u64) -> Result<(), StorageError> {
        self.file
            .write_all_at(&encode(batches), 0)
            .map_err(io_error("write", &self.path))?;
        self.batches = batches;
        Ok(())
    }
}

/// The number and its checksum, both little-endian.
fn encode(batches: u64) -> [u8; 16] {
    let sum = xxh3_64(&batches.to_le_bytes());
    (u128::from(batches) | u128::from(sum) << 64).to_le_bytes()
}

/// The batches that an existing file states; a new file states none.
fn read(path: &Path) -> Result<u64, StorageError> {
    let text = fs::read(path).map_err(io_error("read", path))?;
    if text.is_empty() {
        return Ok(0);
    }
    let batches = text
        .first_chunk()
        .map(|batches| u64::from_le_bytes(*batches));
    batches
        .filter(|&batches| text == encode(batches))
        .ok_or_else(|| StorageError::Damaged {
            location: path.display().to_string(),
            reason: "the checksum of the number of synced batches does not match".into(),
        })
}
