//! Polls a future of quinn from inside a poll function.
//!
//! quinn wakes only pending futures and forgets a future that is dropped, so the pending future is
//! kept until the next poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The pending future, if any.
pub(crate) struct PendingFuture<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> PendingFuture<T> {
    /// Whether no future is pending.
    pub(crate) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Polls the pending future, or a new future that `start` makes.
    pub(crate) fn poll<F>(&mut self, cx: &mut Context<'_>, start: impl FnOnce() -> F) -> Poll<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let future = self.0.get_or_insert_with(|| Box::pin(start()));
        let done = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(done)
    }
}

impl<T> Default for PendingFuture<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for PendingFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "PendingFuture(pending)" } else { "PendingFuture(idle)" })
    }
}
