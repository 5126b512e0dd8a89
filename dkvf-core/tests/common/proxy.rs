//! A proxy that cuts connections after a given number of bytes, or holds them up.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// How many bytes of a connection get through before it is cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// From the caller to the server.
    pub forward: usize,
    /// Back.
    pub backward: usize,
}

impl Cut {
    /// Everything gets through.
    pub const NEVER: Cut = Cut {
        forward: usize::MAX,
        backward: usize::MAX,
    };
    /// Nothing gets through.
    pub const ALWAYS: Cut = Cut {
        forward: 0,
        backward: 0,
    };

    pub fn forward(bytes: usize) -> Self {
        Cut {
            forward: bytes,
            ..Cut::NEVER
        }
    }

    pub fn backward(bytes: usize) -> Self {
        Cut {
            backward: bytes,
            ..Cut::NEVER
        }
    }
}

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    /// What happens to the next connections; after them nothing does.
    cuts: Mutex<VecDeque<Cut>>,
    connections: AtomicUsize,
    stalled: Mutex<bool>,
    resumed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    closing: AtomicBool,
}

impl Proxy {
    /// Starts a proxy in front of `target`.
    pub fn start(target: SocketAddr, cuts: impl IntoIterator<Item = Cut>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            target,
            cuts: Mutex::new(cuts.into_iter().collect()),
            connections: AtomicUsize::new(0),
            stalled: Mutex::new(false),
            resumed: Condvar::new(),
            open: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || serving.accept(&listener));
        Proxy { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are still to be cut.
    pub fn cuts_left(&self) -> usize {
        self.shared.cuts.lock().expect("no panic inside").len()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Holds all bytes up, or lets them go on.
    pub fn stall(&self, stalled: bool) {
        *self.shared.stalled.lock().expect("no panic inside") = stalled;
        self.shared.resumed.notify_all();
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().expect("no panic inside").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.stall(false);
        self.cut();
        // Wakes the listener, so that it sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((caller, _)) = listener.accept() {
            if self.closing.load(Ordering::SeqCst) {
                return;
            }
            self.connections.fetch_add(1, Ordering::SeqCst);
            let Ok(server) = TcpStream::connect(self.target) else {
                continue;
            };
            let cut = self
                .cuts
                .lock()
                .expect("no panic inside")
                .pop_front()
                .unwrap_or(Cut::NEVER);
            let copy = |stream: &TcpStream| stream.try_clone().expect("a file descriptor");
            let _ = (caller.set_nodelay(true), server.set_nodelay(true));
            self.open
                .lock()
                .expect("no panic inside")
                .extend([copy(&caller), copy(&server)]);
            let (there, back) = ((copy(&caller), copy(&server)), (server, caller));
            let (forward, backward) = (self.clone(), self.clone());
            std::thread::spawn(move || forward.pump(there.0, there.1, cut.forward));
            std::thread::spawn(move || backward.pump(back.0, back.1, cut.backward));
        }
    }

    /// Copies up to `left` bytes, then cuts.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, mut left: usize) {
        let mut bytes = [0; 16 << 10];
        while left > 0 {
            let most = left.min(bytes.len());
            let Ok(read @ 1..) = from.read(&mut bytes[..most]) else {
                break;
            };
            let mut stalled = self.stalled.lock().expect("no panic inside");
            while *stalled {
                stalled = self.resumed.wait(stalled).expect("no panic inside");
            }
            drop(stalled);
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
            left -= read;
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
