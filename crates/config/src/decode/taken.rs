//! Which addresses are spoken for. An address that stands for all of a family takes the port of
//! each of them: the second listener would fail at start, on the other machine or after a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Host;

const ALL_V4: Bind = Bind::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
const LAST_V4: Bind = Bind::Ip(IpAddr::V4(Ipv4Addr::BROADCAST));
/// Dual stack.
const ALL: Bind = Bind::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

/// What a listener binds. The order serves the range of IPv4 addresses in [`Taken::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bind {
    /// The server's `public_bind`, `[::]` unless its file says otherwise.
    Public,
    Ip(IpAddr),
}

impl Bind {
    /// As in front of a port: `0.0.0.0`, `[::1]`, nothing for `public_bind`.
    pub(super) fn host(self) -> String {
        match self {
            Self::Public => String::new(),
            Self::Ip(ip) => Host::Ip(ip).to_string(),
        }
    }

    pub(super) fn tcp(self, port: u16) -> String {
        format!("tcp://{}:{port}", self.host())
    }
}

/// Why an address is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    Same,
    /// Another that includes it, or is included.
    Covers(Bind),
}

/// Binds by port.
#[derive(Debug, Default)]
pub(super) struct Taken(BTreeMap<u16, BTreeSet<Bind>>);

impl Taken {
    /// Takes an address; port 0 is always free.
    pub(super) fn take(&mut self, bind: Bind, port: u16) -> Option<Clash> {
        if port == 0 {
            return None;
        }
        let bind = match bind {
            Bind::Ip(ip) => Bind::Ip(ip.to_canonical()),
            Bind::Public => bind,
        };
        let binds = self.0.entry(port).or_default();
        let any_of = |wanted: &[Bind]| wanted.iter().copied().find(|b| binds.contains(b));
        let clash = if binds.contains(&bind) {
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
        };
        binds.insert(bind);
        clash
    }
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
