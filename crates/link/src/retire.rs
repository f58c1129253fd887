//! How a link is told to go, who hears of it, and when it is over: the driver's part of what
//! `proto` says about retirement.

use std::rc::Rc;

use crate::inner::{Inner, Link};
use crate::state::{End, State};

impl Link {
    /// Lets the link retire; its streams go on until they end, and the link with the last of them.
    /// A server asks its client for another link by that; a client has it, and opens no more
    /// streams on this one.
    pub fn go_away(&self) {
        if self.has_ended() {
            return;
        }
        self.inner.machine.borrow_mut().go_away();
        self.inner.note_going_away();
        self.inner.commanded();
    }

    /// Whether it takes no new streams.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.inner.machine.borrow().is_going_away()
    }

    /// Ready when the link is to be replaced: it was told to go, or it has ended. One task waits
    /// for this or [`Link::closed_here`].
    pub(crate) async fn told_to_go(&self) {
        let inner = &self.inner;
        while !self.has_ended() && (inner.closing.get() || !inner.retirement.told_to_go.get()) {
            inner.retirement.fate.notified().await;
        }
    }

    /// Ready when this end has said goodbye.
    pub(crate) async fn closed_here(&self) {
        while !self.inner.closing.get() && self.ended() != Some(End::Closed) {
            self.inner.retirement.fate.notified().await;
        }
    }
}

impl Inner {
    /// The peer wants the link to retire, or our ids are used up; or the peer has no stream left.
    pub(crate) fn retire(self: &Rc<Self>, peer_done: bool) {
        let retirement = &self.retirement;
        retirement.told_to_go.set(true);
        retirement.peer_done.set(retirement.peer_done.get() || peer_done);
        self.note_going_away();
        retirement.fate.notify_one();
        self.end_if_over();
    }

    /// Tells the owner once that no more streams are taken.
    fn note_going_away(self: &Rc<Self>) {
        let goes = self.machine.borrow().is_going_away();
        if goes && !self.retirement.going_away.replace(true) {
            self.owner.changed(&self.handle(), State::GoingAway);
        }
    }

    /// The last stream of a link that was to end after it may be gone.
    pub(crate) fn end_if_over(self: &Rc<Self>) {
        if self.machine.borrow().stream_count() > 0 {
            return;
        }
        if self.closing.get() {
            self.end(End::Closed);
        } else if self.retirement.peer_done.get() {
            self.end(End::Retired);
        }
    }
}
