//! The runtime of the process, beside the runtimes of the workers.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Makes the runtime for slow work: signals, the control socket, files.
pub(crate) fn slow_runtime() -> io::Result<Runtime> {
    // One thread is enough, because this work is not urgent. A multi-thread scheduler is 1 % of the
    // static binary.
    Builder::new_current_thread().thread_name("tunnel-slow").enable_all().build()
}
