//! The configuration of one node: the XML file `<config>`, read, checked and written.
//!
//! A file goes from bytes to elements that know their line (`xml`), is compared with what may be in
//! it (`shape`), becomes a [`NodeConfig`] (`read`), and is checked as a whole (`validate`,
//! `cluster`). Whatever is wrong is an error that names file, line and element and says what to do;
//! whatever is accepted without effect is a [warning](NodeConfig::warnings). Files of DKVF, the
//! Java framework, load: their elements keep their names. `schemas/Config.xsd` describes every
//! element.
//!
//! A program makes configurations as well: [`NodeConfig::new`], set fields,
//! [`NodeConfig::validate`], and [`NodeConfig::to_xml`] to start a server process with it.

mod cluster;
mod error;
pub mod limits;
mod options;
mod properties;
mod read;
mod shape;
#[cfg(test)]
mod tests;
mod validate;
mod write;
mod xml;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

pub use cluster::{Delay, ServerEntry};
use error::Aside;
pub use error::{ConfigError, Origin, Result};
pub use options::{
    ControlToken, Durability, Flush, LogConfig, LogFormat, PeerFlush, Role, UnknownWord, log_level,
};
pub use properties::Properties;

/// Everything a node is told before it starts. Fields bear the names of the elements, with the unit
/// added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Name of the node in its cluster (`<id>`).
    pub name: String,
    /// The protocol to run, unless the command line says it.
    pub protocol: Option<String>,
    /// Replica this node belongs to, from 0; of a client: its home.
    pub replica: u32,
    /// Partition this node holds, from 0.
    pub partition: u32,
    /// What the node is in its cluster.
    pub role: Role,
    /// Address the three ports are bound to.
    pub bind: IpAddr,
    /// Port for clients; 0 = any free port.
    pub client_port: u16,
    /// Port for other servers; 0 = any free port.
    pub server_port: u16,
    /// Port for status, metrics and shutdown; 0 = any free port.
    pub control_port: u16,
    /// What callers must show on the control port to change state, unless they call from this
    /// machine.
    pub control_token: Option<ControlToken>,
    /// Where records are kept.
    pub storage: StorageConfig,
    /// When a write counts as done.
    pub durability: Durability,
    /// When messages to clients and servers are written.
    pub flush: Flush,
    /// When messages to other servers are written.
    pub peer_flush: PeerFlush,
    /// Pause between two attempts to connect to a server, in milliseconds, at least 1.
    pub connector_sleep_time_ms: u64,
    /// Bytes kept for a server that takes none: at least four times `message_bytes_max`.
    pub channel_capacity: usize,
    /// Largest message, in bytes.
    pub message_bytes_max: usize,
    /// Time after which a request without a reply has an unknown outcome, in milliseconds.
    pub request_timeout_ms: u64,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Most client sessions at a time.
    pub sessions_max: usize,
    /// Most messages that wait for a condition at a time.
    pub parked_max: usize,
    /// Time after which a connection that never said who it is gets closed, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Added to the clock of the machine, in microseconds.
    pub clock_skew_us: i64,
    /// How far a timestamp may be ahead of this node's clock, in milliseconds.
    pub max_drift_ms: u64,
    /// The other servers of the cluster; may list this node, too.
    pub connect_to: Vec<ServerEntry>,
    /// Delays of links; those from this node matter here.
    pub delays: Vec<Delay>,
    /// Log of the protocol.
    pub protocol_log: LogConfig,
    /// Log of the framework.
    pub framework_log: LogConfig,
    /// What the protocol is told.
    pub protocol_properties: Properties,
    warnings: Aside<Vec<String>>,
    origin: Aside<Origin>,
    lines: Aside<Vec<(String, u32)>>,
}

/// Where a node keeps its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// Name of the storage engine; whether it exists is for the storage crate to say.
    pub engine: String,
    /// Directory of its files, relative to the working directory of the process.
    pub directory: Option<PathBuf>,
    /// What the engine is told.
    pub properties: Properties,
}

impl Default for StorageConfig {
    /// Records in memory.
    fn default() -> Self {
        Self {
            engine: "memory".to_owned(),
            directory: None,
            properties: Properties::default(),
        }
    }
}

impl NodeConfig {
    /// A server with every default. A name of the form `<replica>_<partition>` gives its place;
    /// otherwise it is at 0, 0.
    pub fn new(name: impl Into<String>) -> Self {
        const MIB: usize = 1 << 20;
        let name = name.into();
        let (replica, partition) = cluster::place_in_name(&name).unwrap_or_default();
        Self {
            name,
            protocol: None,
            replica,
            partition,
            role: Role::Server,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            client_port: 2002,
            server_port: 2000,
            control_port: 2001,
            control_token: None,
            storage: StorageConfig::default(),
            durability: Durability::None,
            flush: Flush::Adaptive,
            peer_flush: PeerFlush::Protocol,
            connector_sleep_time_ms: 10,
            channel_capacity: 80 * MIB,
            message_bytes_max: 20 * MIB,
            request_timeout_ms: 5_000,
            connections_max: 16_384,
            sessions_max: 65_536,
            parked_max: 100_000,
            idle_timeout_ms: 10_000,
            clock_skew_us: 0,
            max_drift_ms: 1_000,
            connect_to: Vec::new(),
            delays: Vec::new(),
            protocol_log: LogConfig::default(),
            framework_log: LogConfig::default(),
            protocol_properties: Properties::default(),
            warnings: Aside::default(),
            origin: Aside::default(),
            lines: Aside::default(),
        }
    }

    /// Reads the file of a server, spare or master.
    ///
    /// # Errors
    /// The file cannot be read, is not a configuration, or contradicts itself.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_as(path.as_ref(), Role::Server)
    }

    /// Reads the file of a client: one that names no role is a client's, and `<id>` may be missing.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_client(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_as(path.as_ref(), Role::Client)
    }

    fn load_as(path: &Path, unsaid: Role) -> Result<Self> {
        Self::parse(&path.display().to_string(), &xml::load(path)?, unsaid)
    }

    /// Reads the content of a file. `file` is its name in messages; `unsaid` is the role if it
    /// names none.
    ///
    /// # Errors
    /// The content is not a configuration, or contradicts itself.
    pub fn parse(file: &str, content: &[u8], unsaid: Role) -> Result<Self> {
        let root = xml::parse(file, content)?;
        shape::check_root(&root)?;
        read::node(&root, file, unsaid)
    }

    /// What the file says without effect, or most likely by mistake, each with file, line and
    /// element.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// An error about an element of this configuration, such as an engine that does not exist:
    /// `("engine", "...")`.
    pub fn error(&self, element: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.origin_of(element), format!("<{element}>"), problem)
    }

    fn origin_of(&self, element: &str) -> Origin {
        let line = self.lines.iter().find(|(name, _)| name == element);
        line.map_or_else(|| self.origin.0.clone(), |(_, line)| self.origin.at(*line))
    }
}
