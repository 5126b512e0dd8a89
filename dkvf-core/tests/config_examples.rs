//! The example files load from disk, as a server and a client read them.

use std::path::{Path, PathBuf};

use dkvf_core::config::{Durability, NodeConfig, PeerFlush, Role};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/examples")
}

#[test]
fn every_example_loads() {
    let mut seen = 0;
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let client = path.file_name().is_some_and(|name| name == "client.xml");
        let config = if client {
            NodeConfig::load_client(&path)
        } else {
            NodeConfig::load(&path)
        };
        config.unwrap_or_else(|error| panic!("{error}"));
        seen += 1;
    }
    assert_eq!(seen, 4);
}

#[test]
fn the_full_example_is_read_in_full() {
    let config = NodeConfig::load(examples().join("server.xml")).unwrap();
    assert_eq!(config.warnings(), [] as [String; 0]);
    assert_eq!(config.protocol.as_deref(), Some("gentlerain"));
    assert_eq!(config.durability, Durability::None);
    assert_eq!(
        config.peer_flush,
        PeerFlush::Lazy {
            us: 500,
            bytes: 16_384
        }
    );
    assert_eq!(config.clock_skew_us, -1_500);
    assert_eq!(
        config.storage.directory.as_deref(),
        Some(Path::new("data/paris-a"))
    );
    assert_eq!(config.servers().len(), 6);
    assert_eq!((config.delays[0].ms, config.delays[0].jitter_ms), (110, 5));
    assert_eq!(
        config
            .protocol_properties
            .get("heartbeat_interval", 0)
            .unwrap(),
        10
    );
}

#[test]
fn a_client_finds_the_client_ports() {
    let config = NodeConfig::load_client(examples().join("client.xml")).unwrap();
    assert_eq!((config.role, config.replica), (Role::Client, 1));
    let ports: Vec<u16> = config
        .servers()
        .iter()
        .map(|server| server.port_for_clients())
        .collect();
    assert_eq!(ports, [7002, 7012, 7022, 7032]);
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let error = NodeConfig::load("no/such/node.xml")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("no/such/node.xml: the document: cannot be read: "),
        "{error}"
    );
    assert!(
        error.ends_with("; give the path of a readable file"),
        "{error}"
    );
}
