//! The deadline of the timer task of a link, and the wake-up of the task before the deadline.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Instant;

use tokio::task::AbortHandle;

#[derive(Debug, Default)]
pub(crate) struct Alarm {
    armed: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
    task: RefCell<Option<AbortHandle>>,
}

impl Alarm {
    /// Stores the handle of the timer task.
    pub(crate) fn started(&self, task: AbortHandle) {
        *self.task.borrow_mut() = Some(task);
    }

    /// Records that the task runs: it needs no wake-up until it sleeps.
    pub(crate) fn runs(&self) {
        self.waker.take();
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }

    /// Wakes the task if `deadline` is before the deadline that the task awaits.
    pub(crate) fn rearm(&self, deadline: Option<Instant>) {
        let Some(next) = deadline else { return };
        if self.armed.get().is_none_or(|armed| next < armed) {
            self.armed.set(Some(next));
            self.call();
        }
    }

    /// Wakes the task, which then drives the link. A running task needs no wake-up: it polls the
    /// machine before it sleeps.
    pub(crate) fn call(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn sleeps(&self, deadline: Option<Instant>, cx: &Context<'_>) {
        self.armed.set(deadline);
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop();
    }
}
