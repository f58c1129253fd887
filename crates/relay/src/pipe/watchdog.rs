//! Detects that a stream moved no byte for too long. A watchdog exists only while a time-out
//! applies, so an idle stream without a time-out has no timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The watchdog checks a flag this many times per period. Moving a byte only sets the flag, because
/// reading the clock for every frame would be too expensive. The time-out is exact to a quarter of
/// the period.
const PARTS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Watchdog {
    period: Duration,
    quiet: u32,
    sleep: Pin<Box<Sleep>>,
}

impl Watchdog {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, quiet: 0, sleep: Box::pin(sleep(period / PARTS)) }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// The time at which it fires unless a byte moves.
    pub(super) fn due(&self) -> Instant {
        self.sleep.deadline() + self.period / PARTS * PARTS.saturating_sub(self.quiet + 1)
    }

    /// The state of the watchdog without its timer.
    pub(super) fn rest(&self) -> Clock {
        Clock { period: self.period, quiet: self.quiet, next: self.sleep.deadline() }
    }

    /// Ready when `take` returned false for the whole period. `take` returns whether a byte has
    /// moved since its previous call.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, take: impl Fn() -> bool) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            self.quiet = if take() { 0 } else { self.quiet + 1 };
            if self.quiet >= PARTS {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(Instant::now() + self.period / PARTS);
        }
        Poll::Pending
    }
}

/// A watchdog without its timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    period: Duration,
    quiet: u32,
    /// The time of the next check.
    next: Instant,
}

impl Clock {
    /// The time at which the watchdog fires unless a byte moves.
    pub(super) fn due(&self) -> Instant {
        self.next + self.period / PARTS * PARTS.saturating_sub(self.quiet + 1)
    }

    /// Restores the watchdog as if it had run meanwhile. `take` is that of [`Watchdog::poll`]. The
    /// last check of a period is left to the restored watchdog, because a byte may have arrived.
    pub(super) fn resume(self, take: impl Fn() -> bool) -> Watchdog {
        let Self { period, mut quiet, mut next } = self;
        let (now, part) = (Instant::now(), period / PARTS);
        while next <= now && quiet + 1 < PARTS && !part.is_zero() {
            quiet = if take() { 0 } else { quiet + 1 };
            next += part;
        }
        Watchdog { period, quiet, sleep: Box::pin(sleep_until(next)) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fires_after_the_period_without_activity_and_not_before() {
        let active = Cell::new(true);
        let mut dog = Watchdog::new(Duration::from_secs(60));
        let begin = Instant::now();
        poll_fn(|cx| dog.poll(cx, || active.take())).await;
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(60) && took <= Duration::from_secs(76), "{took:?}");
    }
}
