//! `dkvf protocols`: the library.

use clap::Args;
use serde::Serialize;

use crate::{Ending, output};

/// Lists the library of protocols.
#[derive(Args)]
#[command(after_help = "Examples:
  dkvf protocols
  dkvf protocols --json - | jq '.protocols[].name'")]
pub struct Arguments {
    /// Write JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Serialize)]
struct Library {
    protocols: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    guarantee: &'static str,
    client: &'static str,
    paper: &'static str,
    claims: Vec<&'static str>,
    lines: Lines,
    status: &'static str,
}

#[derive(Serialize)]
struct Lines {
    server: usize,
    client: usize,
    metadata: usize,
}

/// Runs the command.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let protocols = dkvf_protocols::entries().map(|entry| {
        let [server, client, metadata] = entry.about.sources.lines();
        Entry {
            name: entry.name,
            guarantee: entry.about.guarantee,
            client: "kv",
            paper: entry.about.paper,
            claims: entry.claims.models.to_vec(),
            lines: Lines {
                server,
                client,
                metadata,
            },
            status: entry.about.status,
        }
    });
    let library = Library {
        protocols: protocols.collect(),
    };
    if let Some(target) = &arguments.json {
        output::write_json(target, &library)?;
    }
    if arguments.json.as_deref() != Some("-") {
        output::print(&describe(&library))?;
    }
    Ok(Ending::Done)
}

fn describe(library: &Library) -> String {
    let mut text = String::new();
    for entry in &library.protocols {
        let Lines {
            server,
            client,
            metadata,
        } = entry.lines;
        text += &format!(
            "{}\n    guarantees {} ({})\n    {}\n    lines: server {server}, client {client}, metadata {metadata}\n    {}\n",
            entry.name,
            entry.guarantee,
            entry.claims.join(", "),
            entry.paper,
            entry.status
        );
    }
    text
}
