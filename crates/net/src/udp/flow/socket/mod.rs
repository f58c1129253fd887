//! A UDP socket of a worker: datagrams are read and sent in batches, and no call blocks.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::Errno;
use tokio::net::UdpSocket;

use super::batch::Batches;
use super::options::{Calls, calls, prepare_listener, prepare_target};
use super::read::{Arrival, Pace, has_port, read};
use super::send::{Full, Sender, tells_of_earlier};
use super::{Loss, Route, Tally};

/// The number of bytes that a socket reads in one turn before other tasks run, which takes about 50
/// µs. The first call may return four messages of nearly 64 KiB, and no second call should follow:
/// the queue of a flow in the link should hold the data of two turns.
const BUDGET: usize = 192 << 10;

/// The maximum number of messages and errors per turn. The limit matters for small messages.
const MESSAGES: usize = 64;

/// A UDP socket of a listener, or connected to one target.
///
/// [`Self::send`] gathers the datagrams of a turn of the runtime. The task of the socket calls
/// [`Self::poll_flush`] at the end of the turn, so a sender must wake that task when
/// [`Self::has_unsent`] becomes true.
#[derive(Debug)]
pub struct FlowSocket {
    socket: UdpSocket,
    calls: Rc<Calls>,
    /// The target of a socket that is not a listener.
    target: Option<SocketAddr>,
    /// Whether the kernel socket is connected to the target.
    is_connected: bool,
    batches: RefCell<Batches>,
    /// Whether the kernel accepts no more. Gathered datagrams wait, and new datagrams are lost.
    is_full: Cell<bool>,
    pause: Cell<u32>,
    /// The code point of the datagrams of a connected socket.
    dscp: u8,
}

impl FlowSocket {
    /// Wraps a bound socket to which peers send. Must be called in the runtime of the worker.
    ///
    /// # Errors
    /// An option could not be set, or no descriptor is left to detect the features of the kernel.
    pub fn listen(socket: std::net::UdpSocket) -> io::Result<Self> {
        prepare_listener(&socket)?;
        Self::new(socket, None, Batches::of_listener())
    }

    /// Connects a socket of [`super::dialling`] to `target`. Nothing is sent. From now on the
    /// socket has one local port and receives only datagrams of `target`.
    ///
    /// # Errors
    /// No route leads to `target`, no local port is free (EAGAIN), or `target` is a broadcast
    /// address (EACCES).
    pub fn connect(socket: std::net::UdpSocket, target: SocketAddr) -> io::Result<Self> {
        prepare_target(&socket)?;
        socket.connect(target)?;
        Self::new(socket, Some(target), Batches::of_target())
    }

    /// As [`Self::connect`], with permission to send to all machines of a network, or to a group.
    /// Each of them replies from its own address, so such a socket accepts datagrams from every
    /// address with the port of `target`; others are counted as denied.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn broadcast(socket: std::net::UdpSocket, target: SocketAddr) -> io::Result<Self> {
        prepare_target(&socket)?;
        let is_connected = connect(&socket, target, true)?;
        let made = Self::new(socket, Some(target), Batches::of_target())?;
        Ok(Self { is_connected, ..made })
    }

    fn new(
        socket: std::net::UdpSocket,
        target: Option<SocketAddr>,
        batches: Batches,
    ) -> io::Result<Self> {
        let calls = calls()?;
        let socket = UdpSocket::from_std(socket)?;
        let (is_full, pause) = Default::default();
        let batches = RefCell::new(batches);
        let is_connected = target.is_some();
        Ok(Self { socket, calls, target, is_connected, batches, is_full, pause, dscp: 0 })
    }

    /// The same socket, whose datagrams have this code point in their [`Route`]. The caller has set
    /// it on the socket ([`SocketOptions::at_connect`](crate::SocketOptions::at_connect)).
    #[must_use]
    pub fn marked(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }

    /// Takes the socket out of the runtime of this worker, so that another worker can attach it.
    /// The port of the socket stays, and datagrams that arrive meanwhile wait in the socket.
    /// Gathered datagrams are dropped ([`Self::flush_last`]).
    ///
    /// # Errors
    /// The runtime did not release the socket, which is closed.
    pub fn detach(self) -> io::Result<DetachedSocket> {
        let Self { socket, target, is_connected, dscp, .. } = self;
        Ok(DetachedSocket { socket: socket.into_std()?, target, is_connected, dscp })
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The error of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// A duplicate of the socket, without what was gathered.
    ///
    /// # Errors
    /// This process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// The route to the target, if the socket has one.
    #[must_use]
    pub fn route(&self) -> Option<Route> {
        self.target.map(|peer| Route { peer, local: None, dscp: self.dscp })
    }

    /// Whether an ICMP error for an earlier datagram is pending. Clears the error.
    #[must_use]
    pub fn take_error(&self) -> bool {
        matches!(self.socket.take_error(), Ok(Some(_)))
    }

    /// Passes received datagrams to `take`, until the socket is empty or its budget for this turn
    /// is spent; in both cases `cx` is woken when there is more to do. `take` may send from this
    /// socket, but not read.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        tally: &impl Tally,
        mut take: impl FnMut(Arrival<'_>),
    ) -> Poll<Infallible> {
        let (mut messages, mut bytes) = (0, 0);
        let mut pace = Pace::BEGIN;
        // A connected socket receives nothing from other peers.
        let asked = self.target.filter(|_| !self.is_connected).map(|target| target.port());
        let mut take = |arrival: Arrival<'_>| {
            let port = arrival.route.peer.port();
            if asked.is_some_and(|asked| asked != port) {
                tally.lost(Loss::Denied, arrival.count());
            } else if has_port(arrival.route.peer) {
                take(arrival);
            } else {
                tally.lost(Loss::Unreachable, arrival.count());
            }
        };
        while messages < MESSAGES && bytes < BUDGET {
            if ready!(self.socket.poll_recv_ready(cx)).is_err() {
                // The runtime shuts down.
                return Poll::Pending;
            }
            match read(&self.calls.state, &self.socket, &mut pace, &mut take) {
                Ok((more, size)) => {
                    messages += more.max(1);
                    bytes += size;
                }
                Err(error) if tells_of_earlier(&error) => {
                    tally.lost(Loss::of(&error), 1);
                    messages += 1;
                }
                // The queue is empty, or memory is short. A persistent error must not spin.
                Err(_) => self.forget_readable(),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Clears the readiness, so that the runtime waits for the next event of the socket.
    fn forget_readable(&self) {
        let nothing = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
        let _ = self.socket.try_io(tokio::io::Interest::READABLE, nothing);
    }

    /// Gathers a datagram. It is sent by the next [`Self::poll_flush`], or earlier if its batch is
    /// complete. If the socket is full, the datagram is lost.
    pub fn send(&self, route: Route, datagram: Bytes, tally: &impl Tally) {
        let mut batches = self.batches.borrow_mut();
        let mut next = Some(datagram);
        while let Some(datagram) = next.take() {
            if self.is_full.get() {
                return tally.lost(Loss::Full, 1);
            }
            if let Err((first, again)) = batches.add(route, datagram) {
                self.leave(&mut batches, first, tally);
                next = Some(again);
            }
        }
    }

    /// Whether datagrams wait for [`Self::poll_flush`].
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.batches.borrow().list.is_empty()
    }

    /// Sends the gathered datagrams. Pending: the socket is full, and `cx` is woken when it is
    /// writable.
    pub fn poll_flush(&self, cx: &mut Context<'_>, tally: &impl Tally) -> Poll<()> {
        let mut batches = self.batches.borrow_mut();
        while !batches.list.is_empty() {
            if self.is_full.get() {
                if ready!(self.socket.poll_send_ready(cx)).is_err() {
                    // The runtime shuts down.
                    return Poll::Pending;
                }
                self.is_full.set(false);
            }
            self.leave(&mut batches, 0, tally);
        }
        Poll::Ready(())
    }

    /// Sends the gathered datagrams as far as the socket accepts them at once, and drops the rest.
    pub fn flush_last(&self, tally: &impl Tally) {
        let mut batches = self.batches.borrow_mut();
        while !batches.list.is_empty() && !self.is_full.get() {
            self.leave(&mut batches, 0, tally);
        }
        let left = batches.list.drain(..).map(|batch| batch.datagrams.len()).sum();
        if left > 0 {
            tally.lost(Loss::Full, left);
        }
    }

    /// Sends one batch.
    fn leave(&self, batches: &mut Batches, index: usize, tally: &impl Tally) {
        let Self { socket, calls, is_connected, pause, .. } = self;
        let sender = Sender { calls, socket, is_connected: *is_connected, pause };
        let Some(batch) = batches.list.get_mut(index) else { return };
        match sender.send(batch, tally) {
            Ok(()) => drop(batches.list.remove(index)),
            Err(Full) => {
                self.is_full.set(true);
                batches.list.iter_mut().for_each(super::batch::Batch::settle);
            }
        }
    }
}

/// The socket of a target between two workers.
#[derive(Debug)]
pub struct DetachedSocket {
    socket: std::net::UdpSocket,
    target: Option<SocketAddr>,
    is_connected: bool,
    dscp: u8,
}

impl DetachedSocket {
    /// The socket on this worker. Must be called in the runtime of the worker.
    ///
    /// # Errors
    /// The runtime could not register the socket, which is closed.
    pub fn attach(self) -> io::Result<FlowSocket> {
        let Self { socket, target, is_connected, dscp } = self;
        let made = FlowSocket::new(socket, target, Batches::of_target())?;
        Ok(FlowSocket { is_connected, dscp, ..made })
    }
}

/// Connects a socket to a target. With `broadcast`, a broadcast or multicast target leaves the
/// socket unconnected, with permission to broadcast, and the result is false.
///
/// # Errors
/// As [`FlowSocket::connect`].
pub fn connect(
    socket: &std::net::UdpSocket,
    target: SocketAddr,
    broadcast: bool,
) -> io::Result<bool> {
    if !broadcast || !target.ip().to_canonical().is_multicast() {
        match socket.connect(target) {
            Ok(()) => return Ok(true),
            // The kernel knows the broadcast addresses of its networks.
            Err(error) if broadcast && Errno::from_io_error(&error) == Some(Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    socket.set_broadcast(true)?;
    Ok(false)
}

#[cfg(test)]
mod tests;
