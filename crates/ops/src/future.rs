//! The type of what a daemon does in its own time.

use std::future::Future;
use std::pin::Pin;

/// A future that may move between threads, because the control socket runs beside the workers.
pub type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
