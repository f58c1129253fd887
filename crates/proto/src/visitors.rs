//! The rule that admits visitors of a service by address.

use std::net::IpAddr;

use crate::Networks;

/// The visitors that a service admits. The default admits everybody. A clone shares the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitors {
    /// Only these networks may visit; an empty list admits nobody. `None`: every network may.
    pub allow_from: Option<Networks>,
    /// These networks may not visit, even if they are in `allow_from`.
    pub deny_from: Networks,
}

impl Visitors {
    /// Whether every visitor may visit.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.allow_from.is_none() && self.deny_from.is_empty()
    }

    /// Whether a visitor from this address may visit. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn permit(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        !self.deny_from.contain(ip) && self.allow_from.as_ref().is_none_or(|list| list.contain(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    fn list(networks: &[(&str, u8)]) -> Networks {
        let network =
            |(ip, prefix): &(&str, u8)| Network::new(ip.parse().unwrap(), *prefix).unwrap();
        networks.iter().map(network).collect()
    }

    fn permitted(visitors: &Visitors, ip: &str) -> bool {
        visitors.permit(ip.parse().unwrap())
    }

    #[test]
    fn without_lists_everybody_visits() {
        let visitors = Visitors::default();
        assert!(visitors.are_all());
        assert!(permitted(&visitors, "192.0.2.1") && permitted(&visitors, "2001:db8::1"));
    }

    #[test]
    fn deny_wins_and_allow_from_lets_nobody_else_in() {
        let allow_from = Some(list(&[("192.0.2.0", 24), ("2001:db8::", 32)]));
        let visitors = Visitors { allow_from, deny_from: list(&[("192.0.2.128", 25)]) };
        assert!(!visitors.are_all());
        for (ip, may) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.129", false),
            ("::ffff:192.0.2.129", false),
            ("192.0.3.1", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(permitted(&visitors, ip), may, "{ip}");
        }
    }

    #[test]
    fn deny_from_alone_lets_everybody_else_in() {
        let visitors = Visitors { allow_from: None, deny_from: list(&[("192.0.2.0", 24)]) };
        assert!(!visitors.are_all());
        assert!(!permitted(&visitors, "192.0.2.1") && permitted(&visitors, "198.51.100.1"));
    }

    #[test]
    fn an_empty_allow_from_lets_nobody_in() {
        let visitors = Visitors { allow_from: Some(list(&[])), deny_from: list(&[]) };
        assert!(!visitors.are_all());
        assert!(!permitted(&visitors, "127.0.0.1") && !permitted(&visitors, "::1"));
    }
}
