//! The waker of a socket's task.

use std::cell::Cell;
use std::task::{Context, Waker};

/// Wakes the task when there is work for it. The runtime polls the task after all ready tasks, so
/// the work of a turn is done together.
#[derive(Default)]
pub(super) struct TaskWaker(Cell<Option<Waker>>);

impl TaskWaker {
    /// Stores the waker. Must be called at the beginning of each poll.
    pub(super) fn note(&self, cx: &Context<'_>) {
        let kept = self.0.take().filter(|noted| noted.will_wake(cx.waker()));
        self.0.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
    }

    pub(super) fn wake(&self) {
        if let Some(noted) = self.0.take() {
            noted.wake_by_ref();
            self.0.set(Some(noted));
        }
    }
}
