//! A lane: one ordered byte pipe inside a carrier.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::pages::Pages;

/// The error that ended a lane. Each later call returns it again.
#[derive(Debug, Default)]
pub struct Death(Option<(io::ErrorKind, String)>);

impl Death {
    /// Returns the error that ended the lane, if any.
    pub fn check(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |(kind, text)| Err(io::Error::new(*kind, text.clone())))
    }

    /// Stores the error and returns it.
    pub fn by<T>(&mut self, error: io::Error) -> Poll<io::Result<T>> {
        self.0 = Some((error.kind(), error.to_string()));
        Poll::Ready(Err(error))
    }
}

/// Bytes that are produced while a lane takes them, so that they are still in the core's L1 cache
/// when the lane processes them.
pub trait Producer {
    /// The maximum number of remaining bytes.
    fn size(&self) -> usize;

    /// Writes the next bytes to the front of `room`, which has at least 1 KiB. Returns their
    /// number; 0 is the end.
    fn fill(&mut self, room: &mut [u8]) -> usize;
}

/// A transformation of received bytes, such as unmasking. It may shorten them.
pub trait Through {
    /// Transforms `bytes` in place. Returns the number of remaining bytes, at the front.
    fn change(&mut self, bytes: &mut [u8]) -> usize;

    /// Appends the transformed `bytes` to `out`.
    fn append(&mut self, bytes: &[u8], out: &mut BytesMut);
}

/// The identity transformation.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged;

impl Through for Unchanged {
    fn change(&mut self, bytes: &mut [u8]) -> usize {
        bytes.len()
    }

    fn append(&mut self, bytes: &[u8], out: &mut BytesMut) {
        out.extend_from_slice(bytes);
    }
}

/// A lane that returns payload as pages, between headers as bytes. Errors and cancel safety are
/// those of [`Lane`].
pub trait PageSource {
    /// As [`Lane::poll_read`], at most `limit` bytes.
    fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>>;

    /// As [`Lane::poll_read`], at most `limit` bytes into an empty pipe.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
        limit: usize,
    ) -> Poll<io::Result<usize>>;
}

/// A lane that takes payload as pages between frames of bytes. Errors and cancel safety are those
/// of [`Lane`].
pub trait PageSink {
    /// As [`Lane::poll_write`], before pages: the lane or the system may wait for the pages to fill
    /// a segment.
    fn poll_write_before(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// Takes bytes from the front of `pages`, which is not empty, and returns their number, at
    /// least one. The next call of this trait or of [`Lane::poll_write`] must continue with the
    /// following bytes, as pages or as bytes.
    fn poll_drain(&mut self, cx: &mut Context<'_>, pages: &mut Pages) -> Poll<io::Result<usize>>;
}

/// One ordered, reliable byte pipe.
///
/// Two tasks of one thread share a lane: the reader polls [`Lane::poll_read`], the writer polls
/// [`Lane::poll_write`], [`Lane::poll_flush`] and [`Lane::poll_close`]. An implementation stores
/// the waker of the last call per direction, and wakes only that.
///
/// **Cancel safety.** The caller may abandon any method after `Pending` and call it again later
/// with other arguments. No byte is lost or duplicated, and accepted bytes stay accepted.
///
/// **Failure.** After an error both directions have failed, and the error repeats. A clean end of
/// the peer's direction is `Ok(0)` from `poll_read`; the other direction may continue.
pub trait Lane: Send + fmt::Debug {
    /// Appends received bytes to `buf`, at most its spare capacity, which must not be zero. One
    /// call makes at most one system call that returns data. `Ok(0)` is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;

    /// Takes bytes from the front of `frames`, which is not empty, and returns their number, at
    /// least one. It pops whole frames and may shorten the front frame. The lane may buffer a
    /// bounded number of taken bytes until `poll_flush`.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// As [`Lane::poll_read`], but transforms the bytes by `through`. The result is the number of
    /// bytes read from the lane, not of those appended to `buf`. A lane that copies the bytes
    /// anyway transforms them during the copy.
    fn poll_read_through(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        through: &mut dyn Through,
    ) -> Poll<io::Result<usize>> {
        let before = buf.len();
        let read = ready!(self.poll_read(cx, buf))?;
        let left = through.change(&mut buf[before..]);
        buf.truncate(before + left);
        Poll::Ready(Ok(read))
    }

    /// Whether [`Lane::poll_write_from`] is supported, as it is by a lane that copies written
    /// bytes.
    fn takes_from_source(&self) -> bool {
        false
    }

    /// Takes all bytes of `source`, which limits their number. The lane calls `source` only when it
    /// is ready for all bytes; it may buffer them until `poll_flush`.
    fn poll_write_from(
        &mut self,
        _cx: &mut Context<'_>,
        _source: &mut dyn Producer,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Returns the source of payload as pages; `None`: the lane currently returns only bytes.
    fn page_source(&mut self) -> Option<&mut dyn PageSource> {
        None
    }

    /// Returns the sink for payload as pages; `None`: the lane takes only bytes.
    fn page_sink(&mut self) -> Option<&mut dyn PageSink> {
        None
    }

    /// Flushes the lane. Ready when the operating system has all taken bytes.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Flushes and ends the sending direction (FIN, `close_notify`). Ready when the operating
    /// system has all bytes.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Called when the peer is authenticated. From now on a transport may buffer more of its bytes,
    /// and a server may record the connection for a handover. The default does nothing.
    fn authenticated(&mut self) {}

    /// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`), so that an interactive stream
    /// does not wait behind a bulk stream. A hint; the default ignores it.
    fn set_send_limit(&mut self, _bytes: usize) {}

    /// The current size of the lane's buffers in bytes, for the memory budget. The default is 0.
    fn held(&self) -> usize {
        0
    }

    /// Detaches the lane from the runtime of this thread, so that it can move to another worker.
    /// The next call must be [`Lane::attach`]. No byte is lost.
    fn detach(&mut self) -> io::Result<()>;

    /// Attaches the lane to the runtime of this thread after [`Lane::detach`].
    fn attach(&mut self) -> io::Result<()>;
}
