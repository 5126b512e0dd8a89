//! What every connection does first: address, socket options, handshake; and reading frames.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::wire::{self, Hello, Welcome};
use crate::limits::{HELLO_BYTES_MAX, READ_BUFFER_BYTES_MAX, READ_BUFFER_BYTES_MIN};

/// Time to connect, and time to answer a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address.
    Socket(SocketAddr),
    /// A host name and port, looked up at every attempt.
    Name(String, u16),
}

impl Address {
    /// From a host name or an IP address, and a port.
    pub fn new(host: &str, port: u16) -> Self {
        match host.parse() {
            Ok(ip) => Address::Socket(SocketAddr::new(ip, port)),
            Err(_) => Address::Name(host.to_owned(), port),
        }
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<TcpStream> {
        let connect = async {
            match self {
                Address::Socket(address) => TcpStream::connect(address).await,
                Address::Name(host, port) => TcpStream::connect((host.as_str(), *port)).await,
            }
        };
        // The system itself gives up on a silent address only after minutes.
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, connect)
            .await
            .map_err(std::io::Error::from)
            .flatten();
        let stream = stream.with_context(|| format!("cannot connect to {self}"))?;
        prepare(&stream)?;
        Ok(stream)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Socket(address) => address.fmt(f),
            Address::Name(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Options of every socket: small frames leave at once, and a peer that vanished without a word is noticed.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Says hello and waits for the welcome.
pub(crate) async fn handshake(
    reader: &mut OwnedReadHalf,
    writer: &OwnedWriteHalf,
    hello: &Hello,
) -> anyhow::Result<Welcome> {
    let mut buffer = BytesMut::new();
    wire::encode_handshake(&mut buffer, hello);
    write_small(writer, &buffer).await?;
    let mut buffer = BytesMut::new();
    let frame = tokio::time::timeout(
        HANDSHAKE_TIMEOUT,
        read_frame(reader, &mut buffer, HELLO_BYTES_MAX),
    )
    .await
    .context("no answer to the handshake")??;
    let welcome = wire::decode_welcome(&frame)?;
    ensure!(welcome.refusal.is_empty(), "refused: {}", welcome.refusal);
    // The caller starts a buffer of its own: nothing can have come before we said more than hello.
    ensure!(buffer.is_empty(), "unexpected bytes after the handshake");
    Ok(welcome)
}

/// Writes a small message whole, outside of the batched output.
pub(crate) async fn write_small(writer: &OwnedWriteHalf, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        writer.writable().await?;
        match writer.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until a frame is complete.
pub(crate) async fn read_frame(
    reader: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    max: usize,
) -> anyhow::Result<Bytes> {
    loop {
        if let Some(frame) = wire::next_frame(buffer, max)? {
            return Ok(frame);
        }
        if reader.read_buf(buffer).await? == 0 {
            bail!("the connection was closed");
        }
    }
}

/// Reads what is there into `buffer`, which grows with the traffic. Returns false at the end of the stream.
///
/// # Errors
/// The connection broke, or the rest of a frame that has begun does not come for `patience`.
pub(crate) async fn read_more(
    reader: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    size: &mut usize,
    patience: Duration,
) -> anyhow::Result<bool> {
    // A frame longer than the buffer brings its own length; otherwise double when the last read filled it.
    let wanted = match wire::frame_length(buffer) {
        Some(length) if length + wire::HEADER_BYTES > buffer.len() => {
            (length + wire::HEADER_BYTES - buffer.len()).min(READ_BUFFER_BYTES_MAX)
        }
        _ => 1,
    };
    *size = (*size).clamp(READ_BUFFER_BYTES_MIN, READ_BUFFER_BYTES_MAX);
    if buffer.capacity() - buffer.len() < wanted.max(*size / 2) {
        buffer.reserve(wanted.max(*size));
    }
    let room = buffer.capacity() - buffer.len();
    let read = if buffer.is_empty() {
        reader.read_buf(buffer).await?
    } else {
        tokio::time::timeout(patience, reader.read_buf(buffer))
            .await
            .with_context(|| format!("half a frame, and nothing more for {patience:?}"))??
    };
    if read == room {
        *size *= 2;
    }
    Ok(read > 0)
}
