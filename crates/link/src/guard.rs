//! Confines a panic to the link of the task that panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::inner::Inner;
use crate::state::End;

pin_project! {
    /// Ends only the link if the work panics. The link ends after unwinding, because an outlet that
    /// is notified of the end may have the same defect.
    ///
    /// An `async fn` would store the work twice: as its argument and as the future that it polls.
    /// Each lane of a stream has such a task.
    struct Guarded<F> {
        link: Weak<Inner>,
        #[pin]
        work: F,
    }
}

pub(crate) fn guarded(
    link: Weak<Inner>,
    work: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    Guarded { link, work }
}

impl<F: Future<Output = ()>> Future for Guarded<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let polled = catch_unwind(AssertUnwindSafe(|| this.work.poll(cx)));
        polled.unwrap_or_else(|_| {
            if let Some(link) = this.link.upgrade() {
                link.end(End::Panicked);
            }
            Poll::Ready(())
        })
    }
}
