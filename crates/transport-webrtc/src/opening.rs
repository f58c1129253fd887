//! The first checks of the end that answers live for few hops: they open its own NAT, and end
//! before that of the end that offered.
//!
//! The answer is on its way when this end begins, so its checks arrive before anything of the other
//! end has left. A NAT without a filter takes such a check for a connection with itself, and gives
//! the other end another port towards this one ([`punch`] has the whole of it). The other end sends
//! as soon as it has the answer, through the NAT that is open by then; from its first check on,
//! ours live as long as usual. Its checks need no such care, because ours have opened the way
//! before.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// For how long after the first check a check lives for so many hops. The answer comes through a
/// server, and a browser needs some time for it.
const STEPS: [(Duration, u8); 4] = [
    (Duration::from_millis(800), 2),
    (Duration::from_millis(1_200), 3),
    (Duration::from_millis(1_600), 4),
    (Duration::from_millis(2_000), 6),
];

/// The addresses outside of the NAT of the peer.
#[derive(Debug, Default)]
pub(crate) struct FirstHops(Vec<(SocketAddr, Option<Instant>)>);

impl FirstHops {
    /// The peer may be at these addresses, of which there is a bounded number.
    pub(crate) fn of(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        Self(addresses.map(|address| (address, None)).collect())
    }

    /// The hops of a check that leaves now; `None`: as many as usual.
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
