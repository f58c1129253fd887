//! `tunnel connect`: a local socket becomes a stream to a target on the server's side.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use config::Target;
use proto::{Priority, ResetCode};
use relay::{Settings, serve_connect};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::shared::ClientShared;
use super::uplink::{Uplink, Uplinks};
use node::descriptors;
use node::entrance::{NamedServices, connectors};
use node::session::{Handle, Worker};
use peer::links::{Peer, PeerConnector, named};

/// The time for which the command waits for a link, as a visitor of a forward does.
const HOLD: Duration = Duration::from_secs(10);

/// Lets programs of a SOCKS5 or HTTP proxy on this worker name private services of other clients.
pub(super) fn serve_names(worker: &Worker, shared: &Arc<ClientShared>) {
    let shared = Arc::downgrade(shared);
    worker.state.of::<NamedServices>().start(move |worker, target, patience| {
        let shared = shared.upgrade()?;
        let service =
            named(&shared.config.load(), target)?.map(|service| shared.visits.peer(service));
        let worker = Rc::clone(worker);
        Some(Box::pin(async move {
            let peer = match service {
                Ok(peer) => peer,
                Err(why) => {
                    tracing::info!("a program asks for {why}");
                    return None;
                }
            };
            let link = peer.link_here(&worker, patience).await;
            let link =
                link.inspect_err(|why| tracing::debug!(service = %peer.service, why)).ok()?;
            Some(PeerConnector::connectors(&link, &peer.service.service))
        }))
    });
}

/// Connects `socket` with a private service of another client, as [`ops::Connector::connect`]
/// specifies.
pub(super) async fn visit(
    uplinks: &Uplinks,
    handles: &[Handle],
    peer: &Arc<Peer>,
    socket: UnixStream,
) -> anyhow::Result<()> {
    // The peer link is made on a worker that has a link to the server, so that the bytes cross no
    // threads.
    let worker = match peer.session.live_worker(0) {
        Some(worker) => worker,
        None => uplinks.preferred().live_worker(0, HOLD).await.context(NO_SERVER)?,
    };
    let handle = handles.get(worker).context("the daemon is stopping")?;
    let (reply, outcome) = oneshot::channel();
    let job = {
        let peer = Arc::clone(peer);
        move |worker: &Rc<Worker>| {
            let worker = Rc::clone(worker);
            spawn_local(async move {
                let link = match peer.link_here(&worker, HOLD).await {
                    Ok(link) => link,
                    Err(why) => return drop(reply.send(Err(why))),
                };
                let Ok(socket) = tokio::net::UnixStream::from_std(socket) else { return };
                let room = descriptors::room();
                let settings = Rc::new(Settings { room, ..Settings::default() });
                let connectors = PeerConnector::connectors(&link, &peer.service.service);
                let done = serve_connect(
                    socket.into(),
                    ("", ops::connect::CONNECTED),
                    &connectors,
                    Priority::Interactive,
                    &settings,
                );
                let _ = reply.send(done.await.map_err(|code| code.to_string()));
            });
        }
    };
    handle.run(job).await?;
    let outcome = outcome.await.context("the link to the other client was lost")?;
    outcome.map_err(|why| anyhow::anyhow!("no visit of service://{}: {why}", peer.service))
}

const NO_SERVER: &str = "the client is not connected to its server";

/// Connects `socket` with `target`, as [`ops::Connector::connect`] specifies.
pub(super) async fn connect(
    uplink: &Uplink,
    handles: &[Handle],
    target: Target,
    socket: UnixStream,
) -> anyhow::Result<()> {
    let worker = uplink.live_worker(0, HOLD).await;
    let worker = worker.context(NO_SERVER)?;
    let handle = handles.get(worker).context("the daemon is stopping")?;
    let session = uplink.session();
    let (reply, outcome) = oneshot::channel();
    let text = target.to_string();
    let job = {
        let text = text.clone();
        move |worker: &Rc<Worker>| {
            let link = worker.state.live_link(&session);
            let link =
                link.map(|link| worker.state.link_of_class(&session, link, Priority::Interactive));
            spawn_local(async move {
                let Some(link) = link else { return };
                let Ok(socket) = tokio::net::UnixStream::from_std(socket) else { return };
                let room = descriptors::room();
                let settings = Rc::new(Settings { room, ..Settings::default() });
                let connectors = connectors(&link);
                // A user, or a program on behalf of a user, waits for each byte.
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
            | ResetCode::Moved
            | ResetCode::Other(_) => "",
        };
        anyhow::anyhow!("the server's side does not connect {text}: {code}{hint}")
    })
}
