//! Notices to the task that supervises a link.

use std::cell::RefCell;
use std::mem;

use tokio::sync::Notify;

use crate::state::End;

/// An event to which the supervising task reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The active carrier is lost and no standby took over.
    CarrierLost,
    /// The active carrier is lost and the standby is the active carrier now.
    TookOver,
    /// The standby is lost and the active carrier is not.
    StandbyLost,
    /// Both sides have resumed on another carrier.
    Resumed,
    /// The peer is silent for 3 s: the next path must be tried in parallel with the current path.
    Probe,
    /// The active carrier takes few bytes although more bytes wait to be sent.
    Strained(LowRate),
    /// A command moves the link to another path.
    Move,
    /// A command probes a path.
    ProbePath,
    /// The network of this machine has changed, and the peer was asked for a sign of life.
    NetworkChanged,
    /// The link has ended.
    Ended(End),
}

/// The direction of the payload, from the client's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// The low rate of a strained carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowRate {
    pub(crate) direction: Direction,
    /// Bytes per second.
    pub(crate) rate: u64,
}

/// The notices that the supervisor has not taken yet, in order. The queue holds the newest notice
/// of each kind.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: RefCell<Vec<Notice>>,
    added: Notify,
}

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut waiting = self.waiting.borrow_mut();
        let kind = mem::discriminant(&notice);
        match waiting.iter_mut().find(|known| mem::discriminant(*known) == kind) {
            Some(known) => *known = notice,
            None => waiting.push(notice),
        }
        self.added.notify_one();
    }

    /// Drops the notices about earlier carriers.
    pub(crate) fn forget_carriers(&self) {
        let lasts =
            |notice: &Notice| matches!(notice, Notice::Ended(_) | Notice::Move | Notice::ProbePath);
        self.waiting.borrow_mut().retain(lasts);
    }

    /// Waits for the next notice.
    pub(crate) async fn next(&self) -> Notice {
        loop {
            let notice = {
                let mut waiting = self.waiting.borrow_mut();
                (!waiting.is_empty()).then(|| waiting.remove(0))
            };
            match notice {
                Some(notice) => return notice,
                None => self.added.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newer_notice_of_a_kind_takes_the_place_of_the_older_notice() {
        let strained = |rate| Notice::Strained(LowRate { direction: Direction::Up, rate });
        let notices = Notices::default();
        notices.add(strained(1));
        notices.add(Notice::Probe);
        notices.add(strained(2));
        assert_eq!(notices.next().await, strained(2));
        assert_eq!(notices.next().await, Notice::Probe);
        notices.add(strained(3));
        notices.add(Notice::Ended(End::Closed));
        notices.forget_carriers();
        assert_eq!(notices.next().await, Notice::Ended(End::Closed));
    }
}
