//! The notation of a network in a file.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::Network;

use crate::{BadValue, Host};

/// A network as a file writes it: `10.0.0.0/8`, `192.0.2.1`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net(Network);

impl Net {
    /// `None` if the prefix is not a valid length for this kind of address. Without a prefix, the
    /// network is the address alone.
    pub(crate) fn new(ip: IpAddr, prefix: Option<&str>) -> Option<Self> {
        let prefix = match prefix {
            Some(p) if p.bytes().all(|b| b.is_ascii_digit()) => p.parse().ok()?,
            Some(_) => return None,
            None if ip.is_ipv4() => 32,
            None => 128,
        };
        Network::new(ip, prefix).map(Self)
    }

    /// The network.
    #[must_use]
    pub const fn network(self) -> Network {
        self.0
    }

    /// Whether the network contains this address, which is in canonical form.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(ip)
    }
}

impl FromStr for Net {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (text, None),
        };
        // No port can follow here, so brackets are not needed.
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
        bare.parse().ok().and_then(|ip| Self::new(ip, prefix)).ok_or_else(|| {
            BadValue::new(format!("`{text}` is not an address or a network"))
                .hint("for example 127.0.0.1, 10.0.0.0/8 or 2001:db8::/32")
        })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Host::Ip(self.0.ip()), self.0.prefix())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_shown_network_reads_back(ip: IpAddr, prefix in 0_u8..=32) {
            let net = Net::new(ip, Some(&prefix.to_string())).unwrap();
            prop_assert_eq!(net.to_string().parse(), Ok(net));
            prop_assert!(net.contains(net.0.ip()));
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "a", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/", "10.0.0.1:80"] {
            assert!(bad.parse::<Net>().is_err(), "{bad}");
        }
        let net: Net = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(net.to_string(), "10.0.0.0/8");
        assert!(net.contains("10.9.9.9".parse().unwrap()));
        assert!(!net.contains("::1".parse().unwrap()));
    }
}
