//! The lane of `wss://` and `ws://`: WebSocket frames around the bytes of the lane below, which is
//! that of `tls://` or `tcp://`.
//!
//! | what happens | what it means here |
//! |---|---|
//! | we close our direction | a Close with 1000; no FIN, a proxy would take it for the end of both |
//! | a Close with 1000, 1001 or no code comes | the clean end of the peer's direction; ours is answered when it ends |
//! | a Close with another code comes | death: the code and the reason are the error |
//! | the connection ends without a Close | death |
//! | the peer breaks a rule | a Close with the code of the rule, death |

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use net::pool;
use tokio::time::{Instant, Sleep, sleep};
use transport::{Death, Lane, Side};

use crate::frame::{Code, Opcode};
use crate::receive::{Control, Notes, Receive};
use crate::send::{MESSAGE, NoRandom, Send};

/// Payload packed per call at most, until the link says otherwise.
const BATCH: usize = 2 * MESSAGE;

/// The most of it. A client copies what it masks, and that should stay in the core's cache until it
/// is written (`examples/ws_bulk.rs`: 0.43 CPU-s per GB, with two messages 0.46). A server copies
/// nothing.
const fn batch_max(side: Side) -> usize {
    match side {
        Side::Client => 4 * MESSAGE,
        Side::Server => 8 * MESSAGE,
    }
}

#[derive(Debug)]
pub(crate) struct WsLane {
    inner: Box<dyn Lane>,
    side: Side,
    receive: Receive,
    send: Send,
    /// Read with the end of the HTTP head.
    leftover: BytesMut,
    batch: usize,
    /// A ping that has no answer yet. A newer one takes its place.
    pong: Option<Control>,
    /// Whether the writer's waker is the one that the lane below keeps: the reader must not take
    /// its place.
    writer_waits: bool,
    pinger: Pinger,
    /// Our Close is queued or sent.
    closing: bool,
    /// The peer's Close has come.
    peer_closed: bool,
    death: Death,
}

impl WsLane {
    pub(crate) fn new(
        inner: Box<dyn Lane>,
        side: Side,
        leftover: BytesMut,
        ping_after: Duration,
    ) -> Self {
        Self {
            inner,
            side,
            receive: Receive::new(side),
            send: Send::new(side),
            leftover,
            batch: BATCH,
            pong: None,
            writer_waits: false,
            pinger: Pinger { after: ping_after, timer: None, has_sent: false },
            closing: false,
            peer_closed: false,
            death: Death::default(),
        }
    }

    /// Dies, and tells the peer why if the socket takes it at once.
    fn complain<T>(&mut self, code: Code, text: &str) -> Poll<io::Result<T>> {
        self.say_close(code, text);
        let text = format!("the peer broke the rules of WebSocket: {text} ({})", code.number());
        self.death.by(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Sends a Close without waiting for anything.
    fn say_close(&mut self, code: Code, reason: &str) {
        if !std::mem::replace(&mut self.closing, true) && self.send.close(code, reason).is_ok() {
            // Whoever waits to write is told of the death by the reader's end.
            let _ = self.poll_drain(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Writes all that is queued, then the answer to a ping, and a ping of ours that is due.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.send.is_empty() {
                ready!(self.inner.poll_write(cx, self.send.queue()))?;
                self.pinger.has_sent = true;
            }
            self.send.written();
            // After a Close nothing may be said (section 5.5.1).
            match self.pong.take() {
                Some(pong) if !self.closing => self.send.control(Opcode::Pong, pong.bytes())?,
                _ => return self.inner.poll_flush(cx),
            }
        }
    }

    /// [`WsLane::poll_drain`] of the writer.
    fn poll_drain_as_writer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let drained = self.poll_drain(cx);
        self.writer_waits = drained.is_pending();
        drained
    }

    /// The reader's part of writing: answers to pings, and pings.
    fn answer(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.writer_waits {
            return Ok(());
        }
        match self.poll_drain(cx) {
            Poll::Ready(done) => done,
            Poll::Pending => Ok(()),
        }
    }

    /// Nothing has come: pings if it is time, and waits.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while self.pinger.poll(cx).is_ready() {
            // What waits to be sent is as good as a ping.
            if self.closing || !self.send.is_empty() {
                continue;
            }
            if let Err(error) = self.send.control(Opcode::Ping, &[]) {
                return self.death.by(error.into());
            }
        }
        match self.answer(cx) {
            Ok(()) => Poll::Pending,
            Err(error) => self.death.by(error),
        }
    }

    /// Hands on what was read behind the HTTP head.
    fn take_leftover(&mut self, buf: &mut BytesMut) -> usize {
        if self.leftover.capacity() == 0 {
            return 0;
        }
        let size = self.leftover.len().min(buf.capacity() - buf.len());
        buf.extend_from_slice(&self.leftover[..size]);
        self.leftover.advance(size);
        if self.leftover.is_empty() {
            pool::give(std::mem::take(&mut self.leftover));
        }
        size
    }

    /// Looks at what came beside payload.
    fn note(&mut self, notes: Notes) -> io::Result<()> {
        if notes.ping.is_some() {
            self.pong = notes.ping;
        }
        let Some(closed) = notes.closed else { return Ok(()) };
        self.peer_closed = true;
        if closed.is_clean() {
            return Ok(());
        }
        let code = closed.code.unwrap_or_default();
        // A peer's words, so in quotes and without what would break a line.
        let text = format!("the peer closed the WebSocket with {code} {:?}", closed.reason);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
    }
}

impl From<NoRandom> for io::Error {
    fn from(error: NoRandom) -> Self {
        Self::other(error)
    }
}

impl Lane for WsLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let before = buf.len();
        loop {
            self.death.check()?;
            if self.peer_closed {
                return Poll::Ready(Ok(0));
            }
            let mut read = self.take_leftover(buf);
            if read == 0 {
                read = match self.inner.poll_read(cx, buf) {
                    Poll::Ready(Ok(read)) => read,
                    Poll::Ready(Err(error)) => return self.death.by(error),
                    Poll::Pending => return self.wait(cx),
                };
                if read == 0 {
                    let text = "the peer ended the connection without a Close";
                    return self.death.by(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
            }
            let mut notes = Notes::default();
            let decoded = self.receive.decode(&mut buf[before..], &mut notes);
            let kept = match decoded {
                Ok(kept) => kept,
                Err(fault) => {
                    buf.truncate(before);
                    return self.complain(fault.code, fault.text);
                }
            };
            buf.truncate(before + kept);
            if let Err(error) = self.note(notes) {
                self.say_close(Code::Normal, "");
                return self.death.by(error);
            }
            if let Err(error) = self.answer(cx) {
                return self.death.by(error);
            }
            if kept > 0 {
                return Poll::Ready(Ok(kept));
            }
            if !self.peer_closed {
                // Nothing but control frames and heads: whoever floods with these has no turn
                // longer than one read.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn poll_write(
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
        let packed = match self.send.pack(frames, self.batch) {
            Ok(packed) => packed,
            Err(error) => return self.death.by(error.into()),
        };
        match self.poll_drain_as_writer(cx) {
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(packed)),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        match ready!(self.poll_drain_as_writer(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.death.by(error),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        if !std::mem::replace(&mut self.closing, true)
            && let Err(error) = self.send.close(Code::Normal, "")
        {
            return self.death.by(error.into());
        }
        ready!(self.poll_flush(cx))?;
        // Both have said it: now the connection may end.
        if self.peer_closed { self.inner.poll_close(cx) } else { Poll::Ready(Ok(())) }
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.batch = bytes.clamp(MESSAGE, batch_max(self.side));
        self.inner.set_send_limit(bytes);
    }

    fn held(&self) -> usize {
        self.inner.held() + self.send.held() + self.leftover.capacity()
    }

    fn detach(&mut self) -> io::Result<()> {
        self.pinger.timer = None;
        self.inner.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.inner.attach()
    }
}

impl Drop for WsLane {
    fn drop(&mut self) {
        // Section 5.5.1: a Close is answered. Ours may not have come to its end before.
        if self.peer_closed && self.death.check().is_ok() {
            self.say_close(Code::Normal, "");
        }
    }
}

/// Says when a ping is due: in any time of `after` in which nothing was sent.
#[derive(Debug)]
struct Pinger {
    after: Duration,
    /// Of the runtime of this thread; `None` until the reader first waits.
    timer: Option<Pin<Box<Sleep>>>,
    has_sent: bool,
}

impl Pinger {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.after)));
        loop {
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(Instant::now() + self.after);
            if !std::mem::take(&mut self.has_sent) {
                return Poll::Ready(());
            }
        }
    }
}
