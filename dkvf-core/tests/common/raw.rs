//! A client that blocks and writes any bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use dkvf_core::net::wire::{self, Hello, MAGIC, Welcome};
use dkvf_core::{Code, Failure, Protocol, Reason, Topology};

use super::toy::{Answer, Ask, ToyProtocol, Verb};
use super::{DEADLINE, eventually};

/// Largest frame it reads.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A connection to any port.
pub struct Raw {
    pub stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        Raw::accepted(TcpStream::connect(address).expect("somebody listens"))
    }

    /// The other end of a connection that somebody else opened.
    pub fn accepted(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a deadline is allowed");
        stream.set_nodelay(true).expect("no delay is allowed");
        Raw {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Writes what can be written: the other side may have closed the connection already.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn write_frame(&mut self, body: &[u8]) {
        self.write(&(body.len() as u32).to_le_bytes());
        self.write(body);
    }

    pub fn say_hello(&mut self, hello: &Hello) {
        let mut frame = BytesMut::new();
        wire::encode_handshake(&mut frame, hello);
        self.write(&frame);
    }

    /// The next frame, `None` at the end of the stream, however it ends.
    pub fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = wire::next_frame(&mut self.buffer, FRAME_BYTES_MAX)
                .expect("servers write short frames")
            {
                return Some(frame);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("no frame and no end before the deadline")
                }
                Err(_) => return None,
            }
        }
    }

    /// Plays a server that has taken `taken` messages.
    pub fn welcome_with(&mut self, incarnation: u64, taken: u64) {
        let mut frame = BytesMut::new();
        wire::encode_handshake(
            &mut frame,
            &Welcome {
                magic: MAGIC,
                incarnation,
                taken,
                refusal: String::new(),
            },
        );
        self.write(&frame);
    }

    pub fn welcome(&mut self) -> Option<Welcome> {
        self.frame()
            .map(|frame| wire::decode_welcome(&frame).expect("a welcome"))
    }

    /// Waits until the other side has closed the connection.
    #[track_caller]
    pub fn expect_closed(&mut self, why: &str) {
        while let Some(frame) = self.frame() {
            assert!(frame.len() < 4096, "{why}: a long frame instead of the end");
        }
    }

    /// Closes only the writing side.
    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).expect("it is open");
    }
}

/// The hello of a client process in a cluster of `nodes` replicas of one partition.
pub fn client_hello(process: u64, nodes: u32) -> Hello {
    Hello {
        magic: MAGIC,
        protocol: ToyProtocol::NAME.to_owned(),
        server: String::new(),
        incarnation: process,
        partitions: 1,
        fingerprint: Topology::grid(nodes as u16, 1).fingerprint(),
    }
}

/// The hello of a server.
pub fn server_hello(name: &str, incarnation: u64, nodes: u32) -> Hello {
    Hello {
        server: name.to_owned(),
        ..client_hello(incarnation, nodes)
    }
}

/// A well-behaved client: one process with one session that waits for each reply.
pub struct Caller {
    raw: Raw,
    request: u64,
}

impl Caller {
    pub fn connect(address: SocketAddr, nodes: u32) -> Self {
        static PROCESS: AtomicU64 = AtomicU64::new(1000);
        Caller::connect_as(address, nodes, PROCESS.fetch_add(1, Ordering::Relaxed))
    }

    pub fn connect_as(address: SocketAddr, nodes: u32, process: u64) -> Self {
        let mut raw = Raw::connect(address);
        raw.say_hello(&client_hello(process, nodes));
        let welcome = raw.welcome().expect("a server answers a hello");
        assert_eq!(welcome.refusal, "");
        Caller { raw, request: 0 }
    }

    /// Sends the next request without waiting. Returns its number.
    pub fn send(&mut self, ask: Ask) -> u64 {
        self.request += 1;
        self.send_as(0, self.request, &ask);
        self.request
    }

    pub fn send_as(&mut self, session: u32, request: u64, ask: &Ask) {
        let mut frame = BytesMut::new();
        wire::encode_request(&mut frame, session, request, ask);
        self.raw.write(&frame);
    }

    pub fn receive(&mut self) -> (u32, u64, Result<Answer, Code>) {
        let frame = self.raw.frame().expect("the server is there");
        let (session, request, result) = wire::decode_reply(frame).expect("a reply");
        let result = result.map_err(|failure| match failure {
            Failure::Failed(Reason::Refused(code)) => code,
            other => panic!("no code of this version: {other}"),
        });
        (session, request, result)
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, ask: Ask) -> Result<Answer, Code> {
        let request = self.send(ask);
        let (session, answered, result) = self.receive();
        assert_eq!((session, answered), (0, request));
        result
    }

    /// Asks for numbers.
    pub fn numbers(&mut self, ask: Ask) -> Vec<u64> {
        self.ask(ask).expect("it has numbers").numbers
    }

    /// The numbers that came from `peer`.
    pub fn received(&mut self, peer: u32) -> Vec<u64> {
        self.numbers(Ask::to(Verb::Received).peer(peer))
    }

    /// Waits until the last number of `expected` came from `peer`, and checks that all of them came once and in order.
    #[track_caller]
    pub fn expect_received(&mut self, peer: u32, expected: impl Iterator<Item = u64>) {
        let expected: Vec<u64> = expected.collect();
        let mut received = Vec::new();
        eventually("all numbers arrive", || {
            received = self.received(peer);
            received.last() == expected.last() || received.len() > expected.len()
        });
        assert_eq!(received, expected, "every number once and in order");
    }

    pub fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}
