//! The received data of an HTTP/2 visitor, by stream.
//!
//! Request bodies are taken from h2 at the end of each turn and queued in an inbox per stream. Data
//! that is still queued at the end of the next turn is packed. So a byte costs a byte, however
//! small the frames are, and the window of each stream bounds what it holds. The windows of a
//! visitor are charged before it fills them, so reading the connection never stops for queued data,
//! and no stream blocks another. The window of the connection never closes; the sum of the stream
//! windows replaces it.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    fmt,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use hyper::{
    body::{Frame, SizeHint},
    header::HeaderMap,
};
use tokio::time::Instant;

use super::{
    calm::Calm,
    window::{INITIAL, Path, Window},
};
use crate::{
    account::{Account, Hold},
    body::Broken,
    fields,
};

/// The number of bytes that are read from a visitor before its streams are served and other tasks
/// run.
const TURN: usize = 64 * 1024;
/// The part of a turn that a header takes: a stream costs memory from its header on, even if the
/// next frame resets it.
const HEAD: usize = TURN / 128;
/// The initial window if memory is short at the start of the connection.
const SHORT: u32 = 16 * 1024;
/// The maximum number of streams of a connection when memory is short.
const FEW_STREAMS: u32 = 32;
/// The cost of an upload in addition to its window: a request, and a connection to its target.
const UPLOAD: u64 = 32 * 1024;
/// Queued bytes are packed into blocks of this size. h2 reads into larger blocks, which a small
/// piece would pin.
const BLOCK: usize = 16 * 1024;
/// The capacity that the lists of a turn keep, in streams.
const KEPT: usize = 128;
/// Consumed bytes are reported to h2 in steps of this size. Its windows are [`LARGE`].
const STEP: usize = 1024 * 1024;
/// The windows configured in h2, for the connection and for each stream. The window of the
/// connection stays open while 128 streams hold two steps each.
pub(super) const LARGE: u32 = 1 << 30;

/// The receiving streams of a connection.
pub(crate) struct Inflow {
    account: Rc<Account>,
    /// The initial window announced in SETTINGS.
    initial: u32,
    most_streams: u32,
    /// Whether the visitor has acknowledged the SETTINGS.
    is_known: Cell<bool>,
    inboxes: RefCell<HashMap<u32, Rc<Inbox>>>,
    /// The streams of complete frames, with the length of the frame if it is DATA.
    seen: RefCell<Vec<(u32, u32)>>,
    /// How many of these frames, counted from the front, h2 has parsed. The others may be delayed:
    /// h2 parses no frame while its reply to PING or SETTINGS is blocked by the socket.
    ripe: Cell<usize>,
    /// How many of these frames were already fetched from h2.
    tried: Cell<usize>,
    /// The streams that received bytes in the last turn.
    fresh: RefCell<Vec<u32>>,
    /// Window increments that have not been announced.
    due: RefCell<Vec<(u32, u32)>>,
    /// The bytes that may still be read in this turn.
    turn: Cell<usize>,
    /// Whether the turn is ending and written data is flushed.
    flushes: Cell<bool>,
    /// Whether the visitor has violated a window.
    is_violated: Cell<bool>,
    /// Whether a window was opened.
    is_opened: Cell<bool>,
    /// The shortest round trip of the connection.
    pub(super) round_trip: Cell<Option<Duration>>,
    /// When the last byte arrived.
    pub(super) read_at: Cell<Instant>,
    /// The task that drives h2.
    driver: RefCell<Option<Waker>>,
    /// The limit of cancelled requests.
    pub(super) calm: Calm,
}

impl Inflow {
    pub(super) fn new(account: &Rc<Account>, most_streams: u32) -> Rc<Self> {
        let fits = |streams: u32, window: u32| {
            account.may_grow(u64::from(streams) * (UPLOAD + u64::from(window)))
        };
        let (initial, most_streams) = if fits(most_streams, INITIAL) {
            (INITIAL, most_streams)
        } else if fits(most_streams, SHORT) {
            (SHORT, most_streams)
        } else {
            (SHORT, most_streams.min(FEW_STREAMS))
        };
        Rc::new(Self {
            account: Rc::clone(account),
            initial,
            most_streams,
            is_known: Cell::new(false),
            inboxes: RefCell::default(),
            seen: RefCell::default(),
            ripe: Cell::new(0),
            tried: Cell::new(0),
            fresh: RefCell::default(),
            due: RefCell::default(),
            turn: Cell::new(0),
            flushes: Cell::new(true),
            is_violated: Cell::new(false),
            is_opened: Cell::new(false),
            round_trip: Cell::new(None),
            read_at: Cell::new(Instant::now()),
            driver: RefCell::default(),
            calm: Calm::new(),
        })
    }

    /// Records that the visitor has cancelled a request before its complete response.
    pub(super) fn cancelled(&self) {
        let before = self.calm.verdict();
        self.calm.cancelled();
        if self.calm.verdict() != before
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    pub(crate) const fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) const fn most_streams(&self) -> u32 {
        self.most_streams
    }

    pub(super) const fn is_violated(&self) -> bool {
        self.is_violated.get()
    }

    /// Whether a window was opened since the last call, so that the round trip is worth measuring.
    pub(super) fn take_opened(&self) -> bool {
        self.is_opened.take()
    }

    /// Begins a turn of the task of `cx`, which drives h2.
    pub(super) fn begin_turn(&self, cx: &Context<'_>) {
        self.turn.set(TURN);
        self.flushes.set(false);
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *driver = Some(cx.waker().clone());
        }
    }

    /// Whether a flush takes place now. h2 flushes after each frame of a body.
    pub(crate) const fn flushes(&self) -> bool {
        self.flushes.get()
    }

    /// Ends the writes of this turn: h2 has nothing more to write. Returns false if this was
    /// already recorded.
    pub(super) fn end_turn(&self) -> bool {
        !self.flushes.replace(true)
    }

    /// Whether h2 may read more bytes in this turn. Otherwise the task of `cx` is woken again,
    /// after the other tasks.
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        let may = self.turn.get() > 0;
        if !may {
            cx.waker().wake_by_ref();
        }
        may
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.turn.set(self.turn.get().saturating_sub(bytes));
        self.read_at.set(Instant::now());
    }

    /// Records a complete request header.
    pub(crate) fn opened(&self) {
        self.turn.set(self.turn.get().saturating_sub(HEAD));
    }

    /// Records a complete frame of a stream, of which `flow` bytes count for its window.
    pub(crate) fn complete(&self, stream: u32, flow: u32) {
        self.seen.borrow_mut().push((stream, flow));
    }

    /// Records that h2 reads again, so it has parsed every complete frame.
    pub(crate) fn ripen(&self) {
        self.ripe.set(self.seen.borrow().len());
    }

    /// Records that the visitor has acknowledged the SETTINGS.
    pub(crate) fn acknowledged(&self) {
        if !self.is_known.replace(true) && self.initial < INITIAL {
            for inbox in self.inboxes.borrow().values() {
                inbox.state.borrow_mut().window.shrink(INITIAL - self.initial);
                inbox.settle();
            }
        }
    }

    /// Takes the increments for WINDOW_UPDATE frames.
    pub(crate) fn take_due(&self, mut write: impl FnMut(u32, u32)) {
        // The SETTINGS were sent before. A visitor acknowledges them before it uses the increments,
        // and h2 enlarges its own windows then.
        for (stream, increment) in self.due.borrow_mut().drain(..) {
            write(stream, increment);
        }
    }

    /// Takes from h2 the data that has arrived in this turn.
    pub(super) fn deliver(&self) {
        let (mut seen, mut fresh) = (self.seen.take(), self.fresh.take());
        let (ripe, tried) = (self.ripe.take(), self.tried.take());
        if seen.len() <= tried && ripe == 0 {
            // Without new data, the data of the last turn stays unpacked.
            self.tried.set(tried);
            *self.seen.borrow_mut() = seen;
            *self.fresh.borrow_mut() = fresh;
            return;
        }
        for stream in fresh.drain(..) {
            if let Some(inbox) = self.inboxes.borrow().get(&stream) {
                inbox.state.borrow_mut().pack();
            }
        }
        let mut fetch = |stream: u32, flow: u32, is_ripe: bool| {
            let inbox = self.inboxes.borrow().get(&stream).cloned();
            // The stream was refused, or its body has been dropped.
            let Some(inbox) = inbox else { return };
            if !inbox.fetch(if is_ripe { flow } else { 0 }) {
                self.is_violated.set(true);
            }
            if flow > 0 && fresh.last() != Some(&stream) {
                fresh.push(stream);
            }
        };
        for (stream, flow) in seen.drain(..ripe) {
            fetch(stream, flow, true);
        }
        // The other frames may have been parsed, too.
        for &(stream, flow) in seen.iter().skip(tried.saturating_sub(ripe)) {
            fetch(stream, flow, false);
        }
        self.tried.set(seen.len());
        // No frame was recorded meanwhile, so the lists can be put back and keep their memory.
        seen.shrink_to(KEPT);
        fresh.shrink_to(KEPT);
        *self.seen.borrow_mut() = seen;
        *self.fresh.borrow_mut() = fresh;
    }

    /// Ends all inboxes: the connection has ended.
    pub(super) fn end(&self) {
        let inboxes = self.inboxes.take();
        for inbox in inboxes.into_values() {
            inbox.end(Err(Broken::Left));
        }
    }

    fn grant(&self, stream: u32, increment: u32) {
        self.is_opened.set(true);
        let mut due = self.due.borrow_mut();
        match due.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, sum)) => *sum += increment,
            None => due.push((stream, increment)),
        }
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Whether a window may grow by `bytes`, in addition to an initial window for each stream that
    /// the visitor may still open.
    fn may_grow(&self, bytes: u64) -> bool {
        let open = self.inboxes.borrow().len() as u64;
        let further = u64::from(self.most_streams).saturating_sub(open);
        self.account.may_grow(bytes + further * u64::from(self.initial))
    }
}

impl fmt::Debug for Inflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflow").finish_non_exhaustive()
    }
}

/// The received data of a stream that has not been consumed.
struct Inbox {
    stream: u32,
    state: RefCell<State>,
    hold: Hold,
}

struct State {
    incoming: RecvStream,
    window: Window,
    /// Full blocks, and the partially filled block.
    packed: VecDeque<Bytes>,
    tail: BytesMut,
    /// The data of the last turn, in the pieces of h2.
    fresh: VecDeque<Bytes>,
    /// The number of bytes in all of these.
    waiting: usize,
    /// The remaining bytes of the body, if the visitor announced its length.
    left: Option<u64>,
    /// Bytes taken from h2 that have not been released in its flow control.
    unread: usize,
    /// The padding: counted frame bytes minus body bytes. It is negative while the frames of some
    /// body bytes are not counted yet.
    padding: i64,
    trailers: Option<HeaderMap>,
    end: Option<Result<(), Broken>>,
    reader: Option<Waker>,
}

impl Inbox {
    /// Takes the data of a frame from h2. Returns false if the frame exceeds the window.
    fn fetch(&self, flow: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let may = state.window.receive(flow.into());
        state.padding += i64::from(flow);
        // The gate reports when there is data, so no waker is needed.
        let mut cx = Context::from_waker(Waker::noop());
        while state.end.is_none() {
            match state.incoming.poll_data(&mut cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    state.push(bytes);
                    if state.incoming.is_end_stream() {
                        state.end = Some(Ok(()));
                    }
                }
                Poll::Ready(Some(Err(error))) => state.end = Some(Err(Broken::Stream(error))),
                Poll::Ready(None) => match state.incoming.poll_trailers(&mut cx) {
                    Poll::Ready(Ok(trailers)) => {
                        state.trailers = trailers;
                        state.end = Some(Ok(()));
                    }
                    Poll::Ready(Err(error)) => state.end = Some(Err(Broken::Stream(error))),
                    Poll::Pending => break,
                },
                Poll::Pending => break,
            }
        }
        let reader = state.reader.take();
        drop(state);
        self.settle();
        if let Some(reader) = reader {
            reader.wake();
        }
        may
    }

    fn end(&self, end: Result<(), Broken>) {
        let mut state = self.state.borrow_mut();
        state.end.get_or_insert(end);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Charges the data that the stream holds and that the visitor may still send.
    fn settle(&self) {
        let state = self.state.borrow();
        let waiting = state.waiting as u64;
        let held = if state.end.is_some() {
            waiting + state.trailers.as_ref().map_or(0, |list| fields::length(list) as u64)
        } else {
            let left = state.left.unwrap_or(u64::MAX);
            state.window.open().min(waiting.saturating_add(left))
        };
        self.hold.set(held);
    }
}

impl State {
    fn push(&mut self, bytes: Bytes) {
        let length = bytes.len();
        self.padding = self.padding.saturating_sub_unsigned(length as u64);
        self.unread += length;
        if self.unread >= STEP {
            let _ = self.incoming.flow_control().release_capacity(self.unread);
            self.unread = 0;
        }
        if length == 0 {
            return;
        }
        self.left = self.left.map(|left| left.saturating_sub(length as u64));
        self.waiting += length;
        // Frames may be small, and a visitor may send many in a turn.
        if length < BLOCK / 4 {
            self.pack();
            self.add(&bytes);
        } else {
            self.fresh.push_back(bytes);
        }
    }

    fn pack(&mut self) {
        while let Some(bytes) = self.fresh.pop_front() {
            self.add(&bytes);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.tail.len() + bytes.len() > BLOCK && !self.tail.is_empty() {
            self.packed.push_back(std::mem::take(&mut self.tail).freeze());
        }
        self.tail.extend_from_slice(bytes);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let tail = &mut self.tail;
        let packed = self.packed.pop_front();
        let packed = packed.or_else(|| (!tail.is_empty()).then(|| std::mem::take(tail).freeze()));
        let piece = packed.or_else(|| self.fresh.pop_front())?;
        self.waiting -= piece.len();
        Some(piece)
    }
}

/// The body of an HTTP/2 request, or the visitor's direction of a tunnel.
pub(crate) struct Upload {
    /// `None`: memory is short, and received data is dropped.
    inbox: Option<Rc<Inbox>>,
    inflow: Rc<Inflow>,
    /// Whether the body was complete when it was dropped.
    is_over: Rc<Cell<bool>>,
}

impl Upload {
    /// Becomes true once the body is dropped, if it was complete.
    pub(super) fn is_over(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_over)
    }

    /// The body of a stream, of `length` bytes if the visitor announced it.
    pub(super) fn new(
        inflow: &Rc<Inflow>,
        stream: u32,
        incoming: RecvStream,
        length: Option<u64>,
    ) -> Self {
        let granted = if inflow.is_known.get() { inflow.initial } else { INITIAL };
        let most = u64::from(granted).min(length.unwrap_or(u64::MAX));
        let inbox = inflow.account.take(most).map(|hold| {
            let state = State {
                incoming,
                window: Window::new(inflow.initial, granted, Instant::now()),
                packed: VecDeque::new(),
                tail: BytesMut::new(),
                fresh: VecDeque::new(),
                waiting: 0,
                left: length,
                unread: 0,
                padding: 0,
                trailers: None,
                end: None,
                reader: None,
            };
            let inbox = Rc::new(Inbox { stream, state: RefCell::new(state), hold });
            inflow.inboxes.borrow_mut().insert(stream, Rc::clone(&inbox));
            inbox
        });
        Self { inbox, inflow: Rc::clone(inflow), is_over: Rc::default() }
    }

    /// Whether memory is too short for the body.
    pub(crate) const fn is_starved(&self) -> bool {
        self.inbox.is_none()
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(inbox) = &self.inbox else { return Poll::Ready(Some(Err(Broken::Memory))) };
        let mut state = inbox.state.borrow_mut();
        let piece = state.pop();
        if piece.is_none() && state.end.is_none() {
            state.reader = Some(cx.waker().clone());
        }
        let open = state.end.is_none();
        let padding = state.padding.max(0);
        state.padding -= padding;
        let consumed = padding.unsigned_abs() + piece.as_ref().map_or(0, |p| p.len() as u64);
        let waiting = state.waiting as u64;
        let increment = (open && consumed > 0).then(|| {
            let may_grow = |bytes| self.inflow.may_grow(bytes);
            let path = Path {
                now: Instant::now(),
                round_trip: self.inflow.round_trip.get(),
                waiting,
                may_grow: &may_grow,
            };
            state.window.consume(consumed, &path)
        });
        let outcome = match piece {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None => match &mut state.end {
                None => Poll::Pending,
                Some(Ok(())) => {
                    Poll::Ready(state.trailers.take().map(|list| Ok(Frame::trailers(list))))
                }
                Some(end) => {
                    let Err(broken) = std::mem::replace(end, Err(Broken::Left)) else {
                        return Poll::Ready(None);
                    };
                    Poll::Ready(Some(Err(broken)))
                }
            },
        };
        drop(state);
        inbox.settle();
        if let Some(increment) = increment.flatten() {
            self.inflow.grant(inbox.stream, increment);
        }
        outcome
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| {
            let state = inbox.state.borrow();
            matches!(state.end, Some(Ok(()))) && state.waiting == 0 && state.trailers.is_none()
        })
    }

    /// Whether a byte of the body has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| {
            let state = inbox.state.borrow();
            state.waiting > 0 || state.window.has_begun()
        })
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let exact = self.inbox.as_ref().and_then(|inbox| {
            let state = inbox.state.borrow();
            state.left.map(|left| left + state.waiting as u64)
        });
        exact.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(inbox) = &self.inbox {
            self.is_over.set(matches!(inbox.state.borrow().end, Some(Ok(()))));
            self.inflow.inboxes.borrow_mut().remove(&inbox.stream);
            self.inflow.due.borrow_mut().retain(|(stream, _)| *stream != inbox.stream);
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").finish_non_exhaustive()
    }
}
