//! Limits by the source of a connection count addresses as a provider gives them out.

use std::net::IpAddr;

/// The address prefix that one customer of a provider has at least: 64 bits for IPv6, the whole
/// address for IPv4.
pub(super) fn prefix(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_customer_has_one_address_of_ipv4_and_64_bits_of_ipv6() {
        for (source, of_all) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let [source, of_all] = [source, of_all].map(|text| text.parse().unwrap());
            assert_eq!(prefix(source), of_all);
        }
    }
}
