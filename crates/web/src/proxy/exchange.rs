//! A request at a target, until the head of its answer.

use std::{borrow::Cow, pin::pin, rc::Rc, task::Poll};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    http::request::Parts,
};

use crate::{
    OpenFailed, Refusal, Service,
    account::Account,
    body::{Hold, RequestBody, VisitorBody},
    gate::Progress,
    interim::{Arriving, Interim, Sink},
    upstream::{Pool, Upstream},
};

const TOO_MANY: Refusal = Refusal::new(502, "The target sent too many interim answers.");

/// A request in the form for a target.
pub(super) struct Outgoing<'s> {
    pub(super) parts: Parts,
    pub(super) incoming: VisitorBody,
    /// The body waits for `100 Continue`.
    pub(super) expects: bool,
    pub(super) switches: bool,
    /// The length of the head.
    pub(super) head: usize,
    /// Where interim answers go.
    pub(super) sink: &'s Sink,
}

/// Sends a request and waits for the head of the answer.
///
/// A target may close an idle connection while a request is on its way. A request that did not
/// leave is sent on another connection. A request that left is repeated once, on a new connection,
/// if it has no body, repeating it does no harm (RFC 9110 section 9.2.2), and no byte of an answer
/// arrived.
pub(super) async fn exchange(
    pool: &Pool,
    progress: &Progress,
    account: &Rc<Account>,
    service: &dyn Service,
    outgoing: Outgoing<'_>,
) -> Result<(Response<Incoming>, Upstream), Refusal> {
    let Outgoing { mut parts, incoming, expects, switches, head, sink } = outgoing;
    let repeatable = incoming.is_end_stream() && !switches && is_idempotent(&parts.method);
    let mut incoming = Some(incoming);
    let mut kept = pool.take(service.identity());
    loop {
        let reused = kept.is_some();
        let mut upstream = match kept.take() {
            Some(upstream) => upstream,
            None => Upstream::open(service, account).await.map_err(not_open)?,
        };
        upstream.wire.begin(head);
        let copy = (reused && repeatable).then(|| parts.clone());
        let (wants, hold) = expects.then(|| Hold::new(sink)).unzip();
        let wire = Rc::clone(&upstream.wire);
        let mut request = Request::from_parts(parts, RequestBody::new(incoming, hold, wire));
        let mut arriving = Arriving::of(&mut request);
        let mut sending = pin!(upstream.sender.try_send_request(request));
        let sent = std::future::poll_fn(|cx| {
            let sent = sending.as_mut().poll(cx);
            // The interim answers that came with the final one go before it.
            while let Poll::Ready(interim) = arriving.poll(cx) {
                let Interim::One(status, fields) = interim else {
                    return Poll::Ready(Err(TOO_MANY));
                };
                upstream.wire.interim();
                match &wants {
                    // The body says so to the visitor.
                    Some(wants) if status == StatusCode::CONTINUE => drop(wants.try_send(())),
                    _ => sink.send(status, fields, account),
                }
            }
            sent.map(Ok)
        });
        let mut failed = match sent.await? {
            Ok(response) => {
                upstream.wire.answered();
                return Ok((response, upstream));
            }
            Err(failed) => failed,
        };
        match (failed.take_message(), copy) {
            (Some(unsent), _) if reused => {
                let body;
                (parts, body) = unsent.into_parts();
                incoming = body.into_unsent();
                kept = pool.take(service.identity());
            }
            (_, Some(copy)) if !upstream.wire.received.get() => {
                parts = copy;
                incoming = None;
            }
            _ => return Err(broken(progress, &upstream, &failed.into_error())),
        }
    }
}

/// The methods that may be repeated.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE]
        .contains(method)
}

fn not_open(failed: OpenFailed) -> Refusal {
    let OpenFailed { status, reason } = failed;
    Refusal { status, reason: sentence(&reason) }
}

/// The target, or the visitor's body, broke the exchange.
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
fn sentence(reason: &str) -> Cow<'static, str> {
    let mut characters = reason.chars();
    let first = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str()).into()
}
