//! The stream to a target over HTTP/1.1 under hyper, and its state while hyper owns it: the
//! boundaries of responses, the memory, and the reason why the target broke the connection.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt, io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, BytesMut};
use h1::{Answers, Progress, Rest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    Place, Stream,
    account::{Account, Hold, SMALL, SWITCHED, UPSTREAM},
    gate::poll_bounded,
};

/// The approximate maximum size of hyper's reads, in bytes.
const READ_BUFFER: usize = 128 * 1024;

/// The state of a connection's stream while hyper owns it.
pub(crate) struct WireState {
    /// Whether a byte of a response has arrived since the last request was sent.
    pub(crate) received: Cell<bool>,
    /// Whether the body of the request is not completely sent.
    pub(crate) sending: Cell<bool>,
    /// Whether no request is in progress.
    pub(crate) is_idle: Cell<bool>,
    /// Whether the request in progress is retried on another connection if this one breaks.
    repeats: Cell<bool>,
    /// Whether a request has requested a protocol switch.
    pub(crate) asked_to_switch: Cell<bool>,
    /// Whether the target accepts no more bytes.
    deaf: Cell<bool>,
    failure: Failure,
    /// The place to which the connection leads, once the target has responded.
    pub(crate) place: Cell<Option<Place>>,
    /// The memory charge of the connection, and its base without the buffers below.
    hold: Hold,
    base: u64,
    /// Whether this is a request over HTTP/2, of whose body h2 takes one piece at a time.
    is_stream: bool,
    /// The size of hyper's buffer for the largest request header.
    head: Cell<usize>,
    /// The size of hyper's read block beyond the smallest.
    block: Cell<usize>,
    /// Whether the header of the response is complete.
    is_parsed: Cell<bool>,
    /// The number of bytes of a response whose header is incomplete.
    unparsed: Cell<usize>,
    /// The number of queued request body bytes.
    queued: Cell<usize>,
    /// The waker of the body that waits until the queue is written.
    body: Cell<Option<Waker>>,
    /// The tracker of the response boundaries.
    answers: RefCell<Answers>,
    /// The number of checked bytes that hyper has not read.
    checked: Cell<usize>,
}

impl WireState {
    pub(crate) fn new(hold: Hold) -> Self {
        Self {
            received: Cell::new(false),
            sending: Cell::new(false),
            is_idle: Cell::new(false),
            repeats: Cell::new(false),
            asked_to_switch: Cell::new(false),
            deaf: Cell::new(false),
            failure: Failure::default(),
            place: Cell::default(),
            hold,
            base: UPSTREAM,
            is_stream: false,
            head: Cell::new(0),
            block: Cell::new(0),
            is_parsed: Cell::new(false),
            unparsed: Cell::new(0),
            queued: Cell::new(0),
            body: Cell::new(None),
            answers: RefCell::default(),
            checked: Cell::new(0),
        }
    }

    /// The state of one request over HTTP/2, whose memory is `hold`.
    pub(crate) fn of_stream(hold: Hold, base: u64) -> Self {
        Self { base, is_stream: true, ..Self::new(hold) }
    }

    pub(crate) const fn account(&self) -> &Rc<Account> {
        self.hold.account()
    }

    /// The size of hyper's read blocks.
    pub(crate) const fn block(&self) -> usize {
        self.block.get() + SMALL
    }

    /// Charges the memory of the connection. Two blocks are counted: hyper reads into one, and the
    /// last piece of a body pins another.
    fn settle(&self) {
        let copies = self.queued.get() + self.checked.get();
        let buffers = 2 * self.block.get() + self.head.get() + copies;
        self.hold.set(self.base + (buffers + self.unparsed.get()) as u64);
    }

    /// Begins a request with a header of this size.
    pub(crate) fn begin(&self, head: usize) {
        self.received.set(false);
        self.is_parsed.set(false);
        self.unparsed.set(0);
        // A header is encoded into a buffer that starts with the smallest size, and doubles.
        let buffer = if head > SMALL { 2 * head } else { 0 };
        self.head.set(self.head.get().max(buffer));
        self.settle();
    }

    /// Records that a request is sent to the target. `switches`: it requests a protocol switch.
    pub(crate) fn asked(&self, is_head: bool, switches: bool) {
        self.asked_to_switch.set(switches);
        self.answers.borrow_mut().asked(is_head, switches);
    }

    /// Sets whether the new request is retried on another connection if this one breaks.
    pub(crate) fn set_repeats(&self, repeats: bool) {
        self.repeats.set(repeats);
    }

    /// Whether the connection may break now without effect on a visitor.
    fn may_break(&self) -> bool {
        self.is_idle.get() || (self.repeats.get() && !self.received.get())
    }

    /// Records that an interim response is complete.
    pub(crate) fn interim(&self) {
        if self.unparsed.replace(0) > SMALL {
            self.settle();
        }
    }

    /// Records that the header of the response is complete.
    pub(crate) fn answered(&self) {
        self.is_parsed.set(true);
        if self.unparsed.replace(0) > SMALL {
            self.settle();
        }
    }

    /// Reduces the charge after a protocol switch, when only the stream is left.
    pub(crate) fn switched(&self) {
        self.hold.set(SWITCHED);
    }

    /// Whether the body of a request may queue a piece. The first piece is always accepted.
    /// Otherwise the task of `cx` is woken once the queue is written.
    pub(crate) fn may_queue(&self, cx: &Context<'_>) -> bool {
        if self.is_stream || self.queued.get() == 0 || self.account().may_grow(READ_BUFFER as u64) {
            return true;
        }
        self.body.set(Some(cx.waker().clone()));
        false
    }

    /// Records a queued piece of the body of a request.
    pub(crate) fn queue(&self, bytes: usize) {
        let before = if self.is_stream { 0 } else { self.queued.get() };
        self.queued.set(before + bytes);
        self.settle();
    }

    fn read(&self, bytes: usize) {
        self.received.set(true);
        if self.is_parsed.get() {
            return;
        }
        self.unparsed.set(self.unparsed.get() + bytes);
        if self.unparsed.get() > SMALL {
            self.settle();
        }
    }

    fn written(&self, bytes: usize) {
        if self.queued.get() == 0 {
            return;
        }
        self.queued.set(self.queued.get().saturating_sub(bytes));
        self.settle();
        if self.queued.get() == 0
            && let Some(waker) = self.body.take()
        {
            waker.wake();
        }
    }

    /// Why the target broke the connection, if the stream knows.
    pub(crate) fn failure(&self) -> Option<Cow<'static, str>> {
        self.failure.get()
    }
}

/// The reason why a target broke its connection.
#[derive(Debug, Default)]
pub(crate) struct Failure(RefCell<Option<Cow<'static, str>>>);

impl Failure {
    pub(crate) fn get(&self) -> Option<Cow<'static, str>> {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, reason: Option<Cow<'static, str>>) {
        *self.0.borrow_mut() = reason;
    }
}

impl fmt::Debug for WireState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireState").finish_non_exhaustive()
    }
}
/// The stream to a target, which records details that hyper's errors lack. hyper gets only
/// unambiguous bytes ([`h1`]), so it finds the same response boundaries as the byte path.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    state: Rc<WireState>,
    /// Checked bytes that hyper has not read: headers that arrived in pieces or were rewritten.
    checked: BytesMut,
    over: Option<Over>,
}

/// Why reading from the target has stopped.
#[derive(Clone, Copy)]
enum Over {
    /// The target sends bytes without a request.
    Excess,
    /// A response is ambiguous.
    Doubt,
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>, state: &Rc<WireState>) -> Self {
        let (state, checked) = (Rc::clone(state), BytesMut::new());
        Self { stream, state, checked, over: None }
    }

    /// Checks the bytes of the target after the first `before` bytes of `buf`, and leaves in it
    /// those that hyper may read now.
    fn check(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let answers = &mut *self.state.answers.borrow_mut();
        if answers.is_raw() {
            return;
        }
        let bytes = &buf.filled()[before..];
        let Progress { held, deliver, rest, .. } = answers.responses(bytes);
        if held.is_empty() {
            buf.set_filled(before + deliver);
        } else {
            self.checked.extend_from_slice(&held);
            self.checked.extend_from_slice(&bytes[..deliver]);
            self.state.checked.set(self.checked.capacity());
            self.state.settle();
            buf.set_filled(before);
        }
        self.over = match rest {
            Rest::Held => return,
            Rest::Excess => Some(Over::Excess),
            Rest::Refused(doubt) | Rest::Cut(doubt) => {
                let reason =
                    format!("the answer of the target is not valid HTTP: {}", doubt.reason());
                self.state.failure.set(Some(reason.into()));
                Some(Over::Doubt)
            }
        };
    }

    /// Passes previously checked bytes to hyper.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let length = self.checked.len().min(buf.remaining());
        buf.put_slice(&self.checked[..length]);
        self.checked.advance(length);
        if self.checked.is_empty() {
            self.checked = BytesMut::new();
            self.state.checked.set(0);
            self.state.settle();
        }
    }

    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }
}

impl Wire {
    /// A target that accepts no more of a request may have responded already: hyper, which would
    /// abandon the connection after a failed write, must continue to read. Pending writes wait
    /// until the response is complete, or reading fails as well.
    fn wrote(&self, result: io::Result<usize>) -> Poll<io::Result<usize>> {
        match result {
            Ok(written) => {
                self.state.written(written);
                Poll::Ready(Ok(written))
            }
            Err(error) => {
                tracing::debug!(%error, "a target takes no more of a request");
                self.state.deaf.set(true);
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            if !self.checked.is_empty() {
                self.give(buf);
                return Poll::Ready(Ok(()));
            }
            match self.over {
                None => {}
                Some(Over::Excess) => return Poll::Ready(Ok(())),
                Some(Over::Doubt) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            let Self { stream, state, .. } = &mut *self;
            let unparsed = state.unparsed.get();
            if unparsed > SMALL && !state.account().affords(unparsed as u64) {
                let reason = "the answer of the target has a long head, and memory is short";
                state.failure.set(Some(reason.into()));
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            let (result, block) = poll_bounded(stream, cx, buf, state.block.get(), state.account());
            if state.block.replace(block) != block {
                state.settle();
            }
            if result.is_pending() && state.may_break() && stream.had_better_leave() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let result = ready!(result);
            let read = buf.filled().len() - before;
            if result.is_err() || read == 0 {
                self.state.failure.set(self.stream.failure());
                return Poll::Ready(result);
            }
            if !state.received.get() {
                state.place.set(stream.place());
            }
            state.read(read);
            self.check(buf, before);
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.state.deaf.get() {
            return Poll::Pending;
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.wrote(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes once its own buffer is empty.
        self.state.written(usize::MAX);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.deaf.get() {
            return Poll::Pending;
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        self.wrote(result)
    }
}
