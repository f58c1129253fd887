//! `tunnel connect`: a local socket becomes a stream to a target on the server's side.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use config::Target;
use proto::{Priority, ResetCode};
use relay::{Settings, serve_connect};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::uplink::Uplink;
use crate::descriptors;
use crate::entrance::connectors;
use crate::session::Handle;

/// The time for which the command waits for a link, as a visitor of a forward does.
const HOLD: Duration = Duration::from_secs(10);

/// Connects `socket` with `target`, as [`ops::Connector::connect`] says.
pub(super) async fn connect(
    uplink: &Uplink,
    handles: &[Handle],
    target: Target,
    socket: UnixStream,
) -> anyhow::Result<()> {
    let worker = uplink.live_worker(HOLD).await;
    let worker = worker.context("the client is not connected to its server")?;
    let handle = handles.get(worker).context("the daemon is stopping")?;
    let session = uplink.session();
    let (reply, outcome) = oneshot::channel();
    let text = target.to_string();
    let job = {
        let text = text.clone();
        move |worker: &Rc<crate::session::Worker>| {
            let link = worker.state.live_link(&session);
            spawn_local(async move {
                let Some(link) = link else { return };
                let Ok(socket) = tokio::net::UnixStream::from_std(socket) else { return };
                let room = descriptors::room();
                let settings = Rc::new(Settings { room, ..Settings::default() });
                let connectors = connectors(&link);
                // A person, or a program for a person, waits for each byte.
                let done = serve_connect(
                    socket.into(),
                    (&text, ops::connect::CONNECTED),
                    &connectors,
                    Priority::Interactive,
                    &settings,
                );
                let _ = reply.send(done.await);
            });
        }
    };
    handle.run(job).await?;
    let outcome = outcome.await.context("the link to the server was lost")?;
    outcome.map_err(|code| {
        let hint = match code {
            ResetCode::Denied => "; it needs a right in allow.forward of this client on the server",
            ResetCode::Aborted
            | ResetCode::Refused
            | ResetCode::Timeout
            | ResetCode::Unreachable
            | ResetCode::Limit
            | ResetCode::Unknown
            | ResetCode::Shutdown
            | ResetCode::Internal
            | ResetCode::Other(_) => "",
        };
        anyhow::anyhow!("the server's side does not connect {text}: {code}{hint}")
    })
}
