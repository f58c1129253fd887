//! The host that a request names, read strictly. Two programs that interpret an ambiguous host
//! differently could each take the request for another site's, so such a request is refused.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Uri};
use config::WebOrigin;

/// The port of `http://`.
const HTTP: u16 = 80;

/// The port of `https://`.
const HTTPS: u16 = 443;

/// A host in the form `name`, `name:port`, `v4`, `v4:port`, `[v6]` or `[v6]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host<'a> {
    /// The host in its normal form.
    name: Cow<'a, str>,
    port: u16,
}

/// The origin of the page that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// The browser does not reveal it (`null`).
    Hidden,
    Site {
        scheme: &'a str,
        host: Host<'a>,
    },
}

impl<'a> Host<'a> {
    /// The host of a request. A request target in absolute form must agree with the field (RFC 9112
    /// section 3.2).
    ///
    /// # Errors
    /// The request has no valid host.
    pub(super) fn of(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Self, &'static str> {
        let field = only(headers, &HOST).map_err(|Several| "more than one Host field")?;
        let host = Self::read(field.ok_or("no Host field")?);
        let host =
            host.ok_or("the Host field cannot be read: name, name:port, address or [IPv6]")?;
        let Some(target) = uri.authority() else { return Ok(host) };
        let target = Self::read(target.as_str()).ok_or("the request target cannot be read")?;
        if host == target { Ok(host) } else { Err("request target and Host field differ") }
    }

    fn read(text: &'a str) -> Option<Self> {
        Self::read_at(text, HTTP)
    }

    /// Reads a host; `port` is used if the port is missing.
    fn read_at(text: &'a str, port: u16) -> Option<Self> {
        let named = h1::Authority::parse(text.as_bytes())?;
        (!text.ends_with(':')).then(|| Self { name: named.host, port: named.port.unwrap_or(port) })
    }

    /// Whether the host is an address, `localhost` or one of `hosts`, in their normal form.
    pub(super) fn is_ours(&self, hosts: &[String]) -> bool {
        self.name.starts_with('[')
            || self.name == "localhost"
            || self.name.parse::<Ipv4Addr>().is_ok()
            || hosts.iter().any(|host| *host == self.name)
    }
}

impl<'a> Origin<'a> {
    /// The origin of a request, if the request has the field.
    ///
    /// # Errors
    /// The request has no valid origin.
    pub(super) fn of(headers: &'a HeaderMap) -> Result<Option<Self>, &'static str> {
        let field = only(headers, &ORIGIN).map_err(|Several| "more than one Origin field")?;
        let read = field.map(|text| Self::read(text).ok_or("the Origin field cannot be read"));
        read.transpose()
    }

    fn read(text: &'a str) -> Option<Self> {
        if text == "null" {
            return Some(Self::Hidden);
        }
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
        let is_good = !scheme.is_empty() && scheme.bytes().all(is_scheme);
        let host = Host::read_at(rest, if scheme == "https" { HTTPS } else { HTTP })?;
        is_good.then_some(Self::Site { scheme, host })
    }

    /// Whether the page was loaded from this host over HTTP.
    pub(super) fn is(&self, own: &Host<'_>) -> bool {
        matches!(self, Self::Site { scheme, host } if *scheme == "http" && host == own)
    }

    /// Whether the page was loaded from the configured origin.
    pub(super) fn is_configured(&self, origin: &WebOrigin) -> bool {
        let Self::Site { scheme, host } = self else { return false };
        let is_scheme = *scheme == if origin.tls { "https" } else { "http" };
        is_scheme && host.port == origin.port && *host.name == origin.host.to_string()
    }
}

/// A request has a field more than once.
struct Several;

/// The text of a field; a field that is not text counts as empty.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Several> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (field, None) => Ok(field.map(|field| field.to_str().unwrap_or_default())),
        (_, Some(_)) => Err(Several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for good in
            ["127.0.0.1", "127.0.0.1:7070", "[::1]:7070", "[::1]", "localhost", "LOCALHOST:1"]
        {
            assert!(Host::read(good).is_some_and(|host| host.is_ours(&[])), "{good}");
        }
        for other in ["example.com", "example.com:7070", "localhost.example.com", "1.2.3", "a_b"] {
            assert!(Host::read(other).is_some_and(|host| !host.is_ours(&[])), "{other}");
        }
    }

    #[test]
    fn a_host_that_two_readers_may_read_differently_is_none() {
        for bad in [
            "",
            ":80",
            "localhost:",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "localhost ",
            " localhost",
            "local host",
            "me@localhost",
            "localhost/",
            "localhost#",
            "localhost,localhost",
            "localhost%00",
            "l\u{f6}calhost",
            "::1",
            "[]",
            "[::1",
            "::1]",
            "[::1]80",
            "[::1]:",
            "[::1%1]",
            "[127.0.0.1]",
            "[x]",
            "[\u{f6}]",
        ] {
            assert!(Host::read(bad).is_none(), "{bad:?}");
        }
    }
}
