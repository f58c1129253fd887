//! The lane of `wss://` and `ws://`: WebSocket frames around the bytes of the lane below, which is
//! the lane of `tls://` or `tcp://`.
//!
//! | event | effect on the lane |
//! |---|---|
//! | we close our direction | we send a Close with 1000 and no FIN, which a proxy would take for the end of both directions |
//! | a Close with 1000, 1001 or no code arrives | the peer's direction ends cleanly; our Close follows when our direction ends |
//! | a Close with another code arrives | the lane dies; the code and the reason are the error |
//! | the connection ends without a Close | the lane dies |
//! | the peer breaks a rule | we send a Close with the code of the rule, and the lane dies |

mod paged;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use net::pool;
use tokio::time::{Instant, Sleep, sleep};
use transport::{Death, Lane, PageSink, PageSource, Side, Through};

use crate::frame::{Code, Opcode};
use crate::receive::{Control, Fault, Notes, Receive};
use crate::send::{MESSAGE, NoRandom, Send, drop_empty};

/// The limit of payload packed per call, until the link sets another limit.
const BATCH: usize = 2 * MESSAGE;

/// The largest limit that the link can set. A client copies the payload to mask it, and the copy
/// should stay in the core's cache until it is written (`examples/ws_bulk.rs`: 0.235 CPU-s per GB,
/// 0.32 with one message, 0.26 with two, 0.24 with eight). A server copies nothing.
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
    /// The bytes that were read together with the end of the HTTP head.
    leftover: BytesMut,
    batch: usize,
    /// Payload bytes that are to follow of a message of pages. Nothing else may be written before.
    owed: usize,
    /// Where heads arrive between pages.
    heads: BytesMut,
    /// The latest ping that has no answer yet. A newer ping replaces it.
    pong: Option<Control>,
    /// Whether the lane below keeps the writer's waker. The reader must not replace it.
    writer_waits: bool,
    pinger: Pinger,
    /// Our Close is queued or sent.
    closing: bool,
    /// The peer's Close has arrived.
    peer_closed: bool,
    death: Death,
}

impl WsLane {
    pub(crate) fn new(
        inner: Box<dyn Lane>,
        side: Side,
        mut leftover: BytesMut,
        ping_after: Duration,
    ) -> Self {
        if leftover.is_empty() {
            pool::give(std::mem::take(&mut leftover));
        }
        Self {
            inner,
            side,
            receive: Receive::new(side),
            send: Send::new(side),
            leftover,
            batch: BATCH,
            owed: 0,
            heads: BytesMut::new(),
            pong: None,
            writer_waits: false,
            pinger: Pinger { after: ping_after, timer: None, has_sent: false },
            closing: false,
            peer_closed: false,
            death: Death::default(),
        }
    }

    /// Ends the lane with an error. The peer gets the reason in a Close if the socket takes it at
    /// once.
    fn complain<T>(&mut self, code: Code, text: &str) -> Poll<io::Result<T>> {
        self.say_close(code, text);
        let text = format!("the peer broke the rules of WebSocket: {text} ({})", code.number());
        self.death.by(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Sends a Close without waiting.
    fn say_close(&mut self, code: Code, reason: &str) {
        let is_first = !std::mem::replace(&mut self.closing, true);
        if is_first && self.owed == 0 && self.send.close(code, reason).is_ok() {
            // The reader reports the death, which wakes a waiting writer.
            let _ = self.poll_drain(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Writes all queued frames, then the answer to the latest ping, and a ping of ours that is
    /// due.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.send.is_empty() {
                ready!(self.inner.poll_write(cx, self.send.queue()))?;
                self.pinger.has_sent = true;
            }
            self.send.written();
            if self.owed > 0 {
                return self.inner.poll_flush(cx);
            }
            // No frame may follow a Close (section 5.5.1).
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

    /// Masks messages while the lane below takes them.
    fn poll_write_masked(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let Some(mut masked) = self.send.masked(frames, self.batch) else {
            return Poll::Ready(Ok(0));
        };
        let wanted = masked.left();
        let taken = self.inner.poll_write_from(cx, &mut masked);
        let (left, outcome) = (masked.left(), masked.outcome());
        self.writer_waits = taken.is_pending();
        if let Err(error) = ready!(taken).and_then(|()| Ok(outcome?)) {
            return self.death.by(error);
        }
        self.pinger.has_sent = true;
        drop_empty(frames);
        match self.poll_drain_as_writer(cx) {
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(wanted - left)),
        }
    }

    /// The reader's share of writing: answers to pings, and our own pings.
    fn answer(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.writer_waits {
            return Ok(());
        }
        match self.poll_drain(cx) {
            Poll::Ready(done) => done,
            Poll::Pending => Ok(()),
        }
    }

    /// Waits for input after the lane below had none. Queues a ping when a ping is due.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        while self.pinger.poll(cx).is_ready() {
            // A frame that waits to be sent serves as the ping.
            if self.closing || self.owed > 0 || !self.send.is_empty() {
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

    /// Handles the control frames that arrived with the payload.
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
        // The reason is text of the peer, so it is quoted, and characters that break a line are
        // escaped.
        let text = format!("the peer closed the WebSocket with {code} {:?}", closed.reason);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
    }
}

/// Moves bytes that were read with the HTTP head through `unframing` into `buf`.
fn take_leftover(leftover: &mut BytesMut, buf: &mut BytesMut, unframing: &mut Unframing<'_>) {
    let size = leftover.len().min(buf.capacity() - buf.len());
    unframing.append(&leftover[..size], buf);
    leftover.advance(size);
    if leftover.is_empty() {
        pool::give(std::mem::take(leftover));
    }
}

/// The incoming half while bytes arrive through the lane below.
struct Unframing<'a> {
    receive: &'a mut Receive,
    notes: Notes,
    /// The first rule that the peer broke. Later bytes have no meaning.
    fault: Option<Fault>,
}

impl Through for Unframing<'_> {
    fn change(&mut self, bytes: &mut [u8]) -> usize {
        if self.fault.is_some() {
            return 0;
        }
        self.receive.decode(bytes, &mut self.notes).unwrap_or_else(|fault| {
            self.fault = Some(fault);
            0
        })
    }

    fn append(&mut self, bytes: &[u8], out: &mut BytesMut) {
        if self.fault.is_none() {
            self.fault = self.receive.decode_into(bytes, out, &mut self.notes).err();
        }
    }
}

impl From<NoRandom> for io::Error {
    fn from(error: NoRandom) -> Self {
        Self::other(error)
    }
}

impl WsLane {
    /// Makes one read of the lane below: of all that has arrived, or of so much that at most
    /// `limit` bytes of payload can be in it. Returns the number of bytes of payload that it
    /// appended to `buf`; `None`: the peer's direction has ended.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: Option<usize>,
    ) -> Poll<io::Result<Option<usize>>> {
        let before = buf.len();
        self.death.check()?;
        if self.peer_closed {
            return Poll::Ready(Ok(None));
        }
        let needed = self.receive.needed();
        let mut unframing =
            Unframing { receive: &mut self.receive, notes: Notes::default(), fault: None };
        if self.leftover.is_empty() {
            let read = match (limit, self.inner.page_source()) {
                (Some(limit), Some(inner)) => {
                    let read = inner.poll_read_at_most(cx, buf, limit + needed);
                    let left = unframing.change(&mut buf[before..]);
                    buf.truncate(before + left);
                    read
                }
                _ => self.inner.poll_read_through(cx, buf, &mut unframing),
            };
            match read {
                Poll::Ready(Ok(0)) => return self.ended_early(),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return self.death.by(error),
                Poll::Pending => return self.wait(cx),
            }
        } else {
            take_leftover(&mut self.leftover, buf, &mut unframing);
        }
        let Unframing { notes, fault, .. } = unframing;
        if let Some(fault) = fault {
            buf.truncate(before);
            return self.complain(fault.code, fault.text);
        }
        if let Err(error) = self.note(notes) {
            self.say_close(Code::Normal, "");
            return self.death.by(error);
        }
        if let Err(error) = self.answer(cx) {
            return self.death.by(error);
        }
        let got = buf.len() - before;
        Poll::Ready(Ok((got > 0 || !self.peer_closed).then_some(got)))
    }

    fn ended_early<T>(&mut self) -> Poll<io::Result<T>> {
        let text = "the peer ended the connection without a Close";
        self.death.by(io::Error::new(io::ErrorKind::UnexpectedEof, text))
    }
}

impl Lane for WsLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        match ready!(self.poll_step(cx, buf, None))? {
            // The read held only control frames and heads. Yielding here limits the turn of a peer
            // that floods with them to one read.
            Some(0) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(got) => Poll::Ready(Ok(got)),
            None => Poll::Ready(Ok(0)),
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
        if self.inner.takes_from_source() && self.side == Side::Client {
            return self.poll_write_masked(cx, frames);
        }
        let packed = match self.pack(frames, self.batch) {
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
        if self.owed > 0 {
            // A Close would be taken for a part of the message.
            return self.inner.poll_close(cx);
        }
        if !std::mem::replace(&mut self.closing, true)
            && let Err(error) = self.send.close(Code::Normal, "")
        {
            return self.death.by(error.into());
        }
        ready!(self.poll_flush(cx))?;
        // Both ends have sent a Close, so the connection may end.
        if self.peer_closed { self.inner.poll_close(cx) } else { Poll::Ready(Ok(())) }
    }

    fn page_source(&mut self) -> Option<&mut dyn PageSource> {
        // A client's bytes are masked, so a server's lane hands out no pages.
        let is_plain = self.side == Side::Client && self.leftover.is_empty();
        (is_plain && self.inner.page_source().is_some()).then_some(self)
    }

    fn page_sink(&mut self) -> Option<&mut dyn PageSink> {
        let is_plain = self.side == Side::Server && self.inner.page_sink().is_some();
        is_plain.then_some(self)
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.batch = bytes.clamp(MESSAGE, batch_max(self.side));
        self.inner.set_send_limit(bytes);
    }

    fn held(&self) -> usize {
        self.inner.held() + self.send.held() + self.leftover.capacity() + self.heads.capacity()
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
        // Section 5.5.1: a Close must be answered, and our direction may not have ended before.
        if self.peer_closed && self.death.check().is_ok() {
            self.say_close(Code::Normal, "");
        }
    }
}

/// Tells when a ping is due: after each period of `after` in which this end sent nothing.
#[derive(Debug)]
struct Pinger {
    after: Duration,
    /// A timer of this thread's runtime; `None` until the reader first waits.
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
