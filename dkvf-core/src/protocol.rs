//! A protocol as a whole: its name, its texts and its claims.

use crate::{Client, Metadata, Server};

/// A protocol of the library. Implementing it and adding one line to the registry makes it known to every command.
pub trait Protocol: 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// Its messages.
    type Metadata: Metadata;
    /// Its server.
    type Server: Server<Metadata = Self::Metadata>;
    /// Its client.
    type Client: Client<Metadata = Self::Metadata>;

    /// How many versions of a key its store keeps.
    const VERSIONS: dkvf_storage::Versions;

    /// When messages to other servers leave the node, unless the run says otherwise.
    const PEER_FLUSH: PeerFlush = PeerFlush::Eager;

    /// What it promises.
    fn claims() -> Claims;

    /// What people should know before they use it.
    fn about() -> About;
}

/// When messages to other servers are written to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFlush {
    /// At the end of the loop turn that produced them: for protocols whose replies wait for other servers.
    Eager,
    /// When 8 KiB are waiting or 1 ms has passed: for protocols that replicate in the background. It halves
    /// the system calls of a busy server and adds up to 1 ms to the visibility of a write.
    Lazy,
}

/// A consistency claim: which models, over which order, under which faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Models by their name on the command line (`dkvf check --model`).
    pub models: &'static [&'static str],
    /// The order beside the data that the models include.
    pub order: Order,
    /// Whether the claim is per partition instead of for the whole store.
    pub entity_groups: bool,
    /// The faults under which it still holds.
    pub tolerates: &'static [Fault],
}

/// Which order beside the data a model includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None.
    None,
    /// The order of operations within a session.
    Session,
    /// Real time.
    RealTime,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Links are cut and come back.
    Partition,
    /// Links are slow.
    Delay,
    /// Clocks of nodes differ.
    Skew,
    /// A node stops and comes back with its state.
    CrashRecovered,
    /// A node stops for good or comes back empty.
    CrashReplaced,
}

impl Fault {
    /// The name that people read.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Partition => "partition",
            Fault::Delay => "delay",
            Fault::Skew => "skew",
            Fault::CrashRecovered => "crash-recovered",
            Fault::CrashReplaced => "crash-replaced",
        }
    }
}

/// The library's entry for a protocol.
#[derive(Clone, Debug)]
pub struct About {
    /// What it guarantees, in a few words.
    pub guarantee: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// What of the paper is implemented, and what was checked how far.
    pub status: &'static str,
    /// The sources, for counting lines: server, client, metadata.
    pub sources: Sources,
}

/// The texts of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// Text of the server.
    pub server: &'static str,
    /// Text of the client.
    pub client: &'static str,
    /// Text of the `.proto` file.
    pub metadata: &'static str,
}

impl Sources {
    /// Lines of code of server, client and metadata: not blank, not comment, not in the file's `mod tests`.
    pub fn lines(&self) -> [usize; 3] {
        [self.server, self.client, self.metadata].map(|text| {
            let code = text.split("#[cfg(test)]").next().unwrap_or(text);
            code.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with("//"))
                .count()
        })
    }
}
