//! The addresses of servers as users write them: `tls://example.com:7000`,
//! `wss://example.com/tunnel`. The scheme names the protocol, and the order is always `host:port`.
//! The addresses of services and forwards (module `address`) use the same notation for hosts and
//! ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use proto::{ScopedAddr, ScopedAddrError};

use crate::secrets::url;
use crate::{BadValue, Scheme, international};

/// A host: a name to resolve or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name, lower case, without the trailing dot. An international name is in its `xn--`
    /// form.
    Name(String),
    /// An address.
    Ip(IpAddr),
    /// A link-local IPv6 address with the interface of its link.
    Scoped(ScopedAddr),
}

impl Host {
    /// Whether the host is certainly this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Ip(ip) => ip.to_canonical().is_loopback(),
            Self::Scoped(_) => false,
        }
    }

    /// The address, without the interface of a link-local address.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Ip(ip) => Some(*ip),
            Self::Scoped(at) => Some(at.ip().into()),
        }
    }

    /// The host as a dial needs it: an IPv6 address has no brackets and keeps its interface.
    #[must_use]
    pub fn bare(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Ip(ip) => ip.to_string(),
            Self::Scoped(at) => at.to_string(),
        }
    }

    /// The host as other machines see it: without the interface of a link-local address, which
    /// means nothing there and is never sent (RFC 6874 section 3).
    #[must_use]
    pub fn unscoped(&self) -> Self {
        self.ip().map_or_else(|| self.clone(), Self::Ip)
    }
}

impl Host {
    /// Whether the host is a loopback address, or a name that the usual /etc/hosts maps to
    /// loopback.
    pub(crate) fn leads_to_loopback(&self) -> bool {
        match self {
            Self::Name(name) => {
                LOOPBACK_NAMES.contains(&name.as_str()) || name.ends_with(".localhost")
            }
            Self::Ip(_) | Self::Scoped(_) => self.is_loopback(),
        }
    }
}

/// Names that the usual /etc/hosts maps to loopback.
const LOOPBACK_NAMES: &[&str] = &[
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
];

impl FromStr for Host {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new(format!("`{text}` is not a host"));
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or_else(bad)?;
            return match inner.parse() {
                Ok(at) => Ok(Self::Scoped(at)),
                Err(ScopedAddrError::Zoneless) => {
                    inner.parse::<Ipv6Addr>().map(|ip| Self::Ip(ip.into())).map_err(|_| bad())
                }
                Err(rule @ (ScopedAddrError::Scope | ScopedAddrError::Zone)) => {
                    Err(bad().hint(rule.to_string()))
                }
                Err(ScopedAddrError::Address) => Err(bad()),
            };
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return match ip {
                IpAddr::V4(_) => Ok(Self::Ip(ip)),
                IpAddr::V6(_) => Err(bad().hint(format!("write an IPv6 address as [{text}]"))),
            };
        }
        if text.contains(char::is_control) {
            return Err(bad());
        }
        let ascii = international::ascii(text)?;
        let name = h1::host::own_name(&ascii).ok_or_else(bad)?;
        Ok(Self::Name(name.into_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Scoped(at) => write!(f, "[{at}]"),
        }
    }
}

/// The error for an interface after an address where an interface has no meaning.
pub(crate) fn no_zone(text: &str, hint: &str) -> BadValue {
    BadValue::new(format!("`{text}` has a zone, which has no place here")).hint(hint)
}

/// The remedy for a public address with a zone.
pub(crate) const NO_ZONE: &str = "[::] is every address of the server, on every interface";

/// The address on which a carrier listens or which it dials.
///
/// The address is shown without secret values of its query.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The transport.
    pub scheme: Scheme,
    /// Name or address.
    pub host: Host,
    /// The TCP port, or the UDP port of a transport over UDP. For listeners, 0 lets the system
    /// choose.
    pub port: u16,
    /// The path of `wss://` and `ws://`, with its leading slash and possibly with a query. Other
    /// transports have no path.
    pub path: Option<String>,
}

impl FromStr for Endpoint {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "for example tls://example.com:7000";
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(BadValue::new(format!("`{text}` has no transport")).hint(hint));
        };
        let scheme = Scheme::of_url(scheme)?;
        let (rest, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !path.is_empty() && !scheme.http {
            return Err(BadValue::new(format!(
                "`{text}`: a {}:// address has no path",
                scheme.name
            ))
            .hint(hint));
        }
        let path = if path.is_empty() { None } else { Some(self::path(path)?) };
        let (host, port) = split(rest)?;
        if host.is_empty() {
            return Err(BadValue::new(format!("`{text}` has no host"))
                .hint("[::] is every address of the machine"));
        }
        Ok(Self {
            scheme,
            host: host.parse()?,
            port: port.map_or_else(|| Ok(scheme.port), self::port)?,
            path,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.name, self.host, self.port)?;
        let path = self.path.as_deref().unwrap_or_default();
        f.write_str(&url::without_query_secrets(path))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// Checks path and query of a URL (RFC 3986 sections 3.3 and 3.4). The text is returned unchanged.
pub(crate) fn path(text: &str) -> Result<String, BadValue> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/?-._~!$&'()*+,;=:@%".contains(&b);
    if !text.starts_with('/') || !text.bytes().all(allowed) {
        let bad = BadValue::new(format!("`{text}` is not the path of a URL"));
        return Err(bad.hint("it begins with a slash; write other characters as %XX"));
    }
    Ok(text.to_owned())
}

/// Splits `host[:port]`. A host in brackets may contain colons. Host and port are not checked.
pub(crate) fn split(text: &str) -> Result<(&str, Option<&str>), BadValue> {
    let end = if text.starts_with('[') {
        text.find(']')
            .map(|i| i + 1)
            .ok_or_else(|| BadValue::new(format!("`{text}`: `[` without `]`")))?
    } else {
        if text.matches(':').count() > 1 {
            return Err(BadValue::new(format!("`{text}` is ambiguous"))
                .hint("an IPv6 address goes in brackets: [::1]:22"));
        }
        text.find(':').unwrap_or(text.len())
    };
    let (host, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(BadValue::new(format!("`{rest}` after the host is not a port"))),
    }
}

/// Parses a port from 0 to 65535.
pub(crate) fn port(text: &str) -> Result<u16, BadValue> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| {
        let hint = match text.contains([':', '.', ',']) {
            true => "a range of ports is written 10000-10010",
            false => "a port is a number from 1 to 65535",
        };
        BadValue::new(format!("`{text}` is not a port")).hint(hint)
    })
}

/// Parses `a` or `a-b`. The range includes both ends.
pub(crate) fn ports(text: &str) -> Result<(u16, u16), BadValue> {
    let (first, last) = match text.split_once('-') {
        Some((a, b)) => (port(a)?, port(b)?),
        None => (port(text)?, port(text)?),
    };
    if first > last {
        return Err(BadValue::new(format!("`{text}` ends before it begins")));
    }
    if first == 0 && last > 0 {
        return Err(BadValue::new(format!("`{text}`: a range begins at 1 or above")));
    }
    Ok((first, last))
}

/// The address of a server as a client writes it. The scheme may be missing and is then the
/// default: `example.com` is `tls://example.com:7000`.
///
/// # Errors
/// The text is not an address.
pub fn server_url(text: &str) -> Result<Endpoint, BadValue> {
    let url: Endpoint =
        if text.contains("://") { text.parse()? } else { format!("tls://{text}").parse()? };
    if url.scheme == Scheme::MUX {
        let Endpoint { host, port, path, .. } = &url;
        let path = path.as_deref().unwrap_or_default();
        return Err(BadValue::new("mux:// is for the `listen` of a server")
            .hint(format!("a client writes tls://{host}:{port} or wss://{host}:{port}{path}")));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Over;
    use proptest::prelude::*;

    #[test]
    fn every_usual_name_of_loopback_leads_there() {
        for text in
            ["LOCALHOST", "localhost.", "a.localhost", "ip6-localhost", "127.0.0.2", "[::1]"]
        {
            assert!(text.parse::<Host>().unwrap().leads_to_loopback(), "{text}");
        }
        for text in ["local", "localhost.example", "10.0.0.1", "[::]"] {
            assert!(!text.parse::<Host>().unwrap().leads_to_loopback(), "{text}");
        }
        // Old forms of IPv4 addresses are refused, whatever they lead to.
        for text in ["127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.01"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_endpoint_reads_back(
            ip: IpAddr, port: u16, kind in 0..Scheme::ALL.len(), path in proptest::option::of("/[a-z/?=%]{0,9}"),
        ) {
            let scheme = Scheme::ALL[kind];
            let path = path.filter(|_| scheme.http);
            let e = Endpoint { scheme, host: Host::Ip(ip), port, path };
            prop_assert_eq!(e.to_string().parse(), Ok(e));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Endpoint>();
            let _ = server_url(&text);
        }
    }

    #[test]
    fn a_web_socket_has_its_own_port_and_perhaps_a_path() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|e| e.to_string());
        let cases = [
            ("wss://[fe80::1%25eth0]/t", "wss://[fe80::1%eth0]:443/t"),
            ("wss://a.example", "wss://a.example:443"),
            ("ws://a.example/", "ws://a.example:80/"),
            ("wss://[::1]:8443/a/b?c=%20", "wss://[::1]:8443/a/b?c=%20"),
        ];
        for (text, wanted) in cases {
            assert_eq!(shown(text).as_deref(), Ok(wanted));
        }
        for bad in ["wss://a/b c", "wss://a#b", "wss://a?b", "ws:///x", "tls://a/b", "wss://a/ü"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quic_has_the_port_of_tls_and_no_path() {
        let read = |text: &str| text.parse::<Endpoint>();
        let at = read("quic://a.example").unwrap();
        assert_eq!(at.to_string(), "quic://a.example:7000");
        assert_eq!(read("quic://[::]:0").map(|e| e.to_string()).as_deref(), Ok("quic://[::]:0"));
        assert!(at.scheme.tls && at.scheme.binds_log_ins && at.scheme.over == Over::Udp);
        let at = read("kcp://a.example").unwrap();
        assert_eq!((at.scheme.name, at.port), ("kcp", 7001));
        for bad in ["kcp://a/b", "quic://a/b", "quic://", "quic://a:70000", "quic://a?b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_lose_case_and_the_trailing_dot() {
        assert_eq!("Example.COM.".parse(), Ok(Host::Name("example.com".into())));
        assert_eq!("Bücher.Example".parse(), Ok(Host::Name("xn--bcher-kva.example".into())));
        // Digits of another width must not become an address behind the check for addresses.
        assert!("１２７.0.0.1".parse::<Host>().is_err());
        for bad in ["", ".", "a..b", "-a", "1.2.3", "::1", "a b", "[::1", "[1.2.3.4]", "1.2.3.4.5"]
        {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_link_local_address_keeps_its_interface_and_other_machines_do_not_see_it() {
        let host: Host = "[fe80::1%25eth0]".parse().unwrap();
        assert_eq!(host.to_string(), "[fe80::1%eth0]");
        assert_eq!(host.bare(), "fe80::1%eth0");
        assert_eq!(host.unscoped(), "[fe80::1]".parse().unwrap());
        assert!(!host.is_loopback());
        let hint = "[2001:db8::1%eth0]".parse::<Host>().unwrap_err().hint.unwrap();
        assert!(hint.contains("link-local"), "{hint}");
        for bad in ["fe80::1%eth0", "[fe80::1%]", "[a%eth0]", "a%eth0", "[fe80::1%eth0"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_client_may_leave_out_the_scheme_of_its_server() {
        let shown = |text: &str| server_url(text).map(|e| e.to_string());
        assert_eq!(shown("example.com").as_deref(), Ok("tls://example.com:7000"));
        assert_eq!(shown("192.0.2.1:443").as_deref(), Ok("tls://192.0.2.1:443"));
        assert_eq!(shown("quic://[::1]").as_deref(), Ok("quic://[::1]:7000"));
        assert!(shown("").is_err() && shown("::1").is_err() && shown("a/b").is_err());
        let hint = server_url("mux://a.example/t").unwrap_err().hint.unwrap();
        assert!(hint.ends_with("tls://a.example:443 or wss://a.example:443/t"), "{hint}");
    }
}
