//! The socket of a stream, over TCP or Unix. The type is an enum instead of a trait object, so that
//! a system call over TCP costs only one more predictable branch.
//!
//! | | TCP | Unix |
//! |---|---|---|
//! | half-close | FIN | end of file, too (shutdown(2)) |
//! | abort | RST | closed at once; the far end sees a reset only when bytes that it sent are unread |
//! | short read or write | the queue is empty (full) | no information: a passed descriptor ends a read |

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use net::SocketOptions;
use net::options::{SocketKind, SocketOfKind};
use net::tcp_info::Ends;
use net::{gather, socket};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::attention;
use crate::shares::{Holder, Seat};

/// A connected socket, registered with this thread's runtime.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(Seated<TcpStream>),
    /// A Unix stream socket.
    Unix(Seated<UnixStream>),
}

/// A socket with its seat in the descriptor table. The seat is returned when the socket is closed,
/// whichever part of the daemon owns the socket then.
#[derive(Debug)]
pub struct Seated<S> {
    // The order of fields matters: the stream is closed before the seat is returned.
    stream: S,
    seat: Option<Box<Seat>>,
}

impl<S> Seated<S> {
    /// The socket without its seat, for an owner with its own limits.
    pub fn leave_seat(self) -> S {
        self.stream
    }
}

impl<S> From<S> for Seated<S> {
    fn from(stream: S) -> Self {
        Self { stream, seat: None }
    }
}

impl<S> Deref for Seated<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.stream
    }
}

impl<S> DerefMut for Seated<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsFd> AsFd for Seated<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Seated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Seated<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A socket that moves to another thread.
#[derive(Debug)]
pub enum Detached {
    /// TCP.
    Tcp(Seated<std::net::TcpStream>),
    /// A Unix stream socket.
    Unix(Seated<std::os::unix::net::UnixStream>),
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket.into())
    }
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Self::Unix(socket.into())
    }
}

impl SocketOfKind for Socket {
    fn kind(&self) -> SocketKind {
        match self {
            Self::Tcp(_) => SocketKind::Tcp,
            Self::Unix(_) => SocketKind::Unix,
        }
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
    /// Removes the socket from this thread's runtime.
    pub fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Tcp(Seated { stream, seat }) => {
                Detached::Tcp(Seated { stream: stream.into_std()?, seat })
            }
            Self::Unix(Seated { stream, seat }) => {
                Detached::Unix(Seated { stream: stream.into_std()?, seat })
            }
        })
    }

    /// Gives the socket its seat.
    pub fn sit(&mut self, seat: Seat) {
        *self.place() = Some(Box::new(seat));
    }

    /// Moves the seat of the socket to another holder, or gives the socket a seat of that holder.
    /// False: the holder has used up its share.
    #[must_use]
    pub fn move_to(&mut self, holder: &Arc<Holder>) -> bool {
        let place = self.place();
        match place {
            Some(seat) => seat.move_to(holder),
            None => {
                *place = holder.seat_of_target().map(Box::new);
                place.is_some()
            }
        }
    }

    /// Counts the seat of the socket for another source ([`Seat::count_for`]).
    #[must_use]
    pub fn count_for(&mut self, source: Option<IpAddr>) -> bool {
        self.place().as_mut().is_none_or(|seat| seat.count_for(source))
    }

    /// Whether the holder of the seat has taken less than a quarter of its share.
    #[must_use]
    pub fn has_ample_room(&self) -> bool {
        let seat = match self {
            Self::Tcp(socket) => &socket.seat,
            Self::Unix(socket) => &socket.seat,
        };
        seat.as_ref().is_none_or(|seat| seat.has_ample_room())
    }

    fn place(&mut self) -> &mut Option<Box<Seat>> {
        match self {
            Self::Tcp(socket) => &mut socket.seat,
            Self::Unix(socket) => &mut socket.seat,
        }
    }

    /// Gives a visitor the options of its service. `had`: the options of its listener; `None`: it
    /// has those of another service.
    pub fn obey(&self, options: &SocketOptions, had: Option<&SocketOptions>) {
        // On an error the socket keeps what it had, which is harmless.
        let _ = options.apply_to(self, had);
    }

    /// Sets the options of a visitor or target before bytes move.
    pub(crate) fn begin(&self, options: &SocketOptions) {
        // On an error the socket keeps the options of the system.
        let _ = options.established(self);
    }

    /// Sets the options of a visitor whose bytes a layer such as TLS takes first.
    pub fn begin_below_layer(&self) {
        self.begin(&SocketOptions::DEFAULT.below_layer());
    }

    /// The local address, to which the far end connected; `None` for a Unix socket.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(socket::canonical),
            Self::Unix(_) => None,
        }
    }

    /// Whether this address of a visitor was announced by a program in front of the server, because
    /// it is not the address of the socket's peer.
    #[must_use]
    pub fn is_announced(&self, visitor: Option<SocketAddr>) -> bool {
        visitor.is_some() && self.peer() != visitor.map(socket::canonical)
    }

    /// The address of the far end; `None` for a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok().map(socket::canonical),
            Self::Unix(_) => None,
        }
    }

    /// The two ends of a TCP socket.
    pub(crate) fn ends(&self) -> Option<Ends> {
        match self {
            Self::Tcp(socket) => attention::ends(socket),
            Self::Unix(_) => None,
        }
    }

    /// Makes a later close send RST, if the socket type has RST.
    pub fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket::reset_on_close(&**socket);
        }
    }

    /// Makes a later close a clean end again. When the call fails, the far end of a TCP socket
    /// receives RST instead of FIN, after all its bytes.
    pub(crate) fn end_on_close(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket::end_on_close(&**socket);
        }
    }

    /// Ends our direction. An error means that the socket has failed, and the next read returns the
    /// error.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(socket) => SockRef::from(&**socket).shutdown(Shutdown::Write),
            Self::Unix(socket) => SockRef::from(&**socket).shutdown(Shutdown::Write),
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

    /// Reads at most `limit` bytes into the spare capacity of `buf`; `None` when the socket has no
    /// bytes.
    pub(crate) fn read(&self, buf: &mut BytesMut, limit: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(stream) => socket::read(stream, buf, limit),
            Self::Unix(stream) => {
                let limit = limit.min(buf.spare_capacity_mut().len());
                unless_blocked(stream.try_read_buf(&mut buf.limit(limit)))
            }
        }
    }

    /// Writes `total` bytes from `slices` in one call; `None` when the socket is full.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>], total: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(stream) => socket::write(stream, slices, total),
            Self::Unix(stream) => unless_blocked(stream.try_write_vectored(slices)),
        }
    }

    /// Writes bytes from the front of `pieces` in one call and removes them; `None` when the socket
    /// is full.
    pub(crate) fn write_from(&self, pieces: &mut VecDeque<Bytes>) -> io::Result<Option<usize>> {
        let mut slices = [IoSlice::new(&[]); gather::MOST];
        let (filled, total) = gather::gather(pieces.iter().map(|piece| &piece[..]), &mut slices);
        let written = self.write(&slices[..filled], total)?;
        gather::advance(pieces, written.unwrap_or(0), drop);
        Ok(written)
    }
}

/// For handshakes before a stream and answers after it. The pump uses the methods above.
impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Unix(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}

impl AsFd for Detached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Detached {
    /// As [`Socket::peer`].
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok().map(socket::canonical),
            Self::Unix(_) => None,
        }
    }

    /// As [`Socket::reset_on_close`].
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket::reset_on_close(&**socket);
        }
    }

    /// Registers the socket with this thread's runtime.
    pub fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(Seated { stream, seat }) => {
                Socket::Tcp(Seated { stream: TcpStream::from_std(stream)?, seat })
            }
            Self::Unix(Seated { stream, seat }) => {
                Socket::Unix(Seated { stream: UnixStream::from_std(stream)?, seat })
            }
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
