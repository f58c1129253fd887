//! The end at which a pump reads and writes: a socket, or a byte stream above a socket. The type is
//! an enum instead of a trait object, so that a system call on a socket costs only one more
//! predictable branch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use net::pages::{self, Pages};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;

use crate::{Seated, Socket};

/// An end of a pump.
#[derive(Debug)]
pub(crate) enum ByteEnd {
    Socket(Socket),
    Layered(Layered),
    /// Either of the others, with a spectator of its bytes.
    Observed(Box<Observed>),
}

/// Observes the bytes that pass between a target and the stream of a visitor. It neither changes
/// nor delays them, and is dropped with the connection to the target.
pub trait Spectator {
    /// Called before bytes are written to the target; [`Self::taken`] reports which of them it
    /// takes. A time measurement begins here: the target may answer before the writer runs again.
    fn offered(&mut self) {}

    /// The target has taken these bytes.
    fn taken(&mut self, bytes: &[u8]);

    /// The target has sent these bytes.
    fn sent(&mut self, bytes: &[u8]);
}

/// An end with a spectator of its bytes. The bytes pass through memory, never as pages.
pub(crate) struct Observed {
    end: ByteEnd,
    spectator: RefCell<Box<dyn Spectator>>,
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("end", &self.end).finish_non_exhaustive()
    }
}

impl From<Socket> for ByteEnd {
    fn from(socket: Socket) -> Self {
        Self::Socket(socket)
    }
}

impl From<Layered> for ByteEnd {
    fn from(stream: Layered) -> Self {
        Self::Layered(stream)
    }
}

impl ByteEnd {
    /// The same end, with its bytes observed by `spectator`.
    pub(crate) fn observed(self, spectator: Box<dyn Spectator>) -> Self {
        Self::Observed(Box::new(Observed { end: self, spectator: RefCell::new(spectator) }))
    }

    /// The socket, if there is no layer above it.
    pub(crate) const fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Layered(_) => None,
            Self::Observed(observed) => observed.end.socket(),
        }
    }

    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => socket.poll_read_ready(cx),
            Self::Layered(_) => Poll::Ready(Ok(())),
            Self::Observed(observed) => observed.end.poll_read_ready(cx),
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => socket.poll_write_ready(cx),
            Self::Layered(_) => Poll::Ready(Ok(())),
            Self::Observed(observed) => observed.end.poll_write_ready(cx),
        }
    }

    /// Reads at most `limit` bytes into the spare capacity of `buf`; `None`: the caller must poll
    /// the readiness again.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        match self {
            Self::Socket(socket) => Poll::Ready(socket.read(buf, limit)),
            Self::Layered(stream) => stream.poll_read(cx, buf, limit).map_ok(Some),
            Self::Observed(observed) => {
                let before = buf.len();
                let read = ready!(observed.end.poll_read(cx, buf, limit))?;
                let bytes = buf.get(before..).unwrap_or_default();
                if !bytes.is_empty() {
                    observed.spectator.borrow_mut().sent(bytes);
                }
                Poll::Ready(Ok(read))
            }
        }
    }

    /// Writes bytes of `slices`, which have `total` bytes; `None`: the caller must poll the
    /// readiness again.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        total: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        match self {
            Self::Socket(socket) => Poll::Ready(socket.write(slices, total)),
            Self::Layered(stream) => stream.poll_write(cx, slices).map_ok(Some),
            Self::Observed(observed) => {
                observed.spectator.borrow_mut().offered();
                let written = ready!(observed.end.poll_write(cx, slices, total))?;
                let (mut left, mut spectator) =
                    (written.unwrap_or(0), observed.spectator.borrow_mut());
                for slice in slices {
                    let part = slice.get(..left.min(slice.len())).unwrap_or_default();
                    if part.is_empty() {
                        break;
                    }
                    left -= part.len();
                    spectator.taken(part);
                }
                Poll::Ready(Ok(written))
            }
        }
    }

    /// Writes bytes from the front of `pieces` in one call and removes them, outside of the task
    /// of the pump; `None` when that is not possible.
    pub(super) fn write_from(&self, pieces: &mut VecDeque<Bytes>) -> io::Result<Option<usize>> {
        match self {
            Self::Socket(socket) => socket.write_from(pieces),
            // A write that can be pending needs a task.
            Self::Layered(_) | Self::Observed(_) => Ok(None),
        }
    }

    /// The socket whose bytes may move as pages.
    pub(super) const fn page_socket(&self) -> Option<&Seated<TcpStream>> {
        match self {
            Self::Socket(Socket::Tcp(socket)) => Some(socket),
            Self::Socket(Socket::Unix(_)) | Self::Layered(_) | Self::Observed(_) => None,
        }
    }

    /// Writes at most `most` bytes of pages, as many as the socket takes. Returns their number;
    /// `None`: the end or the system takes only bytes.
    pub(super) fn write_pages(&self, pages: &mut Pages, most: usize) -> io::Result<Option<usize>> {
        let Some(socket) = self.page_socket() else { return Ok(None) };
        match pages.drain(socket, most) {
            Ok(written) => Ok(Some(written)),
            Err(error) if pages::is_refusal(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Flushes written bytes that a layer has buffered.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Layered(stream) => stream.poll_flush(cx),
            Self::Observed(observed) => observed.end.poll_flush(cx),
        }
    }

    /// Whether no layer has buffered written bytes.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Layered(stream) => !stream.0.borrow().is_unflushed,
            Self::Observed(observed) => observed.end.is_flushed(),
        }
    }

    /// Makes the close a reset, if the end supports that.
    pub(crate) fn reset_on_close(&self) {
        match self {
            Self::Socket(socket) => socket.reset_on_close(),
            Self::Layered(stream) => {
                if let Some(reset) = &stream.0.borrow().reset {
                    reset();
                }
            }
            Self::Observed(observed) => observed.end.reset_on_close(),
        }
    }

    /// Ends our direction. An error means that the end has failed, and the next read returns the
    /// error.
    pub(super) fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Socket(socket) => {
                socket.finish();
                Poll::Ready(())
            }
            Self::Layered(stream) => stream.poll_finish(cx),
            Self::Observed(observed) => observed.end.poll_finish(cx),
        }
    }

    /// Waits for an error.
    pub(super) async fn failed(&self) {
        match self {
            Self::Socket(socket) => socket.failed().await,
            // Only a read or a write reports the error: a visitor that disconnects while its stream
            // waits for credit is noticed only when its target reads or ends.
            Self::Layered(_) => std::future::pending().await,
            Self::Observed(observed) => match observed.end.socket() {
                Some(socket) => socket.failed().await,
                None => std::future::pending().await,
            },
        }
    }
}

/// A byte stream above a socket: TLS, a connection that HTTP has switched to another protocol, a
/// stream of HTTP/2, a pipe in memory.
pub struct Layered(RefCell<State>);

struct State {
    io: Pin<Box<dyn ByteStream>>,
    /// Bytes to write before all others.
    first: Bytes,
    /// The layer may have buffered bytes.
    is_unflushed: bool,
    /// Makes the close of the socket below a reset.
    reset: Option<Box<dyn Fn()>>,
}

trait ByteStream: AsyncRead + AsyncWrite {}

impl<T: AsyncRead + AsyncWrite> ByteStream for T {}

impl Layered {
    /// The stream `io`, to which the bytes `first` are written before all others.
    #[must_use]
    pub fn new(io: impl AsyncRead + AsyncWrite + 'static, first: Bytes) -> Self {
        let is_unflushed = !first.is_empty();
        Self(RefCell::new(State { io: Box::pin(io), first, is_unflushed, reset: None }))
    }

    /// Calls `reset` before a close that aborts the connection, so that the socket below is reset.
    #[must_use]
    pub fn cut_by(mut self, reset: impl Fn() + 'static) -> Self {
        self.0.get_mut().reset = Some(Box::new(reset));
        self
    }

    /// Writes `request` and reads the answer until it contains a whole line, ends, or has `most`
    /// bytes. The caller bounds the time.
    ///
    /// # Errors
    /// The error of the stream below.
    pub async fn ask(self, request: &[u8], most: usize) -> io::Result<BytesMut> {
        let mut rest = request;
        while !rest.is_empty() {
            let written = poll_fn(|cx| self.poll_write(cx, &[IoSlice::new(rest)])).await?;
            rest = rest.get(written..).unwrap_or_default();
        }
        poll_fn(|cx| self.poll_flush(cx)).await?;
        let mut answer = BytesMut::with_capacity(most);
        while answer.len() < most && !answer.contains(&b'\n') {
            let left = most - answer.len();
            answer.reserve(left);
            if poll_fn(|cx| self.poll_read(cx, &mut answer, left)).await? == 0 {
                break;
            }
        }
        Ok(answer)
    }

    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let limit = limit.min(buf.spare_capacity_mut().len());
        let io = &mut self.0.borrow_mut().io;
        pin!(io.read_buf(&mut buf.limit(limit))).poll(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.borrow_mut();
        ready!(state.poll_first(cx))?;
        let written = ready!(state.io.as_mut().poll_write_vectored(cx, slices))?;
        state.is_unflushed = true;
        non_zero(written)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        if state.is_unflushed {
            ready!(state.poll_first(cx))?;
            ready!(state.io.as_mut().poll_flush(cx))?;
            state.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.0.borrow_mut();
        if ready!(state.poll_first(cx)).is_ok() {
            let _ = ready!(state.io.as_mut().poll_shutdown(cx));
        }
        Poll::Ready(())
    }
}

impl State {
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.first.is_empty() {
            let written = ready!(self.io.as_mut().poll_write(cx, &self.first))?;
            self.first.advance(ready!(non_zero(written))?);
        }
        // Frees the memory.
        self.first = Bytes::new();
        Poll::Ready(Ok(()))
    }
}

fn non_zero(written: usize) -> Poll<io::Result<usize>> {
    let is_stuck = written == 0;
    Poll::Ready(if is_stuck { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) })
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").finish_non_exhaustive()
    }
}
