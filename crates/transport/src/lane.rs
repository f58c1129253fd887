//! A lane: one ordered byte pipe inside a carrier, and nothing else.

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

/// Bytes that are made while a lane takes them, so that they are still in the core's first cache
/// when the lane works on them.
pub trait Producer {
    /// The most bytes that are left.
    fn size(&self) -> usize;

    /// Writes the next bytes to the front of `room`, which has at least 1 KiB; returns their
    /// number. 0 is the end.
    fn fill(&mut self, room: &mut [u8]) -> usize;
}

/// A change of bytes that have arrived, such as the removal of masks. The change may shorten them.
pub trait Through {
    /// Changes `bytes` in place; returns the number of bytes that are left, at the front.
    fn change(&mut self, bytes: &mut [u8]) -> usize;

    /// Appends what is left of `bytes` to `out`.
    fn append(&mut self, bytes: &[u8], out: &mut BytesMut);
}

/// No change.
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

/// A lane that hands out payload as pages, between heads that it hands out as bytes. Errors and
/// cancel safety are those of [`Lane`].
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
    /// least one. The bytes that the next call of this trait or of [`Lane::poll_write`] takes are
    /// those that follow, as pages or as bytes.
    fn poll_drain(&mut self, cx: &mut Context<'_>, pages: &mut Pages) -> Poll<io::Result<usize>>;
}

/// One ordered, reliable byte pipe.
///
/// Two tasks of one thread share a lane: the reader polls [`Lane::poll_read`], the writer polls
/// [`Lane::poll_write`], [`Lane::poll_flush`] and [`Lane::poll_close`]. An implementation keeps the
/// waker of the last call of each of the two directions, and wakes only that.
///
/// **Cancel safety.** The caller may abandon any method after `Pending` and call it again later
/// with other arguments. No byte is lost or doubled, and accepted bytes stay accepted.
///
/// **Death.** After an error both directions are dead and the error repeats. A clean end of the
/// peer's direction is `Ok(0)` from `poll_read`; the other direction may go on.
pub trait Lane: Send + fmt::Debug {
    /// Appends bytes that have arrived to `buf`, at most its spare capacity. The caller makes the
    /// capacity non-zero. One call makes at most one system call that returns data. `Ok(0)` is the
    /// end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;

    /// Takes bytes from the front of `frames`, which is not empty, and returns their number, at
    /// least one. It pops whole frames and may shorten the front frame. The lane may hold a bounded
    /// number of taken bytes until `poll_flush`.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// As [`Lane::poll_read`], but the bytes go through `through` on their way into `buf`, and the
    /// result is the number of bytes that came out of the lane, not of those left in `buf`. A lane
    /// that copies them anyway lets them through while it copies.
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

    /// Whether [`Lane::poll_write_from`] works. A lane that copies what it writes has it.
    fn takes_from_source(&self) -> bool {
        false
    }

    /// Takes all bytes of `source`, which bounds their number. The lane calls `source` only when it
    /// is ready for all of them; it may hold them until `poll_flush`.
    fn poll_write_from(
        &mut self,
        _cx: &mut Context<'_>,
        _source: &mut dyn Producer,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Hands out payload as pages; `None`: the lane hands out bytes only, for now.
    fn page_source(&mut self) -> Option<&mut dyn PageSource> {
        None
    }

    /// Takes payload as pages; `None`: the lane takes bytes only.
    fn page_sink(&mut self) -> Option<&mut dyn PageSink> {
        None
    }

    /// Ready when the operating system has all taken bytes.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Flushes and ends the sending direction (FIN, `close_notify`). Ready when the operating
    /// system has all bytes.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The peer is authenticated. From now on a transport may hold more of its bytes, and a server
    /// may note the connection for its successor. The default does nothing.
    fn authenticated(&mut self) {}

    /// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`), so that an interactive stream
    /// does not wait behind a bulk stream. A hint; the default ignores it.
    fn set_send_limit(&mut self, _bytes: usize) {}

    /// Bytes of buffers that the lane holds at this moment, for the memory budget. The default is
    /// 0.
    fn held(&self) -> usize {
        0
    }

    /// Leaves the runtime of this thread, so that the lane can move to another worker. The next
    /// call must be [`Lane::attach`]. No byte is lost.
    fn detach(&mut self) -> io::Result<()>;

    /// Joins the runtime of this thread after [`Lane::detach`].
    fn attach(&mut self) -> io::Result<()>;
}
