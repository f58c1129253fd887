//! The load balancers that put a header of the PROXY protocol in front of the bytes of a visitor
//! (`accept_proxy`, `trusted_proxies`). A header from any other peer is payload, and is not parsed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::{AcceptProxy, Net, Over, ServerConfig};

/// The balancers in front of one entrance.
pub enum Announcers {
    /// The balancers of an entrance of the process's own configuration. A reload replaces them.
    Own(ArcSwap<Vec<Net>>),
    /// The balancers of a published port.
    Port(Over, SocketAddr, Arc<ArcSwap<Balancers>>),
    /// The entrance has no port.
    Nobody,
}

/// The balancers in front of the published ports of a server.
#[derive(Debug, Default)]
pub struct Balancers {
    /// The ports; `None`: no port expects a header.
    ports: Option<AcceptProxy>,
    trusted: Vec<Net>,
}

impl Balancers {
    /// The balancers of a configuration.
    pub fn of(config: &ServerConfig) -> Self {
        let AcceptProxy { tcp, udp } = &config.accept_proxy;
        let has_some = !tcp.rights.is_empty() || !udp.rights.is_empty();
        let ports = has_some.then(|| config.accept_proxy.clone());
        Self { ports, trusted: config.trusted_proxies.clone() }
    }

    fn announce(&self, over: Over, at: SocketAddr, ip: IpAddr) -> bool {
        self.ports.as_ref().is_some_and(|ports| {
            let ports = match over {
                Over::Tcp => &ports.tcp,
                Over::Udp => &ports.udp,
            };
            ports.permits(at.ip(), at.port()) && contains(&self.trusted, ip)
        })
    }
}

fn contains(nets: &[Net], ip: IpAddr) -> bool {
    // An IPv4 balancer at a dual-stack port is an IPv4 balancer.
    let ip = ip.to_canonical();
    nets.iter().any(|net| net.contains(ip))
}

impl fmt::Debug for Announcers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(nets) => f.debug_tuple("Own").field(&nets.load()).finish(),
            Self::Port(over, at, _) => write!(f, "Port({over} {at})"),
            Self::Nobody => f.write_str("Nobody"),
        }
    }
}

impl Announcers {
    /// Returns the balancers of an entrance of the process's own configuration.
    pub fn own(nets: &[Net]) -> Self {
        Self::Own(ArcSwap::from_pointee(nets.to_vec()))
    }

    /// Replaces the balancers of an entrance of the process's own configuration.
    pub fn set(&self, nets: &[Net]) {
        if let Self::Own(known) = self {
            known.store(Arc::new(nets.to_vec()));
        }
    }

    /// Whether a connection or a datagram from this address begins with a header.
    pub(crate) fn contain(&self, peer: Option<SocketAddr>) -> bool {
        let Some(ip) = peer.map(|peer| peer.ip()) else { return false };
        match self {
            Self::Own(nets) => contains(&nets.load(), ip),
            Self::Port(over, at, balancers) => balancers.load().announce(*over, *at, ip),
            Self::Nobody => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use config::{PortRight, PortRights};

    use super::*;

    #[test]
    fn a_header_is_looked_for_at_these_ports_and_from_these_addresses() {
        let bind: IpAddr = [0, 0, 0, 0].into();
        let ports = |text: &str| PortRights {
            default_bind: Some(bind),
            rights: Vec::from([text.parse::<PortRight>().unwrap()]),
        };
        let ports = AcceptProxy { tcp: ports("10000-10010"), udp: ports("53") };
        let trusted = Vec::from(["10.0.0.0/8".parse().unwrap()]);
        let balancers = Balancers { ports: Some(ports), trusted };
        let balancers = Arc::new(ArcSwap::from_pointee(balancers));
        let at = |over, port| Announcers::Port(over, (bind, port).into(), Arc::clone(&balancers));
        let may = |over, port, from: &str| at(over, port).contain(Some(from.parse().unwrap()));
        assert!(may(Over::Tcp, 10005, "10.1.2.3:4") && may(Over::Udp, 53, "10.1.2.3:4"));
        assert!(may(Over::Tcp, 10005, "[::ffff:10.1.2.3]:4"));
        assert!(!may(Over::Tcp, 10005, "192.0.2.1:4") && !may(Over::Tcp, 10011, "10.1.2.3:4"));
        assert!(!may(Over::Udp, 10005, "10.1.2.3:4") && !at(Over::Tcp, 10005).contain(None));
        balancers.store(Arc::default());
        assert!(!may(Over::Tcp, 10005, "10.1.2.3:4"));
        let own = Announcers::own(&["192.0.2.0/24".parse().unwrap()]);
        assert!(own.contain("192.0.2.1:5".parse().ok()));
        own.set(&[]);
        assert!(!own.contain("192.0.2.1:5".parse().ok()));
    }
}
