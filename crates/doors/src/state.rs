//! The state of a server's worker in addition to the state of every worker.

use std::cell::{Cell, RefCell};

use relay::Listening;
use tokio::sync::Notify;

/// The doors of one worker.
#[derive(Default)]
pub(super) struct DoorsState {
    /// The listeners of doors.
    pub(super) doors: RefCell<Vec<Listening>>,
    /// This process is leaving: HTTP connections that are terminated here are ended.
    is_leaving: Cell<bool>,
    /// Notified when this process starts to leave.
    leaving: Notify,
}

impl DoorsState {
    /// Records that this process is leaving.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        self.leaving.notify_waiters();
    }

    /// Waits until this process leaves.
    pub(super) async fn left(&self) {
        // State and future are on one thread, so nothing happens between check and wait.
        if !self.is_leaving.get() {
            self.leaving.notified().await;
        }
    }
}
