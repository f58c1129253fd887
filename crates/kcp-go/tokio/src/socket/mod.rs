//! What a driver needs of a socket. The caller supplies it, so that datagrams can travel through
//! memory, through a socket with a mark or a DSCP of its own, or inside another protocol.

mod udp;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

pub use udp::Udp;

/// Bytes of a buffer for one datagram: more than the 1,500 of kcp-go's longest.
const DATAGRAM: usize = 2048;

/// Datagrams of one sender that were read into one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The sender.
    pub from: SocketAddr,
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each datagram but the last, which may be shorter. Equal to `length` where the
    /// buffer holds one.
    pub segment: usize,
}

impl Default for Arrival {
    fn default() -> Self {
        Self { from: SocketAddr::from(([0, 0, 0, 0], 0)), length: 0, segment: 0 }
    }
}

/// Datagrams for one receiver, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The receiver.
    pub to: SocketAddr,
    /// All datagrams.
    pub bytes: &'a [u8],
    /// Bytes of each datagram but the last, which may be shorter; at least 1.
    pub segment: usize,
}

impl<'a> Run<'a> {
    /// The datagrams in their order.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment.max(1))
    }
}

/// A socket for datagrams. One driver owns it, so that its methods need no lock.
///
/// Datagrams may be lost, repeated and overtaken. A socket that cannot send at the moment either
/// returns `Pending` and wakes the task, or drops the datagrams.
pub trait PacketSocket: Unpin {
    /// Reads datagrams into `buffers` and describes each buffer that was filled in the same place
    /// of `arrivals`. Returns how many buffers were filled, at least one. Both slices have the same
    /// length, and each buffer [`buffer`](Self::buffer) bytes.
    ///
    /// # Errors
    ///
    /// An error for which [`is_transient`](crate::is_transient) holds is counted; any other ends
    /// the driver and all its sessions.
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> Poll<io::Result<usize>>;

    /// Sends all datagrams of `run`, at most [`longest_run`](Self::longest_run) of them. Where it
    /// returns `Pending` the driver offers the same run again, and datagrams that left already may
    /// leave twice.
    ///
    /// # Errors
    ///
    /// An error for which [`is_transient`](crate::is_transient) holds is counted, and the run
    /// counts as lost on the way; any other ends the session that sends.
    fn poll_send(&mut self, cx: &mut Context<'_>, run: &Run<'_>) -> Poll<io::Result<()>>;

    /// Bytes that one buffer of [`poll_recv`](Self::poll_recv) must have. A socket that joins
    /// datagrams needs more than those of one.
    fn buffer(&self) -> usize {
        DATAGRAM
    }

    /// The most datagrams of a run: more than one where the system cuts them (UDP GSO).
    fn longest_run(&self) -> usize {
        1
    }

    /// The address to which peers send.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    fn local_address(&self) -> io::Result<SocketAddr>;
}
