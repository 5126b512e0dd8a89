//! Engines by name. See [`open()`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::{
    Capabilities, EngineStore, MemoryStore, Record, ServerId, SledEngine, StorageError, Store,
    Versions, memory, sled_engine,
};

/// One of the [`ENGINES`].
#[derive(Clone, Copy, Debug)]
pub struct EngineInfo {
    /// What [`StoreOptions::engine`] calls it.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// The engines that [`open()`] knows; the first is the default of descriptors.
pub const ENGINES: &[EngineInfo] = &[
    EngineInfo {
        name: MEMORY,
        summary: "hash map in the memory of the process; nothing survives it",
        capabilities: memory::CAPABILITIES,
    },
    EngineInfo {
        name: sled_engine::NAME,
        summary: "sled 0.34, a log-structured tree in a directory; property cache_mib (default 64)",
        capabilities: sled_engine::CAPABILITIES,
    },
];

const MEMORY: &str = "memory";
const CACHE_MIB: &str = "cache_mib";
/// A TiB, far over every machine.
const CACHE_MIB_MAX: u64 = 1024 * 1024;

/// Which store to open.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Name of the engine, one of [`ENGINES`].
    pub engine: String,
    /// Where engines on disk keep their files: one directory per node. Engines in memory ignore it.
    pub directory: Option<PathBuf>,
    /// Whose store it is.
    pub node: ServerId,
    /// How many versions of a key it keeps.
    pub versions: Versions,
    /// The engine's own settings, from the descriptor.
    pub properties: BTreeMap<String, String>,
}

/// Opens the store of a node, creating it if there is none.
///
/// # Errors
///
/// An unknown engine or property, and what the engine finds in its directory; see [`StorageError`].
pub fn open<R: Record>(options: &StoreOptions) -> Result<Box<dyn Store<R>>, StorageError> {
    let (node, versions) = (options.node, options.versions);
    match options.engine.as_str() {
        MEMORY => {
            check_properties(options, MEMORY, &[])?;
            Ok(Box::new(MemoryStore::new(node, versions)))
        }
        sled_engine::NAME => {
            check_properties(options, sled_engine::NAME, &[CACHE_MIB])?;
            let cache_mib = cache_mib(options)?;
            let directory = options
                .directory
                .as_deref()
                .ok_or(StorageError::NoDirectory {
                    engine: sled_engine::NAME,
                })?;
            let engine = SledEngine::open(directory, node, versions, cache_mib)?;
            Ok(Box::new(EngineStore::open(
                Box::new(engine),
                node,
                versions,
            )?))
        }
        unknown => {
            let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            Err(StorageError::UnknownEngine {
                name: unknown.into(),
                known: known.join(", "),
            })
        }
    }
}

fn check_properties(
    options: &StoreOptions,
    engine: &'static str,
    known: &[&str],
) -> Result<(), StorageError> {
    let Some(unknown) = options
        .properties
        .keys()
        .find(|name| !known.contains(&name.as_str()))
    else {
        return Ok(());
    };
    let reason = match known {
        [] => "it has no properties".into(),
        known => format!("its properties are: {}", known.join(", ")),
    };
    Err(StorageError::UnsupportedOption {
        engine,
        option: unknown.clone(),
        reason,
    })
}

fn cache_mib(options: &StoreOptions) -> Result<u64, StorageError> {
    let Some(text) = options.properties.get(CACHE_MIB) else {
        return Ok(sled_engine::CACHE_MIB_DEFAULT);
    };
    text.parse()
        .ok()
        .filter(|mib| (1..=CACHE_MIB_MAX).contains(mib))
        .ok_or_else(|| StorageError::UnsupportedOption {
            engine: sled_engine::NAME,
            option: CACHE_MIB.into(),
            reason: format!("`{text}` is not a whole number of MiB from 1 to {CACHE_MIB_MAX}"),
        })
}
