//! A real TCP path between two ends that breaks in the ways real ones do. To either end it looks
//! like a router or a NAT: connections stay open while nothing gets through, or die without a word.
//!
//! [`Wire`] is the path, [`Trouble`] what can happen to it; a seed draws the same troubles again.

mod connection;
mod trouble;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use connection::{Connection, Death};

pub use trouble::{Reach, Trouble, Way};

/// What one write carries, unless a test wants less.
const CHUNK: usize = 64 << 10;

/// How long an accept that failed (no descriptors) is left alone.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What becomes of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// They get through.
    #[default]
    Open,
    /// They are reset: a host with a closed port.
    Refused,
    /// They are accepted and nothing ever comes back.
    Silent,
}

/// A path from an address of its own to a target. Lives as long as the process.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// New connections that are kept in silence.
    silent: Mutex<Vec<TcpStream>>,
    weather: Mutex<Weather>,
    /// Bytes per write.
    chunk: AtomicUsize,
    /// All connections die after this many more bytes, and again; 0: never.
    kill_every: AtomicI64,
    until_kill: AtomicI64,
    kills: AtomicU64,
    passed: AtomicU64,
}

/// What holds for all connections for a while.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    entry: Entry,
    /// Bytes wait until then.
    stalled: Option<Instant>,
    /// One byte a write until then.
    trickles: Option<Instant>,
}

impl Wire {
    /// A path to a port of loopback.
    ///
    /// # Panics
    ///
    /// When loopback has no port left.
    #[must_use]
    #[expect(clippy::expect_used, reason = "no test goes on without its path")]
    pub fn to(target: u16) -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::between(local(0), local(target)).expect("a free port of loopback")
    }

    /// A path from `listen` (port 0: one of the kernel's choice) to `target`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or no thread started.
    pub fn between(listen: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            connections: Mutex::default(),
            silent: Mutex::default(),
            weather: Mutex::default(),
            chunk: AtomicUsize::new(CHUNK),
            kill_every: AtomicI64::new(0),
            until_kill: AtomicI64::new(0),
            kills: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        });
        let inner = Arc::clone(&shared);
        std::thread::Builder::new().name("wire".into()).spawn(move || {
            for near in listener.incoming() {
                match near {
                    Ok(near) => inner.admit(near),
                    Err(_) => std::thread::sleep(ACCEPT_PAUSE),
                }
            }
        })?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`Self::address`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What becomes of connections from now on; those that stand are not touched.
    pub fn entry(&self, entry: Entry) {
        lock(&self.shared.weather).entry = entry;
        // Silence ends in a reset, as when a host is back that knows nothing of it.
        for socket in lock(&self.shared.silent).drain(..) {
            reset_on_drop(&socket);
        }
    }

    /// Resets every connection now.
    pub fn kill(&self) {
        self.suffer(Trouble::Reset(Reach::All));
    }

    /// Resets every connection each time this many bytes have passed.
    pub fn kill_every(&self, bytes: i64) {
        self.shared.until_kill.store(bytes, Ordering::SeqCst);
        self.shared.kill_every.store(bytes, Ordering::SeqCst);
    }

    /// How often connections were killed.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.shared.kills.load(Ordering::SeqCst)
    }

    /// Bytes that got through, both ways.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    /// From now on nothing passes on the present connections, and nobody is told.
    pub fn freeze(&self) {
        self.suffer(Trouble::Swallow(Reach::All, Way::Both));
    }

    /// Deliver in pieces of this size.
    pub fn chunk(&self, bytes: usize) {
        self.shared.chunk.store(bytes, Ordering::SeqCst);
    }

    /// Lets it happen. Returns how many connections it reached.
    pub fn suffer(&self, trouble: Trouble) -> usize {
        self.shared.suffer(trouble)
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, near: TcpStream) {
        match self.weather().entry {
            Entry::Open => {}
            Entry::Refused => return reset_on_drop(&near),
            Entry::Silent => return lock(&self.silent).push(near),
        }
        // Without a server behind it the path answers like a host with a closed port.
        let Ok(far) = TcpStream::connect(self.target) else { return reset_on_drop(&near) };
        let Ok(connection) = Connection::between(near, far) else { return };
        let connection = Arc::new(connection);
        {
            let mut connections = lock(&self.connections);
            connections.retain(|known| known.strong_count() > 0);
            connections.push(Arc::downgrade(&connection));
        }
        for up in [true, false] {
            let (shared, connection) = (Arc::clone(self), Arc::clone(&connection));
            std::thread::spawn(move || connection.carry(up, &shared));
        }
    }

    fn suffer(&self, trouble: Trouble) -> usize {
        let now = Instant::now();
        match trouble {
            Trouble::Reset(reach) => {
                self.kills.fetch_add(1, Ordering::SeqCst);
                self.each(reach, |connection| connection.end(Death::Reset))
            }
            Trouble::Close(reach) => {
                self.kills.fetch_add(1, Ordering::SeqCst);
                self.each(reach, |connection| connection.end(Death::Close))
            }
            Trouble::Swallow(reach, way) => self.each(reach, |connection| connection.swallow(way)),
            Trouble::Stall(time) => {
                lock(&self.weather).stalled = Some(now + time);
                self.each(Reach::All, |_| ())
            }
            Trouble::Trickle(time) => {
                lock(&self.weather).trickles = Some(now + time);
                self.each(Reach::All, |_| ())
            }
        }
    }

    fn each(&self, reach: Reach, act: impl Fn(&Connection)) -> usize {
        let live: Vec<_> = lock(&self.connections).iter().filter_map(Weak::upgrade).collect();
        let live: Vec<_> = live.iter().filter(|connection| connection.is_sound()).collect();
        let chosen = match reach {
            Reach::All => &live[..],
            Reach::One(_) if live.is_empty() => &[],
            Reach::One(pick) => {
                let index = pick as usize % live.len();
                &live[index..=index]
            }
        };
        chosen.iter().for_each(|connection| act(connection));
        chosen.len()
    }

    fn weather(&self) -> Weather {
        *lock(&self.weather)
    }

    fn count(&self, bytes: usize) {
        self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
        let every = self.kill_every.load(Ordering::SeqCst);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if every > 0 && self.until_kill.fetch_sub(bytes, Ordering::SeqCst) <= bytes {
            self.until_kill.store(every, Ordering::SeqCst);
            self.suffer(Trouble::Reset(Reach::All));
        }
    }
}

/// Closing this socket sends RST instead of FIN.
pub fn reset_on_drop(stream: &TcpStream) {
    // A socket that is gone already has no linger to set.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
