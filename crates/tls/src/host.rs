//! Names and addresses that a server certificate can contain.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A DNS name, which may have `*` as its first label, or an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A DNS name in lower case, without a trailing dot.
    Name(String),
    /// An address of IPv4 or IPv6.
    Address(IpAddr),
}

/// The text is not a [`HostName`]. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}")]
pub struct HostNameError {
    text: String,
    problem: &'static str,
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let wrong = |problem| HostNameError { text: text.to_owned(), problem };
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self::Address(ip));
        }
        if text.contains("://") || text.contains(':') || text.contains('/') {
            return Err(wrong("is more than a name: leave scheme, port and path away"));
        }
        if !text.is_ascii() {
            return Err(wrong("has letters beyond ASCII: write the name as DNS has it, xn--…"));
        }
        let (star, plain) = match text.strip_prefix("*.") {
            Some(plain) => ("*.", plain),
            None => ("", text),
        };
        let name = h1::host::own_name(plain).map(|name| format!("{star}{name}"));
        let name = name.filter(|name| name.len() <= h1::host::NAME);
        // A name like `*.com` would match the servers of many owners, and verifiers refuse it.
        match name {
            Some(name) if star.is_empty() || name.matches('.').count() > 1 => Ok(Self::Name(name)),
            Some(_) => Err(wrong("stands for a whole top-level domain")),
            None => Err(wrong("is neither a host name nor an IP address")),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(ip) => ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_in_every_spelling() {
        let cases = [
            ("Example.COM.", "example.com"),
            ("*.home.example.com", "*.home.example.com"),
            ("localhost", "localhost"),
            ("my_host.lan", "my_host.lan"),
            ("192.0.2.2", "192.0.2.2"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[::1]", "::1"),
        ];
        for (text, shown) in cases {
            let host: HostName = text.parse().unwrap();
            assert_eq!(host.to_string(), shown);
            assert_eq!(matches!(host, HostName::Address(_)), shown.parse::<IpAddr>().is_ok());
        }
    }

    #[test]
    fn what_is_none_is_told_with_the_reason() {
        let cases = [
            ("tls://example.com:7000", "leave scheme, port"),
            ("example.com:7000", "leave scheme, port"),
            ("bücher.example", "xn--"),
            ("*.com", "top-level"),
            ("a.*.example", "neither"),
            ("", "neither"),
            ("a b", "neither"),
            ("-a.example", "neither"),
            ("a..example", "neither"),
            ("300.1.1.1", "neither"),
            ("10.0.0", "neither"),
        ];
        for (text, problem) in cases {
            let said = text.parse::<HostName>().unwrap_err().to_string();
            assert!(said.starts_with(&format!("`{text}` ")) && said.contains(problem), "{said}");
        }
        assert!(format!("{}.example", "a".repeat(64)).parse::<HostName>().is_err());
    }
}
