//! The runtime of every program and every origin.

use std::io;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// A runtime of one thread.
pub fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}
