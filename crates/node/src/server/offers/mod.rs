//! Connections by WebRTC of programs without a tunnel, which begin with a request of HTTP (RFC 9725) at
//! a listener of WebSockets.
//!
//! ```text
//!   program                         server                          client of the service
//!   POST /webrtc/home/ssh, offer ──> proof of the program: may it?
//!                                    offer, proof for the client ──> may it? answer, signature
//!   201, answer, signature  <────────                           <───
//!   <───────────────────────── data channels ─────────────────────>
//! ```
//!
//! The server carries two texts. It can read them and exchange neither: each is proven by the token
//! that only the program and the client of the service have, and names the certificate of its end.
//!
//! | module | content |
//! |---|---|
//! | this one | requests, proofs, the end of connections |
//! | `visit` | the way to the client of the service |

mod visit;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use logging::AUDIT;
use proto::greeting::{Name, verify_offer};
use tokio::sync::oneshot;
use transport::{Ask, OfferRequest};
use transport_ws::reply;

use super::brake::Outcome;
use super::registry::Registry;
use crate::session::Worker;

/// Connections that `DELETE` can end, at most. The oldest is forgotten first, and goes on.
const KNOWN_MAX: usize = 4096;

/// The connections that have begun here.
#[derive(Debug, Default)]
pub(super) struct Offers(Mutex<HashMap<String, Known>>);

/// A connection that has begun here.
#[derive(Debug)]
struct Known {
    since: Instant,
    /// Ends it.
    end: oneshot::Sender<()>,
}

impl Offers {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a connection; returns its name for `DELETE`, which nobody can guess.
    fn note(&self, end: oneshot::Sender<()>) -> String {
        let mut id = String::new();
        for byte in ::link::random::<16>() {
            // Writing into a String does not fail.
            let _ = write!(id, "{byte:02x}");
        }
        let mut known = self.known();
        known.retain(|_, one| !one.end.is_closed());
        if known.len() >= KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, one)| one.since);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                known.remove(&oldest);
            }
        }
        known.insert(id.clone(), Known { since: Instant::now(), end });
        id
    }

    /// Ends a connection. False: it is not known.
    fn end(&self, id: &str) -> bool {
        let found = self.known().remove(id);
        found.is_some_and(|known| known.end.send(()).is_ok())
    }
}

/// Why a request is refused: a status of HTTP, and a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    text: String,
}

impl Refusal {
    fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// What a program gets for an offer.
#[derive(Debug)]
struct Answer {
    description: String,
    signature: [u8; 32],
    /// For `DELETE`.
    id: String,
}

/// Answers a request.
pub(super) async fn serve(worker: &Rc<Worker>, registry: &Arc<Registry>, request: OfferRequest) {
    let outcome = match &request.ask {
        Ask::End => end(registry, &request.place),
        Ask::Connect(offer) => {
            let offered = connect(worker, registry, &request, offer).await;
            offered.map(Some)
        }
    };
    let path = request.path.clone();
    let source = net::source::prefix(request.client.ip());
    let mut lane = request.into_lane();
    let sent = match outcome {
        Ok(Some(Answer { description, signature, id })) => {
            let fields = [
                ("Location", format!("{path}/sessions/{id}")),
                ("Tunnel-Visit", URL_SAFE_NO_PAD.encode(signature)),
            ];
            reply(&mut *lane, "201 Created", &fields, &description).await
        }
        Ok(None) => reply(&mut *lane, "200 OK", &[], "").await,
        Err(Refusal { status, text }) => {
            tracing::debug!(target: AUDIT, %source, status, "an offer of WebRTC is refused: {text}");
            let asks = ("WWW-Authenticate", "Bearer".to_owned());
            let fields = if status.starts_with("401") { vec![asks] } else { Vec::new() };
            reply(&mut *lane, status, &fields, &format!("{text}\n")).await
        }
    };
    if let Err(error) = sent {
        tracing::debug!(%source, %error, "the answer to a request about WebRTC is lost");
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
    request: &OfferRequest,
    offer: &str,
) -> Result<Answer, Refusal> {
    let name = log_in(registry, request, offer).await?;
    let nowhere =
        || Refusal::new("404 Not Found", "the path is /CLIENT/SERVICE behind that of offers");
    let (client, service) = request.place.split_once('/').ok_or_else(nowhere)?;
    let client = Name::new(client).map_err(|_| nowhere())?;
    let service = Name::new(service).map_err(|_| nowhere())?;
    let proof = request.visit.as_deref().and_then(bytes_of).ok_or_else(|| {
        Refusal::new("400 Bad Request", "Tunnel-Visit must have the proof for the service")
    })?;
    visit::visit(worker, registry, (&name, client, service), offer, &proof).await
}

/// Checks the proof of the program: a client of this server has a name and a token.
async fn log_in(
    registry: &Arc<Registry>,
    request: &OfferRequest,
    offer: &str,
) -> Result<Name, Refusal> {
    let source = request.client.ip();
    let refused = || Refusal::new("401 Unauthorized", "Authorization: Bearer NAME.PROOF is wrong");
    let bearer = request.bearer.as_deref().ok_or_else(refused)?;
    let (name, proof) = bearer.rsplit_once('.').ok_or_else(refused)?;
    let (name, proof) = Name::new(name).ok().zip(bytes_of(proof)).ok_or_else(refused)?;
    let asked = registry.ask_about(name.as_str(), Some(source)).await;
    asked.map_err(|_| Refusal::new("503 Service Unavailable", "try again later"))?;
    let known = registry.shared().clients.find(name.as_str());
    let credentials = known.map(|client| client.credentials.clone()).unwrap_or_default();
    let context = context(name.as_str(), &request.place);
    if verify_offer(&credentials, &context, offer, &proof).is_some() {
        return Ok(name);
    }
    Err(penalize(registry, name.as_str(), source, refused()).await)
}

/// What both proofs of an offer are for.
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
    fn an_id_ends_one_connection_once() {
        let offers = Offers::default();
        let (end, mut ended) = oneshot::channel();
        let id = offers.note(end);
        assert_eq!(id.len(), 32);
        assert!(!offers.end("0"));
        assert!(offers.end(&id));
        assert!(ended.try_recv().is_ok());
        assert!(!offers.end(&id));
    }

    #[test]
    fn connections_that_are_remembered_are_bounded() {
        let offers = Offers::default();
        let mut alive = Vec::new();
        for _ in 0..KNOWN_MAX + 10 {
            let (end, ended) = oneshot::channel();
            offers.note(end);
            alive.push(ended);
        }
        assert_eq!(offers.known().len(), KNOWN_MAX);
        drop(alive);
        offers.note(oneshot::channel().0);
        assert!(offers.known().len() <= 1, "those that have ended are forgotten");
    }

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
