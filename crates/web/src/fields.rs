//! The header fields of messages that pass through the proxy.

use std::net::{IpAddr, SocketAddr};

use hyper::Method;
use hyper::header::{
    self, CONNECTION, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::{Sender, Visitor};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The prefix of the fields by which a proxy describes a request, and the other fields by which
/// reverse proxies, CDNs and frameworks report the address or the protocol of the visitor.
const CLAIM: &str = "x-forwarded";
const CLAIMS: &[&str] = &[
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cf-visitor",
    "client-ip",
    "cloudfront-forwarded-proto",
    "cloudfront-viewer-address",
    "do-connecting-ip",
    "fastly-client-ip",
    "fastly-ssl",
    "fly-client-ip",
    "fly-forwarded-port",
    "fly-forwarded-proto",
    "fly-forwarded-ssl",
    "forwarded",
    "forwarded-for",
    "forwarded-for-ip",
    "front-end-https",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "wl-proxy-ssl",
    "x-appengine-remote-addr",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-real-port",
    "x-remote-addr",
    "x-remote-ip",
    "x-scheme",
    "x-url-scheme",
    "x-vercel-forwarded-for",
];

/// The length of the fields in a header, in bytes.
pub(crate) fn length(fields: &HeaderMap) -> usize {
    // Plus the colon, the space and the line end.
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Removes the fields that belong to the connection of the sender (RFC 9110 section 7.6.1), and
/// every field that `Connection` names. `Trailer` is kept, because trailers are passed on.
pub(crate) fn strip_hop_by_hop(fields: &mut HeaderMap) {
    if fields.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(fields, &CONNECTION)
            .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
            // `close` is an option, not a field. The others frame or route the message, so a
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

/// The protocols to which the visitor requests to switch, without `h2c`: over an HTTP/2 connection
/// to the target, requests would bypass the routing.
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

/// Whether a message is gRPC, which needs HTTP/2 (gRPC over HTTP2, "Requests"). gRPC-Web does not.
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

/// Whether a trusted proxy reports that its visitor uses TLS. Any of the usual fields counts:
/// redirecting a visitor that already uses TLS would loop.
pub(crate) fn reports_tls(fields: &HeaderMap) -> bool {
    const SCHEMES: [&str; 5] = [
        "x-forwarded-proto",
        "x-forwarded-protocol",
        "x-forwarded-scheme",
        "x-scheme",
        "cloudfront-forwarded-proto",
    ];
    let values = |name: &str| fields.get_all(name).into_iter().map(HeaderValue::as_bytes);
    let has = |name: &str, words: &[&[u8]]| {
        let members = values(name).flat_map(|value| value.split(|&byte| byte == b','));
        members
            .map(<[u8]>::trim_ascii)
            .any(|member| words.iter().any(|word| member.eq_ignore_ascii_case(word)))
    };
    let is_proto = |pair: &[u8]| {
        let pair = pair.trim_ascii().to_ascii_lowercase();
        matches!(&*pair, b"proto=https" | b"proto=\"https\"" | b"proto=wss" | b"proto=\"wss\"")
    };
    SCHEMES.iter().any(|name| has(name, &[b"https", b"wss"]))
        || has("x-forwarded-ssl", &[b"on"])
        || has("front-end-https", &[b"on"])
        || values("forwarded")
            .any(|value| value.split(|&byte| matches!(byte, b',' | b';')).any(is_proto))
}

/// Whether a request is a CORS preflight, by which a browser checks whether a page of another
/// origin may send a request (the Fetch standard, section 3.3.2): it has no password, no body and
/// no cookie.
pub(crate) fn is_preflight(method: &Method, fields: &HeaderMap, has_body: bool) -> bool {
    let is_one = |name: &HeaderName| fields.get_all(name).into_iter().count() == 1;
    *method == Method::OPTIONS
        && !has_body
        && is_one(&header::ORIGIN)
        && is_one(&header::ACCESS_CONTROL_REQUEST_METHOD)
        && !fields.contains_key(header::AUTHORIZATION)
        && !fields.contains_key(UPGRADE)
}

/// Declares an empty body for a request whose method expects a body (RFC 9110 section 8.6). HTTP/2
/// needs no such field, but a target over HTTP/1.1 may reject a request without it with 411.
pub(crate) fn name_empty_body(method: &Method, fields: &mut HeaderMap) {
    if matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        fields.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(0));
    }
}

/// The fields of a preflight: those that a browser sends, and those that proxies add.
const OF_PREFLIGHT: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-local-network",
    "access-control-request-method",
    "access-control-request-private-network",
    "cache-control",
    "cdn-loop",
    "connection",
    "content-length",
    "dnt",
    "host",
    "origin",
    "pragma",
    "priority",
    "referer",
    "save-data",
    "te",
    "traceparent",
    "tracestate",
    "user-agent",
    "via",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-request-id",
];

/// The prefix of the fields that a page cannot set (the Fetch standard, section 2.2.2).
const OF_BROWSER: &str = "sec-";

/// Keeps the fields of a preflight, and removes all others. No password was checked, and a target
/// may interpret any other field as the session of a visitor, another method or another path,
/// whatever characters its interface maps to a hyphen.
pub(crate) fn clean_preflight(fields: &mut HeaderMap) {
    let is_foreign = |name: &&HeaderName| {
        let name = name.as_str();
        let is_known = OF_PREFLIGHT.contains(&name) || CLAIMS.contains(&name);
        let is_of_browser = name.starts_with(OF_BROWSER) && name.bytes().all(is_usual);
        !(is_known || is_of_browser)
    };
    let foreign: Vec<HeaderName> = fields.keys().filter(is_foreign).cloned().collect();
    for name in foreign {
        fields.remove(name);
    }
}

/// Whether a byte is usual in field names, in lower case.
const fn is_usual(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// An `Origin` that is the host of the request becomes the origin of the host that the target sees,
/// so that a target that compares the two accepts the request as same-origin. Any other origin is
/// kept. `scheme_of_target`: the scheme of the target; `None`: the target is told the visitor's.
pub(crate) fn rewrite_origin(
    fields: &mut HeaderMap,
    (host, to): (&HeaderValue, &HeaderValue),
    is_secure: bool,
    scheme_of_target: Option<&'static str>,
) {
    let mut origins = fields.get_all(header::ORIGIN).into_iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return };
    let Some((scheme, port, authority)) = origin_of(origin.as_bytes()) else { return };
    // A page over http:// has a different origin from the site over https://.
    if is_secure && scheme != "https" {
        return;
    }
    let port_of = |authority: &h1::Authority<'_>| authority.port.unwrap_or(port);
    let same = h1::Authority::parse(host.as_bytes())
        .is_some_and(|host| host.host == authority.host && port_of(&host) == port_of(&authority));
    if !same {
        return;
    }
    let scheme = scheme_of_target.unwrap_or(scheme);
    let value = [scheme.as_bytes(), b"://", to.as_bytes()].concat();
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        fields.insert(header::ORIGIN, value);
    }
}

/// The scheme of an origin, its default port, and the authority.
fn origin_of(origin: &[u8]) -> Option<(&'static str, u16, h1::Authority<'_>)> {
    let schemes = [("https", &b"https://"[..], 443), ("http", b"http://", 80)];
    let (scheme, rest, port) = schemes
        .into_iter()
        .find_map(|(scheme, start, port)| Some((scheme, origin.strip_prefix(start)?, port)))?;
    Some((scheme, port, h1::Authority::parse(rest)?))
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

/// Adds the fields that describe the visitor to the target. The fields of a trusted proxy describe
/// its own visitor: they are kept, and its address is appended. The fields of all other visitors
/// are replaced, and every other field from which a target may take an address is removed.
/// `X-Real-IP` is the address that this server itself uses.
pub(crate) fn forwarded(
    fields: &mut HeaderMap,
    (visitor, sender): (&Visitor, Sender),
    is_trusted: bool,
    host: &HeaderValue,
) {
    remove_claims(fields, is_trusted);
    if let Some(value) = ip(visitor.address).and_then(|ip| forwarded_for(fields, ip)) {
        fields.insert(X_FORWARDED_FOR, value);
    }
    let real = ip(sender.address()).and_then(|ip| HeaderValue::try_from(ip.to_string()).ok());
    match real {
        Some(value) => drop(fields.insert(X_REAL_IP, value)),
        None => drop(fields.remove(X_REAL_IP)),
    }
    fields
        .entry(X_FORWARDED_PROTO)
        .or_insert_with(|| HeaderValue::from_static(if visitor.secure { "https" } else { "http" }));
    if !host.is_empty() {
        fields.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
    }
}

/// Adds the removed part of the path for the target, after the part that a trusted proxy has
/// removed.
pub(crate) fn forwarded_prefix(fields: &mut HeaderMap, prefix: &str) {
    let earlier = fields.get(X_FORWARDED_PREFIX).map(HeaderValue::as_bytes).unwrap_or_default();
    let earlier = earlier.strip_suffix(b"/").unwrap_or(earlier);
    if let Ok(value) = HeaderValue::from_bytes(&[earlier, prefix.as_bytes()].concat()) {
        fields.insert(X_FORWARDED_PREFIX, value);
    }
}

/// Converts the IPv4-mapped address of a dual-stack socket to IPv4.
fn ip(address: Option<SocketAddr>) -> Option<IpAddr> {
    address.map(|address| address.ip().to_canonical())
}

/// Removes the fields that describe a visitor. Those of a trusted proxy are kept, unless they have
/// `_` or another character instead of `-`: a CGI target cannot distinguish the names (RFC 3875
/// section 4.1.18), and proxies write `-`.
fn remove_claims(fields: &mut HeaderMap, is_trusted: bool) {
    let is_claim = |name: &&HeaderName| {
        let name = name.as_str();
        (!is_trusted || !name.bytes().all(is_usual))
            && (name.get(..CLAIM.len()).is_some_and(|start| is_same(start, CLAIM))
                || CLAIMS.iter().any(|claim| is_same(name, claim)))
    };
    let claims: Vec<HeaderName> = fields.keys().filter(is_claim).cloned().collect();
    for name in claims {
        fields.remove(name);
    }
}

/// Whether a field name, in lower case, equals `claim` for a CGI program.
fn is_same(name: &str, claim: &str) -> bool {
    let hyphen = |byte| if is_usual(byte) { byte } else { b'-' };
    name.len() == claim.len() && name.bytes().map(hyphen).eq(claim.bytes())
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
        let sender = Sender::Known(visitor().address.unwrap());
        forwarded(&mut direct, (&visitor(), sender), false, &host);
        assert_eq!(direct.len(), 4);
        assert_eq!(direct["x-real-ip"], "192.0.2.7");
        assert_eq!(direct["x-forwarded-for"], "192.0.2.7");
        assert_eq!(direct["x-forwarded-proto"], "https");
        assert_eq!(direct["x-forwarded-host"], "app.example.com:8443");
        let mut proxied = fields(&sent);
        let sender = Sender::Known("10.0.0.2:0".parse().unwrap());
        forwarded(&mut proxied, (&visitor(), sender), true, &host);
        assert_eq!(proxied["x-real-ip"], "10.0.0.2");
        assert_eq!(proxied.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(proxied["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.7");
        assert_eq!(proxied["x-forwarded-proto"], "http");
        assert_eq!(proxied["x-forwarded-host"], "other");
        assert_eq!(proxied["forwarded"], "for=10.0.0.1");
    }

    #[test]
    fn a_visitor_claims_no_address_by_any_name() {
        let sent = [
            ("x-real-ip", "203.0.113.9"),
            ("x_real_ip", "203.0.113.9"),
            ("x_forwarded_for", "203.0.113.9"),
            ("x-forwarded_proto", "https"),
            ("x-forwarded-port", "444"),
            ("x-forwarded-ssl", "on"),
            ("x-forwarded-prefix", "/admin"),
            ("x-forwarded", "for=203.0.113.9"),
            ("true-client-ip", "203.0.113.9"),
            ("x-client-ip", "203.0.113.9"),
            ("client_ip", "203.0.113.9"),
            ("cf-connecting-ip", "203.0.113.9"),
            ("fastly-client-ip", "203.0.113.9"),
            ("x-cluster-client-ip", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("x-real-time", "stays"),
            ("x-forwar", "stays"),
            ("client-ip-x", "stays"),
        ];
        let host = HeaderValue::from_static("a.example");
        let mut direct = fields(&sent);
        let sender = Sender::Known(visitor().address.unwrap());
        forwarded(&mut direct, (&visitor(), sender), false, &host);
        let mut names: Vec<_> = direct.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let set = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];
        let mut left = [&["client-ip-x", "x-forwar", "x-real-time"][..], &set].concat();
        left.sort_unstable();
        assert_eq!(names, left);
        // A trusted proxy is responsible for them. It writes no name with `_`.
        let mut proxied = fields(&sent);
        forwarded(&mut proxied, (&visitor(), Sender::Hidden), true, &host);
        assert_eq!(proxied["cf-connecting-ip"], "203.0.113.9");
        assert_eq!(proxied.get("x-real-ip"), None);
        assert!(!proxied.keys().any(|name| name.as_str().contains('_')), "{proxied:?}");
    }

    #[test]
    fn an_origin_of_the_visitors_own_host_becomes_that_of_the_target() {
        let http = Some("http");
        for (origin, secure, scheme, wanted) in [
            ("https://a.example", true, http, "http://localhost:3000"),
            ("https://A.example.:443", true, http, "http://localhost:3000"),
            ("https://a.example", true, None, "https://localhost:3000"),
            ("http://a.example", false, http, "http://localhost:3000"),
            ("https://a.example", true, Some("https"), "https://localhost:3000"),
            // The proxy in front of the server has terminated TLS.
            ("https://a.example", false, http, "http://localhost:3000"),
            ("http://a.example", true, http, "http://a.example"),
            ("https://a.example:8443", true, http, "https://a.example:8443"),
            ("https://b.example", true, http, "https://b.example"),
            ("https://a.example.evil", true, http, "https://a.example.evil"),
            ("https://a.example/", true, http, "https://a.example/"),
            ("null", true, http, "null"),
        ] {
            let mut list = fields(&[("origin", origin)]);
            let [host, to] = ["a.example", "localhost:3000"].map(HeaderValue::from_static);
            rewrite_origin(&mut list, (&host, &to), secure, scheme);
            assert_eq!(list["origin"], wanted, "{origin}");
        }
        let mut list = fields(&[("origin", "http://a.example:8080")]);
        let [host, to] = ["a.example:8080", "b"].map(HeaderValue::from_static);
        rewrite_origin(&mut list, (&host, &to), false, http);
        assert_eq!(list["origin"], "http://b");
        let mut two = fields(&[("origin", "http://a.example"), ("origin", "http://b.example")]);
        rewrite_origin(&mut two, (&HeaderValue::from_static("a.example"), &to), false, http);
        assert_eq!(two.get_all("origin").iter().count(), 2);
    }

    #[test]
    fn a_preflight_has_no_password_no_body_and_one_method() {
        let preflight = [("origin", "https://b.example"), ("access-control-request-method", "PUT")];
        let is = |method: Method, more: &[(&'static str, &str)], has_body| {
            is_preflight(&method, &fields(&[&preflight[..], more].concat()), has_body)
        };
        assert!(is(Method::OPTIONS, &[("access-control-request-headers", "authorization")], false));
        assert!(!is(Method::OPTIONS, &[], true));
        assert!(!is(Method::GET, &[], false));
        assert!(!is(Method::POST, &[], false));
        assert!(!is(Method::OPTIONS, &[("authorization", "Basic x")], false));
        assert!(!is(Method::OPTIONS, &[("upgrade", "websocket")], false));
        assert!(!is(Method::OPTIONS, &[("origin", "https://c.example")], false));
        for one in preflight {
            assert!(!is_preflight(&Method::OPTIONS, &fields(&[one]), false));
        }
    }

    #[test]
    fn a_preflight_has_the_fields_of_a_browser_and_of_proxies_alone() {
        let kept = [
            ("host", "a"),
            ("origin", "https://b.example"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "x-a"),
            ("sec-fetch-mode", "cors"),
            ("user-agent", "x"),
            ("x-forwarded-for", "192.0.2.1"),
            ("cf-connecting-ip", "192.0.2.1"),
        ];
        let removed = [
            "cookie",
            "cookie2",
            "x-http-method-override",
            "x_http_method_override",
            "x-http_method-override",
            "x.http.method.override",
            "x-http-method",
            "x_http_method",
            "x-method-override",
            "x_method_override",
            "x-original-url",
            "x_original_url",
            "x-rewrite-url",
            "x-original-method",
            "x-api-key",
            "remote_user",
            "proxy_authorization",
            "content-type",
            "x-forwarded-user",
            "x-forwarded_for",
            "x_forwarded_for",
            "sec_fetch_mode",
            "sec-x_y",
        ];
        let removed = removed.map(|name| (name, "PUT"));
        let mut all = fields(&[&kept[..], &removed].concat());
        clean_preflight(&mut all);
        assert_eq!(all, fields(&kept));
    }

    #[test]
    fn a_proxy_reports_tls_in_the_usual_fields() {
        for field in [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-proto", "http, HTTPS"),
            ("x-forwarded-proto", "wss"),
            ("forwarded", "for=1.2.3.4;Proto=https;by=x"),
            ("forwarded", "for=1.2.3.4, for=x; proto=\"https\""),
            ("x-forwarded-ssl", "on"),
            ("front-end-https", "on"),
            ("x-forwarded-scheme", "https"),
        ] {
            assert!(reports_tls(&fields(&[field])), "{field:?}");
        }
        for field in [
            ("x-forwarded-proto", "http"),
            ("x-forwarded-proto", "xhttps"),
            ("forwarded", "for=1.2.3.4;proto=http"),
            ("x-forwarded-ssl", "off"),
            ("x-proto", "https"),
        ] {
            assert!(!reports_tls(&fields(&[field])), "{field:?}");
        }
    }

    #[test]
    fn cookies_of_http2_become_one_field() {
        let mut split = fields(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
        join_cookies(&mut split);
        assert_eq!(split.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
