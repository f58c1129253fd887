//! A session that its stream and the driver share.
//!
//! A lock is held for a read, a write, or a burst of the driver (64 datagrams, tens of
//! microseconds), never while a call of the system is made or another lock is taken. Tasks are
//! woken afterwards, unless more than eight wait for one thing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::session::Session;
use kcp_go::wire::Conversation;

use crate::end::End;
use crate::hub::Hub;
use crate::wait::Waiters;

/// Writers are woken when there is room for this many bytes, or a quarter of the window, so that
/// they do not write one segment after the other.
const ROOM: usize = 16 << 10;

/// Bytes that are taken from a session at once for a reader.
pub(crate) const PIECE: usize = 64 << 10;

/// How long a session without a stream answers repeated datagrams, after all that it sent was
/// acknowledged: a peer whose last acknowledgement was lost would otherwise take it for dead.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a stream still wants of its session.
///
/// ```text
/// Open --shutdown--> Shut --drop--> Left
///   `--------------drop--------------^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Nothing more is written.
    Shut,
    /// Nothing more is read either.
    Left,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) peer: SocketAddr,
    pub(crate) conversation: Conversation,
    pub(crate) linger: Duration,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) session: Session,
    /// The room at which writers are woken, in bytes.
    enough: usize,
    /// The place of the session in the driver; `None` before the driver has it, and after its end.
    pub(crate) slot: Option<usize>,
    /// The driver was told to look at the session.
    pub(crate) is_touched: bool,
    /// What was taken from the session and not read yet.
    pub(crate) unread: Bytes,
    pub(crate) oob: Option<Bytes>,
    pub(crate) readers: Waiters,
    pub(crate) writers: Waiters,
    /// Tasks that wait until all is acknowledged.
    pub(crate) flushers: Waiters,
    pub(crate) oob_readers: Waiters,
    pub(crate) read_deadline: Option<Instant>,
    pub(crate) write_deadline: Option<Instant>,
    pub(crate) phase: Phase,
    /// When the session ends, acknowledged or not.
    pub(crate) linger: Option<Instant>,
    farewell: Option<Instant>,
    pub(crate) end: Option<End>,
    /// Runs of datagrams that the socket refused for the moment.
    pub(crate) refused: u64,
}

impl Shared {
    pub(crate) fn new(
        session: Session,
        hub: Arc<Hub>,
        (peer, conversation): (SocketAddr, Conversation),
        linger: Duration,
    ) -> Self {
        let state = State {
            enough: (session.room() / 4).clamp(1, ROOM),
            session,
            slot: None,
            is_touched: false,
            unread: Bytes::new(),
            oob: None,
            readers: Waiters::default(),
            writers: Waiters::default(),
            flushers: Waiters::default(),
            oob_readers: Waiters::default(),
            read_deadline: None,
            write_deadline: None,
            phase: Phase::Open,
            linger: None,
            farewell: None,
            end: None,
            refused: 0,
        };
        Self { state: Mutex::new(state), hub, peer, conversation, linger }
    }

    /// A panic of a user under the lock leaves a session that is whole: its methods do not panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the session, and has the driver look at it afterwards where `work` says
    /// so.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut State) -> (R, bool)) -> R {
        let mut state = self.lock();
        let (result, touches) = work(&mut state);
        let slot = state.slot.filter(|_| touches && !state.is_touched);
        state.is_touched |= slot.is_some();
        drop(state);
        if let Some(slot) = slot {
            self.hub.touch(slot);
        }
        result
    }

    /// The stream is gone.
    pub(crate) fn leave(&self, now: Instant) {
        self.with(|state| {
            state.phase = Phase::Left;
            state.linger.get_or_insert(now + self.linger);
            ((), true)
        });
    }
}

impl State {
    /// The next bytes or message.
    pub(crate) fn next(&mut self, most: usize) -> Option<Bytes> {
        if self.unread.is_empty() {
            return self.session.read(most);
        }
        let length = self.unread.len().min(most);
        Some(self.unread.split_to(length))
    }

    pub(crate) fn next_oob(&mut self) -> Option<Bytes> {
        self.oob.take().or_else(|| self.session.read_oob())
    }

    /// Finds the tasks for which there is something to do. Where a reader waits, the driver takes
    /// from the session for it, because only that shows whether there is anything.
    pub(crate) fn notify(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if !self.readers.is_empty() {
            if self.unread.is_empty() {
                self.unread = self.session.read(PIECE).unwrap_or_default();
            }
            if !self.unread.is_empty() || is_over(self.read_deadline) {
                self.readers.take(woken);
            }
        }
        if !self.oob_readers.is_empty() {
            self.oob = self.oob.take().or_else(|| self.session.read_oob());
            if self.oob.is_some() || is_over(self.read_deadline) {
                self.oob_readers.take(woken);
            }
        }
        let is_flushed = self.session.is_flushed();
        if is_flushed || self.session.room() >= self.enough || is_over(self.write_deadline) {
            self.writers.take(woken);
        }
        if is_flushed || is_over(self.write_deadline) || is_over(self.linger) {
            self.flushers.take(woken);
        }
    }

    /// Ends the session and wakes all that wait for it.
    pub(crate) fn end(&mut self, end: End, woken: &mut Vec<Waker>) {
        self.end.get_or_insert(end);
        self.slot = None;
        self.readers.take(woken);
        self.writers.take(woken);
        self.flushers.take(woken);
        self.oob_readers.take(woken);
    }

    /// Whether nobody needs the session any more.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Left {
            return false;
        }
        if self.farewell.is_none() && self.session.is_flushed() {
            self.farewell = Some(now + FAREWELL);
        }
        [self.linger.filter(|_| self.farewell.is_none()), self.farewell]
            .into_iter()
            .flatten()
            .any(|at| at <= now)
    }

    /// Whether the stream is gone and the peer has acknowledged everything.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.farewell.is_some()
    }

    /// The next time at which something is to be done, be it in the past; deadlines of the user
    /// that have passed are no such time.
    pub(crate) fn timeout(&self, now: Instant) -> Option<Instant> {
        let users = [self.read_deadline, self.write_deadline, self.linger, self.farewell];
        let users = users.into_iter().flatten().filter(|at| *at > now).min();
        [self.session.timeout(), users].into_iter().flatten().min()
    }
}
