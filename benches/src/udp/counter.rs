//! The receiver's counts of one run.

use std::time::Instant;

use super::packet::Head;

/// Flows of a run, at most.
pub const FLOWS_MAX: usize = 1_000;

/// What has arrived of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams that came after a datagram of their flow with a higher number.
    pub reordered: u64,
    /// Datagrams of another size than the first, or of an impossible flow.
    pub wrong: u64,
    /// From the first datagram to the last, in nanoseconds.
    pub nanos: u64,
}

/// Counts the datagrams of a run.
#[derive(Debug, Default)]
pub struct Counter {
    counts: Counts,
    first: Option<Instant>,
    size: usize,
    /// The number after the highest of each flow.
    next: Vec<u64>,
}

impl Counter {
    /// The counts so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts a datagram of `size` bytes that arrived at `now`.
    pub fn count(&mut self, now: Instant, head: &Head, size: usize) {
        let first = *self.first.get_or_insert_with(|| {
            self.size = size;
            now
        });
        let flow = usize::try_from(head.flow).unwrap_or(usize::MAX);
        if size != self.size || flow >= FLOWS_MAX {
            self.counts.wrong += 1;
            return;
        }
        if self.next.len() <= flow {
            self.next.resize(flow + 1, 0);
        }
        if head.number < self.next[flow] {
            self.counts.reordered += 1;
        } else {
            self.next[flow] = head.number.saturating_add(1);
        }
        self.counts.received += 1;
        self.counts.bytes += size as u64;
        let nanos = now.saturating_duration_since(first).as_nanos();
        self.counts.nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::udp::packet::Kind;

    #[test]
    fn losses_are_no_reordering_and_what_is_late_is() {
        let start = Instant::now();
        let mut counter = Counter::default();
        for (at, (flow, number)) in
            [(0, 0), (1, 5), (0, 2), (0, 3), (0, 1), (1, 4), (1, 6), (0, 4)].into_iter().enumerate()
        {
            let head = Head { kind: Kind::Data, run: 1, flow, number };
            counter.count(start + Duration::from_nanos(at as u64), &head, 100);
        }
        let wanted = Counts { received: 8, bytes: 800, reordered: 2, wrong: 0, nanos: 7 };
        assert_eq!(*counter.counts(), wanted);
    }

    #[test]
    fn a_datagram_of_another_size_or_of_no_flow_is_wrong() {
        let mut counter = Counter::default();
        let head = |flow| Head { kind: Kind::Data, run: 1, flow, number: 0 };
        counter.count(Instant::now(), &head(0), 100);
        counter.count(Instant::now(), &head(0), 99);
        counter.count(Instant::now(), &head(u32::MAX), 100);
        assert_eq!((counter.counts().received, counter.counts().wrong), (1, 2));
    }
}
