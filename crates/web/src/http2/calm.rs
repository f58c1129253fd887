//! The rate at which an HTTP/2 visitor may cancel requests.
//!
//! A map, a search field or a gallery cancels hundreds of requests while a download or a page uses
//! the same connection, so a cancellation must not affect other requests. A visitor that cancels
//! endlessly makes the server open and drop streams to targets at no cost to itself
//! (CVE-2023-44487). The bound is therefore a token bucket: each cancelled request takes a mark;
//! served requests and elapsed time refill marks.
//!
//! ```text
//!   marks:  BURST ......... 0 ................ -BURST
//!           Fine            | Leave            | End
//!           every request   | GOAWAY with      | GOAWAY with
//!           is served       | NO_ERROR         | ENHANCE_YOUR_CALM
//! ```
//! After GOAWAY with NO_ERROR the requests in progress complete, and the visitor opens another
//! connection for later requests (RFC 9113 section 6.8).

use std::cell::Cell;

use tokio::time::Instant;

/// The marks of a new connection, and the maximum. A map view has up to 300 tiles, and all of them
/// are cancelled at each zoom step.
const BURST: f64 = 1000.0;
/// Marks refilled per second: a search field that sends a request per key press, on several pages.
const PER_SECOND: f64 = 50.0;

/// The marks of a connection.
#[derive(Debug)]
pub(super) struct Calm {
    marks: Cell<f64>,
    since: Cell<Instant>,
}

/// The action for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// The connection accepts no more requests.
    Leave,
    /// The connection ends at once.
    End,
}

impl Calm {
    pub(super) fn new() -> Self {
        Self { marks: Cell::new(BURST), since: Cell::new(Instant::now()) }
    }

    /// Records a complete response.
    pub(super) fn served(&self) {
        self.marks.set((self.marks.get() + 1.0).min(BURST));
    }

    /// Records that the visitor has cancelled a request, or has made the server reset its stream.
    pub(super) fn cancelled(&self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.since.replace(now)).as_secs_f64();
        let marks = passed.mul_add(PER_SECOND, self.marks.get()).min(BURST);
        self.marks.set(marks - 1.0);
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.marks.get() {
            marks if marks >= 0.0 => Verdict::Fine,
            marks if marks >= -BURST => Verdict::Leave,
            _ => Verdict::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn cancel(calm: &Calm, times: u32) -> Verdict {
        (0..times).for_each(|_| calm.cancelled());
        calm.verdict()
    }

    #[tokio::test(start_paused = true)]
    async fn served_requests_and_time_give_marks_back() {
        let calm = Calm::new();
        assert_eq!(cancel(&calm, 1000), Verdict::Fine);
        (0..500).for_each(|_| calm.served());
        assert_eq!(cancel(&calm, 500), Verdict::Fine);
        advance(Duration::from_secs(4)).await;
        assert_eq!(cancel(&calm, 200), Verdict::Fine);
        assert_eq!(cancel(&calm, 1), Verdict::Leave);
        assert_eq!(cancel(&calm, 999), Verdict::Leave);
        assert_eq!(cancel(&calm, 1), Verdict::End);
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_not_saved_beyond_a_burst() {
        let calm = Calm::new();
        (0..5000).for_each(|_| calm.served());
        advance(Duration::from_secs(3600)).await;
        assert_eq!(cancel(&calm, 1000), Verdict::Fine);
        assert_eq!(cancel(&calm, 1), Verdict::Leave);
    }
}
