//! Offers of WebRTC by HTTP (RFC 9725) at the port of WebSockets.
//!
//! `POST` brings an offer, `DELETE` ends a connection, and `OPTIONS` is what a browser asks before
//! both (CORS). Any page may ask: a request counts by its proof alone, and carries no cookie.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use httparse::{Header, Request};
use net::pool;
use tokio::time::timeout;
use transport::{Ask, CarrierError, Lane};

use super::farewell::send_away;
use super::head::{HEAD, only, values};

/// The longest session description, bytes: as long as the library reads one.
pub const DESCRIPTION: usize = 16 << 10;

/// The time limit for an answer, and for the client to close the connection behind it.
const ANSWER: Duration = Duration::from_secs(10);

/// The type of session descriptions (RFC 8866).
const TYPE: &str = "application/sdp";

/// Fields of each answer: nobody keeps it, and what a browser may send and read (Fetch standard).
pub const FIELDS: [(&str, &str); 5] = [
    ("Cache-Control", "no-store"),
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, DELETE"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, Tunnel-Visit"),
    ("Access-Control-Expose-Headers", "Location, Tunnel-Visit"),
];

/// The head of a request about a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct OfferHead {
    method: Method,
    /// The path behind the path of offers, without a slash at its begin.
    pub place: String,
    /// The credential (`Authorization: Bearer`).
    pub bearer: Option<String>,
    /// The proof for another client than the server (`Tunnel-Visit`).
    pub visit: Option<String>,
    /// The client waits for a word before it sends the body (RFC 9110 section 10.1.1).
    waits: bool,
    length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Post,
    Delete,
    Options,
}

/// Why a request is refused, as a status of HTTP.
type Refused = &'static str;

impl OfferHead {
    /// Reads a head. `None`: it is for another path. `path` is the path of offers.
    pub(super) fn of(
        request: &Request<'_, '_>,
        path: Option<&str>,
    ) -> Option<Result<Self, Refused>> {
        let target = request.path?.split('?').next()?;
        let place = target.strip_prefix(path?)?;
        let place = match place.strip_prefix('/') {
            Some(place) => place,
            None if place.is_empty() => place,
            None => return None,
        };
        Some(Self::read(request.method, request.headers, place))
    }

    /// Reads the head of a request for the path of offers and the `place` behind it.
    ///
    /// # Errors
    /// The status of HTTP by which the request is refused.
    pub fn read(
        method: Option<&str>,
        fields: &[Header<'_>],
        place: &str,
    ) -> Result<Self, &'static str> {
        let text = |name| only(fields, name).and_then(|value| str::from_utf8(value).ok());
        let length = match text("content-length") {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| "413 Content Too Large")?
            }
            None if values(fields, "content-length").next().is_none() => 0,
            Some(_) | None => return Err("400 Bad Request"),
        };
        let method = match method {
            Some("POST") => Method::Post,
            Some("DELETE") => Method::Delete,
            Some("OPTIONS") => Method::Options,
            _ => return Err("405 Method Not Allowed"),
        };
        if values(fields, "transfer-encoding").next().is_some() {
            return Err("411 Length Required");
        }
        if length > DESCRIPTION {
            return Err("413 Content Too Large");
        }
        let kind = text("content-type").and_then(|kind| kind.split(';').next());
        if method == Method::Post && !kind.is_some_and(|kind| kind.eq_ignore_ascii_case(TYPE)) {
            return Err("415 Unsupported Media Type");
        }
        let bearer = text("authorization").and_then(|value| {
            let (scheme, rest) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim().to_owned())
        });
        let visit = text("tunnel-visit").map(str::to_owned);
        let waits = text("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        Ok(Self { method, place: place.to_owned(), bearer, visit, waits, length })
    }

    /// Reads the body. `buf` has what came behind the head. `None`: the request has its answer.
    pub(super) async fn body(
        &self,
        lane: &mut dyn Lane,
        buf: &mut BytesMut,
    ) -> Result<Option<Ask>, CarrierError> {
        let length = if self.method == Method::Post { self.length } else { 0 };
        if self.waits && buf.len() < length {
            super::head::write(lane, "HTTP/1.1 100 Continue\r\n\r\n".into()).await?;
        }
        while buf.len() < length {
            buf.reserve(length - buf.len());
            if poll_fn(|cx| lane.poll_read(cx, buf)).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
        match self.ask(&buf[..length]) {
            Ok(ask) => Ok(Some(ask)),
            Err(OfferAnswer { status, body }) => {
                reply(lane, status, &[], body).await?;
                Ok(None)
            }
        }
    }

    /// What the request with this body asks for.
    ///
    /// # Errors
    /// The request has its answer: a browser asked what it may do, or the body is no text.
    pub fn ask(&self, body: &[u8]) -> Result<Ask, OfferAnswer> {
        match self.method {
            Method::Options => Err(OfferAnswer { status: "204 No Content", body: "" }),
            Method::Delete => Ok(Ask::End),
            Method::Post => match str::from_utf8(body) {
                Ok(text) => Ok(Ask::Connect(text.to_owned())),
                Err(_) => {
                    Err(OfferAnswer { status: "400 Bad Request", body: "the offer is no text\n" })
                }
            },
        }
    }
}

/// The answer to a request about a connection that asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferAnswer {
    /// Status and reason of HTTP.
    pub status: &'static str,
    /// A line for people, or nothing.
    pub body: &'static str,
}

/// The type of the body of an answer: `201 Created` has a session description.
#[must_use]
pub fn body_type(status: &str) -> &'static str {
    if status.starts_with("201") { TYPE } else { "text/plain; charset=utf-8" }
}

/// Answers a request about a connection and closes. `fields` are further fields of the head; the
/// body of `201 Created` is a session description, and any other is for people.
///
/// # Errors
/// The connection is lost.
pub async fn reply(
    lane: &mut dyn Lane,
    status: &str,
    fields: &[(&str, String)],
    body: &str,
) -> Result<(), CarrierError> {
    let (kind, mut more) = (body_type(status), String::new());
    for (name, value) in FIELDS {
        more.push_str(&format!("{name}: {value}\r\n"));
    }
    for (name, value) in fields {
        more.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         {more}Connection: close\r\n\r\n{body}"
    );
    let sent = timeout(ANSWER, send_away(lane, head.into())).await;
    sent.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

/// The source of a request, for the limits of the caller.
pub(super) fn source(remote: SocketAddr, client: Option<SocketAddr>) -> SocketAddr {
    client.unwrap_or(remote)
}

/// Gives a buffer back.
pub(super) fn done(buf: BytesMut) {
    if buf.capacity() <= HEAD {
        pool::give(buf);
    }
}

#[cfg(test)]
mod tests {
    use httparse::{EMPTY_HEADER, Status};

    use super::*;

    fn read(text: &str) -> Option<Result<OfferHead, Refused>> {
        let mut fields = [EMPTY_HEADER; 16];
        let mut request = Request::new(&mut fields);
        let text = format!("{}\r\n\r\n", text.replace('\n', "\r\n"));
        assert!(matches!(request.parse(text.as_bytes()), Ok(Status::Complete(_))), "{text}");
        OfferHead::of(&request, Some("/webrtc"))
    }

    #[test]
    fn an_offer_has_a_place_proofs_and_a_bounded_length() {
        let head = "POST /webrtc/home/ssh?x=1 HTTP/1.1\nHost: a\nContent-Type: application/sdp\n\
                    Authorization: Bearer laptop.AAAA\nTunnel-Visit: BBBB\nContent-Length: 3";
        let offer = read(head).unwrap().unwrap();
        assert_eq!((offer.method, offer.length), (Method::Post, 3));
        assert_eq!(offer.place, "home/ssh");
        assert_eq!(offer.bearer.as_deref(), Some("laptop.AAAA"));
        assert_eq!(offer.visit.as_deref(), Some("BBBB"));
        let with = |what: &str, instead: &str| read(&head.replace(what, instead)).unwrap();
        assert_eq!(with("application/sdp", "text/html"), Err("415 Unsupported Media Type"));
        assert_eq!(with("Length: 3", "Length: 16385"), Err("413 Content Too Large"));
        assert_eq!(with("Length: 3", "Length: +3"), Err("400 Bad Request"));
        assert_eq!(with("Length: 3", "Length: 3\nContent-Length: 4"), Err("400 Bad Request"));
        assert_eq!(with("Host: a", "Transfer-Encoding: chunked"), Err("411 Length Required"));
        assert_eq!(with("POST", "PUT"), Err("405 Method Not Allowed"));
        assert_eq!(with("Bearer ", "Basic ").unwrap().bearer, None);
        assert_eq!(with("/home/ssh", "").unwrap().place, "");
        assert_eq!(with("POST", "DELETE").unwrap().method, Method::Delete);
        assert_eq!(
            read("OPTIONS /webrtc HTTP/1.1\nHost: a").unwrap().unwrap().method,
            Method::Options
        );
        for other in ["/webrtcs", "/", "/WEBRTC", "/a/webrtc"] {
            assert_eq!(read(&format!("POST {other} HTTP/1.1\nHost: a")), None, "{other}");
        }
    }
}
