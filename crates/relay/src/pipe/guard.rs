//! The guard of an HTTP visitor's stream. It holds the bytes that were read and may not go to the
//! service yet, and follows the boundaries of requests and responses, so that a later request for
//! another host leaves this stream.
//!
//! ```text
//!   socket ──read──> [rest] ──Tracker::requests──> service
//!   socket <──────── Tracker::responses <───────── service
//!
//!   the next request is for another host, all responses are complete ──> Onward
//!   the next request is malformed, all responses are complete ─────────> Onward
//!   the service failed before its first byte ──────────────────────────> Onward
//! ```
//!
//! A visitor in pass-through has no tracker: only the first bytes and the failure concern it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::{HEAD_ROOM, ResetCode};

use crate::http::{Then, Tracker};
use crate::sniff::http::Fault;
use crate::{Held, Socket};

/// Takes the connections of HTTP visitors that leave the stream of their service.
pub trait Onward: fmt::Debug {
    /// Takes a connection. The call must not block.
    fn onward(&self, leaving: Leaving);
}

/// The connection of an HTTP visitor that leaves its stream.
#[derive(Debug)]
pub struct Leaving {
    /// The connection. Every response that was begun on it is complete.
    pub socket: Socket,
    /// The address of the visitor.
    pub visitor: Option<SocketAddr>,
    /// The bytes of the visitor that no service has got.
    pub rest: BytesMut,
    /// Why it leaves.
    pub why: Why,
}

/// Why a connection leaves its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The next request is for this host; `None`: it names no host.
    Other(Option<Box<str>>),
    /// The next bytes are no request.
    Bad(Fault),
    /// The stream was refused, or ended before the first byte of an answer.
    Down(ResetCode),
}

/// An HTTP visitor at the begin of its stream.
#[derive(Debug)]
pub struct Http {
    /// Follows requests and responses; `None`: only the failure of the service is answered.
    pub tracker: Option<Tracker>,
    /// The first bytes of the visitor, which were read from its socket already.
    pub first: BytesMut,
    /// Takes the connection when it leaves the stream.
    pub onward: Rc<dyn Onward>,
}

/// A head that is not complete and longer ends the connection when memory is short. Browsers send 1
/// to 4 KiB.
const SHORT: usize = 8 << 10;

pub(crate) struct Guard {
    tracker: Option<RefCell<Tracker>>,
    rest: RefCell<Rest>,
    /// The service sent a byte.
    answered: Cell<bool>,
    /// A response went on, so a request that waits may go on.
    progress: Cell<bool>,
    /// The service sent bytes for which nobody asked.
    over: Cell<bool>,
    visitor: Option<SocketAddr>,
    onward: Rc<dyn Onward>,
}

#[derive(Debug)]
struct Rest {
    bytes: BytesMut,
    /// The number of bytes at the front that may go to the service.
    ready: usize,
    /// What follows when these have gone.
    then: Then,
    /// What the bytes take of the memory budget.
    held: Held,
    /// The bytes behind `ready` were not looked at.
    is_fresh: bool,
}

/// The next step of the pump.
pub(super) enum Step {
    /// The buffer has a frame.
    Send,
    /// Read the socket.
    Read,
    /// Read nothing until the responses go on.
    Wait,
    /// The visitor sends nothing more to the service.
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
        let rest = Rest { is_fresh, bytes: first, ready, then: Then::Read, held };
        let (answered, progress, over) = Default::default();
        let (tracker, rest) = (tracker.map(RefCell::new), RefCell::new(rest));
        Self { tracker, rest, answered, progress, over, visitor, onward }
    }

    /// Whether the bytes of the visitor go to the service without a look at them, from now on.
    pub(super) fn is_done(&self) -> bool {
        let is_raw = self.tracker.as_ref().is_none_or(|tracker| tracker.borrow().is_raw());
        is_raw && self.rest.borrow().bytes.is_empty()
    }

    /// Whether the service has sent nothing yet.
    pub(super) fn is_unanswered(&self) -> bool {
        !self.answered.get()
    }

    /// The next step. A frame of at most `room` bytes is put into `buffer`, behind its head room.
    pub(super) fn step(&self, room: usize, buffer: &mut BytesMut) -> Step {
        let rest = &mut *self.rest.borrow_mut();
        if rest.ready == 0
            && (rest.is_fresh || self.progress.replace(false))
            && let Some(tracker) = &self.tracker
        {
            rest.is_fresh = false;
            (rest.ready, rest.then) = tracker.borrow_mut().requests(&rest.bytes);
        }
        if rest.ready > 0 {
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
            Then::Refuse(fault) => Step::Leave(Why::Bad(*fault)),
        }
    }

    /// Looks at bytes that were read into `buffer`, behind its head room. Leaves the bytes in it
    /// that go to the service now.
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
        let (pass, then) = tracker.borrow_mut().requests(&buffer[HEAD_ROOM..]);
        rest.then = then;
        if HEAD_ROOM + pass < buffer.len() {
            rest.bytes.extend_from_slice(&buffer[HEAD_ROOM + pass..]);
            rest.held.set(rest.bytes.capacity() as u64);
            buffer.truncate(HEAD_ROOM + pass);
        }
    }

    /// Looks at bytes of the service. Removes bytes for which nobody asked, and returns their
    /// number.
    pub(super) fn answers(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.answered.set(true);
        let Some(tracker) = &self.tracker else { return 0 };
        let tracker = &mut *tracker.borrow_mut();
        if tracker.is_raw() {
            return 0;
        }
        for nth in 0..pieces.len() {
            let piece = &mut pieces[nth];
            let seen = tracker.responses(piece);
            if seen.completed {
                self.progress.set(true);
            }
            if seen.deliver < piece.len() {
                self.over.set(true);
                let excess = piece.len() - seen.deliver;
                piece.truncate(seen.deliver);
                return excess + pieces.drain(nth + 1..).map(|piece| piece.len()).sum::<usize>();
            }
        }
        0
    }

    /// The service has ended its direction.
    pub(super) fn ended(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.borrow_mut().service_ended();
            self.progress.set(true);
        }
    }

    /// Whether the service sent bytes for which nobody asked.
    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Whether a request waits and may go on.
    pub(super) fn may_go_on(&self) -> bool {
        self.progress.get() && self.rest.borrow().then == Then::Wait
    }

    /// Gives the connection away.
    pub(super) fn leave(&self, socket: Socket, why: Why) {
        let rest = std::mem::take(&mut self.rest.borrow_mut().bytes);
        self.onward.onward(Leaving { socket, visitor: self.visitor, rest, why });
    }
}
