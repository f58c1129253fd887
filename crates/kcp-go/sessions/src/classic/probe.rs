//! Questions for the peer's window while it is closed, and answers to such questions.

use crate::wire::Millis;

/// The first and the longest wait before a question, in milliseconds.
const FIRST_WAIT: u32 = 500;
const LONGEST_WAIT: u32 = 120_000;

/// The question and the answer of the next flush, and the time of the next question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// The wait in milliseconds; 0 while the window of the peer is open.
    pub(super) wait: u32,
    /// The time of the next question.
    pub(super) at: Millis,
    pub(super) asks: bool,
    pub(super) tells: bool,
}

impl Probe {
    /// Checks the window of the peer before a flush.
    pub(super) fn see(&mut self, now: Millis, remote_window: u16) {
        if remote_window != 0 {
            self.wait = 0;
            self.at = Millis(0);
        } else if self.wait == 0 {
            self.wait = FIRST_WAIT;
            self.at = now.plus(self.wait);
        } else if now.since(self.at) >= 0 {
            self.wait = self.wait.max(FIRST_WAIT);
            self.wait = (self.wait + self.wait / 2).min(LONGEST_WAIT);
            self.at = now.plus(self.wait);
            self.asks = true;
        }
    }
}
