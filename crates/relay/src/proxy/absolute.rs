//! A request for an `http://` address without CONNECT (absolute-form, RFC 9112 section 3.2.2): the
//! header that is sent to its target.
//!
//! The target gets one request on a separate connection, with `Connection: close`, so that the
//! bytes after the header are forwarded unchanged. The fields that define the end of the body are
//! never removed, whatever `Connection` lists, and the new header is validated by the parser that
//! finds the end of the body.

use std::borrow::Cow;

use h1::{Absolute, Authority, FirstLine, HeadSniffer, Looked, tokens};

use super::{Endpoint, Fault};

/// Fields that are only for the proxy (RFC 9110 section 7.6.1), in addition to those that
/// `Connection` lists. `Host` is rewritten. Without `Upgrade`, `HTTP2-Settings` has no meaning.
const DROPPED: [&str; 8] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

/// Fields that are not removed when `Connection` lists them: without them the body would be parsed
/// as another request.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// A request to be sent to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) target: Endpoint,
    /// The header in origin-form.
    pub(crate) head: Vec<u8>,
}

/// Writes the header of a request for its target.
pub(super) fn request(line: FirstLine<'_>, fields: &[(&str, &[u8])]) -> Result<Request, Fault> {
    let FirstLine { method, target, version10 } = line;
    let Absolute { is_https, authority, rest } = match Absolute::parse(target.as_bytes()) {
        Some(absolute) => absolute,
        None if target.contains("://") => return Err(Fault::Scheme),
        None => return Err(Fault::OriginForm),
    };
    if is_https {
        return Err(Fault::Https);
    }
    let endpoint = Authority::parse(authority)
        .and_then(|Authority { host, port }| Endpoint::new(host.as_bytes(), port.unwrap_or(80)))
        .filter(|endpoint| endpoint.port != 0)
        .ok_or(Fault::Address)?;
    match values(fields, "host").count() {
        0 if !version10 => return Err(Fault::Request(h1::Fault::NoHost)),
        0 | 1 => {}
        _ => return Err(Fault::Request(h1::Fault::Hosts)),
    }
    let path: Cow<'_, [u8]> = match rest {
        [b'/', ..] => rest.into(),
        // The form of a request for the server itself (RFC 9112 section 3.2.4).
        [] if method == "OPTIONS" => b"*"[..].into(),
        _ => [b"/", rest].concat().into(),
    };
    let mut head = Vec::with_capacity(512);
    let version = if version10 { " HTTP/1.0\r\nHost: " } else { " HTTP/1.1\r\nHost: " };
    for part in [method.as_bytes(), b" ", &path, version.as_bytes(), authority, b"\r\n"] {
        head.extend_from_slice(part);
    }
    let named: Vec<&[u8]> = values(fields, "connection").flat_map(tokens).collect();
    for (name, value) in fields {
        let is_any = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        let is_named = named.iter().any(|token| token.eq_ignore_ascii_case(name.as_bytes()));
        if is_any(&DROPPED) || (is_named && !is_any(&FRAMING)) {
            continue;
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    // Only `trailers` is forwarded (RFC 9110 section 10.1.4), no other coding that the program
    // accepts.
    let has_trailers = values(fields, "te")
        .flat_map(tokens)
        .any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    let end: &[u8] = match has_trailers {
        true => b"TE: trailers\r\nConnection: close, TE\r\n\r\n",
        false => b"Connection: close\r\n\r\n",
    };
    head.extend_from_slice(end);
    match HeadSniffer::default().look(&head) {
        Looked::Head(_) => Ok(Request { target: endpoint, head }),
        Looked::Bad(fault) => Err(Fault::Request(fault)),
        Looked::More | Looked::Http2 | Looked::Not => Err(Fault::Malformed),
    }
}

/// The values of a field.
fn values<'a>(fields: &'a [(&str, &'a [u8])], wanted: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let is_wanted = move |(name, _): &&(&str, &[u8])| name.eq_ignore_ascii_case(wanted);
    fields.iter().filter(is_wanted).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(head: &str) -> Result<(String, String), Fault> {
        let mut fields = Vec::new();
        let line = h1::lines(head.as_bytes(), |name, value| fields.push((name, value))).unwrap();
        let Request { target, head } = request(line, &fields)?;
        Ok((target.to_string(), String::from_utf8(head).unwrap()))
    }

    /// The header sent to the target of a request with these fields, without its first two lines.
    fn fields(fields: &str) -> Result<String, Fault> {
        let (_, head) = asked(&format!("GET http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))?;
        Ok(head.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").unwrap().to_owned())
    }

    #[test]
    fn the_target_gets_the_path_and_the_host_of_the_address() {
        for (line, to, written) in [
            ("GET http://a.example/b?c HTTP/1.1", "a.example:80", "GET /b?c HTTP/1.1|a.example"),
            ("GET HTTP://A.example:81 HTTP/1.1", "a.example:81", "GET / HTTP/1.1|A.example:81"),
            ("POST http://a?b HTTP/1.1", "a:80", "POST /?b HTTP/1.1|a"),
            ("HEAD http://[::1]:8080/ HTTP/1.0", "[::1]:8080", "HEAD / HTTP/1.0|[::1]:8080"),
            ("GET http://a:/ HTTP/1.1", "a:80", "GET / HTTP/1.1|a:"),
            ("OPTIONS http://a HTTP/1.1", "a:80", "OPTIONS * HTTP/1.1|a"),
            ("OPTIONS http://a/ HTTP/1.1", "a:80", "OPTIONS / HTTP/1.1|a"),
        ] {
            let (line_written, host) = written.split_once('|').unwrap();
            let expected = format!("{line_written}\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            // The visitor's `Host` field is ignored.
            let head = format!("{line}\r\nHost: other.example\r\n\r\n");
            assert_eq!(asked(&head), Ok((to.to_owned(), expected)), "{line}");
        }
    }

    #[test]
    fn an_address_that_no_request_can_be_sent_to_is_refused() {
        for (target, fault) in [
            ("https://a/", Fault::Https),
            ("ftp://a/", Fault::Scheme),
            ("/", Fault::OriginForm),
            ("*", Fault::OriginForm),
            ("a:80", Fault::OriginForm),
            ("http://", Fault::Address),
            ("http://user:password@a/", Fault::Address),
            ("http://a:0/", Fault::Address),
            ("http://a:65536/", Fault::Address),
            ("http://a%41/", Fault::Address),
        ] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(asked(&head), Err(fault), "{target}");
        }
        for (head, fault) in [
            ("GET http://a/ HTTP/1.1\r\n\r\n", h1::Fault::NoHost),
            ("GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", h1::Fault::Hosts),
        ] {
            assert_eq!(asked(head), Err(Fault::Request(fault)));
        }
        assert!(asked("GET http://a/ HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn fields_for_the_proxy_do_not_reach_the_target() {
        let own = "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\n\
                   Keep-Alive: timeout=5\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\
                   Connection: keep-alive, X-One\r\nConnection: upgrade, x-two\r\nTE: gzip\r\n\
                   X-One: 1\r\nX-TWO: 2\r\n";
        let ends = "Authorization: Basic YTpi\r\nAccept: */*\r\nExpect: 100-continue\r\n";
        let close = "Connection: close\r\n\r\n";
        assert_eq!(fields(&format!("{own}{ends}")), Ok(format!("{ends}{close}")));
        let te = "TE: trailers\r\nConnection: close, TE\r\n\r\n";
        assert_eq!(fields("TE: gzip, Trailers;q=1\r\n"), Ok(close.to_owned()));
        assert_eq!(fields("TE: gzip, Trailers\r\nConnection: TE\r\n"), Ok(te.to_owned()));
    }

    #[test]
    fn a_body_has_one_end_whatever_connection_names() {
        for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let named = "Connection: content-length, Transfer-Encoding\r\n";
            let expected = format!("{framing}Connection: close\r\n\r\n");
            assert_eq!(fields(&format!("{framing}{named}")), Ok(expected));
        }
        for (framing, fault) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", h1::Fault::LengthAndEncoding),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", h1::Fault::Lengths),
            ("Content-Length: +5\r\n", h1::Fault::Length),
            ("Transfer-Encoding: gzip\r\n", h1::Fault::Encoding),
        ] {
            assert_eq!(fields(framing), Err(Fault::Request(fault)), "{framing}");
        }
    }
}
