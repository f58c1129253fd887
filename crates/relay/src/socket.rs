//! The socket of a stream: TCP or Unix. An enum and not a trait object: what a byte costs over TCP
//! is one predictable branch per system call.
//!
//! | | TCP | Unix |
//! |---|---|---|
//! | half-close | FIN | end of file, too (shutdown(2)) |
//! | abort | RST | closed at once; the far end sees a reset only if it had sent what nobody read |
//! | short read or write | the queue is empty (full) | says nothing: a descriptor passed along ends a read |

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use net::{gather, socket};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected socket, registered with this thread's runtime.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix stream socket.
    Unix(UnixStream),
}

/// A socket on its way to another thread.
#[derive(Debug)]
pub enum Detached {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix stream socket.
    Unix(std::os::unix::net::UnixStream),
}

/// A listener of both families sees IPv4 visitors in IPv6 clothes (RFC 4291 section 2.5.5.2);
/// nobody else wants to.
pub(crate) fn as_it_is(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket)
    }
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Self::Unix(socket)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    /// Takes the socket out of this thread's runtime.
    pub fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Tcp(socket) => Detached::Tcp(socket.into_std()?),
            Self::Unix(socket) => Detached::Unix(socket.into_std()?),
        })
    }

    /// Frames are the batches here; Nagle's delay on top would only add latency.
    pub(crate) fn without_delay(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket.set_nodelay(true);
        }
    }

    /// The far end's address, where it has one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok().map(as_it_is),
            Self::Unix(_) => None,
        }
    }

    /// Closing is to be a reset from now on, where there is such a thing.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket.set_zero_linger();
        }
    }

    /// Closing is to be a clean end again. On failure the far end of a TCP socket sees RST where
    /// FIN was meant, after all its bytes.
    pub(crate) fn end_on_close(&self) {
        if let Self::Tcp(socket) = self {
            let _ = SockRef::from(socket).set_linger(None);
        }
    }

    /// Ends our direction. An error means that the socket is dead, which reading it will tell.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(socket) => SockRef::from(socket).shutdown(Shutdown::Write),
            Self::Unix(socket) => SockRef::from(socket).shutdown(Shutdown::Write),
        };
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            Self::Unix(socket) => socket.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_write_ready(cx),
            Self::Unix(socket) => socket.poll_write_ready(cx),
        }
    }

    /// Waits for an error of the socket.
    pub(crate) async fn failed(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.ready(Interest::ERROR).await,
            Self::Unix(socket) => socket.ready(Interest::ERROR).await,
        };
    }

    /// Reads at most `limit` bytes into the spare capacity of `buf`; `None` when nothing is there.
    pub(crate) fn read(&self, buf: &mut BytesMut, limit: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(stream) => socket::read(stream, buf, limit),
            Self::Unix(stream) => {
                let limit = limit.min(buf.spare_capacity_mut().len());
                unless_blocked(stream.try_read_buf(&mut buf.limit(limit)))
            }
        }
    }

    /// A gathered write of `total` bytes; `None` when the socket is full.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>], total: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(stream) => socket::write(stream, slices, total),
            Self::Unix(stream) => unless_blocked(stream.try_write_vectored(slices)),
        }
    }

    /// Takes from the front of `pieces` what goes into one call; `None` when the socket is full.
    pub(crate) fn write_from(&self, pieces: &mut VecDeque<Bytes>) -> io::Result<Option<usize>> {
        let mut slices = [IoSlice::new(&[]); gather::MOST];
        let (filled, total) = gather::gather(pieces.iter().map(|piece| &piece[..]), &mut slices);
        let written = self.write(&slices[..filled], total)?;
        gather::advance(pieces, written.unwrap_or(0), drop);
        Ok(written)
    }
}

impl Detached {
    /// Registers the socket with this thread's runtime.
    pub fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(socket) => TcpStream::from_std(socket)?.into(),
            Self::Unix(socket) => UnixStream::from_std(socket)?.into(),
        })
    }
}

fn unless_blocked(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(n) => Ok(Some(n)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}
