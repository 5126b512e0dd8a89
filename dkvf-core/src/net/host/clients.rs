//! A node's client connections: requests in, replies out.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

use super::{ClientMessageOf, Host, WAITING_REPLY_BYTES_MAX};
use crate::limits::READ_BUFFER_BYTES_MIN;
use crate::net::connection::{prepare, read_more, write_small};
use crate::net::flush::Outbox;
use crate::net::wire::{self, MAGIC, Welcome};
use crate::{ClientId, Code, Message, Now, Protocol};

impl<P: Protocol> Host<P> {
    pub(super) async fn accept_clients(self: Rc<Self>, listener: TcpListener) {
        let mut turning_away = false;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server = %self.name, %error, "cannot accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let full = self.client_connections.get() >= self.config.connections_max;
            if full && !turning_away {
                tracing::warn!(server = %self.name, "connections_max ({}) is reached: clients are turned away", self.config.connections_max);
            }
            turning_away = full;
            if full {
                continue;
            }
            self.client_connections
                .set(self.client_connections.get() + 1);
            let host = self.clone();
            self.spawn(async move {
                if let Err(reason) = host.serve_client(stream).await {
                    tracing::info!(server = %host.name, "closed a client's connection: {reason:#}");
                }
                host.client_connections
                    .set(host.client_connections.get() - 1);
            });
        }
    }

    async fn serve_client(self: &Rc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        prepare(&stream)?;
        let (mut reader, writer) = stream.into_split();
        let mut buffer = BytesMut::new();
        let Some(hello) = self.read_hello(&mut reader, &mut buffer).await? else {
            return Ok(());
        };
        let refusal = self.refusal(&hello);
        let welcome = Welcome {
            magic: MAGIC,
            incarnation: self.incarnation,
            taken: 0,
            refusal: refusal.clone(),
        };
        let mut answer = BytesMut::new();
        wire::encode_handshake(&mut answer, &welcome);
        write_small(&writer, &answer).await?;
        anyhow::ensure!(refusal.is_empty(), "{refusal}");
        let outbox = Outbox::new(writer);
        let port = self.add_client(outbox.clone());
        let served = tokio::select! {
            served = self.read_requests(&mut reader, &mut buffer, port, hello.incarnation, &outbox) => served,
            () = outbox.drain() => Ok(()),
        };
        if self.running.get() {
            self.clients.borrow_mut()[port as usize] = None;
            self.state.borrow_mut().node.disconnected(port);
        }
        served
    }

    fn add_client(&self, outbox: Rc<Outbox>) -> u32 {
        let mut clients = self.clients.borrow_mut();
        let port = clients
            .iter()
            .position(Option::is_none)
            .unwrap_or(clients.len());
        if port == clients.len() {
            clients.push(None);
        }
        clients[port] = Some(outbox);
        port as u32
    }

    async fn read_requests(
        &self,
        reader: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
        port: u32,
        process: u64,
        outbox: &Rc<Outbox>,
    ) -> anyhow::Result<()> {
        let mut size = READ_BUFFER_BYTES_MIN;
        // What came with the hello is looked at before more is read.
        loop {
            // One reading per batch: it is later than the sending of every request in it, so no stamp that a client
            // carries was given after it.
            let mut now = self.clock.get().now();
            while let Some(frame) = wire::next_frame(buffer, self.config.message_bytes_max)? {
                let bytes = frame.len();
                let (session, request, message) =
                    wire::decode_request::<ClientMessageOf<P>>(frame)?;
                let client = ClientId::of(process, session);
                self.take_request(now, port, client, request, message, bytes);
                if outbox.waiting_bytes() > WAITING_REPLY_BYTES_MAX {
                    // Small requests can have large replies: the rest of the batch waits as well.
                    self.after_events();
                    self.wait_for_reader(outbox).await?;
                    now = self.clock.get().now();
                }
            }
            if !self.running.get() {
                return Ok(());
            }
            self.after_events();
            self.wait_for_reader(outbox).await?;
            if !read_more(reader, buffer, &mut size, self.patience()).await? {
                return Ok(());
            }
        }
    }

    fn take_request(
        &self,
        now: Now,
        port: u32,
        client: ClientId,
        request: u64,
        message: Result<ClientMessageOf<P>, wire::WireError>,
        bytes: usize,
    ) {
        if !self.running.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.traffic.requests += 1;
        state.traffic.request_bytes += (bytes + wire::HEADER_BYTES) as u64;
        let result = match message {
            Err(error) => {
                tracing::info!(server = %self.name, %client, %error, "a malformed request");
                state
                    .node
                    .refuse_unhandled(port, client, request, Code::Malformed);
                Ok(())
            }
            // A request that was taken before is not refused: that would say that it had no effect.
            Ok(_) if self.congestion.is_there() && state.node.is_new_request(client, request) => {
                state
                    .node
                    .refuse_unhandled(port, client, request, Code::Overloaded);
                Ok(())
            }
            Ok(message) => {
                let _span = tracing::trace_span!("request", server = %self.name, %client, message = message.name()).entered();
                state
                    .node
                    .client_message(now, port, client, request, message)
            }
        };
        drop(state);
        self.after_event(result);
    }

    /// Leaves a client's requests in the kernel while it does not read its replies.
    async fn wait_for_reader(&self, outbox: &Rc<Outbox>) -> anyhow::Result<()> {
        if outbox.waiting_bytes() > WAITING_REPLY_BYTES_MAX {
            let patience =
                Duration::from_millis(self.config.request_timeout_ms + self.config.idle_timeout_ms);
            tokio::time::timeout(patience, outbox.emptied())
                .await
                .with_context(|| format!("the client has not read its replies for {patience:?}"))?;
        }
        anyhow::ensure!(
            !outbox.is_closed(),
            "the connection broke, or the client left too many replies unread"
        );
        Ok(())
    }
}
