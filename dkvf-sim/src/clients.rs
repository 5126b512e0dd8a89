//! The client side: one process next to each replica, its sessions, and its connections to servers.
//!
//! It does what `dkvf_core::net::pool` does on TCP. A request that was not answered when a connection broke is sent
//! again under its number, and the server recognises it; what was sent to an incarnation that is gone ends as unknown.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

use dkvf_core::{
    ClientContext, ClientId, ClientPort, Code, Failure, Message, Metadata, Outcome, Reason,
    ServerId, SessionExecutor, Topology,
};
use smallvec::SmallVec;

use crate::wire::Wire;

/// First pause between two attempts of a client to connect, in microseconds, and the longest in first pauses: as on
/// TCP.
pub(crate) const CLIENT_PAUSE_US: u64 = 20_000;
pub(crate) const CLIENT_PAUSES_MAX: u64 = 16;
/// No incarnation of a server.
const NOT_SENT: u32 = 0;

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Request<M: Metadata> {
    pub(crate) session: u32,
    pub(crate) request: u64,
    pub(crate) message: M::ClientMessage,
}

/// A reply on its way.
#[derive(Debug)]
pub(crate) struct Reply<M: Metadata> {
    pub(crate) session: u32,
    pub(crate) request: u64,
    pub(crate) result: Result<M::ClientReply, Code>,
}

/// The connection between the clients of a replica and a server.
#[derive(Debug)]
pub(crate) struct Connection<M: Metadata> {
    /// The replica that the clients sit next to; their process and the server's port for them.
    pub(crate) process: u16,
    pub(crate) server: ServerId,
    pub(crate) requests: Wire<Request<M>>,
    pub(crate) replies: Wire<Reply<M>>,
    /// Whom it leads to.
    pub(crate) incarnation: u32,
    pub(crate) state: ConnectionState,
    pub(crate) generation: u32,
}

/// As the clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Up,
    /// Broken, and nobody has noticed.
    Broken,
    /// They dial since then.
    Dialling {
        since_us: u64,
    },
}

/// The client whose session has this number.
pub(crate) fn client_id(process: u16, session: u32) -> ClientId {
    ClientId::of(u64::from(process) + 1, session)
}

struct Waiting<M: Metadata> {
    request: u64,
    server: ServerId,
    /// Kept to be sent again.
    message: M::ClientMessage,
    sent_to: u32,
    answer: Option<Outcome<M::ClientReply>>,
}

struct Session<M: Metadata> {
    replica: u16,
    waiting: SmallVec<[Waiting<M>; 1]>,
}

/// What sessions did that the simulation has to carry out.
pub(crate) struct Wishes {
    /// Requests that were sent: session, server and number.
    pub(crate) sent: Vec<(u32, ServerId, u64)>,
    /// When sessions want to be woken.
    pub(crate) alarms: Vec<(u64, u32)>,
}

/// The port of all sessions.
pub(crate) struct Port<M: Metadata> {
    now_us: Cell<u64>,
    timeout_us: u64,
    message_bytes_max: u64,
    sessions: RefCell<Vec<Session<M>>>,
    wishes: RefCell<Wishes>,
    ready: RefCell<Vec<u32>>,
    /// Requests by deadline, session and number, also answered ones. All have the same time, so this is in order.
    deadlines: RefCell<VecDeque<(u64, u32, u64)>>,
    deadline_armed: Cell<bool>,
}

impl<M: Metadata> Port<M> {
    pub(crate) fn new(timeout_us: u64, message_bytes_max: u64) -> Rc<Self> {
        Rc::new(Port {
            now_us: Cell::new(0),
            timeout_us,
            message_bytes_max,
            sessions: RefCell::default(),
            wishes: RefCell::new(Wishes {
                sent: Vec::new(),
                alarms: Vec::new(),
            }),
            ready: RefCell::default(),
            deadlines: RefCell::default(),
            deadline_armed: Cell::new(false),
        })
    }

    /// A new session next to `replica`.
    pub(crate) fn session(
        self: &Rc<Self>,
        topology: &Topology,
        replica: u16,
    ) -> (u32, ClientContext<M>) {
        let mut sessions = self.sessions.borrow_mut();
        let session = sessions.len() as u32;
        sessions.push(Session {
            replica,
            waiting: SmallVec::new(),
        });
        (
            session,
            ClientContext::new(self.clone(), topology.clone(), session, replica),
        )
    }

    pub(crate) fn set_now(&self, now_us: u64) {
        self.now_us.set(now_us);
    }

    pub(crate) fn replica_of(&self, session: u32) -> u16 {
        self.sessions.borrow()[session as usize].replica
    }

    /// Lets `executor` poll the sessions that are ready.
    pub(crate) fn run_ready(&self, executor: &dyn SessionExecutor) {
        loop {
            let mut ready = self.ready.take();
            if ready.is_empty() {
                return;
            }
            executor.run(&mut ready);
            let mut list = self.ready.borrow_mut();
            if list.is_empty() {
                *list = ready;
                return;
            }
        }
    }

    /// Takes the wishes; the emptied lists come back with [`Port::recycle`].
    pub(crate) fn take_wishes(&self) -> Wishes {
        self.wishes.replace(Wishes {
            sent: Vec::new(),
            alarms: Vec::new(),
        })
    }

    pub(crate) fn recycle(&self, wishes: Wishes) {
        *self.wishes.borrow_mut() = wishes;
    }

    /// The message of a request that is sent now to `incarnation`, `None` if it is no longer wanted. A request without
    /// a connection is sent later.
    pub(crate) fn message_to_send(
        &self,
        session: u32,
        request: u64,
        incarnation: Option<u32>,
    ) -> Option<M::ClientMessage> {
        let mut sessions = self.sessions.borrow_mut();
        let waiting = sessions[session as usize].unanswered(request)?;
        waiting.sent_to = incarnation?;
        Some(waiting.message.clone())
    }

    /// A connection of `process` to `server` is there. Returns the requests to send again, or for the first time. What
    /// was sent to a former incarnation ends as unknown: the present one knows nothing of it.
    pub(crate) fn reconnected(
        &self,
        process: u16,
        server: ServerId,
        incarnation: u32,
    ) -> Vec<Request<M>> {
        let mut again = Vec::new();
        for (number, session) in self.sessions.borrow_mut().iter_mut().enumerate() {
            if session.replica != process {
                continue;
            }
            let mut ended = false;
            for waiting in session.waiting.iter_mut() {
                if waiting.server != server || waiting.answer.is_some() {
                    continue;
                }
                if waiting.sent_to != NOT_SENT && waiting.sent_to != incarnation {
                    waiting.answer = Some(Err(Failure::Unknown));
                    ended = true;
                    continue;
                }
                waiting.sent_to = incarnation;
                again.push(Request {
                    session: number as u32,
                    request: waiting.request,
                    message: waiting.message.clone(),
                });
            }
            if ended {
                self.ready.borrow_mut().push(number as u32);
            }
        }
        again
    }

    /// An answer has come. Late and repeated ones find nobody waiting.
    pub(crate) fn answer(&self, session: u32, request: u64, answer: Outcome<M::ClientReply>) {
        if let Some(waiting) = self.sessions.borrow_mut()[session as usize].unanswered(request) {
            waiting.answer = Some(answer);
            self.ready.borrow_mut().push(session);
        }
    }

    pub(crate) fn ring(&self, session: u32) {
        self.ready.borrow_mut().push(session);
    }

    /// The next deadline, if requests are without an answer and nobody was told of it.
    pub(crate) fn arm_deadline(&self) -> Option<u64> {
        if self.deadline_armed.get() {
            return None;
        }
        let deadline_us = self.deadlines.borrow().front()?.0;
        self.deadline_armed.set(true);
        Some(deadline_us)
    }

    /// Gives up on the requests whose deadline has passed.
    pub(crate) fn expire(&self, now_us: u64) {
        self.deadline_armed.set(false);
        let mut deadlines = self.deadlines.borrow_mut();
        let mut sessions = self.sessions.borrow_mut();
        while let Some((deadline_us, session, request)) = deadlines.front().copied() {
            if let Some(waiting) = sessions[session as usize].unanswered(request) {
                if deadline_us > now_us {
                    return;
                }
                waiting.answer = Some(Err(Failure::Unknown));
                self.ready.borrow_mut().push(session);
            }
            deadlines.pop_front();
        }
    }
}

impl<M: Metadata> Session<M> {
    fn unanswered(&mut self, request: u64) -> Option<&mut Waiting<M>> {
        self.waiting
            .iter_mut()
            .find(|waiting| waiting.request == request && waiting.answer.is_none())
    }
}

impl<M: Metadata> ClientPort<M> for Port<M> {
    fn send(
        &self,
        session: u32,
        server: ServerId,
        request: u64,
        message: M::ClientMessage,
    ) -> Result<(), Reason> {
        let bytes = message.encoded_len() as u64;
        if bytes > self.message_bytes_max {
            let max = self.message_bytes_max;
            return Err(Reason::NotSent(format!(
                "a request of {bytes} bytes, over the limit of {max} (message_bytes_max)"
            )));
        }
        let waiting = Waiting {
            request,
            server,
            message,
            sent_to: NOT_SENT,
            answer: None,
        };
        self.sessions.borrow_mut()[session as usize]
            .waiting
            .push(waiting);
        self.deadlines.borrow_mut().push_back((
            self.now_us.get() + self.timeout_us,
            session,
            request,
        ));
        self.wishes
            .borrow_mut()
            .sent
            .push((session, server, request));
        Ok(())
    }

    fn poll(&self, session: u32, request: u64, _waker: &Waker) -> Poll<Outcome<M::ClientReply>> {
        let session = &mut self.sessions.borrow_mut()[session as usize];
        let Some(place) = session
            .waiting
            .iter()
            .position(|waiting| waiting.request == request)
        else {
            return Poll::Ready(Err(Failure::Unknown));
        };
        match session.waiting[place].answer.take() {
            Some(answer) => {
                session.waiting.swap_remove(place);
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }

    fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    fn wake_at(&self, session: u32, time_us: u64) {
        self.wishes.borrow_mut().alarms.push((time_us, session));
    }
}
