//! How a carrier comes to a link: in place of the others, or beside them.

use bytes::BytesMut;
use proto::{Attach, CarrierNumber, Preview};
use transport::Carrier;

use crate::carrier::Running;
use crate::handle::{Inner, Link};
use crate::owner::{Notice, State};

/// How far a link has come; see [`Link::standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    carrier: CarrierNumber,
    heard: u64,
}

impl Link {
    /// The newest carrier so far.
    pub(crate) fn last_carrier(&self) -> CarrierNumber {
        self.inner.last_carrier.get()
    }

    /// What changes when a carrier is attached or the peer is heard.
    pub(crate) fn standing(&self) -> Standing {
        Standing { carrier: self.inner.last_carrier.get(), heard: self.inner.heard.get() }
    }

    /// What a client that is about to come back over this carrier may be shown of the link; nothing
    /// changes by it. `None`: its number is not the highest so far, or the link is over.
    #[must_use]
    pub fn preview(&self, number: CarrierNumber) -> Option<Preview> {
        self.inner.may_come(number).then(|| self.inner.machine.borrow().preview())
    }

    /// Adds a greeted carrier on which that was shown, in place of all others. False: as for
    /// [`Link::attach`], or the preview is void.
    pub fn attach_previewed(
        &self,
        number: CarrierNumber,
        preview: &Preview,
        carrier: Carrier,
        leftover: BytesMut,
    ) -> bool {
        let (inner, now) = (&self.inner, crate::now());
        if !inner.may_come(number) {
            return false;
        }
        if !inner.machine.borrow_mut().attach_previewed(now, number, preview) {
            return false;
        }
        inner.expect(number, true);
        Running::start(inner, number, carrier, leftover);
        inner.drive(now);
        true
    }

    /// Adds a greeted carrier. `leftover` are bytes that arrived behind the greeting. False: its
    /// number is not the highest so far, the carrier is dropped.
    pub fn attach(
        &self,
        number: CarrierNumber,
        how: Attach,
        carrier: Carrier,
        leftover: BytesMut,
    ) -> bool {
        let inner = &self.inner;
        if !inner.may_come(number) {
            return false;
        }
        // Closed before RESUME is built, their unread bytes with them.
        inner.expect(number, matches!(how, Attach::Replaces(_)));
        inner.machine.borrow_mut().attach(crate::now(), number, how);
        Running::start(inner, number, carrier, leftover);
        if how == Attach::New {
            inner.owner.changed(self, State::Live);
        }
        inner.drive(crate::now());
        true
    }
}

impl Inner {
    /// Whether the number is the highest so far, and the link not over.
    fn may_come(&self, number: CarrierNumber) -> bool {
        number > self.last_carrier.get() && self.ended.get().is_none()
    }

    /// A new carrier makes the news of the old ones stale, and may replace them.
    fn expect(&self, number: CarrierNumber, replaces: bool) {
        self.last_carrier.set(number);
        let stale = |notice: &Notice| {
            matches!(notice, Notice::CarrierLost | Notice::Probe | Notice::Strained)
        };
        self.notices.borrow_mut().retain(|notice| !stale(notice));
        if replaces {
            self.drop_carriers(|_| true);
        }
    }
}
