//! Why the router leads no port to this machine, for a person.

use std::fmt;
use std::net::IpAddr;

use super::Protocol;

/// Why the router leads no port to this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// There is no default route of IPv4, or it has no gateway.
    NoRouter,
    /// The address towards the router is public.
    NoNat,
    /// The route to the internet does not use the router, as with a VPN.
    OtherWay,
    /// The router responds to no protocol.
    Silent,
    /// The router refuses.
    Denied(Protocol, Denied),
    /// The external address of the router is private: another NAT is in front of the router.
    Private(IpAddr),
    /// The router reported an unreachable external address.
    NoAddress,
    /// The router supports only permanent mappings, which would outlive this process.
    Permanent,
    /// The mapping could not be renewed.
    Lost,
}

/// Why a router refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The settings of the router do not permit it.
    NotAuthorized,
    /// The router has no connection itself, or has a private address.
    NoNetwork,
    /// The router has no room for more mappings.
    Full,
    /// Another code of the protocol.
    Code(u16),
    /// The response of the router cannot be decoded.
    Unreadable,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRouter => f.write_str("this machine has no router for IPv4"),
            Self::NoNat => f.write_str("this machine has a public address itself"),
            Self::OtherWay => {
                f.write_str("this machine reaches the internet by another way than its router")
            }
            Self::Silent => f.write_str("the router answers neither PCP, NAT-PMP nor UPnP"),
            Self::Denied(protocol, why) => write!(f, "the router refuses by {protocol}: {why}"),
            Self::Private(ip) => write!(
                f,
                "the outer address of the router is private ({ip}): a second NAT is in front of it"
            ),
            Self::NoAddress => f.write_str("the router names no address at which it is reached"),
            Self::Permanent => {
                f.write_str("the router opens ports only without an end, which would stay open")
            }
            Self::Lost => f.write_str("the router did not renew the port"),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAuthorized => f.write_str("its settings do not permit it"),
            Self::NoNetwork => f.write_str("it has no public address"),
            Self::Full => f.write_str("it has no room for more ports"),
            Self::Code(code) => write!(f, "error {code}"),
            Self::Unreadable => f.write_str("its answer cannot be read"),
        }
    }
}
