//! The one timer of a link. Its task also drives after a command that made news.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::carrier::guarded;
use crate::handle::Inner;

/// Stands in for "never" in a `Sleep`, which wants some instant.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub(crate) struct Timer {
    armed: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
    task: RefCell<Option<AbortHandle>>,
}

impl Timer {
    pub(crate) fn start(&self, inner: &Rc<Inner>) {
        let link = Rc::downgrade(inner);
        let task = tokio::task::spawn_local(guarded(Weak::clone(&link), run(link)));
        *self.task.borrow_mut() = Some(task.abort_handle());
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }

    /// Wakes the task if this deadline is before the one it sleeps for.
    pub(crate) fn rearm(&self, deadline: Option<Instant>) {
        let Some(next) = deadline else { return };
        if self.armed.get().is_none_or(|armed| next < armed) {
            self.armed.set(Some(next));
            self.call();
        }
    }

    /// Wakes the task, which drives. A running task needs no call: it looks at the machine before it
    /// sleeps.
    pub(crate) fn call(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn sleeps(&self, deadline: Option<Instant>, cx: &Context<'_>) {
        self.armed.set(deadline);
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(link: Weak<Inner>) {
    let mut sleep = std::pin::pin!(tokio::time::sleep(FAR));
    poll_fn(|cx| {
        let mut is_due = false;
        loop {
            let Some(inner) = link.upgrade() else { return Poll::Ready(()) };
            // The task runs: nobody needs to call it.
            inner.timer.waker.take();
            let now = crate::now();
            if is_due {
                inner.machine.borrow_mut().handle_timeout(now);
            }
            if is_due || inner.machine.borrow().has_news() {
                inner.drive(now);
            }
            let next = inner.machine.borrow().poll_timeout();
            inner.timer.sleeps(next, cx);
            let Some(next) = next else { return Poll::Pending };
            sleep.as_mut().reset(next.into());
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_due = true;
        }
    })
    .await;
}
