//! The addresses from which the peer has sent messages with the correct password.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum number of concurrent addresses. A peer has a few, and each may become a pair that we
/// check.
const AT_ONCE: usize = 32;

/// Maximum number of addresses in one attempt: those of a peer whose NAT mapping changes twice a
/// minute for hours.
const ALTOGETHER: usize = 1_024;

/// Maximum number of addresses of this end that the responses of one attempt may report. Each NAT
/// in front of this end creates one per path, and another one with each change of a mapping.
const NAMED: usize = 32;

/// The silence after which an address is evicted to make room.
const SILENT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Peers {
    known: Vec<Peer>,
    altogether: usize,
    /// The addresses of this end that responses have reported.
    named: Vec<SocketAddr>,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// The address of this machine at which its last message arrived.
    at: Option<IpAddr>,
    heard: Instant,
    answered: Option<Instant>,
    /// Our address as seen by the peer from that address.
    seen_as: Option<SocketAddr>,
}

impl Peers {
    pub(super) const fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a message from `address` can be accepted. `false` if the peer has used too many
    /// addresses.
    pub(super) fn has_room(&mut self, now: Instant, address: SocketAddr) -> bool {
        if self.of(address).is_some() {
            return true;
        }
        if self.known.len() >= AT_ONCE {
            self.known.retain(|peer| now.saturating_duration_since(peer.heard) < SILENT);
        }
        self.known.len() < AT_ONCE && self.altogether < ALTOGETHER
    }

    /// Records a message with the correct password from `address`, for which there is room.
    pub(super) fn heard(&mut self, now: Instant, address: SocketAddr, at: Option<IpAddr>) {
        if let Some(peer) = self.known.iter_mut().find(|peer| peer.address == address) {
            peer.heard = now;
            peer.at = at.or(peer.at);
            return;
        }
        self.altogether += 1;
        self.known.push(Peer { address, at, heard: now, answered: None, seen_as: None });
    }

    /// Whether a response may report this address as ours. `false` if responses have reported too
    /// many addresses: one request can get any number of responses.
    pub(super) fn may_name(&self, ours: SocketAddr) -> bool {
        self.named.len() < NAMED || self.named.contains(&ours)
    }

    /// Records the response to a check from `address`, with the correct password.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        address: SocketAddr,
        seen_as: Option<SocketAddr>,
    ) {
        self.named.extend(seen_as.filter(|ours| !self.named.contains(ours)));
        if let Some(peer) = self.known.iter_mut().find(|peer| peer.address == address) {
            peer.answered = Some(now);
            peer.seen_as = seen_as.or(peer.seen_as);
        }
    }

    pub(super) fn is_proven(&self, address: SocketAddr) -> bool {
        self.of(address).is_some()
    }

    /// Whether a check was answered from this address. A check of the peer may have a spoofed
    /// source address; the response to ours cannot.
    pub(super) fn has_answered(&self, address: SocketAddr) -> bool {
        self.of(address).is_some_and(|peer| peer.answered.is_some())
    }

    /// The time at which a check was last answered from `address`, at least `since`.
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
    use crate::testing::epoch;

    fn address(number: usize) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 1_000 + u16::try_from(number).unwrap()))
    }

    #[test]
    fn a_peer_that_shows_ever_new_addresses_is_bounded() {
        let (mut peers, start) = (Peers::default(), epoch());
        let heard = |peers: &mut Peers, now, address| {
            let has_room = peers.has_room(now, address);
            if has_room {
                peers.heard(now, address, None);
            }
            has_room
        };
        let taken = (0..1_000).filter(|n| heard(&mut peers, start, address(*n))).count();
        assert_eq!(taken, AT_ONCE);
        let mut now = start;
        let mut all = taken;
        for round in 1..100 {
            now += SILENT;
            let new = (0..AT_ONCE).map(|n| address(round * AT_ONCE + n));
            all += new.filter(|new| heard(&mut peers, now, *new)).count();
        }
        assert_eq!(all, ALTOGETHER);
    }
}
