//! Retires a link: the driver's part of the retirement in `proto/src/link/goaway.rs`. Notifies the
//! owner and the supervisor, and ends the link after its last stream.

use std::rc::Rc;

use crate::inner::{Inner, Link};
use crate::state::{End, State};

impl Link {
    /// Retires the link. Its streams continue, and the link ends with its last stream. In this way
    /// a server requests another link from its client. A client announces that the other link is
    /// live, and opens no more streams on this link.
    pub fn go_away(&self) {
        if self.has_ended() {
            return;
        }
        self.inner.machine.borrow_mut().go_away();
        self.inner.note_going_away();
        self.inner.commanded();
    }

    /// Whether the link takes no new streams.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.inner.machine.borrow().is_going_away()
    }

    /// Waits until the link needs a successor: it was asked to retire, or it has ended. At most one
    /// task waits for this or for [`Link::closed_here`].
    pub(crate) async fn told_to_go(&self) {
        let inner = &self.inner;
        while !self.has_ended() && (inner.closing.get() || !inner.retirement.told_to_go.get()) {
            inner.retirement.fate.notified().await;
        }
    }

    /// Waits until this end has closed the link.
    pub(crate) async fn closed_here(&self) {
        while !self.inner.closing.get() && self.ended() != Some(End::Closed) {
            self.inner.retirement.fate.notified().await;
        }
    }
}

impl Inner {
    /// Handles a request of the peer to retire the link, or the exhaustion of this end's ids.
    /// `peer_done`: the peer has no stream left and opens none.
    pub(crate) fn retire(self: &Rc<Self>, peer_done: bool) {
        let retirement = &self.retirement;
        retirement.told_to_go.set(true);
        retirement.peer_done.set(retirement.peer_done.get() || peer_done);
        self.note_going_away();
        retirement.fate.notify_one();
        self.end_if_over();
    }

    /// Notifies the owner once that no more streams are taken.
    fn note_going_away(self: &Rc<Self>) {
        let goes = self.machine.borrow().is_going_away();
        if goes && !self.retirement.going_away.replace(true) {
            self.owner.changed(&self.handle(), State::GoingAway);
        }
    }

    /// Ends the link if it has no stream left and is closing or retired.
    pub(crate) fn end_if_over(self: &Rc<Self>) {
        let machine = self.machine.borrow();
        // Flows do not end by themselves, so a link that has sent GOAWAY does not wait for flows.
        let has_flows = machine.flow_count() > 0 && !self.closing.get();
        if machine.stream_count() > 0 || has_flows {
            return;
        }
        drop(machine);
        if self.closing.get() {
            self.end(End::Closed);
        } else if self.retirement.peer_done.get() {
            self.end(End::Retired);
        }
    }
}
