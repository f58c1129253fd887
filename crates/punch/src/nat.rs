//! NAT behaviour, as far as responses of STUN servers show it (RFC 4787, RFC 5780).

use std::fmt;
use std::net::SocketAddr;

/// The mapping behaviour of a NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// There were fewer than two responses.
    #[default]
    Unknown,
    /// The mapped address is an address of this machine: no NAT.
    None,
    /// Endpoint-independent: one address towards all destinations.
    Same,
    /// Another port, or another address, per destination: the address cannot be announced to a
    /// peer.
    PerDestination,
}

/// The filtering behaviour of a NAT or a firewall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Filtering was not tested.
    #[default]
    Unknown,
    /// Datagrams from any port are admitted.
    Open,
    /// Only datagrams from addresses and ports that were sent to are admitted.
    AddressAndPort,
}

/// Whether UDP passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Udp {
    /// UDP was not tested.
    #[default]
    Unknown,
    /// A STUN server has responded.
    Passes,
    /// No STUN server responded.
    Blocked,
}

/// The known behaviour of the network of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nat {
    /// Whether UDP passes.
    pub udp: Udp,
    /// The mapping behaviour.
    pub mapping: Mapping,
    /// The filtering behaviour.
    pub filtering: Filtering,
}

impl Nat {
    /// Whether datagrams from any port arrive. A machine without NAT is assumed to have no filter
    /// unless one was detected.
    const fn admits_all(self) -> bool {
        match self.filtering {
            Filtering::Open => true,
            Filtering::Unknown => matches!(self.mapping, Mapping::None),
            Filtering::AddressAndPort => false,
        }
    }
}

impl Nat {
    /// The same network with a mapped port of the router for the socket.
    #[must_use]
    pub const fn with_port(self) -> Self {
        Self { mapping: Mapping::Same, filtering: Filtering::Open, ..self }
    }
}

impl Mapping {
    /// Determines the mapping from responses: the server of each, and the mapped address that it
    /// reported. `own` identifies addresses of this machine. All responses must be of one address
    /// family.
    #[must_use]
    pub fn of(answers: &[(SocketAddr, SocketAddr)], own: impl Fn(SocketAddr) -> bool) -> Self {
        match answers {
            [] => Self::Unknown,
            // A server that sees a loopback address is on this machine.
            [(_, seen), ..] if own(*seen) || seen.ip().to_canonical().is_loopback() => Self::None,
            [(server, seen), rest @ ..] => {
                if rest.iter().any(|(_, other)| other != seen) {
                    Self::PerDestination
                } else if rest.iter().any(|(other, _)| other != server) {
                    Self::Same
                } else {
                    Self::Unknown
                }
            }
        }
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::None => "no NAT",
            Self::Same => "one port for all destinations",
            Self::PerDestination => "another port per destination",
        })
    }
}

impl fmt::Display for Filtering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Open => "admits ports that were not sent to",
            Self::AddressAndPort => "admits only addresses and ports that were sent to",
        })
    }
}

/// The expected path to a peer, `direct` or `relayed`.
#[must_use]
pub const fn expectation(ours: Nat, theirs: Nat) -> &'static str {
    use Mapping::PerDestination as Moves;
    match (ours, theirs) {
        (Nat { udp: Udp::Blocked, .. }, _) | (_, Nat { udp: Udp::Blocked, .. }) => "relayed",
        (Nat { mapping: Moves, .. }, theirs) if theirs.admits_all() => "direct",
        (ours, Nat { mapping: Moves, .. }) if ours.admits_all() => "direct",
        (Nat { mapping: Moves, .. }, _) | (_, Nat { mapping: Moves, .. }) => "relayed",
        _ => "direct",
    }
}

/// As [`expectation`], if the behaviour of our side may be partly unknown: `None` if the result
/// depends on the unknown part.
#[must_use]
pub fn prospect(ours: Nat, theirs: Nat) -> Option<&'static str> {
    let mappings = match ours.mapping {
        Mapping::Unknown => &[Mapping::None, Mapping::Same, Mapping::PerDestination][..],
        Mapping::None => &[Mapping::None],
        Mapping::Same => &[Mapping::Same],
        Mapping::PerDestination => &[Mapping::PerDestination],
    };
    let filterings = match ours.filtering {
        Filtering::Unknown => &[Filtering::Open, Filtering::AddressAndPort][..],
        Filtering::Open => &[Filtering::Open],
        Filtering::AddressAndPort => &[Filtering::AddressAndPort],
    };
    let mut all = mappings.iter().flat_map(|mapping| {
        filterings.iter().map(|filtering| {
            let ours = Nat { mapping: *mapping, filtering: *filtering, ..ours };
            expectation(ours, theirs)
        })
    });
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answers: &[(&str, &str)]) -> Mapping {
        let answers: Vec<_> = answers
            .iter()
            .map(|(server, seen)| (server.parse().unwrap(), seen.parse().unwrap()))
            .collect();
        Mapping::of(&answers, |seen| seen.ip().to_string() == "192.0.2.9")
    }

    #[test]
    fn answers_of_two_servers_tell_the_mapping() {
        let (one, two) = ("198.51.100.1:3478", "198.51.100.1:7000");
        assert_eq!(of(&[]), Mapping::Unknown);
        assert_eq!(of(&[(one, "203.0.113.1:9")]), Mapping::Unknown);
        assert_eq!(of(&[(one, "203.0.113.1:9"), (one, "203.0.113.1:9")]), Mapping::Unknown);
        assert_eq!(of(&[(one, "203.0.113.1:9"), (two, "203.0.113.1:9")]), Mapping::Same);
        assert_eq!(of(&[(one, "203.0.113.1:9"), (two, "203.0.113.1:8")]), Mapping::PerDestination);
        assert_eq!(of(&[(one, "192.0.2.9:9")]), Mapping::None);
    }

    #[test]
    fn two_moving_ports_never_meet() {
        let nat = |mapping, filtering| Nat { udp: Udp::Passes, mapping, filtering };
        let plain = nat(Mapping::Same, Filtering::AddressAndPort);
        let cone = nat(Mapping::Same, Filtering::Open);
        let moving = nat(Mapping::PerDestination, Filtering::AddressAndPort);
        let none = nat(Mapping::None, Filtering::Unknown);
        let blocked = Nat { udp: Udp::Blocked, ..Nat::default() };
        for (a, b, expected) in [
            (plain, plain, "direct"),
            (cone, moving, "direct"),
            (none, moving, "direct"),
            (plain, moving, "relayed"),
            (moving, moving, "relayed"),
            (none, blocked, "relayed"),
            (nat(Mapping::None, Filtering::AddressAndPort), moving, "relayed"),
        ] {
            assert_eq!((expectation(a, b), expectation(b, a)), (expected, expected), "{a:?} {b:?}");
        }
    }
    #[test]
    fn what_is_not_known_leaves_a_prospect_open_only_where_it_decides() {
        let nat = |mapping, filtering| Nat { udp: Udp::Passes, mapping, filtering };
        let plain = nat(Mapping::Same, Filtering::AddressAndPort);
        let moving = nat(Mapping::PerDestination, Filtering::AddressAndPort);
        let no_filter_known = nat(Mapping::Same, Filtering::Unknown);
        assert_eq!(prospect(no_filter_known, plain), Some("direct"));
        assert_eq!(prospect(no_filter_known, moving), None);
        let one_answer = nat(Mapping::Unknown, Filtering::Unknown);
        assert_eq!(prospect(one_answer, plain), None);
        assert_eq!(prospect(one_answer, nat(Mapping::None, Filtering::Open)), Some("direct"));
        let blocked = Nat { udp: Udp::Blocked, ..Nat::default() };
        assert_eq!(prospect(blocked, plain), Some("relayed"));
        assert_eq!(prospect(one_answer, blocked), Some("relayed"));
    }
}
