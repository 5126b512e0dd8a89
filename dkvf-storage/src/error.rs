//! What can go wrong in a store. See [`StorageError`].

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX};

/// Why a store could not be opened, read or written. Every message says what, where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A put with a key over [`KEY_BYTES_MAX`].
    #[error(
        "the key has {bytes} bytes; a key has at most {KEY_BYTES_MAX}: shorten it, or store its hash"
    )]
    KeyTooLong {
        /// Length of the refused key.
        bytes: usize,
    },

    /// A put with a record over [`RECORD_BYTES_MAX`].
    #[error(
        "the record has {bytes} bytes when encoded; a record has at most {RECORD_BYTES_MAX}: split the value over several keys"
    )]
    RecordTooLarge {
        /// Encoded length of the refused record.
        bytes: usize,
    },

    /// No engine has this name.
    #[error("there is no storage engine `{name}`; the engines are: {known}")]
    UnknownEngine {
        /// The name that was asked for.
        name: String,
        /// The names that exist, separated by commas.
        known: String,
    },

    /// The engine keeps its content on disk and was given no directory.
    #[error("the storage engine `{engine}` needs a directory: give the node one of its own")]
    NoDirectory {
        /// Name of the engine.
        engine: &'static str,
    },

    /// A property that the engine does not have, or a value that it does not take.
    #[error("the storage engine `{engine}` does not support `{option}`: {reason}")]
    UnsupportedOption {
        /// Name of the engine.
        engine: &'static str,
        /// Name of the property.
        option: String,
        /// What it would take instead.
        reason: String,
    },

    /// A file or directory of ours could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "cannot *create*".
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The engine failed. After a failed write or sync the store answers only errors until it is opened again.
    #[error(
        "storage failed in {location}: cannot {action}: {source}; reopen the store when the cause is removed"
    )]
    Engine {
        /// Engine and directory.
        location: String,
        /// What was tried, as in "cannot *sync*".
        action: &'static str,
        /// What the engine said.
        source: Box<dyn Error + Send + Sync>,
    },

    /// The directory has content that no store of this framework wrote. Nothing in it was touched.
    #[error("{} is not empty and is not a store: name a new or an empty directory", directory.display())]
    ForeignDirectory {
        /// The directory.
        directory: PathBuf,
    },

    /// Another store, of this or another process, has the directory open.
    #[error("{} is in use by another store: stop the other process, or name another directory", directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },

    /// The directory holds a store, but of another kind than the one asked for.
    #[error(
        "{} says {what} {found}, but {what} {asked} was asked for: name another directory, or ask for what is there",
        marker.display()
    )]
    WrongMarker {
        /// The marker file.
        marker: PathBuf,
        /// What differs: `format`, `engine`, `versions` or `node`.
        what: &'static str,
        /// What the marker file says.
        found: String,
        /// What was asked for.
        asked: String,
    },

    /// The marker file is not one, so nothing is known about the directory.
    #[error("{} is unreadable: {reason}; restore the directory from a copy, or delete it", marker.display())]
    UnreadableMarker {
        /// The marker file.
        marker: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The content as a whole is not what was written: files are missing, cut short or changed.
    #[error(
        "the content of {location} is damaged: {reason}; restore it from a copy, or delete it and start the node empty"
    )]
    Damaged {
        /// Engine and directory.
        location: String,
        /// How it was noticed.
        reason: String,
    },

    /// One entry is not what was written.
    #[error(
        "the record of key \"{key}\" in table {table} of {location} is corrupt: {reason}; restore the directory from a copy, or delete it and start the node empty"
    )]
    Corrupt {
        /// Engine and directory.
        location: String,
        /// Number of the table.
        table: u8,
        /// The key as escaped text; long keys are cut.
        key: String,
        /// How it was noticed.
        reason: String,
    },
}
