//! WebRTC requests at an HTTP door. They arrive over TLS that a trusted reverse proxy has
//! terminated, or from this machine.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use transport_ws::offers::{DESCRIPTION, FIELDS, Header, OfferAnswer, OfferHead, body_type};
use web::{LocalFuture, Own};

use super::message::{Asked, Reply};
use crate::registry::Registry;
use doors::AskedOffer;
use node::session::Worker;

/// The handler of the requests of one visitor.
struct Takes {
    worker: Rc<Worker>,
    registry: Arc<Registry>,
    asked: AskedOffer,
}

/// Returns the handler of a visitor's requests at an HTTP door.
pub(crate) fn takes(
    worker: &Rc<Worker>,
    registry: Arc<Registry>,
    asked: AskedOffer,
) -> Rc<dyn Own> {
    Rc::new(Takes { worker: Rc::clone(worker), registry, asked })
}

impl Own for Takes {
    fn longest(&self) -> usize {
        DESCRIPTION
    }

    fn answer(&self, request: Request<Bytes>) -> LocalFuture<Response<Bytes>> {
        let Self { worker, registry, asked } = self;
        let AskedOffer { path, place, sender, is_secure } = asked;
        let client = sender.address();
        let is_here = client.is_some_and(|client| client.ip().to_canonical().is_loopback());
        let Some(client) = client.filter(|_| *is_secure || is_here) else {
            let body = "offers of WebRTC come over TLS, or from this machine\n".to_owned();
            let refused = Reply { status: "403 Forbidden", fields: Vec::new(), body };
            return Box::pin(async move { response(&refused) });
        };
        let (worker, registry) = (Rc::clone(worker), Arc::clone(registry));
        let (path, place) = (Arc::clone(path), place.clone());
        Box::pin(async move {
            let said = |status, body: &str| {
                response(&Reply { status, fields: Vec::new(), body: body.to_owned() })
            };
            let head = match head(&request, &place) {
                Ok(head) => head,
                Err(status) => return said(status, ""),
            };
            let ask = match head.ask(request.body()) {
                Ok(ask) => ask,
                Err(OfferAnswer { status, body }) => return said(status, body),
            };
            let asked = Asked {
                ask: &ask,
                path: &path,
                place: &head.place,
                bearer: head.bearer.as_deref(),
                visit: head.visit.as_deref(),
                client,
            };
            response(&super::answer(&worker, &registry, asked).await)
        })
    }
}

/// The header as a WebSocket listener parses it. The HTTP server has already determined the length
/// of the body.
fn head(request: &Request<Bytes>, place: &str) -> Result<OfferHead, &'static str> {
    let measures = ["content-length", "transfer-encoding"];
    let fields = request.headers().iter();
    let fields = fields.filter(|(name, _)| !measures.contains(&name.as_str()));
    let fields: Vec<_> = fields
        .map(|(name, value)| Header { name: name.as_str(), value: value.as_bytes() })
        .collect();
    OfferHead::read(Some(request.method().as_str()), &fields, place)
}

fn response(reply: &Reply) -> Response<Bytes> {
    let Reply { status, fields, body } = reply;
    let mut response = Response::new(Bytes::copy_from_slice(body.as_bytes()));
    let code = status.get(..3).and_then(|code| code.parse().ok());
    *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let list = response.headers_mut();
    list.insert(CONTENT_TYPE, HeaderValue::from_static(body_type(status)));
    let known = FIELDS.iter().map(|(name, value)| (*name, *value));
    let more = fields.iter().map(|(name, value)| (*name, value.as_str()));
    for (name, value) in known.chain(more) {
        // All names and values are our own, and printable.
        let name = HeaderName::try_from(name).ok();
        if let Some((name, value)) = name.zip(HeaderValue::try_from(value).ok()) {
            list.insert(name, value);
        }
    }
    response
}

impl std::fmt::Debug for Takes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Takes").field("place", &self.asked.place).finish_non_exhaustive()
    }
}
