//! `auth`: the service that decides about clients that are not in the file.

use super::Section;
use super::paths::{oldest, verification};
use super::values::{self, fields};
use crate::keys::{AUTH, AUTH_HTTP, AUTH_TLS};
use crate::model::{HttpAuth, Path, TlsVersion, Trust};
use crate::{BadValue, Endpoint, Span};

/// Default of `auth.http.timeout`, in milliseconds, and its maximum: the whole greeting must end
/// within 10 s.
const TIMEOUT: u64 = 5_000;
const TIMEOUT_MAX: u64 = 8_000;

/// Default of `auth.http.cache`, in milliseconds. A client that was removed from the service may
/// stay connected for this time.
const CACHE: u64 = 60_000;

/// Decodes `auth`. `None` if the key is missing, or after a problem.
pub(crate) fn auth(s: &Section<'_>) -> Option<HttpAuth> {
    let http = s.section("auth", &AUTH)?.section("http", &AUTH_HTTP)?;
    if http.key("url").is_none() {
        http.missing("url", "for example https://auth.example.com/tunnel");
    }
    let endpoint = http.value("url", url);
    let (trust, identity, min_version) = match http.section("tls", &AUTH_TLS) {
        Some(tls) => {
            let (trust, identity) = verification(&tls);
            (trust, identity, oldest(&tls))
        }
        None => (Trust::System, None, TlsVersion::V13),
    };
    let headers = fields(&http);
    let timeout = values::positive(&http, "timeout", TIMEOUT)?;
    if timeout > Span::from_millis(TIMEOUT_MAX) {
        let bad = BadValue::new(format!("{timeout} is more than a log-in can wait"));
        http.bad("timeout", bad.hint(format!("at most {}", Span::from_millis(TIMEOUT_MAX))));
    }
    let cache = values::positive(&http, "cache", CACHE)?;
    let endpoint = endpoint?;
    let (sni, proxy, dscp) = Default::default();
    let path = Path { endpoint, trust, identity, min_version, sni, headers, proxy, dscp };
    Some(HttpAuth { path, timeout, cache })
}

/// Parses the URL: `https://` for any host, `http://` only on loopback, because an attacker on the
/// path could accept any client. The endpoint has the scheme of a WebSocket, because that transport
/// carries HTTP as well.
fn url(text: &str) -> Result<Endpoint, BadValue> {
    let hint = "for example https://auth.example.com/tunnel, or http://127.0.0.1:8080/tunnel";
    let scheme = text.split_once("://").and_then(|(scheme, rest)| match scheme {
        "https" => Some(("wss", rest)),
        "http" => Some(("ws", rest)),
        _ => None,
    });
    let (scheme, rest) =
        scheme.ok_or_else(|| BadValue::new("not a URL of http:// or https://").hint(hint))?;
    if rest.split('/').next().is_some_and(|place| place.contains('@')) {
        let bad = BadValue::new("a password in a URL gets into logs");
        return Err(bad.hint("give it as a field: headers: { Authorization: \"…\" }"));
    }
    if rest.contains('?') {
        let bad = BadValue::new("a query of a URL gets into logs");
        return Err(bad.hint("leave it out; what is secret is a field: headers: { X-Key: \"…\" }"));
    }
    let endpoint: Endpoint = format!("{scheme}://{rest}").parse()?;
    if endpoint.port == 0 {
        return Err(BadValue::new("port 0 cannot be dialled"));
    }
    if !endpoint.scheme.tls && !endpoint.host.is_loopback() {
        return Err(BadValue::new("no TLS on the way to who says whom to let in")
            .hint("use https://, or http:// on loopback"));
    }
    Ok(endpoint)
}
