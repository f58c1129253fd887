//! The two addresses of a site in message fields: the address that its visitors use, and the
//! address that its target takes for its own.
//!
//! They differ with `host_rewrite`, if TLS of the visitor ends at this server, and if a target adds
//! its own port to the host of the request, as nginx does with `absolute_redirect`. A request then
//! names the visitor's address (`Destination` and `If` of WebDAV, `Referer`), which the target
//! compares with its own; a response names the target's address (`Location`, `Refresh`, `Link`, the
//! domain of a cookie), which visitors cannot use. Both are rewritten here, like `proxy_redirect`
//! of nginx and `ProxyPassReverse` of Apache. Bodies are not inspected.

use std::borrow::Cow;

use h1::Authority;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use proto::TargetProtocol;

use crate::rules::Rules;
use crate::{Refusal, path};

const DESTINATION: HeaderName = HeaderName::from_static("destination");
const IF: HeaderName = HeaderName::from_static("if");
const ALT_SVC: HeaderName = HeaderName::from_static("alt-svc");

const OUTSIDE: Refusal =
    Refusal::new(502, "The destination of the request is outside of the path of the service.");

/// The scheme of an HTTP URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const fn of(is_secure: bool) -> Self {
        if is_secure { Self::Https } else { Self::Http }
    }

    /// The prefix of a URL of the scheme.
    const fn start(self) -> &'static [u8] {
        match self {
            Self::Http => b"http://",
            Self::Https => b"https://",
        }
    }

    /// The default port of the scheme.
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A URL with an authority, in parts.
struct Url<'u> {
    scheme: Scheme,
    authority: Authority<'u>,
    /// Path, query and fragment.
    rest: &'u [u8],
}

impl<'u> Url<'u> {
    /// `None`: the text is not an absolute HTTP URL, or its authority is malformed.
    fn parse(text: &'u [u8]) -> Option<Self> {
        let (scheme, behind) = [Scheme::Https, Scheme::Http].into_iter().find_map(|scheme| {
            let (start, behind) = text.split_at_checked(scheme.start().len())?;
            start.eq_ignore_ascii_case(scheme.start()).then_some((scheme, behind))
        })?;
        let end = behind.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let (authority, rest) = behind.split_at(end.unwrap_or(behind.len()));
        Some(Self { scheme, authority: Authority::parse(authority)?, rest })
    }

    fn port(&self) -> u16 {
        self.authority.port.unwrap_or_else(|| self.scheme.port())
    }
}

/// Both addresses of a site, for the messages of one request.
pub(crate) struct Addresses<'a> {
    /// The host as the visitor wrote it.
    visitor: &'a HeaderValue,
    /// The scheme that the visitor used.
    came: Scheme,
    rules: &'a Rules,
}

impl<'a> Addresses<'a> {
    pub(crate) const fn new(rules: &'a Rules, visitor: &'a HeaderValue, is_secure: bool) -> Self {
        Self { visitor, came: Scheme::of(is_secure), rules }
    }

    /// The scheme of requests to the target.
    fn asked(&self) -> Scheme {
        Scheme::of(self.rules.target == TargetProtocol::Https)
    }

    /// The host that the target sees.
    fn host_sent(&self) -> &HeaderValue {
        self.rules.host().unwrap_or(self.visitor)
    }

    /// Rewrites the addresses in the fields of a request.
    ///
    /// # Errors
    /// `Destination` is outside the path of the service.
    pub(crate) fn request(&self, fields: &mut HeaderMap) -> Result<(), Refusal> {
        if let Some(value) = fields.get(DESTINATION).filter(|_| self.rules.path().is_some())
            && !self.is_inside(value.as_bytes())
        {
            return Err(OUTSIDE);
        }
        let is_moved = self.rules.host().is_some() || self.came != self.asked();
        if is_moved || self.rules.stripped.is_some() {
            self.replace_one(fields, &DESTINATION, |text| self.path_of(text));
            self.replace_one(fields, &IF, |text| self.tagged(text));
        }
        if let Some(to) = self.rules.host() {
            self.replace_one(fields, &header::REFERER, |text| {
                let url = self.own(text)?;
                // As with `Origin`: a target that is told the scheme of the visitor takes it for
                // its own.
                let scheme = if self.rules.forwarded { url.scheme } else { self.asked() };
                Some([scheme.start(), to.as_bytes(), url.rest].concat())
            });
        }
        Ok(())
    }

    /// Whether an address in a request is below the path of the service, or at another host. A
    /// request must not move a file to a path that is not routed to this service.
    fn is_inside(&self, text: &[u8]) -> bool {
        let Some(prefix) = self.rules.path() else { return true };
        let Some(path) = self.own_path(text) else { return true };
        let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
        std::str::from_utf8(path.get(..end).unwrap_or_default()).is_ok_and(|path| {
            !path::is_ambiguous(path) && path::is_below(prefix, &path::normal_path(path))
        })
    }

    /// Rewrites the addresses in the fields of a response.
    pub(crate) fn response(&self, fields: &mut HeaderMap) {
        // The field names ports of the target, at which visitors cannot reach the site (RFC 7838).
        fields.remove(ALT_SVC);
        for name in [&header::LOCATION, &header::CONTENT_LOCATION] {
            self.replace_one(fields, name, |text| self.back(text));
        }
        self.replace_one(fields, &header::REFRESH, |text| {
            let at = refresh_url(text)?;
            let (before, url) = text.split_at(at);
            Some([before, &*self.back(url)?].concat())
        });
        if fields.contains_key(header::LINK) {
            self.replace_all(fields, &header::LINK, |text| self.links(text));
        }
        if self.rules.host().is_some() {
            self.replace_one(fields, &header::ACCESS_CONTROL_ALLOW_ORIGIN, |text| self.back(text));
            if fields.contains_key(header::SET_COOKIE) {
                self.replace_all(fields, &header::SET_COOKIE, |text| self.cookie(text));
            }
        }
    }

    /// Replaces the value of a field that occurs exactly once.
    fn replace_one(
        &self,
        fields: &mut HeaderMap,
        name: &HeaderName,
        change: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) {
        let mut values = fields.get_all(name).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else { return };
        let changed = change(value.as_bytes());
        if let Some(value) = changed.and_then(|value| HeaderValue::from_bytes(&value).ok()) {
            fields.insert(name, value);
        }
    }

    /// Replaces the values of a field that may occur several times.
    fn replace_all(
        &self,
        fields: &mut HeaderMap,
        name: &HeaderName,
        change: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) {
        let header::Entry::Occupied(mut entry) = fields.entry(name) else { return };
        for value in entry.iter_mut() {
            let changed = change(value.as_bytes());
            if let Some(changed) = changed.and_then(|value| HeaderValue::from_bytes(&value).ok()) {
                *value = changed;
            }
        }
    }

    /// A URL of the site as its visitors write it.
    fn own<'u>(&self, text: &'u [u8]) -> Option<Url<'u>> {
        let url = Url::parse(text)?;
        // For a visitor without TLS here, a proxy in front may have terminated TLS.
        let is_scheme = url.scheme == self.came || self.came == Scheme::Http;
        let host = Authority::parse(self.visitor.as_bytes())?;
        let is_own = is_scheme
            && host.host == url.authority.host
            && host.port.unwrap_or_else(|| url.scheme.port()) == url.port();
        is_own.then_some(url)
    }

    /// The path of a URL of the site, or the text itself if it is a path.
    fn own_path<'u>(&self, text: &'u [u8]) -> Option<Cow<'u, [u8]>> {
        match self.own(text) {
            Some(url) if url.rest.first() == Some(&b'/') => Some(Cow::Borrowed(url.rest)),
            Some(url) => Some(Cow::Owned([b"/", url.rest].concat())),
            None if text.first() == Some(&b'/') && text.get(1) != Some(&b'/') => {
                Some(Cow::Borrowed(text))
            }
            None => None,
        }
    }

    /// The path at the target of a URL of the site. A path is a valid address for any target,
    /// whatever scheme and host the target takes for its own (RFC 4918 section 8.3, `Simple-ref`).
    fn path_of(&self, text: &[u8]) -> Option<Vec<u8>> {
        Some(self.stripped(&self.own_path(text)?).into_owned())
    }

    /// A path as seen by the target, without the prefix that is removed from all paths.
    fn stripped<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let Some((prefix, to)) = self.rules.path().zip(self.rules.stripped.as_deref()) else {
            return Cow::Borrowed(path);
        };
        let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
        let (raw, behind) = path.split_at(end);
        let Ok(raw) = std::str::from_utf8(raw) else { return Cow::Borrowed(path) };
        let normal = path::normal_path(raw);
        if !path::is_below(prefix, &normal) {
            return Cow::Borrowed(path);
        }
        let mut changed = path::replaced(prefix, to, raw, &normal).into_bytes();
        changed.extend_from_slice(behind);
        Cow::Owned(changed)
    }

    /// The lists of `If` with the paths of their resources (RFC 4918 section 10.4.2). Text in
    /// parentheses is a condition, not an address.
    fn tagged(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (mut changed, mut depth, mut at) = (Vec::with_capacity(text.len()), 0_u32, 0);
        while let Some(&byte) = text.get(at) {
            let end = (byte == b'<' && depth == 0)
                .then(|| text.get(at..)?.iter().position(|byte| *byte == b'>'))
                .flatten();
            if let Some(url) = end.and_then(|end| text.get(at + 1..at + end)) {
                changed.push(b'<');
                changed.extend_from_slice(&self.path_of(url).unwrap_or_else(|| url.to_vec()));
                changed.push(b'>');
                at += url.len() + 2;
                continue;
            }
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            changed.push(byte);
            at += 1;
        }
        Some(changed)
    }

    /// A URL in a response, with the target's address replaced by the visitor's.
    fn back(&self, text: &[u8]) -> Option<Vec<u8>> {
        if let Some(behind) = text.strip_prefix(b"//") {
            // A URL without a scheme has the scheme of the visitor.
            let whole = [self.asked().start(), behind].concat();
            let url = Url::parse(&whole).filter(|url| self.is_target(url))?;
            return Some([b"//", self.visitor.as_bytes(), url.rest].concat());
        }
        let url = Url::parse(text).filter(|url| self.is_target(url))?;
        Some([self.came.start(), self.visitor.as_bytes(), url.rest].concat())
    }

    /// Whether the URL is at the address that the target takes for its own. A URL with the port of
    /// another service at the same host is not changed.
    fn is_target(&self, url: &Url<'_>) -> bool {
        if url.scheme != self.asked() && url.scheme != self.came {
            return false;
        }
        let rewritten = self.rules.host().is_some();
        let is_told = |sent: &HeaderValue, any: bool| {
            Authority::parse(sent.as_bytes()).is_some_and(|sent| {
                sent.host == url.authority.host
                    && (sent.port.unwrap_or_else(|| url.scheme.port()) == url.port()
                        || self.rules.ports.contains(&url.port())
                        || any && url.authority.port.is_none())
            })
        };
        is_told(self.host_sent(), rewritten)
            || rewritten && self.rules.forwarded && is_told(self.visitor, false)
    }

    /// The targets of `Link` (RFC 8288 section 3).
    fn links(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (mut changed, mut rest, mut is_changed) = (Vec::with_capacity(text.len()), text, false);
        while let Some(begin) = rest.iter().position(|byte| *byte == b'<') {
            let (before, behind) = rest.split_at(begin + 1);
            changed.extend_from_slice(before);
            rest = behind;
            let Some(end) = behind.iter().position(|byte| *byte == b'>') else { break };
            let (url, behind) = behind.split_at(end);
            let back = self.back(url);
            is_changed |= back.is_some();
            changed.extend_from_slice(&back.unwrap_or_else(|| url.to_vec()));
            rest = behind;
        }
        changed.extend_from_slice(rest);
        is_changed.then_some(changed)
    }

    /// Removes a domain from a cookie to which the visitor's host does not belong: a browser would
    /// reject the cookie (RFC 6265 section 5.3). Without a domain the cookie belongs to the
    /// visitor's host.
    fn cookie(&self, text: &[u8]) -> Option<Vec<u8>> {
        let [sent, visitor] = [self.host_sent(), self.visitor]
            .map(|host| Authority::parse(host.as_bytes()).map(|named| named.host));
        let (sent, visitor) = (sent?, visitor?);
        let is_foreign = |attribute: &&[u8]| {
            let (name, value) = attribute
                .iter()
                .position(|byte| *byte == b'=')
                .and_then(|at| Some((attribute.get(..at)?, attribute.get(at + 1..)?)))
                .unwrap_or_default();
            let value = value.trim_ascii();
            let value = value.strip_prefix(b".").unwrap_or(value);
            name.trim_ascii().eq_ignore_ascii_case(b"domain")
                && belongs(&sent, value)
                && !belongs(&visitor, value)
        };
        let mut attributes = text.split(|byte| *byte == b';');
        let first = attributes.next()?;
        let attributes: Vec<_> = attributes.collect();
        if !attributes.iter().any(&is_foreign) {
            return None;
        }
        let mut changed = first.to_vec();
        for attribute in attributes.iter().filter(|one| !is_foreign(one)) {
            changed.push(b';');
            changed.extend_from_slice(attribute);
        }
        Some(changed)
    }
}

/// Whether a host is the domain of a cookie or a subdomain of it (RFC 6265 section 5.1.3).
fn belongs(host: &str, domain: &[u8]) -> bool {
    let Some(at) = host.len().checked_sub(domain.len()) else { return false };
    let (before, end) = host.as_bytes().split_at(at);
    !domain.is_empty()
        && end.eq_ignore_ascii_case(domain)
        && (before.is_empty() || before.ends_with(b".") && !is_address(host))
}

fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok()
}

/// The position of the URL in `Refresh: 5; url=http://…`, whose syntax is that of `http-equiv` in
/// HTML (the HTML standard, "shared declarative refresh steps").
fn refresh_url(text: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"url";
    let behind = text.iter().position(|byte| matches!(byte, b';' | b','))? + 1;
    let blanks = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
    };
    let at = blanks(behind);
    let key = text.get(at..at + KEY.len()).filter(|key| key.eq_ignore_ascii_case(KEY));
    if key.is_none() {
        return Some(at);
    }
    let equals = blanks(at + KEY.len());
    if text.get(equals) != Some(&b'=') {
        return Some(at);
    }
    let at = blanks(equals + 1);
    Some(at + usize::from(matches!(text.get(at), Some(b'"' | b'\''))))
}

#[cfg(test)]
mod tests {
    use proto::HttpOptions;

    use super::*;

    /// A service whose target listens on port 3000.
    fn rules(host: Option<&str>, forwarded: bool) -> HttpOptions {
        let host_rewrite = host.map(str::to_owned);
        HttpOptions { host_rewrite, forwarded, ports: vec![3000], ..HttpOptions::default() }
    }

    /// The value of a field after the rewrite of a request (`true`) or a response.
    fn passed(
        options: &HttpOptions,
        (visitor, is_secure): (&'static str, bool),
        is_request: bool,
        (name, value): (&'static str, &str),
    ) -> Option<String> {
        let rules = Rules::new(options).unwrap();
        let host = HeaderValue::from_static(visitor);
        let addresses = Addresses::new(&rules, &host, is_secure);
        let mut fields = HeaderMap::new();
        fields.insert(name, HeaderValue::from_str(value).unwrap());
        if is_request {
            addresses.request(&mut fields).unwrap();
        } else {
            addresses.response(&mut fields);
        }
        fields.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    const TLS: (&str, bool) = ("a.example:8443", true);
    const PLAIN: (&str, bool) = ("a.example", false);

    #[test]
    fn addresses_of_the_target_become_those_of_the_visitor() {
        let (plain, moved) = (rules(None, true), rules(Some("localhost:3000"), false));
        for (options, visitor, value, wanted) in [
            (&plain, TLS, "http://a.example:8443/b?c#d", "https://a.example:8443/b?c#d"),
            // nginx adds its own port.
            (&plain, TLS, "http://a.example:3000/b", "https://a.example:8443/b"),
            (&plain, TLS, "http://A.Example.:3000/b", "https://a.example:8443/b"),
            (&plain, PLAIN, "http://a.example:3000/b", "http://a.example/b"),
            // Another service of the same host, and another host.
            (&plain, TLS, "http://a.example:9000/b", "http://a.example:9000/b"),
            (&plain, TLS, "http://b.example:3000/b", "http://b.example:3000/b"),
            (&plain, TLS, "http://a.example.evil:3000/", "http://a.example.evil:3000/"),
            (&plain, PLAIN, "https://a.example/b", "https://a.example/b"),
            (&plain, TLS, "/b", "/b"),
            (&plain, TLS, "http://[/b", "http://[/b"),
            (&moved, TLS, "http://localhost:3000/b", "https://a.example:8443/b"),
            (&moved, TLS, "http://localhost/b", "https://a.example:8443/b"),
            (&moved, TLS, "https://localhost:3000", "https://a.example:8443"),
            (&moved, TLS, "//localhost:3000/b", "//a.example:8443/b"),
            (&moved, TLS, "http://localhost:9000/b", "http://localhost:9000/b"),
            (&moved, PLAIN, "http://localhost:3000/b", "http://a.example/b"),
        ] {
            for name in ["location", "content-location"] {
                let passed = passed(options, visitor, false, (name, value));
                assert_eq!(passed.as_deref(), Some(wanted), "{name} {value}");
            }
        }
    }

    #[test]
    fn a_target_that_is_told_the_host_of_the_visitor_may_name_it() {
        let rewriting = rules(Some("localhost:3000"), true);
        let of = |value| passed(&rewriting, TLS, false, ("location", value)).unwrap();
        assert_eq!(of("http://a.example:8443/b"), "https://a.example:8443/b");
        assert_eq!(of("https://a.example:8443/b"), "https://a.example:8443/b");
        assert_eq!(of("http://a.example/b"), "http://a.example/b");
    }

    #[test]
    fn addresses_inside_of_other_fields_are_found() {
        let moved = rules(Some("localhost:3000"), false);
        for (name, value, wanted) in [
            ("refresh", "5; url=http://localhost:3000/b", "5; url=https://a.example:8443/b"),
            (
                "refresh",
                "5;URL = \"http://localhost:3000/\"",
                "5;URL = \"https://a.example:8443/\"",
            ),
            ("refresh", "0, http://localhost:3000/", "0, https://a.example:8443/"),
            ("refresh", "5", "5"),
            (
                "link",
                "<http://localhost:3000/s>; rel=preload, </t>; rel=next, <http://b/>",
                "<https://a.example:8443/s>; rel=preload, </t>; rel=next, <http://b/>",
            ),
            ("link", "<http://localhost:3000/s", "<http://localhost:3000/s"),
            ("access-control-allow-origin", "http://localhost:3000", "https://a.example:8443"),
            ("access-control-allow-origin", "*", "*"),
        ] {
            assert_eq!(
                passed(&moved, TLS, false, (name, value)).as_deref(),
                Some(wanted),
                "{value}"
            );
        }
        assert_eq!(passed(&moved, TLS, false, ("alt-svc", "h3=\":3000\"")), None);
    }

    #[test]
    fn a_cookie_for_the_host_of_the_target_is_one_for_the_host_of_the_visitor() {
        let moved = rules(Some("app.internal.example:3000"), false);
        for (value, wanted) in [
            ("s=1; Domain=app.internal.example; Path=/", "s=1; Path=/"),
            ("s=1; Path=/; domain=.Internal.Example", "s=1; Path=/"),
            // The visitor's host belongs to this domain, too.
            ("s=1; Domain=example", "s=1; Domain=example"),
            ("s=1; Domain=other.example", "s=1; Domain=other.example"),
            ("s=1; Domain", "s=1; Domain"),
            ("s=domain=app.internal.example", "s=domain=app.internal.example"),
        ] {
            let passed = passed(&moved, TLS, false, ("set-cookie", value));
            assert_eq!(passed.as_deref(), Some(wanted));
        }
        let local = rules(Some("127.0.0.1:3000"), false);
        let of = |value| passed(&local, TLS, false, ("set-cookie", value)).unwrap();
        assert_eq!(of("s=1; Domain=127.0.0.1"), "s=1");
        assert_eq!(of("s=1; Domain=0.0.1"), "s=1; Domain=0.0.1");
    }

    #[test]
    fn webdav_has_paths_in_the_place_of_the_visitors_address() {
        let plain = rules(None, true);
        let stripped = HttpOptions {
            path: Some("/dav".into()),
            strip_prefix: Some("/".into()),
            ..rules(None, true)
        };
        for (options, visitor, name, value, wanted) in [
            (&plain, TLS, "destination", "https://a.example:8443/b%20c", "/b%20c"),
            (&plain, TLS, "destination", "https://a.example:8443", "/"),
            (&plain, TLS, "destination", "/b", "/b"),
            (&plain, TLS, "destination", "http://a.example:8443/b", "http://a.example:8443/b"),
            (&plain, TLS, "destination", "https://b.example/b", "https://b.example/b"),
            // The target compares the host itself.
            (&plain, PLAIN, "destination", "http://a.example/b", "http://a.example/b"),
            (&stripped, PLAIN, "destination", "http://a.example/dav/b", "/b"),
            (&stripped, TLS, "destination", "/dav/b", "/b"),
            (
                &plain,
                TLS,
                "if",
                "<https://a.example:8443/b> (<urn:uuid:1> [\"e\"]) (Not <https://a.example:8443/>)",
                "</b> (<urn:uuid:1> [\"e\"]) (Not <https://a.example:8443/>)",
            ),
            (&plain, TLS, "if", "(<urn:uuid:1>)", "(<urn:uuid:1>)"),
            (&plain, TLS, "if", "<https://a.example:8443/b", "<https://a.example:8443/b"),
        ] {
            let passed = passed(options, visitor, true, (name, value));
            assert_eq!(passed.as_deref(), Some(wanted), "{name} {value}");
        }
    }

    #[test]
    fn a_destination_stays_below_the_path_of_the_service() {
        let options = HttpOptions { path: Some("/dav".into()), ..rules(None, false) };
        let rules = Rules::new(&options).unwrap();
        let host = HeaderValue::from_static("a.example");
        for (value, is_inside) in [
            ("http://a.example/dav/b", true),
            ("/dav", true),
            ("http://b.example/c", true),
            ("http://a.example/davs", false),
            ("http://a.example", false),
            ("/", false),
            ("/dav/../c", false),
            ("/dav/%2e%2e/c", false),
            ("/dav/..%2fc", false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(DESTINATION, HeaderValue::from_static(value));
            let passed = Addresses::new(&rules, &host, false).request(&mut fields);
            assert_eq!(passed.is_ok(), is_inside, "{value}");
        }
    }

    #[test]
    fn a_referer_follows_the_host() {
        let of =
            |options: &HttpOptions, value| passed(options, TLS, true, ("referer", value)).unwrap();
        let moved = rules(Some("localhost:3000"), false);
        assert_eq!(of(&moved, "https://a.example:8443/b?c"), "http://localhost:3000/b?c");
        assert_eq!(of(&moved, "https://b.example/"), "https://b.example/");
        let rewriting = rules(Some("localhost:3000"), true);
        assert_eq!(of(&rewriting, "https://a.example:8443/b"), "https://localhost:3000/b");
        let plain = rules(None, true);
        assert_eq!(of(&plain, "https://a.example:8443/b"), "https://a.example:8443/b");
    }
}
