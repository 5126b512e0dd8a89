//! From the elements of a file to a [`NodeConfig`].

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::cluster::{Delay, ServerEntry, place_in_name};
use super::error::{Aside, ConfigError, Origin, Result, quote, remedy};
use super::options::{ControlToken, Flush, LogConfig, LogFormat, PeerFlush, Role, log_level};
use super::properties::Properties;
use super::xml::Element;
use super::{NodeConfig, StorageConfig, limits};

/// Reads a checked root. A file that names no role gets `unsaid`.
///
/// # Errors
/// A value cannot be read, or the values do not fit together.
pub(super) fn node(root: &Element, file: &str, unsaid: Role) -> Result<NodeConfig> {
    let mut reader = Reader {
        root,
        warnings: Vec::new(),
    };
    let mut config = reader.node(file, unsaid)?;
    config.validate()?;
    reader.warn_of_oddities(&config);
    reader.warnings.sort_by_key(|warning| warning.origin().line);
    config.warnings = Aside(reader.warnings.iter().map(ConfigError::to_string).collect());
    Ok(config)
}

struct Reader<'a> {
    root: &'a Element,
    warnings: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    fn node(&mut self, file: &str, unsaid: Role) -> Result<NodeConfig> {
        let role = self.parsed("role", unsaid)?;
        let name = match self.text("id") {
            Some(id) => id.text.clone(),
            None if role == Role::Client => "client".to_owned(),
            None => {
                return Err(self
                    .root
                    .error("<id> is missing; add <id>...</id>, the name of this node"));
            }
        };
        self.synch_communication()?;
        let protocol_properties = properties(self.root.child("protocol_properties"), file)?;
        let (replica, partition) = self.place(&name, role, &protocol_properties)?;
        let default = NodeConfig::new(name);
        let (channel_capacity, message_bytes_max) = self.capacity(&default)?;
        Ok(NodeConfig {
            protocol: self.text("protocol").map(|element| element.text.clone()),
            replica,
            partition,
            role,
            bind: self.bind(default.bind)?,
            client_port: self.port("client_port", default.client_port)?,
            server_port: self.port("server_port", default.server_port)?,
            control_port: self.port("control_port", default.control_port)?,
            control_token: self
                .text("control_token")
                .map(|element| ControlToken::new(&element.text)),
            storage: self.storage(file)?,
            durability: self.parsed("durability", default.durability)?,
            flush: self.flush()?,
            peer_flush: self.peer_flush()?,
            connector_sleep_time_ms: self
                .number("connector_sleep_time", default.connector_sleep_time_ms)?,
            channel_capacity,
            message_bytes_max,
            request_timeout_ms: self.number("request_timeout_ms", default.request_timeout_ms)?,
            connections_max: self.number("connections_max", default.connections_max)?,
            sessions_max: self.number("sessions_max", default.sessions_max)?,
            parked_max: self.number("parked_max", default.parked_max)?,
            idle_timeout_ms: self.number("idle_timeout_ms", default.idle_timeout_ms)?,
            clock_skew_us: self.number("clock_skew_us", default.clock_skew_us)?,
            max_drift_ms: self.number("max_drift_ms", default.max_drift_ms)?,
            connect_to: items(self.root.child("connect_to"), server)?,
            delays: items(self.root.child("delays"), delay)?,
            protocol_log: self.log("protocol")?,
            framework_log: self.log("framework")?,
            protocol_properties,
            origin: Aside(Origin::whole(file)),
            lines: Aside(lines(self.root)),
            ..default
        })
    }

    /// An element that is there and holds text.
    fn text(&mut self, name: &str) -> Option<&'a Element> {
        let element = self.root.child(name)?;
        if element.text.is_empty() {
            self.warn(
                element,
                "empty, so the default holds; give it a value or remove it",
            );
            return None;
        }
        Some(element)
    }

    fn warn(&mut self, element: &Element, problem: &str) {
        self.warnings.push(element.error(problem));
    }

    /// An element whose type explains itself what it does not accept.
    fn parsed<T: FromStr<Err: Display>>(&mut self, name: &str, default: T) -> Result<T> {
        match self.text(name) {
            Some(element) => element
                .text
                .parse()
                .map_err(|error: T::Err| element.error(error.to_string())),
            None => Ok(default),
        }
    }

    fn number<T: FromStr + Display>(&mut self, name: &str, default: T) -> Result<T> {
        match self.text(name) {
            Some(element) => number(element, &element.text, &default.to_string()),
            None => Ok(default),
        }
    }

    fn port(&mut self, name: &str, default: u16) -> Result<u16> {
        match self.text(name) {
            Some(element) => port(element, &element.text),
            None => Ok(default),
        }
    }

    fn bind(&mut self, default: IpAddr) -> Result<IpAddr> {
        let Some(element) = self.text("bind") else {
            return Ok(default);
        };
        element.text.parse().map_err(|_| {
            let problem = format!(
                "{} is not an IP address; write 0.0.0.0 for all interfaces or the address of one",
                quote(&element.text)
            );
            element.error(problem)
        })
    }

    /// This node's replica and partition: from its elements, else from DKVF's properties, else from
    /// its id.
    fn place(&mut self, name: &str, role: Role, properties: &Properties) -> Result<(u32, u32)> {
        let named = place_in_name(name);
        let mut one = |element: &str, key: &str, named: Option<u32>| -> Result<Option<u32>> {
            if self.root.child(element).is_some() {
                return self.number(element, 0).map(Some);
            }
            let Some((_, value)) = properties.iter().find(|(given, _)| *given == key) else {
                return Ok(named);
            };
            let place = digits(value.trim()).ok_or_else(|| {
                properties.error(
                    key,
                    format!(
                        "{} is not a whole number; correct it or add <{element}>",
                        quote(value)
                    ),
                )
            })?;
            // The property has done its work even if the protocol reads the place from the
            // configuration.
            properties.get(key, place)?;
            if named.is_some_and(|named| named != place) {
                let problem = format!(
                    "{place}, while the id says otherwise and other nodes go by the id; correct one of them"
                );
                self.warnings.push(properties.error(key, problem));
            }
            Ok(Some(place))
        };
        let replica = one("replica", "dc_id", named.map(|(replica, _)| replica))?;
        let partition = one("partition", "p_id", named.map(|(_, partition)| partition))?;
        if replica.is_none() && role == Role::Server {
            let problem = format!(
                "no replica and partition follow from {}; add <replica> and <partition>, or name the node like 0_1",
                quote(name)
            );
            return Err(self.root.child("id").unwrap_or(self.root).error(problem));
        }
        Ok((replica.unwrap_or(0), partition.unwrap_or(0)))
    }

    /// Link capacity and largest message, in bytes. Where only one is given the other is made to
    /// fit.
    fn capacity(&mut self, default: &NodeConfig) -> Result<(usize, usize)> {
        const MESSAGES: usize = limits::CHANNEL_MESSAGES_MIN;
        let capacity_given = self.root.child("channel_capacity").is_some();
        let message_given = self.root.child("message_bytes_max").is_some();
        let capacity = self.number("channel_capacity", default.channel_capacity)?;
        let message = self.number("message_bytes_max", default.message_bytes_max)?;
        Ok(match (capacity_given, message_given) {
            (true, false) => (capacity, message.min(capacity / MESSAGES).max(1)),
            (false, true) => (capacity.max(message.saturating_mul(MESSAGES)), message),
            _ => (capacity, message),
        })
    }

    fn storage(&mut self, file: &str) -> Result<StorageConfig> {
        let mut storage = StorageConfig::default();
        let Some(element) = self.root.child("storage") else {
            return Ok(storage);
        };
        storage.properties = properties(Some(element), file)?;
        storage.directory = element
            .child("directory")
            .map(|directory| PathBuf::from(&directory.text));
        let engine = element.child("engine");
        if let Some(engine) = engine {
            storage.engine = engine.text.clone();
        }
        if let Some(class) = element.child("class_name") {
            let instead = if engine.is_some() {
                "<engine> is used"
            } else {
                "the engine memory is used unless --storage names another"
            };
            self.warn(
                class,
                &format!("Java classes are not loaded: {instead}; remove it"),
            );
            // Reading the property counts as asking for it: the warning below says all there is to
            // say about it.
            let stable = storage.properties.get("instant_stable", String::new())?;
            if class.text.ends_with("BDBStorage")
                && stable.trim().eq_ignore_ascii_case("true")
                && self.root.child("durability").is_none()
            {
                self.warn(class, "instant_stable=true is not obeyed: writes are lost in a crash; add <durability>sync-each</durability>");
            }
            if engine.is_none() {
                // They are the class's, and an engine refuses properties it does not know.
                storage.properties = Properties::default();
            }
        }
        Ok(storage)
    }

    fn synch_communication(&mut self) -> Result<()> {
        let Some(element) = self.text("synch_communication") else {
            return Ok(());
        };
        if !["true", "false", "1", "0"].contains(&element.text.as_str()) {
            let problem = format!(
                "{} is neither true nor false; it has no effect: remove it",
                quote(&element.text)
            );
            return Err(element.error(problem));
        }
        self.warn(
            element,
            "there are no synchronous links, so it has no effect; remove it",
        );
        Ok(())
    }

    fn flush(&mut self) -> Result<Flush> {
        let Some(element) = self.text("flush") else {
            return Ok(Flush::default());
        };
        let us = element
            .attribute("us")
            .map(|us| number(element, us, "500"))
            .transpose()?;
        match (element.text.as_str(), us) {
            ("adaptive", None) => Ok(Flush::Adaptive),
            ("every_message", None) => Ok(Flush::EveryMessage),
            ("interval", Some(us)) => Ok(Flush::Interval { us }),
            ("interval", None) => {
                Err(element.error("an interval of unknown length; add us=\"...\" (microseconds)"))
            }
            ("adaptive" | "every_message", Some(_)) => {
                Err(element.error("attribute us belongs to interval only; remove it"))
            }
            (_, _) => Err(unknown(element, &["adaptive", "every_message", "interval"])),
        }
    }

    fn peer_flush(&mut self) -> Result<PeerFlush> {
        let Some(element) = self.text("peer_flush") else {
            return Ok(PeerFlush::default());
        };
        let us = element
            .attribute("us")
            .map(|us| number(element, us, "1000"))
            .transpose()?;
        let bytes = element
            .attribute("bytes")
            .map(|bytes| number(element, bytes, "8192"))
            .transpose()?;
        let plain = us.is_none() && bytes.is_none();
        match element.text.as_str() {
            "eager" if plain => Ok(PeerFlush::Eager),
            "protocol" if plain => Ok(PeerFlush::Protocol),
            "lazy" => Ok(PeerFlush::Lazy {
                us: us.unwrap_or(PeerFlush::LAZY_US),
                bytes: bytes.unwrap_or(PeerFlush::LAZY_BYTES),
            }),
            "eager" | "protocol" => {
                Err(element.error("attributes us and bytes belong to lazy only; remove them"))
            }
            _ => Err(unknown(element, &["eager", "lazy", "protocol"])),
        }
    }

    /// The four elements of one logger.
    fn log(&mut self, part: &str) -> Result<LogConfig> {
        let mut log = LogConfig::default();
        if let Some(element) = self.text(&format!("{part}_log_file")) {
            log.file = Some(PathBuf::from(&element.text));
        }
        for (name, level) in [
            (format!("{part}_log_level"), &mut log.level),
            (format!("{part}_std_log_level"), &mut log.std_level),
        ] {
            if let Some(element) = self.text(&name) {
                *level =
                    log_level(&element.text).map_err(|error| element.error(error.to_string()))?;
            }
        }
        if let Some(element) = self.text(&format!("{part}_log_type")) {
            if element.text.eq_ignore_ascii_case("xml") {
                self.warn(
                    element,
                    "logs are not written as XML: JSON is used; write json or text",
                );
                log.format = LogFormat::Json;
            } else {
                log.format = element
                    .text
                    .parse()
                    .map_err(|error: super::UnknownWord| element.error(error.to_string()))?;
            }
        }
        Ok(log)
    }

    /// Warns of counts of replicas and partitions, as DKVF's protocols have them, that are not
    /// those of the cluster.
    fn warn_of_counts(&mut self, config: &NodeConfig) {
        let servers = config.servers();
        let servers = || servers.iter().filter(|server| server.role == Role::Server);
        let mut counts = vec![(
            "num_of_partitions",
            servers().map(|server| server.partition + 1).max(),
        )];
        // A client may list the servers of its own replica only.
        if config.role != Role::Client {
            counts.push((
                "num_of_datacenters",
                servers().map(|server| server.replica + 1).max(),
            ));
        }
        for (key, count) in counts {
            let count = count.unwrap_or(0);
            match config.protocol_properties.get(key, count) {
                Ok(given) if given == count => {}
                Ok(given) => {
                    let problem = format!(
                        "{given}, but <connect_to> makes it {count}, which holds; correct one of them"
                    );
                    self.warnings
                        .push(config.protocol_properties.error(key, problem));
                }
                Err(error) => self.warnings.push(error),
            }
        }
    }

    /// Warns of what is accepted and yet likely not meant.
    fn warn_of_oddities(&mut self, config: &NodeConfig) {
        if config.channel_capacity < limits::CHANNEL_CAPACITY_SUSPICIOUS
            && let Some(element) = self.root.child("channel_capacity")
        {
            let problem = format!(
                "{} bytes hold few messages (DKVF counted messages here); write a number of bytes or remove it",
                config.channel_capacity
            );
            self.warn(element, &problem);
        }
        self.warn_of_counts(config);
        let elsewhere = config
            .connect_to
            .iter()
            .find(|server| server.name != config.name && !is_loopback(&server.host));
        if let Some(server) = elsewhere
            && config.role != Role::Client
            && config.bind.is_loopback()
        {
            let problem = format!(
                "{} cannot reach this node at {}; add <bind>0.0.0.0</bind>, or the address of one interface",
                quote(&server.name),
                config.bind
            );
            let element = self
                .root
                .child("bind")
                .or(self.root.child("connect_to"))
                .unwrap_or(self.root);
            self.warn(element, &problem);
        }
    }
}

fn unknown(element: &Element, allowed: &[&str]) -> ConfigError {
    let remedy = remedy(&element.text, allowed.iter().copied(), str::to_owned);
    element.error(format!("{} is unknown; {remedy}", quote(&element.text)))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The line of each element that occurs at most once, for errors found after reading.
fn lines(root: &Element) -> Vec<(String, u32)> {
    let storage = root
        .child("storage")
        .map(|storage| storage.children.as_slice())
        .unwrap_or_default();
    root.children
        .iter()
        .chain(storage)
        .filter_map(|element| Some((element.name.clone(), element.origin.line?)))
        .collect()
}

/// Every child of a list of elements of one kind.
fn items<T>(list: Option<&Element>, read: impl Fn(&Element) -> Result<T>) -> Result<Vec<T>> {
    list.map(|list| list.children.iter().map(read).collect())
        .unwrap_or_else(|| Ok(Vec::new()))
}

fn properties(parent: Option<&Element>, file: &str) -> Result<Properties> {
    let Some(parent) = parent else {
        return Ok(Properties::new(Origin::whole(file)));
    };
    let mut properties = Properties::new(parent.origin.clone());
    for element in parent
        .children
        .iter()
        .filter(|child| child.name == "property")
    {
        let value = |name| element.attribute(name).unwrap_or_default();
        properties.add(value("key"), value("value"), &element.origin)?;
    }
    Ok(properties)
}

fn server(element: &Element) -> Result<ServerEntry> {
    let attribute = |name| element.attribute(name).map(str::trim);
    let own = |name| attribute(name).unwrap_or_default();
    let port_of = |name| {
        attribute(name)
            .map(|text| fixed_port(element, text))
            .transpose()
    };
    let number_of = |name| {
        attribute(name)
            .map(|text| number::<u32>(element, text, "0"))
            .transpose()
    };
    let role = match attribute("role") {
        Some(role) => role
            .parse()
            .map_err(|error: super::UnknownWord| element.error(error.to_string()))?,
        None => Role::Server,
    };
    let named = place_in_name(own("id"));
    let replica = number_of("replica")?.or(named.map(|(replica, _)| replica));
    let partition = number_of("partition")?.or(named.map(|(_, partition)| partition));
    if replica.is_none() && role == Role::Server {
        return Err(element.error("no replica and partition follow from the id; add replica=\"...\" and partition=\"...\", or name it like 0_1"));
    }
    Ok(ServerEntry {
        client_port: port_of("client_port")?,
        control_port: port_of("control_port")?,
        replica: replica.unwrap_or(0),
        partition: partition.unwrap_or(0),
        role,
        origin: Aside(element.origin.clone()),
        ..ServerEntry::new(own("id"), own("ip"), fixed_port(element, own("port"))?)
    })
}

fn delay(element: &Element) -> Result<Delay> {
    let own = |name| element.attribute(name).unwrap_or_default().trim();
    let jitter_ms = element
        .attribute("jitter_ms")
        .map(|jitter| number(element, jitter, "0"))
        .transpose()?;
    let ms = number(element, own("ms"), "40")?;
    Ok(Delay {
        origin: Aside(element.origin.clone()),
        ..Delay::new(own("from"), own("to"), ms, jitter_ms.unwrap_or(0))
    })
}

/// Digits only, unlike `parse`, which takes a plus.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    if text.starts_with('+') {
        None
    } else {
        text.parse().ok()
    }
}

fn number<T: FromStr>(element: &Element, text: &str, example: &str) -> Result<T> {
    digits(text.trim()).ok_or_else(|| {
        element.error(format!(
            "{} is not a whole number, or too large; write digits only, such as {example}",
            quote(text)
        ))
    })
}

fn port(element: &Element, text: &str) -> Result<u16> {
    digits(text.trim()).ok_or_else(|| {
        element.error(format!(
            "{} is not a port; write 0 (any free port) to 65535",
            quote(text)
        ))
    })
}

/// The port of another node, which must be known.
fn fixed_port(element: &Element, text: &str) -> Result<u16> {
    digits(text.trim())
        .filter(|port| *port != 0)
        .ok_or_else(|| {
            element.error(format!(
                "{} is not a port to connect to; write 1 to 65535",
                quote(text)
            ))
        })
}
