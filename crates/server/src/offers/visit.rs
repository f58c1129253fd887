//! Forwards an offer to the client of a private service, over a stream that the server uses itself
//! instead of joining it with a visitor's stream.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::Name;
use relay::{StreamLane, open_duplex};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::message::{Answer, Refusal};
use crate::private::ClientVisit;
use crate::registry::Registry;
use node::session::Worker;
use peer::wire;
use peer::wire::{Reply, Why};

/// The timeout for the answer of the service's client, which queries STUN servers first.
const ANSWER: Duration = Duration::from_secs(15);

/// How long to wait for a client that is away. A program can retry.
const PATIENCE: Duration = Duration::from_secs(2);

/// Forwards the offer of a program that has logged in to the client of the service.
pub(super) async fn visit(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    (visitor, client, service): (&Name, Name, Name),
    offer: &str,
    proof: &[u8; 32],
) -> Result<Answer, Refusal> {
    let unknown = || Refusal::new("404 Not Found", "there is no such service for this client");
    let shared = registry.shared();
    let known = shared.clients.find(visitor.as_str());
    let known = known.filter(|known| known.visit.permit(client.as_str(), service.as_str()));
    let known = known.ok_or_else(unknown)?;
    let limit = || Refusal::new("429 Too Many Requests", "a limit of streams is reached");
    let permit = known.gate.admit().ok_or_else(limit)?;
    let visit = ClientVisit {
        visitor: visitor.to_string(),
        address: None,
        client: client.clone(),
        service: service.clone(),
    };
    let found = visit.find_anywhere(registry, worker.index, PATIENCE, || false).await;
    let (found, at) = found.map_err(|code| {
        if code == proto::ResetCode::Unreachable {
            Refusal::new("503 Service Unavailable", format!("client {client} is away"))
        } else {
            unknown()
        }
    })?;
    let gone = || Refusal::new("503 Service Unavailable", format!("client {client} is away"));
    let handle = worker.peers.get(at).cloned().ok_or_else(gone)?;
    let open = move |worker: &Rc<Worker>| {
        let (link, open) = found.request(worker, &visit)?;
        let stream = open_duplex(&link, open, &Rc::default(), Some(permit)).ok()?;
        Some(StreamLane::new(stream))
    };
    // The lane of a stream may leave the worker of its link.
    let mut lane = handle.call(open).await.ok().flatten().ok_or_else(gone)?;
    let asked = async {
        wire::write(&mut lane, &wire::offer(proof, offer)).await?;
        wire::reply(&mut lane).await
    };
    let reply = timeout(ANSWER, asked).await.map_err(|_| {
        Refusal::new("504 Gateway Timeout", format!("client {client} gives no answer"))
    })?;
    let reply = reply.map_err(|_| {
        let text = format!("client {client} takes no offers of WebRTC; update it");
        Refusal::new("502 Bad Gateway", text)
    })?;
    match reply {
        Reply::Refused(Why::Proof) => {
            Err(Refusal::new("403 Forbidden", format!("client {client} refuses the proof")))
        }
        Reply::Refused(Why::Unable) => Err(Refusal::new(
            "503 Service Unavailable",
            format!("client {client} cannot take the offer"),
        )),
        Reply::Refused(Why::Without) => Err(Refusal::new(
            "501 Not Implemented",
            format!("client {client} was built without WebRTC"),
        )),
        Reply::Answer(signature, description) => {
            let (end, ended) = oneshot::channel();
            let id = shared.offers.note(end);
            spawn_local(hold(lane, ended));
            Ok(Answer { description, signature, id })
        }
    }
}

/// Holds the stream until the connection has ended or is requested to end.
async fn hold(mut lane: StreamLane, ended: oneshot::Receiver<()>) {
    let is_asked = tokio::select! {
        () = wire::over(&mut lane) => false,
        asked = ended => asked.is_ok(),
    };
    if is_asked {
        // If the stream is lost, the write fails, and the wait below returns at once.
        let _ = wire::write(&mut lane, &[wire::END]).await;
        wire::over(&mut lane).await;
    }
}
