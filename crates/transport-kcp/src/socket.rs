//! A UDP socket of a driver: many datagrams in a call (GSO, GRO, `recvmmsg`), ECN, and the local
//! address of each datagram.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};

use net::dscp;
use net::udp::keep_joining;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The number of messages read in one call. At high rates the kernel coalesces datagrams.
pub(crate) const BATCH: usize = 4;

/// The buffer size of a message, in bytes: the longest that the kernel coalesces.
pub(crate) const JOINED: usize = 64 << 10;

/// The largest size of a run: the payload of one call, minus the headers of IPv6 and UDP.
pub(crate) const CALL: usize = 65_535 - 48;

/// The origin of a datagram, to which the response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The address of the peer.
    pub(crate) peer: SocketAddr,
    /// The address of this machine that the peer used. A machine with several addresses responds
    /// from the same address.
    pub(crate) local: Option<IpAddr>,
}

/// A message that was read: one datagram, or several of equal length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) origin: Origin,
    pub(crate) length: usize,
    /// The size of each datagram except the last, in bytes.
    pub(crate) segment: usize,
    /// A router marked the datagrams instead of dropping them (CE of RFC 3168).
    pub(crate) is_congested: bool,
}

/// Datagrams of equal length to one address; the last one may be shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) to: Origin,
    pub(crate) bytes: &'a [u8],
    pub(crate) segment: usize,
    /// Routers may mark the datagrams instead of dropping them (RFC 3168).
    pub(crate) is_ect: bool,
}

#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The code point of sent packets.
    dscp: u8,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    /// Takes a socket into the runtime of this thread. Its packets carry the mark of the given
    /// socket ([`net::dscp`]).
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        keep_joining();
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let dscp = dscp::of(&socket);
        Ok(Self { socket, state, dscp })
    }

    /// Reads messages; returns their number.
    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; BATCH],
        arrivals: &mut [Option<Arrival>; BATCH],
    ) -> Poll<io::Result<usize>> {
        const { assert!(BATCH <= BATCH_SIZE) }
        let mut meta = [RecvMeta::default(); BATCH];
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let read = self.socket.try_io(Interest::READABLE, || {
                self.state.recv(UdpSockRef::from(&self.socket), buffers, &mut meta)
            });
            match read {
                Ok(count) => {
                    for (arrival, meta) in arrivals.iter_mut().zip(meta.iter().take(count)) {
                        *arrival = Some(Arrival {
                            origin: Origin { peer: meta.addr, local: meta.dst_ip },
                            length: meta.len,
                            segment: meta.stride,
                            is_congested: meta.ecn == Some(EcnCodepoint::Ce),
                        });
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends a run as a whole.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, run: &Run<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_send_ready(cx))?;
            let is_joined = run.bytes.len() > run.segment;
            let mut sent = self.send(run, run.bytes, is_joined.then_some(run.segment));
            // Some devices cannot segment a run: `state` remembers it, and the run is sent piece by
            // piece.
            if is_joined && sent.is_err() && self.longest_run() == 1 {
                let mut pieces = run.bytes.chunks(run.segment.max(1));
                sent = pieces.try_for_each(|one| self.send(run, one, None));
            }
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn send(&self, run: &Run<'_>, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let (destination, src_ip) = (run.to.peer, run.to.local);
        let ecn = run.is_ect.then_some(EcnCodepoint::Ect0);
        let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
        self.socket.try_io(Interest::WRITABLE, || {
            dscp::send(&self.state, &self.socket, &transmit, self.dscp)
        })
    }

    /// The largest number of datagrams in a run.
    pub(crate) fn longest_run(&self) -> usize {
        self.state.max_gso_segments()
    }
}
