//! The runtime of the process beside the workers.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// The runtime beside the workers, for what may be slow: signals, the control socket, files.
pub(crate) fn slow_runtime() -> io::Result<Runtime> {
    // One thread: a scheduler for several is 1 % of the static binary, and nothing here is in a
    // hurry.
    Builder::new_current_thread().thread_name("tunnel-slow").enable_all().build()
}
