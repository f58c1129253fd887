//! The timer task of a link. It also drives the link after a command that caused events.

use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use crate::guard::guarded;
use crate::inner::Inner;

/// Stands for "never", because a `Sleep` needs an instant.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn start(inner: &Rc<Inner>) {
    let link = Rc::downgrade(inner);
    let task = tokio::task::spawn_local(guarded(Weak::clone(&link), run(link)));
    inner.timer.started(task.abort_handle());
}

async fn run(link: Weak<Inner>) {
    let mut sleep = std::pin::pin!(tokio::time::sleep(FAR));
    poll_fn(|cx| {
        let mut is_due = false;
        loop {
            let Some(inner) = link.upgrade() else { return Poll::Ready(()) };
            inner.timer.runs();
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
