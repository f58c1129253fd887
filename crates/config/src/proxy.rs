//! Outgoing proxies: `http://user:password@proxy.example:3128`, `socks4a://10.0.0.1:1080` or
//! `socks5://127.0.0.1:1080`, from the file or from the environment. Both are read as curl 7.88
//! reads them (its `parse_proxy` and `Curl_check_noproxy`), so that a variable that works for curl
//! works for the client, and means the same.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::endpoint::{port, split};
use crate::{BadValue, Endpoint, Host, Secret};

/// The default port of a proxy, for every protocol, as in curl.
const CURLS: &str = "1080";

/// The longest user or password of SOCKS: its length has one byte (RFC 1929 section 2).
const SOCKS_MAX: usize = 255;

/// The longest user or password of HTTP: even a token of this length leaves room in the 8 KiB that
/// most proxies accept as a request header.
const HTTP_MAX: usize = 4 << 10;

/// Which side resolves the server's name when a proxy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBy {
    /// The client. The client resolves the name; the proxy gets an address.
    Client,
    /// The proxy.
    Proxy,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT of HTTP/1.1 (RFC 9110 section 9.3.6); the proxy resolves names.
    Http,
    /// SOCKS version 4, which carries IPv4 addresses. Its extension 4a carries names.
    Socks4(ResolvedBy),
    /// SOCKS version 5 (RFC 1928).
    Socks5(ResolvedBy),
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
    /// User name and password. SOCKS 4 has only a user name.
    pub credentials: Option<(String, Secret)>,
}

/// Where the text of a proxy was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenIn {
    /// In the configuration file, where an error helps more than a guess.
    File,
    /// In a variable that other programs read as well.
    Environment,
}

impl FromStr for Proxy {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Self::read(text, WrittenIn::File)
    }
}

impl Proxy {
    /// Parses a proxy. The text may contain a password, so no message repeats it.
    fn read(text: &str, source: WrittenIn) -> Result<Self, BadValue> {
        let hint = "for example http://proxy.example:3128 or socks5://user:password@127.0.0.1:1080";
        let bad = |why: &str| BadValue::new(format!("not a proxy: {why}")).hint(hint);
        let (scheme, rest) = scheme(text);
        let kind = kind(scheme, source).map_err(bad)?;
        let (rest, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        if source == WrittenIn::File && user.is_some() && scheme.is_none() {
            return Err(bad("a proxy with a user has a scheme in front"));
        }
        let credentials = user.map(|user| login(user, kind, source)).transpose().map_err(bad)?;
        let (host, number) = split(place).map_err(|_| bad("what follows is not host:port"))?;
        if kind != ProxyKind::Http && host.eq_ignore_ascii_case("localhost") && path.len() > 1 {
            return Err(bad("this version reaches no proxy at a Unix socket"));
        }
        let number = number.filter(|number| !number.is_empty()).unwrap_or(CURLS);
        let host = host.parse().map_err(|_| bad("what follows is not host:port"))?;
        let port = port(number).ok().filter(|port| *port > 0).ok_or_else(|| bad("no port"))?;
        let credentials = credentials.map(|(user, password)| (user, Secret::new(password)));
        Ok(Self { kind, host, port, credentials })
    }
}

/// Splits off a scheme with the one to three slashes that curl accepts after it.
fn scheme(text: &str) -> (Option<&str>, &str) {
    let is_scheme = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    };
    match text.split_once(":/") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let rest = rest.strip_prefix('/').unwrap_or(rest);
            (Some(scheme), rest.strip_prefix('/').unwrap_or(rest))
        }
        Some(_) | None => (None, text),
    }
}

/// The protocol that a scheme names. In the file, `socks5://` lets the proxy resolve names, as
/// `socks5h://` does.
fn kind(scheme: Option<&str>, source: WrittenIn) -> Result<ProxyKind, &'static str> {
    let Some(scheme) = scheme else { return Ok(ProxyKind::Http) };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(ProxyKind::Http),
        "socks" | "socks4" => Ok(ProxyKind::Socks4(ResolvedBy::Client)),
        "socks4a" => Ok(ProxyKind::Socks4(ResolvedBy::Proxy)),
        "socks5" if source == WrittenIn::Environment => Ok(ProxyKind::Socks5(ResolvedBy::Client)),
        "socks5" | "socks5h" => Ok(ProxyKind::Socks5(ResolvedBy::Proxy)),
        "https" => Err("this version speaks no TLS with a proxy"),
        _ => Err("its scheme is http://, socks4://, socks4a://, socks5:// or socks5h://"),
    }
}

/// Reads `user[:password]`.
fn login(text: &str, kind: ProxyKind, source: WrittenIn) -> Result<(String, String), &'static str> {
    let most = if kind == ProxyKind::Http { HTTP_MAX } else { SOCKS_MAX };
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let read = |text| {
        let text = decode(text, source)?;
        Some(text).filter(|text| text.len() <= most && !text.contains(char::is_control))
    };
    let Some((user, password)) = read(user).zip(read(password)) else {
        return Err(match kind {
            ProxyKind::Http => "user and password are up to 4 KiB, with %XX",
            ProxyKind::Socks4(_) | ProxyKind::Socks5(_) => {
                "user and password are up to 255 bytes, with %XX"
            }
        });
    };
    if matches!(kind, ProxyKind::Socks4(_)) && !password.is_empty() {
        return match source {
            WrittenIn::File => Err("SOCKS 4 has a user and no password"),
            WrittenIn::Environment => Ok((user, String::new())),
        };
    }
    Ok((user, password))
}

impl fmt::Debug for Proxy {
    /// The user name may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Display for Proxy {
    /// Shows the proxy without user name and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Socks4(ResolvedBy::Client) => "socks4",
            ProxyKind::Socks4(ResolvedBy::Proxy) => "socks4a",
            ProxyKind::Socks5(_) => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Percent-decoding (RFC 3986 section 2.1). `None`: the text is not UTF-8, or a text of the file
/// has a `%` without two hex digits. In the environment such a `%` stands for itself.
fn decode(text: &str, source: WrittenIn) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        match digit(0).zip(digit(1)) {
            Some((high, low)) => {
                out.push(u8::try_from(high * 16 + low).ok()?);
                rest = behind.get(2..).unwrap_or_default();
            }
            None if source == WrittenIn::Environment => out.push(byte),
            None => return None,
        }
    }
    String::from_utf8(out).ok()
}

/// The variables of a transport; the first variable that is set applies. `HTTP_PROXY` in capitals
/// is ignored, because a web server may set it from a request (CVE-2016-5385).
fn variables(endpoint: &Endpoint) -> &'static [&'static str] {
    match (endpoint.scheme.http, endpoint.scheme.tls) {
        (true, true) => {
            &["wss_proxy", "WSS_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
        }
        (true, false) => &["ws_proxy", "WS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"],
        (false, true) => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        (false, false) => &["http_proxy", "all_proxy", "ALL_PROXY"],
    }
}

/// All variables of the environment that decide about a proxy.
pub(crate) const VARIABLES: &[&str] = &[
    "wss_proxy",
    "WSS_PROXY",
    "ws_proxy",
    "WS_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// The proxy that the environment sets for this endpoint, with the name of the variable. A host in
/// `NO_PROXY` and a loopback host get no proxy. An empty variable counts as unset.
pub(crate) fn of_environment(
    endpoint: &Endpoint,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, (&'static str, BadValue)> {
    let set = |name: &&'static str| env(name).is_some_and(|value| !value.trim().is_empty());
    let Some(name) = variables(endpoint).iter().copied().find(set) else { return Ok(None) };
    let spared = ["no_proxy", "NO_PROXY"].into_iter().find(set).and_then(env).unwrap_or_default();
    if endpoint.host.is_loopback() || spares(&spared, &endpoint.host) {
        return Ok(None);
    }
    let text = env(name).unwrap_or_default();
    Proxy::read(text.trim(), WrittenIn::Environment).map(Some).map_err(|bad| (name, bad))
}

/// Whether a list like `localhost,.example.com,10.0.0.0/8` contains this host, by curl's rules:
/// - `*` matches every host if it is the whole list.
/// - A name matches itself and each name below it. One leading dot and one trailing dot are
///   ignored.
/// - An IPv4 address is compared with addresses and networks.
/// - An IPv6 address is compared as text, without brackets, and networks of IPv6 are not supported.
/// - No entry has a port.
fn spares(list: &str, host: &Host) -> bool {
    if list == "*" {
        return true;
    }
    let name = host.unscoped().bare();
    list.split([',', ' ', '\t']).filter(|item| !item.is_empty()).any(|item| {
        match name.parse::<Ipv4Addr>() {
            Ok(ip) => has_v4(item, ip),
            Err(_) => has_name(item, &name),
        }
    })
}

fn has_name(item: &str, name: &str) -> bool {
    let item = item.strip_suffix('.').unwrap_or(item);
    let item = item.strip_prefix('.').unwrap_or(item).as_bytes();
    let Some(above) = name.len().checked_sub(item.len()) else { return false };
    let (below, tail) = name.as_bytes().split_at(above);
    tail.eq_ignore_ascii_case(item) && (below.is_empty() || below.ends_with(b"."))
}

/// Whether an address or a network of IPv4 contains an address. The length of a network ends at the
/// first character that is not a digit, and 0 means the whole address.
fn has_v4(item: &str, ip: Ipv4Addr) -> bool {
    let (network, length) = item.split_once('/').unwrap_or((item, ""));
    let Ok(network) = network.parse::<Ipv4Addr>() else { return false };
    let digits = length.bytes().take_while(u8::is_ascii_digit).count();
    let bits = match &length[..digits] {
        "" if length.starts_with('-') => return false,
        "" => 0,
        digits => digits.parse().unwrap_or(u32::MAX),
    };
    let apart = u32::from(ip) ^ u32::from(network);
    match bits {
        0 | 32 => apart == 0,
        1..32 => apart >> (32 - bits) == 0,
        _ => false,
    }
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
            ("socks4a://me@a:1", "socks4a://a:1", Some(("me", ""))),
            ("http://:sesame@a:1", "http://a:1", Some(("", "sesame"))),
            ("proxy:1", "http://proxy:1", None),
            ("http://a", "http://a:1080", None),
        ];
        for (text, shown, credentials) in cases {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!(proxy.to_string(), shown);
            let read = proxy.credentials.as_ref().map(|(u, p)| (u.as_str(), p.reveal()));
            assert_eq!(read, credentials);
        }
        let wrong = [
            "me:sesame@proxy:1",
            "https://a:1",
            "ftp://a:1",
            "http://u:sesame@:1",
            "http://a:0",
            "http://%zz:sesame@a:1",
            "http://u%0d:sesame@a:1",
            "http://u:sesame@a:b:c",
            "socks4://u:sesame@a:1",
            "socks5://localhost/run/tor.sock",
            "",
        ];
        for text in wrong {
            let said = format!("{:?}", text.parse::<Proxy>().unwrap_err());
            assert!(!said.contains("sesame"), "{said}");
        }
        let long = "x".repeat(256);
        assert!(format!("http://{long}@a:1").parse::<Proxy>().is_ok());
        assert!(format!("socks5://{long}@a:1").parse::<Proxy>().is_err());
    }

    /// The proxy that these variables set for a server. `Err` has the name of the variable.
    fn chosen(variables: &[(&str, &str)], url: &str) -> Result<Option<Proxy>, &'static str> {
        let env = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        of_environment(&url.parse().unwrap(), &env).map_err(|(name, _)| name)
    }

    fn shown(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, &'static str> {
        chosen(variables, url).map(|proxy| proxy.map(|proxy| proxy.to_string()))
    }

    fn some(text: &str) -> Result<Option<String>, &'static str> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn the_variable_of_the_transport_comes_before_that_of_all_and_small_letters_before_capitals() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("ALL_PROXY", "socks5://a:2")];
        assert_eq!(shown(&both, "wss://x.example/t"), some("http://s:1"));
        assert_eq!(shown(&both, "tls://x.example"), some("http://s:1"));
        assert_eq!(shown(&both, "ws://x.example"), some("socks5://a:2"));
        assert_eq!(shown(&both, "wss://127.0.0.1/t"), Ok(None));
        for url in ["ws://x.example", "tcp://x.example"] {
            assert_eq!(shown(&[("HTTP_PROXY", "http://evil:1")], url), Ok(None));
            assert_eq!(shown(&[("http_proxy", "http://h:1")], url), some("http://h:1"));
        }
        let own = [("https_proxy", "s:1"), ("WSS_PROXY", "w:1")];
        assert_eq!(shown(&own, "wss://x.example/t"), some("http://w:1"));
        assert_eq!(shown(&own, "tls://x.example"), some("http://s:1"));
        let two = [("HTTPS_PROXY", "large:1"), ("https_proxy", "small:1")];
        assert_eq!(shown(&two, "tls://x.example"), some("http://small:1"));
        let empty = [("HTTPS_PROXY", "large:1"), ("https_proxy", "")];
        assert_eq!(shown(&empty, "tls://x.example"), some("http://large:1"));
        assert_eq!(shown(&[("https_proxy", "a b")], "tls://x.example"), Err("https_proxy"));
    }

    /// Each outcome is that of curl 7.88.1.
    #[test]
    fn a_proxy_of_the_environment_is_read_as_curl_reads_it() {
        for (text, proxy) in [
            ("p", "http://p:1080"),
            ("p:8080", "http://p:8080"),
            ("p:8080/", "http://p:8080"),
            ("p:", "http://p:1080"),
            ("http:/p:1", "http://p:1"),
            ("http:///p:1", "http://p:1"),
            ("HTTP://p:1/path?query#x", "http://p:1"),
            (" http://p:1 ", "http://p:1"),
            ("http://p:01", "http://p:1"),
            ("http://a_b.example:1", "http://a_b.example:1"),
            ("[2001:db8::1]:1", "http://[2001:db8::1]:1"),
            ("socks://p", "socks4://p:1080"),
            ("SOCKS4A://p", "socks4a://p:1080"),
        ] {
            assert_eq!(shown(&[("https_proxy", text)], "tls://x.example"), some(proxy), "{text}");
        }
        for text in ["http:p:1", "//p:1", "foo://p:1", "http://p:0", "https://p:1", "http://a%00@p"]
        {
            assert!(shown(&[("https_proxy", text)], "tls://x.example").is_err(), "{text}");
        }
        let login = |text: &str| {
            let proxy = chosen(&[("https_proxy", text)], "tls://x.example").unwrap().unwrap();
            proxy.credentials.map(|(user, word)| (user, word.reveal().to_owned()))
        };
        for (text, user, password) in [
            ("me:p%40s@p:1", "me", "p@s"),
            ("http://me:50%off@p:1", "me", "50%off"),
            ("http://me@p:1", "me", ""),
            ("http://:word@p:1", "", "word"),
            ("socks4://me:word@p:1", "me", ""),
        ] {
            assert_eq!(login(text), Some((user.to_owned(), password.to_owned())), "{text}");
        }
        let kind = |text: &str| {
            chosen(&[("https_proxy", text)], "tls://x.example").unwrap().map(|proxy| proxy.kind)
        };
        for (scheme, wanted) in [
            ("socks4", ProxyKind::Socks4(ResolvedBy::Client)),
            ("socks4a", ProxyKind::Socks4(ResolvedBy::Proxy)),
            ("socks5", ProxyKind::Socks5(ResolvedBy::Client)),
            ("socks5h", ProxyKind::Socks5(ResolvedBy::Proxy)),
        ] {
            assert_eq!(kind(&format!("{scheme}://p")), Some(wanted), "{scheme}");
        }
        let of_file = "socks5://p".parse::<Proxy>().unwrap();
        assert_eq!(of_file.kind, ProxyKind::Socks5(ResolvedBy::Proxy));
    }

    /// Each outcome is that of curl 7.88.1.
    #[test]
    fn a_list_without_proxy_is_compared_as_curl_compares_it() {
        let empty = [("https_proxy", "p:1"), ("no_proxy", ""), ("NO_PROXY", "x.example")];
        assert_eq!(shown(&empty, "tls://x.example"), Ok(None));
        let small = [("https_proxy", "p:1"), ("no_proxy", "a"), ("NO_PROXY", "x.example")];
        assert_eq!(shown(&small, "tls://x.example"), some("http://p:1"));
        for (host, spared, asked) in [
            (
                "gate.corp.test",
                &[
                    "*",
                    "gate.corp.test",
                    "gate.corp.test.",
                    ".corp.test",
                    "corp.test",
                    "Corp.TEST",
                    "test",
                    "a.test, corp.test",
                    "a corp.test",
                    "a\tcorp.test",
                    "a,,corp.test",
                    "a , corp.test",
                ][..],
                &[
                    "",
                    "*,a",
                    "a *",
                    " *",
                    "*.corp.test",
                    "orp.test",
                    "gate.corp.test:7000",
                    "10.77.0.1",
                    "..corp.test",
                    "corp.test..",
                    ".",
                    "http://corp.test",
                    "a;corp.test",
                    "a\ncorp.test",
                ][..],
            ),
            (
                "10.1.2.3",
                &[
                    "10.1.2.3",
                    "10.0.0.0/8",
                    "10.1.9.9/16",
                    "10.0.0.0/8x",
                    "10.1.2.3/",
                    "10.1.2.3/32",
                ],
                &[
                    "10.",
                    "10/8",
                    "0.0.0.0/0",
                    "10.0.0.0/33",
                    "10.0.0.0/-1",
                    "10.1.2.3.",
                    "10.1.2.3:7000",
                    ".1.2.3",
                    "::ffff:10.1.2.3",
                    "010.1.2.3",
                ],
            ),
            (
                "[fd77::1]",
                &["fd77::1", "FD77::1", "a,fd77::1"],
                &["[fd77::1]", "fd77::/16", "::/0", "fd77:0::1", "fd77::1%eth0"],
            ),
            ("[fe80::1%eth0]", &["fe80::1"], &["fe80::/10", "fe80::1%eth0"]),
            ("[::ffff:10.1.2.3]", &["::ffff:10.1.2.3"], &["10.1.2.3"]),
        ] {
            let url = format!("tls://{host}:7000");
            for list in spared {
                let outcome = shown(&[("https_proxy", "p:1"), ("NO_PROXY", list)], &url);
                assert_eq!(outcome, Ok(None), "{host} {list:?}");
            }
            for list in asked {
                let outcome = shown(&[("https_proxy", "p:1"), ("NO_PROXY", list)], &url);
                assert_eq!(outcome, some("http://p:1"), "{host} {list:?}");
            }
        }
    }
}
