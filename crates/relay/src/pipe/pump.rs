//! The pump, the only task of a stream. It is a hand-written future, because the parked state of an
//! `async fn` would be several times as large.
//!
//! ```text
//!   reading:  Open ──EOF──────────────> Ended    inlet.finish
//!             Open ──stop by the peer─> Stopped  inlet.reset
//!             Open ──read error───────> abort    inlet.reset, inlet.stop, RST
//!             Open ──read error of a target whose bytes are on their way─> Broken, then abort
//!   writing:  Open ──finish, queue out> Ended    shutdown(Write)
//!             Open ──write error──────> Broken   inlet.stop; reading goes on to its own end
//!   any:      refused before a byte has reached a target ─> the visitor is given away (`again`)
//!   any:      reset by the peer, error while stalled, timeout, far end lost > abort
//!   both directions ended ─> close; Stopped + Ended linger first
//! ```

use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use net::pool;
use proto::{HEAD_ROOM, ResetCode};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use transport::{Inlet, LocalFuture};

use super::again::{Again, Kept};
use super::guard::{State, Step, Why};
use super::reader::ReadSize;
use super::watchdog::{Clock, Watchdog};
use super::{ByteEnd, LOST, MOVED, Pipe, READ, WRITTEN};
use crate::attention::{self, Watched};
use crate::pace::{self, Portions};
use crate::{End, Held, Permit, Timeouts};

/// Bytes that the pump moves per direction and poll before other tasks run. 256 KiB take about 50
/// µs, which is the time that a neighbour may have to wait. tokio's own budget does not count the
/// bytes of these calls.
const BUDGET: usize = 256 << 10;

/// Reads per poll. The limit matters for a stream that brings few bytes per read.
const FRAMES: usize = 64;

/// The time for which a socket stays open after the last answer was written, when the peer wants no
/// more of its bytes. Closing at once would send RST, on which the client's system drops an answer
/// that it has not acknowledged (RFC 9112 section 9.6). nginx lingers for the same time.
const LINGER: Duration = Duration::from_secs(5);

/// Bytes that the pump reads and throws away meanwhile, to see the end of a socket that ends soon.
/// A socket that sends more fills its window and stops: an aborted download costs no further work.
const DISCARD: usize = 256 << 10;

/// The upload of an HTTP visitor that has its answer is read and thrown away for this time at most,
/// as nginx does: many programs read no answer before they have sent a whole body.
const LINGER_ALL: Duration = Duration::from_secs(30);

/// The time between two questions whether the far side has taken the bytes of a broken target. It
/// reports them within 50 ms.
const TAKEN_POLL: Duration = Duration::from_millis(25);

/// The end of a stream that has lasted for `timeouts.total`.
const TOTAL: End = End::Timeout("of the whole connection");

/// The end of a stream whose visitor has sent nothing for `timeouts.idle_up`.
const IDLE_UP: End = End::Timeout("of the visitor's direction");

/// The end of a stream whose target has sent nothing for `timeouts.idle_down`.
const IDLE_DOWN: End = End::Timeout("of the target's direction");

/// The end of a stream whose other direction went on for `timeouts.flush`.
const FLUSH: End = End::Timeout("after one side finished");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Open,
    /// The peer wants no more bytes; the socket may have more.
    Stopped,
    /// The target broke, and the peer has not taken all its bytes.
    Broken,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Open,
    /// The socket takes no more bytes.
    Broken,
    /// The system sends FIN.
    Ended,
}

/// The reason why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The socket has no bytes; the socket wakes the task.
    Empty,
    /// The link has no room; the link wakes the task.
    Stalled,
    /// The budget is spent; other tasks run first.
    Budget,
    /// The direction has ended.
    Ended,
    /// The connection of an HTTP visitor leaves the stream.
    Leaving,
}

/// Moves the bytes of one stream until both directions have ended. A pump that is dropped earlier
/// aborts both the socket and the stream.
pub(crate) struct Pump {
    pub(super) pipe: Rc<Pipe>,
    pub(super) inlet: Box<dyn Inlet>,
    /// Waits for an error of the socket. The pump polls it only while it does not read the socket.
    /// The first stall makes the future, and later stalls use it again.
    watch: Option<LocalFuture<'static, ()>>,
    /// `None` as long as no time-out is in force.
    timers: Option<Box<Timers>>,
    /// The deadline after the end of one direction is set, if there is one.
    is_flushing: bool,
    pub(super) permit: Option<Permit>,
    pub(super) reading: Reading,
    writing: Writing,
    pub(super) size: ReadSize,
    discarded: u32,
}

impl Pump {
    /// Makes the pump of a connected pipe. The caller spawns it on the thread of its link.
    pub(crate) fn new(pipe: Rc<Pipe>, inlet: Box<dyn Inlet>, permit: Option<Permit>) -> Self {
        let deadline = Deadline::after(pipe.settings.timeouts.total, TOTAL);
        let timers = deadline.map(|deadline| Box::new(Timers::of(deadline)));
        if permit.as_ref().is_some_and(|permit| permit.gate().is_of_one()) {
            pipe.note_paced();
        }
        Self::of(pipe, inlet, permit, timers)
    }

    /// Makes the pump of a connection that was at rest.
    pub(super) fn again(
        pipe: Rc<Pipe>,
        inlet: Box<dyn Inlet>,
        permit: Option<Permit>,
        clocks: Option<Box<Clocks>>,
    ) -> Self {
        let timers = clocks.map(|clocks| Box::new(clocks.resume(&pipe)));
        Self::of(pipe, inlet, permit, timers)
    }

    fn of(
        pipe: Rc<Pipe>,
        inlet: Box<dyn Inlet>,
        permit: Option<Permit>,
        timers: Option<Box<Timers>>,
    ) -> Self {
        let watched: Rc<dyn Watched> = Rc::<Pipe>::clone(&pipe);
        attention::watch(Rc::downgrade(&watched));
        Self {
            pipe,
            inlet,
            watch: None,
            timers,
            is_flushing: false,
            permit,
            reading: Reading::Open,
            writing: Writing::Open,
            size: ReadSize::default(),
            discarded: 0,
        }
    }

    /// Whether both directions are open, and no time-out is due within `least`.
    pub(super) fn is_calm(&self, least: Duration) -> bool {
        let soon = Instant::now() + least;
        self.reading == Reading::Open
            && self.writing == Writing::Open
            && !self.is_flushing
            && self.timers.as_ref().is_none_or(|timers| timers.is_calm(soon))
    }

    pub(super) fn forget_watch(&mut self) {
        self.watch = None;
    }

    /// What is left of the time-outs without their timers.
    pub(super) fn take_clocks(&mut self) -> Option<Box<Clocks>> {
        let Timers { watchdog, of_ways, deadline, .. } = *self.timers.take()?;
        let clocks = Clocks {
            watchdog: watchdog.as_ref().map(Watchdog::rest),
            of_ways: of_ways.each_ref().map(|dog| dog.as_ref().map(Watchdog::rest)),
            deadline: deadline.map(|deadline| (deadline.sleep.deadline(), deadline.end)),
        };
        clocks.due().map(|_| Box::new(clocks))
    }

    /// Lets another end serve the visitor if this stream is refused. The bytes `first` of the
    /// visitor, which were read already, are sent before those of its socket.
    pub(crate) fn or_again(mut self, again: Box<dyn Again>, first: BytesMut) -> Self {
        let held = Held::none(self.pipe.settings.budget.as_ref());
        self.timers.get_or_insert_default().again = Some(Kept::new(again, first, held));
        self.pipe.note_revocable();
        self
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        self.timers.as_mut()?.again.as_deref_mut()
    }

    /// The stream serves the visitor, or its bytes cannot be kept.
    #[cold]
    fn keep_no_more(&mut self) {
        if let Some(timers) = &mut self.timers {
            let kept = timers.again.take();
            if timers.is_bare() {
                self.timers = None;
            }
            drop(kept);
        }
    }

    /// Keeps bytes of the visitor that are sent now.
    fn keep(&mut self, bytes: &[u8]) {
        // What has to be sent first has to be sent in any case.
        if self.kept().is_some_and(|kept| !kept.note(bytes) && kept.first.is_empty()) {
            self.keep_no_more();
        }
    }

    /// Why the visitor is given away, if it is now.
    fn revoked(&mut self) -> Option<ResetCode> {
        let (is_served, reset) = (self.pipe.is_served(), self.pipe.reset.get());
        let leaves = self.pipe.take_silence();
        let kept = self.timers.as_mut()?.again.as_deref_mut()?;
        let is_taken = || kept.has_sent() && kept.first.is_empty() && !self.inlet.is_untaken();
        if is_served || (reset.is_none() && is_taken() && !kept.may_repeat()) {
            self.keep_no_more();
            return None;
        }
        let is_open = self.writing == Writing::Open && !self.pipe.is_finished();
        match reset {
            _ if !is_open => None,
            Some(code) => kept.may_go_on(code).then_some(code),
            None => (leaves && kept.leaves_silence()).then_some(ResetCode::Timeout),
        }
    }

    /// Gives the visitor away, to be served by another end.
    fn give_back(&mut self, end: Rc<ByteEnd>, why: ResetCode) -> Poll<()> {
        let kept = self.timers.take().and_then(|timers| timers.again);
        self.watch = None;
        self.permit = None;
        self.reading = Reading::Ended;
        self.writing = Writing::Ended;
        self.pipe.deaf.set(true);
        drop(self.pipe.end.take());
        let rest = self.pipe.guard.get().map(|guard| guard.take_rest()).unwrap_or_default();
        // The end of a stream is shared by nobody while its pump runs.
        let (Some(kept), Ok(end)) = (kept, Rc::try_unwrap(end)) else { return Poll::Ready(()) };
        let socket = match end {
            ByteEnd::Socket(socket) => Some(socket),
            ByteEnd::Layered(_) | ByteEnd::Observed(_) => None,
        };
        kept.give(socket, &rest, why);
        Poll::Ready(())
    }

    /// Sends the bytes that come before those of the socket. Returns why that pauses.
    fn send_first(&mut self, buffer: &mut BytesMut, turn: &mut Progress) -> Option<Pause> {
        loop {
            let first = self.kept()?.first.clone();
            if first.is_empty() {
                return None;
            }
            let room = match turn.room(&*self.inlet) {
                Ok(room) => room.min(first.len()),
                Err(pause) => return Some(pause),
            };
            buffer.clear();
            buffer.resize(HEAD_ROOM, 0);
            buffer.extend_from_slice(&first[..room]);
            self.kept()?.first = first.slice(room..);
            self.pipe.note_active(MOVED | READ);
            self.pipe.count_in(room);
            self.keep(&first[..room]);
            turn.send(&*self.inlet, buffer);
        }
    }

    /// Writes the queued bytes, then the FIN that the link asked for. Returns true when the budget
    /// ended before the queue was empty.
    fn write(&mut self, end: &ByteEnd, cx: &mut Context<'_>) -> bool {
        if self.writing != Writing::Open {
            return false;
        }
        let mut written = 0;
        let mut broken = self.pipe.deaf.get();
        while !broken && written < BUDGET && !self.pipe.queue.borrow().is_empty() {
            match end.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => broken = self.pipe.note_write_error(&error),
                Poll::Ready(Ok(())) => {
                    let pipe = Rc::clone(&self.pipe);
                    let wanted = || pipe.queue.borrow().len();
                    let Some(most) = self.portion(false, wanted, cx) else { break };
                    match pipe.queue.borrow_mut().poll_write(cx, end, most) {
                        Poll::Pending => break,
                        Poll::Ready(Ok(n)) => {
                            written += n.unwrap_or(0);
                            self.moved(false, n.unwrap_or(0));
                        }
                        Poll::Ready(Err(error)) => broken = self.pipe.note_write_error(&error),
                    }
                }
            }
        }
        self.settle(false);
        if !broken && let Poll::Ready(Err(error)) = end.poll_flush(cx) {
            broken = self.pipe.note_write_error(&error);
        }
        if written > 0 {
            self.pipe.note_active(MOVED | WRITTEN);
            self.pipe.count_out(written);
        }
        let left = !self.pipe.queue.borrow().is_empty();
        let thrown = if broken { self.pipe.queue.take().clear() } else { 0 };
        let consumed = self.pipe.unreported(written + thrown);
        if consumed > 0 {
            self.inlet.consumed(consumed);
        }
        if broken {
            self.writing = Writing::Broken;
            self.pipe.deaf.set(true);
            self.inlet.stop(ResetCode::Aborted);
        } else if !left
            && self.pipe.finish.get()
            && !self.is_leaving()
            && end.poll_finish(cx).is_ready()
        {
            self.writing = Writing::Ended;
            self.pipe.deaf.set(true);
        }
        !broken && left && written >= BUDGET
    }

    /// Reads as long as the link has room, the socket has bytes and the budget lasts. `Err` is an
    /// error of the socket.
    fn read(&mut self, end: &ByteEnd, cx: &mut Context<'_>) -> Result<Pause, ()> {
        if self.reading == Reading::Open && self.pipe.stop.get() {
            self.reading = Reading::Stopped;
            self.inlet.reset(ResetCode::Aborted);
        }
        if self.reading != Reading::Open {
            return Ok(Pause::Ended);
        }
        let is_plain = self.pipe.is_unguarded();
        if is_plain
            && self.size.is_bulk()
            && self.kept().is_none()
            && let Some(pause) = self.read_pages(end, cx)?
        {
            return Ok(pause);
        }
        // Only a read takes a buffer from the pool: an idle or stalled stream holds no buffer.
        let mut buffer = BytesMut::new();
        let pause = if is_plain {
            self.read_into(&mut buffer, end, cx)
        } else {
            self.read_guarded(&mut buffer, end, cx)
        };
        pool::give(buffer);
        self.settle(true);
        pause
    }

    /// How many bytes may be read from the end, or written to it, by the rates in force: at most
    /// `wanted`. `None`: the task is woken when it is their turn. Bytes without a rate cost no more
    /// than a look at the gates.
    fn portion(
        &mut self,
        is_read: bool,
        wanted: impl FnOnce() -> usize,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let Some(permit) = &self.permit else { return Some(usize::MAX) };
        let (gate, way) = (permit.gate(), self.pipe.way(is_read));
        let known = self.timers.as_ref().map(|timers| &timers.portions[usize::from(is_read)]);
        if !known.is_some_and(|known| known.waits()) && !pace::is_paced(gate, way) {
            return Some(usize::MAX);
        }
        let timers = self.timers.get_or_insert_default();
        match timers.portions[usize::from(is_read)].poll(cx, gate, way, wanted()) {
            Poll::Ready(most) => Some(most),
            Poll::Pending => None,
        }
    }

    /// Notes how many of the bytes of a portion have moved.
    fn moved(&mut self, is_read: bool, bytes: usize) {
        if let Some(timers) = &mut self.timers {
            timers.portions[usize::from(is_read)].used(bytes);
        }
    }

    /// Gives back what is left of a portion, unless it waits.
    fn settle(&mut self, is_read: bool) {
        if let (Some(timers), Some(permit)) = (&mut self.timers, &self.permit) {
            let portion = &mut timers.portions[usize::from(is_read)];
            if !portion.waits() {
                portion.settle(permit.gate(), self.pipe.way(is_read));
            }
        }
    }

    fn read_into(
        &mut self,
        buffer: &mut BytesMut,
        end: &ByteEnd,
        cx: &mut Context<'_>,
    ) -> Result<Pause, ()> {
        let mut turn = Progress::default();
        if let Some(pause) = self.send_first(buffer, &mut turn) {
            return Ok(pause);
        }
        loop {
            let room = match turn.room(&*self.inlet) {
                Ok(room) => room,
                Err(pause) => return Ok(pause),
            };
            if let Some(pause) = self.fill(buffer, room, end, cx)? {
                return Ok(pause);
            }
            if buffer.len() > HEAD_ROOM {
                self.keep(&buffer[HEAD_ROOM..]);
                turn.send(&*self.inlet, buffer);
            }
        }
    }

    /// As [`Self::read_into`], for a visitor of HTTP whose bytes have to be looked at.
    fn read_guarded(
        &mut self,
        buffer: &mut BytesMut,
        end: &ByteEnd,
        cx: &mut Context<'_>,
    ) -> Result<Pause, ()> {
        let pipe = Rc::clone(&self.pipe);
        let Some(guard) = pipe.guard.get() else { return self.read_into(buffer, end, cx) };
        let mut turn = Progress::default();
        loop {
            let room = match turn.room(&*self.inlet) {
                Ok(room) => room,
                Err(pause) => return Ok(pause),
            };
            match guard.step(room, buffer) {
                Step::Send => {
                    pipe.count_in(buffer.len() - HEAD_ROOM);
                    self.keep(&buffer[HEAD_ROOM..]);
                    turn.send(&*self.inlet, buffer);
                    continue;
                }
                Step::Read => {}
                Step::Wait => return Ok(Pause::Stalled),
                Step::Leave(why) => {
                    // A second question may have another answer: other threads free memory.
                    guard.depart(why);
                    return Ok(Pause::Leaving);
                }
                Step::End => {
                    // A reset for bytes that are not read would cost the last response.
                    self.reading = Reading::Stopped;
                    self.inlet.finish();
                    if guard.state() == State::Over && !pipe.finish.replace(true) {
                        // The end is written in the next turn.
                        cx.waker().wake_by_ref();
                    }
                    return Ok(Pause::Ended);
                }
            }
            if guard.is_done() {
                return self.read_into(buffer, end, cx);
            }
            if let Some(pause) = self.fill(buffer, room, end, cx)? {
                return Ok(pause);
            }
            let read = buffer.len().saturating_sub(HEAD_ROOM);
            if read > 0 {
                guard.look(buffer);
            }
            if buffer.len() > HEAD_ROOM {
                self.keep(&buffer[HEAD_ROOM..]);
                turn.send(&*self.inlet, buffer);
            }
        }
    }

    /// Reads once, behind the head room of `buffer`, at most `room` bytes. The buffer stays empty
    /// when the read has to be repeated.
    fn fill(
        &mut self,
        buffer: &mut BytesMut,
        room: usize,
        end: &ByteEnd,
        cx: &mut Context<'_>,
    ) -> Result<Option<Pause>, ()> {
        match end.poll_read_ready(cx) {
            Poll::Pending => return Ok(Some(Pause::Empty)),
            Poll::Ready(Err(_)) => return Err(()),
            Poll::Ready(Ok(())) => {}
        }
        let Some(most) = self.portion(true, || room, cx) else { return Ok(Some(Pause::Stalled)) };
        let room = room.min(most);
        let wanted = self.size.wanted(room);
        if buffer.capacity() < wanted {
            pool::give(std::mem::replace(buffer, pool::take(wanted)));
        }
        buffer.resize(HEAD_ROOM, 0);
        let limit = room.min(wanted - HEAD_ROOM);
        match end.poll_read(cx, buffer, limit) {
            Poll::Pending => {
                buffer.clear();
                return Ok(Some(Pause::Empty));
            }
            // The empty read cleared the readiness: the next `poll_read_ready` waits for new bytes.
            Poll::Ready(Ok(None)) => buffer.clear(),
            Poll::Ready(Ok(Some(0))) => return self.end_of_reading().map(Some),
            Poll::Ready(Ok(Some(n))) => {
                self.size.adapt(n, wanted - HEAD_ROOM, room);
                self.pipe.note_active(MOVED | READ);
                self.pipe.count_in(n);
                self.moved(true, n);
            }
            Poll::Ready(Err(e)) if e.kind() == ErrorKind::Interrupted => buffer.clear(),
            Poll::Ready(Err(_)) => return Err(()),
        }
        Ok(None)
    }

    /// The socket has no more bytes: the end of the stream, or an error that a write was told of.
    pub(super) fn end_of_reading(&mut self) -> Result<Pause, ()> {
        if self.pipe.is(LOST) {
            return Err(());
        }
        self.reading = Reading::Ended;
        self.inlet.finish();
        Ok(Pause::Ended)
    }

    /// Gives the connection of an HTTP visitor away. The stream ends cleanly, if the service ends
    /// it, too, within [`LINGER`].
    fn leave(&mut self, end: Rc<ByteEnd>, why: Why, cx: &mut Context<'_>) -> Poll<()> {
        let is_refused = matches!(why, Why::Doubt(_));
        if is_refused {
            // The service is at fault and gets no time to end the stream.
            self.inlet.reset(ResetCode::Aborted);
            self.inlet.stop(ResetCode::Aborted);
        } else if self.reading == Reading::Open {
            self.inlet.finish();
        }
        self.watch = None;
        self.permit = None;
        self.reading = Reading::Stopped;
        self.writing = Writing::Ended;
        self.pipe.deaf.set(true);
        self.pipe.note_end(End::Finished);
        drop(self.pipe.end.take());
        // The end of a stream is shared by nobody while its pump runs.
        let Ok(end) = Rc::try_unwrap(end) else { return Poll::Ready(()) };
        let socket = match end {
            ByteEnd::Socket(socket) => Some(socket),
            ByteEnd::Layered(_) | ByteEnd::Observed(_) => None,
        };
        if let Some(guard) = self.pipe.guard.get() {
            guard.leave(socket, why);
        }
        if is_refused { Poll::Ready(()) } else { self.farewell(cx) }
    }

    /// Waits for the end of a stream whose connection was given away.
    fn farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = self.pipe.finish.get() || self.pipe.is_reset();
        if self.reading != Reading::Stopped || is_over || self.overdue(cx).is_some() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Why the connection of an HTTP visitor leaves the stream, if it does so now.
    fn departure(&self, end: &ByteEnd) -> Option<Why> {
        let guard = self.pipe.guard.get()?;
        if guard.state() == State::Leaving {
            // The socket first gets what was delivered.
            let can_leave = self.writing == Writing::Open
                && self.pipe.queue.borrow().is_empty()
                && end.is_flushed();
            return if can_leave { guard.why() } else { None };
        }
        if !guard.is_unanswered() || self.writing != Writing::Open {
            return None;
        }
        match self.pipe.reset.get() {
            Some(code) => Some(Why::Down(code)),
            None => self.pipe.finish.get().then_some(Why::Down(ResetCode::Aborted)),
        }
    }

    fn guard_state(&self) -> State {
        self.pipe.guard.get().map_or(State::Open, |guard| guard.state())
    }

    fn is_leaving(&self) -> bool {
        self.guard_state() == State::Leaving
    }

    /// Aborts both directions. A TCP socket ends with RST.
    fn abort(&mut self, code: ResetCode) -> Poll<()> {
        // A direction that has ended already is left alone.
        if matches!(self.reading, Reading::Open | Reading::Broken) {
            self.inlet.reset(code);
        }
        if self.writing == Writing::Open && self.pipe.reset.get().is_none() {
            self.inlet.stop(code);
        }
        self.close(true)
    }

    /// The end failed. What a target has sent before goes to the far side first, for at most
    /// [`LINGER`]: a reset of the stream would make an answer worthless that lies before it.
    fn fail(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.note_end(End::Socket);
        if self.reading != Reading::Open || !self.pipe.is_target() || !self.inlet.is_untaken() {
            return self.abort(ResetCode::Aborted);
        }
        self.reading = Reading::Broken;
        if self.writing == Writing::Open {
            self.writing = Writing::Broken;
            self.pipe.deaf.set(true);
            self.pipe.queue.take().clear();
            self.inlet.stop(ResetCode::Aborted);
        }
        self.watch = None;
        let breaking =
            Breaking { until: Instant::now() + LINGER, tick: Box::pin(sleep(TAKEN_POLL)) };
        self.timers.get_or_insert_default().breaking = Some(breaking);
        self.await_taken(cx)
    }

    /// Waits until the far side has taken what a broken target has sent.
    fn await_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(breaking) = self.timers.as_mut().and_then(|timers| timers.breaking.as_mut()) {
            let Breaking { until, tick } = breaking;
            while self.inlet.is_untaken() && Instant::now() < *until {
                if tick.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                tick.as_mut().reset(Instant::now() + TAKEN_POLL);
            }
        }
        self.abort(ResetCode::Aborted)
    }

    fn close(&mut self, abort: bool) -> Poll<()> {
        self.reading = Reading::Ended;
        self.writing = Writing::Ended;
        self.watch = None;
        self.pipe.close(abort);
        Poll::Ready(())
    }

    /// Whether a reset by the peer ends the connection. There is one exception: after the socket
    /// broke, the pump told the peer to stop, and the peer's reset is the answer to that. The
    /// socket is then still read to its end. The end of a link is never such an answer.
    fn aborted_by_peer(&self) -> bool {
        let of_link = |code| matches!(code, ResetCode::Shutdown | ResetCode::Internal);
        self.pipe.reset.get().is_some_and(|code| self.writing != Writing::Broken || of_link(code))
    }

    /// Whether the socket failed while the pump does not read it. A socket that takes no more bytes
    /// has failed already, and the pump only reads it to its end.
    fn failed(&mut self, end: &Rc<ByteEnd>, cx: &mut Context<'_>) -> bool {
        if self.writing == Writing::Broken {
            self.watch = None;
            return false;
        }
        let watch = self.watch.get_or_insert_with(|| {
            let end = Rc::clone(end);
            Box::pin(async move { end.failed().await })
        });
        watch.as_mut().poll(cx).is_ready()
    }

    /// The end of a stream that has lasted as long as it may, or in which no byte moved for the
    /// time-out of the present state.
    fn overdue(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if self.is_half_closed() && !self.is_flushing {
            self.is_flushing = true;
            if let Some(flush) = Deadline::after(self.pipe.settings.timeouts.flush, FLUSH) {
                self.timers.get_or_insert_default().add(flush);
            }
        }
        // Both sides of a lingering stream have finished, and its last bytes may be on their way.
        let timers = if self.lingering() { None } else { self.timers.as_mut() };
        let deadline = timers.and_then(|timers| timers.deadline.as_mut());
        if let Some(end) = deadline.and_then(|deadline| deadline.poll(cx)) {
            return Some(end);
        }
        if self.lingering() && self.has_lingered(cx) {
            return Some(End::Finished);
        }
        if self.is_quiet(cx) {
            return Some(if self.lingering() { End::Finished } else { End::IDLE });
        }
        self.quiet_way(cx)
    }

    /// Whether the visitor has sent bytes behind its answer for as long as it may.
    fn has_lingered(&mut self, cx: &mut Context<'_>) -> bool {
        if self.pipe.guard.get().is_none() {
            return false;
        }
        let timers = self.timers.get_or_insert_default();
        let linger = timers.linger.get_or_insert_with(|| Box::pin(sleep(LINGER_ALL)));
        linger.as_mut().poll(cx).is_ready()
    }

    fn is_half_closed(&self) -> bool {
        self.reading != Reading::Open || self.writing != Writing::Open
    }

    fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let timeouts = &self.pipe.settings.timeouts;
        let lingering = self.lingering();
        let period = match (lingering, self.is_half_closed()) {
            (true, _) => LINGER,
            (false, true) => timeouts.half_close,
            (false, false) => timeouts.idle,
        };
        if period.is_zero() {
            if let Some(timers) = &mut self.timers {
                timers.watchdog = None;
            }
            return false;
        }
        let timers = self.timers.get_or_insert_default();
        let dog = timers.watchdog.take_if(|dog| dog.period() == period).unwrap_or_else(|| {
            self.pipe.take_active(MOVED);
            Watchdog::new(period)
        });
        timers.watchdog.insert(dog).poll(cx, || self.pipe.take_active(MOVED)).is_ready()
    }

    /// The direction that is open and in which no byte moved for its own time-out.
    fn quiet_way(&mut self, cx: &mut Context<'_>) -> Option<End> {
        let Timeouts { idle_up, idle_down, .. } = self.pipe.settings.timeouts;
        if (idle_up.is_zero() && idle_down.is_zero()) || self.lingering() {
            return None;
        }
        let (up, down) = ((idle_up, IDLE_UP), (idle_down, IDLE_DOWN));
        let (read, written) = if self.pipe.is_target() { (down, up) } else { (up, down) };
        let (reads, writes) = (self.reading == Reading::Open, self.writing == Writing::Open);
        let timers = self.timers.get_or_insert_default();
        for (dog, which, (period, end), is_open) in timers
            .of_ways
            .iter_mut()
            .zip([(READ, read, reads), (WRITTEN, written, writes)])
            .map(|(dog, (which, time, is_open))| (dog, which, time, is_open))
        {
            if period.is_zero() || !is_open {
                *dog = None;
                continue;
            }
            let dog = dog.get_or_insert_with(|| Watchdog::new(period));
            if dog.poll(cx, || self.pipe.take_active(which)).is_ready() {
                return Some(end);
            }
        }
        None
    }

    fn lingering(&self) -> bool {
        self.reading == Reading::Stopped && self.writing == Writing::Ended
    }

    /// Whether an HTTP visitor has its answer, and the service wants no more of the visitor and has
    /// not ended its direction yet.
    fn is_answered(&self) -> bool {
        self.reading == Reading::Stopped
            && self.pipe.guard.get().is_some_and(|guard| guard.is_answered())
    }

    /// Reads and throws away at most [`DISCARD`] bytes and one buffer, to see the end of the
    /// socket. Of an HTTP visitor all bytes are read as long as the linger lasts.
    fn discard(&mut self, end: &ByteEnd, cx: &mut Context<'_>) -> Pause {
        let is_http = self.pipe.guard.get().is_some();
        let (mut buffer, mut turn) = (BytesMut::new(), 0);
        let pause = loop {
            if !is_http && self.discarded as usize >= DISCARD {
                break Pause::Stalled;
            }
            if turn >= BUDGET {
                break Pause::Budget;
            }
            match end.poll_read_ready(cx) {
                Poll::Pending => break Pause::Empty,
                Poll::Ready(Err(_)) => break Pause::Ended,
                Poll::Ready(Ok(())) => {}
            }
            if buffer.capacity() == 0 {
                buffer = pool::take(self.size.wanted(usize::MAX));
            }
            buffer.clear();
            match end.poll_read(cx, &mut buffer, DISCARD) {
                Poll::Pending => break Pause::Empty,
                Poll::Ready(Ok(Some(0)) | Err(_)) => break Pause::Ended,
                // A read has at most the limit and one buffer, far below `u32::MAX`.
                Poll::Ready(Ok(n)) => {
                    let n = n.unwrap_or(0);
                    turn += n;
                    self.discarded = self.discarded.saturating_add(n as u32);
                    if is_http {
                        // The time of the linger begins anew with each byte.
                        self.pipe.note_active(MOVED);
                    }
                }
            }
        };
        pool::give(buffer);
        pause
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.pipe.park(cx.waker());
        let Some(end) = this.pipe.end.borrow().clone() else { return this.farewell(cx) };
        if let Some(why) = this.revoked() {
            return this.give_back(end, why);
        }
        if let Some(why) = this.departure(&end) {
            return this.leave(end, why, cx);
        }
        if this.aborted_by_peer() || this.guard_state() == State::Cut {
            drop(end);
            this.pipe.note_end(End::FarSide(ResetCode::Aborted));
            return this.abort(ResetCode::Aborted);
        }
        if this.pipe.on_the_way.is_lost() {
            drop(end);
            tracing::debug!("the far end of a socket has acknowledged nothing for 5 min");
            this.pipe.note_end(End::Socket);
            return this.abort(ResetCode::Aborted);
        }
        if this.reading == Reading::Broken {
            drop(end);
            return this.await_taken(cx);
        }
        let mut again = this.write(&end, cx);
        if this.is_leaving() && this.writing != Writing::Open {
            drop(end);
            this.pipe.note_end(End::Socket);
            return this.abort(ResetCode::Aborted);
        }
        let Ok(mut pause) = this.read(&end, cx) else {
            drop(end);
            return this.fail(cx);
        };
        if let Some(why) = this.departure(&end) {
            return this.leave(end, why, cx);
        }
        // Unread bytes of a connection that leaves belong to the next service.
        if this.lingering() || (this.is_answered() && !this.is_leaving()) {
            pause = this.discard(&end, cx);
            if pause == Pause::Ended {
                this.reading = Reading::Ended;
            }
        }
        again |= pause == Pause::Budget;
        match (this.reading, this.writing) {
            (Reading::Ended, Writing::Ended | Writing::Broken)
            | (Reading::Stopped, Writing::Broken) => {
                drop(end);
                let is_broken = this.writing == Writing::Broken;
                this.pipe.note_end(if is_broken { End::Socket } else { End::Finished });
                return this.close(false);
            }
            _ => {
                if matches!(pause, Pause::Stalled | Pause::Ended | Pause::Leaving)
                    && this.failed(&end, cx)
                {
                    drop(end);
                    return this.fail(cx);
                }
            }
        }
        drop(end);
        if let Some(end) = this.overdue(cx) {
            this.pipe.note_end(end);
            let is_finished = end == End::Finished;
            return if is_finished { this.close(false) } else { this.abort(ResetCode::Timeout) };
        }
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// The time-outs in force, in one allocation: most streams have none.
#[derive(Default)]
struct Timers {
    watchdog: Option<Watchdog>,
    /// Of bytes that are read, and of bytes that are written.
    of_ways: [Option<Watchdog>; 2],
    deadline: Option<Deadline>,
    /// The end of the linger of an HTTP visitor.
    linger: Option<Pin<Box<Sleep>>>,
    breaking: Option<Breaking>,
    /// What rates let through: of bytes that are written, and of bytes that are read.
    portions: [Portions; 2],
    /// The visitor, until the stream serves it.
    again: Option<Box<Kept>>,
}

/// A target broke, and the peer has not taken all its bytes.
struct Breaking {
    until: Instant,
    tick: Pin<Box<Sleep>>,
}

impl Timers {
    fn of(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// Whether nothing is in force.
    fn is_bare(&self) -> bool {
        let Self { watchdog, of_ways, deadline, linger, breaking, portions, again } = self;
        watchdog.is_none()
            && of_ways.iter().all(Option::is_none)
            && deadline.is_none()
            && linger.is_none()
            && breaking.is_none()
            && portions.iter().all(Portions::is_idle)
            && again.is_none()
    }

    /// Whether nothing but time-outs is in force, and none is due until `soon`.
    fn is_calm(&self, soon: Instant) -> bool {
        let Self { watchdog, of_ways, deadline, linger, breaking, portions, again } = self;
        let dogs = of_ways.iter().chain([watchdog]).flatten().map(Watchdog::due);
        let ends = dogs.chain(deadline.as_ref().map(|deadline| deadline.sleep.deadline()));
        linger.is_none()
            && breaking.is_none()
            && portions.iter().all(Portions::is_idle)
            && again.is_none()
            && ends.min().is_none_or(|end| end > soon)
    }

    /// The earlier one of two deadlines stays.
    fn add(&mut self, other: Deadline) {
        let all = self.deadline.take().into_iter().chain([other]);
        self.deadline = all.min_by_key(|deadline| deadline.sleep.deadline());
    }
}

/// The time-outs of a connection at rest.
pub(super) struct Clocks {
    watchdog: Option<Clock>,
    of_ways: [Option<Clock>; 2],
    deadline: Option<(Instant, End)>,
}

impl Clocks {
    /// The moment of the earliest time-out.
    pub(super) fn due(&self) -> Option<Instant> {
        let dogs = self.of_ways.iter().chain([&self.watchdog]).flatten().map(Clock::due);
        dogs.chain(self.deadline.map(|(due, _)| due)).min()
    }

    fn resume(self, pipe: &Pipe) -> Timers {
        let Self { watchdog, of_ways: [read, written], deadline } = self;
        let resume = |clock: Clock, which: u8| clock.resume(|| pipe.take_active(which));
        Timers {
            watchdog: watchdog.map(|clock| resume(clock, MOVED)),
            of_ways: [
                read.map(|clock| resume(clock, READ)),
                written.map(|clock| resume(clock, WRITTEN)),
            ],
            deadline: deadline
                .map(|(due, end)| Deadline { sleep: Box::pin(sleep_until(due)), end }),
            ..Timers::default()
        }
    }
}

/// The moment at which a stream ends, whatever its bytes do. There is no deadline, and no timer,
/// without the option that asks for it.
struct Deadline {
    sleep: Pin<Box<Sleep>>,
    end: End,
}

impl Deadline {
    /// `None` for a time of 0, which is no limit.
    fn after(time: Duration, end: End) -> Option<Self> {
        (!time.is_zero()).then(|| Self { sleep: Box::pin(sleep(time)), end })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Option<End> {
        self.sleep.as_mut().poll(cx).is_ready().then_some(self.end)
    }
}

/// What one poll of the pump has moved.
#[derive(Default)]
pub(super) struct Progress {
    moved: usize,
    frames: usize,
}

impl Progress {
    /// The payload bytes that the next frame may have.
    fn room(&self, inlet: &dyn Inlet) -> Result<usize, Pause> {
        self.left_of(inlet.room())
    }

    /// The bytes of `room` that may move next.
    pub(super) const fn left_of(&self, room: usize) -> Result<usize, Pause> {
        match room {
            0 => Err(Pause::Stalled),
            _ if self.moved >= BUDGET || self.frames >= FRAMES => Err(Pause::Budget),
            room => Ok(room),
        }
    }

    /// Notes a frame of `bytes`.
    pub(super) const fn note(&mut self, bytes: usize) {
        self.moved += bytes;
        self.frames += 1;
    }

    /// Sends the frame in `buffer`.
    fn send(&mut self, inlet: &dyn Inlet, buffer: &mut BytesMut) {
        self.note(buffer.len() - HEAD_ROOM);
        inlet.send(buffer);
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // A pump that ended has closed the pipe already, and the second call changes nothing.
        self.watch = None;
        if let (Some(timers), Some(permit)) = (&mut self.timers, &self.permit) {
            for (portion, is_read) in timers.portions.iter_mut().zip([false, true]) {
                portion.settle(permit.gate(), self.pipe.way(is_read));
            }
        }
        self.pipe.close(true);
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("reading", &self.reading)
            .field("writing", &self.writing)
            .finish_non_exhaustive()
    }
}
