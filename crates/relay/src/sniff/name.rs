//! Names of hosts in the form in which they are compared.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest number of characters of a name (RFC 1035 section 2.3.4), without the last dot.
const NAME: usize = 253;

/// The largest number of characters between two dots.
const LABEL: usize = 63;

/// The DNS name in lower case without its last dot. `None`: the bytes are no name, or are the text
/// of an IPv4 address. An underscore is valid, since names with underscores are in use.
pub(super) fn dns_name(bytes: &[u8]) -> Option<Box<str>> {
    host_name(bytes).filter(|name| name.parse::<Ipv4Addr>().is_err())
}

/// The DNS name or IPv4 address in lower case without its last dot.
fn host_name(bytes: &[u8]) -> Option<Box<str>> {
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut labels = bytes.split(|byte| *byte == b'.');
    let is_label = |label: &[u8]| (1..=LABEL).contains(&label.len()) && label.iter().all(is_valid);
    if bytes.len() > NAME || !labels.all(is_label) {
        return None;
    }
    Some(str::from_utf8(bytes).ok()?.to_ascii_lowercase().into())
}

/// The host of an authority `host[:port]` (RFC 3986 section 3.2) in the form in which hosts are
/// compared: lower case, without port and last dot, an IPv6 address in its canonical text and in
/// brackets. `None`: the authority is invalid. User information and percent-encoding are invalid.
pub(super) fn authority(bytes: &[u8]) -> Option<Box<str>> {
    if let Some(rest) = bytes.strip_prefix(b"[") {
        let end = rest.iter().position(|byte| *byte == b']')?;
        let (literal, port) = (&rest[..end], &rest[end + 1..]);
        let address: Ipv6Addr = str::from_utf8(literal).ok()?.parse().ok()?;
        let is_valid = port.is_empty() || port.strip_prefix(b":").is_some_and(is_port);
        return is_valid.then(|| format!("[{address}]").into());
    }
    let colon = bytes.iter().position(|byte| *byte == b':');
    let (host, port) = colon.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 1..]));
    if is_port(port) { host_name(host) } else { None }
}

/// Whether the bytes are a port. An empty port is valid (RFC 3986 section 3.2.3).
fn is_port(bytes: &[u8]) -> bool {
    let digits = bytes.iter().all(u8::is_ascii_digit);
    let number = || str::from_utf8(bytes).is_ok_and(|text| text.parse::<u16>().is_ok());
    bytes.is_empty() || (digits && number())
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
            assert_eq!(authority(text.as_bytes()).as_deref(), Some(host), "{text}");
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
            assert_eq!(authority(text.as_bytes()), None, "{text}");
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
