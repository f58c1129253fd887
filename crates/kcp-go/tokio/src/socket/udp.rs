//! A UDP socket of the system, with many datagrams in a call where the system can do that.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Arrival, DATAGRAM, PacketSocket, Run};

/// Bytes of a buffer into which the system joins datagrams: the longest that it makes.
const JOINED: usize = 64 << 10;

/// The most datagrams that are handed to the system at once. Longer runs gain nothing.
const LONGEST_RUN: usize = 32;

/// A UDP socket that sends runs (GSO), and reads several datagrams in a call (GRO, `recvmmsg`).
///
/// Datagrams are not fragmented: a datagram that is longer than the path allows is an error or is
/// lost. The buffers of the socket are as the system makes them, mostly 208 KiB: a fast transfer
/// needs [more](Self::set_buffers).
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Udp {
    /// A driver's view of `socket`. It must be unconnected, or connected to the one peer.
    ///
    /// # Errors
    ///
    /// The system refuses the options that the socket needs.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state })
    }

    /// Binds a socket to `address`.
    ///
    /// # Errors
    ///
    /// The address is taken or does not exist.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(UdpSocket::bind(address).await?)
    }

    /// The socket, to set options.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Asks the system for so many bytes of datagrams that wait to be read, and to be sent. What
    /// does not fit is lost. 4 MiB hold 1 Gbit/s for 30 ms. The system gives less where its limits
    /// are lower (`net.core.rmem_max`, `net.core.wmem_max`).
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn set_buffers(&self, receive: usize, send: usize) -> io::Result<()> {
        let socket = || UdpSockRef::from(&self.socket);
        self.state.set_recv_buffer_size(socket(), receive)?;
        self.state.set_send_buffer_size(socket(), send)
    }

    fn send(&self, to: SocketAddr, contents: &[u8], segment: Option<usize>) -> io::Result<()> {
        let transmit =
            Transmit { destination: to, ecn: None, contents, segment_size: segment, src_ip: None };
        self.socket.try_io(Interest::WRITABLE, || {
            self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
        })
    }
}

impl PacketSocket for Udp {
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> Poll<io::Result<usize>> {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let most = buffers.len().min(arrivals.len()).min(BATCH_SIZE);
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let read = self.socket.try_io(Interest::READABLE, || {
                let socket = UdpSockRef::from(&self.socket);
                self.state.recv(socket, &mut buffers[..most], &mut meta[..most])
            });
            match read {
                Ok(count) => {
                    for (arrival, meta) in arrivals.iter_mut().zip(&meta[..count]) {
                        let RecvMeta { addr: from, len: length, stride: segment, .. } = *meta;
                        *arrival = Arrival { from, length, segment };
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, run: &Run<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_send_ready(cx))?;
            let joined = run.bytes.len() > run.segment;
            let mut sent = self.send(run.to, run.bytes, joined.then_some(run.segment));
            // Some devices cannot cut a run: `state` remembers it, and the run leaves piece by
            // piece.
            if joined && self.longest_run() == 1 && sent.is_err() {
                sent = run.datagrams().try_for_each(|one| self.send(run.to, one, None));
            }
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn buffer(&self) -> usize {
        if self.state.gro_segments() > 1 { JOINED } else { DATAGRAM }
    }

    fn longest_run(&self) -> usize {
        self.state.max_gso_segments().min(LONGEST_RUN)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}
