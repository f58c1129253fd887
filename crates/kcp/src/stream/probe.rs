//! Asks for the window of a peer that has none left: after half a second, then each time half as
//! long again, as kcp-go does. The peer tells by itself when its reader makes room; the question is
//! for the case that this is lost.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(crate) struct WindowProbe {
    next: Option<(Instant, Duration)>,
}

impl WindowProbe {
    pub(crate) fn due(&self) -> Option<Instant> {
        self.next.map(|(due, _)| due)
    }

    /// Whether the question has to leave now. `is_closed`: there is something to send, and no window.
    pub(crate) fn asks(&mut self, now: Instant, is_closed: bool) -> bool {
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
