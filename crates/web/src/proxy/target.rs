//! The host that a request is for, and the form of its address for a target.

use std::borrow::Cow;

use hyper::{
    Request, Uri, Version,
    body::Incoming,
    header::{self, HeaderValue},
    http::uri::{Authority, PathAndQuery},
};

use crate::{Refusal, normal_host};

/// Where a request goes.
pub(super) struct Target<'r> {
    /// The host in normal form.
    pub(super) host: Cow<'r, str>,
    /// The host as the visitor wrote it.
    pub(super) field: HeaderValue,
    /// The address in origin-form (RFC 9112 section 3.2.1).
    pub(super) uri: Uri,
}

impl<'r> Target<'r> {
    /// An authority in the address of the request names the host, and `Host` may not contradict it
    /// (RFC 9112 section 3.2.2, RFC 9113 section 8.3.1).
    pub(super) fn of(request: &'r Request<Incoming>, h2: bool) -> Result<Self, Refusal> {
        const NONE: Refusal = Refusal::new(400, "The request names no host.");
        const NO_HOST: Refusal = Refusal::new(400, "The host of the request is malformed.");
        let uri = request.uri();
        let mut fields = request.headers().get_all(header::HOST).into_iter();
        let field = fields.next();
        if fields.next().is_some() {
            return Err(Refusal::new(400, "The request has the field Host twice."));
        }
        if field.is_none() && !h2 && request.version() == Version::HTTP_11 {
            return Err(NONE);
        }
        let named = field.map(|field| field.to_str()).transpose().map_err(|_| NO_HOST)?;
        let Some(authority) = uri.authority() else {
            let field = field.ok_or(NONE)?;
            let host = named.and_then(normal_host).ok_or(NO_HOST)?;
            return Ok(Self { host, field: field.clone(), uri: uri.clone() });
        };
        // HTTP/1 has authorities without a scheme for CONNECT alone.
        if !(matches!(uri.scheme_str(), Some("http" | "https")) || h2 && uri.scheme().is_none()) {
            return Err(Refusal::new(400, "The address of the request is no address of HTTP."));
        }
        let host = normal_host(authority.as_str()).ok_or(NO_HOST)?;
        if let Some(named) = named {
            let same = normal_host(named).ok_or(NO_HOST)? == host
                && port(named, uri) == port(authority.as_str(), uri);
            if !same {
                return Err(Refusal::new(
                    400,
                    "The field Host and the address of the request name different hosts.",
                ));
            }
        }
        Ok(Self { host, field: value(authority)?, uri: origin(uri) })
    }
}

fn value(authority: &Authority) -> Result<HeaderValue, Refusal> {
    HeaderValue::from_str(authority.as_str())
        .map_err(|_| Refusal::new(400, "The host of the request is malformed."))
}

/// The port of a host whose form was checked.
fn port(host: &str, uri: &Uri) -> u16 {
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let text = host.rsplit_once(':').map_or("", |(_, port)| port);
    text.parse().unwrap_or(default)
}

fn origin(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    path.map_or_else(|| Uri::from(PathAndQuery::from_static("/")), Uri::from)
}
