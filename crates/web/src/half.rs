//! An HTTP/1 visitor that has half-closed its connection, and waits for its responses or has left.
//!
//! Both cases look alike: a FIN is sent both for a shutdown of the sending direction and for a
//! close. A program that half-closes after a complete request must get its response (RFC 9112
//! section 9.6). For a program that has left, the target should stop at once. The difference shows
//! when a byte is sent: the system of a program that has left replies with RST, and the next write
//! fails.
//!
//! ```text
//!   visitor ── request, FIN ──> Half ──> Gate ──> hyper: the end is held back until every
//!                                                 response is written
//!   visitor <── "H", "T", … ─── Half             while no byte of the response was written
//!   visitor <── "0", "0", … ─── Half             between two chunks of the response
//!   visitor <── "P/1.1 200" ─── Half <── hyper   without the bytes that were sent ahead
//! ```
//!
//! So the probe consists of bytes that are due anyway: each response begins with `HTTP/`, and a
//! chunk size may begin with zeros (RFC 9112 section 7.1). A few bytes are sent in the first
//! second, and none after that: later bytes of the response act as probes.
//!
//! Nothing can be sent ahead of the rest of a body with `Content-Length`, or of a body that ends
//! with the connection. If such a body pauses for `PATIENCE` after the half-close, the visitor
//! counts as gone. If it continues, its bytes act as probes.
//!
//! Over TLS only `close_notify` is a half-close. FIN without it is a connection error (RFC 8446
//! section 6.1), and the visitor has left.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::gate::{Begun, Progress};

/// The send times of the probe bytes, counted from the half-close. The second byte detects the
/// reset that the first byte caused if the round trip is below 100 ms, and so on.
const STEPS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(450),
    Duration::from_millis(700),
];

/// The time after which a visitor that cannot be probed counts as gone. Its target should notice
/// within 1 s of the half-close, including the delay of the path.
const PATIENCE: Duration = STEPS[STEPS.len() - 1];

/// The interval of connection checks for a visitor that waits longer. TCP keepalive probes the
/// connection, but the error is not read otherwise.
const WATCH: Duration = Duration::from_secs(15);

/// The first bytes of each response, one for each step.
const START: [u8; STEPS.len()] = *b"HTTP/";

/// The connection of a visitor, whose end of input is held back while it waits for responses.
#[derive(Debug)]
pub(crate) struct Half<T> {
    io: T,
    progress: Rc<Progress>,
    end: Option<Box<End>>,
    /// The number of bytes of the next response that were sent ahead.
    ahead: usize,
}

/// The state after the half-close.
#[derive(Debug)]
struct End {
    since: Instant,
    /// The number of probes that were sent.
    step: usize,
    timer: Pin<Box<Sleep>>,
    /// Whether bytes of a response were written since.
    has_written: bool,
}

impl<T> Half<T> {
    pub(crate) const fn new(io: T, progress: Rc<Progress>) -> Self {
        Self { io, progress, end: None, ahead: 0 }
    }

    pub(crate) fn into_inner(self) -> T {
        self.io
    }

    /// Skips the bytes of a response that were sent ahead. `None`: all of `bytes` must be written.
    fn skip(&mut self, bytes: usize) -> Option<usize> {
        let skipped = self.ahead.min(bytes);
        self.ahead -= skipped;
        (skipped > 0).then_some(skipped)
    }

    fn wrote(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Some(end) = &mut self.end {
            end.has_written |= matches!(result, Poll::Ready(Ok(1..)));
        }
        result
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Half<T> {
    /// Completes when the responses are written and the end of input may pass. An error: the
    /// visitor has left.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, progress, end, ahead } = self;
        let end = end.get_or_insert_with(|| Box::new(End::new()));
        let mut io = Pin::new(io);
        loop {
            let Some(begun) = progress.waits(cx) else { return Poll::Ready(Ok(())) };
            // A connection error shows only here, because nothing is read any more.
            ready!(io.as_mut().poll_flush(cx))?;
            let (probe, due) = match (begun, STEPS.get(end.step)) {
                (Begun::Nothing, Some(due)) => (START[*ahead], *due),
                (Begun::Chunks, Some(due)) => (b'0', *due),
                (Begun::Body, Some(_)) if !end.has_written => {
                    ready!(end.poll_timer(PATIENCE, cx));
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                (_, None) | (Begun::Body | Begun::Unsent, _) => {
                    ready!(end.poll_watch(cx));
                    continue;
                }
            };
            ready!(end.poll_timer(due, cx));
            // Pending for a visitor that does not read.
            let written = ready!(io.as_mut().poll_write(cx, &[probe]))?;
            if begun == Begun::Nothing {
                *ahead += written;
            }
            end.has_written = true;
            end.step += 1;
        }
    }
}

impl End {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            step: 0,
            timer: Box::pin(sleep(STEPS[0])),
            has_written: false,
        }
    }

    /// Ready when the connection must be checked.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.timer.as_mut().poll(cx));
        self.timer.as_mut().reset(Instant::now() + WATCH);
        Poll::Ready(())
    }

    /// Ready at the time `due` after the half-close.
    fn poll_timer(&mut self, due: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.since + due;
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(cx)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Half<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
            if buf.filled().len() > before || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_end(cx)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Half<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.skip(bytes.len()) {
            Some(skipped) => Poll::Ready(Ok(skipped)),
            None => {
                let result = Pin::new(&mut self.io).poll_write(cx, bytes);
                self.wrote(result)
            }
        }
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
        match self.skip(slices.iter().map(|slice| slice.len()).sum()) {
            Some(skipped) => Poll::Ready(Ok(skipped)),
            None => {
                let result = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
                self.wrote(result)
            }
        }
    }
}
