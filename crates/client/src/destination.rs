//! The public address to which a visitor connected, for the header that reports the visitor's
//! address to a target. An OPEN does not carry that address, so this is the address that the server
//! reported for the service.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::{NameKind, Public};
use proto::control::Registered;

/// A port of the server.
#[derive(Clone, Copy, Debug)]
struct PublicPort {
    /// `None`: all addresses of the server.
    bind: Option<IpAddr>,
    port: u16,
}

impl PublicPort {
    /// The place of a public address. The ports for visitors of names are in the answer of the
    /// server if they differ from the standard ports.
    fn of(public: &Public) -> Self {
        match public {
            Public::Tcp { bind, port } | Public::Udp { bind, port } => {
                Self { bind: *bind, port: *port }
            }
            Public::Name { kind, .. } => Self { bind: None, port: usual_port(*kind) },
        }
    }
}

const fn usual_port(kind: NameKind) -> u16 {
    match kind {
        NameKind::Http => 80,
        NameKind::Https | NameKind::Tls => 443,
    }
}

/// The reported addresses of the published services. A stream reads them without a lock.
#[derive(Debug, Default)]
pub(super) struct Places(ArcSwap<HashMap<String, Vec<PublicPort>>>);

impl Places {
    /// Records the answer of the server to a registration.
    pub(super) fn note(&self, registered: &Registered) {
        let published = registered.results.iter().filter_map(|result| {
            let places: Vec<_> =
                result.outcome.as_ref().ok()?.iter().filter_map(|text| parse(text)).collect();
            Some((result.name.as_str().to_owned(), places))
        });
        self.0.store(Arc::new(published.collect()));
    }

    /// The public address of a service for this visitor. `asked` are the addresses that the client
    /// requested; they are used until the server has answered. `server` is the address by which the
    /// client reaches the server, for ports that are open at all addresses of the server.
    pub(super) fn of(
        &self,
        service: &str,
        asked: &[Public],
        visitor: IpAddr,
        server: Option<IpAddr>,
    ) -> SocketAddr {
        let places = self.0.load();
        let known = places.get(service).filter(|known| !known.is_empty());
        match known {
            Some(known) => choose(known, visitor, server),
            None => {
                let asked: Vec<_> = asked.iter().map(PublicPort::of).collect();
                choose(&asked, visitor, server)
            }
        }
    }
}

/// The first place of the visitor's family, else the first place.
fn choose(places: &[PublicPort], visitor: IpAddr, server: Option<IpAddr>) -> SocketAddr {
    let nowhere = match visitor {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let fits = |ip: IpAddr| ip.is_ipv4() == visitor.is_ipv4();
    let at = |place: &PublicPort| {
        let bound = place.bind.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified());
        // Only an address of the visitor's family can be the one to which the visitor connected.
        let server = server.map(|ip| ip.to_canonical()).filter(|ip| fits(*ip));
        SocketAddr::new(bound.or(server).unwrap_or(nowhere), place.port)
    };
    let fitting = places.iter().map(at).find(|address| fits(address.ip()));
    fitting.or_else(|| places.first().map(at)).unwrap_or_else(|| SocketAddr::new(nowhere, 0))
}

/// Parses a reported address. A host name stands for all addresses of the server.
fn parse(text: &str) -> Option<PublicPort> {
    let (scheme, rest) = text.split_once("://")?;
    let kind = [NameKind::Http, NameKind::Https, NameKind::Tls]
        .into_iter()
        .find(|kind| kind.scheme() == scheme);
    if let (None, Ok(address)) = (kind, rest.parse::<SocketAddr>()) {
        return Some(PublicPort { bind: Some(address.ip()), port: address.port() });
    }
    let port = match (rest.rsplit_once(':'), kind) {
        (Some((_, port)), _) => port.parse().ok()?,
        (None, kind) => usual_port(kind?),
    };
    Some(PublicPort { bind: None, port })
}

#[cfg(test)]
mod tests {
    use proto::control::{ServiceError, ServiceErrorCode, ServiceResult};
    use proto::greeting::Name;

    use super::*;

    fn registered(at: &[&str]) -> Registered {
        let name = |text| Name::new(text).unwrap();
        let error = ServiceError { code: ServiceErrorCode::PortTaken, text: String::new() };
        let at = at.iter().map(|&text| text.to_owned()).collect();
        let results = vec![
            ServiceResult::whole(name("ssh"), Ok(at)),
            ServiceResult::whole(name("web"), Err(error)),
        ];
        Registered { generation: 1, results }
    }

    #[test]
    fn the_address_is_the_reported_one_of_the_visitor_s_family() {
        let places = Places::default();
        let asked = [Public::Tcp { bind: None, port: 0 }];
        let (visitor, server) = ("192.0.2.7", Some("198.51.100.1"));
        let of = |visitor: &str, server: Option<&str>| {
            let server = server.map(|ip| ip.parse().unwrap());
            places.of("ssh", &asked, visitor.parse().unwrap(), server).to_string()
        };
        assert_eq!(of(visitor, server), "198.51.100.1:0", "the server has not answered");
        for (at, visitor, server, expected) in [
            (&["tcp://:10022"][..], visitor, server, "198.51.100.1:10022"),
            (&["tcp://:10022"], visitor, Some("::ffff:198.51.100.1"), "198.51.100.1:10022"),
            (&["tcp://:10022"], visitor, Some("2001:db8::1"), "0.0.0.0:10022"),
            (&["tcp://:10022"], "2001:db8::7", server, "[::]:10022"),
            (&["tcp://example.com:10022"], visitor, None, "0.0.0.0:10022"),
            (&["tcp://203.0.113.5:22"], visitor, server, "203.0.113.5:22"),
            (&["tcp://[::]:22"], visitor, server, "198.51.100.1:22"),
            (&["tcp://[2001:db8::5]:1", "tcp://203.0.113.5:2"], visitor, server, "203.0.113.5:2"),
            (&["tcp://203.0.113.5:2", "tcp://[2001:db8::5]:1"], "::1", None, "[2001:db8::5]:1"),
            (&["tcp://[2001:db8::5]:1"], visitor, server, "[2001:db8::5]:1"),
            (&["http://app.example.com"], visitor, server, "198.51.100.1:80"),
            (&["http://app.example.com:8080"], visitor, server, "198.51.100.1:8080"),
            (&["tls://*"], visitor, None, "0.0.0.0:443"),
        ] {
            places.note(&registered(at));
            assert_eq!(of(visitor, server), expected, "{at:?} {visitor} {server:?}");
        }
        places.note(&Registered::default());
        assert_eq!(of(visitor, server), "198.51.100.1:0", "it is published no more");
    }
}
