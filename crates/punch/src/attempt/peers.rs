//! The addresses from which the peer has spoken with the right password.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Addresses that are known at one time. A peer has a few, and each may become a pair that we check.
const AT_ONCE: usize = 32;

/// Addresses of one attempt: a peer whose NAT moves twice a minute for hours has as many.
const ALTOGETHER: usize = 1_024;

/// An address that was silent for this long makes room.
const SILENT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Peers {
    known: Vec<Peer>,
    altogether: usize,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// The address of this machine at which its last message arrived.
    at: Option<IpAddr>,
    heard: Instant,
    answered: Option<Instant>,
    /// Our address, as the peer sees it from there.
    seen_as: Option<SocketAddr>,
}

impl Peers {
    pub(super) const fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A message with the right password came from `address`. `false` when the peer has shown too
    /// many addresses.
    pub(super) fn heard(&mut self, now: Instant, address: SocketAddr, at: Option<IpAddr>) -> bool {
        if let Some(peer) = self.known.iter_mut().find(|peer| peer.address == address) {
            peer.heard = now;
            peer.at = at.or(peer.at);
            return true;
        }
        if self.known.len() >= AT_ONCE {
            self.known.retain(|peer| now.saturating_duration_since(peer.heard) < SILENT);
        }
        if self.known.len() >= AT_ONCE || self.altogether >= ALTOGETHER {
            return false;
        }
        self.altogether += 1;
        self.known.push(Peer { address, at, heard: now, answered: None, seen_as: None });
        true
    }

    /// A check was answered from `address`.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        address: SocketAddr,
        seen_as: Option<SocketAddr>,
    ) {
        if let Some(peer) = self.known.iter_mut().find(|peer| peer.address == address) {
            peer.answered = Some(now);
            peer.seen_as = seen_as.or(peer.seen_as);
        }
    }

    pub(super) fn is_proven(&self, address: SocketAddr) -> bool {
        self.of(address).is_some()
    }

    /// When a check was last answered from `address`, at least `since`.
    pub(super) fn answered(&self, address: SocketAddr, since: Instant) -> Instant {
        self.of(address).and_then(|peer| peer.answered).map_or(since, |at| at.max(since))
    }

    pub(super) fn heard_at(&self, address: SocketAddr) -> Option<IpAddr> {
        self.of(address)?.at
    }

    pub(super) fn seen_as(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.of(address)?.seen_as
    }

    fn of(&self, address: SocketAddr) -> Option<&Peer> {
        self.known.iter().find(|peer| peer.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 1_000 + u16::try_from(number).unwrap()))
    }

    #[test]
    fn a_peer_that_shows_ever_new_addresses_is_bounded() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let taken = (0..1_000).filter(|n| peers.heard(start, address(*n), None)).count();
        assert_eq!(taken, AT_ONCE);
        let mut now = start;
        let mut all = taken;
        for round in 1..100 {
            now += SILENT;
            let new = (0..AT_ONCE).map(|n| address(round * AT_ONCE + n));
            all += new.filter(|new| peers.heard(now, *new, None)).count();
        }
        assert_eq!(all, ALTOGETHER);
    }
}
