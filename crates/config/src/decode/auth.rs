//! `auth`: the service that decides about clients that are not in the file.

use crate::key_table::KeyTable as _;
use crate::model::credentials::fields;
use crate::model::{Auth, HttpAuth, Path, PathTls, ServerConfig};
use crate::section::Section;
use crate::{BadValue, Endpoint, Span, values};

/// Default of `auth.http.timeout`, and its maximum: the whole greeting must end
/// within 10 s.
const TIMEOUT: Span = Span::from_millis(5_000);
const TIMEOUT_MAX: Span = Span::from_millis(8_000);

/// Default of `auth.http.cache`. A client that was removed from the service may
/// stay connected for this time.
const CACHE: Span = Span::from_millis(60_000);

/// Decodes `auth`. `None` if the key is missing, or after a problem.
pub(crate) fn auth(s: &Section<'_>) -> Option<HttpAuth> {
    let http = s.section::<ServerConfig>("auth")?.section::<Auth>("http")?;
    let endpoint = http.required("url", "for example https://auth.example.com/tunnel", url);
    let tls = http.map::<PathTls>("tls", HttpAuth::map("tls")).unwrap_or_default();
    let PathTls { trust, identity, min_version } = tls;
    let headers = fields(&http, "headers");
    let timeout = values::positive(&http, "timeout", TIMEOUT)?;
    if timeout > TIMEOUT_MAX {
        let bad = BadValue::new(format!("{timeout} is more than a log-in can wait"));
        http.bad("timeout", bad.hint(format!("at most {TIMEOUT_MAX}")));
    }
    let cache = values::positive(&http, "cache", CACHE)?;
    let endpoint = endpoint?;
    let (sni, proxy, dial) = Default::default();
    let path =
        Path { endpoint, trust, identity, min_version, sni, headers, proxy, via: None, dial };
    Some(HttpAuth { path, timeout, cache })
}

/// Parses the URL. A query is refused.
fn url(text: &str) -> Result<Endpoint, BadValue> {
    if text.contains('?') {
        let bad = BadValue::new("a query of a URL gets into logs");
        return Err(bad.hint("leave it out; what is secret is a field: headers: { X-Key: \"…\" }"));
    }
    let hint = "for example https://auth.example.com/tunnel, or http://127.0.0.1:8080/tunnel";
    http_url(text, hint, "who says whom to let in")
}

/// Parses the URL of a service that this program asks over HTTP: `https://` for any host, `http://`
/// only on loopback, because an attacker on the path could give the answer. `to` names the service.
pub(super) fn http_url(text: &str, hint: &str, to: &str) -> Result<Endpoint, BadValue> {
    let secret = "give it as a field: headers: { Authorization: \"…\" }";
    let endpoint = service_url(text, hint, secret)?;
    if !endpoint.scheme.tls && !endpoint.host.is_loopback() {
        return Err(BadValue::new(format!("no TLS on the way to {to}"))
            .hint("use https://, or http:// on loopback"));
    }
    Ok(endpoint)
}

/// Parses the URL of a service that this program asks over HTTP. `secret` is the hint for a URL
/// with a password. The endpoint has the scheme of a WebSocket, because that transport carries HTTP
/// as well.
pub(super) fn service_url(text: &str, hint: &str, secret: &str) -> Result<Endpoint, BadValue> {
    let scheme = text.split_once("://").and_then(|(scheme, rest)| match scheme {
        "https" => Some(("wss", rest)),
        "http" => Some(("ws", rest)),
        _ => None,
    });
    let (scheme, rest) =
        scheme.ok_or_else(|| BadValue::new("not a URL of http:// or https://").hint(hint))?;
    if rest.split('/').next().is_some_and(|place| place.contains('@')) {
        let bad = BadValue::new("a password in a URL gets into logs");
        return Err(bad.hint(secret));
    }
    let endpoint: Endpoint = format!("{scheme}://{rest}").parse()?;
    if endpoint.port == 0 {
        return Err(BadValue::new("port 0 cannot be dialled"));
    }
    Ok(endpoint)
}
