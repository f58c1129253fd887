//! Outgoing proxies: `http://user:password@proxy.example:3128` or `socks5://127.0.0.1:1080`, from
//! the file or, as with curl, from the environment.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::endpoint::{port, split};
use crate::{BadValue, Endpoint, Host, Net, Secret, international};

/// The default port of a proxy from the environment, for every protocol, as in curl.
const CURLS: &str = "1080";

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT of HTTP/1.1 (RFC 9110 section 9.3.6).
    Http,
    /// SOCKS version 5 (RFC 1928); the proxy resolves names.
    Socks5,
}

/// A proxy between a client and its server.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The proxy's protocol.
    pub kind: ProxyKind,
    /// The proxy's host.
    pub host: Host,
    /// The proxy's port, at least 1.
    pub port: u16,
    /// User and password.
    pub credentials: Option<(String, Secret)>,
}

impl FromStr for Proxy {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Self::read(text, None)
    }
}

impl Proxy {
    /// Parses a proxy. `default` is the port if the text has none. The text may contain a password,
    /// so no message repeats it.
    fn read(text: &str, default: Option<&str>) -> Result<Self, BadValue> {
        let hint = "for example http://proxy.example:3128 or socks5://user:password@127.0.0.1:1080";
        let bad = |why: &str| BadValue::new(format!("not a proxy: {why}")).hint(hint);
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("no scheme in front"))?;
        let kind = match scheme {
            "http" => ProxyKind::Http,
            "socks5" | "socks5h" => ProxyKind::Socks5,
            "https" => return Err(bad("this version speaks no TLS with a proxy")),
            _ => return Err(bad("it is http:// or socks5://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let credentials = user
            .map(|user| {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let decode = |text| decode(text).filter(|text| text.len() <= 255);
                decode(user).zip(decode(password)).filter(|(user, _)| !user.is_empty())
            })
            .map(|pair| pair.ok_or_else(|| bad("user and password are up to 255 bytes, with %XX")))
            .transpose()?;
        let (host, number) = split(place).map_err(|_| bad("what follows is not host:port"))?;
        let number = number.or(default).ok_or_else(|| bad("no port"))?;
        let host = host.parse().map_err(|_| bad("what follows is not host:port"))?;
        let port = port(number).ok().filter(|port| *port > 0).ok_or_else(|| bad("no port"))?;
        let credentials = credentials.map(|(user, password)| (user, Secret::new(password)));
        Ok(Self { kind, host, port, credentials })
    }
}

impl fmt::Debug for Proxy {
    /// The user may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Display for Proxy {
    /// Shows the proxy without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Percent-decoding (RFC 3986 section 2.1). `None`: not UTF-8, or a `%` without two hex digits.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// The proxy that the environment sets for this endpoint, with the name of the variable. The
/// scheme's variable comes first, then `ALL_PROXY`. A host in `NO_PROXY` and a loopback host get no
/// proxy. Lower-case variables have precedence. `HTTP_PROXY` in capitals is ignored, because a web
/// server may set it from a request (CVE-2016-5385).
pub(crate) fn of_environment(
    endpoint: &Endpoint,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, (&'static str, BadValue)> {
    let set = |name: &&'static str| env(name).is_some_and(|value| !value.trim().is_empty());
    let own: &[&'static str] = if endpoint.scheme.tls {
        &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    } else {
        &["http_proxy", "all_proxy", "ALL_PROXY"]
    };
    let Some(name) = own.iter().copied().find(set) else { return Ok(None) };
    let spared = ["no_proxy", "NO_PROXY"].into_iter().find(set).and_then(env).unwrap_or_default();
    if endpoint.host.is_loopback() || spares(&spared, &endpoint.host) {
        return Ok(None);
    }
    let text = env(name).unwrap_or_default();
    let text = text.trim();
    // As with curl, the scheme is optional.
    let with_scheme = if text.contains("://") { text } else { &format!("http://{text}") };
    Proxy::read(with_scheme, Some(CURLS)).map(Some).map_err(|bad| (name, bad))
}

/// Whether a list like `localhost,.example.com,10.0.0.0/8` contains this host.
fn spares(list: &str, host: &Host) -> bool {
    list.split([',', ' ']).map(str::trim).filter(|item| !item.is_empty()).any(|item| {
        let item = international::ascii(item).unwrap_or(Cow::Borrowed(item)).to_ascii_lowercase();
        match host {
            _ if item == "*" => true,
            Host::Ip(ip) => is_in(&item, *ip),
            Host::Scoped(at) => is_in(&item, at.ip().into()),
            Host::Name(name) => {
                let suffix = item.trim_start_matches('*').trim_start_matches('.');
                let suffix = suffix.strip_suffix('.').unwrap_or(suffix);
                let rest = name.strip_suffix(suffix).filter(|_| !suffix.is_empty());
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
        }
    })
}

fn is_in(item: &str, ip: IpAddr) -> bool {
    item.parse::<Net>().is_ok_and(|net| net.contains(ip.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_and_shown_without_its_password() {
        let cases = [
            ("http://proxy.example:3128", "http://proxy.example:3128", None),
            ("http://a:b@[::1]:80/", "http://[::1]:80", Some(("a", "b"))),
            (
                "socks5h://me:p%40s%3a@127.0.0.1:1080",
                "socks5://127.0.0.1:1080",
                Some(("me", "p@s:")),
            ),
            ("socks5://me@a:1", "socks5://a:1", Some(("me", ""))),
        ];
        for (text, shown, credentials) in cases {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!(proxy.to_string(), shown);
            let read = proxy.credentials.as_ref().map(|(u, p)| (u.as_str(), p.reveal()));
            assert_eq!(read, credentials);
        }
        let wrong = [
            "proxy:1",
            "https://a:1",
            "ftp://a:1",
            "http://a",
            "http://u:sesame@:1",
            "http://a:0",
            "http://%zz:sesame@a:1",
            "http://:sesame@a:1",
            "http://u:sesame@a:b:c",
        ];
        for text in wrong {
            let said = format!("{:?}", text.parse::<Proxy>().unwrap_err());
            assert!(!said.contains("sesame"), "{said}");
        }
    }

    #[test]
    fn the_environment_names_a_proxy_as_for_curl() {
        let told = |variables: &[(&str, &str)], url: &str| {
            let env = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let proxy = of_environment(&url.parse().unwrap(), &env);
            proxy.map(|proxy| proxy.map(|proxy| proxy.to_string())).map_err(|(name, _)| name)
        };
        let some = |text: &str| Ok(Some(text.to_owned()));
        let both = [("HTTPS_PROXY", "http://s:1"), ("ALL_PROXY", "socks5://a:2")];
        assert_eq!(told(&both, "wss://x.example/t"), some("http://s:1"));
        assert_eq!(told(&both, "tls://x.example"), some("http://s:1"));
        assert_eq!(told(&both, "ws://x.example"), some("socks5://a:2"));
        assert_eq!(told(&both, "wss://127.0.0.1/t"), Ok(None));
        assert_eq!(told(&[("HTTP_PROXY", "http://evil:1")], "ws://x.example"), Ok(None));
        assert_eq!(told(&[("https_proxy", "p:8080")], "tls://x.example"), some("http://p:8080"));
        assert_eq!(told(&[("https_proxy", "p")], "tls://x.example"), some("http://p:1080"));
        assert_eq!(told(&[("https_proxy", "a b")], "tls://x.example"), Err("https_proxy"));
        let hidden = [("https_proxy", "http://p:1"), ("no_proxy", ""), ("NO_PROXY", "x.example.")];
        assert_eq!(told(&hidden, "tls://x.example"), Ok(None));
        for (list, url, is_spared) in [
            ("example.com", "tls://example.com", true),
            (".example.com", "tls://a.example.com", true),
            ("*.example.com", "tls://a.example.com", true),
            ("ample.com", "tls://example.com", false),
            ("a,10.0.0.0/8", "tls://10.1.2.3", true),
            ("*", "tls://x.example", true),
            ("", "tls://x.example", false),
        ] {
            let told = told(&[("https_proxy", "http://p:1"), ("NO_PROXY", list)], url);
            assert_eq!(told, if is_spared { Ok(None) } else { some("http://p:1") }, "{list} {url}");
        }
    }
}
