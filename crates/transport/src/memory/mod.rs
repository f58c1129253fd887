//! A transport in memory, for tests: it uses no socket and no system call, works under Tokio's
//! paused clock, and fails where a test requests it. [`laned_network`] makes connections with a
//! lane per stream and direction, and with datagrams.
//!
//! [`network`] makes a listener and a dialer; each dial makes a pair of lanes over two bounded
//! pipes, as [`pair`] does directly. The [`Faults`] of a dialer apply to later connections. A lane
//! may be used from another thread (one lock per call, never held across a wake-up).

mod lanes;
mod pipe;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::{
    Carrier, CarrierError, Dialer, Incoming, Lane, Listener, LocalFuture, Peer, Transport,
};
use lanes::{Hub, MemoryDatagrams, MemoryLanes};
use pipe::Wire;

/// The transport of this module.
pub const MEMORY: Transport = Transport::new("memory");

/// The capacity of a pipe in bytes, like that of a small socket buffer.
pub const CAPACITY: usize = 64 << 10;

/// The injected faults of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The maximum number of bytes per read; 0 means no limit.
    pub read_at_most: usize,
    /// The number of bytes written by the dialing end after which the connection fails: both ends
    /// get an error, and unread bytes are lost.
    pub kill_after_sent: Option<u64>,
    /// The same for bytes written by the accepting end.
    pub kill_after_received: Option<u64>,
}

/// The error of all calls on a killed lane.
fn killed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was killed")
}

/// Makes a connection. Returns the dialing end and the accepting end.
#[must_use]
pub fn pair(faults: Faults) -> (MemoryLane, MemoryLane) {
    connection(faults, None)
}

fn connection(faults: Faults, lanes: Option<usize>) -> (MemoryLane, MemoryLane) {
    let fuses = [faults.kill_after_sent, faults.kill_after_received];
    let fuses = fuses.map(|fuse| fuse.map(|bytes| Arc::new(AtomicU64::new(bytes))));
    let wire = Arc::new(Mutex::new(Wire::new(fuses.clone(), faults.read_at_most)));
    let hub = lanes.map(|most| {
        let first = Arc::downgrade(&wire);
        Arc::new(Mutex::new(Hub::new(most, first, fuses.clone(), faults.read_at_most)))
    });
    let end = |index| {
        let (wire, hub) = (Arc::clone(&wire), hub.clone());
        MemoryLane { wire, hub, index, detached: false }
    };
    (end(0), end(1))
}

/// One end of a connection in memory.
#[derive(Debug)]
pub struct MemoryLane {
    wire: Arc<Mutex<Wire>>,
    /// The other lanes, which fail together with it.
    hub: Option<Arc<Mutex<Hub>>>,
    /// 0 for the dialing end, 1 for the accepting end; also the index of the pipe to which this end
    /// writes.
    index: usize,
    detached: bool,
}

/// A handle to break a connection from outside.
#[derive(Clone, Debug)]
pub struct Breaker(Arc<Mutex<Wire>>, Option<Arc<Mutex<Hub>>>);

impl Breaker {
    /// Kills the connection: both ends get an error.
    pub fn kill(&self) {
        let wakers = lock(&self.0).kill();
        wakers.into_iter().for_each(Waker::wake);
        self.1.iter().for_each(Hub::kill);
    }

    /// From now on, all written bytes are accepted and silently dropped in both directions, without
    /// an error at either end: a half-open path.
    pub fn black_hole(&self) {
        let wakers = lock(&self.0).black_hole();
        wakers.into_iter().for_each(Waker::wake);
        self.1.iter().for_each(Hub::black_hole);
    }
}

impl MemoryLane {
    /// Returns a handle that can break this connection.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.wire), self.hub.clone())
    }

    fn usable(&self) -> io::Result<()> {
        if self.detached {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the lane is detached"));
        }
        Ok(())
    }
}

impl Lane for MemoryLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.usable()?;
        let (result, wakers) = lock(&self.wire).read(1 - self.index, buf, cx);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.usable()?;
        let (result, wakers, burnt) = {
            let mut wire = lock(&self.wire);
            let (result, wakers) = wire.write(self.index, frames, cx);
            (result, wakers, wire.is_burnt())
        };
        wakers.into_iter().for_each(Waker::wake);
        if burnt {
            self.hub.iter().for_each(Hub::kill);
        }
        result
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.usable()?;
        Poll::Ready(lock(&self.wire).alive())
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.usable()?;
        let (result, waker) = {
            let mut wire = lock(&self.wire);
            (wire.alive(), wire.finish(self.index))
        };
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(result)
    }

    fn detach(&mut self) -> io::Result<()> {
        self.detached = true;
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        self.detached = false;
        Ok(())
    }
}

impl Drop for MemoryLane {
    fn drop(&mut self) {
        let wakers = lock(&self.wire).abandon(self.index);
        wakers.into_iter().for_each(Waker::wake);
        self.hub.iter().for_each(Hub::close);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dialled connections that are not accepted yet.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Accepted>,
    waker: Option<Waker>,
    closed: bool,
    faults: Faults,
    lanes: Option<usize>,
    /// The breakers of all connections, oldest first.
    breakers: Vec<Breaker>,
}

/// Makes a listener and a dialer that reaches it at any address.
#[must_use]
pub fn network() -> (MemoryListener, MemoryDialer) {
    laned_network(None)
}

/// As [`network`]; each end of a connection may have `lanes` open lanes of streams. `None`: a
/// connection has only its first lane.
#[must_use]
pub fn laned_network(lanes: Option<usize>) -> (MemoryListener, MemoryDialer) {
    let queue = Arc::new(Mutex::new(Queue { lanes, ..Queue::default() }));
    (MemoryListener(Arc::clone(&queue)), MemoryDialer(queue))
}

/// Accepts the connections of its [`MemoryDialer`]s. After the listener is dropped, dials are
/// refused.
#[derive(Debug)]
pub struct MemoryListener(Arc<Mutex<Queue>>);

/// Dials its [`MemoryListener`].
#[derive(Clone, Debug)]
pub struct MemoryDialer(Arc<Mutex<Queue>>);

impl MemoryDialer {
    /// Sets the faults of connections dialled from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// Breakers of all connections dialled so far, oldest first.
    #[must_use]
    pub fn breakers(&self) -> Vec<Breaker> {
        lock(&self.0).breakers.clone()
    }
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

fn carrier(lane: MemoryLane) -> Carrier {
    let transport = MEMORY;
    let (address, connection) = (ADDRESS, None);
    let peer = Peer {
        address,
        transport,
        connection,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    let lanes = lane.hub.clone().map(|hub| MemoryLanes::boxed(hub, lane.index));
    let datagrams = lane.hub.clone().map(|hub| MemoryDatagrams::boxed(hub, lane.index));
    Carrier { lanes, datagrams, ..Carrier::single(peer, Box::new(lane)) }
}

impl Dialer for MemoryDialer {
    fn dial(&self, _address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let queue = Arc::clone(&self.0);
        Box::pin(async move {
            let (waker, dialled) = {
                let mut queue = lock(&queue);
                if queue.closed {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
                }
                let (dialled, accepted) = connection(queue.faults, queue.lanes);
                queue.breakers.push(dialled.breaker());
                queue.waiting.push_back(Accepted(accepted));
                (queue.waker.take(), dialled)
            };
            waker.into_iter().for_each(Waker::wake);
            Ok(carrier(dialled))
        })
    }

    fn transport(&self) -> Transport {
        MEMORY
    }
}

impl Listener for MemoryListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let mut queue = lock(&self.0);
        if let Some(accepted) = queue.waiting.pop_front() {
            return Poll::Ready(Ok(Box::new(accepted)));
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        ADDRESS
    }

    fn transport(&self) -> Transport {
        MEMORY
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        // Dropped outside the lock, because each drop wakes the other end.
        let waiting = {
            let mut queue = lock(&self.0);
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }
}

#[derive(Debug)]
struct Accepted(MemoryLane);

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        ADDRESS
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(std::future::ready(Ok(carrier(self.0))))
    }
}
