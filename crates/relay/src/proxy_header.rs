//! The header of the PROXY protocol (haproxy's `proxy-protocol.txt`), which announces the visitor's
//! address to a target.

use std::net::{IpAddr, SocketAddr};

use ::proxy_header::{ProxiedAddress, ProxyHeader};
use bytes::Bytes;

/// The version of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// The header for a stream from `visitor` to the public address `public`. For a visitor without an
/// address, it is the header of a connection by the proxy itself: `UNKNOWN` in version 1, `LOCAL`
/// in version 2.
#[must_use]
pub fn proxy_header(
    version: ProxyVersion,
    visitor: Option<SocketAddr>,
    public: SocketAddr,
) -> Bytes {
    let header = match visitor {
        None => ProxyHeader::with_local(),
        Some(visitor) => {
            let (visitor, public) = same_family(visitor, public);
            ProxyHeader::with_address(ProxiedAddress::stream(visitor, public))
        }
    };
    let mut bytes = Vec::new();
    let encoded = match version {
        ProxyVersion::V1 => header.encode_v1(&mut bytes),
        ProxyVersion::V2 => header.encode_v2(&mut bytes),
    };
    debug_assert_eq!(encoded, Ok(()), "the addresses have one family, and there are no fields");
    bytes.into()
}

/// As [`proxy_header()`], with the fields of another header after the addresses. Version 1 has no
/// fields, nor has the header of a visitor without an address.
#[must_use]
pub fn with_fields(
    version: ProxyVersion,
    visitor: Option<SocketAddr>,
    public: SocketAddr,
    fields: &[u8],
) -> Bytes {
    let header = proxy_header(version, visitor, public);
    if version == ProxyVersion::V1 || visitor.is_none() || fields.is_empty() {
        return header;
    }
    let mut bytes = [&header[..], fields].concat();
    // The length of the bytes after the first 16 (section 2.2). Fields that exceed it are omitted.
    let Ok(rest) = u16::try_from(bytes.len().saturating_sub(16)) else { return header };
    if let Some(length) = bytes.get_mut(14..16) {
        length.copy_from_slice(&rest.to_be_bytes());
    }
    bytes.into()
}

/// Maps both addresses to IPv6 if one of them is IPv6, because a header has one family.
fn same_family(one: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    if one.is_ipv4() == other.is_ipv4() {
        return (one, other);
    }
    (mapped(one), mapped(other))
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signature of version 2 (section 2.2).
    const SIGNATURE: &[u8] = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a";

    fn header(version: ProxyVersion, visitor: Option<&str>, public: &str) -> Vec<u8> {
        let visitor = visitor.map(|address| address.parse().unwrap());
        proxy_header(version, visitor, public.parse().unwrap()).to_vec()
    }

    #[test]
    fn version_1_is_the_line_of_the_specification() {
        let v1 =
            |visitor, public| String::from_utf8(header(ProxyVersion::V1, visitor, public)).unwrap();
        // The examples of section 2.1.
        assert_eq!(
            v1(Some("192.168.0.1:56324"), "192.168.0.11:443"),
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
        );
        assert_eq!(
            v1(Some("255.255.255.255:65535"), "255.255.255.255:65535"),
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"
        );
        assert_eq!(v1(None, "192.168.0.11:443"), "PROXY UNKNOWN\r\n");
        assert_eq!(
            v1(Some("[2001:db8::1]:56324"), "[2001:db8::2]:443"),
            "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"
        );
        assert_eq!(
            v1(Some("192.0.2.1:56324"), "[2001:db8::2]:443"),
            "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443\r\n"
        );
        // The line cannot contain a scope.
        assert_eq!(
            v1(Some("[fe80::1%7]:1"), "[fe80::2%7]:2"),
            "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"
        );
    }

    #[test]
    fn version_2_has_the_bytes_of_the_specification() {
        let v2 = |visitor, public| header(ProxyVersion::V2, visitor, public);
        // Version 2 and command PROXY, TCP over IPv4, 12 bytes of addresses.
        let ipv4 = b"\x21\x11\x00\x0c\xc0\xa8\x00\x01\xc0\xa8\x00\x0b\xdc\x04\x01\xbb";
        assert_eq!(v2(Some("192.168.0.1:56324"), "192.168.0.11:443"), [SIGNATURE, ipv4].concat());
        // TCP over IPv6, 36 bytes of addresses.
        let ipv6 = |source: &[u8]| {
            let target = b"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02";
            [SIGNATURE, b"\x21\x21\x00\x24", source, target, b"\xdc\x04\x01\xbb"].concat()
        };
        let source = b"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01";
        assert_eq!(v2(Some("[2001:db8::1]:56324"), "[2001:db8::2]:443"), ipv6(source));
        let source = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01";
        assert_eq!(v2(Some("192.0.2.1:56324"), "[2001:db8::2]:443"), ipv6(source));
        // Version 2 and command LOCAL, no family, no addresses.
        assert_eq!(v2(None, "192.168.0.11:443"), [SIGNATURE, b"\x20\x00\x00\x00"].concat());
    }
}
