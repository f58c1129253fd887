//! One request: route, password, fields, target, answer.

mod denied;
mod exchange;
mod over_h2;
mod target;

use std::{cell::RefCell, rc::Rc, time::Duration};

use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body as _, Incoming},
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::uri::PathAndQuery,
};
use proto::TargetProtocol;
use tokio::sync::oneshot;

use crate::{
    Asked, Checked, Found, Identity, Own, Pages, Place, Refusal, Rules, Service, Services, Verdict,
    Visitor,
    account::{Account, REQUEST, UPSTREAM},
    addresses::Addresses,
    body::{Answer, AnswerBody, VisitorBody},
    compress::{Coded, Wish},
    fields,
    gate::{NO_MEMORY, Progress},
    http2,
    interim::Sink,
    multiplex::{Connections, Lease},
    own, page, path,
    recording::Recording,
    rules::Admission,
    upgrade::Switched,
    upstream::{Exchange, Pool, Upstream},
};
use denied::Denied;
use exchange::{Failed, Outgoing};
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
    /// Connections to targets over HTTP/2.
    pub(crate) shared: Connections,
    pub(crate) h2: bool,
    /// The stream to the target of a visitor of HTTP/1.1 that switches to another protocol.
    pub(crate) switched: RefCell<Option<Switched>>,
}

/// A request of HTTP/1.1 gets no answer: the connection of its visitor ends, and the visitor may
/// repeat the request ([`exchange::exchange`]).
#[derive(Debug, thiserror::Error)]
#[error("the target closed a kept connection before it answered a request")]
pub(crate) struct Unanswered;

/// Why a request gets no answer of its target.
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
    /// How long the connection stays open without a request.
    pub(crate) fn idle(&self) -> Duration {
        self.services.settings().idle(self.services.trusts())
    }

    /// Answers a request.
    ///
    /// # Errors
    /// A request of HTTP/1.1 gets no answer.
    pub(crate) async fn handle(
        self: Rc<Self>,
        request: Request<VisitorBody>,
        sink: Sink,
    ) -> Result<Response<AnswerBody>, Unanswered> {
        let (number, refused) = self.progress.called();
        let bodiless = request.method() == Method::HEAD;
        let takes_chunks = !self.h2 && !bodiless && request.version() == Version::HTTP_11;
        let head = fields::length(request.headers()) + request.uri().path().len();
        // The head lies in the visitor's buffer, in that of the target, and in the record.
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
        // The gate has replaced the head of a request that it refuses.
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
                // The answers before this one leave first.
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
        if request.headers().len() > h1::FIELDS {
            return Err(Refusal::new(431, "The request has more than 100 fields.").into());
        }
        // The gate has measured the heads of HTTP/1.
        if self.h2 && head > h1::HEAD {
            return Err(Refusal::from(h1::Fault::HeadSize).into());
        }
        let Target { host, field, mut uri } = Target::of(&request, self.h2)?;
        if !self.services.covers(&host) {
            return Err(Refusal::new(
                421,
                "The certificate of this connection does not belong to the host of the request.",
            )
            .into());
        }
        let own_port = h1::Authority::parse(field.as_bytes()).and_then(|named| named.port);
        let (name, port) = match &self.services.settings().route_header {
            Some(routes) => match routed(request.headers(), routes)? {
                Some(named) => (named.host, named.port),
                None => (host, own_port),
            },
            None => (host, own_port),
        };
        let normal = path::normal_path(request.uri().path());
        // Before any field is changed.
        let sender = self.services.sender(&self.visitor, request.headers());
        let is_trusted = self.services.trusts();
        // Over HTTP/2 the requests of several visitors share the connection of a reverse proxy. Their
        // streams to targets count for each of them.
        if is_trusted
            && !self.h2
            && let Some(budget) = self.services.budget_of(sender)
            && !self.account.move_to(budget)
        {
            self.account.count_refusal();
            return Err(NO_MEMORY.into());
        }
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
        if let Some(to) = &rules.redirect {
            return Err(with_hsts(Denied::redirect(to, &asked, &uri)).into());
        }
        let is_preflight = rules.have_password() && self.is_preflight(rules, &request);
        let stripped = rules.path().zip(rules.stripped.as_deref());
        if let Some((prefix, "/")) = stripped
            && prefix == normal
            && is_page(&request)
        {
            return Err(with_hsts(Denied::slash(&uri)).into());
        }
        if let Some((prefix, to)) = stripped {
            let path = path::replaced(prefix, to, request.uri().path(), &normal);
            uri = with_path(&uri, path).ok_or(Refusal::new(400, "The path is malformed."))?;
        }
        let place = service.cookies().and_then(|cookies| cookies.read(request.headers()));
        let stays = Stays { place, is_secure };
        let (mut parts, mut incoming) = request.into_parts();
        let tunnel = self.switch(&mut parts, &mut incoming)?;
        let expects = parts.version >= Version::HTTP_11
            && !incoming.is_end_stream()
            && parts
                .headers
                .get(header::EXPECT)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let trailers = fields::takes_trailers(&parts.headers);
        let is_grpc = fields::is_grpc(&parts.headers);
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
        if is_preflight {
            fields::clean_preflight(list);
        }
        if rules.forwarded {
            fields::forwarded(list, (&self.visitor, sender), is_trusted, &field);
            if let Some((prefix, "/")) = stripped {
                fields::forwarded_prefix(list, prefix);
            }
        }
        if let Some(to) = rules.host() {
            let scheme = match rules.target {
                TargetProtocol::Https => "https",
                TargetProtocol::Http | TargetProtocol::H2c => "http",
            };
            let scheme = Some(scheme).filter(|_| !rules.forwarded);
            fields::rewrite_origin(list, (&field, to), is_secure, scheme);
        }
        let site = Addresses::new(rules, &field, is_secure);
        site.request(list)?;
        rules.request.apply(list);
        list.insert(header::HOST, rules.host().unwrap_or(&field).clone());
        (parts.uri, parts.version) = (uri, Version::HTTP_11);
        // The spelling of the names of the fields stays there.
        parts.extensions.remove::<h2::ext::Protocol>();
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        if incoming.is_end_stream() {
            fields::name_empty_body(&parts.method, &mut parts.headers);
        }
        let (switches, h2) = (tunnel.is_some(), self.h2);
        let outgoing = Outgoing { parts, incoming, expects, switches, head, h2, sink, site, place };
        let Self { pool, shared, progress, account, .. } = self;
        let is_secure = rules.target == TargetProtocol::Https;
        let unanswered = |failed| match failed {
            Failed::Refused(refusal) => with_hsts(or_away(&*service, refusal)).into(),
            Failed::Raced => NoAnswer::Unanswered,
        };
        // A service of its own that gRPC uses speaks HTTP/2; a device with a web page may not.
        if rules.target == TargetProtocol::H2c || is_secure && !switches && is_grpc {
            let exchanged =
                over_h2::exchange(shared, account, &*service, outgoing, is_secure).await;
            let (response, lease) = exchanged.map_err(unanswered)?;
            let upstream = Carrier::Shared(lease);
            return Ok((
                response,
                Forwarded { service, upstream, tunnel: None, hsts, compress, stays, field },
            ));
        }
        let exchanged = exchange::exchange(pool, progress, account, &*service, outgoing).await;
        let (response, upstream) = exchanged.map_err(unanswered)?;
        let upstream = Carrier::Own(upstream);
        Ok((response, Forwarded { service, upstream, tunnel, hsts, compress, stays, field }))
    }

    /// The answer of the server itself.
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

    /// Whether the request is a preflight that the service admits without a password.
    fn is_preflight(&self, rules: &Rules, request: &Request<VisitorBody>) -> bool {
        let has_body = !request.body().is_end_stream();
        rules.preflight && fields::is_preflight(request.method(), request.headers(), has_body)
    }

    /// The service of a request that may use it.
    async fn admitted(
        &self,
        request: &Request<VisitorBody>,
        asked: &Asked<'_>,
        recording: Option<&Recording>,
    ) -> Result<Rc<dyn Service>, Denied> {
        let mut service = self.find(asked, request).await?;
        loop {
            if let Some(recording) = recording {
                recording.found(&service);
            }
            let rules = service.rules();
            let hsts = rules.hsts.clone().filter(|_| asked.is_secure);
            let denied = |refusal: Refusal| Denied { hsts: hsts.clone(), ..refusal.into() };
            if rules.path().is_some() && path::is_ambiguous(request.uri().path()) {
                return Err(denied(Refusal::new(400, "The path of the request is ambiguous.")));
            }
            if self.is_preflight(rules, request) {
                return Ok(service);
            }
            let mut has_waited = false;
            let (is_given, is_right) = match rules.admit(request.headers()) {
                Admission::Missing => (false, false),
                Admission::Wrong => (true, false),
                Admission::Admitted => (true, true),
                Admission::Hashed(candidate) => match service.check(candidate) {
                    Checked::Now(is_right) => (true, is_right),
                    Checked::Later(later) => {
                        has_waited = true;
                        (true, later.await?)
                    }
                },
            };
            let waits =
                if rules.have_password() && is_given { service.judge(is_right) } else { None };
            has_waited |= waits.is_some();
            if let Some(verdict) = waits
                && verdict.await == Verdict::Busy
            {
                let reason =
                    "Too many wrong passwords came from your address: try again in a moment.";
                return Err(denied(Refusal::new(429, reason)));
            }
            if !is_right {
                let refusal = Refusal::new(401, "The service asks for a user and a password.");
                return Err(Denied { realm: Some(asked.host.into()), ..denied(refusal) });
            }
            if !has_waited {
                return Ok(service);
            }
            // The rules may have changed while the request waited.
            let now = self.find(asked, request).await?;
            if let Some(recording) = recording {
                recording.found(&now);
            }
            if now.identity() == service.identity() {
                return Ok(now);
            }
            service = now;
        }
    }

    async fn find(
        &self,
        asked: &Asked<'_>,
        request: &Request<VisitorBody>,
    ) -> Result<Rc<dyn Service>, Denied> {
        let mut found = self.services.find(asked);
        loop {
            match found {
                Found::Service(service) => return Ok(service),
                Found::Unknown => {
                    let reason = format!("No service has the name {}.", asked.host);
                    return Err(Refusal { status: 404, reason: reason.into() }.into());
                }
                Found::Redirect(to) => return Err(Denied::redirect(&to, asked, request.uri())),
                Found::Answer(bytes) => {
                    let refusal = Refusal::new(200, "");
                    return Err(Denied { bytes: Some(bytes), ..refusal.into() });
                }
                Found::Refused(refusal) => return Err(refusal.into()),
                Found::Unavailable(why) => return Err(why.into()),
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
        // A CONNECT has no body, whatever its fields say (RFC 9110 section 9.3.6). A target would
        // wait for the one of a GET, and take the next request for it.
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER] {
            parts.headers.remove(name);
        }
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
        let Forwarded { service, upstream, tunnel, hsts, compress, stays, field } = forwarded;
        let (mut parts, incoming) = response.into_parts();
        let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let (upstream, lease) = match upstream {
            Carrier::Own(upstream) => (Some(upstream), None),
            Carrier::Shared(lease) => (None, Some(lease)),
        };
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
        if let Some(hsts) = hsts {
            parts.headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts);
        }
        Addresses::new(service.rules(), &field, stays.is_secure).response(&mut parts.headers);
        service.rules().response.apply(&mut parts.headers);
        let place = match (&upstream, &lease) {
            (Some(upstream), _) => upstream.wire.place.get(),
            (None, Some(lease)) => lease.leads_to(),
            (None, None) => None,
        };
        let moved = place.filter(|_| place != stays.place);
        let cookie = moved.zip(service.cookies());
        let cookie = cookie.and_then(|(place, cookies)| cookies.set(place, stays.is_secure));
        if let Some(cookie) = cookie {
            parts.headers.append(header::SET_COOKIE, cookie);
        }
        parts.version = if self.h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        if !switches {
            // A 2xx answer to an extended CONNECT would begin a tunnel (RFC 8441 section 5).
            if parts.status.is_success() && tunnel.is_some_and(|tunnel| tunnel.visitor.is_some()) {
                let reason = "The target did not switch to the protocol of the request.";
                return Err((Refusal::new(502, reason), answer));
            }
            let length = incoming.size_hint().exact();
            let encoder = compress.and_then(|wish| wish.begin(&mut parts, length, &self.account));
            let body = Coded::new(incoming, encoder);
            let body = match (upstream, lease) {
                (Some(upstream), _) => {
                    let pool = Rc::clone(&self.pool);
                    // The next request of the visitor names the place.
                    let identity = Identity { place, ..service.identity() };
                    let exchange = Exchange::new(upstream, identity, pool);
                    AnswerBody::target(body, exchange, answer)
                }
                (None, Some(lease)) => AnswerBody::stream(body, lease, answer),
                (None, None) => AnswerBody::page(Bytes::new(), &self.account, Some(answer)),
            };
            return Ok(Response::from_parts(parts, body));
        }
        let unexpected =
            Refusal::new(502, "The target switched to a protocol without being asked.");
        let Some(mut upstream) = upstream else { return Err((unexpected, answer)) };
        let (Some(tunnel), Some(protocol)) = (tunnel, protocol) else {
            return Err((unexpected, answer));
        };
        if !tunnel.asks_for(&protocol) {
            return Err((unexpected, answer));
        }
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
        if let Some(recording) = answer.recording() {
            recording.answered(parts.status);
            recording.complete();
            recording.report();
        }
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
        let Denied { refusal, realm, location, hsts, bytes, away, own } = denied;
        if let Some(own) = own {
            let (mut parts, body) = own.into_parts();
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            let body = if bodiless { Bytes::new() } else { body };
            return Response::from_parts(
                parts,
                AnswerBody::page(body, &self.account, Some(answer)),
            );
        }
        let Refusal { status, reason } = refusal;
        let settings = self.services.settings();
        let pages: &Pages = &settings.pages;
        let special = away.as_ref().and_then(|(_, page)| page.as_deref());
        let own = pages.longest().max(special.map_or(0, str::len)) as u64;
        let default = Pages::default();
        // The pages of the configuration may be long.
        let is_ample = self.account.may_grow(own);
        let pages = if is_ample { pages } else { &default };
        let is_page = bytes.is_none();
        let page = bytes.unwrap_or_else(|| match special.filter(|_| is_ample) {
            Some(special) => page::own(special, status, &reason).into(),
            None => page::body(status, &reason, pages).into(),
        });
        let length = HeaderValue::from(page.len());
        let body = if bodiless { Bytes::new() } else { page };
        let mut response = Response::new(AnswerBody::page(body, &self.account, Some(answer)));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let list = response.headers_mut();
        let kind = if is_page { page::CONTENT_TYPE } else { "application/octet-stream" };
        list.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        list.insert(header::CONTENT_LENGTH, length);
        list.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == 429 {
            list.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        if let Some((seconds, _)) = away {
            list.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(location) = location {
            list.insert(header::LOCATION, location);
        }
        if let Some(hsts) = hsts {
            list.insert(header::STRICT_TRANSPORT_SECURITY, hsts);
        }
        if let Some(realm) = realm {
            let value = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            if let Ok(value) = HeaderValue::try_from(value) {
                list.insert(header::WWW_AUTHENTICATE, value);
            }
        }
        let is_last = away.is_some() || matches!(status, 400 | 408 | 414 | 431 | 501 | 505);
        if !self.h2 && is_last {
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

/// The answer in the place of a target that could not be reached: the client of the service may be
/// away.
fn or_away(service: &dyn Service, refusal: Refusal) -> Denied {
    let away = service.away().filter(|_| refusal.status == 502);
    away.map_or_else(|| Denied::from(refusal), Denied::from)
}

/// What is left of a request once its answer begins.
struct Forwarded {
    service: Rc<dyn Service>,
    upstream: Carrier,
    tunnel: Option<Tunnel>,
    hsts: Option<HeaderValue>,
    compress: Option<Wish>,
    stays: Stays,
    /// The host as the visitor wrote it.
    field: HeaderValue,
}

/// What the cookie of a visitor says.
#[derive(Clone, Copy)]
struct Stays {
    /// Where the visitor was before.
    place: Option<Place>,
    /// The visitor came over TLS.
    is_secure: bool,
}

/// The connection to the target on which a request is answered.
enum Carrier {
    Own(Upstream),
    Shared(Lease),
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

/// Whether a browser may ask by this request for a page, whose links are relative to its address.
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

/// Whether nothing in the head of an answer tells the length of its body.
fn is_open_ended(response: &Response<AnswerBody>) -> bool {
    let (status, body) = (response.status(), response.body());
    let is_bodiless = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream();
    !is_bodiless
        && body.size_hint().exact().is_none()
        && !response.headers().contains_key(header::CONTENT_LENGTH)
}

/// The host that the field of the settings names.
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
