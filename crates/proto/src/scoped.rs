//! A link-local IPv6 address with the interface of its link (RFC 4007 section 11): `fe80::1%eth0`.
//! The same address may be in use on each link, so without the interface it is ambiguous.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The longest name of an interface (`IFNAMSIZ` of Linux without the last zero).
const ZONE_MAX: usize = 15;

/// A link-local IPv6 address and its zone: the name or the number of an interface of the machine
/// that dials or listens. The zone means nothing on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopedAddr {
    ip: Ipv6Addr,
    zone: Box<str>,
}

/// Why a text is not an address with a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopedAddrError {
    /// The text has no `%`.
    #[error("no zone")]
    Zoneless,
    /// The text before `%` is not an IPv6 address.
    #[error("no IPv6 address")]
    Address,
    /// The address is the same on every link.
    #[error("only a link-local address (fe80::/10) has a zone")]
    Scope,
    /// The text after `%` is not the name of an interface.
    #[error("a zone is the name or the number of an interface, as in fe80::1%eth0")]
    Zone,
}

impl ScopedAddr {
    /// The address.
    #[must_use]
    pub const fn ip(&self) -> Ipv6Addr {
        self.ip
    }

    /// The name of the interface, or its number in digits.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Whether an address is ambiguous without a link: link-local unicast, and multicast of
    /// interface-local or link-local scope (RFC 4291 sections 2.5.6 and 2.7).
    #[must_use]
    pub const fn needs_zone(ip: Ipv6Addr) -> bool {
        let [first, ..] = ip.segments();
        first & 0xffc0 == 0xfe80 || matches!(first & 0xff0f, 0xff01 | 0xff02)
    }
}

impl FromStr for ScopedAddr {
    type Err = ScopedAddrError;

    /// Parses the address without brackets. Before a zone `%25` counts as `%` (RFC 6874 section 2),
    /// unless nothing follows: then 25 is the number of the interface.
    fn from_str(text: &str) -> Result<Self, ScopedAddrError> {
        let (ip, zone) = text.split_once('%').ok_or(ScopedAddrError::Zoneless)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| ScopedAddrError::Address)?;
        if !Self::needs_zone(ip) {
            return Err(ScopedAddrError::Scope);
        }
        let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
        let is_of_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
        if !(1..=ZONE_MAX).contains(&zone.len()) || !zone.bytes().all(is_of_name) {
            return Err(ScopedAddrError::Zone);
        }
        Ok(Self { ip, zone: zone.into() })
    }
}

impl fmt::Display for ScopedAddr {
    /// Without brackets, as `ip` and `ping` show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%{}", self.ip, self.zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_link_is_read_in_both_forms_and_shown_in_the_short_one() {
        for (text, shown) in [
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("FE80:0::1%eth0", "fe80::1%eth0"),
            ("fe80::1%25eth0", "fe80::1%eth0"),
            ("fe80::1%3", "fe80::1%3"),
            ("fe80::1%253", "fe80::1%3"),
            ("fe80::1%25", "fe80::1%25"),
            ("febf::1%br-lan.100", "febf::1%br-lan.100"),
            ("ff02::fb%wlan0", "ff02::fb%wlan0"),
        ] {
            let read = text.parse::<ScopedAddr>().map(|at| at.to_string());
            assert_eq!(read.as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_has_no_zone_or_needs_none_is_refused() {
        for (text, error) in [
            ("fe80::1", ScopedAddrError::Zoneless),
            ("a%eth0", ScopedAddrError::Address),
            ("169.254.0.1%eth0", ScopedAddrError::Address),
            ("2001:db8::1%eth0", ScopedAddrError::Scope),
            ("ff05::1%eth0", ScopedAddrError::Scope),
            ("fe80::1%", ScopedAddrError::Zone),
            ("fe80::1%a/b", ScopedAddrError::Zone),
            ("fe80::1%a b", ScopedAddrError::Zone),
            ("fe80::1%a%b", ScopedAddrError::Zone),
            ("fe80::1%abcdefghijklmnop", ScopedAddrError::Zone),
        ] {
            assert_eq!(text.parse::<ScopedAddr>(), Err(error), "{text}");
        }
    }
}
