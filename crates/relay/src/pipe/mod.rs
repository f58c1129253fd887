//! The near end of a stream, a socket or a byte stream above a socket ([`ByteEnd`]), in two halves
//! that share the end on one thread.
//!
//! [`Pipe`] is the half that the link calls: it takes bytes and tries to write them at once.
//! [`Pump`] is the only task of the stream: it reads the end, writes the bytes that the end did not
//! take at once, and decides how the connection ends. The pipe only records the link's commands,
//! and the pump executes them. So the end is shut down, reset and closed in one place only.
//!
//! Every connection whose bytes are forwarded unchanged has a pump: with a stream of a link at its
//! other side, or with the pump of another socket of this process (`passage`).
//!
//! | file | content |
//! |---|---|
//! | `pump` | the task: reads the end, writes the queue, and selects the next step |
//! | `ending`, `linger` | how a stream ends, and how long its socket stays open |
//! | `timers`, `overdue`, `watchdog` | the time-outs of a stream |
//! | `retry`, `hand_over` | the visitor of a refused stream is handed to another end |
//! | `rates` | the rates of bytes of a stream |
//! | `reader`, `pages`, `queue` | the size of reads, bytes that move as pages, queued bytes |
//! | `end` | the end of a stream: a socket, or a byte stream above it |
//! | `facts` | the flags of a stream |
//! | `guard` | what the connection of an HTTP visitor is allowed to carry |
//! | `inlet`, `rest` | the link side of a stream, and a pump whose connection is at rest |

mod end;
mod ending;
mod facts;
mod guard;
mod hand_over;
mod inlet;
mod linger;
mod overdue;
mod pages;
mod pump;
mod queue;
mod rates;
mod reader;
mod rest;
mod retry;
mod timers;
mod watchdog;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use net::pages::Pages;
use proto::ResetCode;
use tokio::io::ReadBuf;
use transport::Outlet;

use crate::attention::{Ask, OnTheWay, Watched};
use crate::stall_pressure::Unmoved;
use crate::watch::Purpose;
use crate::{End, Held, Settings, Socket, Visit, Visitor};
pub(crate) use end::ByteEnd;
pub use end::Layered;
pub use end::Spectator;
use facts::{Fact, Facts};
use guard::{Guard, State};
pub use guard::{Http, Leaving, Onward, Why};
pub use inlet::StreamInlet;
#[cfg(test)]
pub(crate) use pages::tests::paged;
pub(crate) use pump::Pump;
pub(crate) use queue::Queue;
pub(crate) use rest::{Rest, Restable, Shared, Slot};
pub use retry::RetryHandler;
pub(crate) use watchdog::Watchdog;

/// The number of written KiB that proves that the socket is being read: more than the system
/// buffers for a socket that is not read.
const MOVES: u16 = 1 << 10;

/// The number of read KiB that proves that the far side takes bytes: twice the window of a stream
/// before its first byte is consumed, plus one.
const TAKEN: u16 = 513;

/// A byte moved in either direction.
pub(crate) const MOVED: u8 = 1;

/// A byte was read from the end.
pub(crate) const READ: u8 = 2;

/// A byte was written to the end.
pub(crate) const WRITTEN: u8 = 4;

/// The half of a stream that the link calls. An idle pipe holds no buffer: its size is 144 bytes
/// plus the end.
pub(crate) struct Pipe {
    /// `None` during the dial, after the close, and for a stream whose bytes a part of the daemon
    /// reads and writes. The end is shared, because the watch for errors borrows it while it waits.
    end: RefCell<Option<Rc<ByteEnd>>>,
    queue: RefCell<Queue>,
    /// The task of this stream: first the dial, then the pump.
    waker: Cell<Option<Waker>>,
    settings: Rc<Settings>,
    reset: Cell<Option<ResetCode>>,
    finish: Cell<bool>,
    stop: Cell<bool>,
    /// Whether writing has ended: the pipe then discards all later bytes.
    deaf: Cell<bool>,
    /// Which bytes moved since the watchdogs last checked: [`MOVED`], [`READ`], [`WRITTEN`].
    active: Cell<u8>,
    /// The state of the bytes that were written to the socket.
    on_the_way: OnTheWay,
    facts: Facts,
    /// The number of written KiB, up to [`MOVES`].
    written: Cell<u16>,
    /// The number of read KiB, up to [`TAKEN`].
    read: Cell<u16>,
    /// Counts the stream as unmoved until one of its ends has taken enough bytes.
    unmoved: Cell<Option<Unmoved>>,
    /// The record for the access log, if it is enabled, and for the list of streams, if no socket
    /// of this side has the visitor's address.
    visit: Option<Box<Visit>>,
    /// The guard of the stream of an HTTP visitor.
    guard: OnceCell<Box<Guard>>,
}

impl Pipe {
    /// Makes a pipe without a socket. Bytes queue until [`Pipe::connect`]. `visitor` is the visitor
    /// of the stream, wherever its socket is.
    pub(crate) fn new(settings: Rc<Settings>, visitor: impl Into<Visitor>) -> Rc<Self> {
        Self::guarded(settings, (visitor.into(), false), None)
    }

    /// As [`Self::new`], for the stream of a visitor whose address no socket of this side has.
    pub(crate) fn listed(settings: Rc<Settings>, visitor: Option<SocketAddr>) -> Rc<Self> {
        Self::guarded(settings, (visitor.into(), true), None)
    }

    /// As [`Self::new`], for the stream of an HTTP visitor. `is_listed`: as [`Self::listed`].
    pub(crate) fn guarded(
        settings: Rc<Settings>,
        (visitor, is_listed): (Visitor, bool),
        http: Option<Http>,
    ) -> Rc<Self> {
        let held = || Held::none(settings.budget.as_ref());
        let guard = http.map(|http| Box::new(Guard::new(http, visitor.address(), held())));
        let guard = guard.map_or_else(OnceCell::new, OnceCell::from);
        let is_logged = settings.watcher.as_ref().is_some_and(|watcher| watcher.wants_visits());
        // A guard stores the address.
        let is_listed = is_listed && visitor.address().is_some() && guard.get().is_none();
        let purpose = Purpose::of(is_logged, is_listed);
        let visit = purpose.map(|purpose| Box::new(Visit::new(visitor, purpose)));
        Rc::new(Self::counted(settings, visit, guard))
    }

    fn counted(
        settings: Rc<Settings>,
        visit: Option<Box<Visit>>,
        guard: OnceCell<Box<Guard>>,
    ) -> Self {
        settings.stats.enter();
        Self {
            end: RefCell::new(None),
            queue: RefCell::default(),
            waker: Cell::new(None),
            settings,
            reset: Cell::new(None),
            finish: Cell::new(false),
            stop: Cell::new(false),
            deaf: Cell::new(false),
            active: Cell::new(0),
            on_the_way: OnTheWay::default(),
            facts: Facts::default(),
            written: Cell::new(0),
            read: Cell::new(0),
            unmoved: Cell::new(None),
            visit,
            guard,
        }
    }

    /// Sets the guard of an open stream that has carried no byte of its visitor. Bytes that the
    /// service has sent already are an early answer. Returns how many bytes to report as consumed.
    pub(crate) fn guard_from_now(&self, http: Http, visitor: Option<SocketAddr>) -> usize {
        let held = Held::none(self.settings.budget.as_ref());
        let guard = self.guard.get_or_init(|| Box::new(Guard::new(http, visitor, held)));
        guard.admit();
        let mut early = BytesMut::new();
        self.queue.take().take_front(usize::MAX, &mut early);
        let mut removed = 0;
        if !early.is_empty() {
            let mut pieces = VecDeque::from([early.freeze()]);
            removed = self.look(guard, &mut pieces);
            let mut queue = self.queue.borrow_mut();
            pieces.into_iter().for_each(|piece| queue.push(piece));
        }
        if self.finish.get() {
            guard.ended();
        }
        removed
    }

    /// Whether the end is a dialled target.
    pub(crate) const fn is_target(&self) -> bool {
        self.facts.has(Fact::Target)
    }

    pub(crate) fn connect(&self, socket: Socket) {
        socket.begin(&self.settings.socket);
        self.unmoved.set(Some(Unmoved::new()));
        self.attach(socket.into());
        self.settings.stats.count_opened();
    }

    /// Sets the end of a stream whose target was dialled.
    pub(crate) fn connect_target(&self, end: ByteEnd) {
        self.facts.note(Fact::Target);
        if let Some(socket) = end.socket() {
            socket.begin(&self.settings.socket);
        }
        self.unmoved.set(Some(Unmoved::new()));
        self.attach(end);
        self.settings.stats.count_opened();
    }

    /// Whether the queued bytes begin with `text`; `None`: there are too few to decide.
    pub(crate) fn begins_with(&self, text: &[u8]) -> Option<bool> {
        let queue = self.queue.borrow();
        let mut known = 0;
        for (seen, expected) in queue.bytes().zip(text) {
            if seen != *expected {
                return Some(false);
            }
            known += 1;
        }
        if known == text.len() {
            return Some(true);
        }
        self.finish.get().then_some(false)
    }

    /// Sets the end of a stream that was counted already.
    pub(crate) fn attach(&self, end: ByteEnd) {
        *self.end.borrow_mut() = Some(Rc::new(end));
    }

    /// Sets the end of a visitor's stream whose bytes pass through a layer.
    pub(crate) fn connect_layered(&self, stream: impl Into<ByteEnd>) {
        self.attach(stream.into());
        self.settings.stats.count_opened();
    }

    /// Lets the connection of an HTTP visitor end as soon as no request is in progress.
    pub(crate) fn close_when_idle(&self) {
        if let Some(guard) = self.guard.get() {
            guard.close_when_idle();
            self.wake();
        }
    }

    /// Whether no request is in progress, and no byte has moved since the previous call.
    pub(crate) fn is_unused(&self) -> bool {
        self.guard.get().is_some_and(|guard| guard.is_unused())
    }

    fn with_socket(&self, call: impl FnOnce(&Socket)) {
        if let Some(socket) = self.end.borrow().as_ref().and_then(|end| end.socket()) {
            call(socket);
        }
    }

    pub(crate) fn settings(&self) -> &Rc<Settings> {
        &self.settings
    }

    pub(crate) fn count_in(&self, bytes: usize) {
        self.settings.stats.count_in(bytes);
        if self.read.get() < TAKEN {
            self.note_read(bytes);
        }
        if let Some(visit) = &self.visit {
            visit.count_read(bytes);
        }
    }

    pub(crate) fn count_out(&self, bytes: usize) {
        self.on_the_way.note();
        self.settings.stats.count_out(bytes);
        if self.written.get() < MOVES {
            self.note_written(bytes);
        }
        if let Some(visit) = &self.visit {
            visit.count_written(bytes);
        }
    }

    fn note_read(&self, bytes: usize) {
        let read = u16::try_from(bytes >> 10).unwrap_or(TAKEN).saturating_add(self.read.get());
        self.read.set(read);
        if read >= TAKEN {
            self.unmoved.take();
            self.with_socket(|socket| self.settings.socket.taken(socket));
        }
    }

    fn note_written(&self, bytes: usize) {
        let written =
            u16::try_from(bytes >> 10).unwrap_or(MOVES).saturating_add(self.written.get());
        self.written.set(written);
        if written >= MOVES {
            self.unmoved.take();
            self.with_socket(|socket| self.settings.socket.moved(socket));
        }
    }

    /// Records how the stream ends. The first record counts.
    pub(crate) fn note_end(&self, end: End) {
        if let Some(visit) = &self.visit {
            visit.note(end);
        }
    }

    /// Inspects bytes of the service of an HTTP visitor. Returns the number of bytes removed.
    fn look(&self, guard: &Guard, pieces: &mut VecDeque<Bytes>) -> usize {
        if guard.state() != State::Open {
            return throw_away(pieces);
        }
        let removed = guard.answers(pieces);
        match guard.state() {
            State::Open if !guard.may_go_on() => {}
            State::Open => self.wake(),
            State::Over => {
                // The connection ends with the last byte that was requested.
                self.finish.set(true);
                self.wake();
            }
            State::Leaving | State::Cut => {
                self.note_doubt(guard);
                self.wake();
            }
        }
        removed
    }

    /// Logs a response that is not forwarded, at most once per period.
    #[cold]
    fn note_doubt(&self, guard: &Guard) {
        let Settings { stats, watcher, .. } = &*self.settings;
        if let (Some(doubt), Some(watcher)) = (guard.doubt(), watcher)
            && stats.complaints.ready()
        {
            watcher.complain_of_response(doubt);
        }
    }

    /// Returns how many of the `bytes` that the socket took must be reported as consumed.
    fn unreported(&self, bytes: usize) -> usize {
        self.guard.get().map_or(bytes, |guard| guard.unreported(bytes))
    }

    /// Records that the far side serves the stream.
    fn note_served(&self) {
        if !self.facts.note(Fact::Served)
            && let Some(watcher) = &self.settings.watcher
        {
            watcher.served();
        }
        if self.facts.has(Fact::Revocable) {
            self.facts.forget(Fact::Revocable);
            // The pump can free the state that it keeps for a retry.
            self.wake();
        }
    }

    /// Whether the far side serves the stream.
    const fn is_served(&self) -> bool {
        self.facts.has(Fact::Served)
    }

    /// Records that another end may serve the visitor until the far side does.
    fn note_revocable(&self) {
        self.facts.note(Fact::Revocable);
    }

    /// Requests a wake-up when the link falls silent; the reader then calls [`Self::take_silence`].
    pub(crate) fn ask_for_silence(&self) {
        self.facts.note(Fact::Asking);
    }

    /// Whether the link has fallen silent since the previous call.
    pub(crate) fn take_silence(&self) -> bool {
        self.facts.forget(Fact::Silent)
    }

    /// Whether the peer has aborted the stream.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset.get().is_some()
    }

    /// Why the peer has aborted the stream.
    pub(crate) fn reset_code(&self) -> Option<ResetCode> {
        self.reset.get()
    }

    /// Whether the peer takes no more bytes.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.get()
    }

    /// Whether the peer has ended its direction and its bytes were all taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.finish.get() && self.queue.borrow().is_empty()
    }

    /// Takes at most `most` queued bytes of a pipe without a socket. Returns the number of bytes.
    pub(crate) fn take_into(&self, buf: &mut ReadBuf<'_>, most: usize) -> usize {
        let taken = self.queue.borrow_mut().take_into(buf, most);
        if taken > 0 {
            self.count_out(taken);
        }
        taken
    }

    /// Takes a queued piece of a pipe without a socket. The caller counts its bytes.
    pub(crate) fn pop(&self) -> Option<Bytes> {
        self.queue.borrow_mut().pop()
    }

    /// Whether bytes are queued in a pipe without a socket.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Discards the queued bytes and all later bytes. Returns the number of queued bytes.
    pub(crate) fn take_no_more(&self) -> usize {
        self.deaf.set(true);
        self.queue.take().clear()
    }

    /// Records that the end takes no more bytes. Returns true.
    ///
    /// A TCP socket returns `EPIPE` when the FIN of its far side arrived before the reset, so the
    /// end that a read returns is a clean end. Any other error ends both directions: the kernel
    /// reports the error once, to the write, and a read returns an end that is not clean.
    #[cold]
    fn note_write_error(&self, error: &io::Error) -> bool {
        self.deaf.set(true);
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.facts.note(Fact::Lost);
        }
        true
    }

    /// Records which bytes have moved.
    pub(crate) fn note_active(&self, which: u8) {
        self.active.set(self.active.get() | which);
    }

    /// Whether such a byte moved since the previous call.
    pub(crate) fn take_active(&self, which: u8) -> bool {
        let known = self.active.get();
        self.active.set(known & !which);
        known & which != 0
    }

    /// Takes one queued byte of a pipe without a socket. The byte is not part of the stream's data,
    /// so no counter includes it.
    pub(crate) fn take_report(&self) -> Option<u8> {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        (self.queue.borrow_mut().take_into(&mut buf, 1) == 1).then_some(byte[0])
    }

    /// Sets the waker of the task that the pipe wakes.
    pub(crate) fn park(&self, waker: &Waker) {
        let mut mine = self.waker.take();
        match &mut mine {
            Some(mine) => mine.clone_from(waker),
            None => mine = Some(waker.clone()),
        }
        self.waker.set(mine);
    }

    /// Closes the socket and frees queue and waker; the link may hold the pipe a little longer.
    /// With `abort` the far end of a TCP socket receives RST, otherwise what close(2) sends.
    pub(crate) fn close(&self, abort: bool) {
        self.deaf.set(true);
        self.waker.take();
        self.queue.take().clear();
        self.unmoved.take();
        if abort && let Some(end) = &*self.end.borrow() {
            end.reset_on_close();
        }
        self.end.take();
        if let Some(guard) = self.guard.get() {
            guard.release();
        }
    }

    /// Counts a stream that the far side refused, and logs refusals at most once per period.
    fn note_refusal(&self, code: ResetCode) {
        if self.facts.has(Fact::Served) {
            // The stream was served and then ended with this code; it was not refused.
            return;
        }
        match code {
            ResetCode::Aborted | ResetCode::Shutdown | ResetCode::Internal | ResetCode::Moved => {
                return;
            }
            ResetCode::Refused
            | ResetCode::Timeout
            | ResetCode::Unreachable
            | ResetCode::Denied
            | ResetCode::Limit
            | ResetCode::Unknown
            | ResetCode::Other(_) => {}
        }
        let Settings { stats, watcher, .. } = &*self.settings;
        stats.count_refused(code);
        self.note_end(End::Refused(code));
        let Some(watcher) = watcher else { return };
        watcher.refused(code);
        if stats.complaints.ready() {
            watcher.complain_of_refusal(code, stats.refused(code));
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake_by_ref();
            self.waker.set(Some(waker));
        }
    }
}

impl Outlet for Pipe {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        if self.deaf.get() {
            return throw_away(pieces);
        }
        self.note_active(MOVED);
        self.note_served();
        let removed = self.guard.get().map_or(0, |guard| self.look(guard, pieces));
        let mut written = 0;
        if !pieces.is_empty()
            && self.queue.borrow().is_empty()
            && let Some(end) = &*self.end.borrow()
            && let Some(taken) = self.admit(pieces)
        {
            match end.write_from(pieces) {
                Ok(n) => {
                    written = n.unwrap_or(0);
                    self.refund(taken.saturating_sub(written));
                }
                Err(error) => {
                    self.note_write_error(&error);
                    self.wake();
                    return removed + self.unreported(throw_away(pieces));
                }
            }
            if written > 0 {
                self.note_active(WRITTEN);
            }
            self.count_out(written);
        }
        if !pieces.is_empty() {
            let mut queue = self.queue.borrow_mut();
            pieces.drain(..).for_each(|piece| queue.push(piece));
            drop(queue);
            self.wake();
        }
        removed + self.unreported(written)
    }

    fn finish(&self) {
        self.note_served();
        if let Some(guard) = self.guard.get() {
            guard.ended();
        }
        self.finish.set(true);
        self.wake();
    }

    fn reset(&self, code: ResetCode) {
        self.note_refusal(code);
        let is_of_link = matches!(code, ResetCode::Shutdown | ResetCode::Internal);
        if !is_of_link && self.guard.get().is_some_and(|guard| guard.is_answered()) {
            // A target that does not read the rest of an upload resets its connection after its
            // complete answer. Resetting the visitor's connection would lose the answer (RFC 9112
            // section 9.6).
            self.stop.set(true);
            self.finish.set(true);
            return self.wake();
        }
        if self.facts.has(Fact::Served)
            && !matches!(code, ResetCode::Shutdown | ResetCode::Internal)
        {
            self.note_end(End::FarSide(code));
        }
        self.reset.set(Some(code));
        self.deaf.set(true);
        let lost = self.queue.take().clear();
        if let Some(guard) = self.guard.get().filter(|_| lost > 0) {
            guard.lose();
        }
        self.wake();
    }

    fn stop(&self, _code: ResetCode) {
        self.stop.set(true);
        self.wake();
    }

    fn room(&self) {
        self.wake();
    }

    fn silent(&self) {
        if self.facts.has(Fact::Revocable) || self.facts.has(Fact::Asking) {
            self.facts.note(Fact::Silent);
            self.wake();
        }
    }

    fn takes_pages(&self) -> bool {
        self.welcomes_pages()
    }

    fn deliver_pages(&self, pages: Pages) -> usize {
        self.take_pages(pages)
    }

    fn peer(&self) -> Option<SocketAddr> {
        let listed = self.visit.as_ref().and_then(|visit| visit.listed());
        let of_guard = || self.guard.get().and_then(|guard| guard.visitor());
        let of_socket = || self.end.borrow().as_ref()?.socket()?.peer();
        listed.or_else(of_guard).or_else(of_socket)
    }

    fn counted_in(&self) -> *const () {
        self.settings.stats.identity()
    }
}

impl Watched for Pipe {
    fn look(&self, ask: &mut Ask<'_>, since: Duration) {
        let end = self.end.borrow().clone();
        if self.on_the_way.look(|| end?.socket()?.ends(), ask, since) {
            self.wake();
        }
    }
}

/// Discards all pieces and returns the number of their bytes.
pub(crate) fn throw_away(pieces: &mut VecDeque<Bytes>) -> usize {
    pieces.drain(..).map(|piece| piece.len()).sum()
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("end", &self.end)
            .field("reset", &self.reset)
            .finish_non_exhaustive()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let (Some(visit), Some(watcher)) = (&self.visit, &self.settings.watcher)
            && visit.is_logged()
        {
            watcher.ended(visit);
        }
        self.settings.stats.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_streams_has_the_address_of_a_visitor_without_a_socket() {
        let visitor = Some("192.0.2.7:4000".parse().unwrap());
        assert_eq!(Pipe::listed(Rc::default(), visitor).peer(), visitor);
        assert_eq!(Pipe::new(Rc::default(), visitor).peer(), None, "its socket is not there yet");
    }

    #[test]
    fn an_idle_stream_is_small() {
        // An idle visitor may cost a total of 1 KiB of RSS. The two state structs of the link, the
        // socket's registration in tokio (about 350 bytes) and the task's header take the rest.
        assert!(size_of::<Pipe>() <= 144, "{}", size_of::<Pipe>());
        // The size is 48 in a build without tokio's multi-thread runtime, such as the daemon's.
        assert!(size_of::<Socket>() <= 56, "{}", size_of::<Socket>());
        assert!(size_of::<Pump>() <= 64, "{}", size_of::<Pump>());
    }
}
