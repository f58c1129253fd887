//! WebRTC connections of programs without a tunnel. They begin with an HTTP request (RFC 9725) at a
//! WebSocket listener or an HTTP door.
//!
//! ```text
//!   program                         server                          client of the service
//!   POST /webrtc/home/ssh, offer ──> proof of the program: may it?
//!                                    offer, proof for the client ──> may it? answer, signature
//!   201, answer, signature  <────────                           <───
//!   <───────────────────────── data channels ─────────────────────>
//! ```
//!
//! The server relays both texts. It can read but not replace them: each is authenticated by the
//! token that only the program and the client of the service have, and names the certificate of its
//! end.
//!
//! | module | content |
//! |---|---|
//! | this one | requests, proofs, the end of connections |
//! | `message` | requests and responses, independent of where a request arrived |
//! | `table` | the connections that have begun here |
//! | `door` | requests at an HTTP door |
//! | `visit` | forwards an offer to the client of the service |

pub(super) mod door;
mod message;
mod table;
mod visit;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use logging::AUDIT;
use proto::greeting::{Name, verify_offer};
use transport::{Ask, OfferRequest};
use transport_ws::offers::reply;

use super::brake::Outcome;
use super::registry::Registry;
use message::{Answer, Asked, Refusal, Reply};
use node::session::Worker;
pub(super) use table::Offers;

/// Answers a request that has arrived at a WebSocket listener.
pub(super) async fn serve(worker: &Rc<Worker>, registry: &Arc<Registry>, request: OfferRequest) {
    let asked = Asked {
        ask: &request.ask,
        path: &request.path,
        place: &request.place,
        bearer: request.bearer.as_deref(),
        visit: request.visit.as_deref(),
        client: request.client,
    };
    let Reply { status, fields, body } = answer(worker, registry, asked).await;
    let source = net::source::prefix(request.client.ip());
    if let Err(error) = reply(&mut *request.into_lane(), status, &fields, &body).await {
        tracing::debug!(%source, %error, "the answer to a request about WebRTC is lost");
    }
}

/// Executes a request.
async fn answer(worker: &Rc<Worker>, registry: &Arc<Registry>, asked: Asked<'_>) -> Reply {
    let outcome = match asked.ask {
        Ask::End => end(registry, asked.place),
        Ask::Connect(offer) => connect(worker, registry, asked, offer).await.map(Some),
    };
    match outcome {
        Ok(Some(Answer { description, signature, id })) => {
            let location = format!("{}/sessions/{id}", asked.path);
            let signature = URL_SAFE_NO_PAD.encode(signature);
            let fields = vec![("Location", location), ("Tunnel-Visit", signature)];
            Reply { status: "201 Created", fields, body: description }
        }
        Ok(None) => Reply { status: "200 OK", fields: Vec::new(), body: String::new() },
        Err(Refusal { status, text }) => {
            let source = net::source::prefix(asked.client.ip());
            tracing::debug!(target: AUDIT, %source, status, "an offer of WebRTC is refused: {text}");
            let asks = ("WWW-Authenticate", "Bearer".to_owned());
            let fields = if status.starts_with("401") { vec![asks] } else { Vec::new() };
            Reply { status, fields, body: format!("{text}\n") }
        }
    }
}

fn end(registry: &Registry, place: &str) -> Result<Option<Answer>, Refusal> {
    let id = place.strip_prefix("sessions/");
    match id.is_some_and(|id| registry.shared().offers.end(id)) {
        true => Ok(None),
        false => Err(Refusal::new("404 Not Found", "there is no such connection")),
    }
}

async fn connect(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    request: Asked<'_>,
    offer: &str,
) -> Result<Answer, Refusal> {
    let name = log_in(registry, request, offer).await?;
    let nowhere =
        || Refusal::new("404 Not Found", "the path is /CLIENT/SERVICE behind that of offers");
    let (client, service) = request.place.split_once('/').ok_or_else(nowhere)?;
    let client = Name::new(client).map_err(|_| nowhere())?;
    let service = Name::new(service).map_err(|_| nowhere())?;
    let proof = request.visit.and_then(bytes_of).ok_or_else(|| {
        Refusal::new("400 Bad Request", "Tunnel-Visit must have the proof for the service")
    })?;
    visit::visit(worker, registry, (&name, client, service), offer, &proof).await
}

/// Checks the proof of the program: a client of this server has a name and a token.
async fn log_in(
    registry: &Arc<Registry>,
    request: Asked<'_>,
    offer: &str,
) -> Result<Name, Refusal> {
    let source = request.client.ip();
    let refused = || Refusal::new("401 Unauthorized", "Authorization: Bearer NAME.PROOF is wrong");
    let bearer = request.bearer.ok_or_else(refused)?;
    let (name, proof) = bearer.rsplit_once('.').ok_or_else(refused)?;
    let (name, proof) = Name::new(name).ok().zip(bytes_of(proof)).ok_or_else(refused)?;
    let asked = registry.ask_about(name.as_str(), Some(source)).await;
    asked.map_err(|_| Refusal::new("503 Service Unavailable", "try again later"))?;
    let known = registry.shared().clients.find(name.as_str());
    let credentials = known.map(|client| client.credentials.clone()).unwrap_or_default();
    let context = context(name.as_str(), request.place);
    if verify_offer(&credentials, &context, offer, &proof).is_some() {
        return Ok(name);
    }
    Err(penalize(registry, name.as_str(), source, refused()).await)
}

/// The context that both proofs of an offer cover.
fn context(name: &str, place: &str) -> String {
    format!("{name}\n{place}")
}

async fn penalize(registry: &Registry, name: &str, source: IpAddr, refusal: Refusal) -> Refusal {
    let why = anyhow::anyhow!("wrong token for an offer of WebRTC");
    registry.brake().count(Outcome::Failed(&why));
    let now = Instant::now();
    let kind = super::brake::Kind::of(&why).because(Some("WebRTC"));
    if registry.brake().tell(name, source, kind, now).is_some() {
        let source = net::source::prefix(source);
        tracing::warn!(target: AUDIT, client = name, %source, "client `{name}` did not log in: {why}");
    }
    tokio::time::sleep(registry.brake().penalty(name, source, now)).await;
    refusal
}

/// 32 bytes in base64url.
fn bytes_of(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_32_bytes_in_base64url() {
        let text = URL_SAFE_NO_PAD.encode([7; 32]);
        assert_eq!(bytes_of(&text), Some([7; 32]));
        assert_eq!(bytes_of(&format!("{text}=")), Some([7; 32]));
        for bad in ["", "AAAA", "!", &format!("{text}A")] {
            assert_eq!(bytes_of(bad), None, "{bad}");
        }
    }
}
