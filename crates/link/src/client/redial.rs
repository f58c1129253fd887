//! A command to dial now, which ends the pauses between attempts. After a change of the network, or
//! after the cause of a refusal is fixed, the user knows before the client does.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;

/// The pauses of all links of a worker.
#[derive(Debug, Default)]
pub struct Redial {
    now: Notify,
    /// The number of keepers without a carrier: they dial, or pause before the next dial.
    looking: Cell<u64>,
}

impl Redial {
    /// Ends the current pauses. Returns the number of links without a carrier, each of which now
    /// has an attempt in progress.
    pub fn now(&self) -> u64 {
        self.now.notify_waiters();
        self.looking.get()
    }

    /// Waits for the duration, or for the command.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = self.now.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Counts a keeper while it has no carrier.
    pub(super) fn looking(&self) -> Looking<'_> {
        self.looking.update(|count| count + 1);
        Looking(self)
    }
}

pub(super) struct Looking<'a>(&'a Redial);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.looking.update(|count| count - 1);
    }
}
