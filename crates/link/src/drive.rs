//! The steps that follow each input and each command: events are reported, writers are woken, the
//! timer is set.
//!
//! An **input** is handled by a task of the link (a reader, a writer, the timer) or by the code
//! that attaches a carrier. [`Inner::drive`] follows it and performs these steps, in this order:
//!
//! 1. **Events.** They are first because they create and remove streams: a closed stream must not
//!    be notified of room, and a new stream must have its outlet before any other call.
//! 2. **Spent memory** is returned to the pool before step 3, in which sockets are read into
//!    buffers of that pool.
//! 3. **Room.** Streams that may send again send now, so that step 4 covers their frames.
//!
//! An outlet or the owner may issue commands in steps 1 and 3. So the steps are repeated until the
//! machine has no event.
//! 4. **Writers** are woken once for all frames that the previous steps have queued.
//! 5. **Timer.** It is last because each previous step may move the next deadline.
//!
//! A **command** is a call of the application: of a stream's pump or of the owner, whose state may
//! be borrowed by the caller. So a command reports no event itself. If a command causes an event,
//! [`Inner::commanded`] wakes the timer task, and that task drives. The one exception is `open`
//! with the last stream id of the link: it drives at once, because the owner must be notified
//! before the next visitor arrives.
//!
//! A [`Turn`] marks that a task of the link is about to drive. A command that an outlet issues
//! inside a turn needs no separate step: the end of the turn performs the steps.

use std::rc::Rc;
use std::time::Instant;

use crate::inner::Inner;

/// A turn of a task of the link, which handles inputs and drives when the turn ends.
#[must_use]
pub(crate) struct Turn<'a> {
    link: &'a Rc<Inner>,
    /// False inside another turn, whose end performs the steps.
    is_outermost: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // This runs after a panic as well, because the end of the link must be reported.
        if self.is_outermost {
            self.link.has_turn.set(false);
        }
    }
}

impl Turn<'_> {
    /// Performs steps 1 to 5 of the module documentation after the inputs were handled.
    pub(crate) fn end(self, now: Instant) {
        if !self.is_outermost {
            return;
        }
        let link = self.link;
        loop {
            let machine = link.machine.borrow();
            if !machine.has_news() {
                let deadline = machine.poll_timeout();
                drop(machine);
                // Commands of step 3 may have ended streams.
                link.retained.sweep();
                link.wakers.wake();
                link.timer.rearm(deadline);
                return;
            }
            drop(machine);
            link.report_news(now);
        }
    }
}

impl Inner {
    /// Begins a turn in which several inputs are handled.
    pub(crate) fn begin_turn(self: &Rc<Self>) -> Turn<'_> {
        Turn { link: self, is_outermost: !self.has_turn.replace(true) }
    }

    /// Follows an input. See the module documentation.
    pub(crate) fn drive(self: &Rc<Self>, now: Instant) {
        self.begin_turn().end(now);
    }

    /// Follows `poll_transmit`, which is an input as well: deadlines start, and streams have room
    /// again. A call that returned no frame and caused no event has changed nothing. Such a call
    /// must not wake the other writers, because their calls would wake this writer again.
    ///
    /// Returns whether it drove. Then outlets may have queued frames. Step 4 does not wake the
    /// caller, which is a running writer, so the caller must poll for frames again before it
    /// sleeps.
    #[must_use]
    pub(crate) fn transmitted(self: &Rc<Self>, now: Instant, bytes: usize) -> bool {
        let drives = bytes > 0 || self.machine.borrow().has_news();
        if drives {
            self.drive(now);
        }
        drives
    }

    /// Follows a command of the application. Calls neither an outlet nor the owner.
    pub(crate) fn commanded(&self) {
        if self.has_turn.get() {
            return;
        }
        // The command may have ended a stream. An idle link has no turn in which its pages would be
        // freed.
        self.retained.sweep();
        self.wakers.wake();
        let machine = self.machine.borrow();
        if machine.has_news() {
            self.timer.call();
        } else {
            self.timer.rearm(machine.poll_timeout());
        }
    }

    /// Steps 1 to 3. Each effect is taken under a borrow of the machine and executed after it.
    fn report_news(self: &Rc<Self>, now: Instant) {
        loop {
            let Some(event) = self.machine.borrow_mut().poll_event() else { break };
            self.dispatch(now, event);
        }
        loop {
            let Some(frame) = self.machine.borrow_mut().poll_spent() else { break };
            net::pool::recycle(frame);
        }
        self.retained.sweep();
        loop {
            let Some(key) = self.machine.borrow_mut().poll_room() else { break };
            if let Some(outlet) = self.outlet(key) {
                outlet.room();
            }
        }
    }
}
