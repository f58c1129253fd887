//! How a carrier leaves a link, and how a link ends.

use std::rc::Rc;

use proto::{CarrierNumber, ResetCode};

use crate::inner::Inner;
use crate::notices::Notice;
use crate::state::{End, State};
use crate::tasks::CarrierTasks;

impl Inner {
    /// Handles the loss of a carrier: by an error, by silence, or because another carrier replaced
    /// it.
    pub(crate) fn carrier_ended(self: &Rc<Self>, number: CarrierNumber) {
        let before = self.carriers.borrow().len();
        self.drop_carriers(|running| running.number == number);
        if self.carriers.borrow().len() == before {
            return;
        }
        let now = crate::now();
        let active = self.machine.borrow().active_carrier();
        self.machine.borrow_mut().detach(now, number);
        if self.closing.get() {
            return self.end(End::Closed);
        }
        if self.ended.get().is_none() {
            if self.carriers.borrow().is_empty() {
                self.owner.changed(&self.handle(), State::Stalled);
                self.notices.add(Notice::CarrierLost);
            } else if self.is_standby_lost(number, active) {
                self.notices.add(Notice::StandbyLost);
            }
        }
        self.drive(now);
    }

    /// Whether the lost carrier was the standby. A carrier that the peer abandoned is no longer the
    /// active carrier: then the active carrier is the former standby, whose number is higher.
    fn is_standby_lost(&self, lost: CarrierNumber, active: Option<CarrierNumber>) -> bool {
        active.is_some_and(|active| active < lost)
    }

    pub(crate) fn drop_carriers(&self, matches: impl Fn(&CarrierTasks) -> bool) {
        let mut gone = Vec::new();
        self.carriers.borrow_mut().retain_mut(|running| {
            let matched = matches(running);
            if matched {
                gone.push(running.number);
            }
            !matched
        });
        for number in gone {
            self.wakers.forget(number);
        }
    }

    /// Ends the link: notifies the peer, closes the carriers, resets the sockets. Later calls have
    /// no effect.
    pub(crate) fn end(self: &Rc<Self>, end: End) {
        if self.ended.get().is_some() {
            return;
        }
        self.ended.set(Some(end));
        self.timer.stop();
        drop(self.orders.take());
        let carriers = std::mem::take(&mut *self.carriers.borrow_mut());
        if self.leave_word(end) {
            carriers.into_iter().for_each(CarrierTasks::retire);
            self.wakers.wake_all();
        }
        self.notices.add(Notice::Ended(end));
        self.retirement.fate.notify_one();
        let outlets = std::mem::take(&mut *self.outlets.borrow_mut());
        for (_, outlet) in outlets.into_iter().flatten() {
            outlet.reset(ResetCode::Shutdown);
        }
        let flows = std::mem::take(&mut *self.flows.borrow_mut());
        for (_, outlet) in flows.into_iter().flatten() {
            outlet.close(ResetCode::Shutdown);
        }
        self.owner.changed(&self.handle(), State::Ended(end));
    }

    /// Queues GOAWAY as the last frame. Returns false if the peer already knows of the end.
    fn leave_word(&self, end: End) -> bool {
        let mut machine = self.machine.borrow_mut();
        match end {
            End::Closed | End::Retired | End::Panicked => machine.close(),
            End::Violation(violation) => machine.abort(violation),
            End::ByPeer | End::Accused(_) | End::Expired | End::Forgotten => return false,
        }
        true
    }
}
