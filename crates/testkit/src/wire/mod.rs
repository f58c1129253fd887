//! A real network path between two ends that breaks as real paths do, for TCP and for datagrams of
//! the same port. To both ends it looks like a router or a NAT: connections stay open while nothing
//! gets through, or end without a packet. A path cannot reset a conversation over UDP: where a
//! connection would be reset or closed, the conversation's datagrams are lost.
//!
//! [`Wire`] is the path, [`Trouble`] is a fault of the path. The same seed draws the same faults.

mod connection;
mod flow;
mod late;
mod policer;
mod record;
mod trouble;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use connection::{Connection, Death};
use flow::Flow;
use policer::Policer;

pub use record::Recorder;
pub use trouble::{Reach, Trouble, Way};

/// The number of bytes per write, unless a test sets fewer.
const CHUNK: usize = 64 << 10;

/// The pause after an accept that failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Ports that the kernel may choose before the search for a free port fails.
const CHOICES: usize = 64;

/// How the path treats new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// New connections get through.
    #[default]
    Open,
    /// New connections are reset, as by a host with a closed port.
    Refused,
    /// New connections are accepted and never get a response.
    Silent,
}

/// A path from its own address to a target. The path exists as long as the process.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// Conversations over UDP, by the client's address.
    flows: Mutex<Vec<Arc<Flow>>>,
    /// Datagrams lost per thousand.
    loss: AtomicU64,
    /// Delay of datagrams in each direction, in microseconds.
    delay: AtomicU64,
    /// Longer datagrams are lost.
    longest: AtomicUsize,
    /// Up and down: datagrams beyond a rate are lost.
    policers: [Policer; 2],
    /// New connections that are held without an answer.
    silent: Mutex<Vec<TcpStream>>,
    weather: Mutex<Weather>,
    /// Bytes per write.
    chunk: AtomicUsize,
    /// All connections are reset each time this number of bytes has passed; 0 means never.
    kill_every: AtomicI64,
    until_kill: AtomicI64,
    kills: AtomicU64,
    passed: AtomicU64,
}

/// Faults of all connections that last for a while.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    entry: Entry,
    /// Bytes wait until this time.
    stalled: Option<Instant>,
    /// One byte per write until this time.
    trickles: Option<Instant>,
}

impl Wire {
    /// A path to a port of loopback.
    ///
    /// # Panics
    ///
    /// Panics when loopback has no free port left.
    #[must_use]
    #[expect(clippy::expect_used, reason = "no test goes on without its path")]
    pub fn to(target: u16) -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::between(local(0), local(target)).expect("a free port of loopback")
    }

    /// A path from `listen` (port 0: the kernel chooses a port) to `target`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or a thread cannot start.
    pub fn between(listen: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let (listener, datagrams) = bind_both(listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            connections: Mutex::default(),
            flows: Mutex::default(),
            loss: AtomicU64::new(0),
            delay: AtomicU64::new(0),
            longest: AtomicUsize::new(usize::MAX),
            policers: Default::default(),
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
        let inner = Arc::clone(&shared);
        std::thread::Builder::new().name("wire-udp".into()).spawn(move || {
            inner.take_datagrams(&datagrams);
        })?;
        Ok(Self { address, shared })
    }

    /// The address on which the path listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`Self::address`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets how the path treats new connections. Existing connections are not touched.
    pub fn entry(&self, entry: Entry) {
        lock(&self.shared.weather).entry = entry;
        // Silence ends in a reset, as from a host that is back and does not know the connection.
        for socket in lock(&self.shared.silent).drain(..) {
            reset_on_drop(&socket);
        }
    }

    /// Resets every connection now.
    pub fn kill(&self) {
        self.suffer(Trouble::Reset(Reach::All));
    }

    /// Resets every connection each time this number of bytes has passed.
    pub fn kill_every(&self, bytes: i64) {
        self.shared.until_kill.store(bytes, Ordering::SeqCst);
        self.shared.kill_every.store(bytes, Ordering::SeqCst);
    }

    /// The number of times that connections were killed.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.shared.kills.load(Ordering::SeqCst)
    }

    /// Bytes that got through, in both directions.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    /// From now on, nothing passes on the present connections, and neither end is notified.
    pub fn freeze(&self) {
        self.suffer(Trouble::Swallow(Reach::All, Way::Both));
    }

    /// Delivers bytes in pieces of this size.
    pub fn chunk(&self, bytes: usize) {
        self.shared.chunk.store(bytes, Ordering::SeqCst);
    }

    /// From now on, this number of datagrams per thousand is lost in each direction.
    pub fn lose(&self, of_a_thousand: u64) {
        self.shared.loss.store(of_a_thousand, Ordering::SeqCst);
    }

    /// From now on, datagrams take this time in each direction, as on a path that leaves the
    /// machine.
    pub fn delay(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay.store(micros, Ordering::SeqCst);
    }

    /// From now on, datagrams beyond this number of bytes per second are lost in each direction, as
    /// where a network limits UDP. 0 means no limit.
    pub fn police(&self, bytes_a_second: u64) {
        self.shared.policers.iter().for_each(|policer| policer.set(bytes_a_second));
    }

    /// From now on, longer datagrams are lost without an ICMP message: a black hole of path MTU
    /// discovery.
    pub fn longest_datagram(&self, bytes: usize) {
        self.shared.longest.store(bytes, Ordering::SeqCst);
    }

    /// Moves conversations over UDP to other ports: a NAT has forgotten them and sees them as new.
    ///
    /// # Errors
    ///
    /// No port is left.
    pub fn rebind(&self) -> io::Result<()> {
        lock(&self.shared.flows).iter().try_for_each(|flow| flow.rebind(self.shared.target))
    }

    /// Applies a fault. Returns the number of connections and conversations over UDP that it
    /// reached.
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
        // Without a server behind it, the path answers like a host with a closed port.
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

    fn take_datagrams(self: &Arc<Self>, near: &Arc<UdpSocket>) {
        let mut buf = vec![0; 65_535];
        loop {
            // The error is about an earlier datagram whose receiver has closed.
            let Ok((n, client)) = near.recv_from(&mut buf) else { continue };
            let Some(flow) = self.flow(client, near) else { continue };
            flow.up(&buf[..n], self);
        }
    }

    /// The conversation of this client address. A new conversation is made if the path is open.
    fn flow(self: &Arc<Self>, client: SocketAddr, near: &Arc<UdpSocket>) -> Option<Arc<Flow>> {
        let mut flows = lock(&self.flows);
        if let Some(flow) = flows.iter().find(|flow| flow.client() == client) {
            return Some(Arc::clone(flow));
        }
        if self.weather().entry != Entry::Open {
            return None;
        }
        let flow = Arc::new(Flow::new(client, Arc::clone(near), self.target).ok()?);
        flows.push(Arc::clone(&flow));
        let (shared, down) = (Arc::clone(self), Arc::clone(&flow));
        std::thread::spawn(move || down.carry_down(&shared));
        Some(flow)
    }

    /// Whether datagrams get through now.
    fn is_sound_for_datagrams(&self) -> bool {
        self.weather().stalled.is_none_or(|until| Instant::now() >= until)
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.delay.load(Ordering::Relaxed))
    }

    fn trickles(&self) -> bool {
        self.weather().trickles.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the `nth` datagram of a conversation is lost. Losses are spread evenly and are the
    /// same in every run.
    fn loses(&self, nth: u64) -> bool {
        let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        mixed % 1000 < self.loss.load(Ordering::Relaxed)
    }

    fn suffer(&self, trouble: Trouble) -> usize {
        let now = Instant::now();
        let flows = self.suffer_datagrams(trouble);
        let connections = match trouble {
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
        };
        connections + flows
    }

    /// Applies a fault to conversations over UDP. It reaches all of them, because a device holds
    /// the state of all of them. A conversation that its ends have given up counts as well, because
    /// the path is not notified.
    fn suffer_datagrams(&self, trouble: Trouble) -> usize {
        let way = match trouble {
            Trouble::Reset(_) | Trouble::Close(_) => Some(Way::Both),
            Trouble::Swallow(_, way) => Some(way),
            Trouble::Stall(_) | Trouble::Trickle(_) => None,
        };
        let flows: Vec<_> = lock(&self.flows).clone();
        let sound: Vec<_> = flows.iter().filter(|flow| flow.is_sound()).collect();
        way.into_iter().for_each(|way| sound.iter().for_each(|flow| flow.swallow(way)));
        sound.len()
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

/// Listens for connections and datagrams at one address. The port that the kernel chooses for TCP
/// may be in use for UDP; then the kernel chooses again.
fn bind_both(listen: SocketAddr) -> io::Result<(TcpListener, Arc<UdpSocket>)> {
    let mut turns = 0;
    loop {
        turns += 1;
        let listener = TcpListener::bind(listen)?;
        match UdpSocket::bind(listener.local_addr()?) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && listen.port() == 0
                    && turns < CHOICES => {}
            datagrams => return Ok((listener, Arc::new(datagrams?))),
        }
    }
}

/// Makes the close of this socket send RST instead of FIN.
pub fn reset_on_drop(stream: &TcpStream) {
    // A closed socket has no linger option to set.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
