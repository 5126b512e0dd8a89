//! The client side of a protocol: [`Client`], [`ClientContext`] and the outcomes of operations.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use async_trait::async_trait;
use dkvf_storage::{Key, Value, VersionKey};
use smallvec::SmallVec;

use crate::{Metadata, ServerId, Topology};

/// A client session: the client process in the upper 40 bits, the session within it in the lower 24.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Session `session` of a process that calls itself `process` (its lower 40 bits count).
    pub fn of(process: u64, session: u32) -> Self {
        ClientId((process << 24) | u64::from(session & 0x00ff_ffff))
    }
}

impl ClientId {
    /// The session within its process.
    pub fn session(self) -> u32 {
        (self.0 & 0x00ff_ffff) as u32
    }
}

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010x}/{}", self.0 >> 24, self.0 & 0x00ff_ffff)
    }
}

/// The error codes a server answers with (docs/protocols/README.md, 0.6). Each means: certainly no effect.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[repr(u8)]
pub enum Code {
    /// The request waited longer than the run allows.
    Timeout = 1,
    /// A link of the server is full, or it has too much parked: try again later.
    Overloaded = 2,
    /// A stamp in the request is too far ahead of the server's clock.
    ClockDrift = 3,
    /// The key is not of this server.
    WrongPartition = 4,
    /// Only the head takes this request.
    NotHead = 5,
    /// Only the tail takes this request.
    NotTail = 6,
    /// The server is not in service.
    Unavailable = 7,
    /// The request could not be understood.
    Malformed = 8,
}

impl Code {
    /// The code with this number.
    pub fn from_u8(number: u8) -> Option<Code> {
        use Code::*;
        [
            Timeout,
            Overloaded,
            ClockDrift,
            WrongPartition,
            NotHead,
            NotTail,
            Unavailable,
            Malformed,
        ]
        .into_iter()
        .find(|code| *code as u8 == number)
    }
}

/// Why an operation certainly had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The server said so.
    #[error("the server answered {0:?}")]
    Refused(Code),
    /// The transaction was aborted.
    #[error("aborted: {0}")]
    Aborted(&'static str),
    /// The protocol does not offer the operation.
    #[error("this protocol does not offer {0}")]
    Unsupported(&'static str),
    /// The request never left this process.
    #[error("{0}")]
    NotSent(String),
}

/// An operation that did not succeed. Checkers need the difference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It certainly had no effect.
    #[error("failed, without effect: {0}")]
    Failed(Reason),
    /// No answer in time or an answer that makes no sense: it may have happened, or may still happen.
    #[error("outcome unknown: no valid answer before the deadline")]
    Unknown,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Failure::Failed(reason)
    }
}

/// The result of an operation.
pub type Outcome<T> = Result<T, Failure>;

/// What a host offers to the sessions it runs: sending a request and looking for its reply.
pub trait ClientPort<M: Metadata> {
    /// Sends request number `request` of `session`.
    ///
    /// # Errors
    /// [`Reason::NotSent`].
    fn send(
        &self,
        session: u32,
        server: ServerId,
        request: u64,
        message: M::ClientMessage,
    ) -> Result<(), Reason>;

    /// Takes the answer to `request`, or remembers whom to wake when it comes.
    fn poll(&self, session: u32, request: u64, waker: &Waker) -> Poll<Outcome<M::ClientReply>>;

    /// The host's clock in microseconds: for measuring, not for protocols. Answers that came together may share a reading.
    fn now_us(&self) -> u64;

    /// Wakes the session at `time_us`, for load generators.
    fn wake_at(&self, session: u32, time_us: u64);
}

/// Runs the sessions of a host that became ready, in batches and without a task per session.
pub trait SessionExecutor {
    /// Polls the sessions with these numbers. They are drained.
    fn run(&self, ready: &mut Vec<u32>);
}

/// What a client may use beside its own state. A client awaits nothing that does not come from here.
pub struct ClientContext<M: Metadata> {
    port: Rc<dyn ClientPort<M>>,
    topology: Topology,
    session: u32,
    replica: u16,
    request: u64,
    witnesses: SmallVec<[(Key, VersionKey); 1]>,
    witnessing: bool,
}

impl<M: Metadata> ClientContext<M> {
    /// The context of session `session`, bound to `replica` for its lifetime.
    pub fn new(
        port: Rc<dyn ClientPort<M>>,
        topology: Topology,
        session: u32,
        replica: u16,
    ) -> Self {
        ClientContext {
            port,
            topology,
            session,
            replica,
            request: 0,
            witnesses: SmallVec::new(),
            witnessing: false,
        }
    }

    /// The cluster.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The replica this session is bound to.
    pub fn replica(&self) -> usize {
        usize::from(self.replica)
    }

    /// The server of the session's replica that holds `key`.
    pub fn server_of(&self, key: &[u8]) -> ServerId {
        self.topology
            .server(self.replica(), self.topology.partition_of(key))
    }

    /// All servers of the session's replica.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<M> {
        let (topology, replica) = (self.topology.clone(), self.replica());
        (0..topology.partitions()).map(move |partition| topology.server(replica, partition))
    }

    /// "Send; wait receive".
    ///
    /// # Errors
    /// What the server answered, or [`Failure::Unknown`] after the deadline.
    pub async fn request<R>(
        &mut self,
        server: ServerId,
        message: impl Into<M::ClientMessage>,
    ) -> Outcome<R>
    where
        R: TryFrom<M::ClientReply>,
    {
        let request = self.send(server, message)?;
        self.receive(request).await
    }

    /// "Send to all; wait for all replies", in the order of `messages`.
    ///
    /// # Errors
    /// After all have been waited for: the first failure if all certainly had no effect, [`Failure::Unknown`] if any
    /// had or may have had one.
    pub async fn request_all<R>(
        &mut self,
        messages: impl IntoIterator<Item = (ServerId, M::ClientMessage)>,
    ) -> Outcome<Vec<R>>
    where
        R: TryFrom<M::ClientReply>,
    {
        let mut sent = Vec::new();
        for (server, message) in messages {
            sent.push(self.send(server, message));
        }
        let mut replies = Vec::with_capacity(sent.len());
        for request in sent {
            replies.push(match request {
                Ok(request) => self.receive(request).await,
                Err(failure) => Err(failure),
            });
        }
        all_or_none(replies)
    }

    fn send(&mut self, server: ServerId, message: impl Into<M::ClientMessage>) -> Outcome<u64> {
        self.request += 1;
        self.port
            .send(self.session, server, self.request, message.into())?;
        Ok(self.request)
    }

    async fn receive<R>(&mut self, request: u64) -> Outcome<R>
    where
        R: TryFrom<M::ClientReply>,
    {
        let reply = poll_fn(|cx| self.port.poll(self.session, request, cx.waker())).await?;
        R::try_from(reply).map_err(|_| Failure::Unknown)
    }

    /// Tells the recorder which version of `key` the current operation read or wrote: the white-box order of
    /// the history.
    pub fn witness(&mut self, key: &Key, version: VersionKey) {
        if self.witnessing {
            self.witnesses.push((key.clone(), version));
        }
    }

    /// Turns witnesses on. For drivers.
    pub fn record_witnesses(&mut self) {
        self.witnessing = true;
    }

    /// The witnesses since the last call. For drivers.
    pub fn take_witnesses(&mut self) -> SmallVec<[(Key, VersionKey); 1]> {
        std::mem::take(&mut self.witnesses)
    }
}

/// The outcome of a whole whose parts ended so: it has failed without effect only if every part has.
fn all_or_none<R>(parts: Vec<Outcome<R>>) -> Outcome<Vec<R>> {
    let failed = |part: &Outcome<R>| matches!(part, Err(Failure::Failed(_)));
    if parts.iter().any(Result::is_err) && !parts.iter().all(failed) {
        return Err(Failure::Unknown);
    }
    parts.into_iter().collect()
}

/// A client of a key-value protocol: sequential code, as papers write clients.
#[async_trait(?Send)]
pub trait Client: Sized + 'static {
    /// The messages.
    type Metadata: Metadata;

    /// A new session.
    fn new(cx: ClientContext<Self::Metadata>) -> Self;

    /// The session's context, for drivers.
    fn context(&mut self) -> &mut ClientContext<Self::Metadata>;

    /// The value of `key`, `None` if it has none.
    async fn get(&mut self, key: Key) -> Outcome<Option<Value>>;

    /// Writes `value`.
    async fn put(&mut self, key: Key, value: Value) -> Outcome<()>;

    /// Reads several keys as one snapshot, in the order asked for.
    async fn read_only(&mut self, keys: Vec<Key>) -> Outcome<Vec<Option<Value>>> {
        let _ = keys;
        Err(Reason::Unsupported("read-only transactions").into())
    }

    /// The first `count` keys from `from` on, in byte order.
    async fn scan(&mut self, from: Key, count: usize) -> Outcome<Vec<(Key, Value)>> {
        let _ = (from, count);
        Err(Reason::Unsupported("scans").into())
    }
}

/// A client of a protocol with interactive transactions: one open transaction per session.
#[async_trait(?Send)]
pub trait TransactionalClient: Sized + 'static {
    /// The messages.
    type Metadata: Metadata;

    /// A new session.
    fn new(cx: ClientContext<Self::Metadata>) -> Self;

    /// The session's context, for drivers.
    fn context(&mut self) -> &mut ClientContext<Self::Metadata>;

    /// Starts a transaction.
    async fn begin(&mut self) -> Outcome<()>;

    /// Reads within the transaction.
    async fn read(&mut self, key: Key) -> Outcome<Option<Value>>;

    /// Reads the keys of `[from, to)` in byte order.
    async fn scan(&mut self, from: Key, to: Key) -> Outcome<Vec<(Key, Value)>>;

    /// Writes within the transaction; `None` deletes.
    async fn write(&mut self, key: Key, value: Option<Value>) -> Outcome<()>;

    /// Commits. `Failed(Aborted)` means that nothing of it happened.
    async fn commit(&mut self) -> Outcome<()>;

    /// Gives the transaction up.
    async fn abort(&mut self) -> Outcome<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_has_failed_only_if_every_part_has() {
        let failed = |code| Err(Failure::Failed(Reason::Refused(code)));
        let (ok, unknown) = (Ok(1), Err(Failure::Unknown));
        for mixed in [
            [ok.clone(), failed(Code::Timeout)],
            [failed(Code::Timeout), unknown.clone()],
            [unknown, ok.clone()],
        ] {
            assert_eq!(all_or_none(mixed.to_vec()), Err(Failure::Unknown));
        }
        let all = vec![failed(Code::NotHead), failed(Code::Timeout)];
        assert_eq!(
            all_or_none::<u8>(all),
            failed(Code::NotHead).map(|part: u8| vec![part])
        );
        assert_eq!(all_or_none(vec![ok.clone(), ok]), Ok(vec![1, 1]));
        assert_eq!(all_or_none::<u8>(Vec::new()), Ok(Vec::new()));
    }
}
