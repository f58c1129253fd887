//! What a pump keeps of a visitor that its stream does not serve yet, so that another end may serve
//! the visitor ([`super::again`]).

use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use proto::{HEAD_ROOM, ResetCode};

use super::again::{Again, Kept};
use super::pump::{Pause, Progress, Reading, Writing};
use super::{ByteEnd, MOVED, Pump, READ};
use crate::Held;

impl Pump {
    /// Lets another end serve the visitor if this stream is refused. The bytes `first` of the
    /// visitor, which were read already, are sent before those of its socket.
    pub(crate) fn or_again(mut self, again: Box<dyn Again>, first: BytesMut) -> Self {
        let held = Held::none(self.pipe.settings.budget.as_ref());
        self.timers.get_or_insert_default().again = Some(Kept::new(again, first, held));
        self.pipe.note_revocable();
        self
    }

    pub(super) fn kept(&mut self) -> Option<&mut Kept> {
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
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        // What has to be sent first has to be sent in any case.
        if self.kept().is_some_and(|kept| !kept.note(bytes) && kept.first.is_empty()) {
            self.keep_no_more();
        }
    }

    /// Why the visitor is given away, if it is now.
    pub(super) fn revoked(&mut self) -> Option<ResetCode> {
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

    /// Hands the visitor over, to be served by another end.
    pub(super) fn hand_over(&mut self, end: Rc<ByteEnd>, why: ResetCode) -> Poll<()> {
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
    pub(super) fn send_first(
        &mut self,
        buffer: &mut BytesMut,
        turn: &mut Progress,
    ) -> Option<Pause> {
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
}
