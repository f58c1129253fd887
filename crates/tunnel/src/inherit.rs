//! Listening sockets that are handed over by another program, which starts the daemon. A former
//! process of the daemon itself hands over in a different way: see `upgrade`.

use std::env;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use net::inherited::Inherited;

use crate::activation;

/// The environment variable with the path of the Unix socket at which the other process waits.
pub(crate) const VARIABLE: &str = "TUNNEL_INHERIT";

/// Idle timeout of the other process, which has the sockets ready.
const SILENCE: Duration = Duration::from_secs(10);

/// How long sockets wait to be bound: the services of clients are bound once the clients are
/// connected again, which takes up to half a minute after an outage.
const REST: Duration = Duration::from_secs(60);

/// Receives the sockets, if the variable is set. Every bind of the daemon searches them, and those
/// of the service manager.
pub(crate) fn inherit() -> anyhow::Result<()> {
    activation::offer();
    let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return Ok(()) };
    let receive = || {
        let from = UnixStream::connect(&path)?;
        from.set_read_timeout(Some(SILENCE))?;
        Inherited::receive(&from)
    };
    receive().with_context(|| format!("{VARIABLE}: sockets of {}", path.display()))?.offer();
    Ok(())
}

/// Closes the sockets that the daemon has not bound some time after `former` is ready: as long as a
/// former process lives, its clients move here one by one.
pub(crate) async fn close_rest(former: impl Future<Output = ()>) {
    former.await;
    tokio::time::sleep(REST).await;
    let closed = net::handover::close_rest();
    if closed > 0 {
        tracing::warn!(closed, "{closed} sockets of another process were not used and are closed");
    }
}
