//! A future of quinn's that is polled where a function of ours is.
//!
//! quinn tells the futures that wait and forgets those that are dropped, so the one that is pending
//! has to be kept until the next poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The pending future, if there is one.
pub(crate) struct Waiting<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Waiting<T> {
    /// Polls the pending future, or the one that `start` makes.
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

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Waiting(pending)" } else { "Waiting(idle)" })
    }
}
