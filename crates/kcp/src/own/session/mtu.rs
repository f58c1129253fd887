//! The size of packets: path MTU discovery by probes (RFC 8899), and the fallback to the base size
//! if the path no longer carries the current size.
//!
//! A probe is a packet of padding. Its loss indicates that its size is too large, not that the path
//! is congested. The first probe has the largest size, which most paths carry. Then the search
//! halves the range. Probes are sent only together with other traffic, so that an idle session
//! stays silent.
//!
//! ```text
//!   Search --range below STEP--> rest for AGAIN --> Search
//!   any --HOLE packets above the least size lost in a row, smaller ones come--> least size, Search
//! ```

use std::time::{Duration, Instant};

/// The search ends when the range is smaller than this number of bytes (RFC 8899 section 5.3.2).
const STEP: u16 = 20;

/// The number of lost probes after which a size counts as too large: MAX_PROBES of RFC 8899 section
/// 5.1.2.
const PROBES: u8 = 3;

/// The interval of new searches, because the path may carry more: PMTU_RAISE_TIMER of RFC 8899
/// section 5.1.1.
const AGAIN: Duration = Duration::from_secs(600);

/// The number of successive lost large packets, none of which was overtaken by a large packet,
/// after which the size is reset to the base size. If a fifth of the packets is lost by chance,
/// such a run has a probability of one in ten million.
const HOLE: u32 = 10;

/// The search of one path.
#[derive(Debug)]
pub(super) struct Search {
    /// The size that all paths carry, and the largest size to try.
    least: u16,
    most: u16,
    size: u16,
    /// The smallest size that is too large.
    failed: u16,
    losses: u8,
    /// Whether a probe is in flight.
    is_waiting: bool,
    /// The time at which the next search begins. `None` during a search.
    next: Option<Instant>,
    /// The number of successive lost large packets, and the newest large packet that has arrived.
    lost: u32,
    passed: Option<u64>,
}

impl Search {
    pub(super) const fn new(least: u16, most: u16) -> Self {
        Self {
            least,
            most,
            size: least,
            failed: most.saturating_add(1),
            losses: 0,
            is_waiting: false,
            next: None,
            lost: 0,
            passed: None,
        }
    }

    /// The search of another path with the same bounds.
    pub(super) const fn anew(&self) -> Self {
        Self::new(self.least, self.most)
    }

    /// The current size.
    pub(super) const fn size(&self) -> u16 {
        self.size
    }

    /// Whether packets are larger than the size that all paths carry.
    pub(super) const fn is_grown(&self) -> bool {
        self.size > self.least
    }

    /// The size of the probe that must be sent now.
    pub(super) fn probe(&mut self, now: Instant) -> Option<u16> {
        if self.is_waiting || self.size >= self.most {
            return None;
        }
        match self.next {
            Some(next) if now < next => return None,
            Some(_) => self.begin(),
            None => {}
        }
        let range = self.failed - self.size;
        if range < STEP {
            self.next = Some(now + AGAIN);
            return None;
        }
        Some(if self.failed > self.most { self.most } else { self.size + range / 2 })
    }

    const fn begin(&mut self) {
        (self.failed, self.losses, self.next) = (self.most.saturating_add(1), 0, None);
    }

    /// Records that a probe is sent.
    pub(super) const fn sent(&mut self) {
        self.is_waiting = true;
    }

    /// Handles the arrival of a probe of this size. Returns whether packets may be larger now.
    pub(super) const fn probe_arrived(&mut self, size: u16) -> bool {
        (self.is_waiting, self.losses) = (false, 0);
        let grows = size > self.size;
        if grows {
            self.size = size;
        }
        grows
    }

    /// Handles the loss of a probe of this size.
    pub(super) fn probe_lost(&mut self, size: u16) {
        self.is_waiting = false;
        self.losses += 1;
        if self.losses >= PROBES {
            self.losses = 0;
            self.failed = size.clamp(self.size + 1, self.failed);
        }
    }

    /// Handles the arrival of a packet that is not a probe.
    pub(super) fn arrived(&mut self, number: u64, bytes: u32) {
        if bytes > u32::from(self.least) {
            self.passed = self.passed.max(Some(number));
            self.lost = 0;
        }
    }

    /// Handles the loss of a packet that is not a probe. `next` is the number of the next packet.
    /// Returns whether the path no longer carries large packets. Then the size is the base size,
    /// and the search begins again.
    pub(super) fn lost(&mut self, (number, next): (u64, u64), bytes: u32) -> bool {
        let is_large = bytes > u32::from(self.least);
        if is_large && self.passed.is_none_or(|passed| passed < number) {
            self.lost += 1;
        }
        let is_hole = self.lost >= HOLE && self.is_grown();
        if is_hole {
            (self.size, self.lost) = (self.least, 0);
            // Packets that were sent before are irrelevant for the next search.
            self.passed = Some(next);
            self.begin();
        }
        is_hole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// The size that the search finds, and the number of probes.
    fn search(search: &mut Search, now: Instant, carried: u16) -> (u16, u32) {
        let mut probes = 0;
        while let Some(size) = search.probe(now) {
            search.sent();
            assert_eq!(search.probe(now), None, "there is one at a time");
            probes += 1;
            if size <= carried {
                assert!(search.probe_arrived(size));
            } else {
                search.probe_lost(size);
            }
        }
        (search.size(), probes)
    }

    #[test]
    fn the_largest_size_that_passes_is_found_to_a_step() {
        let now = epoch();
        for carried in 1_200..=9_000 {
            for most in [1_200, 1_210, 1_472, 9_000] {
                let mut path = Search::new(1_200, most);
                let (size, probes) = search(&mut path, now, carried);
                assert!(size <= carried.min(most) && size + STEP > carried.min(most), "{carried}");
                assert!(probes <= 3 * 12, "{probes}");
                assert_eq!(path.probe(now + AGAIN / 2), None);
            }
        }
    }

    #[test]
    fn a_search_is_repeated_and_finds_more() {
        let now = epoch();
        let mut path = Search::new(1_200, 1_472);
        assert_eq!(search(&mut path, now, 1_300).0, 1_285);
        assert_eq!(search(&mut path, now + AGAIN, 1_472), (1_472, 1));
        assert_eq!(path.probe(now + AGAIN * 9), None, "there is nothing larger");
    }

    #[test]
    fn only_a_run_of_large_losses_is_a_hole() {
        let now = epoch();
        let mut path = Search::new(1_200, 1_472);
        search(&mut path, now, 1_472);
        for number in 0..1_000 {
            assert!(!path.lost((number, 2_500), 1_200), "small ones are lost for another reason");
        }
        path.arrived(2_000, 1_472);
        for number in 1_000..2_000 {
            assert!(!path.lost((number, 2_500), 1_472), "a later one has passed");
        }
        for number in 2_001..2_010 {
            assert!(!path.lost((number, 2_500), 1_472));
        }
        assert!(path.lost((2_010, 2_500), 1_472));
        assert_eq!((path.size(), path.is_grown()), (1_200, false));
        assert_eq!(search(&mut path, now, 1_300).0, 1_285);
        for number in 2_011..2_500 {
            assert!(!path.lost((number, 2_500), 1_472), "they left before");
        }
    }
}
