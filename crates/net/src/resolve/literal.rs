//! Hosts that are resolved without a lookup.

use std::net::{IpAddr, Ipv4Addr};

/// Parses an address. `getaddrinfo(3)` also accepts the short forms of IPv4, such as `127.1`, and
/// so do the programs with which a target was tested.
pub(super) fn address(host: &str) -> Option<IpAddr> {
    host.parse().ok().or_else(|| short(host).map(IpAddr::V4))
}

/// RFC 6761 section 6.3.
pub(super) fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    last.eq_ignore_ascii_case("localhost")
}

/// The forms of inet_aton(3): one to four numbers, of which the last fills the remaining bytes.
fn short(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = host.split('.').collect();
    let (last, first) = parts.split_last()?;
    if first.len() > 3 {
        return None;
    }
    let mut address = 0_u32;
    for part in first {
        address = (address << 8) | u32::from(u8::try_from(number(part)?).ok()?);
    }
    let bytes = 4 - u32::try_from(first.len()).ok()?;
    let rest = number(last)?;
    if bytes < 4 && rest >> (8 * bytes) != 0 {
        return None;
    }
    let shifted = address.checked_shl(8 * bytes).unwrap_or(0);
    Some(Ipv4Addr::from_bits(shifted | rest))
}

/// A number in decimal, octal (`0`) or hexadecimal (`0x`).
fn number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        (None, _) => (text, 10),
    };
    // `from_str_radix` accepts a sign.
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_each_form_that_the_c_library_reads() {
        let shown = |host| address(host).map(|ip| ip.to_string());
        for (host, ip) in [
            ("127.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f.0.0.1", "127.0.0.1"),
            ("010.1.2.3", "8.1.2.3"),
            ("10.1.515", "10.1.2.3"),
            ("0", "0.0.0.0"),
            ("::1", "::1"),
        ] {
            assert_eq!(shown(host).as_deref(), Some(ip), "{host}");
        }
        for host in
            ["", "1.2.3.4.5", "256.1", "1.2.3.256", "1.16777216", "+1", "1.", "08", "0x", "a"]
        {
            assert_eq!(shown(host), None, "{host}");
        }
    }

    #[test]
    fn localhost_and_the_names_below_it_are_loopback() {
        for host in ["localhost", "LocalHost.", "app.localhost", "a.b.LOCALHOST."] {
            assert!(is_localhost(host), "{host}");
        }
        for host in ["localhost.example", "notlocalhost", "local", ""] {
            assert!(!is_localhost(host), "{host}");
        }
    }
}
