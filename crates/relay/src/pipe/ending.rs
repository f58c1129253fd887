//! Ends a stream: its connection is closed, reset, or handed over.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use proto::ResetCode;
use tokio::time::{Instant, sleep};

use super::guard::{State, Why};
use super::linger::LINGER;
use super::pump::{Reading, Writing};
use super::timers::Breaking;
use super::{ByteEnd, Pump};
use crate::End;

/// The interval of polls whether the far side has taken the bytes of a failed target. The far side
/// reports them within 50 ms.
const TAKEN_POLL: Duration = Duration::from_millis(25);

impl Pump {
    /// Hands the connection of an HTTP visitor over. The stream ends cleanly if the service also
    /// ends it within [`LINGER`].
    pub(super) fn leave(&mut self, end: Rc<ByteEnd>, why: Why, cx: &mut Context<'_>) -> Poll<()> {
        let is_refused = matches!(why, Why::Doubt(_));
        if is_refused {
            // The service is at fault and is given no time to end the stream.
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
        // While the pump runs, it holds the only reference to the end.
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

    /// Waits for the end of a stream whose connection was handed over.
    pub(super) fn farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = self.pipe.finish.get() || self.pipe.is_reset();
        if self.reading != Reading::Stopped || is_over || self.overdue(cx).is_some() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Why the connection of an HTTP visitor leaves the stream; `None`: it stays.
    pub(super) fn departure(&self, end: &ByteEnd) -> Option<Why> {
        let guard = self.pipe.guard.get()?;
        if guard.state() == State::Leaving {
            // The delivered bytes are written to the socket first.
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

    pub(super) fn guard_state(&self) -> State {
        self.pipe.guard.get().map_or(State::Open, |guard| guard.state())
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.guard_state() == State::Leaving
    }

    /// Aborts both directions. A TCP socket ends with RST.
    pub(super) fn abort(&mut self, code: ResetCode) -> Poll<()> {
        // A direction that has ended already stays as it is.
        if matches!(self.reading, Reading::Open | Reading::Broken) {
            self.inlet.reset(code);
        }
        if self.writing == Writing::Open && self.pipe.reset.get().is_none() {
            self.inlet.stop(code);
        }
        self.close(true)
    }

    /// Handles a failed end. Bytes that a target sent before are delivered to the far side first,
    /// for at most [`LINGER`]: an immediate reset of the stream would discard an answer before it.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    /// Waits until the far side has taken the bytes that a failed target has sent.
    pub(super) fn await_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    pub(super) fn close(&mut self, abort: bool) -> Poll<()> {
        self.reading = Reading::Ended;
        self.writing = Writing::Ended;
        self.watch = None;
        self.pipe.close(abort);
        Poll::Ready(())
    }

    /// Whether a reset by the peer ends the connection. There is one exception: after a write to
    /// the socket failed, the pump asked the peer to stop, and the peer's reset is the answer to
    /// that. The socket is then still read to its end. The end of a link is never such an answer.
    pub(super) fn aborted_by_peer(&self) -> bool {
        let of_link = |code| matches!(code, ResetCode::Shutdown | ResetCode::Internal);
        self.pipe.reset.get().is_some_and(|code| self.writing != Writing::Broken || of_link(code))
    }

    /// Whether the socket failed while the pump does not read it. A socket that takes no more bytes
    /// has failed already, and the pump only reads it to its end.
    pub(super) fn failed(&mut self, end: &Rc<ByteEnd>, cx: &mut Context<'_>) -> bool {
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
}
