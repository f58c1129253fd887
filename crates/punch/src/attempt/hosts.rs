//! Compares the addresses of this machine with those of the peer: which of ours to announce, and
//! which of the peer's to check.
//!
//! A machine announces a part of its addresses. Once the other end has announced some, more is
//! known: if an address of one end is in the network of the other, they are neighbours. An address
//! that both have, such as that of Docker's first bridge, is useless for both.

use std::net::{IpAddr, SocketAddr};

use crate::signal::Offer;
use crate::{Kind, OwnAddress};

/// Maximum number of stored addresses. A few of them are announced; the others identify our own
/// addresses.
const MOST: usize = 512;

/// All addresses of this machine, whether they are announced or not.
#[derive(Debug)]
pub(super) struct Hosts(Vec<OwnAddress>);

impl Hosts {
    /// The addresses, best first.
    pub(super) fn new(all: &[OwnAddress]) -> Self {
        Self(all.iter().take(MOST).map(|host| host.canonical()).collect())
    }

    /// Whether this is our socket.
    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|host| host.address == address)
    }

    fn have(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|host| host.address.ip() == ip)
    }

    /// Whether an address of the peer belongs to this machine as well and so does not reach the
    /// peer. A peer whose addresses are all ours is on this machine, and reachable at each of them.
    pub(super) fn share(&self, offer: &Offer, ip: IpAddr) -> bool {
        self.have(ip) && of_interfaces(offer).any(|theirs| !self.have(theirs))
    }

    /// Whether an address of the peer is in the network of one of our interfaces.
    pub(super) fn are_near(&self, ip: IpAddr) -> bool {
        !self.have(ip) && self.0.iter().any(|host| host.reaches(ip))
    }

    /// Our addresses in networks where the peer has an address.
    pub(super) fn near(&self, offer: &Offer) -> impl Iterator<Item = SocketAddr> {
        let theirs: Vec<_> = of_interfaces(offer).filter(|ip| !self.have(*ip)).collect();
        let worth = self.worth(Some(offer));
        worth.filter(move |host| theirs.iter().any(|ip| host.reaches(*ip))).map(|host| host.address)
    }

    /// Our addresses that the machine of the peer does not have itself, best first.
    pub(super) fn worth(&self, offer: Option<&Offer>) -> impl Iterator<Item = OwnAddress> {
        let theirs: Vec<_> = offer.into_iter().flat_map(of_interfaces).collect();
        let is_elsewhere = theirs.iter().any(|ip| !self.have(*ip));
        let ours = self.0.iter().copied();
        ours.filter(move |host| !is_elsewhere || !theirs.contains(&host.address.ip()))
    }
}

/// The host addresses that the peer announces.
fn of_interfaces(offer: &Offer) -> impl Iterator<Item = IpAddr> {
    let announced = offer.candidates.iter().filter(|one| one.kind == Kind::Host);
    announced.map(|one| one.address.ip())
}
