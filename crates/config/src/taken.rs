//! Finds conflicts of listeners. A wildcard address occupies the port on every address of its
//! family. Without this check, the second listener would fail later: at the start, on the other
//! machine or after a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Host, Over};

const ALL_V4: Bind = Bind::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
const LAST_V4: Bind = Bind::Ip(IpAddr::V4(Ipv4Addr::BROADCAST));
/// All IPv6 addresses and, as a dual-stack listener, all IPv4 addresses.
const ALL: Bind = Bind::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

/// The address of a listener. The order of the variants and addresses is needed for the range of
/// IPv4 addresses in [`Taken::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bind {
    /// The server's `public_bind`, `[::]` unless its file says otherwise.
    Public,
    Ip(IpAddr),
}

impl Bind {
    /// The address of a public port.
    pub(crate) fn of(bind: Option<IpAddr>) -> Self {
        bind.map_or(Self::Public, Self::Ip)
    }

    /// The text before the port: `0.0.0.0`, `[::1]`, or an empty text for `public_bind`.
    pub(crate) fn host(self) -> String {
        match self {
            Self::Public => String::new(),
            Self::Ip(ip) => Host::Ip(ip).to_string(),
        }
    }

    pub(crate) fn url(self, over: Over, port: u16) -> String {
        format!("{over}://{}:{port}", self.host())
    }

    fn canonical(self) -> Self {
        match self {
            Self::Ip(ip) => Self::Ip(ip.to_canonical()),
            Self::Public => self,
        }
    }
}

/// The reason why an address is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    Same,
    /// Another address includes this address, or this address includes another.
    Covers(Bind),
}

/// The occupied addresses of each port.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeMap<u16, BTreeSet<Bind>>);

impl Taken {
    /// Occupies an address and returns the conflict, if there is one. Port 0 never conflicts.
    pub(crate) fn take(&mut self, bind: Bind, port: u16) -> Option<Clash> {
        let clash = self.clash(bind, port);
        if port != 0 {
            self.0.entry(port).or_default().insert(bind.canonical());
        }
        clash
    }

    /// The conflict of an address with the occupied addresses, if there is one.
    pub(crate) fn clash(&self, bind: Bind, port: u16) -> Option<Clash> {
        // Port 0 is never occupied.
        let (bind, binds) = (bind.canonical(), self.0.get(&port)?);
        let any_of = |wanted: &[Bind]| wanted.iter().copied().find(|b| binds.contains(b));
        if binds.contains(&bind) {
            Some(Clash::Same)
        } else {
            match bind {
                ALL => binds.first().copied(),
                ALL_V4 => any_of(&[Bind::Public, ALL])
                    .or_else(|| binds.range(ALL_V4..=LAST_V4).next().copied()),
                Bind::Public | Bind::Ip(IpAddr::V4(_)) => any_of(&[ALL, ALL_V4]),
                Bind::Ip(IpAddr::V6(_)) => any_of(&[ALL]),
            }
            .map(Clash::Covers)
        }
    }
}

/// The addresses of the listeners decoded so far. The same port number of TCP and of UDP counts as
/// two ports.
#[derive(Default)]
pub(crate) struct Addresses {
    pub(crate) tcp: Taken,
    pub(crate) udp: Taken,
    pub(crate) names: BTreeSet<(String, u16, bool)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_all_overlaps_each_of_its_family() {
        let bind = |text: &str| match text {
            "" => Bind::Public,
            ip => Bind::Ip(ip.parse().unwrap()),
        };
        let table = [
            ("::", "0.0.0.0", true),
            ("::", "127.0.0.1", true),
            ("::", "::1", true),
            ("::", "", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("0.0.0.0", "::1", false),
            ("0.0.0.0", "", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::1", false),
            // The client does not know the server's public_bind.
            ("127.0.0.1", "", false),
        ];
        for (a, b, overlap) in table {
            for (first, second) in [(a, b), (b, a)] {
                let mut taken = Taken::default();
                assert_eq!(taken.take(bind(first), 80), None);
                assert_eq!(taken.take(bind(second), 81), None);
                let clash = taken.take(bind(second), 80);
                let expected = overlap.then(|| Clash::Covers(bind(first)));
                assert_eq!(clash, expected, "{first} then {second}");
                assert_eq!(taken.take(bind(second), 80), Some(Clash::Same));
            }
        }
        let mut taken = Taken::default();
        assert_eq!(taken.take(bind("::ffff:127.0.0.1"), 80), None, "mapped, so of IPv4");
        assert_eq!(taken.take(ALL_V4, 80), Some(Clash::Covers(bind("127.0.0.1"))));
        assert_eq!((taken.take(ALL, 0), taken.take(ALL, 0)), (None, None));
    }
}
