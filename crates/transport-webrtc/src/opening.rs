//! The first checks of the answerer have a low hop limit: they open its own NAT, and expire before
//! the NAT of the offerer.
//!
//! The answer is in transit when this end begins, so its checks arrive before the other end has
//! sent anything. A NAT without a filter treats such a check as a connection with itself, and
//! assigns another port to the other end towards this end ([`punch`] has the details). The other
//! end sends once it has the answer, through the NAT that is open by then; from its first check on,
//! our checks have the default hop limit. Its checks need no low limit, because ours have opened
//! the path before.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The hop limit of a check by the time since the first check. The answer arrives through a server,
/// and a browser needs some time for it.
const STEPS: [(Duration, u8); 4] = [
    (Duration::from_millis(800), 2),
    (Duration::from_millis(1_200), 3),
    (Duration::from_millis(1_600), 4),
    (Duration::from_millis(2_000), 6),
];

/// The outer addresses of the peer's NAT.
#[derive(Debug, Default)]
pub(crate) struct FirstHops(Vec<(SocketAddr, Option<Instant>)>);

impl FirstHops {
    /// The hop limits for these addresses of the peer, whose number is bounded.
    pub(crate) fn of(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        Self(addresses.map(|address| (address, None)).collect())
    }

    /// The hop limit of a check that is sent now; `None`: the default.
    pub(crate) fn hops(&mut self, now: Instant, to: SocketAddr) -> Option<u8> {
        let (_, began) = self.0.iter_mut().find(|(address, _)| *address == to)?;
        let since = now.saturating_duration_since(*began.get_or_insert(now));
        STEPS.iter().find(|(until, _)| since < *until).map(|(_, hops)| *hops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_checks_live_for_few_hops_and_later_ones_as_long_as_usual() {
        let [named, other] = ["203.0.113.1:9", "203.0.113.2:9"].map(|at| at.parse().unwrap());
        let mut opening = FirstHops::of([named].into_iter());
        let now = Instant::now();
        let mut hops = |millis| opening.hops(now + Duration::from_millis(millis), named);
        let all = [0, 200, 800, 1_200, 1_600, 2_000, 5_000].map(&mut hops);
        assert_eq!(all, [Some(2), Some(2), Some(3), Some(4), Some(6), None, None]);
        assert_eq!(opening.hops(now, other), None);
    }
}
