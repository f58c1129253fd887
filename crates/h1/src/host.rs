//! Names and addresses of hosts in the normal form in which they are compared: lower case, without
//! the last dot; an IPv6 address in the form of RFC 5952 and in brackets.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest number of characters of a name (RFC 1035 section 2.3.4), without the last dot.
pub const NAME: usize = 253;

/// The largest number of characters between two dots.
const LABEL: usize = 63;

/// A DNS name, or the text of an IPv4 address, in its normal form. `None`: the bytes are neither.
/// An underscore is valid, since names with underscores are in use.
#[must_use]
pub fn name(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut labels = bytes.split(|byte| *byte == b'.');
    let is_label = |label: &[u8]| (1..=LABEL).contains(&label.len()) && label.iter().all(is_valid);
    if bytes.len() > NAME || !labels.all(is_label) {
        return None;
    }
    str::from_utf8(bytes).ok().map(normal)
}

/// The normal form of a text that is known to be a host name or a wildcard.
#[must_use]
pub fn normal(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// A DNS name that can be registered, in its normal form. No label begins or ends with a hyphen,
/// and the last label is not a number: such a text is a mistyped address (RFC 3696 section 2).
#[must_use]
pub fn own_name(text: &str) -> Option<Cow<'_, str>> {
    name(text.as_bytes()).filter(|name| {
        let is_plain = |label: &str| !label.starts_with('-') && !label.ends_with('-');
        let last = name.rsplit('.').next().unwrap_or_default();
        name.split('.').all(is_plain) && !last.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// A DNS name in its normal form. `None`: the bytes are not a name, or are the text of an IPv4
/// address.
#[must_use]
pub fn dns_name(bytes: &[u8]) -> Option<Cow<'_, str>> {
    name(bytes).filter(|name| name.parse::<Ipv4Addr>().is_err())
}

/// An authority `host[:port]` (RFC 3986 section 3.2). User information and percent-encoding are
/// invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host in its normal form.
    pub host: Cow<'a, str>,
    /// The port; `None` if it is missing or empty.
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Reads an authority. `None`: it is invalid.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if let Some(rest) = bytes.strip_prefix(b"[") {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (literal, port) = (&rest[..end], &rest[end + 1..]);
            let address: Ipv6Addr = str::from_utf8(literal).ok()?.parse().ok()?;
            let port = match port {
                [] => None,
                [b':', port @ ..] => self::port(port)?,
                _ => return None,
            };
            return Some(Self { host: format!("[{address}]").into(), port });
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        let (host, port) = colon.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 1..]));
        let port = self::port(port)?;
        Some(Self { host: name(host)?, port })
    }
}

/// Reads the digits of a port, which may be absent (RFC 3986 section 3.2.3).
fn port(bytes: &[u8]) -> Option<Option<u16>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let digits = bytes.iter().all(u8::is_ascii_digit).then_some(bytes)?;
    str::from_utf8(digits).ok()?.parse().ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_one_form() {
        let long = format!("{}.example", "a".repeat(63));
        for (text, host) in [
            ("example.com", "example.com"),
            ("EXAMPLE.Com:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("example.com:", "example.com"),
            ("localhost", "localhost"),
            ("a_b.example", "a_b.example"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[2001:db8:0:0::1]:443", "[2001:db8::1]"),
            ("[::1]:", "[::1]"),
            (&long, &long),
        ] {
            let read = Authority::parse(text.as_bytes()).map(|authority| authority.host);
            assert_eq!(read.as_deref(), Some(host), "{text}");
        }
    }

    #[test]
    fn an_invalid_authority_is_refused() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}a", "a.".repeat(127));
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a b",
            "a%2eb",
            "a/b",
            "a@b",
            "a:b",
            "a:80:80",
            "a:+1",
            "a:65536",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[fe80::1%25eth0]",
            "[v1.a]",
            "[]",
            "::1",
            "a,b",
            "a\0b",
            "b\u{fc}cher.example",
            &long_label,
            &long_name,
        ] {
            assert_eq!(Authority::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_port_is_read_and_a_normal_host_is_not_copied() {
        for (text, port) in
            [("a:8080", Some(8080)), ("a", None), ("a:", None), ("[::1]:80", Some(80))]
        {
            assert_eq!(Authority::parse(text.as_bytes()).unwrap().port, port, "{text}");
        }
        let read = Authority::parse(b"app.example.com:80").unwrap();
        assert!(matches!(read.host, Cow::Borrowed("app.example.com")));
    }

    #[test]
    fn a_name_with_an_owner_has_no_hyphen_at_an_end_and_no_number_as_its_last_label() {
        for text in ["Example.COM.", "a-b.example", "1.example", "xn--bcher-kva.example", "a_b"] {
            assert_eq!(own_name(text).as_deref(), Some(&*normal(text)), "{text}");
        }
        for text in
            ["", "-a.example", "a-.example", "1.2.3", "a.1", "a..b", "*.example", "192.0.2.1"]
        {
            assert_eq!(own_name(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_is_no_dns_name() {
        assert_eq!(dns_name(b"Example.COM.").as_deref(), Some("example.com"));
        for text in ["192.0.2.1", "192.0.2.1.", "::1", "[::1]", "", "a:80"] {
            assert_eq!(dns_name(text.as_bytes()), None, "{text}");
        }
    }
}
