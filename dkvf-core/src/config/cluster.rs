//! The servers of a cluster as one node sees them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{Aside, ConfigError, Origin, Result, quote};
use super::options::Role;
use super::{NodeConfig, limits};

/// A server of the cluster, as `<connect_to>` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its id.
    pub name: String,
    /// Address or host name it is reached at.
    pub host: String,
    /// Port this node connects to: the server's server port in the file of a server, its client
    /// port in the file of a client (unless `client_port` says so). 0 = not known yet, in memory
    /// only.
    pub port: u16,
    /// Client port, where given.
    pub client_port: Option<u16>,
    /// Control port, where given.
    pub control_port: Option<u16>,
    /// Its replica, from 0.
    pub replica: u32,
    /// Its partition, from 0.
    pub partition: u32,
    /// Its role; never `Client`.
    pub role: Role,
    pub(super) origin: Aside<Origin>,
}

impl ServerEntry {
    /// A server. A name of the form `<replica>_<partition>` gives its place; otherwise it begins at
    /// 0, 0.
    pub fn new(name: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        let name = name.into();
        let (replica, partition) = place_in_name(&name).unwrap_or_default();
        let (host, origin) = (host.into(), Aside::default());
        Self {
            name,
            host,
            port,
            client_port: None,
            control_port: None,
            replica,
            partition,
            role: Role::Server,
            origin,
        }
    }

    /// The port clients connect to.
    pub fn port_for_clients(&self) -> u16 {
        self.client_port.unwrap_or(self.port)
    }

    fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(
            &self.origin,
            format!("<server id={}>", quote(&self.name)),
            problem,
        )
    }
}

/// A delay of one link, as of a wide-area network. Frames stay in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// The sending node.
    pub from: String,
    /// The receiving node.
    pub to: String,
    /// Time every frame takes at least, in milliseconds.
    pub ms: u64,
    /// Most that is added at random, in milliseconds.
    pub jitter_ms: u64,
    pub(super) origin: Aside<Origin>,
}

impl Delay {
    /// A delay of `ms` to `ms + jitter_ms` milliseconds from one node to another.
    pub fn new(from: impl Into<String>, to: impl Into<String>, ms: u64, jitter_ms: u64) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            ms,
            jitter_ms,
            origin: Aside::default(),
        }
    }

    fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.origin, "<delay>", problem)
    }
}

/// Replica and partition in a name of the form `<replica>_<partition>`.
pub(super) fn place_in_name(name: &str) -> Option<(u32, u32)> {
    let (replica, partition) = name.split_once('_')?;
    Some((replica.parse().ok()?, partition.parse().ok()?))
}

impl NodeConfig {
    /// The servers of the whole cluster: this node, unless it is a client, and those of
    /// `connect_to`, ordered by replica, partition and name. The order is the same on every node;
    /// the dense server id is the index in it.
    pub fn servers(&self) -> Vec<ServerEntry> {
        let mut servers = self.connect_to.clone();
        if self.role != Role::Client {
            match servers.iter_mut().find(|server| server.name == self.name) {
                Some(listed) => {
                    listed.client_port.get_or_insert(self.client_port);
                    listed.control_port.get_or_insert(self.control_port);
                }
                None => servers.push(self.as_server()),
            }
        }
        servers.sort_by(|a, b| {
            (a.replica, a.partition, &a.name).cmp(&(b.replica, b.partition, &b.name))
        });
        servers
    }

    fn as_server(&self) -> ServerEntry {
        ServerEntry {
            client_port: Some(self.client_port),
            control_port: Some(self.control_port),
            replica: self.replica,
            partition: self.partition,
            role: self.role,
            origin: Aside(self.origin_of("id")),
            ..ServerEntry::new(&self.name, self.bind.to_string(), self.server_port)
        }
    }

    /// Checks what `connect_to` and `delays` say together with this node.
    pub(super) fn check_cluster(&self) -> Result<()> {
        if self.role == Role::Client && self.connect_to.is_empty() {
            return Err(self.error("connect_to", "a client without servers; list them: <connect_to><server id=\"...\" ip=\"...\" port=\"...\"/></connect_to>"));
        }
        for server in &self.connect_to {
            self.check_entry(server)?;
        }
        let servers = self.servers();
        check_unique(&servers)?;
        self.check_complete(&servers)?;
        self.check_delays(&servers)
    }

    fn check_entry(&self, server: &ServerEntry) -> Result<()> {
        super::validate::check_name(&server.name).map_err(|problem| server.error(problem))?;
        super::validate::check_host(&server.host).map_err(|problem| server.error(problem))?;
        if server.replica.max(server.partition) > limits::PLACE_MAX {
            return Err(server.error(format!(
                "replica or partition is too large; write 0 to {}",
                limits::PLACE_MAX
            )));
        }
        if server.role == Role::Client {
            return Err(
                server.error("a client cannot be connected to; remove it or correct its role")
            );
        }
        if self.role == Role::Client || server.name != self.name {
            return Ok(());
        }
        if server.port != self.server_port {
            let problem = format!(
                "this very node, whose server_port is {}, listed with port {}; make them equal or remove it here",
                self.server_port, server.port
            );
            return Err(server.error(problem));
        }
        if (server.replica, server.partition, server.role)
            != (self.replica, self.partition, self.role)
        {
            let problem = format!(
                "this very node, which is {} {}, {}, listed as {} {}, {}; make them equal or remove it here",
                self.role,
                self.replica,
                self.partition,
                server.role,
                server.replica,
                server.partition,
            );
            return Err(server.error(problem));
        }
        Ok(())
    }

    /// Replicas and partitions of the servers count from 0 without a gap, and every replica has
    /// every partition: protocols index vectors by them. A client may see some of the replicas
    /// only.
    fn check_complete(&self, servers: &[ServerEntry]) -> Result<()> {
        let mut replicas: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for server in servers.iter().filter(|server| server.role == Role::Server) {
            replicas
                .entry(server.replica)
                .or_default()
                .insert(server.partition);
        }
        let last = replicas
            .values()
            .filter_map(BTreeSet::last)
            .max()
            .copied()
            .unwrap_or(0);
        for (expected, (&replica, partitions)) in (0..).zip(&replicas) {
            let problem = if self.role != Role::Client && replica != expected {
                format!("replica {expected} has no server, and there is a replica {replica}")
            } else if let Some(partition) =
                (0..=last).find(|partition| !partitions.contains(partition))
            {
                format!(
                    "replica {replica} has no server for partition {partition}, and the last partition of the cluster is {last}"
                )
            } else {
                continue;
            };
            let problem = format!(
                "{problem}; list every server of the cluster here, or correct the place of one"
            );
            return Err(self.error("connect_to", problem));
        }
        Ok(())
    }

    fn check_delays(&self, servers: &[ServerEntry]) -> Result<()> {
        let mut names: BTreeSet<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        names.insert(&self.name);
        let mut links = BTreeMap::new();
        for delay in &self.delays {
            let (from, to) = (delay.from.as_str(), delay.to.as_str());
            if let Some(unknown) = [from, to].into_iter().find(|name| !names.contains(name)) {
                let problem = format!(
                    "no node has the id {}; correct it, or list the node in <connect_to>",
                    quote(unknown)
                );
                return Err(delay.error(problem));
            }
            if from == to {
                return Err(delay.error(format!(
                    "from {} to itself; a delay is between two nodes",
                    quote(from)
                )));
            }
            if delay.ms.max(delay.jitter_ms) > limits::TIME_MS_MAX {
                return Err(delay.error(format!(
                    "longer than a day; write 0 to {} (milliseconds)",
                    limits::TIME_MS_MAX
                )));
            }
            if let Some(first) = links.insert((from, to), &delay.origin.0) {
                let problem = format!(
                    "from {} to {} is already given at {first}; remove one of them",
                    quote(from),
                    quote(to)
                );
                return Err(delay.error(problem));
            }
        }
        Ok(())
    }
}

/// No two servers have one name, and no two with role `server` have one place.
fn check_unique(servers: &[ServerEntry]) -> Result<()> {
    let mut names: Vec<&ServerEntry> = servers.iter().collect();
    // Stable, and the later line second, so that the error is about the later one.
    names.sort_by(|a, b| (&a.name, a.origin.line).cmp(&(&b.name, b.origin.line)));
    if let Some([first, second]) = names.array_windows().find(|[a, b]| a.name == b.name) {
        return Err(second.error(format!(
            "the id is already that of the server at {}; give one of them another id",
            first.origin.0
        )));
    }
    let mut places: Vec<&ServerEntry> = servers
        .iter()
        .filter(|server| server.role == Role::Server)
        .collect();
    places.sort_by_key(|server| (server.replica, server.partition, server.origin.line));
    match places.array_windows().find(|[a, b]| (a.replica, a.partition) == (b.replica, b.partition)) {
        Some([first, second]) => Err(second.error(format!(
            "replica {}, partition {} is already that of {} at {}; give one of them another place or the role spare",
            first.replica, first.partition, quote(&first.name), first.origin.0,
        ))),
        None => Ok(()),
    }
}
