//! One request: route, password, fields, target, response.
//!
//! * `target` determines the host of a request.
//! * `admit` finds the service, and decides whether the request may use it.
//! * `head` rewrites the header of the request for the target.
//! * `exchange` sends it over HTTP/1.1, and `over_h2` over HTTP/2.
//! * `answer` forwards the response. `forwarded` is the state of the request that the response
//!   needs, and `denied` a response of the server itself.

mod admit;
mod answer;
mod denied;
mod exchange;
mod forwarded;
mod head;
mod over_h2;
mod target;

use std::{borrow::Cow, cell::RefCell, rc::Rc, time::Duration};

use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body as _, Incoming},
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::{request::Parts, uri::PathAndQuery},
};
use proto::TargetProtocol;

use crate::{
    Asked, Own, Refusal, Rules, Sender, Service, Services, Visitor,
    account::{Account, REQUEST, UPSTREAM},
    body::{Answer, AnswerBody, VisitorBody},
    compress::Wish,
    fields,
    gate::{NO_MEMORY, Progress},
    interim::Sink,
    multiplex::Connections,
    own, path,
    recording::Recording,
    upgrade::Switched,
    upstream::Pool,
};
use denied::Denied;
use exchange::{Failed, Outgoing};
use forwarded::{Affinity, Forwarded, TargetConnection, Tunnel};
use head::Rewrite;
use target::Target;

/// The state of a visitor's connection that its requests share.
pub(crate) struct Connection {
    pub(crate) visitor: Visitor,
    pub(crate) services: Rc<dyn Services>,
    pub(crate) progress: Rc<Progress>,
    pub(crate) account: Rc<Account>,
    pub(crate) pool: Rc<Pool>,
    /// HTTP/2 connections to targets.
    pub(crate) shared: Connections,
    pub(crate) h2: bool,
    /// The stream to the target of an HTTP/1.1 visitor that switches to another protocol.
    pub(crate) switched: RefCell<Option<Switched>>,
}

/// An HTTP/1.1 request gets no response: the connection of its visitor ends, and the visitor may
/// repeat the request ([`exchange::exchange`]).
#[derive(Debug, thiserror::Error)]
#[error("the target closed a kept connection before it answered a request")]
pub(crate) struct Unanswered;

/// Why a request gets no response of its target.
enum NoAnswer {
    Denied(Denied),
    Unanswered,
}

impl<T: Into<Denied>> From<T> for NoAnswer {
    fn from(denied: T) -> Self {
        Self::Denied(denied.into())
    }
}

impl Connection {
    /// The idle timeout of the connection.
    pub(crate) fn idle(&self) -> Duration {
        self.services.settings().idle(self.services.trusts())
    }

    /// Handles a request and returns its response.
    ///
    /// # Errors
    /// An HTTP/1.1 request gets no response.
    pub(crate) async fn handle(
        self: Rc<Self>,
        request: Request<VisitorBody>,
        sink: Sink,
    ) -> Result<Response<AnswerBody>, Unanswered> {
        let (number, refused) = self.progress.called();
        let bodiless = request.method() == Method::HEAD;
        let takes_chunks = !self.h2 && !bodiless && request.version() == Version::HTTP_11;
        let head = fields::length(request.headers()) + request.uri().path().len();
        // The header is in the buffers of the visitor and the target, and in the record.
        let copies = if self.services.wants().is_some() { 3 } else { 2 };
        let cost = REQUEST + copies * head as u64;
        if !self.account.affords(cost + UPSTREAM) {
            self.pool.clear();
        }
        let held = self.account.take(cost);
        let is_short = (held.is_none() || request.body().is_starved()) && refused.is_none();
        if is_short {
            self.account.count_refusal();
        }
        // The gate has replaced the header of a request that it refuses.
        let recording = Recording::new(&self.services, &self.visitor, &request, refused.is_none());
        let held = held.unwrap_or_else(|| self.account.refuse());
        let answer = Answer::new(&self.progress, held, Some(recording));
        self.progress.unstuck().await;
        let outcome = match refused {
            Some(refusal) => Err(refusal.into()),
            None if is_short => Err(NO_MEMORY.into()),
            None => self.forward(request, head, &sink, answer.recording()).await,
        };
        sink.sent().await;
        let response = match outcome {
            Ok((response, exchange)) => self.answer(response, exchange, answer).await,
            Err(NoAnswer::Denied(denied)) => Ok(self.page(denied, bodiless, answer)),
            Err(NoAnswer::Unanswered) => {
                // Earlier responses are sent first.
                self.progress.unstuck().await;
                return Err(Unanswered);
            }
        };
        let mut response = response
            .unwrap_or_else(|(refusal, answer)| self.page(refusal.into(), bodiless, answer));
        response.body().answered(response.status());
        let in_chunks = takes_chunks && is_open_ended(&response);
        if in_chunks {
            // hyper would choose the same.
            let chunked = HeaderValue::from_static("chunked");
            response.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
        }
        self.progress.answering(in_chunks);
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
        recording: Option<&Recording>,
    ) -> Result<(Response<Incoming>, Forwarded), NoAnswer> {
        let Target { host, field, mut uri } = self.target(&request, head)?;
        let (name, port) = self.named(host, &field, request.headers())?;
        let normal = path::normal_path(request.uri().path());
        // Determined before any field is changed.
        let sender = self.services.sender(&self.visitor, request.headers());
        let is_trusted = self.services.trusts();
        self.charge(sender, is_trusted)?;
        let is_secure = self.visitor.secure || is_trusted && fields::reports_tls(request.headers());
        let asked = Asked { host: &name, port, path: &normal, sender, is_secure };
        if let Some(own) = self.services.own(&asked) {
            return Err(self.own(&*own, request, sink).await?.into());
        }
        let service = self.admitted(&request, &asked, recording).await?;
        let rules = service.rules();
        let compress = Wish::of(&request, rules.compress);
        let hsts = rules.hsts.clone().filter(|_| is_secure);
        let with_hsts = |denied: Denied| Denied { hsts: hsts.clone(), ..denied };
        let is_preflight = rules.have_password() && self.is_preflight(rules, &request);
        if let Some(denied) = elsewhere(rules, &request, &asked, &uri) {
            return Err(with_hsts(denied).into());
        }
        if let Some((prefix, to)) = head::stripped(rules) {
            let path = path::replaced(prefix, to, request.uri().path(), &normal);
            uri = with_path(&uri, path).ok_or(Refusal::new(400, "The path is malformed."))?;
        }
        let place = service.cookies().and_then(|cookies| cookies.read(request.headers()));
        let affinity = Affinity { place, is_secure };
        let (mut parts, mut incoming) = request.into_parts();
        let tunnel = self.switch(&mut parts, &mut incoming)?;
        let expects = expects_continue(&parts, &incoming);
        let is_grpc = fields::is_grpc(&parts.headers);
        let protocol = tunnel.as_ref().map(|tunnel| &tunnel.protocol);
        let rewrite = Rewrite {
            rules,
            visitor: (&self.visitor, sender),
            field: &field,
            is_trusted,
            is_secure,
            is_preflight,
        };
        let site = rewrite.apply(&mut parts, protocol, expects)?;
        (parts.uri, parts.version) = (uri, Version::HTTP_11);
        if incoming.is_end_stream() {
            fields::name_empty_body(&parts.method, &mut parts.headers);
        }
        let (switches, h2) = (tunnel.is_some(), self.h2);
        let outgoing = Outgoing { parts, incoming, expects, switches, head, h2, sink, site, place };
        let exchanged = self.exchange(&*service, outgoing, is_grpc).await;
        let (response, upstream) = exchanged.map_err(|failed| match failed {
            Failed::Refused(refusal) => with_hsts(or_away(&*service, refusal)).into(),
            Failed::Raced => NoAnswer::Unanswered,
        })?;
        Ok((response, Forwarded { service, upstream, tunnel, hsts, compress, affinity, field }))
    }

    /// The target of a request, if its header is not too long and this connection may serve its
    /// host.
    fn target<'r>(
        &self,
        request: &'r Request<VisitorBody>,
        head: usize,
    ) -> Result<Target<'r>, Refusal> {
        const MISDIRECTED: Refusal = Refusal::new(
            421,
            "The certificate of this connection does not belong to the host of the request.",
        );
        if request.headers().len() > h1::FIELDS {
            return Err(Refusal::new(431, "The request has more than 100 fields."));
        }
        // The gate has limited the headers of HTTP/1.
        if self.h2 && head > h1::HEAD {
            return Err(h1::Fault::HeadSize.into());
        }
        let target = Target::of(request, self.h2)?;
        if self.services.covers(&target.host) { Ok(target) } else { Err(MISDIRECTED) }
    }

    /// The name by which the service is looked up, and its port: from the field that the settings
    /// name, or else the host of the request.
    fn named<'r>(
        &self,
        host: Cow<'r, str>,
        field: &HeaderValue,
        list: &'r HeaderMap,
    ) -> Result<(Cow<'r, str>, Option<u16>), Refusal> {
        if let Some(routes) = &self.services.settings().route_header
            && let Some(named) = routed(list, routes)?
        {
            return Ok((named.host, named.port));
        }
        let port = h1::Authority::parse(field.as_bytes()).and_then(|named| named.port);
        Ok((host, port))
    }

    /// Charges the connection of a reverse proxy to the sender of its request.
    ///
    /// Over HTTP/2 the requests of several visitors share the connection of a reverse proxy. Their
    /// streams to targets are charged to each of them.
    fn charge(&self, sender: Sender, is_trusted: bool) -> Result<(), Refusal> {
        if is_trusted
            && !self.h2
            && let Some(budget) = self.services.budget_of(sender)
            && !self.account.move_to(budget)
        {
            self.account.count_refusal();
            return Err(NO_MEMORY);
        }
        Ok(())
    }

    /// Sends a request over an exclusive or a shared connection.
    async fn exchange(
        &self,
        service: &dyn Service,
        outgoing: Outgoing<'_>,
        is_grpc: bool,
    ) -> Result<(Response<Incoming>, TargetConnection), Failed> {
        let Self { pool, shared, progress, account, .. } = self;
        let target = service.rules().target;
        let is_secure = target == TargetProtocol::Https;
        // A target of gRPC supports HTTP/2; a device with a web page may not.
        if target == TargetProtocol::H2c || is_secure && !outgoing.switches && is_grpc {
            let exchanged = over_h2::exchange(shared, account, service, outgoing, is_secure).await;
            return exchanged.map(|(response, lease)| (response, TargetConnection::Shared(lease)));
        }
        let exchanged = exchange::exchange(pool, progress, account, service, outgoing).await;
        exchanged.map(|(response, upstream)| (response, TargetConnection::Own(upstream)))
    }

    /// The response of the server itself.
    async fn own(
        &self,
        own: &dyn Own,
        request: Request<VisitorBody>,
        sink: &Sink,
    ) -> Result<Response<Bytes>, Refusal> {
        let longest = own.longest();
        let Some(_held) = self.account.take(longest as u64) else {
            self.account.count_refusal();
            return Err(NO_MEMORY);
        };
        let (parts, body) = request.into_parts();
        if parts.headers.contains_key(header::EXPECT) {
            sink.invite(&self.account);
        }
        let body = own::whole(body, longest).await?;
        Ok(own.answer(Request::from_parts(parts, body)).await)
    }

    /// The protocol switch that the visitor requests. An extended CONNECT of HTTP/2 (RFC 8441)
    /// becomes a GET with `Upgrade`.
    fn switch(
        &self,
        parts: &mut Parts,
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
        // A CONNECT has no body, whatever its fields say (RFC 9110 section 9.3.6). A target would
        // wait for the body of the GET, and take the next request for it.
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER] {
            parts.headers.remove(name);
        }
        parts.headers.insert(header::SEC_WEBSOCKET_KEY, websocket_key()?);
        Ok(Some(Tunnel { protocol: HeaderValue::from_static("websocket"), visitor }))
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

/// The response instead of a target that could not be reached: the client of the service may be
/// disconnected.
fn or_away(service: &dyn Service, refusal: Refusal) -> Denied {
    let away = service.away().filter(|_| refusal.status == 502);
    away.map_or_else(|| Denied::from(refusal), Denied::from)
}

/// The redirect for a request, if any: that of the service, or one to the same address with a
/// slash.
fn elsewhere(
    rules: &Rules,
    request: &Request<VisitorBody>,
    asked: &Asked<'_>,
    uri: &Uri,
) -> Option<Denied> {
    if let Some(to) = &rules.redirect {
        return Some(Denied::redirect(to, asked, uri));
    }
    let is_root =
        head::stripped(rules).is_some_and(|(prefix, to)| to == "/" && prefix == asked.path);
    (is_root && is_page(request)).then(|| Denied::slash(uri))
}

/// Whether a request waits with its body for `100 Continue`.
fn expects_continue(parts: &Parts, incoming: &VisitorBody) -> bool {
    parts.version >= Version::HTTP_11
        && !incoming.is_end_stream()
        && parts
            .headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether a browser may load a page by this request, whose links are relative to its address.
fn is_page(request: &Request<VisitorBody>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !request.headers().contains_key(header::UPGRADE)
}

/// The same address with another path.
fn with_path(uri: &Uri, mut path: String) -> Option<Uri> {
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    PathAndQuery::try_from(path).ok().map(Uri::from)
}

/// Whether the header of a response does not determine the length of its body.
fn is_open_ended(response: &Response<AnswerBody>) -> bool {
    let (status, body) = (response.status(), response.body());
    let is_bodiless = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream();
    !is_bodiless
        && body.size_hint().exact().is_none()
        && !response.headers().contains_key(header::CONTENT_LENGTH)
}

/// The host in the field that the settings name.
fn routed<'r>(
    list: &'r HeaderMap,
    field: &HeaderName,
) -> Result<Option<h1::Authority<'r>>, Refusal> {
    let mut values = list.get_all(field).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let reason = format!("The request has the field {field} twice.");
        return Err(Refusal { status: 400, reason: reason.into() });
    }
    let named = h1::Authority::parse(value.as_bytes());
    let reason = || format!("The value of the field {field} is no host.");
    named.map(Some).ok_or_else(|| Refusal { status: 400, reason: reason().into() })
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
