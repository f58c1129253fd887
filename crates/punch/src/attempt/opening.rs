//! Opens our own NATs towards the peer before any of our datagrams reaches the NAT of the peer.
//!
//! A router that only translates addresses, and does not drop unsolicited datagrams, treats such a
//! datagram as the start of a connection with itself. A datagram of the host behind it then
//! conflicts with that connection, gets another port, and the pair is lost: every Linux NAT without
//! a filter does so, as on a machine with containers. So the first datagrams to an address behind a
//! NAT have a low hop limit. They pass our own NATs and expire on the path.
//!
//! ```text
//!   this end                          its signals                           the peer
//!   2 hops: through the first NAT  ── opened 1 ──>  <── opened 1 ──  2 hops
//!   3 hops: through a second one   ── opened 2 ──>  <── opened 2 ──  3 hops
//!   4 hops, 6 hops: a provider's   ── …        ──>  <── …        ──
//!   the default hop limit
//! ```
//!
//! An end takes the next step when the peer has reached the same step, so neither reaches a NAT
//! that is not open. Host addresses, mapped ports, addresses from which the peer has sent, and ends
//! without a NAT need no opening.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The hop limit of each step. A home has one NAT, or two in a row; a carrier-grade NAT is some
/// hops further away.
const HOPS: [u8; 4] = [2, 3, 4, 6];

/// All steps are completed.
const DONE: usize = HOPS.len();

/// Maximum number of addresses that are opened. A peer announces two of each family.
const ADDRESSES: usize = 4;

/// Timeout of a step for a peer that announces its steps. Its signals arrive through the server,
/// and it queries STUN servers before the first one.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Timeout of a step for a peer that does not announce its steps.
const OF_OLDER: Duration = Duration::from_millis(500);

/// Maximum time to open an address.
const WHOLE: Duration = Duration::from_secs(4);

/// Delay before a datagram that the owner could not send is retried.
const AGAIN: Duration = Duration::from_millis(200);

/// The known progress of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSteps {
    /// The number of steps of the peer towards our addresses; `None`: the peer does not announce
    /// it.
    pub(super) steps: Option<u8>,
    /// The time at which our addresses were announced to the peer.
    pub(super) announced: Option<Instant>,
}

/// The addresses that are opened.
#[derive(Debug, Default)]
pub(super) struct NatOpening(Vec<Remote>);

#[derive(Debug)]
struct Remote {
    address: SocketAddr,
    began: Instant,
    /// The number of completed steps, and the time of the last step.
    steps: usize,
    last: Option<Instant>,
    /// Nothing is sent before this time.
    again: Option<Instant>,
}

impl Remote {
    /// The time at which the next step is due, or its timeout if the peer stays silent; `None`: all
    /// steps are completed.
    fn due(&self, peer: PeerSteps) -> Option<Instant> {
        let Some(last) = self.last else { return Some(self.again.unwrap_or(self.began)) };
        let has_come = peer.steps.is_some_and(|steps| usize::from(steps) >= self.steps);
        if self.steps > DONE {
            return None;
        }
        let due = if has_come {
            last
        } else {
            let patience = if peer.steps.is_some() { PATIENCE } else { OF_OLDER };
            let since = peer.announced.map(|announced| announced.max(last) + patience);
            since.map_or(self.began + WHOLE, |since| since.min(self.began + WHOLE))
        };
        Some(due.max(self.again.unwrap_or(due)))
    }

    const fn hops(&self) -> Option<u8> {
        if self.steps > DONE { None } else { Some(HOPS[self.steps.saturating_sub(1)]) }
    }
}

impl NatOpening {
    /// Begins to open an announced reflexive address of the peer.
    pub(super) fn begin(&mut self, now: Instant, address: SocketAddr) {
        if self.0.len() < ADDRESSES {
            let (steps, last, again) = (0, None, None);
            self.0.push(Remote { address, began: now, steps, last, again });
        }
    }

    /// The hop limit of a check to this address; `None`: the default.
    pub(super) fn hops(&self, to: SocketAddr) -> Option<u8> {
        self.0.iter().find(|one| one.address == to).and_then(Remote::hops)
    }

    /// The number of completed steps towards each of these addresses. For an address that is not
    /// opened, the peer need not wait.
    pub(super) fn steps(&self, of: impl Iterator<Item = SocketAddr>) -> Vec<u8> {
        let steps = |address| {
            let known = self.0.iter().find(|one| one.address == address);
            u8::try_from(known.map_or(DONE, |one| one.steps.min(DONE))).unwrap_or(u8::MAX)
        };
        of.map(steps).collect()
    }

    /// The time at which the next step is due, given the steps of the peer for the family of an
    /// address.
    pub(super) fn poll_timeout(&self, peer: impl Fn(SocketAddr) -> PeerSteps) -> Option<Instant> {
        self.0.iter().filter_map(|one| one.due(peer(one.address))).min()
    }

    /// Performs a step that is due. Returns the address, and the hop limit of the datagram. The
    /// last step ends the opening, and sends nothing.
    pub(super) fn step(
        &mut self,
        now: Instant,
        peer: impl Fn(SocketAddr) -> PeerSteps,
    ) -> Option<(SocketAddr, Option<u8>)> {
        let is_due = |one: &&mut Remote| one.due(peer(one.address)).is_some_and(|due| due <= now);
        let one = self.0.iter_mut().find(is_due)?;
        one.steps += 1;
        (one.last, one.again) = (Some(now), None);
        Some((one.address, one.hops()))
    }

    /// Records that the datagram of the last step was not sent.
    pub(super) fn unsent(&mut self, now: Instant, to: SocketAddr) {
        if let Some(one) = self.0.iter_mut().find(|one| one.address == to)
            && (1..=DONE).contains(&one.steps)
        {
            one.steps -= 1;
            one.again = Some(now + AGAIN);
            if one.steps == 0 {
                one.last = None;
            }
        }
    }

    /// Removes an address from which the peer has sent, so that its NAT is open.
    pub(super) fn is_open(&mut self, address: SocketAddr) {
        self.0.retain(|one| one.address != address);
    }

    /// Removes all addresses of a family in which this end has no NAT.
    pub(super) fn end_of(&mut self, is_v4: bool) {
        self.0.retain(|one| one.address.is_ipv4() != is_v4);
    }

    pub(super) fn end(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    const MILLI: Duration = Duration::from_millis(1);

    fn remote() -> SocketAddr {
        "203.0.113.2:9".parse().unwrap()
    }

    #[test]
    fn an_end_goes_further_when_the_peer_has_come_as_far() {
        let now = epoch();
        let mut opening = NatOpening::default();
        opening.begin(now, remote());
        let peer = |steps| move |_| PeerSteps { steps: Some(steps), announced: Some(now) };
        assert_eq!(opening.step(now, peer(0)), Some((remote(), Some(2))));
        assert_eq!(opening.step(now + MILLI, peer(0)), None);
        assert_eq!(opening.steps([remote()].into_iter()), [1]);
        for (known, hops) in [(1, Some(3)), (2, Some(4)), (3, Some(6)), (4, None)] {
            assert_eq!(opening.step(now + MILLI, peer(known - 1)), None);
            assert_eq!(opening.step(now + MILLI, peer(known)), Some((remote(), hops)));
            assert_eq!(opening.hops(remote()), hops);
        }
        assert_eq!(opening.step(now + WHOLE, peer(4)), None);
        assert_eq!(opening.poll_timeout(peer(4)), None);
    }

    #[test]
    fn a_peer_that_stays_silent_or_tells_nothing_is_waited_for_within_bounds() {
        let now = epoch();
        for (steps, announced, first) in [
            (Some(0), Some(now), PATIENCE),
            (None, Some(now), OF_OLDER),
            (Some(0), None, WHOLE),
            (None, None, WHOLE),
        ] {
            let mut opening = NatOpening::default();
            opening.begin(now, remote());
            let peer = |_| PeerSteps { steps, announced };
            assert!(opening.step(now, peer).is_some());
            assert_eq!(opening.poll_timeout(peer), Some(now + first));
            while let Some(due) = opening.poll_timeout(peer) {
                assert!(due <= now + WHOLE);
                assert!(opening.step(due, peer).is_some());
            }
            assert_eq!(opening.hops(remote()), None);
        }
    }

    #[test]
    fn a_step_whose_datagram_has_not_left_is_done_again() {
        let mut now = epoch();
        let mut opening = NatOpening::default();
        opening.begin(now, remote());
        let announced = Some(now);
        let peer = |_| PeerSteps { steps: Some(4), announced };
        for hops in HOPS {
            assert_eq!(opening.step(now, peer), Some((remote(), Some(hops))));
            opening.unsent(now, remote());
            assert_eq!(opening.step(now, peer), None);
            assert_eq!(opening.poll_timeout(peer), Some(now + AGAIN));
            now += AGAIN;
            assert_eq!(opening.step(now, peer), Some((remote(), Some(hops))));
        }
    }

    #[test]
    fn few_addresses_are_opened() {
        let now = epoch();
        let mut opening = NatOpening::default();
        (1..100).for_each(|port| opening.begin(now, SocketAddr::from(([203, 0, 113, 2], port))));
        assert_eq!(opening.0.len(), ADDRESSES);
        opening.is_open(SocketAddr::from(([203, 0, 113, 2], 1)));
        assert_eq!(opening.0.len(), ADDRESSES - 1);
    }
}
