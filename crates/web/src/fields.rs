//! The fields of messages that pass the proxy.

use std::net::IpAddr;

use hyper::header::{
    self, CONNECTION, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::Visitor;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The length of the fields in a head, bytes.
pub(crate) fn length(fields: &HeaderMap) -> usize {
    // A field has a colon, a space and an end of the line.
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Removes the fields that belong to the connection of the sender (RFC 9110 section 7.6.1), and
/// every field that `Connection` names. `Trailer` stays, because trailers are passed on.
pub(crate) fn strip_hop_by_hop(fields: &mut HeaderMap) {
    if fields.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(fields, &CONNECTION)
            .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
            // `close` is an option and not a field. The others frame or route the message: a
            // visitor must not be able to remove them.
            .filter(|name| !matches!(name.as_str(), "close" | "host" | "content-length"))
            .collect();
        for name in &named {
            fields.remove(name);
        }
        fields.remove(CONNECTION);
    }
    for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &TE, &TRANSFER_ENCODING, &UPGRADE, &HTTP2_SETTINGS]
    {
        fields.remove(name);
    }
}

/// Whether `Connection` of an HTTP/1 message names the option.
pub(crate) fn connection_names(fields: &HeaderMap, option: &str) -> bool {
    tokens(fields, &CONNECTION).any(|token| token.eq_ignore_ascii_case(option))
}

/// The protocols to which the visitor asks to switch, without `h2c`: behind an HTTP/2 connection to
/// the target, requests would pass that nobody routes.
pub(crate) fn upgrade(fields: &HeaderMap) -> Option<HeaderValue> {
    if !connection_names(fields, "upgrade") {
        return None;
    }
    let mut list = String::new();
    for token in tokens(fields, &UPGRADE) {
        if token.eq_ignore_ascii_case("h2c") || token.eq_ignore_ascii_case("h2") {
            continue;
        }
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(token);
    }
    if list.is_empty() { None } else { HeaderValue::try_from(list).ok() }
}

/// Whether a message is one of gRPC, which needs HTTP/2 (gRPC over HTTP2, "Requests"). gRPC-Web
/// does not.
pub(crate) fn is_grpc(fields: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let rest = fields
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.as_bytes().split_at_checked(GRPC.len()))
        .filter(|(kind, _)| kind.eq_ignore_ascii_case(GRPC));
    rest.is_some_and(|(_, rest)| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Whether the visitor accepts trailers.
pub(crate) fn takes_trailers(fields: &HeaderMap) -> bool {
    tokens(fields, &TE).any(|token| token.eq_ignore_ascii_case("trailers"))
}

/// HTTP/2 may split `Cookie` into several fields, HTTP/1.1 may not (RFC 9113 section 8.2.3).
pub(crate) fn join_cookies(fields: &mut HeaderMap) {
    let header::Entry::Occupied(mut cookies) = fields.entry(header::COOKIE) else {
        return;
    };
    let mut values = cookies.iter();
    if values.next().is_some() && values.next().is_some() {
        let joined = cookies.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
        if let Ok(joined) = HeaderValue::from_bytes(&joined) {
            cookies.insert(joined);
        }
    }
}

/// Tells the target about the visitor. A trusted proxy has told about its own visitor already: its
/// fields stay, and its address is appended. The fields of all other visitors are replaced, and
/// `Forwarded` (RFC 7239) is removed, because a target may prefer it.
pub(crate) fn forwarded(
    fields: &mut HeaderMap,
    visitor: &Visitor,
    is_trusted: bool,
    host: &HeaderValue,
) {
    // An IPv4 visitor of a dual-stack socket is an IPv4 visitor.
    let address = visitor.address.map(|address| address.ip().to_canonical());
    if !is_trusted {
        fields.remove(X_FORWARDED_FOR);
        fields.remove(X_FORWARDED_HOST);
        fields.remove(X_FORWARDED_PROTO);
        fields.remove(header::FORWARDED);
    }
    if let Some(value) = address.and_then(|address| forwarded_for(fields, address)) {
        fields.insert(X_FORWARDED_FOR, value);
    }
    fields
        .entry(X_FORWARDED_PROTO)
        .or_insert_with(|| HeaderValue::from_static(if visitor.secure { "https" } else { "http" }));
    fields.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
}

fn forwarded_for(fields: &HeaderMap, address: IpAddr) -> Option<HeaderValue> {
    let mut list = Vec::new();
    for earlier in fields.get_all(X_FORWARDED_FOR) {
        list.extend_from_slice(earlier.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(address.to_string().as_bytes());
    HeaderValue::from_bytes(&list).ok()
}

/// The members of the comma-separated lists of a field (RFC 9110 section 5.6.1), without
/// parameters.
fn tokens<'f>(fields: &'f HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'f str> {
    fields
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|token| token.split(';').next().unwrap_or_default().trim_ascii())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::Protocol;

    fn fields(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in list {
            fields.append(*name, HeaderValue::from_str(value).unwrap());
        }
        fields
    }

    fn visitor() -> Visitor {
        Visitor {
            address: Some("[::ffff:192.0.2.7]:1000".parse().unwrap()),
            secure: true,
            protocol: Protocol::Either,
            most_unsent: 0,
        }
    }

    #[test]
    fn fields_of_the_connection_are_removed_and_framing_cannot_be_named() {
        let mut fields = fields(&[
            ("connection", "close, X-Own"),
            ("connection", "Host, Content-Length"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("x-own", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("trailer", "x-sum"),
            ("host", "a"),
            ("content-length", "3"),
            ("x-other", "2"),
        ]);
        strip_hop_by_hop(&mut fields);
        let mut names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "host", "trailer", "x-other"]);
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let of = |value: &str| is_grpc(&fields(&[("content-type", value)]));
        for grpc in ["application/grpc", "application/grpc+proto", "Application/GRPC; charset=x"] {
            assert!(of(grpc), "{grpc}");
        }
        for other in ["application/grpc-web", "application/grpc-web+proto", "application/g", ""] {
            assert!(!of(other), "{other}");
        }
    }

    #[test]
    fn an_upgrade_needs_the_connection_option_and_is_never_h2c() {
        let of = |list: &[(&'static str, &str)]| upgrade(&fields(list));
        assert_eq!(of(&[("upgrade", "websocket")]), None);
        assert_eq!(of(&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")]), None);
        assert_eq!(
            of(&[("connection", "keep-alive, Upgrade"), ("upgrade", "H2C, websocket, foo/2")]),
            Some(HeaderValue::from_static("websocket, foo/2"))
        );
    }

    #[test]
    fn the_fields_of_a_visitor_are_replaced_and_those_of_a_proxy_are_continued() {
        let sent = [
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "other"),
            ("forwarded", "for=10.0.0.1"),
        ];
        let host = HeaderValue::from_static("app.example.com:8443");
        let mut direct = fields(&sent);
        forwarded(&mut direct, &visitor(), false, &host);
        assert_eq!(direct.len(), 3);
        assert_eq!(direct["x-forwarded-for"], "192.0.2.7");
        assert_eq!(direct["x-forwarded-proto"], "https");
        assert_eq!(direct["x-forwarded-host"], "app.example.com:8443");
        let mut proxied = fields(&sent);
        forwarded(&mut proxied, &visitor(), true, &host);
        assert_eq!(proxied.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(proxied["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.7");
        assert_eq!(proxied["x-forwarded-proto"], "http");
        assert_eq!(proxied["x-forwarded-host"], "other");
        assert_eq!(proxied["forwarded"], "for=10.0.0.1");
    }

    #[test]
    fn cookies_of_http2_become_one_field() {
        let mut split = fields(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
        join_cookies(&mut split);
        assert_eq!(split.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
