//! The state that a pump keeps for a visitor whose stream does not serve it yet, so that another
//! end may serve the visitor ([`super::retry`]).

use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use proto::{HEAD_ROOM, ResetCode};

use super::pump::{Pause, Progress, Reading, Writing};
use super::retry::{RetryHandler, Unserved};
use super::{ByteEnd, MOVED, Pump, READ};
use crate::Held;

impl Pump {
    /// Lets another end serve the visitor if this stream is refused. The bytes `first`, already
    /// read from the visitor, are sent before those of its socket.
    pub(crate) fn with_retry(mut self, handler: Box<dyn RetryHandler>, first: BytesMut) -> Self {
        let held = Held::none(self.pipe.settings.budget.as_ref());
        self.timers.get_or_insert_default().unserved = Some(Unserved::new(handler, first, held));
        self.pipe.note_revocable();
        self
    }

    pub(super) fn unserved(&mut self) -> Option<&mut Unserved> {
        self.timers.as_mut()?.unserved.as_deref_mut()
    }

    /// Drops the state, because the stream serves the visitor or its bytes cannot be kept.
    #[cold]
    fn forget_unserved(&mut self) {
        if let Some(timers) = &mut self.timers {
            let unserved = timers.unserved.take();
            if timers.is_bare() {
                self.timers = None;
            }
            drop(unserved);
        }
    }

    /// Keeps a copy of bytes of the visitor that are sent now.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        // The bytes `first` must be sent in any case.
        if self
            .unserved()
            .is_some_and(|unserved| !unserved.note(bytes) && unserved.first.is_empty())
        {
            self.forget_unserved();
        }
    }

    /// Why the visitor is handed over; `None`: it is not.
    pub(super) fn hand_over_reason(&mut self) -> Option<ResetCode> {
        let (is_served, reset) = (self.pipe.is_served(), self.pipe.reset.get());
        let leaves = self.pipe.take_silence();
        let unserved = self.timers.as_mut()?.unserved.as_deref_mut()?;
        let is_taken =
            || unserved.has_sent() && unserved.first.is_empty() && !self.inlet.is_untaken();
        if is_served || (reset.is_none() && is_taken() && !unserved.may_repeat()) {
            self.forget_unserved();
            return None;
        }
        let is_open = self.writing == Writing::Open && !self.pipe.is_finished();
        match reset {
            _ if !is_open => None,
            Some(code) => unserved.may_go_on(code).then_some(code),
            None => (leaves && unserved.leaves_silence()).then_some(ResetCode::Timeout),
        }
    }

    /// Hands the visitor over, to be served by another end.
    pub(super) fn hand_over(&mut self, end: Rc<ByteEnd>, why: ResetCode) -> Poll<()> {
        let unserved = self.timers.take().and_then(|timers| timers.unserved);
        self.watch = None;
        self.permit = None;
        self.reading = Reading::Ended;
        self.writing = Writing::Ended;
        self.pipe.deaf.set(true);
        drop(self.pipe.end.take());
        let rest = self.pipe.guard.get().map(|guard| guard.take_rest()).unwrap_or_default();
        // While the pump runs, it holds the only reference to the end.
        let (Some(unserved), Ok(end)) = (unserved, Rc::try_unwrap(end)) else {
            return Poll::Ready(());
        };
        let socket = match end {
            ByteEnd::Socket(socket) => Some(socket),
            ByteEnd::Layered(_) | ByteEnd::Observed(_) => None,
        };
        unserved.hand_over(socket, &rest, why);
        Poll::Ready(())
    }

    /// Sends the bytes that precede those of the socket. Returns the reason for a pause.
    pub(super) fn send_first(
        &mut self,
        buffer: &mut BytesMut,
        turn: &mut Progress,
    ) -> Option<Pause> {
        loop {
            let first = self.unserved()?.first.clone();
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
            self.unserved()?.first = first.slice(room..);
            self.pipe.note_active(MOVED | READ);
            self.pipe.count_in(room);
            self.keep(&first[..room]);
            turn.send(&*self.inlet, buffer);
        }
    }
}
