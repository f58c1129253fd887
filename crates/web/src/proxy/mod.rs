//! One request: route, password, fields, target, answer.

mod exchange;
mod target;

use std::{borrow::Cow, cell::RefCell, convert::Infallible, rc::Rc};

use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body as _, Incoming},
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use tokio::sync::oneshot;

use crate::{
    Found, Pages, Refusal, Sender, Service, Services, Verdict, Visitor,
    account::{Account, REQUEST, UPSTREAM},
    body::{Answer, AnswerBody, VisitorBody},
    compress::{Source, Wish},
    fields,
    gate::{NO_MEMORY, Progress},
    http2,
    interim::Sink,
    page, path,
    rules::Admission,
    upgrade::Switched,
    upstream::{Exchange, Pool, Upstream},
};
use exchange::Outgoing;
use target::Target;

/// The seconds after which a request that was not judged may be repeated: longer than the pauses
/// between two judgements.
const RETRY_AFTER: &str = "5";

/// A connection of a visitor, as its requests see it.
pub(crate) struct Connection {
    pub(crate) visitor: Visitor,
    pub(crate) services: Rc<dyn Services>,
    pub(crate) progress: Rc<Progress>,
    pub(crate) account: Rc<Account>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) h2: bool,
    /// The stream to the target of a visitor of HTTP/1.1 that switches to another protocol.
    pub(crate) switched: RefCell<Option<Switched>>,
}

/// An answer of the server itself, with the realm of the password that is missing.
struct Denied {
    refusal: Refusal,
    realm: Option<String>,
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, realm: None }
    }
}

impl Connection {
    /// Answers a request.
    pub(crate) async fn handle(
        self: Rc<Self>,
        request: Request<VisitorBody>,
        sink: Sink,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let (number, refused) = self.progress.called();
        let bodiless = request.method() == Method::HEAD;
        let head = fields::length(request.headers()) + request.uri().path().len();
        // The head lies in the visitor's buffer, and in that of the target.
        let cost = REQUEST + 2 * head as u64;
        if !self.account.affords(cost + UPSTREAM) {
            self.pool.clear();
        }
        let held = self.account.take(cost);
        let is_short = (held.is_none() || request.body().is_starved()) && refused.is_none();
        if is_short {
            self.account.count_refusal();
        }
        let answer = Answer::new(&self.progress, held.unwrap_or_else(|| self.account.refuse()));
        self.progress.unstuck().await;
        let outcome = match refused {
            Some(refusal) => Err(refusal.into()),
            None if is_short => Err(NO_MEMORY.into()),
            None => self.forward(request, head, &sink).await,
        };
        sink.sent().await;
        let response = match outcome {
            Ok((response, exchange)) => self.answer(response, exchange, answer).await,
            Err(denied) => Ok(self.page(denied, bodiless, answer)),
        };
        let response = response
            .unwrap_or_else(|(refusal, answer)| self.page(refusal.into(), bodiless, answer));
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.progress.no_upgrade(number);
        }
        Ok(response)
    }

    /// Sends a request to the target of its service.
    async fn forward(
        &self,
        request: Request<VisitorBody>,
        head: usize,
        sink: &Sink,
    ) -> Result<(Response<Incoming>, Forwarded), Denied> {
        if request.headers().len() > h1::FIELDS {
            return Err(Refusal::new(431, "The request has more than 100 fields.").into());
        }
        // The gate has measured the heads of HTTP/1.
        if self.h2 && head > h1::HEAD {
            return Err(Refusal::from(h1::Fault::HeadSize).into());
        }
        let Target { host, field, uri } = Target::of(&request, self.h2)?;
        if !self.services.covers(&host) {
            return Err(Refusal::new(
                421,
                "The certificate of this connection does not belong to the host of the request.",
            )
            .into());
        }
        let name = match &self.services.settings().route_header {
            Some(field) => routed(request.headers(), field)?.unwrap_or(host),
            None => host,
        };
        let normal = path::normal_path(request.uri().path());
        // Before any field is changed.
        let sender = self.services.sender(&self.visitor, request.headers());
        let service = self.admitted(&request, &name, &normal, sender).await?;
        let rules = service.rules();
        let compress = Wish::of(&request, rules.compress);
        let (mut parts, mut incoming) = request.into_parts();
        let tunnel = self.switch(&mut parts, &mut incoming)?;
        let expects = parts.version >= Version::HTTP_11
            && !incoming.is_end_stream()
            && parts
                .headers
                .get(header::EXPECT)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let trailers = fields::takes_trailers(&parts.headers);
        let list = &mut parts.headers;
        if rules.have_password() {
            list.remove(header::AUTHORIZATION);
        }
        fields::strip_hop_by_hop(list);
        if !expects {
            list.remove(header::EXPECT);
        }
        match &tunnel {
            Some(tunnel) => {
                list.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                list.insert(header::UPGRADE, tunnel.protocol.clone());
            }
            None if trailers => {
                list.insert(header::CONNECTION, HeaderValue::from_static("te"));
                list.insert(header::TE, HeaderValue::from_static("trailers"));
            }
            None => {}
        }
        if rules.forwarded {
            let from = (&self.visitor, sender);
            fields::forwarded(list, from, self.services.trusts(), &field);
        }
        rules.request.apply(list);
        list.insert(header::HOST, rules.host().cloned().unwrap_or(field));
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        let switches = tunnel.is_some();
        let outgoing = Outgoing { parts, incoming, expects, switches, head, sink };
        let Self { pool, progress, account, .. } = self;
        let (response, upstream) =
            exchange::exchange(pool, progress, account, &*service, outgoing).await?;
        Ok((response, Forwarded { service, upstream, tunnel, compress }))
    }

    /// The service of a request that may use it.
    async fn admitted(
        &self,
        request: &Request<VisitorBody>,
        name: &str,
        path: &str,
        sender: Sender,
    ) -> Result<Rc<dyn Service>, Denied> {
        let mut service = self.find(name, path, sender).await?;
        loop {
            let rules = service.rules();
            if rules.path().is_some() && path::is_ambiguous(request.uri().path()) {
                return Err(Refusal::new(400, "The path of the request is ambiguous.").into());
            }
            let admission = rules.admit(request.headers());
            let is_right = admission == Admission::Admitted;
            let waits = if rules.have_password() && admission != Admission::Missing {
                service.judge(is_right)
            } else {
                None
            };
            let has_waited = waits.is_some();
            if let Some(verdict) = waits
                && verdict.await == Verdict::Busy
            {
                let reason =
                    "Too many wrong passwords came from your address: try again in a moment.";
                return Err(Refusal::new(429, reason).into());
            }
            if !is_right {
                return Err(Denied {
                    refusal: Refusal::new(401, "The service asks for a user and a password."),
                    realm: Some(name.to_owned()),
                });
            }
            if !has_waited {
                return Ok(service);
            }
            // The rules may have changed while the request waited.
            let now = self.find(name, path, sender).await?;
            if now.identity() == service.identity() {
                return Ok(now);
            }
            service = now;
        }
    }

    async fn find(
        &self,
        name: &str,
        path: &str,
        sender: Sender,
    ) -> Result<Rc<dyn Service>, Refusal> {
        let mut found = self.services.find(name, path, sender);
        loop {
            match found {
                Found::Service(service) => return Ok(service),
                Found::Unknown => {
                    let reason = format!("No service has the name {name}.");
                    return Err(Refusal { status: 404, reason: reason.into() });
                }
                Found::Refused(refusal) => return Err(refusal),
                Found::Later(later) => found = later.await,
            }
        }
    }

    /// The switch to another protocol for which the visitor asks. An extended CONNECT of HTTP/2
    /// (RFC 8441) becomes a GET with `Upgrade`.
    fn switch(
        &self,
        parts: &mut hyper::http::request::Parts,
        incoming: &mut VisitorBody,
    ) -> Result<Option<Tunnel>, Refusal> {
        if parts.method != Method::CONNECT {
            if self.h2 || parts.version != Version::HTTP_11 {
                return Ok(None);
            }
            let protocol = fields::upgrade(&parts.headers);
            return Ok(protocol.map(|protocol| Tunnel { protocol, visitor: None }));
        }
        let protocol =
            parts.extensions.get::<h2::ext::Protocol>().map(|protocol| protocol.as_str());
        if protocol != Some("websocket") {
            return Err(Refusal::new(501, "The server is no forward proxy: it refuses CONNECT."));
        }
        let visitor = match std::mem::replace(incoming, VisitorBody::Empty) {
            VisitorBody::Tunnel(visitor) => Some(visitor),
            VisitorBody::Empty | VisitorBody::Incoming(_) | VisitorBody::Stream(_) => None,
        };
        parts.method = Method::GET;
        parts.headers.insert(header::SEC_WEBSOCKET_KEY, websocket_key()?);
        Ok(Some(Tunnel { protocol: HeaderValue::from_static("websocket"), visitor }))
    }

    /// Passes the answer of a target on. The refusal is returned with the answer that it ends.
    async fn answer(
        &self,
        response: Response<Incoming>,
        forwarded: Forwarded,
        answer: Answer,
    ) -> Result<Response<AnswerBody>, (Refusal, Answer)> {
        let Forwarded { service, upstream, tunnel, compress } = forwarded;
        let (mut parts, incoming) = response.into_parts();
        let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        // Heads have no window: a visitor that does not read gathers no more than it has asked for.
        self.progress.unstuck().await;
        if !self.account.head_queued(fields::length(&parts.headers) as u64) {
            self.account.count_refusal();
            return Err((NO_MEMORY, answer));
        }
        // With both, the transfer coding tells the length (RFC 9112 section 6.3).
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        fields::strip_hop_by_hop(&mut parts.headers);
        one_length(&mut parts.headers);
        service.rules().response.apply(&mut parts.headers);
        parts.version = if self.h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        if !switches {
            // A 2xx answer to an extended CONNECT would begin a tunnel (RFC 8441 section 5).
            if parts.status.is_success() && tunnel.is_some_and(|tunnel| tunnel.visitor.is_some()) {
                let reason = "The target did not switch to the protocol of the request.";
                return Err((Refusal::new(502, reason), answer));
            }
            let exchange = Exchange::new(upstream, service.identity(), Rc::clone(&self.pool));
            let length = incoming.size_hint().exact();
            let encoder = compress.and_then(|wish| wish.begin(&mut parts, length, &self.account));
            let body = Source::new(incoming, encoder);
            return Ok(Response::from_parts(parts, AnswerBody::target(body, exchange, answer)));
        }
        let unexpected =
            Refusal::new(502, "The target switched to a protocol without being asked.");
        let (Some(tunnel), Some(protocol)) = (tunnel, protocol) else {
            return Err((unexpected, answer));
        };
        if !tunnel.asks_for(&protocol) {
            return Err((unexpected, answer));
        }
        let mut upstream = upstream;
        let Ok(switched) = (&mut upstream.switched).await else {
            return Err((unexpected, answer));
        };
        upstream.wire.switched();
        let stream = switched.io.into_inner().into_stream();
        let target = Switched { stream, first: switched.read_buf, wire: Rc::clone(&upstream.wire) };
        let Some(visitor) = tunnel.visitor else {
            *self.switched.borrow_mut() = Some(target);
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(header::UPGRADE, protocol);
            return Ok(Response::from_parts(
                parts,
                AnswerBody::page(Bytes::new(), &self.account, Some(answer)),
            ));
        };
        parts.status = StatusCode::OK;
        parts.headers.remove(header::SEC_WEBSOCKET_ACCEPT);
        tokio::task::spawn_local(async move {
            let _answer = answer;
            if let Ok(visitor) = visitor.await {
                target.carry(visitor).await;
            }
        });
        Ok(Response::from_parts(parts, AnswerBody::page(Bytes::new(), &self.account, None)))
    }

    /// An answer of the server itself.
    fn page(&self, denied: Denied, bodiless: bool, answer: Answer) -> Response<AnswerBody> {
        let Denied { refusal: Refusal { status, reason }, realm } = denied;
        let settings = self.services.settings();
        let pages: &Pages = &settings.pages;
        let own = pages.longest() as u64;
        let default = Pages::default();
        // The pages of the configuration may be long.
        let pages = if self.account.may_grow(own) { pages } else { &default };
        let page = Bytes::from(page::body(status, &reason, pages));
        let length = HeaderValue::from(page.len());
        let body = if bodiless { Bytes::new() } else { page };
        let mut response = Response::new(AnswerBody::page(body, &self.account, Some(answer)));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let list = response.headers_mut();
        list.insert(header::CONTENT_TYPE, HeaderValue::from_static(page::CONTENT_TYPE));
        list.insert(header::CONTENT_LENGTH, length);
        list.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == 429 {
            list.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        if let Some(realm) = realm {
            let value = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            if let Ok(value) = HeaderValue::try_from(value) {
                list.insert(header::WWW_AUTHENTICATE, value);
            }
        }
        if !self.h2 && matches!(status, 400 | 408 | 414 | 431 | 501 | 505) {
            list.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

/// What is left of a request once its answer begins.
struct Forwarded {
    service: Rc<dyn Service>,
    upstream: Upstream,
    tunnel: Option<Tunnel>,
    compress: Option<Wish>,
}

/// The switch to another protocol.
struct Tunnel {
    protocol: HeaderValue,
    /// The stream of a visitor of HTTP/2. A visitor of HTTP/1.1 gives its whole connection.
    visitor: Option<oneshot::Receiver<http2::Tunnel>>,
}

impl Tunnel {
    fn asks_for(&self, protocol: &HeaderValue) -> bool {
        let mut asked = self.protocol.as_bytes().split(|&byte| byte == b',');
        asked.any(|asked| asked.trim_ascii().eq_ignore_ascii_case(protocol.as_bytes()))
    }
}

/// The host that the field of the settings names.
fn routed<'r>(list: &'r HeaderMap, field: &HeaderName) -> Result<Option<Cow<'r, str>>, Refusal> {
    let mut values = list.get_all(field).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let reason = format!("The request has the field {field} twice.");
        return Err(Refusal { status: 400, reason: reason.into() });
    }
    let named = h1::Authority::parse(value.as_bytes());
    let reason = || format!("The value of the field {field} is no host.");
    named
        .map(|named| Some(named.host))
        .ok_or_else(|| Refusal { status: 400, reason: reason().into() })
}

/// `Content-Length` as one number: hyper accepts equal repetitions from a target.
fn one_length(list: &mut HeaderMap) {
    let mut values = list.get_all(header::CONTENT_LENGTH).into_iter();
    let Some(first) = values.next() else {
        return;
    };
    if values.next().is_none() && !first.as_bytes().contains(&b',') {
        return;
    }
    let number = first.as_bytes().split(|&byte| byte == b',').next().unwrap_or_default();
    if let Ok(number) = HeaderValue::from_bytes(number.trim_ascii()) {
        list.insert(header::CONTENT_LENGTH, number);
    }
}

/// A nonce (RFC 6455 section 4.1).
fn websocket_key() -> Result<HeaderValue, Refusal> {
    use base64::Engine as _;
    const NO_KEY: Refusal = Refusal::new(500, "The server has no random numbers.");
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|_| NO_KEY)?;
    let key = base64::engine::general_purpose::STANDARD.encode(nonce);
    HeaderValue::try_from(key).map_err(|_| NO_KEY)
}
