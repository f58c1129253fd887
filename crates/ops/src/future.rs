//! The future type of operations of a daemon.

use std::future::Future;
use std::pin::Pin;

/// A future that may move between threads, because the control socket runs beside the workers.
pub type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
