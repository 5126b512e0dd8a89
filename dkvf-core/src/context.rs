//! Everything a handler may touch beside its own state: [`Context`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::Location;
use std::time::Duration;

use dkvf_storage::{Key, Record, StorageError, Store, Table, VersionKey};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::node::sessions::Sessions;
use crate::node::timers::Timers;
use crate::node::visibility::Visibility;
use crate::node::{NodeError, Now, Output};
use crate::server::{ClientReplyOf, RecordOf, ServerMessageOf};
use crate::topology::Ids;
use crate::{ClientId, Code, Parked, Server, ServerId, Step, Topology};

/// What a handler is given: its node's clock, store, timers and links.
///
/// The effects of a handler leave the node together after it has returned.
pub struct Context<S: Server> {
    pub(crate) me: ServerId,
    pub(crate) topology: Topology,
    pub(crate) store: Box<dyn Store<RecordOf<S>>>,
    pub(crate) now: Now,
    pub(crate) timers: Timers<S::Timer>,
    pub(crate) sessions: Sessions<ClientReplyOf<S>>,
    pub(crate) outputs: Vec<Output<S::Metadata>>,
    pub(crate) self_sends: VecDeque<ServerMessageOf<S>>,
    pub(crate) visibility: Visibility<RecordOf<S>>,
    /// Reads and writes of the store since the start.
    pub(crate) storage_accesses: u64,
    /// Effects of the handler that runs now.
    pub(crate) effects: u32,
    /// Why the handler that runs now stopped early.
    pub(crate) stop: Option<Stop>,
    /// A put of the handler that runs now was over the limits of stores.
    pub(crate) oversized: Option<Oversized>,
    /// A broken rule, found inside a handler and reported after it.
    pub(crate) broken: Option<NodeError>,
    /// Whether any message waits for a key, and the keys written or woken since the last look.
    pub(crate) keys_awaited: bool,
    pub(crate) keys_woken: Vec<Key>,
    pub(crate) max_drift_us: u64,
    pub(crate) random: Pcg64Mcg,
}

/// Why a handler stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Wait(Wait),
    Refuse {
        code: Code,
        location: &'static Location<'static>,
    },
}

impl Stop {
    pub(crate) fn location(&self) -> &'static Location<'static> {
        match self {
            Stop::Wait(wait) => wait.location,
            Stop::Refuse { location, .. } => location,
        }
    }
}

/// A put that no store takes. What the handler does after it is dropped.
#[derive(Debug)]
pub(crate) struct Oversized {
    /// What the handler did before it, which cannot be undone.
    pub(crate) effects_before: u32,
    pub(crate) error: StorageError,
}

/// A wait that did not hold.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) until: Until,
    pub(crate) hold_link: bool,
    pub(crate) location: &'static Location<'static>,
}

/// What could end a wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// Anything: tried after every event.
    Any,
    /// The node's clock.
    Clock(u64),
    /// The growing value `index` of this source line.
    Reached { index: usize, threshold: u64 },
    /// A write to this key.
    Key(Key),
}

impl<S: Server> Context<S> {
    // ---- Who and where ----

    /// This node.
    pub fn me(&self) -> ServerId {
        self.me
    }

    /// The cluster.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The replica this node belongs to: `m` in the causal papers.
    pub fn replica(&self) -> usize {
        usize::from(self.topology.member(self.me).replica)
    }

    /// The partition this node holds: `n` in the causal papers.
    pub fn partition(&self) -> usize {
        usize::from(self.topology.member(self.me).partition)
    }

    /// The same partition in the other replicas.
    pub fn peers(&self) -> Ids {
        self.topology.peers(self.me)
    }

    /// The other partitions of this replica.
    pub fn siblings(&self) -> Ids {
        self.topology.siblings(self.me)
    }

    /// The server of this replica that holds `key`.
    pub fn server_of(&self, key: &[u8]) -> ServerId {
        self.topology
            .server(self.replica(), self.topology.partition_of(key))
    }

    // ---- Time and choice ----

    /// The node's physical clock in microseconds since 1970: possibly skewed, never decreasing within an
    /// incarnation, the same during one handler.
    pub fn clock(&self) -> u64 {
        self.now.clock_us
    }

    /// A clock that never steps, in microseconds from an arbitrary origin: for leases.
    pub fn monotonic(&self) -> u64 {
        self.now.monotonic_us
    }

    /// A number below `n`, chosen by the host (and explored by the model checker).
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn choose(&mut self, n: u64) -> u64 {
        self.effects += 1;
        self.random.random_range(0..n)
    }

    // ---- Waiting ----

    /// `target := max(target, value)`: the only change of state that may come before a wait, since doing it twice is
    /// doing it once.
    pub fn merge_max<T: Ord + Clone>(&self, target: &mut T, value: T) {
        if value > *target {
            *target = value;
        }
    }

    /// Guard: goes on when `condition` holds; otherwise parks the message, to be handled again from the top.
    /// Tried after every event, so prefer the more specific waits where many messages may be parked.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn wait_until(&mut self, condition: bool) -> Step {
        self.wait(condition, Until::Any, false)
    }

    /// Guard: goes on when [`Context::clock`] has reached `time` (microseconds).
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn wait_until_clock(&mut self, time: u64) -> Step {
        self.wait(self.now.clock_us >= time, Until::Clock(time), false)
    }

    /// Guard: goes on when `value`, which only grows, has reached `threshold`. Of the messages that wait at one
    /// source line the one with the lowest threshold is tried, so an event costs O(log parked). One source line
    /// must wait for one value.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn wait_until_reached(&mut self, value: u64, threshold: u64) -> Step {
        self.wait(
            value >= threshold,
            Until::Reached {
                index: 0,
                threshold,
            },
            false,
        )
    }

    /// Guard: goes on when each of `values`, which only grow, has reached its threshold: "wait until ∀i: V\[i\] ≥ t\[i\]".
    /// Missing thresholds are 0. Costs as [`Context::wait_until_reached`], per index.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn wait_until_all_reached(&mut self, values: &[u64], thresholds: &[u64]) -> Step {
        match values
            .iter()
            .zip(thresholds)
            .position(|(value, threshold)| value < threshold)
        {
            None => Ok(()),
            Some(index) => self.wait(
                false,
                Until::Reached {
                    index,
                    threshold: thresholds[index],
                },
                false,
            ),
        }
    }

    /// Guard: goes on when `condition`, which depends on `key`, holds; tried again when `key` is written or
    /// [woken](Context::wake).
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn wait_on(&mut self, key: &[u8], condition: bool) -> Step {
        if condition {
            return Ok(());
        }
        self.wait(false, Until::Key(Key::copy_from_slice(key)), false)
    }

    /// As [`Context::wait_until`], and later messages of the same link wait behind this one.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn hold_link_until(&mut self, condition: bool) -> Step {
        self.wait(condition, Until::Any, true)
    }

    /// Tries the messages that [wait on](Context::wait_on) `key` again.
    pub fn wake(&mut self, key: &[u8]) {
        if self.keys_awaited {
            self.keys_woken.push(Key::copy_from_slice(key));
        }
    }

    /// Refuses the request with [`Code::ClockDrift`] if `stamp` (microseconds) is further ahead of this node's
    /// clock than the run's bound. Stamps from outside are hostile: check before merging.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`; the client gets the code.
    #[track_caller]
    pub fn refuse_drift(&mut self, stamp: u64) -> Step {
        if stamp <= self.now.clock_us.saturating_add(self.max_drift_us) {
            return Ok(());
        }
        self.refuse(Code::ClockDrift)
    }

    /// Refuses the request: the client gets `code` and is certain that nothing happened.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`.
    #[track_caller]
    pub fn refuse(&mut self, code: Code) -> Step {
        let location = Location::caller();
        self.stop_with(Stop::Refuse { code, location })
    }

    /// Refuses the request with [`Code::WrongPartition`] if this node does not hold the partition of `key`: the caller's
    /// view of the cluster is another one.
    ///
    /// # Errors
    /// [`Parked`], to be handed on with `?`; the client gets the code.
    #[track_caller]
    pub fn refuse_foreign(&mut self, key: &[u8]) -> Step {
        if self.topology.partition_of(key) == self.partition() {
            return Ok(());
        }
        self.refuse(Code::WrongPartition)
    }

    #[track_caller]
    fn wait(&mut self, condition: bool, until: Until, hold_link: bool) -> Step {
        if condition {
            return Ok(());
        }
        self.stop_with(Stop::Wait(Wait {
            until,
            hold_link,
            location: Location::caller(),
        }))
    }

    fn stop_with(&mut self, stop: Stop) -> Step {
        // After an oversized put the handler does not come to its end anyway.
        if self.effects > 0 && self.oversized.is_none() {
            self.break_with(NodeError::EffectsBeforeWait {
                effects: self.effects,
                location: stop.location(),
            });
        }
        self.stop = Some(stop);
        Err(Parked(()))
    }

    /// Counts an effect. Returns whether it is to happen: nothing does after an oversized put.
    fn begin_effect(&mut self) -> bool {
        self.effects += 1;
        self.oversized.is_none()
    }

    // ---- Messages ----

    /// Sends to another server, or to this one: then it is handled after this handler and before any other event.
    pub fn send(&mut self, to: ServerId, message: impl Into<ServerMessageOf<S>>) {
        if !self.begin_effect() {
            return;
        }
        let message = message.into();
        if to == self.me {
            self.self_sends.push_back(message);
        } else {
            self.outputs.push(Output::Send {
                to,
                message,
                latest: false,
            });
        }
    }

    /// Sends to each of `to` (not to this node); encoded once.
    pub fn broadcast(&mut self, to: Ids, message: impl Into<ServerMessageOf<S>>) {
        if self.begin_effect() && to.len() > 0 {
            self.outputs.push(Output::Broadcast {
                to,
                message: message.into(),
                latest: false,
            });
        }
    }

    /// As [`Context::broadcast`] for heartbeats and cut-offs, where a newer message makes an older one
    /// superfluous: a link that is backed up keeps only the newest. FIFO towards other messages is kept.
    ///
    /// A link keeps one such message, whatever its kind: send one kind of them over a link, because a newer one of
    /// another kind replaces it, too.
    pub fn broadcast_latest(&mut self, to: Ids, message: impl Into<ServerMessageOf<S>>) {
        if self.begin_effect() && to.len() > 0 {
            self.outputs.push(Output::Broadcast {
                to,
                message: message.into(),
                latest: true,
            });
        }
    }

    /// As [`Context::send`] for heartbeats and cut-offs; see [`Context::broadcast_latest`].
    pub fn send_latest(&mut self, to: ServerId, message: impl Into<ServerMessageOf<S>>) {
        if to == self.me {
            return self.send(to, message);
        }
        if self.begin_effect() {
            self.outputs.push(Output::Send {
                to,
                message: message.into(),
                latest: true,
            });
        }
    }

    /// Answers the request that `client` has open here.
    pub fn reply(&mut self, client: ClientId, reply: impl Into<ClientReplyOf<S>>) {
        self.answer(client, Ok(reply.into()));
    }

    /// Answers the request that `client` has open here with an error.
    pub fn reply_error(&mut self, client: ClientId, code: Code) {
        self.answer(client, Err(code));
    }

    fn answer(&mut self, client: ClientId, result: Result<ClientReplyOf<S>, Code>) {
        if !self.begin_effect() {
            return;
        }
        match self.sessions.close_request(client) {
            Some(open) => self.outputs.push(Output::Reply {
                port: open.port,
                client,
                request: open.request,
                slot: open.slot,
                result,
            }),
            None => self.break_with(NodeError::NothingToAnswer { client }),
        }
    }

    // ---- Timers ----

    /// Calls [`Server::handle_timer`] every `period`, starting one period from now. Starting it again replaces it.
    pub fn every(&mut self, timer: S::Timer, period: Duration) {
        if self.begin_effect() {
            self.timers
                .start(self.now.monotonic_us, timer, period, true);
        }
    }

    /// Calls [`Server::handle_timer`] once, `delay` from now. Starting it again replaces it.
    pub fn after(&mut self, timer: S::Timer, delay: Duration) {
        if self.begin_effect() {
            self.timers
                .start(self.now.monotonic_us, timer, delay, false);
        }
    }

    /// Stops a timer.
    pub fn cancel(&mut self, timer: S::Timer) {
        if self.begin_effect() {
            self.timers.cancel(timer);
        }
    }

    // ---- Storage ----

    /// Inserts a version into the main table; see [`Store::put`]. Returns whether the store changed.
    ///
    /// A key or record over the limits of stores is the caller's mistake and does not stop the node: the put and all
    /// that its handler does after it are dropped. A client's request is refused with [`Code::Malformed`] if the put was
    /// the handler's first effect, and stays unanswered otherwise; so put before you send or note who waits. Elsewhere a
    /// warning is logged: the limits are the same on every node, so no honest peer sends such a record.
    pub fn put(&mut self, key: &[u8], record: RecordOf<S>) -> bool {
        self.put_in(Table::MAIN, key, record)
    }

    /// [`Context::put`] into a table.
    pub fn put_in(&mut self, table: Table, key: &[u8], record: RecordOf<S>) -> bool {
        let effects_before = self.effects;
        if !self.begin_effect() {
            return false;
        }
        self.storage_accesses += 1;
        self.visibility
            .inserted(self.now.monotonic_us, key, record.version(self.me), &record);
        match self.store.put(table, key, record) {
            Err(
                error @ (StorageError::KeyTooLong { .. } | StorageError::RecordTooLarge { .. }),
            ) => {
                self.oversized = Some(Oversized {
                    effects_before,
                    error,
                });
                false
            }
            changed => {
                self.wake(key);
                self.or_break(changed)
            }
        }
    }

    /// The newest version in the main table that satisfies `satisfies`; see [`Store::latest`].
    pub fn latest(
        &mut self,
        key: &[u8],
        satisfies: impl FnMut(&RecordOf<S>) -> bool,
    ) -> Option<Cow<'_, RecordOf<S>>> {
        self.latest_in(Table::MAIN, key, satisfies)
    }

    /// [`Context::latest`] in a table.
    pub fn latest_in(
        &mut self,
        table: Table,
        key: &[u8],
        mut satisfies: impl FnMut(&RecordOf<S>) -> bool,
    ) -> Option<Cow<'_, RecordOf<S>>> {
        self.storage_accesses += 1;
        match self.store.latest(table, key, &mut satisfies) {
            Ok(found) => found,
            Err(error) => {
                self.broken.get_or_insert(NodeError::Storage(error));
                None
            }
        }
    }

    /// Visits the versions of `key` newer than `than`, oldest first; see [`Store::newer`].
    pub fn newer(
        &mut self,
        table: Table,
        key: &[u8],
        than: VersionKey,
        mut visit: impl FnMut(&RecordOf<S>) -> ControlFlow<()>,
    ) {
        self.storage_accesses += 1;
        let result = self.store.newer(table, key, than, &mut visit);
        self.or_break(result)
    }

    /// The keys from `from` on in byte order with their newest satisfying versions, at most `count`.
    pub fn scan(
        &mut self,
        from: &[u8],
        count: usize,
        mut satisfies: impl FnMut(&RecordOf<S>) -> bool,
    ) -> Vec<(Key, RecordOf<S>)> {
        self.storage_accesses += 1;
        let mut rows = Vec::new();
        let mut visit = |key: &[u8], record: Option<Cow<'_, RecordOf<S>>>| {
            if rows.len() == count {
                return ControlFlow::Break(());
            }
            if let Some(record) = record {
                rows.push((Key::copy_from_slice(key), record.into_owned()));
            }
            ControlFlow::Continue(())
        };
        let result = self
            .store
            .scan(Table::MAIN, from, None, &mut satisfies, &mut visit);
        self.or_break(result);
        rows
    }

    /// Drops the versions of `key` older than the newest one that satisfies `stable`; see [`Store::prune`].
    pub fn prune(&mut self, key: &[u8], mut stable: impl FnMut(&RecordOf<S>) -> bool) -> usize {
        if !self.begin_effect() {
            return 0;
        }
        self.storage_accesses += 1;
        let dropped = self.store.prune(Table::MAIN, key, &mut stable);
        self.or_break(dropped)
    }

    /// A store that fails crashes the node: the error is kept, and the node stops after this handler.
    fn or_break<T: Default>(&mut self, result: Result<T, StorageError>) -> T {
        result.unwrap_or_else(|error| {
            self.break_with(NodeError::Storage(error));
            T::default()
        })
    }

    fn break_with(&mut self, error: NodeError) {
        self.broken.get_or_insert(error);
    }
}
