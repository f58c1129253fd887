//! Payload as pages, where no byte is masked: from the server to the client. A payload of pages is
//! a message of its own.
//!
//! ```text
//!   [head][frames before the pages][head][pages]
//!   '------- one write -----------------''splice'
//! ```

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::pages::{self, Pages};
use transport::{PageSink, PageSource};

use super::WsLane;
use crate::frame::Opcode;
use crate::send::NoRandom;

/// Reads without payload in one call: the head of a message, and control frames before it.
const READS: usize = 16;

/// The capacity for heads between pages.
const HEADS: usize = 128;

impl WsLane {
    /// Queues at most `limit` bytes from the front of `frames`; returns their number. The first of
    /// them may belong to a message that was begun as pages.
    pub(super) fn pack(
        &mut self,
        frames: &mut VecDeque<Bytes>,
        limit: usize,
    ) -> Result<usize, NoRandom> {
        let continued = self.send.go_on(frames, self.owed.min(limit));
        self.owed -= continued;
        if self.owed > 0 || continued == limit {
            return Ok(continued);
        }
        Ok(continued + self.send.pack(frames, limit - continued)?)
    }

    /// Writes the queued frames before pages.
    fn poll_write_heads(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.send.is_empty() {
            let Some(inner) = self.inner.page_sink() else { break };
            ready!(inner.poll_write_before(cx, self.send.queue()))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl PageSink for WsLane {
    fn poll_write_before(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Err(error) = ready!(self.poll_drain_as_writer(cx)) {
            return self.death.by(error);
        }
        // The frames are written with the head of the pages, or by the next flush.
        match self.pack(frames, self.batch) {
            Ok(packed) => Poll::Ready(Ok(packed)),
            Err(error) => self.death.by(error.into()),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, pages: &mut Pages) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.owed == 0 {
            self.owed = pages.len();
            self.send.head(Opcode::Binary, self.owed);
        }
        if pages.len() > self.owed {
            return self.death.by(io::Error::other("these pages are not the rest of a message"));
        }
        let heads = self.poll_write_heads(cx);
        self.writer_waits = heads.is_pending();
        if let Err(error) = ready!(heads) {
            return self.death.by(error);
        }
        let Some(inner) = self.inner.page_sink() else {
            return self.death.by(io::ErrorKind::Unsupported.into());
        };
        let drained = inner.poll_drain(cx, pages);
        self.writer_waits = drained.is_pending();
        match ready!(drained) {
            Ok(n) => {
                self.owed = self.owed.saturating_sub(n);
                self.pinger.has_sent = true;
                Poll::Ready(Ok(n))
            }
            // The rest follows as bytes.
            Err(error) if pages::is_refusal(&error) => Poll::Ready(Err(error)),
            Err(error) => self.death.by(error),
        }
    }
}

impl PageSource for WsLane {
    fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        for _ in 0..READS {
            match ready!(self.poll_step(cx, buf, Some(limit)))? {
                Some(0) => {}
                Some(got) => return Poll::Ready(Ok(got)),
                None => return Poll::Ready(Ok(0)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let mut reads = 0;
        while self.receive.plain_left() == 0 {
            if reads == READS {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            reads += 1;
            let mut heads = std::mem::take(&mut self.heads);
            heads.reserve(HEADS);
            let step = self.poll_step(cx, &mut heads, Some(0));
            heads.clear();
            self.heads = heads;
            if ready!(step)?.is_none() {
                return Poll::Ready(Ok(0));
            }
        }
        let limit = limit.min(self.receive.plain_left());
        let Some(inner) = self.inner.page_source() else {
            return self.death.by(io::ErrorKind::Unsupported.into());
        };
        match inner.poll_fill(cx, pages, limit) {
            Poll::Ready(Ok(0)) => self.ended_early(),
            Poll::Ready(Ok(n)) => {
                self.receive.passed(n);
                Poll::Ready(Ok(n))
            }
            Poll::Ready(Err(error)) if pages::is_refusal(&error) => Poll::Ready(Err(error)),
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Pending => self.wait(cx),
        }
    }
}
