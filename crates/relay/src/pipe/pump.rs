//! The pump, the only task of a stream. It is a hand-written future, because the parked state of an
//! `async fn` would be several times as large.
//!
//! ```text
//!   reading:  Open ──EOF──────────────> Ended    inlet.finish
//!             Open ──stop by the peer─> Stopped  inlet.reset
//!             Open ──read error───────> abort    inlet.reset, inlet.stop, RST
//!             Open ──read error of a target whose bytes are in flight────> Broken, then abort
//!   writing:  Open ──finish, queue out> Ended    shutdown(Write)
//!             Open ──write error──────> Broken   inlet.stop; reading continues to its end
//!   any:      refused before a byte has reached a target ─> the visitor is handed over
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
use tokio::time::Instant;
use transport::{Inlet, LocalFuture};

use super::facts::Fact;
use super::guard::{State, Step};
use super::reader::ReadSize;
use super::timers::{Clocks, Deadline, Timers};
use super::{ByteEnd, MOVED, Pipe, READ, WRITTEN};
use crate::attention::{self, Watched};
use crate::{End, Permit};

/// The number of bytes that the pump moves per direction and poll before other tasks run. 256 KiB
/// take about 50 µs, the time that another task may have to wait. Tokio's own budget does not count
/// the bytes of these calls.
pub(super) const BUDGET: usize = 256 << 10;

/// The maximum number of reads per poll. The limit matters for a stream with few bytes per read.
const FRAMES: usize = 64;

/// The end of a stream that has lasted for `timeouts.total`.
const TOTAL: End = End::Timeout("of the whole connection");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Open,
    /// The peer takes no more bytes; the socket may have more.
    Stopped,
    /// The target failed, and the peer has not taken all its bytes.
    Broken,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
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
    /// The first stall makes the future, and later stalls reuse it.
    pub(super) watch: Option<LocalFuture<'static, ()>>,
    /// `None` as long as no timer is in use.
    pub(super) timers: Option<Box<Timers>>,
    /// Whether the deadline after the end of one direction was set, if there is one.
    pub(super) is_flushing: bool,
    pub(super) permit: Option<Permit>,
    pub(super) reading: Reading,
    pub(super) writing: Writing,
    pub(super) size: ReadSize,
    pub(super) discarded: u32,
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
    pub(super) fn resumed(
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
    pub(super) fn may_rest(&self, least: Duration) -> bool {
        let soon = Instant::now() + least;
        self.reading == Reading::Open
            && self.writing == Writing::Open
            && !self.is_flushing
            && self.timers.as_ref().is_none_or(|timers| timers.is_quiet_until(soon))
    }

    /// Writes the queued bytes, then the FIN that the link requested. Returns true when the budget
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
            && self.unserved().is_none()
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

    /// As [`Self::read_into`], for an HTTP visitor whose bytes must be inspected.
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
                    // The reason is stored, because a second check may differ: other threads free
                    // memory.
                    guard.depart(why);
                    return Ok(Pause::Leaving);
                }
                Step::End => {
                    // Closing with unread bytes would cause a reset and lose the last response.
                    self.reading = Reading::Stopped;
                    self.inlet.finish();
                    if guard.state() == State::Over && !pipe.finish.replace(true) {
                        // The end is written in the next poll.
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

    /// Reads once, at most `room` bytes, after the head room of `buffer`. The buffer stays empty
    /// when the read must be repeated.
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

    /// Handles a read of 0 bytes: the end of the stream, or an error that a write has reported.
    pub(super) fn end_of_reading(&mut self) -> Result<Pause, ()> {
        if self.pipe.facts.has(Fact::Lost) {
            return Err(());
        }
        self.reading = Reading::Ended;
        self.inlet.finish();
        Ok(Pause::Ended)
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.pipe.park(cx.waker());
        let Some(end) = this.pipe.end.borrow().clone() else { return this.farewell(cx) };
        if let Some(why) = this.hand_over_reason() {
            return this.hand_over(end, why);
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
        let mut has_more = this.write(&end, cx);
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
        // The unread bytes of a leaving connection belong to the next service.
        if this.lingering() || (this.is_answered() && !this.is_leaving()) {
            pause = this.discard(&end, cx);
            if pause == Pause::Ended {
                this.reading = Reading::Ended;
            }
        }
        has_more |= pause == Pause::Budget;
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
        if has_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// The bytes and frames that one poll of the pump has moved.
#[derive(Default)]
pub(super) struct Progress {
    moved: usize,
    frames: usize,
}

impl Progress {
    /// The maximum payload of the next frame, in bytes.
    pub(super) fn room(&self, inlet: &dyn Inlet) -> Result<usize, Pause> {
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

    /// Counts a frame of `bytes`.
    pub(super) const fn note(&mut self, bytes: usize) {
        self.moved += bytes;
        self.frames += 1;
    }

    /// Sends the frame in `buffer`.
    pub(super) fn send(&mut self, inlet: &dyn Inlet, buffer: &mut BytesMut) {
        self.note(buffer.len() - HEAD_ROOM);
        inlet.send(buffer);
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // A pump that ended has closed the pipe already, and a second call has no effect.
        self.watch = None;
        self.settle_all();
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
