//! The runtime of the process, beside the runtimes of the workers.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Makes the runtime for slow work: signals, the control socket, files.
pub(crate) fn slow_runtime() -> io::Result<Runtime> {
    // One thread is enough, because this work is not urgent. A multi-thread scheduler is 1 % of the
    // static binary.
    Builder::new_current_thread().thread_name("tunnel-slow").enable_all().build()
}

/// Runs slow work on a runtime of its own. The end waits for no call that blocks, such as the
/// look-up of a name.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = slow_runtime()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
