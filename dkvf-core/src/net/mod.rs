//! The host on TCP: the only part of the framework that touches sockets, threads and real clocks.
//!
//! One [`worker::Worker`] is one thread with one single-threaded runtime. A node lives on one worker together with all its
//! sockets, so that a request goes socket → handler → socket without a channel, a lock or another thread. Each loop turn
//! reads what is there, runs the handlers, commits once, and writes each connection once.
//!
//! - [`wire`]: frames and handshakes (pure)
//! - [`link`]: reliable FIFO between two servers (pure); `peer`: its connection
//! - [`host`]: a node with its listeners, and in rooms of their own its `clients` and `servers`; `control`, [`status`]: its
//!   control port, [`orders`]: what it can be told there
//! - [`pool`]: the client side: many sessions, one connection per server
//! - [`cluster`]: a whole cluster in this process
//! - [`fuzz`]: entry points for fuzzers
//! - [`worker`], [`clock`], `flush`, `connection`: threads, time, batched writing, sockets

pub mod clock;
pub mod cluster;
mod connection;
mod control;
mod flush;
pub mod fuzz;
pub mod host;
pub mod link;
pub mod orders;
mod peer;
pub mod pool;
pub mod status;
pub mod wire;
pub mod worker;

pub use connection::Address;
pub use control::{post as control_post, request as control_request};
