//! The file that says what a storage directory is. See [`prepare`].

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use crate::{ServerId, StorageError, Versions};

/// Name of the marker file.
pub(crate) const FILE: &str = "dkvf-storage.json";

/// Under this name the marker is written before it gets its own: a crash leaves no half marker.
const DRAFT: &str = "dkvf-storage.json.draft";

/// Version of what this crate writes into a directory. Changes when an older crate could not read it.
const FORMAT: u32 = 1;

/// What the marker file says.
#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    format: u32,
    engine: String,
    versions: Versions,
    /// The comparator may depend on the node, so the order of stored versions belongs to it.
    node: ServerId,
}

/// The part of the marker that every format has.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}

/// Makes `directory` one of ours, or checks that it is the one asked for; returns a lock on it, held
/// as long as the file is open.
///
/// A new or empty directory gets a marker, durable on return. Anything else without a marker is
/// [`StorageError::ForeignDirectory`] and stays untouched.
pub(crate) fn prepare(
    directory: &Path,
    engine: &'static str,
    node: ServerId,
    versions: Versions,
) -> Result<File, StorageError> {
    fs::create_dir_all(directory).map_err(io_error("create", directory))?;
    let path = directory.join(FILE);
    if !path.try_exists().map_err(io_error("look for", &path))? {
        if !is_empty(directory).map_err(io_error("list", directory))? {
            return Err(StorageError::ForeignDirectory {
                directory: directory.into(),
            });
        }
        let marker = Marker {
            format: FORMAT,
            engine: engine.into(),
            versions,
            node,
        };
        write(directory, &marker).map_err(io_error("write", &path))?;
    }
    let file = File::open(&path).map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StorageError::InUse {
                directory: directory.into(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
    }
    let text = fs::read(&path).map_err(io_error("read", &path))?;
    check(&path, &text, engine, node, versions)?;
    Ok(file)
}

/// An error constructor for `map_err`.
pub(crate) fn io_error<'p>(
    action: &'static str,
    path: &'p Path,
) -> impl FnOnce(io::Error) -> StorageError + 'p {
    move |source| StorageError::Io {
        action,
        path: path.into(),
        source,
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if entry?.file_name() != DRAFT {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write(directory: &Path, marker: &Marker) -> io::Result<()> {
    let draft = directory.join(DRAFT);
    let mut file = File::create(&draft)?;
    serde_json::to_writer(&mut file, marker)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(draft, directory.join(FILE))?;
    sync_directory(directory)
}

fn check(
    path: &Path,
    text: &[u8],
    engine: &str,
    node: ServerId,
    versions: Versions,
) -> Result<(), StorageError> {
    let unreadable = |error: serde_json::Error| StorageError::UnreadableMarker {
        marker: path.into(),
        reason: error.to_string(),
    };
    let differs = |what, found: String, asked: String| {
        Err(StorageError::WrongMarker {
            marker: path.into(),
            what,
            found,
            asked,
        })
    };
    let Format { format } = serde_json::from_slice(text).map_err(unreadable)?;
    if format != FORMAT {
        return differs("format", format.to_string(), FORMAT.to_string());
    }
    let marker: Marker = serde_json::from_slice(text).map_err(unreadable)?;
    if marker.engine != engine {
        return differs("engine", marker.engine, engine.into());
    }
    if marker.versions != versions {
        return differs(
            "versions",
            format!("{:?}", marker.versions),
            format!("{versions:?}"),
        );
    }
    if marker.node != node {
        return differs("node", marker.node.to_string(), node.to_string());
    }
    Ok(())
}
