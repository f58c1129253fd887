//! One timer for all flows of a table.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// The maximum number of idle flows to end before other tasks run. Each end sends a message to the
/// far side.
pub(super) const BUDGET: usize = 256;

/// The idle timer. Datagrams postpone the time at which the next flow is due without resetting the
/// timer, which then fires once too early.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer(Option<Pin<Box<Sleep>>>);

impl IdleTimer {
    /// Ready when the timer has fired, possibly early. Otherwise `cx` is woken at `due`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, due: Option<Instant>) -> Poll<()> {
        let Some(due) = due else { return Poll::Pending };
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if due < sleep.deadline() || sleep.is_elapsed() {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx)
    }

    /// Whether the timer fires at `due` or before.
    pub(super) fn covers(&self, due: Instant) -> bool {
        self.0.as_ref().is_some_and(|sleep| !sleep.is_elapsed() && sleep.deadline() <= due)
    }
}
