//! An exchange with a target over HTTP/1.1, up to the response header.

use std::{borrow::Cow, collections::VecDeque, pin::pin, rc::Rc, task::Poll, time::Duration};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HeaderValue},
    http::request::Parts,
};

use crate::{
    Identity, OpenFailed, Place, Refusal, Service,
    account::Account,
    addresses::Addresses,
    body::{Hold, RequestBody, VisitorBody},
    gate::Progress,
    interim::{Arriving, Interim, Sink},
    replay::Source,
    upstream::{Pool, Upstream},
};

/// A request that cannot be repeated is sent only on a connection that was idle for less than this
/// time. Servers close idle connections after 2 s (gunicorn), 5 s (Node, Apache) or more.
const FRESH: Duration = Duration::from_secs(1);

const TOO_MANY: Refusal = Refusal::new(502, "The target sent too many interim answers.");

/// A request in the form for a target.
pub(super) struct Outgoing<'s> {
    pub(super) parts: Parts,
    pub(super) incoming: VisitorBody,
    /// Whether the body waits for `100 Continue`.
    pub(super) expects: bool,
    pub(super) switches: bool,
    /// The length of the header, in bytes.
    pub(super) head: usize,
    /// Whether the visitor uses HTTP/2.
    pub(super) h2: bool,
    /// The destination of interim responses.
    pub(super) sink: &'s Sink,
    /// The addresses of the site, for interim responses.
    pub(super) site: Addresses<'s>,
    /// The place that the cookie of the visitor names.
    pub(super) place: Option<Place>,
}

/// Why a request has no response of its target.
pub(super) enum Failed {
    /// The visitor gets this response.
    Refused(Refusal),
    /// The visitor may repeat the request. Over HTTP/1.1 the target closed a keep-alive connection
    /// before the first byte of a response, and whether it has processed the request is unknown.
    /// Over HTTP/2 the target signalled that it has not.
    Raced,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Sends a request and waits for the response header.
///
/// A target may close an idle connection while a request is in flight. A request that was not sent
/// is sent on another connection. A request that was sent is retried once, on a new connection, if
/// it is idempotent (RFC 9110 section 9.2.2), its body is still available, and no byte of a
/// response arrived. Any other request is left to the visitor: over HTTP/1.1 its connection ends
/// without a response, as the connection to the target did. HTTP/2 has no such signal:
/// REFUSED_STREAM means that the request was not processed (RFC 9113 section 8.7), which is unknown
/// here. So for an HTTP/2 visitor such a request is sent on a new connection from the start.
pub(super) async fn exchange(
    pool: &Pool,
    progress: &Progress,
    account: &Rc<Account>,
    service: &dyn Service,
    outgoing: Outgoing<'_>,
) -> Result<(Response<Incoming>, Upstream), Failed> {
    let Outgoing { mut parts, incoming, expects, switches, head, h2, sink, site, place } = outgoing;
    let owner = Identity { place, ..service.identity() };
    let repeatable = !switches && is_idempotent(&parts.method);
    if is_open_ended(&parts, &incoming) {
        // Without the field hyper would drop the body of a GET or HEAD; for other methods it would
        // choose the same.
        parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let mut kept = if repeatable && Source::is_short(&incoming) {
        pool.take(owner, None)
    } else if switches || h2 {
        None
    } else {
        pool.take(owner, Some(FRESH))
    };
    let source = Source::new(incoming, repeatable && kept.is_some(), account);
    let mut again = VecDeque::new();
    loop {
        let reused = kept.is_some();
        let mut upstream = match kept.take() {
            Some(upstream) => upstream,
            None => Upstream::open(service, place, account).await.map_err(not_open)?,
        };
        upstream.wire.begin(head);
        upstream.wire.asked(parts.method == Method::HEAD, switches);
        let copy = (reused && repeatable).then(|| parts.clone());
        upstream.wire.set_repeats(copy.is_some());
        let (wants, hold) = expects.then(|| Hold::new(sink)).unzip();
        let wire = Rc::clone(&upstream.wire);
        let body = RequestBody::new(&source, std::mem::take(&mut again), hold, wire);
        let mut request = Request::from_parts(parts, body);
        let mut arriving = Arriving::of(&mut request);
        let mut sending = pin!(upstream.sender.try_send_request(request));
        let sent = std::future::poll_fn(|cx| {
            let sent = sending.as_mut().poll(cx);
            // Interim responses that arrived with the final response are forwarded before it.
            while let Poll::Ready(interim) = arriving.poll(cx) {
                let Interim::One(status, mut fields) = interim else {
                    return Poll::Ready(Err(TOO_MANY));
                };
                upstream.wire.interim();
                match &wants {
                    // The body forwards it to the visitor.
                    Some(wants) if status == StatusCode::CONTINUE => drop(wants.try_send(())),
                    _ => {
                        site.response(&mut fields);
                        sink.send(status, fields, account);
                    }
                }
            }
            sent.map(Ok)
        });
        let mut failed = match sent.await? {
            Ok(response) => {
                source.forget();
                upstream.wire.answered();
                return Ok((response, upstream));
            }
            Err(failed) => failed,
        };
        let untouched = failed.take_message().filter(|_| reused);
        let is_lost = !upstream.wire.received.get();
        match (untouched, source.again()) {
            (Some(unsent), Some(body)) => {
                (parts, _) = unsent.into_parts();
                again = body;
                kept = pool.take(owner, (!repeatable).then_some(FRESH));
                continue;
            }
            (None, Some(body)) if is_lost => {
                if let Some(copy) = copy {
                    (parts, again) = (copy, body);
                    continue;
                }
            }
            _ => {}
        }
        if reused && is_lost && !h2 && progress.broken().is_none() {
            tracing::debug!("a target closed a kept connection before it answered a request");
            return Err(Failed::Raced);
        }
        return Err(broken(progress, &upstream, &failed.into_error()).into());
    }
}

/// Whether a request has a body of unknown length.
fn is_open_ended(parts: &Parts, incoming: &VisitorBody) -> bool {
    !incoming.is_end_stream()
        && incoming.size_hint().exact().is_none()
        && !parts.headers.contains_key(header::CONTENT_LENGTH)
}

/// Whether a method may be repeated.
pub(super) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE]
        .contains(method)
}

pub(super) fn not_open(failed: OpenFailed) -> Refusal {
    let OpenFailed { status, reason } = failed;
    Refusal { status, reason: sentence(&reason) }
}

/// The refusal for an exchange that failed because of the target or the visitor's body.
fn broken(progress: &Progress, upstream: &Upstream, error: &hyper::Error) -> Refusal {
    if let Some(reason) = progress.broken() {
        return Refusal::new(400, reason);
    }
    tracing::debug!(%error, "a target did not answer a request");
    if let Some(reason) = upstream.wire.failure() {
        return Refusal { status: 502, reason: sentence(&reason) };
    }
    let reason = if error.is_parse() {
        "The answer of the target is not valid HTTP."
    } else if upstream.wire.received.get() {
        "The target closed the connection within the head of its answer."
    } else {
        "The target closed the connection without an answer."
    };
    Refusal::new(502, reason)
}

/// The reason as a sentence of a page.
pub(super) fn sentence(reason: &str) -> Cow<'static, str> {
    let mut characters = reason.chars();
    let first = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str()).into()
}
