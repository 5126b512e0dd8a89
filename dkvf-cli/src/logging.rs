//! Where log lines go: standard error for every command, and for a server the files of its configuration.
//!
//! The environment variable `DKVF_LOG` overrides what goes to standard error, in the notation of `tracing`
//! (`DKVF_LOG=debug`, `DKVF_LOG=dkvf_core::net=info`).

use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context as _;
use dkvf_core::config::{LogConfig, LogFormat, NodeConfig};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::output;

/// Log lines of protocols come from the crate that has them; all others are the framework's.
const PROTOCOLS: &str = "dkvf_protocols";

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Warnings to standard error.
pub fn to_stderr() {
    tracing_subscriber::registry()
        .with(vec![stderr_layer(LevelFilter::WARN, LevelFilter::WARN)])
        .init();
}

/// What the configuration of a server says.
///
/// # Errors
/// A log file cannot be written.
pub fn of_server(config: &NodeConfig) -> anyhow::Result<()> {
    let (framework, protocol) = (&config.framework_log, &config.protocol_log);
    let mut layers = vec![stderr_layer(framework.std_level, protocol.std_level)];
    let files = [
        (
            framework,
            Targets::new()
                .with_default(framework.level)
                .with_target(PROTOCOLS, LevelFilter::OFF),
        ),
        (
            protocol,
            Targets::new().with_target(PROTOCOLS, protocol.level),
        ),
    ];
    for (log, targets) in files {
        if let Some(path) = &log.file {
            layers.push(file_layer(log, path, targets)?);
        }
    }
    tracing_subscriber::registry().with(layers).init();
    Ok(())
}

fn stderr_layer(framework: LevelFilter, protocol: LevelFilter) -> BoxedLayer {
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(output::is_coloured());
    match EnvFilter::try_from_env("DKVF_LOG") {
        Ok(filter) => layer.with_filter(filter).boxed(),
        Err(_) => layer
            .with_filter(
                Targets::new()
                    .with_default(framework)
                    .with_target(PROTOCOLS, protocol),
            )
            .boxed(),
    }
}

fn file_layer(log: &LogConfig, path: &Path, targets: Targets) -> anyhow::Result<BoxedLayer> {
    let cannot = || format!("cannot write the log file {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(cannot)?;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Mutex::new(file))
        .with_ansi(false);
    Ok(match log.format {
        LogFormat::Text => layer.with_filter(targets).boxed(),
        LogFormat::Json => layer.json().with_filter(targets).boxed(),
    })
}
