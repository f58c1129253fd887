//! A transport in memory, for tests: no socket, no system call, works under tokio's paused clock
//! and dies where a test wants it to.
//!
//! [`network`] makes a listener and a dialer; each dial makes a pair of lanes over two bounded
//! pipes, as [`pair`] does directly. The [`Faults`] of a dialer apply to the connections it makes
//! from then on. A lane may be used from another thread (one lock per call, never held across a
//! wake).

mod pipe;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::{
    Carrier, CarrierError, Dialer, Incoming, Lane, Listener, LocalFuture, Peer, Transport,
};
use pipe::Wire;

/// Bytes a pipe holds before its writer waits, as a small socket buffer would.
pub const CAPACITY: usize = 64 << 10;

/// What goes wrong on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Deliver at most so many bytes per read; 0 is no limit.
    pub read_at_most: usize,
    /// Kill the connection when so many bytes were written from the dialing end to the other: both
    /// ends get an error, bytes not yet read are lost.
    pub kill_after_sent: Option<u64>,
    /// The same for bytes from the accepting end.
    pub kill_after_received: Option<u64>,
}

/// Why a killed lane's calls fail.
fn killed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was killed")
}

/// Both ends of a connection: the dialing one and the accepting one.
#[must_use]
pub fn pair(faults: Faults) -> (MemoryLane, MemoryLane) {
    let wire = Arc::new(Mutex::new(Wire::new(faults)));
    let end = |index| MemoryLane { wire: Arc::clone(&wire), index, detached: false };
    (end(0), end(1))
}

/// One end of a connection in memory.
#[derive(Debug)]
pub struct MemoryLane {
    wire: Arc<Mutex<Wire>>,
    /// 0 dialled, 1 accepted; also which pipe we write into.
    index: usize,
    detached: bool,
}

/// Reaches a connection from outside, to break it.
#[derive(Clone, Debug)]
pub struct Breaker(Arc<Mutex<Wire>>);

impl Breaker {
    /// Kills the connection now: both ends get an error.
    pub fn kill(&self) {
        let wakers = lock(&self.0).kill();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// From now on everything written is accepted and dropped in silence, both ways, and no end
    /// ever hears of it: a half-open path.
    pub fn black_hole(&self) {
        let wakers = lock(&self.0).black_hole();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl MemoryLane {
    /// A handle that breaks this connection.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.wire))
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
        let (result, wakers) = lock(&self.wire).write(self.index, frames, cx);
        wakers.into_iter().for_each(Waker::wake);
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
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections dialled and not yet accepted.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Accepted>,
    waker: Option<Waker>,
    closed: bool,
    faults: Faults,
    /// Of the connections made, oldest first.
    breakers: Vec<Breaker>,
}

/// A listener and a dialer that reaches it, whatever address is dialled.
#[must_use]
pub fn network() -> (MemoryListener, MemoryDialer) {
    let queue = Arc::default();
    (MemoryListener(Arc::clone(&queue)), MemoryDialer(queue))
}

/// Accepts what its [`MemoryDialer`]s dial. Dropped, they are refused.
#[derive(Debug)]
pub struct MemoryListener(Arc<Mutex<Queue>>);

/// Dials its [`MemoryListener`].
#[derive(Clone, Debug)]
pub struct MemoryDialer(Arc<Mutex<Queue>>);

impl MemoryDialer {
    /// What goes wrong on connections dialled from now on.
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
    let transport = Transport::Memory;
    let (address, connection) = (ADDRESS, None);
    let peer = Peer { address, transport, connection, exporter: None, certificate_name: None };
    Carrier::single(peer, Box::new(lane))
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
                let (dialled, accepted) = pair(queue.faults);
                queue.breakers.push(dialled.breaker());
                queue.waiting.push_back(Accepted(accepted));
                (queue.waker.take(), dialled)
            };
            waker.into_iter().for_each(Waker::wake);
            Ok(carrier(dialled))
        })
    }

    fn transport(&self) -> Transport {
        Transport::Memory
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
        Transport::Memory
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        // Dropped outside the lock: each wakes the other end.
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
