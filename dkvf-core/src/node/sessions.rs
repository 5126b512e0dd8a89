//! Client sessions of one node: which request is open, and the reply to repeat when a client asks again.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::{ClientId, Code};

/// The sessions of a node, bounded. A client has one request open at a time and numbers them upwards.
#[derive(Debug)]
pub(crate) struct Sessions<R> {
    slots: Vec<Session<R>>,
    by_client: HashMap<ClientId, u32, FixedState>,
    recent: (ClientId, u32),
    /// Slots without a connection and with nothing open, oldest first: the first to be given away when the table is full.
    disconnected: VecDeque<(u32, ClientId)>,
    max: usize,
}

#[derive(Debug)]
struct Session<R> {
    client: ClientId,
    /// The host's connection that the reply goes to.
    port: u32,
    request: u64,
    state: State<R>,
}

impl<R> Session<R> {
    fn is_idle(&self) -> bool {
        !matches!(self.state, State::Open | State::Closing)
    }
}

#[derive(Debug)]
enum State<R> {
    Idle,
    Open,
    /// Answered, the reply is on its way to [`Sessions::keep_reply`] or [`Sessions::forget_reply`].
    Closing,
    Answered(Result<R, Code>),
}

/// An open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    pub(crate) slot: u32,
    pub(crate) port: u32,
    pub(crate) request: u64,
}

/// What to do with a request that arrived.
#[derive(Debug, PartialEq)]
pub(crate) enum Admission<R> {
    /// New: handle it.
    New,
    /// A repetition of one that is being handled, or older than the last: nothing to do.
    Ignore,
    /// The session has another request open. To open this one would give it the other one's answer.
    Busy,
    /// A repetition of the last one, which was answered so.
    Repeat(OpenRequest, Result<R, Code>),
    /// No room for another session.
    Full,
}

impl<R: Clone> Sessions<R> {
    pub(crate) fn new(max: usize) -> Self {
        Sessions {
            slots: Vec::new(),
            by_client: HashMap::with_hasher(FixedState::with_seed(0)),
            recent: (ClientId::default(), u32::MAX),
            disconnected: VecDeque::new(),
            max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// Opens `request` of `client`, whose replies go to `port`.
    pub(crate) fn open_request(
        &mut self,
        client: ClientId,
        port: u32,
        request: u64,
    ) -> Admission<R> {
        let slot = match self.slot_of(client) {
            Some(slot) => slot,
            None => match self.new_slot(client, port) {
                Some(slot) => slot,
                None => return Admission::Full,
            },
        };
        self.recent = (client, slot);
        let session = &mut self.slots[slot as usize];
        session.port = port;
        if request > session.request && matches!(session.state, State::Open) {
            return Admission::Busy;
        }
        if request > session.request {
            session.request = request;
            session.state = State::Open;
            return Admission::New;
        }
        match &session.state {
            State::Answered(result) if request == session.request => Admission::Repeat(
                OpenRequest {
                    slot,
                    port,
                    request,
                },
                result.clone(),
            ),
            _ => Admission::Ignore,
        }
    }

    /// The client's slot. Most requests are answered by the handler that takes them, so the last one is kept at hand.
    fn slot_of(&self, client: ClientId) -> Option<u32> {
        let (recent, slot) = self.recent;
        let is_recent = recent == client
            && self
                .slots
                .get(slot as usize)
                .is_some_and(|session| session.client == client);
        if is_recent {
            return Some(slot);
        }
        self.by_client.get(&client).copied()
    }

    /// Whether `request` of `client` was never opened here.
    pub(crate) fn is_new(&self, client: ClientId, request: u64) -> bool {
        self.slot_of(client)
            .is_none_or(|slot| request > self.slots[slot as usize].request)
    }

    /// Forgets that a request was opened: it was not handled, and a repetition is to be handled as new.
    pub(crate) fn forget_request(&mut self, client: ClientId, request: u64) {
        if let Some(slot) = self.by_client.get(&client) {
            let session = &mut self.slots[*slot as usize];
            if session.request == request {
                session.request = request - 1;
                let slot = *slot;
                self.finish(slot, State::Idle);
            }
        }
    }

    /// Ends the open request of `client` without an answer: its outcome is unknown.
    pub(crate) fn abandon_request(&mut self, client: ClientId) {
        if let Some(open) = self.close_request(client) {
            self.finish(open.slot, State::Idle);
        }
    }

    /// Takes the open request of `client` in order to answer it. `None` if it has none.
    pub(crate) fn close_request(&mut self, client: ClientId) -> Option<OpenRequest> {
        let slot = self.slot_of(client)?;
        let session = &mut self.slots[slot as usize];
        if !matches!(session.state, State::Open) {
            return None;
        }
        session.state = State::Closing;
        Some(OpenRequest {
            slot,
            port: session.port,
            request: session.request,
        })
    }

    /// Keeps the reply that was sent, to be repeated when the client asks again.
    pub(crate) fn keep_reply(&mut self, slot: u32, request: u64, result: Result<R, Code>) {
        if self.is_closing(slot, request) {
            self.finish(slot, State::Answered(result));
        }
    }

    /// Keeps no reply: a repetition of the request is ignored.
    pub(crate) fn forget_reply(&mut self, slot: u32, request: u64) {
        if self.is_closing(slot, request) {
            self.finish(slot, State::Idle);
        }
    }

    fn is_closing(&self, slot: u32, request: u64) -> bool {
        let session = &self.slots[slot as usize];
        session.request == request && matches!(session.state, State::Closing)
    }

    /// Nothing is open any more. A session that lost its connection meanwhile may now be given away.
    fn finish(&mut self, slot: u32, state: State<R>) {
        let session = &mut self.slots[slot as usize];
        session.state = state;
        if session.port == NOWHERE {
            self.disconnected.push_back((slot, session.client));
        }
    }

    /// The connection `port` is gone: its sessions may come back on another one, or be given away.
    pub(crate) fn disconnect(&mut self, port: u32) {
        for (slot, session) in self.slots.iter_mut().enumerate() {
            if session.port == port {
                session.port = NOWHERE;
                if session.is_idle() {
                    self.disconnected.push_back((slot as u32, session.client));
                }
            }
        }
        // Sessions that come and go leave entries behind; one live entry per slot is enough.
        if self.disconnected.len() > 2 * self.max {
            let gone = self
                .slots
                .iter()
                .enumerate()
                .filter(|(_, session)| session.port == NOWHERE && session.is_idle());
            self.disconnected = gone
                .map(|(slot, session)| (slot as u32, session.client))
                .collect();
        }
    }

    fn new_slot(&mut self, client: ClientId, port: u32) -> Option<u32> {
        let slot = if self.slots.len() < self.max {
            self.slots.len() as u32
        } else {
            self.give_away()?
        };
        let session = Session {
            client,
            port,
            request: 0,
            state: State::Idle,
        };
        if slot as usize == self.slots.len() {
            self.slots.push(session);
        } else {
            self.slots[slot as usize] = session;
        }
        self.by_client.insert(client, slot);
        Some(slot)
    }

    /// The slot of the session that has been without a connection for longest and has nothing open.
    fn give_away(&mut self) -> Option<u32> {
        while let Some((slot, client)) = self.disconnected.pop_front() {
            let session = &self.slots[slot as usize];
            if session.port == NOWHERE && session.client == client && session.is_idle() {
                self.by_client.remove(&client);
                return Some(slot);
            }
        }
        None
    }
}

/// The port of a session without a connection.
const NOWHERE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sessions: &mut Sessions<&'static str>, client: ClientId, reply: &'static str) {
        let open = sessions.close_request(client).expect("a request is open");
        sessions.keep_reply(open.slot, open.request, Ok(reply));
    }

    #[test]
    fn a_repeated_request_is_answered_from_memory_and_an_older_one_ignored() {
        let mut sessions = Sessions::new(10);
        let client = ClientId(7);
        assert_eq!(sessions.open_request(client, 1, 5), Admission::New);
        assert_eq!(
            sessions.open_request(client, 1, 5),
            Admission::Ignore,
            "still being handled"
        );
        answer(&mut sessions, client, "five");
        assert_eq!(
            sessions.open_request(client, 2, 5),
            Admission::Repeat(
                OpenRequest {
                    slot: 0,
                    port: 2,
                    request: 5
                },
                Ok("five")
            )
        );
        assert_eq!(sessions.open_request(client, 2, 4), Admission::Ignore);
        assert_eq!(sessions.open_request(client, 2, 6), Admission::New);
    }

    #[test]
    fn a_request_is_answered_once() {
        let mut sessions = Sessions::<&str>::new(10);
        assert_eq!(sessions.close_request(ClientId(7)), None);
        sessions.open_request(ClientId(7), 1, 1);
        assert!(sessions.close_request(ClientId(7)).is_some());
        assert_eq!(sessions.close_request(ClientId(7)), None);
    }

    #[test]
    fn a_session_with_an_open_request_opens_no_other() {
        let mut sessions = Sessions::<&str>::new(10);
        sessions.open_request(ClientId(7), 1, 1);
        assert_eq!(sessions.open_request(ClientId(7), 1, 2), Admission::Busy);
        answer(&mut sessions, ClientId(7), "one");
        assert_eq!(sessions.open_request(ClientId(7), 1, 2), Admission::New);
    }

    #[test]
    fn a_forgotten_request_is_new_again() {
        let mut sessions = Sessions::<&str>::new(10);
        sessions.open_request(ClientId(7), 1, 3);
        sessions.forget_request(ClientId(7), 3);
        assert_eq!(sessions.open_request(ClientId(7), 1, 3), Admission::New);
    }

    #[test]
    fn a_full_table_gives_away_only_idle_sessions_without_a_connection() {
        let mut sessions = Sessions::new(2);
        sessions.open_request(ClientId(1), 1, 1);
        sessions.open_request(ClientId(2), 2, 1);
        assert_eq!(sessions.open_request(ClientId(3), 3, 1), Admission::Full);
        sessions.disconnect(1);
        assert_eq!(
            sessions.open_request(ClientId(3), 3, 1),
            Admission::Full,
            "its request is still open"
        );
        answer(&mut sessions, ClientId(2), "two");
        sessions.disconnect(2);
        assert_eq!(sessions.open_request(ClientId(3), 3, 1), Admission::New);
        assert_eq!(sessions.len(), 2);
        assert_eq!(
            sessions.open_request(ClientId(2), 2, 1),
            Admission::Full,
            "its place was given away"
        );
    }

    #[test]
    fn a_session_that_was_answered_after_its_connection_broke_is_given_away() {
        let mut sessions = Sessions::new(1);
        sessions.open_request(ClientId(1), 1, 1);
        sessions.disconnect(1);
        assert_eq!(sessions.open_request(ClientId(2), 2, 1), Admission::Full);
        answer(&mut sessions, ClientId(1), "one");
        assert_eq!(sessions.open_request(ClientId(2), 2, 1), Admission::New);
    }

    #[test]
    fn a_repeated_request_whose_reply_was_not_kept_is_ignored() {
        let mut sessions = Sessions::<&str>::new(1);
        sessions.open_request(ClientId(1), 1, 1);
        let open = sessions.close_request(ClientId(1)).expect("it is open");
        sessions.forget_reply(open.slot, open.request);
        assert_eq!(sessions.open_request(ClientId(1), 1, 1), Admission::Ignore);
        assert_eq!(sessions.open_request(ClientId(1), 1, 2), Admission::New);
    }

    #[test]
    fn a_session_that_came_back_is_not_given_away() {
        let mut sessions = Sessions::new(1);
        sessions.open_request(ClientId(1), 1, 1);
        answer(&mut sessions, ClientId(1), "one");
        sessions.disconnect(1);
        assert!(matches!(
            sessions.open_request(ClientId(1), 4, 1),
            Admission::Repeat(..)
        ));
        assert_eq!(sessions.open_request(ClientId(2), 5, 1), Admission::Full);
    }
}
