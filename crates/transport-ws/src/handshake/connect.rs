//! The client's side of the opening handshake.

use std::fmt::Write as _;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use httparse::{EMPTY_HEADER, Response, Status};
use net::pool;
use transport::{CarrierError, Lane};

use super::head::{self, FIELDS, HEAD, NoHead, has, only, values};
use super::key::{SUBPROTOCOL, accept_key};
use crate::request::Request;

/// The largest number of a server's characters in an error text.
const QUOTED: usize = 200;

/// Asks for the upgrade over `lane` and checks the answer. Returns the bytes that were read after
/// the answer.
pub(crate) async fn connect(
    lane: &mut dyn Lane,
    request: &Request,
) -> Result<BytesMut, CarrierError> {
    let mut nonce = [0; 16];
    aws_lc_rs::rand::fill(&mut nonce)
        .map_err(|_| io::Error::other("the system has no random bytes"))?;
    let key = STANDARD.encode(nonce);
    head::write(lane, text(request, &key).into()).await?;

    let mut buf = pool::take(HEAD);
    let wanted = accept_key(key.as_bytes());
    match head::read(lane, &mut buf, |bytes| look(bytes, &wanted)).await {
        Ok(outcome) => outcome.map(|()| buf),
        Err(NoHead::Io(error)) => Err(error.into()),
        Err(NoHead::TooLarge) => Err(CarrierError::Http(format!(
            "the server's answer has a head of more than {HEAD} bytes or {FIELDS} fields"
        ))),
        Err(NoHead::Malformed) => Err(CarrierError::Http(
            "the server does not speak HTTP on this port: is it one for tcp://, tls:// or wss://?"
                .into(),
        )),
    }
}

fn text(request: &Request, key: &str) -> String {
    let mut text = format!("GET {} HTTP/1.1\r\n", request.path());
    // `Host` is the first field, as RFC 9110 section 7.2 demands.
    for (name, value) in request.fields() {
        // Writing to a `String` does not fail.
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text + &format!(
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
}

/// Looks for a complete head at the front of `bytes`, and checks it.
pub(super) fn look(
    bytes: &[u8],
    accept: &str,
) -> httparse::Result<(Result<(), CarrierError>, usize)> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut response = Response::new(&mut fields);
    Ok(match response.parse(bytes)? {
        Status::Partial => Status::Partial,
        Status::Complete(size) => Status::Complete((examine(&response, accept), size)),
    })
}

/// Checks the answer against section 4.1.
fn examine(response: &Response<'_, '_>, accept: &str) -> Result<(), CarrierError> {
    let fields = &*response.headers;
    let code = response.code.unwrap_or_default();
    if code != 101 {
        return Err(refused(code, only(fields, "location")));
    }
    let wrong = |what: &str| {
        let text = format!("HTTP 101, but {what}: a proxy on the way answers by itself");
        Err(CarrierError::Http(text))
    };
    if !has(fields, "upgrade", "websocket") || !has(fields, "connection", "upgrade") {
        return wrong("without the upgrade to a WebSocket");
    }
    if only(fields, "sec-websocket-accept") != Some(accept.as_bytes()) {
        return wrong("its Sec-WebSocket-Accept is not the answer to our key");
    }
    if values(fields, "sec-websocket-extensions").next().is_some() {
        return wrong("with an extension that was not asked for");
    }
    if values(fields, "sec-websocket-protocol").any(|said| said != SUBPROTOCOL.as_bytes()) {
        return wrong("with a subprotocol that was not asked for");
    }
    Ok(())
}

/// The error for an answer other than 101, with the cause and the remedy.
fn refused(code: u16, location: Option<&[u8]>) -> CarrierError {
    let text = match code {
        200..=299 => {
            "a page came instead of a WebSocket: nothing at this path passes `Upgrade` on \
                      (nginx: proxy_http_version 1.1 and proxy_set_header Upgrade, Connection)"
                .to_owned()
        }
        300..=399 => {
            let place = location.map(|place| &place[..place.len().min(QUOTED)]);
            let place = String::from_utf8_lossy(place.unwrap_or_default());
            format!(
                "redirected to {place:?}: put that address into `servers`, with wss:// or ws://"
            )
        }
        401 | 407 => "credentials are wanted: see `headers` and `proxy`".to_owned(),
        403 => "the proxy in front forbids it".to_owned(),
        404 => {
            "nothing there is a tunnel server: the path must be that of the proxy's location or, \
                without a proxy, of the server's `listen`"
                .to_owned()
        }
        // A temporary failure: nginx answers 502 to 504 while the server behind it is down. CDNs
        // use 520 and above for that.
        502..=504 | 520..=530 => {
            let text = format!("HTTP {code}: the proxy in front does not reach the tunnel server");
            return io::Error::new(io::ErrorKind::ConnectionRefused, text).into();
        }
        408 | 500..=599 => {
            let text = format!("HTTP {code}: the proxy in front failed");
            return io::Error::other(text).into();
        }
        _ => "the server does not upgrade to a WebSocket".to_owned(),
    };
    CarrierError::Http(format!("HTTP {code}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Result<(), CarrierError> {
        let mut fields = [EMPTY_HEADER; FIELDS];
        let mut response = Response::new(&mut fields);
        assert!(response.parse(text.as_bytes()).unwrap().is_complete(), "{text}");
        examine(&response, "right=")
    }

    const GOOD: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: right=\r\n";

    #[test]
    fn an_answer_is_good_with_all_its_parts_only() {
        assert!(answer(&format!("{GOOD}\r\n")).is_ok());
        assert!(answer(&format!("{GOOD}Sec-WebSocket-Protocol: tunnel.1\r\n\r\n")).is_ok());
        let wrong = [
            format!("{GOOD}Sec-WebSocket-Protocol: chat\r\n\r\n"),
            format!("{GOOD}Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
            format!("{GOOD}Sec-WebSocket-Accept: right=\r\n\r\n"),
            format!("{}\r\n", GOOD.replace("right=", "left=")),
            format!("{}\r\n", GOOD.replace("WebSocket", "h2c")),
            format!("{}\r\n", GOOD.replace("Upgrade\r", "close\r")),
        ];
        for text in wrong {
            assert!(matches!(answer(&text), Err(CarrierError::Http(_))), "{text}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = |text: &str| answer(&format!("HTTP/1.1 {text}\r\n\r\n")).unwrap_err();
        let weather = [
            "408 Request Timeout",
            "500 Oops",
            "502 Bad Gateway",
            "503 Service Unavailable",
            "504 Gateway Timeout",
            "521 Web Server Is Down",
        ];
        for code in weather {
            assert!(said(code).is_network(), "{code} passes by itself");
        }
        let cases = [
            ("200 OK", "proxy_set_header Upgrade"),
            ("301 Moved\r\nLocation: https://b.example/t", "\"https://b.example/t\""),
            ("404 Not Found", "the path must be"),
            ("407 Proxy", "credentials"),
            ("418 Teapot", "does not upgrade"),
        ];
        for (text, wanted) in cases {
            let error = said(text);
            assert!(!error.is_network() && error.to_string().contains(wanted), "{error}");
        }
    }
}
