//! A lane: one ordered byte pipe inside a carrier, and nothing else.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

/// The error that a lane died of. It repeats.
#[derive(Debug, Default)]
pub struct Death(Option<(io::ErrorKind, String)>);

impl Death {
    /// The error again, if there was one.
    pub fn check(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |(kind, text)| Err(io::Error::new(*kind, text.clone())))
    }

    /// Keeps the error and says it.
    pub fn by<T>(&mut self, error: io::Error) -> Poll<io::Result<T>> {
        self.0 = Some((error.kind(), error.to_string()));
        Poll::Ready(Err(error))
    }
}

/// One ordered, reliable byte pipe.
///
/// Two tasks of one thread share a lane: the reader polls [`Lane::poll_read`], the writer polls
/// [`Lane::poll_write`], [`Lane::poll_flush`] and [`Lane::poll_close`]. An implementation keeps the
/// waker of the last call of each of the two directions, and wakes only that.
///
/// **Cancel safety.** Every method may be given up after `Pending` and called again later, with
/// other arguments: no byte is lost or doubled, whatever was accepted stays accepted.
///
/// **Death.** After an error both directions are dead and the error repeats. A clean end of the
/// peer's direction is `Ok(0)` from `poll_read`; the other direction may go on.
pub trait Lane: Send + fmt::Debug {
    /// Appends what has arrived to `buf`, at most its spare capacity, which the caller makes
    /// non-zero. One call makes at most one system call that returns data. `Ok(0)` is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;

    /// Takes bytes from the front of `frames` - whole frames are popped, the front one may be
    /// shortened - and returns how many it took, at least one. The lane may hold taken bytes until
    /// `poll_flush`, but never more than a bounded amount. `frames` is not empty.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// Ready when everything taken was handed to the operating system.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Flushes and ends our direction (FIN, `close_notify`). Ready when handed to the system.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// How many unsent bytes the kernel should hold at most (`TCP_NOTSENT_LOWAT`): less keeps an
    /// interactive stream from waiting behind a bulk one. A hint; the default ignores it.
    fn set_send_limit(&mut self, _bytes: usize) {}

    /// Bytes of buffers that the lane holds right now, for the memory budget. The default has none.
    fn held(&self) -> usize {
        0
    }

    /// Leaves the runtime of this thread, so that the lane can be sent to another worker. Nothing
    /// but [`Lane::attach`] may be called until then. No byte is lost.
    fn detach(&mut self) -> io::Result<()>;

    /// Joins the runtime of this thread after [`Lane::detach`].
    fn attach(&mut self) -> io::Result<()>;
}
