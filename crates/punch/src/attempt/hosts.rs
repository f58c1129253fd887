//! The addresses of this machine beside those of the peer: which of ours are worth telling, and
//! which of the peer's are worth a check.
//!
//! A machine tells a part of its addresses. As soon as the other end has told some, both ends know
//! more: where an address of each is in the network of the other, they are neighbours. An address
//! that both have, such as that of the first bridge of Docker, leads to neither.

use std::net::{IpAddr, SocketAddr};

use crate::signal::Offer;
use crate::{Kind, OwnAddress};

/// Addresses that are kept. A peer is told a few of them; the others tell what is our own.
const MOST: usize = 512;

/// All addresses of this machine, whether they are told or not.
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

    /// Whether an address of the peer leads to this machine. A peer whose addresses are all ours is
    /// on this machine, and reached by each of them.
    pub(super) fn share(&self, offer: &Offer, ip: IpAddr) -> bool {
        self.have(ip) && of_interfaces(offer).any(|theirs| !self.have(theirs))
    }

    /// Whether an address of the peer is in the network of one of our interfaces.
    pub(super) fn are_near(&self, ip: IpAddr) -> bool {
        !self.have(ip) && self.0.iter().any(|host| host.reaches(ip))
    }

    /// Our addresses in whose network the peer has an address.
    pub(super) fn near(&self, offer: &Offer) -> impl Iterator<Item = SocketAddr> {
        let theirs: Vec<_> = of_interfaces(offer).filter(|ip| !self.have(*ip)).collect();
        let worth = self.worth(Some(offer));
        worth.filter(move |host| theirs.iter().any(|ip| host.reaches(*ip))).map(|host| host.address)
    }

    /// Our addresses that do not lead to the machine of the peer itself, best first.
    pub(super) fn worth(&self, offer: Option<&Offer>) -> impl Iterator<Item = OwnAddress> {
        let theirs: Vec<_> = offer.into_iter().flat_map(of_interfaces).collect();
        let is_elsewhere = theirs.iter().any(|ip| !self.have(*ip));
        let ours = self.0.iter().copied();
        ours.filter(move |host| !is_elsewhere || !theirs.contains(&host.address.ip()))
    }
}

/// The addresses of the interfaces that the peer tells.
fn of_interfaces(offer: &Offer) -> impl Iterator<Item = IpAddr> {
    let announced = offer.candidates.iter().filter(|one| one.kind == Kind::Host);
    announced.map(|one| one.address.ip())
}
