//! Probes the window of a peer whose window is closed: after half a second, then at intervals that
//! grow by a half, as kcp-go does. The peer reports an open window on its own. The probe covers the
//! loss of this report.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(120);

/// The question for the window, if it is closed.
#[derive(Debug, Default)]
pub struct WindowProbe {
    next: Option<(Instant, Duration)>,
}

impl WindowProbe {
    /// When the question is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.next.map(|(due, _)| due)
    }

    /// Whether the question has to be sent now. `is_closed`: there is data to send, and the window
    /// is closed.
    pub fn asks(&mut self, now: Instant, is_closed: bool) -> bool {
        if !is_closed {
            self.next = None;
            return false;
        }
        match self.next {
            None => {
                self.next = Some((now + FIRST, FIRST));
                false
            }
            Some((due, _)) if due > now => false,
            Some((_, wait)) => {
                let wait = (wait + wait / 2).min(LAST);
                self.next = Some((now + wait, wait));
                true
            }
        }
    }
}
