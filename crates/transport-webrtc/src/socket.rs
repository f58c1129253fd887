//! A UDP socket of a connection: large buffers, many datagrams per call (GSO, GRO), no datagrams
//! from unauthenticated peers, and paced checks to addresses that have not answered.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use net::SocketOptions;
use net::udp::{WANTED, keep_joining, take_joined, take_one_by_one};
use punch::stun::is_stun;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use webrtc::runtime::{AsyncUdpSocket, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use crate::gate::Gate;
use crate::pace::{Pace, is_check};

/// The buffer size for joined datagrams, in bytes: the maximum that the kernel joins.
const JOINED: usize = 64 << 10;

pub(crate) struct Socket {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    /// The datagrams that were read and not passed on yet; `None` until the DTLS handshake is done.
    /// A connection before that has no large buffer, whatever its peer sends: the library would
    /// make two.
    joined: Mutex<Option<Joined>>,
    pace: Pace,
    gate: Arc<Gate>,
}

/// Datagrams of one sender.
struct Joined {
    buffer: Box<[u8]>,
    meta: RecvMeta,
    /// The number of bytes that were passed on.
    at: usize,
    /// The sender knows our password.
    is_proven: bool,
}

impl Joined {
    /// Passes on the next permitted datagram. `false`: there is none.
    fn next(&mut self, gate: &Gate, buffer: &mut [u8], meta: &mut RecvMeta) -> bool {
        let (datagram, length) = loop {
            let length = self.meta.stride.min(self.meta.len - self.at);
            if length == 0 {
                return false;
            }
            let datagram = &self.buffer[self.at..self.at + length];
            self.at += length;
            let is_stun = is_stun(datagram);
            if (!is_stun && self.is_proven) || (is_stun && gate.takes(self.meta.addr, datagram)) {
                break (datagram, length);
            }
        };
        // A datagram that exceeds the library's buffer is not a WebRTC datagram.
        let fits = length.min(buffer.len());
        buffer[..fits].copy_from_slice(&datagram[..fits]);
        *meta = self.meta;
        (meta.len, meta.stride) = (fits, fits);
        true
    }
}

impl Socket {
    /// Registers a socket with the runtime of this thread. The kernel buffers are enlarged: SCTP
    /// has no pacing, and a loss that only its timer repairs costs a second.
    pub(crate) fn new(socket: std::net::UdpSocket, gate: &Arc<Gate>) -> io::Result<Self> {
        keep_joining();
        socket.set_nonblocking(true)?;
        SocketOptions::with_buffers(WANTED).at_bind(&socket, Some(&SocketOptions::UNSET))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        take_one_by_one(&socket)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let pace = Pace::new(Arc::downgrade(&socket), gate);
        Ok(Self { socket, state, joined: Mutex::new(None), pace, gate: Arc::clone(gate) })
    }

    fn joined(&self) -> MutexGuard<'_, Option<Joined>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads once.
    fn read(&self, buffer: &mut [u8]) -> io::Result<RecvMeta> {
        let mut meta = [RecvMeta::default()];
        let mut buffers = [IoSliceMut::new(buffer)];
        let count = self.socket.try_io(Interest::READABLE, || {
            self.state.recv(UdpSockRef::from(&*self.socket), &mut buffers, &mut meta)
        })?;
        // The library splits by the stride, which is 0 for an empty datagram.
        meta[0].stride = meta[0].stride.max(1);
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(meta[0]) }
    }

    /// Enables joined datagrams, because the DTLS handshake is done.
    fn join(&self) {
        // If the kernel cannot join datagrams, it delivers them one at a time.
        let _ = take_joined(&*self.socket);
        let buffer = vec![0; JOINED].into_boxed_slice();
        *self.joined() =
            Some(Joined { buffer, meta: RecvMeta::default(), at: 0, is_proven: false });
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
        let to = transmit.destination;
        if is_check(transmit.contents) && !self.gate.has_answered(to) {
            self.pace.take(to, transmit.contents);
            return Poll::Ready(Ok(transmit.contents.len()));
        }
        loop {
            ready!(self.socket.poll_send_ready(cx))?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                self.state.try_send(UdpSockRef::from(&*self.socket), transmit)
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
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        loop {
            let mut joined = self.joined();
            if joined.as_mut().is_some_and(|joined| joined.next(&self.gate, buffer, meta)) {
                return Poll::Ready(Ok(1));
            }
            ready!(self.socket.poll_recv_ready(cx))?;
            let read = match &mut *joined {
                Some(joined) => self.read(&mut joined.buffer).map(|read| {
                    (joined.meta, joined.at) = (read, 0);
                    joined.is_proven = self.gate.is_proven(read.addr);
                }),
                None => match self.read(buffer) {
                    Ok(read) => {
                        drop(joined);
                        if !self.gate.takes(read.addr, &buffer[..read.len]) {
                            continue;
                        }
                        if self.gate.is_connected() {
                            self.join();
                        }
                        *meta = read;
                        return Poll::Ready(Ok(1));
                    }
                    Err(error) => Err(error),
                },
            };
            match read {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
    }

    fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }
}
