//! The server side of a protocol: [`Server`].

use std::fmt::Debug;

use crate::config::NodeConfig;
use crate::{ClientId, Context, Metadata, ServerId};

/// The record type of a server's protocol.
pub type RecordOf<S> = <<S as Server>::Metadata as Metadata>::Record;
/// The client messages of a server's protocol.
pub type ClientMessageOf<S> = <<S as Server>::Metadata as Metadata>::ClientMessage;
/// The server messages of a server's protocol.
pub type ServerMessageOf<S> = <<S as Server>::Metadata as Metadata>::ServerMessage;
/// The replies of a server's protocol.
pub type ClientReplyOf<S> = <<S as Server>::Metadata as Metadata>::ClientReply;

/// One node of a protocol: a state machine whose handlers are atomic steps.
///
/// A handler's result depends only on `self`, its message and what [`Context`] gave it. No clock, thread,
/// lock or randomness is reached in any other way: that is what lets one text run on TCP, in simulation
/// and in a model checker.
///
/// # Waiting
/// Papers wait in three ways:
/// - *guard at entry*: [`Context::wait_until`] and its relatives. The message is parked and handled again from the
///   top, so waits come before effects; only idempotent merges ([`Context::merge_max`]) may come first.
/// - *upon CONDITION do*: [`Server::rules`].
/// - *send to all, wait for replies*: [`crate::Gather`] on a server, sequential code on a client.
pub trait Server: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static {
    /// The messages.
    type Metadata: Metadata;
    /// The timers, usually an enum.
    type Timer: Copy + Debug + Ord + 'static;

    /// The initial state. Starts the protocol's timers. Never reads old data: recovery is the host's.
    ///
    /// # Errors
    /// A protocol property that is missing or wrong.
    fn new(config: &NodeConfig, cx: &mut Context<Self>) -> anyhow::Result<Self>;

    /// A request of a client.
    fn handle_client_message(
        &mut self,
        cx: &mut Context<Self>,
        client: ClientId,
        message: &ClientMessageOf<Self>,
    ) -> Step;

    /// A message of another server (or of this one to itself).
    fn handle_server_message(
        &mut self,
        cx: &mut Context<Self>,
        from: ServerId,
        message: &ServerMessageOf<Self>,
    ) -> Step;

    /// A timer started by [`Context::every`] or [`Context::after`].
    fn handle_timer(&mut self, cx: &mut Context<Self>, timer: Self::Timer) -> Step {
        let _ = (cx, timer);
        Ok(())
    }

    /// The link to `peer` went down, came back, or leads to a new incarnation.
    fn handle_peer_change(
        &mut self,
        cx: &mut Context<Self>,
        peer: ServerId,
        state: PeerState,
    ) -> Step {
        let _ = (cx, peer, state);
        Ok(())
    }

    /// "Upon CONDITION do": called after every event until it answers [`Progress::None`].
    fn rules(&mut self, cx: &mut Context<Self>) -> Progress {
        let _ = cx;
        Progress::None
    }

    /// Whether a reader who asks this server now would see `record` (or something newer). Measured, not used.
    fn visible(&self, record: &RecordOf<Self>) -> bool {
        let _ = record;
        true
    }

    /// An invariant of the state, evaluated after every step in tests, simulation and model checking.
    ///
    /// # Errors
    /// A sentence that says what is broken.
    fn invariant(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The result of a handler: done, or stopped at a wait.
pub type Step = Result<(), Parked>;

/// The handler stopped at a wait or a check of its [`Context`]. Only the context makes one; `?` hands it on.
#[derive(Debug)]
#[must_use = "hand it on with `?`: the message is parked or refused"]
pub struct Parked(pub(crate) ());

/// Whether [`Server::rules`] changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A condition held and its action was done: ask again.
    Made,
    /// No condition holds.
    None,
}

/// What happened to the link to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The connection is lost; what is sent is kept.
    Down,
    /// The same incarnation is reachable again: nothing was lost, doubled or reordered.
    Up,
    /// A new incarnation, empty, took the peer's place: frames for the old one were dropped.
    Replaced,
}
