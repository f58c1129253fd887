//! The notation of a network in a file, and files of networks.

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

/// The networks of a file, with a network or an address in each line. Blank lines are ignored, as
/// is the rest of a line behind `#`.
///
/// With `countries`, the file is a list of countries: each line is `network,country`, with a code
/// of two letters (ISO 3166-1), and the networks of these countries are taken. The first line that
/// is not blank may name the two columns. The columns may change places, and blanks may divide
/// them.
pub(crate) fn listed(text: &str, countries: &[&str]) -> Result<Vec<Network>, BadValue> {
    let (mut found, mut seen) = (Vec::new(), vec![false; countries.len()]);
    let mut is_first = true;
    let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    for (line, number) in lines {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        let mut fields =
            line.split([',', ' ', '\t']).map(str::trim).filter(|part| !part.is_empty());
        let Some(first) = fields.next() else { continue };
        let (second, third) = (fields.next(), fields.next());
        let is_name = |field: &str| field.eq_ignore_ascii_case("network");
        if std::mem::take(&mut is_first) && (is_name(first) || second.is_some_and(is_name)) {
            continue;
        }
        let net = |text: &str| text.parse::<Net>().ok().map(Net::network);
        let (network, country) = match (net(first), second) {
            (Some(network), country) => (Some(network), country),
            (None, Some(second)) => (net(second), Some(first)),
            (None, None) => (None, None),
        };
        // No message repeats a line of the file, which may be any file.
        let bad = |what: &str| BadValue::new(format!("line {number} {what}"));
        let (Some(network), None) = (network, third) else {
            let hint = "each line is 192.0.2.0/24, or 192.0.2.0/24,DE in a list of countries";
            return Err(bad("is no address and no network").hint(hint));
        };
        match country {
            None if countries.is_empty() => found.push(network),
            None => return Err(bad("has no country").hint("each line is 192.0.2.0/24,DE")),
            Some(_) if countries.is_empty() => {
                return Err(bad("has a country").hint("choose countries: \"@FILE:DE,AT\""));
            }
            Some(country) => {
                let is = |code: &&str| code.eq_ignore_ascii_case(country);
                if let Some(seen) = countries.iter().position(is).and_then(|n| seen.get_mut(n)) {
                    *seen = true;
                    found.push(network);
                }
            }
        }
    }
    match countries.iter().zip(seen).find(|(_, seen)| !seen) {
        Some((code, _)) => Err(BadValue::new(format!("no network of the country {code}"))
            .hint("codes have two letters, as in the file: DE")),
        None => Ok(found),
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

    fn shown(text: &str, countries: &[&str]) -> String {
        match listed(text, countries) {
            Ok(found) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(bad) => bad.message,
        }
    }

    #[test]
    fn a_file_has_a_network_in_each_line() {
        let text = "\u{feff}# blocked\r\n192.0.2.0/24\r\n\n 198.51.100.7 # one\n2001:db8::/32";
        assert_eq!(shown(text, &[]), "192.0.2.0/24 198.51.100.7 2001:db8::/32");
        assert_eq!(shown("", &[]), "");
        for (text, why) in [
            ("10.0.0.0/8\nroot:x:0", "line 2 is no address and no network"),
            ("10.0.0.0/33", "line 1 is no address and no network"),
            ("10.0.0.0/8,DE,more", "line 1 is no address and no network"),
            ("10.0.0.0/8,DE", "line 1 has a country"),
        ] {
            assert_eq!(shown(text, &[]), why);
        }
    }

    #[test]
    fn a_list_of_countries_has_those_that_are_chosen() {
        let text =
            "network,country\n10.0.0.0/8,DE\nAT,10.1.0.0/16\n2001:db8::/32 CH\n11.0.0.0/8,de";
        assert_eq!(shown(text, &["DE"]), "10.0.0.0/8 11.0.0.0/8");
        assert_eq!(shown(text, &["at", "CH"]), "10.1.0.0/16 2001:db8::/32");
        assert_eq!(shown(text, &["DE", "FR"]), "no network of the country FR");
        assert_eq!(shown("10.0.0.0/8", &["DE"]), "line 1 has no country");
        let with_comment = format!("# of 2026\n\n{}", text.replace("network", "Network"));
        assert_eq!(shown(&with_comment, &["CH"]), "2001:db8::/32");
        let twice = format!("{text}\ncountry,network");
        assert_eq!(shown(&twice, &["CH"]), "line 6 is no address and no network");
    }
}
