//! What makes a configuration consistent, wherever it came from.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use super::error::{Result, quote};
use super::options::{Flush, PeerFlush, Role};
use super::properties::Properties;
use super::{NodeConfig, limits, xml};

impl NodeConfig {
    /// Checks that the parts of the configuration fit together. [`load`](Self::load) and
    /// [`parse`](Self::parse) have done so; call it on a configuration made in memory.
    ///
    /// # Errors
    /// The first inconsistency, with its remedy.
    pub fn validate(&self) -> Result<()> {
        self.check_names()?;
        self.check_ranges()?;
        self.check_ports()?;
        self.check_capacity()?;
        self.check_texts()?;
        self.check_cluster()
    }

    fn check_names(&self) -> Result<()> {
        let names = [
            ("id", Some(&self.name)),
            ("protocol", self.protocol.as_ref()),
            ("engine", Some(&self.storage.engine)),
        ];
        for (element, name) in names {
            name.map_or(Ok(()), |name| check_name(name))
                .map_err(|problem| self.error(element, problem))?;
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<()> {
        use limits::{COUNT_MAX, PLACE_MAX, TIME_MS_MAX, TIME_US_MAX};
        const MS: &str = "(milliseconds)";
        const US: &str = "(microseconds)";
        let count = 1..=COUNT_MAX as u64;
        let capacity = limits::CHANNEL_MESSAGES_MIN as u64..=limits::CHANNEL_CAPACITY_LIMIT as u64;
        let message = 1..=limits::MESSAGE_BYTES_LIMIT as u64;
        let skew = self.clock_skew_us.unsigned_abs();

        self.check_range("replica", self.replica.into(), 0..=PLACE_MAX.into(), "")?;
        self.check_range("partition", self.partition.into(), 0..=PLACE_MAX.into(), "")?;
        if let Flush::Interval { us } = self.flush {
            self.check_range("flush", us, 1..=TIME_US_MAX, US)?;
        }
        if let PeerFlush::Lazy { us, bytes } = self.peer_flush {
            self.check_range("peer_flush", us, 1..=TIME_US_MAX, US)?;
            self.check_range("peer_flush", bytes as u64, 1..=*capacity.end(), "bytes")?;
        }
        self.check_range(
            "connector_sleep_time",
            self.connector_sleep_time_ms,
            1..=TIME_MS_MAX,
            MS,
        )?;
        self.check_range(
            "channel_capacity",
            self.channel_capacity as u64,
            capacity,
            "bytes",
        )?;
        self.check_range(
            "message_bytes_max",
            self.message_bytes_max as u64,
            message,
            "bytes",
        )?;
        self.check_range(
            "request_timeout_ms",
            self.request_timeout_ms,
            1..=TIME_MS_MAX,
            MS,
        )?;
        self.check_range(
            "connections_max",
            self.connections_max as u64,
            count.clone(),
            "",
        )?;
        self.check_range("sessions_max", self.sessions_max as u64, count.clone(), "")?;
        self.check_range("parked_max", self.parked_max as u64, count, "")?;
        self.check_range("idle_timeout_ms", self.idle_timeout_ms, 1..=TIME_MS_MAX, MS)?;
        self.check_range(
            "clock_skew_us",
            skew,
            0..=TIME_US_MAX,
            "(microseconds), also with a minus",
        )?;
        self.check_range("max_drift_ms", self.max_drift_ms, 0..=TIME_MS_MAX, MS)
    }

    fn check_range(
        &self,
        element: &str,
        value: u64,
        range: RangeInclusive<u64>,
        unit: &str,
    ) -> Result<()> {
        if range.contains(&value) {
            return Ok(());
        }
        let problem = format!(
            "{value} is out of range; write {} to {} {unit}",
            range.start(),
            range.end()
        );
        Err(self.error(element, problem.trim_end()))
    }

    fn check_ports(&self) -> Result<()> {
        let ports = [
            ("client_port", self.client_port),
            ("server_port", self.server_port),
            ("control_port", self.control_port),
        ];
        // A client listens on none of them.
        let listens = self.role != Role::Client;
        for (i, (element, port)) in ports
            .iter()
            .enumerate()
            .filter(|(_, (_, port))| listens && *port != 0)
        {
            if let Some((other, _)) = ports[..i].iter().find(|(_, other)| other == port) {
                let problem = format!(
                    "{port} is also the {other}; give each a port of its own, or 0 for any free one"
                );
                return Err(self.error(element, problem));
            }
        }
        Ok(())
    }

    fn check_capacity(&self) -> Result<()> {
        let least = self
            .message_bytes_max
            .saturating_mul(limits::CHANNEL_MESSAGES_MIN);
        if self.channel_capacity >= least {
            return Ok(());
        }
        let problem = format!(
            "{} bytes are less than {} times message_bytes_max, which is {}; write at least {least}, or lower message_bytes_max to {}",
            self.channel_capacity,
            limits::CHANNEL_MESSAGES_MIN,
            self.message_bytes_max,
            self.channel_capacity / limits::CHANNEL_MESSAGES_MIN,
        );
        Err(self.error("channel_capacity", problem))
    }

    /// Free text must come back from a file as it was written.
    fn check_texts(&self) -> Result<()> {
        if let Some(token) = &self.control_token {
            check_text(token.reveal()).map_err(|problem| self.error("control_token", problem))?;
        }
        let paths = [
            ("directory", &self.storage.directory),
            ("protocol_log_file", &self.protocol_log.file),
            ("framework_log_file", &self.framework_log.file),
        ];
        for (element, path) in paths {
            path.as_deref()
                .map_or(Ok(()), check_path)
                .map_err(|problem| self.error(element, problem))?;
        }
        check_properties(&self.storage.properties)?;
        check_properties(&self.protocol_properties)
    }
}

fn check_path(path: &Path) -> Result<(), String> {
    let text = path.to_str().ok_or_else(|| {
        format!(
            "{} is not UTF-8; give the path another name",
            quote(&path.to_string_lossy())
        )
    })?;
    check_text(text)
}

/// The text is not empty, not padded, and XML can hold it. It may be a secret, so it is not shown.
fn check_text(text: &str) -> Result<(), String> {
    if text.is_empty() || text.trim() != text || text.contains(char::is_control) {
        return Err(
            "empty, or has blanks around it or control characters in it; remove them".to_owned(),
        );
    }
    Ok(())
}

fn check_properties(properties: &Properties) -> Result<()> {
    for (key, value) in properties.iter() {
        if key.is_empty()
            || key.trim() != key
            || [key, value]
                .iter()
                .any(|text| text.contains(xml::forbidden))
        {
            let problem = "the key is empty or has blanks around it, or a character is one that XML forbids; correct it";
            return Err(properties.error(key, problem));
        }
    }
    Ok(())
}

/// Checks the name of a node, protocol or engine. Names go into file names, metrics and command
/// lines.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let first = |c: char| c.is_alphanumeric() || c == '_';
    let rest = |c: char| first(c) || matches!(c, '-' | '.' | ':');
    if name.starts_with(first) && name.chars().all(rest) && name.len() <= limits::NAME_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "{} is not a name; use letters, digits, _ - . and :, beginning with a letter, a digit or _, at most {} bytes",
        quote(name),
        limits::NAME_BYTES_MAX
    ))
}

/// Checks the address or host name of a server.
pub(super) fn check_host(host: &str) -> Result<(), String> {
    const HOST_BYTES_MAX: usize = 253;
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.parse::<IpAddr>().is_ok()
        || (!host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(name))
    {
        return Ok(());
    }
    Err(format!(
        "{} is neither an address nor a host name; write one, such as 127.0.0.1 or node1.example.org, without a port",
        quote(host)
    ))
}
