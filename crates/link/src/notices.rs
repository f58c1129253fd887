//! What the task that supervises a link is told.

use std::cell::RefCell;
use std::mem;

use tokio::sync::Notify;

use crate::state::End;

/// What the task that supervises a link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The active carrier died and no other took over.
    CarrierLost,
    /// Long silence: try the next path beside the present one.
    Probe,
    /// The active carrier takes little of what there is to send.
    Strained(LowRate),
    /// The link is over.
    Ended(End),
}

/// Which way little was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Little was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowRate {
    pub(crate) direction: Direction,
    /// Bytes a second.
    pub(crate) rate: u64,
}

/// Notices that nobody has taken yet, in order. Of each kind there is at most one, the newest.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: RefCell<Vec<Notice>>,
    told: Notify,
}

impl Notices {
    pub(crate) fn tell(&self, notice: Notice) {
        let mut waiting = self.waiting.borrow_mut();
        let kind = mem::discriminant(&notice);
        match waiting.iter_mut().find(|known| mem::discriminant(*known) == kind) {
            Some(known) => *known = notice,
            None => waiting.push(notice),
        }
        self.told.notify_one();
    }

    /// A new carrier makes what was said of the old ones stale.
    pub(crate) fn forget_carriers(&self) {
        let is_stale = |notice: &Notice| {
            matches!(notice, Notice::CarrierLost | Notice::Probe | Notice::Strained(_))
        };
        self.waiting.borrow_mut().retain(|notice| !is_stale(notice));
    }

    /// The next notice, as soon as there is one.
    pub(crate) async fn next(&self) -> Notice {
        loop {
            let notice = {
                let mut waiting = self.waiting.borrow_mut();
                (!waiting.is_empty()).then(|| waiting.remove(0))
            };
            match notice {
                Some(notice) => return notice,
                None => self.told.notified().await,
            }
        }
    }
}
