//! The host of a request, and its request target in the form for the target.

use std::borrow::Cow;

use hyper::{
    Request, Uri, Version,
    header::{self, HeaderValue},
    http::uri::{Authority, PathAndQuery},
};

use crate::{Refusal, body::VisitorBody};

/// The host of an HTTP/1.0 request without one. No host has this name, so only a service for all
/// hosts matches.
const HOSTLESS: &str = "-";

/// The host and address of a request.
pub(super) struct Target<'r> {
    /// The host in normal form.
    pub(super) host: Cow<'r, str>,
    /// The host as the visitor wrote it.
    pub(super) field: HeaderValue,
    /// The address in origin-form (RFC 9112 section 3.2.1).
    pub(super) uri: Uri,
}

impl<'r> Target<'r> {
    /// An authority in the request target names the host, and `Host` must not contradict it (RFC
    /// 9112 section 3.2.2, RFC 9113 section 8.3.1).
    pub(super) fn of(request: &'r Request<VisitorBody>, h2: bool) -> Result<Self, Refusal> {
        const NONE: Refusal = Refusal::new(400, "The request names no host.");
        let uri = request.uri();
        let mut fields = request.headers().get_all(header::HOST).into_iter();
        let field = fields.next();
        if fields.next().is_some() {
            return Err(h1::Fault::Hosts.into());
        }
        // HTTP/1 has authorities without a scheme only for CONNECT.
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if uri.authority().is_some() && !is_http && !(h2 && uri.scheme().is_none()) {
            return Err(h1::Fault::Target.into());
        }
        let implied = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let target = uri.authority().map(|named| (named.as_str().as_bytes(), Some(implied)));
        // HTTP/1.0 has no `Host` (RFC 1945), and HTTP/1.1 has an empty `Host` if the host is
        // unknown (RFC 9112 section 3.2).
        let is_old = request.version() == Version::HTTP_10;
        if target.is_none() && field.map_or(is_old, HeaderValue::is_empty) {
            let (host, field) = (Cow::Borrowed(HOSTLESS), HeaderValue::from_static(""));
            return Ok(Self { host, field, uri: uri.clone() });
        }
        let host = h1::named(target, field.map(HeaderValue::as_bytes))?.ok_or(NONE)?;
        let Some(authority) = uri.authority() else {
            return Ok(Self { host, field: field.ok_or(NONE)?.clone(), uri: uri.clone() });
        };
        Ok(Self { host, field: value(authority)?, uri: origin(uri) })
    }
}

fn value(authority: &Authority) -> Result<HeaderValue, Refusal> {
    HeaderValue::from_str(authority.as_str())
        .map_err(|_| Refusal::new(400, "The host of the request is malformed."))
}

fn origin(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    path.map_or_else(|| Uri::from(PathAndQuery::from_static("/")), Uri::from)
}
