//! The values of single elements: roles, durability, flushing, logging.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;

use super::error::{quote, remedy};

/// A word that is none of those allowed. Shown with the one likely meant and all that are allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", unknown(.given, .allowed))]
pub struct UnknownWord {
    given: String,
    allowed: Vec<&'static str>,
}

fn unknown(given: &str, allowed: &[&str]) -> String {
    format!(
        "{} is unknown; {}",
        quote(given),
        remedy(given, allowed.iter().copied(), str::to_owned)
    )
}

/// The value of a word in a table of words, upper and lower case being equal.
fn word<T: Copy>(given: &str, table: &[(&'static str, T)]) -> Result<T, UnknownWord> {
    table
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(given))
        .map(|(_, value)| *value)
        .ok_or_else(|| UnknownWord {
            given: given.to_owned(),
            allowed: table.iter().map(|(name, _)| *name).collect(),
        })
}

/// Gives an enum its words: `FromStr`, `Display`, and the table of them all.
macro_rules! words {
    ($type:ident { $($word:literal => $variant:ident),+ $(,)? }) => {
        impl $type {
            /// Every value with its word, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(given: &str) -> Result<Self, UnknownWord> {
                word(given, Self::WORDS)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word),+ })
            }
        }
    };
}

/// What a node is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Role {
    /// Holds one partition of one replica.
    #[default]
    Server,
    /// A server that waits to be taken into the cluster.
    Spare,
    /// Holds no data; watches the servers and tells who they are.
    Master,
    /// Sends requests and holds no data.
    Client,
}

words!(Role { "server" => Server, "spare" => Spare, "master" => Master, "client" => Client });

/// When a write counts as done: a property of the run, which no protocol sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// In memory; a crash loses it.
    #[default]
    None,
    /// Written to disk at some time after the reply.
    Async,
    /// Replies and messages wait until a sync shared by many writes covers what they depend on.
    Group,
    /// One sync per turn of the node's loop, before its replies.
    Sync,
    /// One sync per write, for comparison.
    SyncEach,
    /// As `Group`, with a log for each part of the store.
    Partitioned,
}

words!(Durability {
    "none" => None, "async" => Async, "group" => Group, "sync" => Sync, "sync-each" => SyncEach, "partitioned" => Partitioned,
});

/// When what a node has to say to clients and servers is written to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Flush {
    /// Once per turn of the node's loop: the batch grows with the load.
    #[default]
    Adaptive,
    /// One write per message.
    EveryMessage,
    /// At fixed intervals.
    Interval {
        /// Microseconds between two writes, at least 1.
        us: u64,
    },
}

/// When what a node has to say to other servers is written to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PeerFlush {
    /// As soon as it is there.
    Eager,
    /// Once `bytes` have come together or the oldest of them has waited `us`.
    Lazy {
        /// Longest wait, in microseconds, at least 1.
        us: u64,
        /// Bytes that end the wait, at least 1.
        bytes: usize,
    },
    /// As the protocol asks for.
    #[default]
    Protocol,
}

impl PeerFlush {
    /// Wait of `lazy` where the element does not give `us`, in microseconds.
    pub const LAZY_US: u64 = 1_000;
    /// Bytes of `lazy` where the element does not give `bytes`.
    pub const LAZY_BYTES: usize = 8_192;
}

/// The form of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LogFormat {
    /// One line of text per record.
    #[default]
    Text,
    /// One JSON object per record.
    Json,
}

words!(LogFormat { "text" => Text, "json" => Json });

/// Where and how much a part of the node logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The log file, relative to the working directory of the process; `None` writes no file.
    pub file: Option<PathBuf>,
    /// Least severe level that goes to the file.
    pub level: LevelFilter,
    /// Form of the file.
    pub format: LogFormat,
    /// Least severe level that goes to standard error.
    pub std_level: LevelFilter,
}

impl Default for LogConfig {
    /// Warnings to standard error and no file.
    fn default() -> Self {
        Self {
            file: None,
            level: LevelFilter::ERROR,
            format: LogFormat::Text,
            std_level: LevelFilter::WARN,
        }
    }
}

/// The words for levels: the names of `tracing` first, which are written, then those of
/// `java.util.logging`.
const LEVELS: &[(&str, LevelFilter)] = &[
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
    ("severe", LevelFilter::ERROR),
    ("warning", LevelFilter::WARN),
    ("config", LevelFilter::DEBUG),
    ("fine", LevelFilter::DEBUG),
    ("finer", LevelFilter::TRACE),
    ("finest", LevelFilter::TRACE),
    ("all", LevelFilter::TRACE),
];

/// A level by its name in `tracing` or in `java.util.logging`.
///
/// # Errors
/// The word is the name of no level.
pub fn log_level(given: &str) -> Result<LevelFilter, UnknownWord> {
    word(given, LEVELS)
}

/// A secret that callers from other machines show before they may change the state of a node.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlToken(String);

impl ControlToken {
    /// A token; an empty one is refused when the configuration is checked.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The token itself, to write it to a file or send it to a node.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether the caller knows the token. The time taken tells at most its length.
    pub fn matches(&self, offered: &str) -> bool {
        let difference = self
            .0
            .bytes()
            .zip(offered.bytes())
            .fold(0, |seen, (a, b)| seen | (a ^ b));
        self.0.len() == offered.len() && difference == 0
    }
}

/// Keeps the token out of logs.
impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken(hidden)")
    }
}
