//! The host and the port that a visitor of a proxy requests.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use proto::ScopedAddr;

use crate::TargetAddr;

/// A host as the visitor names it. It is not resolved at this end of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    /// A name with the characters of a host name, or a link-local address with its interface.
    Name(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Endpoint {
    /// Parses a host given as text: a name or an address. Programs that do not check the user's
    /// input send addresses as text, even IPv6 without brackets.
    pub(crate) fn new(host: &[u8], port: u16) -> Option<Self> {
        let host = str::from_utf8(host).ok()?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(host).parse::<Ipv6Addr>() {
            return Some(Self { host: Host::Ip(ip.into()), port });
        }
        // Only the end that dials knows its interfaces.
        if let Ok(at) = bare.unwrap_or(host).parse::<ScopedAddr>() {
            return Some(Self { host: Host::Name(at.to_string()), port });
        }
        match format!("tcp://{host}:1").parse() {
            Ok(TargetAddr::Tcp { host, .. }) => {
                let host = host.parse().map_or(Host::Name(host), Host::Ip);
                Some(Self { host, port })
            }
            Ok(TargetAddr::Udp { .. } | TargetAddr::Unix(_)) | Err(_) => None,
        }
    }

    /// Parses `host:port`. The port is required and must not be 0.
    pub(crate) fn parse(authority: &[u8]) -> Option<Self> {
        let colon = authority.iter().rposition(|byte| *byte == b':')?;
        let (host, port) = (&authority[..colon], &authority[colon + 1..]);
        if !port.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let port = str::from_utf8(port).ok()?.parse().ok().filter(|port| *port != 0)?;
        // Without brackets, the last colon of an IPv6 address need not precede a port.
        if host.contains(&b':') && !host.starts_with(b"[") {
            return None;
        }
        Self::new(host, port)
    }

    /// The target of a dial.
    pub(crate) fn target(self) -> TargetAddr {
        let host = match self.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name,
        };
        TargetAddr::Tcp { host, port: self.port }
    }
}

/// `example.com:80`, `[::1]:80`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        for (text, shown) in [
            ("example.com:443", Some("example.com:443")),
            ("Example.COM.:1", Some("Example.COM.:1")),
            ("10.0.0.1:80", Some("10.0.0.1:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("[2001:DB8::1]:65535", Some("[2001:db8::1]:65535")),
            ("[FE80::1%25eth0]:22", Some("[fe80::1%eth0]:22")),
            ("[2001:db8::1%eth0]:22", None),
            ("::1:80", None),
            ("example.com", None),
            ("example.com:", None),
            ("example.com:0", None),
            ("example.com:65536", None),
            ("example.com:+1", None),
            (":80", None),
            ("[::1]", None),
            ("[a]:80", None),
            ("user@example.com:80", None),
            ("example.com/:80", None),
            ("exa mple.com:80", None),
            ("\u{fc}ber.example:80", None),
        ] {
            let endpoint = Endpoint::parse(text.as_bytes());
            assert_eq!(endpoint.map(|endpoint| endpoint.to_string()).as_deref(), shown, "{text}");
        }
        assert_eq!(Endpoint::parse(&b"a\xff:80"[..]), None);
    }

    #[test]
    fn what_is_shown_is_a_target() {
        for host in ["example.com", "10.0.0.1", "::1", "[::1]", "fe80::1%eth0"] {
            let endpoint = Endpoint::new(host.as_bytes(), 80).unwrap();
            let text = format!("tcp://{endpoint}");
            assert_eq!(text.parse(), Ok(endpoint.target()), "{text}");
        }
    }
}
