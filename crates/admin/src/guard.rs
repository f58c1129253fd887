//! Decides which requests are permitted. Any web page that a user of this machine opens can direct
//! the browser to this API. So the host must be an address or `localhost`, because a foreign name
//! can be made to resolve to this machine (DNS rebinding). A request from another site is refused
//! whatever credentials it carries.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use proto::greeting::{StoredCredential, Token};

use super::routes::problem;

/// Paths without a token: every program on this machine may check whether the daemon is alive.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The guard, with the stored form of the token.
#[derive(Clone, Debug)]
pub(super) struct Guard(StoredCredential);

impl Guard {
    pub(super) fn new(token: &config::Token) -> anyhow::Result<Self> {
        Ok(Self(StoredCredential::of(token.secret.reveal())?))
    }

    /// The refusal of a request, or `None` if the request is permitted.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let (uri, headers) = (request.uri(), request.headers());
        let Some(host) = host(uri, headers) else {
            return Some(problem(StatusCode::BAD_REQUEST, "no Host field"));
        };
        if !is_ours(host) {
            let text = "this name is not known here: ask by address or as localhost";
            return Some(problem(StatusCode::FORBIDDEN, text));
        }
        let origin = headers.get(ORIGIN);
        if origin.is_some_and(|origin| origin.as_bytes() != format!("http://{host}").as_bytes()) {
            return Some(problem(StatusCode::FORBIDDEN, "a request of another site"));
        }
        // Browsers send this field also with requests without an origin: images, scripts, links.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Some(problem(StatusCode::FORBIDDEN, "a request of another site"));
        }
        if OPEN.contains(&uri.path()) || self.is_known(headers) {
            return None;
        }
        let text = "the token of `admin.token` is wanted: Authorization: Bearer TOKEN";
        Some(problem(StatusCode::UNAUTHORIZED, text))
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|field| field.to_str().ok());
        let Some((scheme, token)) = given.and_then(|field| field.split_once(' ')) else {
            return false;
        };
        let token = Token::new(token.trim());
        // The comparison takes constant time; see `StoredCredential`.
        scheme.eq_ignore_ascii_case("bearer") && token.is_ok_and(|token| token.stored() == self.0)
    }
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let field = || headers.get(HOST).and_then(|field| field.to_str().ok());
    uri.authority().map(axum::http::uri::Authority::as_str).or_else(field)
}

/// Whether the host is an address or `localhost`, with or without a port.
fn is_ours(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// The middleware: passes a permitted request on, and adds security fields to every response.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.refusal(&request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let fields: [(HeaderName, &str); 2] =
        [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for good in
            ["127.0.0.1", "127.0.0.1:7070", "[::1]:7070", "[::1]", "localhost", "LOCALHOST:1"]
        {
            assert!(is_ours(good), "{good}");
        }
        for bad in ["", "example.com", "example.com:7070", "localhost.example.com", "[x]", "1.2.3"]
        {
            assert!(!is_ours(bad), "{bad}");
        }
    }
}
