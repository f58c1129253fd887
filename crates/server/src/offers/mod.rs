//! Connections by WebRTC of programs without a tunnel, which begin with a request of HTTP
//! (RFC 9725) at a listener of WebSockets, or at a door for HTTP.
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
//! | `door` | requests at a door for HTTP |
//! | `visit` | the way to the client of the service |

mod door;
mod visit;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use logging::AUDIT;
use proto::greeting::{Name, verify_offer};
use tokio::sync::oneshot;
use transport::{Ask, OfferRequest};
use transport_ws::offers::reply;

use super::brake::Outcome;
use super::registry::Registry;
use doors::AskedOffer;
use node::session::Worker;

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

/// A request, wherever it has come.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    ask: &'a Ask,
    /// The path of offers, and the rest of the path behind it.
    path: &'a str,
    place: &'a str,
    bearer: Option<&'a str>,
    visit: Option<&'a str>,
    client: SocketAddr,
}

/// An answer of HTTP.
#[derive(Debug)]
struct Reply {
    /// Status and reason.
    status: &'static str,
    fields: Vec<(&'static str, String)>,
    body: String,
}

/// What a program gets for an offer.
#[derive(Debug)]
struct Answer {
    description: String,
    signature: [u8; 32],
    /// For `DELETE`.
    id: String,
}

/// Answers a request that has come to a listener of WebSockets.
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

/// Does what a request asks for.
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

/// What takes the requests of a visitor at a door for HTTP.
pub(super) fn door(
    worker: &Rc<Worker>,
    registry: Arc<Registry>,
    asked: AskedOffer,
) -> Rc<dyn web::Own> {
    Rc::new(door::Takes { worker: Rc::clone(worker), registry, asked })
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
