//! What a worker of a server has beside the state of every worker.

use std::cell::{Cell, RefCell};

use relay::Listening;
use tokio::sync::Notify;

/// The doors of one worker.
#[derive(Default)]
pub(super) struct DoorsState {
    /// The listeners of doors.
    pub(super) doors: RefCell<Vec<Listening>>,
    /// This process leaves: connections of HTTP end that end here.
    is_leaving: Cell<bool>,
    /// Notified when this process leaves.
    leaving: Notify,
}

impl DoorsState {
    /// This process leaves.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        self.leaving.notify_waiters();
    }

    /// Waits until this process leaves.
    pub(super) async fn left(&self) {
        // State and future live on one thread, so nothing happens between the two.
        if !self.is_leaving.get() {
            self.leaving.notified().await;
        }
    }
}
