//! An address of this machine, with the network of its interface.

use std::net::{IpAddr, SocketAddr};

/// Minimum length of a network prefix. A shorter prefix covers a large part of all addresses.
const PREFIX_V4: u8 = 8;
const PREFIX_V6: u8 = 32;

/// An address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address, with the port of the socket.
    pub address: SocketAddr,
    /// An address of the network that the interface reaches.
    pub network: IpAddr,
    /// The prefix length of that network.
    pub prefix: u8,
}

impl OwnAddress {
    /// Converts IPv4-mapped addresses to IPv4.
    pub(crate) fn canonical(self) -> Self {
        let Self { address, network, prefix } = self;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { address, network: network.to_canonical(), prefix }
    }

    /// Whether `ip` is another machine in the network of the interface.
    pub(crate) fn reaches(&self, ip: IpAddr) -> bool {
        match (self.network, ip) {
            _ if self.address.ip() == ip => false,
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let bits = (ours.to_bits() ^ theirs.to_bits()).leading_zeros();
                (PREFIX_V4..32).contains(&self.prefix) && bits >= self.prefix.into()
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let bits = (ours.to_bits() ^ theirs.to_bits()).leading_zeros();
                (PREFIX_V6..128).contains(&self.prefix) && bits >= self.prefix.into()
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// An address whose network is unknown.
impl From<SocketAddr> for OwnAddress {
    fn from(address: SocketAddr) -> Self {
        Self { address, network: address.ip(), prefix: u8::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_the_same_network_is_reached_and_no_other() {
        for (address, network, prefix, ip, is_reached) in [
            ("192.168.7.1", "192.168.7.1", 24, "192.168.7.2", true),
            ("192.168.7.1", "192.168.7.1", 24, "192.168.8.2", false),
            ("192.168.7.1", "192.168.7.1", 24, "192.168.7.1", false),
            ("10.8.0.2", "10.8.0.1", 31, "10.8.0.1", true),
            ("10.8.0.2", "10.8.0.2", 32, "10.8.0.2", false),
            ("10.8.0.2", "10.8.0.2", 0, "192.0.2.1", false),
            ("2001:db8::1", "2001:db8::1", 64, "2001:db8::2", true),
            ("2001:db8::1", "2001:db8::1", 64, "2001:db8:1::2", false),
            ("2001:db8::1", "2001:db8::1", 64, "192.0.2.1", false),
        ] {
            let address = SocketAddr::new(address.parse().unwrap(), 9);
            let host = OwnAddress { address, network: network.parse().unwrap(), prefix };
            assert_eq!(host.reaches(ip.parse().unwrap()), is_reached, "{address}/{prefix} {ip}");
        }
        let alone = OwnAddress::from("192.0.2.1:9".parse::<SocketAddr>().unwrap());
        assert!(!alone.reaches("192.0.2.2".parse().unwrap()));
    }
}
