//! A UDP socket of a connection: large buffers, many datagrams in a call (GSO, GRO).

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use net::udp::{WANTED, keep_joining, raise};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use webrtc::runtime::{AsyncUdpSocket, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    /// Takes a socket into the runtime of this thread. The buffers of the kernel are raised: SCTP
    /// has no pacing, and a loss that only its timer repairs costs a second.
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        keep_joining();
        socket.set_nonblocking(true)?;
        raise(&socket, WANTED)?;
        let socket = UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state })
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for Socket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn poll_send(&self, cx: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_send_ready(cx))?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                self.state.try_send(UdpSockRef::from(&self.socket), transmit)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent.map(|()| transmit.contents.len())),
            }
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let read = self.socket.try_io(Interest::READABLE, || {
                self.state.recv(UdpSockRef::from(&self.socket), buffers, meta)
            });
            match read {
                Ok(0) => {}
                Ok(count) => {
                    for meta in meta.iter_mut().take(count) {
                        // The library cuts by the stride, which is 0 for an empty datagram.
                        meta.stride = meta.stride.max(1);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.state.gro_segments()
    }
}
