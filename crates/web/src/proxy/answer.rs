//! The response to a request: from its target, or from the server itself.

use std::rc::Rc;

use bytes::Bytes;
use hyper::{
    Response, StatusCode, Version,
    body::{Body as _, Incoming},
    header::{self, HeaderMap, HeaderValue},
    http::response::Parts,
};

use super::{
    Connection,
    denied::Denied,
    forwarded::{Forwarded, TargetConnection, Tunnel},
};
use crate::{
    Identity, Pages, Place, Refusal,
    addresses::Addresses,
    body::{Answer, AnswerBody},
    compress::Coded,
    fields,
    gate::NO_MEMORY,
    page,
    upgrade::Switched,
    upstream::Exchange,
};

impl Connection {
    /// Forwards the response of a target. An error returns the refusal with the response that it
    /// replaces.
    pub(super) async fn answer(
        &self,
        response: Response<Incoming>,
        forwarded: Forwarded,
        answer: Answer,
    ) -> Result<Response<AnswerBody>, (Refusal, Answer)> {
        let (mut parts, incoming) = response.into_parts();
        // Headers have no flow control, so no more are queued for a visitor that does not read.
        self.progress.unstuck().await;
        if !self.account.head_queued(fields::length(&parts.headers) as u64) {
            self.account.count_refusal();
            return Err((NO_MEMORY, answer));
        }
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        let place = forwarded.upstream.leads_to();
        self.rewrite(&mut parts, &forwarded, place);
        let Forwarded { service, upstream, tunnel, compress, .. } = forwarded;
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch_over(parts, upstream, tunnel.zip(protocol), answer).await;
        }
        // A 2xx response to an extended CONNECT would begin a tunnel (RFC 8441 section 5).
        if parts.status.is_success() && tunnel.is_some_and(|tunnel| tunnel.visitor.is_some()) {
            let reason = "The target did not switch to the protocol of the request.";
            return Err((Refusal::new(502, reason), answer));
        }
        let length = incoming.size_hint().exact();
        let encoder = compress.and_then(|wish| wish.begin(&mut parts, length, &self.account));
        let body = Coded::new(incoming, encoder);
        let body = match upstream {
            TargetConnection::Own(upstream) => {
                let pool = Rc::clone(&self.pool);
                // The next request of the visitor names this place.
                let identity = Identity { place, ..service.identity() };
                AnswerBody::target(body, Exchange::new(upstream, identity, pool), answer)
            }
            TargetConnection::Shared(lease) => AnswerBody::stream(body, lease, answer),
        };
        Ok(Response::from_parts(parts, body))
    }

    /// Rewrites the header of a response for the visitor. `place`: the place to which the
    /// connection to the target leads.
    fn rewrite(&self, parts: &mut Parts, forwarded: &Forwarded, place: Option<Place>) {
        let Forwarded { service, hsts, affinity, field, .. } = forwarded;
        let list = &mut parts.headers;
        // If both are present, the transfer coding determines the length (RFC 9112 section 6.3).
        if list.contains_key(header::TRANSFER_ENCODING) {
            list.remove(header::CONTENT_LENGTH);
        }
        fields::strip_hop_by_hop(list);
        one_length(list);
        if let Some(hsts) = hsts {
            list.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        Addresses::new(service.rules(), field, affinity.is_secure).response(list);
        service.rules().response.apply(list);
        let moved = place.filter(|_| place != affinity.place);
        let cookie = moved.zip(service.cookies());
        let cookie = cookie.and_then(|(place, cookies)| cookies.set(place, affinity.is_secure));
        if let Some(cookie) = cookie {
            list.append(header::SET_COOKIE, cookie);
        }
        parts.version = if self.h2 { Version::HTTP_2 } else { Version::HTTP_11 };
    }

    /// Responds that the target has switched to another protocol, and connects visitor and target.
    async fn switch_over(
        &self,
        mut parts: Parts,
        upstream: TargetConnection,
        asked: Option<(Tunnel, HeaderValue)>,
        answer: Answer,
    ) -> Result<Response<AnswerBody>, (Refusal, Answer)> {
        let unexpected =
            Refusal::new(502, "The target switched to a protocol without being asked.");
        let TargetConnection::Own(mut upstream) = upstream else {
            return Err((unexpected, answer));
        };
        let Some((tunnel, protocol)) = asked.filter(|(tunnel, protocol)| tunnel.asks_for(protocol))
        else {
            return Err((unexpected, answer));
        };
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

    /// A response of the server itself.
    pub(super) fn page(
        &self,
        denied: Denied,
        bodiless: bool,
        answer: Answer,
    ) -> Response<AnswerBody> {
        let Denied { refusal, realm, location, hsts, bytes, retry_after, page, is_last, own } =
            denied;
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
        let special = page.as_deref();
        let own = pages.longest().max(special.map_or(0, str::len)) as u64;
        let default = Pages::default();
        // Configured pages may be long.
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
        if let Some(seconds) = retry_after {
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
        let is_last = is_last || matches!(status, 400 | 408 | 414 | 431 | 501 | 505);
        if !self.h2 && is_last {
            list.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Reduces `Content-Length` to one number: hyper accepts equal repetitions from a target.
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
