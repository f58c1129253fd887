//! A daemon that `tunnel run` has started: it ends with its supervisor, because otherwise it would
//! hold the ports of its successor.

use std::env;

use ops::Life;
use rustix::process::Pid;

use super::process::descriptor;
use crate::parent;

/// The environment variable with the process id of the supervisor.
pub(crate) const SUPERVISOR: &str = "TUNNEL_SUPERVISOR";

/// The environment variable with the daemon's name, which prefixes each line of its log.
pub(super) const NAME: &str = logging::NAME_VARIABLE;

/// Whether this process is a daemon of `tunnel run`, which waits for the end of this process.
pub(crate) fn is_supervised() -> bool {
    env::var_os(SUPERVISOR).is_some()
}

/// Starts the drain when the supervisor has died. Never completes without a supervisor.
pub(crate) async fn end_with_the_supervisor(life: Life) {
    let of = |name| env::var(name).ok().and_then(|text: String| text.parse().ok());
    let Some(pid) = of(SUPERVISOR).or_else(|| of(parent::VARIABLE)) else { return };
    let Some(pid) = Pid::from_raw(pid) else { return };
    if let Ok(descriptor) = descriptor(pid)
        // An error of poll is not a death, but a death can no longer be detected.
        && descriptor.readable().await.is_err()
    {
        return;
    }
    tracing::warn!("the process {pid} that watched this daemon is gone; this daemon stops");
    life.drain();
}
