//! From a [`NodeConfig`] to a file that reads back equal.

use std::path::Path;

use super::NodeConfig;
use super::options::{Flush, LogConfig, PeerFlush};
use super::properties::Properties;
use super::xml::Writer;

impl NodeConfig {
    /// The configuration as an XML document, with every default spelt out. A valid configuration
    /// reads back equal.
    pub fn to_xml(&self) -> String {
        let mut xml = Writer::default();
        xml.open("config");
        self.write_node(&mut xml);
        self.write_storage(&mut xml);
        self.write_flush(&mut xml);
        self.write_limits(&mut xml);
        self.write_cluster(&mut xml);
        write_log(&mut xml, "protocol", &self.protocol_log);
        write_log(&mut xml, "framework", &self.framework_log);
        xml.open("protocol_properties");
        write_properties(&mut xml, &self.protocol_properties);
        xml.finish()
    }

    fn write_node(&self, xml: &mut Writer) {
        text(xml, "id", &self.name);
        if let Some(protocol) = &self.protocol {
            text(xml, "protocol", protocol);
        }
        text(xml, "replica", self.replica);
        text(xml, "partition", self.partition);
        text(xml, "role", self.role);
        text(xml, "bind", self.bind);
        text(xml, "client_port", self.client_port);
        text(xml, "server_port", self.server_port);
        text(xml, "control_port", self.control_port);
        if let Some(token) = &self.control_token {
            text(xml, "control_token", token.reveal());
        }
    }

    fn write_storage(&self, xml: &mut Writer) {
        xml.open("storage");
        text(xml, "engine", &self.storage.engine);
        if let Some(directory) = &self.storage.directory {
            path(xml, "directory", directory);
        }
        write_properties(xml, &self.storage.properties);
        xml.close();
        text(xml, "durability", self.durability);
    }

    fn write_flush(&self, xml: &mut Writer) {
        match self.flush {
            Flush::Adaptive => text(xml, "flush", "adaptive"),
            Flush::EveryMessage => text(xml, "flush", "every_message"),
            Flush::Interval { us } => xml.text("flush", &[("us", &us.to_string())], "interval"),
        }
        match self.peer_flush {
            PeerFlush::Eager => text(xml, "peer_flush", "eager"),
            PeerFlush::Protocol => text(xml, "peer_flush", "protocol"),
            PeerFlush::Lazy { us, bytes } => {
                xml.text(
                    "peer_flush",
                    &[("us", &us.to_string()), ("bytes", &bytes.to_string())],
                    "lazy",
                );
            }
        }
    }

    fn write_limits(&self, xml: &mut Writer) {
        text(xml, "connector_sleep_time", self.connector_sleep_time_ms);
        text(xml, "channel_capacity", self.channel_capacity);
        text(xml, "message_bytes_max", self.message_bytes_max);
        text(xml, "request_timeout_ms", self.request_timeout_ms);
        text(xml, "connections_max", self.connections_max);
        text(xml, "sessions_max", self.sessions_max);
        text(xml, "parked_max", self.parked_max);
        text(xml, "idle_timeout_ms", self.idle_timeout_ms);
        text(xml, "clock_skew_us", self.clock_skew_us);
        text(xml, "max_drift_ms", self.max_drift_ms);
    }

    fn write_cluster(&self, xml: &mut Writer) {
        xml.open("connect_to");
        for server in &self.connect_to {
            let port = server.port.to_string();
            let client_port = server.client_port.map(|port| port.to_string());
            let control_port = server.control_port.map(|port| port.to_string());
            let (replica, partition) = (server.replica.to_string(), server.partition.to_string());
            let role = server.role.to_string();
            let mut attributes = vec![
                ("id", server.name.as_str()),
                ("ip", &server.host),
                ("port", &port),
            ];
            attributes.extend(client_port.as_deref().map(|port| ("client_port", port)));
            attributes.extend(control_port.as_deref().map(|port| ("control_port", port)));
            attributes.extend([
                ("replica", replica.as_str()),
                ("partition", &partition),
                ("role", &role),
            ]);
            xml.empty("server", &attributes);
        }
        xml.close();
        xml.open("delays");
        for delay in &self.delays {
            let (ms, jitter_ms) = (delay.ms.to_string(), delay.jitter_ms.to_string());
            xml.empty(
                "delay",
                &[
                    ("from", &delay.from),
                    ("to", &delay.to),
                    ("ms", &ms),
                    ("jitter_ms", &jitter_ms),
                ],
            );
        }
        xml.close();
    }
}

fn text(xml: &mut Writer, name: &str, value: impl ToString) {
    xml.text(name, &[], &value.to_string());
}

fn path(xml: &mut Writer, name: &str, path: &Path) {
    text(xml, name, path.to_string_lossy());
}

fn write_log(xml: &mut Writer, part: &str, log: &LogConfig) {
    if let Some(file) = &log.file {
        path(xml, &format!("{part}_log_file"), file);
    }
    text(xml, &format!("{part}_log_level"), log.level);
    text(xml, &format!("{part}_log_type"), log.format);
    text(xml, &format!("{part}_std_log_level"), log.std_level);
}

fn write_properties(xml: &mut Writer, properties: &Properties) {
    for (key, value) in properties.iter() {
        xml.empty("property", &[("key", key), ("value", value)]);
    }
}
