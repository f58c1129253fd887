//! The server's own responses instead of a target's.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, Uri, header::HeaderValue};
use proto::Redirect;

use crate::{Asked, Refusal, Unavailable};

/// The delay after which a request without a verdict may be repeated, in seconds: longer than the
/// interval between two verdicts.
const RETRY_AFTER: u32 = 5;

/// A response of the server itself.
pub(super) struct Denied {
    pub(super) refusal: Refusal,
    /// The realm of the missing password.
    pub(super) realm: Option<Box<str>>,
    /// The address to which the visitor is redirected.
    pub(super) location: Option<HeaderValue>,
    /// The `Strict-Transport-Security` value of the service.
    pub(super) hsts: Option<HeaderValue>,
    /// The bytes that replace a page.
    pub(super) bytes: Option<Bytes>,
    /// The delay before a retry, in seconds.
    pub(super) retry_after: Option<u32>,
    /// The page instead of the one of the status.
    pub(super) page: Option<Arc<str>>,
    /// Whether an HTTP/1 connection is closed with the response, whatever the status is.
    pub(super) is_last: bool,
    /// The complete response, which replaces all of the above.
    pub(super) own: Option<Box<Response<Bytes>>>,
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        let retry_after = (refusal.status == 429).then_some(RETRY_AFTER);
        let (realm, location, hsts, bytes, page, own) = Default::default();
        Self { refusal, realm, location, hsts, bytes, retry_after, page, is_last: false, own }
    }
}

impl From<Unavailable> for Denied {
    fn from(Unavailable { refusal, retry_after, page }: Unavailable) -> Self {
        Self { retry_after: Some(retry_after), page, is_last: true, ..refusal.into() }
    }
}

impl From<Response<Bytes>> for Denied {
    fn from(own: Response<Bytes>) -> Self {
        Self { own: Some(Box::new(own)), ..Refusal::new(200, "").into() }
    }
}

impl Denied {
    /// The redirect for a request.
    pub(super) fn redirect(to: &Redirect, asked: &Asked<'_>, uri: &Uri) -> Self {
        let location = to.location(asked.host, uri.path(), uri.query());
        if is_itself(&location, asked, uri) {
            return Refusal::new(508, "The redirect of this service leads to itself.").into();
        }
        let Ok(value) = HeaderValue::from_str(&location) else {
            return Refusal::new(500, "The redirect of this service has no address.").into();
        };
        let reason = format!("The address of this page is {location}.");
        let refusal = Refusal { status: 308, reason: reason.into() };
        Self { location: Some(value), ..refusal.into() }
    }
}

impl Denied {
    /// The redirect for the path of a service that its target sees as its root: the links of the
    /// target's page are relative to a directory. The address is relative, because a proxy in front
    /// may have removed a prefix of the path.
    pub(super) fn slash(uri: &Uri) -> Self {
        let name = uri.path().rsplit('/').next().unwrap_or_default();
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let Ok(location) = HeaderValue::try_from(format!("./{name}/{query}")) else {
            return Refusal::new(400, "The path is malformed.").into();
        };
        let refusal = Refusal::new(308, "The address of this page ends with a slash.");
        Self { location: Some(location), ..refusal.into() }
    }
}

/// Whether a redirect leads back to the request and would loop.
fn is_itself(location: &str, asked: &Asked<'_>, uri: &Uri) -> bool {
    let (scheme, port) = if asked.is_secure { ("https://", 443) } else { ("http://", 80) };
    let Some(rest) = location.strip_prefix(scheme) else { return false };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let same_port = |to: Option<u16>| to.unwrap_or(port) == asked.port.unwrap_or(port);
    let is_here = h1::Authority::parse(authority.as_bytes())
        .is_some_and(|to| to.host == asked.host && same_port(to.port));
    let own = uri.path_and_query().map_or("/", |own| own.as_str());
    is_here && (if path.is_empty() { "/" } else { path }) == own
}
