//! The waker of the task of a socket.

use std::cell::Cell;
use std::task::{Context, Waker};

/// Code that has work for the task wakes it. The runtime polls the task after all tasks that are
/// ready, so the work of a turn is done at once.
#[derive(Default)]
pub(super) struct TaskWaker(Cell<Option<Waker>>);

impl TaskWaker {
    /// To be called at the begin of each poll.
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
