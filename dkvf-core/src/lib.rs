//! The framework a replication protocol is written against, and the TCP runtime that runs it.
//!
//! A protocol is a [`Server`] (a state machine with atomic handlers), a [`Client`] (sequential code) and the
//! messages between them ([`Metadata`]), tied together by [`Protocol`]. Its handlers reach the world only
//! through [`Context`]; its client only through [`ClientContext`].
//!
//! - [`server`], [`client`], [`context`], [`gather`], [`message`], [`protocol`], [`topology`]: what a protocol is written with
//! - [`node`]: one node without a network; hosts feed it events and carry out its outputs
//! - [`script`]: a cluster driven by hand, for tests of protocols
//! - [`net`]: the host on TCP: frames, links, workers, client connections, control port
//! - [`config`]: the configuration file of a node
//! - [`limits`]: the bounds of everything

pub mod client;
pub mod config;
pub mod context;
pub mod gather;
pub mod limits;
pub mod message;
pub mod net;
pub mod node;
pub mod protocol;
pub mod script;
pub mod server;
pub mod topology;

pub use client::{
    Client, ClientContext, ClientId, ClientPort, Code, Failure, Outcome, Reason, SessionExecutor,
    TransactionalClient,
};
pub use context::Context;
pub use dkvf_storage as storage;
pub use dkvf_storage::{Key, Record, Table, Value, VersionKey, Versions};
pub use gather::{Gather, Quorum};
pub use message::{Message, Metadata};
pub use node::{Node, NodeError, NodeOptions, Now, Output};
pub use protocol::{About, Claims, Fault, Order, PeerFlush, Protocol, Sources};
pub use server::{Parked, PeerState, Progress, Server, Step};
pub use topology::{Member, Role, ServerId, Topology};
