//! A TCP path between client and server that a test can cut, freeze or slow down. To either end it
//! looks like a router: connections stay open while nothing gets through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::origin::reset_on_drop;

/// A path to one port. New connections always get through.
#[derive(Debug)]
pub(crate) struct Wire {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Bytes per write; 64 KiB unless a test wants single bytes.
    chunk: AtomicUsize,
    /// All connections die after this many more bytes, and again; 0: never.
    kill_every: AtomicI64,
    until_kill: AtomicI64,
    kills: AtomicU64,
}

#[derive(Debug)]
struct Connection {
    near: TcpStream,
    far: TcpStream,
    frozen: AtomicBool,
}

impl Wire {
    /// Listens on a port of its own and leads to `target`, both on loopback.
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target,
            connections: Mutex::default(),
            chunk: AtomicUsize::new(64 << 10),
            kill_every: AtomicI64::new(0),
            until_kill: AtomicI64::new(0),
            kills: AtomicU64::new(0),
        });
        let inner = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                inner.admit(near.unwrap());
            }
        });
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Resets every connection now.
    pub(crate) fn kill(&self) {
        self.shared.kill();
    }

    /// Resets every connection each time this many bytes have passed.
    pub(crate) fn kill_every(&self, bytes: i64) {
        self.shared.until_kill.store(bytes, Ordering::SeqCst);
        self.shared.kill_every.store(bytes, Ordering::SeqCst);
    }

    /// How often connections were killed.
    pub(crate) fn kills(&self) -> u64 {
        self.shared.kills.load(Ordering::SeqCst)
    }

    /// From now on nothing passes on the present connections, and nobody is told.
    pub(crate) fn freeze(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            connection.frozen.store(true, Ordering::SeqCst);
        }
    }

    /// Deliver in pieces of this size.
    pub(crate) fn chunk(&self, bytes: usize) {
        self.shared.chunk.store(bytes, Ordering::SeqCst);
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, near: TcpStream) {
        // Without a server behind it the path answers like a host with a closed port.
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.target)) else {
            reset_on_drop(&near);
            return;
        };
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
        }
        let connection = Arc::new(Connection { near, far, frozen: AtomicBool::new(false) });
        self.connections.lock().unwrap().push(Arc::clone(&connection));
        for up in [true, false] {
            let (shared, connection) = (Arc::clone(self), Arc::clone(&connection));
            std::thread::spawn(move || shared.carry(&connection, up));
        }
    }

    fn carry(&self, connection: &Connection, up: bool) {
        let (mut from, mut to) = if up {
            (&connection.near, &connection.far)
        } else {
            (&connection.far, &connection.near)
        };
        let mut buffer = vec![0; 64 << 10];
        loop {
            let size = from.read(&mut buffer).unwrap_or(0);
            if connection.frozen.load(Ordering::SeqCst) {
                // Both sockets stay open in `connections`; whatever else arrives waits there.
                return;
            }
            if size == 0 {
                break;
            }
            for piece in buffer[..size].chunks(self.chunk.load(Ordering::SeqCst)) {
                if to.write_all(piece).is_err() {
                    drop(from.shutdown(Shutdown::Both));
                    return;
                }
            }
            self.count(size);
        }
        drop(to.shutdown(Shutdown::Write));
    }

    fn count(&self, bytes: usize) {
        let every = self.kill_every.load(Ordering::SeqCst);
        let bytes = i64::try_from(bytes).unwrap();
        if every > 0 && self.until_kill.fetch_sub(bytes, Ordering::SeqCst) <= bytes {
            self.until_kill.store(every, Ordering::SeqCst);
            self.kill();
        }
    }

    fn kill(&self) {
        self.kills.fetch_add(1, Ordering::SeqCst);
        for connection in self.connections.lock().unwrap().drain(..) {
            for stream in [&connection.near, &connection.far] {
                reset_on_drop(stream);
                // Wakes the threads that read it; the last of them closes it.
                drop(stream.shutdown(Shutdown::Both));
            }
        }
    }
}
