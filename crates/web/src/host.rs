//! The host of a request in the one form in which hosts are compared.

use std::{borrow::Cow, fmt::Write as _, net::Ipv6Addr};

/// The longest name of the DNS in text form (RFC 1035 section 2.3.4).
const LONGEST: usize = 253;

/// Brings the host of a `Host` field or of an authority into normal form: lower case, without port
/// and without a dot at the end; an IPv6 address in brackets and in the form of RFC 5952.
///
/// `None` if the text is no host. Letters, digits, `-` and `_` are the characters of a label.
#[must_use]
pub fn normal_host(text: &str) -> Option<Cow<'_, str>> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, port) = rest.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        let mut normal = String::with_capacity(41);
        write!(normal, "[{}]", inner.parse::<Ipv6Addr>().ok()?).ok()?;
        return Some(Cow::Owned(normal));
    }
    let host = match text.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        Some(_) => return None,
        None => text,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.is_empty() || host.len() > LONGEST {
        return None;
    }
    let (mut upper, mut last) = (false, b'.');
    for &byte in host.as_bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => {}
            b'A'..=b'Z' => upper = true,
            b'.' if last != b'.' => {}
            _ => return None,
        }
        last = byte;
    }
    if last == b'.' {
        return None;
    }
    Some(if upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) })
}

/// RFC 3986 allows an empty port.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.is_empty() || text.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_port_and_last_dot_are_no_part_of_a_host() {
        for (text, normal) in [
            ("app.example.com", "app.example.com"),
            ("App.Example.COM", "app.example.com"),
            ("app.example.com:8080", "app.example.com"),
            ("app.example.com.", "app.example.com"),
            ("app.example.com.:80", "app.example.com"),
            ("app.example.com:", "app.example.com"),
            ("my_app-1", "my_app-1"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[2001:DB8:0:0::1]:443", "[2001:db8::1]"),
        ] {
            assert_eq!(normal_host(text).as_deref(), Some(normal), "{text}");
        }
        assert!(matches!(normal_host("app.example.com:80"), Some(Cow::Borrowed(_))));
    }

    #[test]
    fn text_that_is_no_host_is_refused() {
        let long = "a".repeat(254);
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a..",
            "a b",
            "a,b",
            "a/b",
            "a@b",
            "a:b",
            "a:1:2",
            "a:65536",
            "[::1",
            "[::1]80",
            "[::1]:x",
            "[1]",
            "a%41",
            "ä.example",
            "a\0",
            &long,
        ] {
            assert_eq!(normal_host(text), None, "{text:?}");
        }
    }
}
