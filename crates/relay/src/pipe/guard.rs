//! The guard of an HTTP visitor's stream. It holds bytes that were read but may not be sent to the
//! service yet, and tracks the boundaries of requests and responses, so that a later request for
//! another host leaves this stream.
//!
//! ```text
//!   socket ──read──> [rest] ──Tracker::requests──> service
//!   socket <──────── Tracker::responses <───────── service
//!
//!   the next request is for another host, all responses are complete ──> Onward
//!   the rules have changed before the next request, likewise ──────────> Onward
//!   the next request is malformed, all responses are complete ─────────> Onward
//!   the service failed before its first byte ──────────────────────────> Onward
//!   a response is doubtful, no byte of it was delivered ───────────────> Onward
//!   a response is doubtful, a part of it was delivered ────────────────> reset
//! ```
//!
//! A connection is handed onward after every byte that was delivered to it is in its socket.
//!
//! A visitor in pass-through has no tracker: only its first bytes and a failure of the service are
//! handled.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use h1::{Doubt, Fault, Rest as Fate, Then, Tracker};
use proto::{HEAD_ROOM, ResetCode};

use crate::{Held, Socket};

/// Takes the connections of HTTP visitors that leave the stream of their service.
pub trait Onward: fmt::Debug {
    /// Takes a connection. The call must not block.
    fn onward(&self, leaving: Leaving);

    /// Whether a new connection of the visitor would reach the same service by the same rules. The
    /// guard calls this for each read that may contain a request header, so the usual case must be
    /// as cheap as a comparison.
    fn is_current(&self) -> bool;
}

/// The connection of an HTTP visitor that leaves its stream.
#[derive(Debug)]
pub struct Leaving {
    /// The connection. Every response that began on it is complete. `None`: its bytes pass through
    /// a layer ([`Layered`](crate::Layered)), which the receiver shares with the stream.
    pub socket: Option<Socket>,
    /// The address of the visitor.
    pub visitor: Option<SocketAddr>,
    /// The bytes of the visitor that were sent to no service.
    pub rest: BytesMut,
    /// The reason for leaving.
    pub why: Why,
}

/// Why a connection leaves its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The next request is for this host; `None`: it names no host.
    Other(Option<Box<str>>),
    /// The rules have changed. The rest begins with a request header.
    Changed,
    /// The next bytes are no request.
    Bad(Fault),
    /// The stream was refused, or ended before the first byte of an answer.
    Down(ResetCode),
    /// The service sent a response that is not forwarded. The responses before it are complete.
    Doubt(Doubt),
}

/// An HTTP visitor at the beginning of its stream.
#[derive(Debug)]
pub struct Http {
    /// Tracks requests and responses; `None`: only a failure of the service is handled.
    pub tracker: Option<Tracker>,
    /// The first bytes of the visitor, already read from its socket.
    pub first: BytesMut,
    /// Takes the connection when it leaves the stream.
    pub onward: Rc<dyn Onward>,
}

/// The size in bytes from which an incomplete header ends the connection when memory is short.
/// Browsers send 1 to 4 KiB.
const SHORT: usize = 8 << 10;

pub(crate) struct Guard {
    tracker: Option<RefCell<Tracker>>,
    rest: RefCell<Rest>,
    /// Whether a byte of the service was delivered.
    answered: Cell<bool>,
    /// Whether a response made progress, so that a waiting request may be forwarded.
    progress: Cell<bool>,
    state: Cell<State>,
    /// Why the connection leaves the stream, once that is certain.
    why: RefCell<Option<Why>>,
    /// The doubt about the latest response.
    doubt: Cell<Option<Doubt>>,
    /// The number of header bytes that were reported as consumed before they were delivered. A
    /// header may be larger than the window of the stream.
    early: Cell<usize>,
    /// The part of the memory budget that an incomplete response header takes.
    head: Held,
    /// Whether the connection ends as soon as no request is in progress.
    is_closing: Cell<bool>,
    /// Whether a request or a response made progress since the last call of [`Self::is_unused`].
    moved: Cell<bool>,
    visitor: Option<SocketAddr>,
    /// `None` after the end, because the handler may hold a reference to the connection.
    onward: RefCell<Option<Rc<dyn Onward>>>,
}

/// The handling of bytes of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// They are delivered to the visitor.
    #[default]
    Open,
    /// The service sent bytes without a request: these and all later bytes are discarded, and the
    /// connection ends.
    Over,
    /// As [`Self::Over`], and the connection leaves the stream.
    Leaving,
    /// As [`Self::Over`], and the connection is aborted, because the visitor has received a part of
    /// a doubtful response.
    Cut,
}

#[derive(Debug)]
struct Rest {
    bytes: BytesMut,
    /// The number of bytes at the front that may be sent to the service.
    ready: usize,
    /// The next step after these bytes are sent.
    then: Then,
    /// The part of the memory budget that the bytes take.
    held: Held,
    /// Whether the bytes after `ready` were not inspected yet.
    is_fresh: bool,
}

/// The next step of the pump.
pub(super) enum Step {
    /// The buffer has a frame.
    Send,
    /// Read the socket.
    Read,
    /// Read nothing until the responses make progress.
    Wait,
    /// No more bytes of the visitor are sent to the service.
    End,
    /// The connection leaves the stream.
    Leave(Why),
}

impl Guard {
    pub(super) fn new(http: Http, visitor: Option<SocketAddr>, held: Held) -> Self {
        let Http { tracker, first, onward } = http;
        let ready = if tracker.is_some() { 0 } else { first.len() };
        let is_fresh = !first.is_empty();
        held.set(first.capacity() as u64);
        let head = held.beside();
        let rest = Rest { is_fresh, bytes: first, ready, then: Then::Read, held };
        let (answered, progress, state, why, doubt, early) = Default::default();
        let (tracker, rest) = (tracker.map(RefCell::new), RefCell::new(rest));
        let (is_closing, moved) = (Cell::new(false), Cell::new(true));
        let onward = RefCell::new(Some(onward));
        Self {
            tracker,
            rest,
            answered,
            progress,
            state,
            why,
            doubt,
            early,
            head,
            is_closing,
            moved,
            visitor,
            onward,
        }
    }

    /// The address of the visitor.
    pub(super) const fn visitor(&self) -> Option<SocketAddr> {
        self.visitor
    }

    /// Whether all further bytes of the visitor are sent to the service without inspection.
    pub(super) fn is_done(&self) -> bool {
        let is_raw = self.tracker.as_ref().is_none_or(|tracker| tracker.borrow().is_raw());
        is_raw && self.rest.borrow().bytes.is_empty()
    }

    /// Whether no byte of the service was delivered yet, and none was rejected.
    pub(super) fn is_unanswered(&self) -> bool {
        !self.answered.get() && self.state.get() == State::Open
    }

    /// Whether each request has its complete response, and there was a response.
    pub(super) fn is_answered(&self) -> bool {
        let has_all = |tracker: &RefCell<Tracker>| tracker.borrow().is_answered();
        self.answered.get() && self.tracker.as_ref().is_some_and(has_all)
    }

    /// Returns the next step. Writes a frame of at most `room` bytes into `buffer`, after its head
    /// room.
    pub(super) fn step(&self, room: usize, buffer: &mut BytesMut) -> Step {
        if matches!(self.state.get(), State::Leaving | State::Cut) {
            return Step::Wait;
        }
        if self.state.get() == State::Open && self.is_over() {
            self.state.set(State::Over);
            return Step::End;
        }
        self.admit();
        let rest = &mut *self.rest.borrow_mut();
        if rest.ready > 0 {
            self.moved.set(true);
            let size = rest.ready.min(room);
            buffer.clear();
            buffer.resize(HEAD_ROOM, 0);
            buffer.extend_from_slice(&rest.bytes.split_to(size));
            rest.ready -= size;
            if rest.bytes.is_empty() {
                rest.bytes = BytesMut::new();
                rest.held.set(0);
            }
            return Step::Send;
        }
        match &rest.then {
            Then::Hold if rest.bytes.len() >= SHORT && !rest.held.affords(0) => {
                Step::Leave(Why::Down(ResetCode::Limit))
            }
            Then::Read | Then::Hold => Step::Read,
            Then::Wait => Step::Wait,
            Then::Close => Step::End,
            Then::Other { host } => Step::Leave(Why::Other(host.clone())),
            Then::Changed => Step::Leave(Why::Changed),
            Then::Refuse(fault) => Step::Leave(Why::Bad(*fault)),
        }
    }

    /// Inspects the waiting bytes, if they were not inspected yet or a response has made progress
    /// since.
    pub(super) fn admit(&self) {
        let rest = &mut *self.rest.borrow_mut();
        if rest.ready == 0
            && (rest.is_fresh || self.progress.replace(false))
            && let Some(tracker) = &self.tracker
        {
            rest.is_fresh = false;
            (rest.ready, rest.then) = self.requests(tracker, &rest.bytes);
        }
    }

    /// Whether no request is in progress. An incomplete request header does not count: a visitor
    /// that never completes it does not keep the connection open.
    fn is_idle(&self) -> bool {
        let is_idle = |tracker: &RefCell<Tracker>| {
            let tracker = tracker.borrow();
            tracker.is_idle() && !tracker.is_raw()
        };
        let rest = self.rest.borrow();
        let is_unread = rest.bytes.is_empty() || (!rest.is_fresh && rest.then == Then::Hold);
        self.tracker.as_ref().is_some_and(is_idle) && rest.ready == 0 && is_unread
    }

    /// Whether the connection ends here: it is closing and idle, or a message announced that
    /// nothing follows. A service that keeps its connection open then does not keep the visitor's
    /// open.
    fn is_over(&self) -> bool {
        let is_over = |tracker: &RefCell<Tracker>| tracker.borrow().is_over();
        self.is_closing.get() && self.is_idle() || self.tracker.as_ref().is_some_and(is_over)
    }

    /// Lets the connection end as soon as no request is in progress. The caller wakes the pump.
    pub(super) fn close_when_idle(&self) {
        self.is_closing.set(true);
    }

    /// Whether no request is in progress, and no request or response made progress since the
    /// previous call.
    pub(super) fn is_unused(&self) -> bool {
        !self.moved.replace(false) && self.is_idle()
    }

    /// Passes bytes of the visitor to the tracker. Each request is checked by the rules in force
    /// when it is read.
    fn requests(&self, tracker: &RefCell<Tracker>, bytes: &[u8]) -> (usize, Then) {
        let tracker = &mut *tracker.borrow_mut();
        if self.onward.borrow().as_ref().is_some_and(|onward| !onward.is_current()) {
            tracker.expire();
        }
        tracker.requests(bytes)
    }

    /// Inspects bytes that were read into `buffer`, after its head room. Leaves in it the bytes to
    /// send to the service now.
    pub(super) fn look(&self, buffer: &mut BytesMut) {
        let rest = &mut *self.rest.borrow_mut();
        let Some(tracker) = &self.tracker else { return };
        if !rest.bytes.is_empty() {
            rest.bytes.extend_from_slice(&buffer[HEAD_ROOM..]);
            rest.held.set(rest.bytes.capacity() as u64);
            rest.is_fresh = true;
            buffer.truncate(HEAD_ROOM);
            return;
        }
        let (pass, then) = self.requests(tracker, &buffer[HEAD_ROOM..]);
        rest.then = then;
        self.moved.set(self.moved.get() || pass > 0);
        if HEAD_ROOM + pass < buffer.len() {
            rest.bytes.extend_from_slice(&buffer[HEAD_ROOM + pass..]);
            rest.held.set(rest.bytes.capacity() as u64);
            buffer.truncate(HEAD_ROOM + pass);
        }
    }

    /// Inspects bytes of the service. Leaves the bytes for the visitor, and returns the number of
    /// bytes removed.
    pub(super) fn answers(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.moved.set(true);
        if let Some(tracker) = &self.tracker {
            let tracker = &mut *tracker.borrow_mut();
            if !tracker.is_raw() {
                return self.track(tracker, pieces);
            }
        }
        self.answered.set(true);
        0
    }

    fn track(&self, tracker: &mut Tracker, pieces: &mut VecDeque<Bytes>) -> usize {
        let (mut removed, mut nth) = (0, 0);
        while let Some(piece) = pieces.get_mut(nth) {
            let seen = tracker.responses(piece);
            if seen.completed {
                self.progress.set(true);
            }
            if seen.deliver < piece.len() {
                removed += piece.len() - seen.deliver;
                piece.truncate(seen.deliver);
            }
            if !seen.held.is_empty() {
                self.early.set(self.early.get() + seen.held.len());
                pieces.insert(nth, seen.held.into());
                nth += 1;
            }
            nth += 1;
            let kept = tracker.kept();
            self.head.set(kept as u64);
            match seen.rest {
                Fate::Held if kept <= SHORT || self.head.affords(0) => continue,
                Fate::Held => {
                    self.doubt.set(Some(Doubt::Memory));
                    self.depart(Why::Doubt(Doubt::Memory));
                }
                Fate::Excess => self.state.set(State::Over),
                Fate::Refused(doubt) => {
                    self.doubt.set(Some(doubt));
                    self.depart(Why::Doubt(doubt));
                }
                Fate::Cut(doubt) => {
                    self.doubt.set(Some(doubt));
                    self.state.set(State::Cut);
                }
            }
            removed += pieces.drain(nth..).map(|piece| piece.len()).sum::<usize>();
        }
        if removed > 0 {
            pieces.retain(|piece| !piece.is_empty());
        }
        if !pieces.is_empty() {
            self.answered.set(true);
        }
        removed
    }

    /// Returns how many of the `bytes` that the socket took were not reported as consumed.
    pub(super) fn unreported(&self, bytes: usize) -> usize {
        let early = self.early.get();
        let reported = early.min(bytes);
        if reported > 0 {
            self.early.set(early - reported);
        }
        bytes - reported
    }

    /// Records that the service has ended its direction.
    pub(super) fn ended(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.borrow_mut().service_ended();
            self.progress.set(true);
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.get()
    }

    /// The doubt about a response that was not forwarded.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt.get()
    }

    /// Lets the connection leave the stream once all delivered bytes are in its socket. The visitor
    /// gets no more bytes of the service. The first reason counts.
    pub(super) fn depart(&self, why: Why) {
        if self.state.get() == State::Open {
            self.state.set(State::Leaving);
            *self.why.borrow_mut() = Some(why);
        }
    }

    /// Why the connection leaves the stream, once that is certain.
    pub(super) fn why(&self) -> Option<Why> {
        self.why.borrow().clone()
    }

    /// Records that delivered bytes are lost, so a leaving connection must be aborted.
    pub(super) fn lose(&self) {
        if self.state.get() == State::Leaving {
            self.state.set(State::Cut);
        }
    }

    /// Whether a request waits and may continue, or the connection may end.
    pub(super) fn may_go_on(&self) -> bool {
        self.progress.get() && (self.rest.borrow().then == Then::Wait || self.is_over())
    }

    /// Drops the handler after the end of the connection, because the link may keep the stream.
    pub(super) fn release(&self) {
        drop(self.onward.take());
    }

    /// The bytes of the visitor that were sent to no service.
    pub(super) fn take_rest(&self) -> BytesMut {
        let rest = &mut *self.rest.borrow_mut();
        rest.held.set(0);
        std::mem::take(&mut rest.bytes)
    }

    /// Passes the connection to the handler.
    pub(super) fn leave(&self, socket: Option<Socket>, why: Why) {
        let rest = std::mem::take(&mut self.rest.borrow_mut().bytes);
        let onward = self.onward.take();
        if let Some(onward) = onward {
            onward.onward(Leaving { socket, visitor: self.visitor, rest, why });
        }
    }
}
