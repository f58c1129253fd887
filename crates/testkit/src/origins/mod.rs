//! Real, small TCP servers on loopback to put behind a tunnel. Each server runs on its own thread
//! and runtime, so that neither paused time nor a busy worker under test slows the server. Dropping
//! an origin stops the server and closes its connections.

mod behaviour;
mod digest;
mod http;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub use digest::{Digest, Pattern};

/// An origin's record of its connections.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Connections accepted.
    pub accepted: u64,
    /// One entry per connection that has ended, in the order of their ends.
    pub ended: Vec<Ended>,
}

/// How a connection ended, as the origin saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The data that arrived.
    pub received: Digest,
    /// Whether the end was clean: EOF, no RST and no error of writing.
    pub clean: bool,
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Sends back the received bytes, and ends when the other end ends.
    pub fn echo() -> io::Result<Self> {
        Self::start(behaviour::echo)
    }

    /// Reads to the end, then sends all bytes back and closes. At most 64 MiB.
    pub fn half_close_echo() -> io::Result<Self> {
        Self::start(behaviour::half_close_echo)
    }

    /// HTTP/1.1 with keep-alive: `/` answers `ok\n`, `/bytes/N` answers N bytes of [`Pattern`],
    /// `/chunked/N` answers the same bytes in chunks. POST answers the length of the request's
    /// body.
    pub fn http() -> io::Result<Self> {
        Self::start(http::serve)
    }

    /// Reads and fingerprints the data, then closes.
    pub fn sink() -> io::Result<Self> {
        Self::start(behaviour::sink)
    }

    /// Sends the first `length` bytes of [`Pattern`] and closes at once, without reading.
    pub fn source(length: u64) -> io::Result<Self> {
        Self::start(move |socket| behaviour::source(socket, length))
    }

    /// Reads `rate` bytes per second.
    pub fn slow_reader(rate: usize) -> io::Result<Self> {
        Self::start(move |socket| behaviour::slow_reader(socket, rate))
    }

    /// Accepts and never reads.
    pub fn never_reader() -> io::Result<Self> {
        Self::start(behaviour::never_reader)
    }

    /// Sends `text` first, like ssh, then echoes.
    pub fn banner(text: &'static str) -> io::Result<Self> {
        Self::start(move |socket| behaviour::banner(socket, text))
    }

    /// Accepts a connection and resets it at once.
    pub fn refuser() -> io::Result<Self> {
        Self::start(behaviour::refuser)
    }

    /// Reads `after` bytes, then resets the connection.
    pub fn resetter(after: u64) -> io::Result<Self> {
        Self::start(move |socket| behaviour::resetter(socket, after))
    }

    /// Runs `serve` for each connection. This is for behaviours that only one test needs.
    pub fn start<F, S>(serve: S) -> io::Result<Self>
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = Ended> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let seen = Arc::<Mutex<Seen>>::default();
        let (stop, stopped) = oneshot::channel();
        let book = Arc::clone(&seen);
        let thread = std::thread::Builder::new().name("origin".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = accept(listener, serve, &book) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, seen, stop: Some(stop), thread: Some(thread) })
    }

    /// The address on which the origin listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The record of the connections up to now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Blocks the thread until `count` connections have ended; `None` after `deadline`.
    #[must_use]
    pub fn wait_ended(&self, count: usize, deadline: Duration) -> Option<Vec<Ended>> {
        let end = std::time::Instant::now() + deadline;
        loop {
            let seen = self.seen();
            if seen.ended.len() >= count {
                return Some(seen.ended);
            }
            if std::time::Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept<F, S>(
    listener: std::net::TcpListener,
    serve: S,
    seen: &Mutex<Seen>,
) -> io::Result<()>
where
    S: Fn(TcpStream) -> F,
    F: Future<Output = Ended> + Send + 'static,
{
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    let _ = socket.set_nodelay(true);
                    note(seen, |seen| seen.accepted += 1);
                    connections.spawn(serve(socket));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(ended) = connections.join_next() => {
                if let Ok(ended) = ended {
                    note(seen, |seen| seen.ended.push(ended));
                }
            }
        }
    }
}

fn note(seen: &Mutex<Seen>, change: impl FnOnce(&mut Seen)) {
    change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
}
