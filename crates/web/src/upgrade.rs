//! A visitor and a target that have switched to another protocol: a byte pipe.
//!
//! A direction has a buffer only while its far end does not take what arrived, so an idle connection
//! has none. What waits is charged to the account of the visitor.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    Silence,
    account::{Account, Hold},
};

/// Bytes that a direction copies at once. A WebSocket carries small messages.
const PIECE: usize = 16 * 1024;
/// Pieces of one direction before other tasks run: 256 KiB, for which a pump of `relay` runs, too.
const PIECES: usize = 16;

thread_local! {
    /// What was read last, during a read and the write after it.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Carries bytes both ways until both directions have ended. The end of one direction leaves the
/// other open; an error ends both, and so does a silence.
pub(crate) async fn pipe(
    mut visitor: impl AsyncRead + AsyncWrite + Unpin,
    mut target: impl AsyncRead + AsyncWrite + Unpin,
    account: &Rc<Account>,
    silence: Silence,
) {
    let (mut up, mut down) = (Direction::new(account), Direction::new(account));
    let mut watch = Watch::new(silence);
    let end = poll_fn(|cx| {
        let up_ended = up.poll(cx, &mut visitor, &mut target)?;
        let down_ended = down.poll(cx, &mut target, &mut visitor)?;
        if up_ended.is_ready() && down_ended.is_ready() {
            return Poll::Ready(Ok(()));
        }
        let moved = std::mem::take(&mut up.moved) | std::mem::take(&mut down.moved);
        let half = up_ended.is_ready() || down_ended.is_ready();
        watch.poll(cx, moved, half)
    });
    if let Err(error) = end.await {
        tracing::debug!(%error, "an upgraded connection broke");
    }
}

/// One direction of a pipe.
struct Direction {
    /// Bytes that the far end has not taken.
    rest: Bytes,
    held: Hold,
    moved: bool,
    unflushed: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The near end has ended its direction, and the far end is not told yet.
    Ending,
    Ended,
}

impl Direction {
    fn new(account: &Rc<Account>) -> Self {
        let held = account.hold(0);
        Self { rest: Bytes::new(), held, moved: false, unflushed: false, state: State::Open }
    }

    /// Moves bytes until one end does not go on. Ready once the direction has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        for _ in 0..PIECES {
            if self.state == State::Ended {
                return Poll::Ready(Ok(()));
            }
            ready!(self.write_rest(cx, to))?;
            if self.state == State::Ending {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.state = State::Ended;
                continue;
            }
            let moved = self.step(cx, from, to);
            if moved.is_pending() && self.unflushed {
                ready!(Pin::new(&mut *to).poll_flush(cx))?;
                self.unflushed = false;
            }
            ready!(moved)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write_rest(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest.advance(written);
            (self.moved, self.unflushed) = (true, true);
            if self.rest.is_empty() {
                self.rest = Bytes::new();
                self.held.set(0);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes what was read.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        READ.with_borrow_mut(|bytes| {
            bytes.resize(PIECE, 0);
            let mut piece = ReadBuf::new(bytes);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut piece))?;
            let mut read = piece.filled();
            if read.is_empty() {
                self.state = State::Ending;
                return Poll::Ready(Ok(()));
            }
            self.moved = true;
            while !read.is_empty() {
                let Poll::Ready(written) = Pin::new(&mut *to).poll_write(cx, read) else {
                    self.rest = Bytes::copy_from_slice(read);
                    self.held.set(read.len() as u64);
                    return Poll::Ready(Ok(()));
                };
                let written = written?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.unflushed = true;
                read = &read[written..];
            }
            Poll::Ready(Ok(()))
        })
    }
}

/// Ends a pipe in which no byte moves.
struct Watch {
    silence: Silence,
    timer: Option<Pin<Box<Sleep>>>,
    since: Instant,
}

impl Watch {
    fn new(silence: Silence) -> Self {
        Self { silence, timer: None, since: Instant::now() }
    }

    fn poll(&mut self, cx: &mut Context<'_>, moved: bool, half: bool) -> Poll<io::Result<()>> {
        let Silence { idle, half_close } = self.silence;
        let time = if half && half_close > Duration::ZERO { half_close } else { idle };
        if time == Duration::ZERO {
            return Poll::Pending;
        }
        let now = Instant::now();
        if moved {
            self.since = now;
        }
        let due = self.since + time;
        if now >= due {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        // A timer that fires early is set anew: to move it for each piece would cost more.
        if timer.deadline() > due || timer.is_elapsed() {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// The stream of a visitor of HTTP/2, of whose bytes h2 keeps those that nobody has read.
#[derive(Debug)]
pub(crate) struct Consumed<T> {
    io: T,
    account: Rc<Account>,
}

impl<T> Consumed<T> {
    pub(crate) fn new(io: T, account: &Rc<Account>) -> Self {
        Self { io, account: Rc::clone(account) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Consumed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.account.consumed((buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Consumed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A stream some of whose bytes were read already.
#[derive(Debug)]
pub struct Replayed<T> {
    first: Bytes,
    io: T,
}

impl<T> Replayed<T> {
    /// A stream that begins with the bytes `first`.
    #[must_use]
    pub const fn new(first: Bytes, io: T) -> Self {
        Self { first, io }
    }

    /// The stream whose further bytes are read.
    #[must_use]
    pub const fn io(&self) -> &T {
        &self.io
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Replayed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..length]);
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Replayed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Without it, hyper copies the body of each answer behind its head.
    #[tokio::test]
    async fn slices_are_written_in_one_call() {
        let (near, mut far) = duplex(64);
        let mut replayed = Replayed::new(Bytes::from_static(b"first "), near);
        assert!(replayed.is_write_vectored());
        let slices = [io::IoSlice::new(b"head "), io::IoSlice::new(b"body")];
        assert_eq!(replayed.write_vectored(&slices).await.unwrap(), 9);
        far.write_all(b"then").await.unwrap();
        far.shutdown().await.unwrap();
        let mut read = String::new();
        replayed.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first then");
        drop(replayed);
        let mut written = String::new();
        far.read_to_string(&mut written).await.unwrap();
        assert_eq!(written, "head body");
    }
}
