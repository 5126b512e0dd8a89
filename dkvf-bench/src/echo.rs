//! A bare tokio echo: the limit that the framework is measured against.
//!
//! Length-prefixed frames of one size, a fixed number of connections, a fixed number of frames in flight. Each side reads what
//! is there and writes the answers to all of it at once; nothing is encoded, looked up or recorded.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Which thread runs what; as `dkvf_core::net::cluster::Layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoLayout {
    /// One thread for all servers, one for all clients.
    Split,
    /// Two threads, each with half of the servers and the clients that call them.
    Paired,
}

/// What to echo.
#[derive(Clone, Copy, Debug)]
pub struct EchoOptions {
    /// Threads.
    pub layout: EchoLayout,
    /// Connections in all.
    pub connections: usize,
    /// Frames in flight in all.
    pub in_flight: usize,
    /// Size of a frame with its four bytes of length.
    pub frame_bytes: usize,
    /// How long to measure.
    pub duration: Duration,
}

/// Echoes per second.
///
/// # Errors
/// Loopback sockets are not to be had.
pub fn run(options: EchoOptions) -> anyhow::Result<f64> {
    match options.layout {
        EchoLayout::Split => {
            let (port, port_known) = std::sync::mpsc::channel();
            let server = std::thread::spawn(move || -> anyhow::Result<()> {
                runtime()?.block_on(async move {
                    let listener = TcpListener::bind("127.0.0.1:0").await?;
                    port.send(listener.local_addr()?)?;
                    serve(listener, options.connections).await
                })
            });
            let address = port_known.recv()?;
            let rate = runtime()?.block_on(load(
                address,
                options.connections,
                options.in_flight,
                options,
            ))?;
            server
                .join()
                .map_err(|_| anyhow::anyhow!("the echo server panicked"))??;
            Ok(rate)
        }
        EchoLayout::Paired => {
            let half = move |connections: usize, in_flight: usize| {
                std::thread::spawn(move || -> anyhow::Result<f64> {
                    runtime()?.block_on(async move {
                        let listener = TcpListener::bind("127.0.0.1:0").await?;
                        let address = listener.local_addr()?;
                        let server = tokio::task::spawn_local(serve(listener, connections));
                        let rate = load(address, connections, in_flight, options).await?;
                        server.await??;
                        Ok(rate)
                    })
                })
            };
            let halves = [
                half(
                    options.connections.div_ceil(2),
                    options.in_flight.div_ceil(2),
                ),
                half(options.connections / 2, options.in_flight / 2),
            ];
            let mut rate = 0.0;
            for thread in halves {
                rate += thread
                    .join()
                    .map_err(|_| anyhow::anyhow!("an echo thread panicked"))??;
            }
            Ok(rate)
        }
    }
}

fn runtime() -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

async fn serve(listener: TcpListener, connections: usize) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept().await?;
        tasks.push(tokio::task::spawn_local(echo(stream)));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn echo(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BytesMut::with_capacity(64 << 10);
    let mut output = BytesMut::with_capacity(64 << 10);
    // A client that has measured enough leaves without reading its last answers, which resets the connection.
    while stream.read_buf(&mut input).await.unwrap_or(0) > 0 {
        while let Some(frame) = next_frame(&mut input) {
            output.extend_from_slice(&frame);
        }
        if stream.write_all(&output).await.is_err() {
            break;
        }
        output.clear();
    }
    Ok(())
}

async fn load(
    address: std::net::SocketAddr,
    connections: usize,
    in_flight: usize,
    options: EchoOptions,
) -> anyhow::Result<f64> {
    let start = Instant::now();
    let end = start + options.duration;
    let mut tasks = Vec::new();
    for connection in 0..connections {
        // Spread what does not divide evenly.
        let depth = in_flight / connections + usize::from(connection < in_flight % connections);
        tasks.push(tokio::task::spawn_local(call(
            address,
            depth,
            options.frame_bytes,
            end,
        )));
    }
    let mut echoes = 0;
    for task in tasks {
        echoes += task.await??;
    }
    Ok(echoes as f64 / start.elapsed().as_secs_f64())
}

async fn call(
    address: std::net::SocketAddr,
    depth: usize,
    frame_bytes: usize,
    end: Instant,
) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut frame = BytesMut::zeroed(frame_bytes);
    frame[..4].copy_from_slice(&(frame_bytes as u32 - 4).to_le_bytes());
    let mut input = BytesMut::with_capacity(64 << 10);
    let mut output = BytesMut::with_capacity(64 << 10);
    let mut echoes = 0;
    let mut answered = depth;
    loop {
        for _ in 0..answered {
            output.extend_from_slice(&frame);
        }
        stream.write_all(&output).await?;
        output.clear();
        answered = 0;
        if stream.read_buf(&mut input).await? == 0 {
            anyhow::bail!("the echo server hung up");
        }
        while next_frame(&mut input).is_some() {
            answered += 1;
            echoes += 1;
        }
        if Instant::now() >= end {
            return Ok(echoes);
        }
    }
}

fn next_frame(buffer: &mut BytesMut) -> Option<BytesMut> {
    let length = u32::from_le_bytes(*buffer.first_chunk()?) as usize + 4;
    (buffer.len() >= length).then(|| buffer.split_to(length))
}
