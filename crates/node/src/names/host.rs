//! A host that clients publish, and the names that cover a host.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How the server handles the visitors of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Visitors speak HTTP.
    Http,
    /// Visitors speak HTTP inside TLS, which ends at the server.
    Https,
    /// Visitors speak TLS, which passes through the server.
    Tls,
}

/// Names within one space exclude each other: a ClientHello selects one service, whether its TLS
/// ends at the server or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Found by the header of a request.
    Http = 0,
    /// Found by the server name in a ClientHello.
    Tls = 1,
}

impl Kind {
    pub const fn space(self) -> Space {
        match self {
            Self::Http => Space::Http,
            Self::Https | Self::Tls => Space::Tls,
        }
    }

    /// The scheme of its URLs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tls => "tls",
        }
    }

    /// The default port of its URLs.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https | Self::Tls => 443,
        }
    }
}

/// A host that a client publishes: `app.example.com`, `*.example.com` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    pub kind: Kind,
    /// In lower case, without a trailing dot.
    pub name: Arc<str>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.scheme(), self.name)
    }
}

impl FromStr for Host {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (scheme, name) = text.split_once("://").ok_or(())?;
        let kinds = [Kind::Http, Kind::Https, Kind::Tls];
        let kind = kinds.into_iter().find(|kind| kind.scheme() == scheme).ok_or(())?;
        if name == "*" {
            return Ok(Self { kind, name: name.into() });
        }
        let (star, rest) = match name.strip_prefix("*.") {
            Some(rest) => ("*.", rest),
            None => ("", name),
        };
        match rest.parse::<config::Host>() {
            Ok(config::Host::Name(rest)) => Ok(Self { kind, name: format!("{star}{rest}").into() }),
            Ok(config::Host::Ip(_) | config::Host::Scoped(_)) | Err(_) => Err(()),
        }
    }
}

/// The names that cover `host`, the closest first: itself, the wildcards above it, `*`.
pub fn candidates(host: &str) -> impl Iterator<Item = Cow<'_, str>> {
    // Only a name has labels.
    let is_name = !host.starts_with('[') && host.parse::<std::net::IpAddr>().is_err();
    let dots = host.match_indices('.').filter(move |_| is_name);
    let above = dots.map(move |(at, _)| Cow::Owned(format!("*{}", &host[at..])));
    [Cow::Borrowed(host)].into_iter().chain(above).chain([Cow::Borrowed("*")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reads_back_and_loses_case_and_dot() {
        for (text, shown) in [
            ("http://App.Example.com.", "http://app.example.com"),
            ("https://*.Example.com", "https://*.example.com"),
            ("tls://*", "tls://*"),
        ] {
            assert_eq!(text.parse::<Host>().map(|host| host.to_string()).as_deref(), Ok(shown));
        }
        for bad in [
            "app.example.com",
            "ftp://a.example",
            "http://",
            "http://1.2.3.4",
            "http://[::1]",
            "http://a..b",
            "http://*.",
            "http://a.*.b",
            "http://a:80",
            "http://a/b",
        ] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_closest_name_comes_first() {
        let of = |host| candidates(host).collect::<Vec<_>>();
        assert_eq!(of("a.b.example"), ["a.b.example", "*.b.example", "*.example", "*"]);
        assert_eq!(of("localhost"), ["localhost", "*"]);
        assert_eq!(of("192.0.2.1"), ["192.0.2.1", "*"]);
        assert_eq!(of("[2001:db8::1]"), ["[2001:db8::1]", "*"]);
    }
}
