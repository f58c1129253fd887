//! An exchange with a target over HTTP/2, up to the response header.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use hyper::{
    Request, Response, Uri, Version,
    body::Incoming,
    header::{self, HeaderValue},
    http::{request::Parts, uri::Authority},
};
use tokio::time::sleep;

use super::exchange::{Failed, Outgoing, is_idempotent, not_open, sentence};
use crate::{
    Refusal, Service,
    account::Account,
    body::{Hold, RequestBody},
    multiplex::{Connections, Lease, is_away, is_unprocessed},
    replay::Source,
};

/// The maximum number of retries because the target has not processed a request, and the backoff
/// before the first retry, which doubles: 2.5 s in total.
const MOST_REFUSALS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(10);

/// Sends a request over the connection that all requests of the visitor to the service share, and
/// waits for the response header.
///
/// A request of any method is retried if the target signals that it has not processed the request
/// (RFC 9113 section 8.7), after a backoff if the target has refused the stream. An idempotent
/// request (RFC 9110 section 9.2.2) is retried once if a connection breaks that has carried
/// requests before. In all cases its body must still be available. Otherwise a refusal is passed on
/// to an HTTP/2 visitor, which may still have the body.
pub(super) async fn exchange(
    connections: &Connections,
    account: &Rc<Account>,
    service: &dyn Service,
    outgoing: Outgoing<'_>,
    is_secure: bool,
) -> Result<(Response<Incoming>, Lease), Failed> {
    let Outgoing { parts, incoming, expects, switches, h2, sink, place, .. } = outgoing;
    if switches {
        return Err(Refusal::new(501, "The target speaks HTTP/2 alone, without Upgrade.").into());
    }
    let mut parts = in_h2(parts, is_secure)?;
    let repeatable = is_idempotent(&parts.method);
    let source = Source::new(incoming, true, account);
    let (mut again, mut refusals, mut is_repeated) = (VecDeque::new(), 0, false);
    loop {
        let (mut lease, is_kept) =
            connections.lease(service, place, account).await.map_err(not_open)?;
        let wire = Rc::clone(&lease.wire);
        let (wants, hold) = expects.then(|| Hold::new(sink)).unzip();
        if let Some(wants) = wants {
            // The expectation is met here: HTTP/2 flow control bounds an unwanted body.
            let _ = wants.try_send(());
        }
        let body = RequestBody::new(&source, std::mem::take(&mut again), hold, wire);
        let copy = (refusals < MOST_REFUSALS).then(|| parts.clone());
        let request = Request::from_parts(parts, body);
        let mut failed = match lease.sender.try_send_request(request).await {
            Ok(response) => {
                source.forget();
                return Ok((response, lease));
            }
            Err(failed) => failed,
        };
        let is_unsent = failed.take_message().is_some();
        let error = failed.into_error();
        if is_unsent || is_away(&error) {
            lease.leave();
        }
        let is_refused = !is_unsent && is_unprocessed(&error);
        let may_repeat = is_unsent || is_refused || (is_kept && repeatable && !is_repeated);
        if let (true, Some(copy), Some(body)) = (may_repeat, copy, source.again()) {
            (parts, again) = (copy, body);
            if is_refused && !is_away(&error) {
                sleep(PAUSE * 2_u32.pow(refusals)).await;
            } else {
                is_repeated = true;
            }
            refusals += 1;
            continue;
        }
        if is_refused && h2 {
            tracing::debug!(%error, "a target refused a request, and the visitor has to repeat it");
            return Err(Failed::Raced);
        }
        tracing::debug!(%error, "a target did not answer a request");
        if let Some(reason) = lease.failure() {
            return Err(Refusal { status: 502, reason: sentence(&reason) }.into());
        }
        let reason = match crate::multiplex::reason(&error) {
            None => "The target closed the connection without an answer over HTTP/2.".into(),
            Some(reason) => format!("The target ended the stream of HTTP/2 ({reason}).").into(),
        };
        return Err(Refusal { status: 502, reason }.into());
    }
}

/// The header of a request in the form of HTTP/2 (RFC 9113 section 8.3.1): `Host` becomes the
/// authority, and connection-specific fields are removed (section 8.2.2).
fn in_h2(mut parts: Parts, is_secure: bool) -> Result<Parts, Refusal> {
    const MALFORMED: Refusal = Refusal::new(400, "The host of the request is malformed.");
    let list = &mut parts.headers;
    let host = list.remove(header::HOST);
    let host = host.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
    let authority = Authority::try_from(host).map_err(|_| MALFORMED)?;
    for name in [header::CONNECTION, header::EXPECT, header::UPGRADE] {
        list.remove(name);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = Uri::builder()
        .scheme(if is_secure { "https" } else { "http" })
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|_| MALFORMED)?;
    parts.version = Version::HTTP_2;
    parts.extensions.clear();
    Ok(parts)
}
