//! A node's connections from other servers: the receiving side of its links.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

use super::{Host, ServerMessageOf};
use crate::limits::{ACK_EVERY_FRAMES, ACK_IDLE_MS, READ_BUFFER_BYTES_MIN};
use crate::net::connection::{prepare, read_more};
use crate::net::flush::Outbox;
use crate::net::link::{LinkError, Resumed};
use crate::net::orders::LinkOrder;
use crate::net::wire::{self, MAGIC, Welcome};
use crate::{Message, PeerState, Protocol, ServerId};

/// The receiving side of a link.
#[derive(Clone, Default)]
pub(super) struct Inbound {
    /// The sender's incarnation, once it called.
    pub(super) incarnation: Option<u64>,
    pub(super) taken: u64,
    pub(super) acknowledged: u64,
    /// Counts connections: frames of any but the newest are not taken.
    pub(super) generation: u64,
    pub(super) outbox: Option<Rc<Outbox>>,
    /// Cut on purpose: the sender is not let in.
    cut: bool,
}

impl Inbound {
    /// What was received from another incarnation than this one is history.
    fn meet(&mut self, incarnation: u64) {
        if self.incarnation != Some(incarnation) {
            self.connect(None);
            self.incarnation = Some(incarnation);
            self.taken = 0;
            self.acknowledged = 0;
        }
    }

    /// A connection takes the place of the former one.
    fn connect(&mut self, outbox: Option<Rc<Outbox>>) {
        self.generation += 1;
        // The welcome says what was taken.
        self.acknowledged = self.taken;
        if let Some(former) = std::mem::replace(&mut self.outbox, outbox) {
            former.close();
        }
    }
}

impl<P: Protocol> Host<P> {
    pub(super) async fn accept_servers(self: Rc<Self>, listener: TcpListener) {
        // Servers are few: twice their number covers reconnects, and the rest are strangers.
        let connections_max = 64 + 2 * self.topology.members().len();
        let connections = Rc::new(Cell::new(0));
        let mut turning_away = false;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server = %self.name, %error, "cannot accept a server");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let full = connections.get() >= connections_max;
            if full && !turning_away {
                tracing::warn!(server = %self.name, "{connections_max} connections on the server port: more are turned away");
            }
            turning_away = full;
            if full {
                continue;
            }
            connections.set(connections.get() + 1);
            let (host, connections) = (self.clone(), connections.clone());
            self.spawn(async move {
                if let Err(reason) = host.serve_server(stream).await {
                    tracing::info!(server = %host.name, "closed a server's connection: {reason:#}");
                }
                connections.set(connections.get() - 1);
            });
        }
    }

    async fn serve_server(self: &Rc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        prepare(&stream)?;
        let (mut reader, writer) = stream.into_split();
        let mut buffer = BytesMut::new();
        let Some(hello) = self.read_hello(&mut reader, &mut buffer).await? else {
            return Ok(());
        };
        let mut refusal = self.refusal(&hello);
        let from = self.topology.find(&hello.server);
        if from.is_none() || from == Some(self.me) {
            refusal = format!("no server {:?} is a peer of {}", hello.server, self.name);
        }
        if from.is_some_and(|from| self.inbound.borrow()[from.index()].cut) {
            return Ok(());
        }
        let outbox = Outbox::new(writer);
        let mut taken = 0;
        let mut generation = 0;
        if let (Some(from), "") = (from, refusal.as_str()) {
            match self.admit(from, hello.incarnation, &outbox) {
                Ok(admitted) => (taken, generation) = admitted,
                Err(error) => refusal = error.to_string(),
            }
        }
        let welcome = Welcome {
            magic: MAGIC,
            incarnation: self.incarnation,
            taken,
            refusal: refusal.clone(),
        };
        wire::encode_handshake(&mut outbox.buffer.borrow_mut(), &welcome);
        outbox.mark(&self.flusher);
        let (Some(from), "") = (from, refusal.as_str()) else {
            outbox.emptied().await;
            anyhow::bail!("{refusal}");
        };
        let served = tokio::select! {
            served = self.read_messages(&mut reader, &mut buffer, from, generation) => served,
            () = outbox.drain() => Ok(()),
        };
        let inbound = &mut self.inbound.borrow_mut()[from.index()];
        if inbound.generation == generation {
            inbound.outbox = None;
        }
        served
    }

    /// A server calls: its former connection, should it still be there, is closed. Returns how many of its frames were
    /// taken, and the number of the new connection.
    fn admit(
        &self,
        from: ServerId,
        incarnation: u64,
        outbox: &Rc<Outbox>,
    ) -> Result<(u64, u64), LinkError> {
        if let Some(peer) = &self.peers[from.index()]
            && let Resumed::Replaced { dropped } = peer.meet(incarnation)?
        {
            self.peer_replaced(from, incarnation, dropped);
        }
        let mut inbound = self.inbound.borrow_mut();
        let inbound = &mut inbound[from.index()];
        inbound.meet(incarnation);
        inbound.connect(Some(outbox.clone()));
        Ok((inbound.taken, inbound.generation))
    }

    /// Has wrong with the links to and from a server what `order` says, and nothing else.
    pub(super) fn obey_link_order(&self, order: &LinkOrder) -> Result<(), String> {
        order.validate()?;
        let id = self.topology.find(&order.peer);
        let Some((id, peer)) = id.and_then(|id| Some((id, self.peers[id.index()].as_ref()?)))
        else {
            return Err(format!(
                "peer: no server {:?} is a peer of {}",
                order.peer, self.name
            ));
        };
        tracing::info!(server = %self.name, ?order, "a link as ordered");
        let inbound = &mut self.inbound.borrow_mut()[id.index()];
        inbound.cut = order.cut_from;
        if order.cut_from {
            inbound.connect(None);
        }
        peer.obey(order);
        Ok(())
    }

    /// The protocol is told before it gets anything from the new incarnation, and gets nothing more from the old one.
    pub(super) fn peer_replaced(&self, peer: ServerId, incarnation: u64, dropped: u64) {
        tracing::warn!(server = %self.name, peer = %self.topology.member(peer).name, dropped, "a peer was replaced: messages for its former incarnation are dropped");
        self.inbound.borrow_mut()[peer.index()].meet(incarnation);
        self.with_node(|node, clock| node.peer_change(clock.now(), peer, PeerState::Replaced));
    }

    async fn read_messages(
        &self,
        reader: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
        from: ServerId,
        generation: u64,
    ) -> anyhow::Result<()> {
        let mut size = READ_BUFFER_BYTES_MIN;
        let bytes_max = wire::wrapped_bytes_max(self.config.message_bytes_max);
        loop {
            let now = self.clock.get().now();
            while let Some(frame) = wire::next_frame(buffer, bytes_max)? {
                if !self.running.get()
                    || self.inbound.borrow()[from.index()].generation != generation
                {
                    return Ok(());
                }
                let message = ServerMessageOf::<P>::decode(frame)?;
                let _span = tracing::trace_span!("message", server = %self.name, %from, message = message.name()).entered();
                let result = self
                    .state
                    .borrow_mut()
                    .node
                    .server_message(now, from, message);
                self.inbound.borrow_mut()[from.index()].taken += 1;
                self.after_event(result);
            }
            if !self.running.get() {
                return Ok(());
            }
            self.after_events();
            self.acknowledge(from);
            if !read_more(reader, buffer, &mut size, self.patience()).await? {
                return Ok(());
            }
        }
    }

    /// Acknowledges once enough frames were taken; the rest waits for the idle timer.
    fn acknowledge(&self, from: ServerId) {
        let mut inbound = self.inbound.borrow_mut();
        let inbound = &mut inbound[from.index()];
        if inbound.taken - inbound.acknowledged >= ACK_EVERY_FRAMES {
            self.send_ack(inbound);
        } else if inbound.taken > inbound.acknowledged {
            self.ack.notify_one();
        }
    }

    fn send_ack(&self, inbound: &mut Inbound) {
        if let Some(outbox) = &inbound.outbox {
            wire::encode_ack(&mut outbox.buffer.borrow_mut(), inbound.taken);
            outbox.mark(&self.flusher);
            inbound.acknowledged = inbound.taken;
        }
    }

    pub(super) async fn acknowledge_when_idle(self: Rc<Self>) {
        loop {
            self.ack.notified().await;
            tokio::time::sleep(Duration::from_millis(ACK_IDLE_MS)).await;
            for inbound in self.inbound.borrow_mut().iter_mut() {
                if inbound.taken > inbound.acknowledged {
                    self.send_ack(inbound);
                }
            }
        }
    }
}
