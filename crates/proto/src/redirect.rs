//! The address to which a service sends its visitors: a URL with placeholders.

use std::fmt::Write as _;

use crate::control::TEXT_MAX;
use crate::http_error::HttpOptionError;

/// The address of `redirect`. The placeholders `{host}`, `{uri}`, `{path}` and `{query}` stand for
/// parts of the request.
///
/// A request influences the authority only through `{host}`, which has the form of a host. So no
/// request can redirect its visitor to a third host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect(Box<str>);

/// A part of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Host,
    Uri,
    Path,
    Query,
}

const PLACEHOLDERS: [(&str, Piece<'_>); 4] = [
    ("{host}", Piece::Host),
    ("{uri}", Piece::Uri),
    ("{path}", Piece::Path),
    ("{query}", Piece::Query),
];

impl Redirect {
    /// Reads an address.
    ///
    /// # Errors
    /// The address is not an `http://` or `https://` URL, is longer than [`TEXT_MAX`] bytes, has a
    /// character that is invalid in a URL (RFC 3986 section 2), an unknown placeholder, or a
    /// placeholder other than `{host}` in the authority.
    pub fn new(text: &str) -> Result<Self, HttpOptionError> {
        const BAD: HttpOptionError = HttpOptionError::Redirect;
        let rest = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.filter(|_| text.len() <= TEXT_MAX).ok_or(BAD)?;
        let (mut authority, mut is_authority) = (String::new(), true);
        for piece in pieces(rest) {
            match piece {
                Piece::Text(part) if part.bytes().all(is_of_url) => {
                    let end = part.find(['/', '?', '#']);
                    if is_authority {
                        authority.push_str(&part[..end.unwrap_or(part.len())]);
                        is_authority = end.is_none();
                    }
                }
                Piece::Host if is_authority => authority.push('a'),
                // The URI and the path of a request begin with a slash, which ends the authority.
                Piece::Uri | Piece::Path => is_authority = false,
                Piece::Host | Piece::Query if !is_authority => {}
                Piece::Text(_) | Piece::Host | Piece::Query => return Err(BAD),
            }
        }
        if is_authority_form(&authority) { Ok(Self(text.into())) } else { Err(BAD) }
    }

    /// The address with its placeholders.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address for a request: an absolute URI of ASCII characters (RFC 9110 section 10.2.2).
    /// `host` is the host of the request in normal form, `path` its path, and `query` is without
    /// the question mark.
    #[must_use]
    pub fn location(&self, host: &str, path: &str, query: Option<&str>) -> String {
        // The path `*`, and the empty path of an absolute-form target.
        let path = if path.starts_with('/') { path } else { "/" };
        let mut location = String::with_capacity(self.0.len() + path.len());
        for piece in pieces(&self.0) {
            match piece {
                Piece::Text(text) => location.push_str(text),
                Piece::Host => location.push_str(host),
                Piece::Path => escape(path, &mut location),
                Piece::Query => escape(query.unwrap_or_default(), &mut location),
                Piece::Uri => {
                    escape(path, &mut location);
                    if let Some(query) = query {
                        location.push('?');
                        escape(query, &mut location);
                    }
                }
            }
        }
        if query.is_none() && self.0.ends_with("?{query}") {
            location.pop();
        }
        location
    }
}

/// Splits an address into its parts. An unknown placeholder is text with a brace, which is invalid
/// in a URL.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let known = PLACEHOLDERS.iter().find(|(name, _)| rest.starts_with(name));
        if let Some((name, piece)) = known {
            rest = &rest[name.len()..];
            return Some(*piece);
        }
        let length = rest.char_indices().skip(1).find(|(_, c)| *c == '{').map(|(at, _)| at);
        let (text, after) = rest.split_at(length.unwrap_or(rest.len()));
        rest = after;
        (!text.is_empty()).then_some(Piece::Text(text))
    })
}

/// Whether this is a host with an optional port.
fn is_authority_form(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (text, None),
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    is_host && port.is_none_or(is_port)
}

/// Whether a URI may contain the byte unescaped: reserved and unreserved characters, and the
/// percent sign of an escape (RFC 3986 section 2). `[` and `]` are left as browsers send them.
const fn is_of_url(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~')
}

fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if is_of_url(byte) && byte != b'#' {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(address: &str, path: &str, query: Option<&str>) -> String {
        Redirect::new(address).unwrap().location("a.example", path, query)
    }

    #[test]
    fn placeholders_stand_for_parts_of_the_request() {
        for (address, wanted) in [
            ("https://www.example.com{uri}", "https://www.example.com/p/q?x=1&y"),
            ("https://{host}{uri}", "https://a.example/p/q?x=1&y"),
            ("https://www.{host}:8443{path}", "https://www.a.example:8443/p/q"),
            ("http://b.example/new{path}?old={query}", "http://b.example/new/p/q?old=x=1&y"),
            ("http://b.example?host={host}", "http://b.example?host=a.example"),
            ("http://[::1]:80/x#top", "http://[::1]:80/x#top"),
            ("https://b.example", "https://b.example"),
        ] {
            assert_eq!(location(address, "/p/q", Some("x=1&y")), wanted, "{address}");
        }
        assert_eq!(location("https://b.example{uri}", "/p", None), "https://b.example/p");
        assert_eq!(location("https://b.example{uri}", "/p", Some("")), "https://b.example/p?");
        assert_eq!(location("https://b.example{path}?{query}", "/p", None), "https://b.example/p");
        assert_eq!(location("https://b.example{uri}", "*", None), "https://b.example/");
    }

    #[test]
    fn no_request_breaks_the_field_or_changes_the_host() {
        for (path, wanted) in [
            ("//evil.example/", "https://b.example//evil.example/"),
            ("/\\evil", "https://b.example/%5Cevil"),
            ("/a\r\nX: y", "https://b.example/a%0D%0AX:%20y"),
            ("/ü<\">`{host}#", "https://b.example/%C3%BC%3C%22%3E%60%7Bhost%7D%23"),
            ("/@evil.example", "https://b.example/@evil.example"),
            ("/%0d%0a", "https://b.example/%0d%0a"),
        ] {
            assert_eq!(location("https://b.example{uri}", path, None), wanted, "{path}");
        }
    }

    #[test]
    fn an_address_that_leads_to_no_certain_host_is_refused() {
        for bad in [
            "",
            "/path",
            "ftp://b.example",
            "HTTPS://b.example",
            "https://",
            "https:///{uri}",
            "https://{uri}",
            "https://{path}",
            "https://{query}",
            "https://b.example{query}",
            "https://b.example.{query}/",
            "https://user@b.example/",
            "https://b.example:port/",
            "https://b.example:99999/",
            "https://[::x]/",
            "https://b.example/a b",
            "https://b.example/\r\nX: y",
            "https://b.example/{unknown}",
            "https://b.example/{uri",
            "https://b.example/}",
            "https://b.example/ü",
            "https://b.example\\@evil.example",
            &format!("https://b.example/{}", "x".repeat(TEXT_MAX)),
        ] {
            assert_eq!(Redirect::new(bad), Err(HttpOptionError::Redirect), "{bad:?}");
        }
    }
}
