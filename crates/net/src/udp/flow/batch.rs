//! Datagrams to be sent in this turn of the runtime, by destination. Datagrams of the same size are
//! sent in one call (UDP_SEGMENT), and the last of them may be smaller.
//!
//! A batch holds the original datagrams; a datagram that is sent alone is not copied.

use std::cell::RefCell;

use bytes::Bytes;

use super::Route;

/// The maximum number of segments per call (`UDP_MAX_SEGMENTS` of Linux before 6.9).
pub(super) const SEGMENTS: usize = 64;

/// The maximum number of bytes per call: 65,535 minus the headers of IPv6 and UDP; with IPv4 the
/// length field includes the header.
pub(super) const CALL: usize = 65_535 - 48;

/// The maximum segment: the payload of a packet of 1,500 bytes over IPv6. The kernel does not
/// fragment a segment, so larger datagrams are sent alone.
pub(super) const SEGMENT: usize = 1_452;

/// The maximum number of open batches of a listener's socket: destinations with interleaved
/// datagrams.
const LISTENER: usize = 8;

/// The maximum number of lists that a thread keeps for reuse.
const LISTS: usize = 64;

thread_local! {
    static LISTS_KEPT: RefCell<Vec<Vec<Bytes>>> = const { RefCell::new(Vec::new()) };
}

/// Datagrams for one destination.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) route: Route,
    pub(super) datagrams: Vec<Bytes>,
    bytes: usize,
    /// The size of all datagrams but the last.
    segment: usize,
    /// Whether no datagram may follow.
    is_closed: bool,
}

impl Batch {
    pub(super) fn new(route: Route, datagram: Bytes) -> Self {
        let mut datagrams = LISTS_KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        let segment = datagram.len();
        datagrams.push(datagram);
        let is_closed = segment == 0 || segment > SEGMENT;
        Self { route, datagrams, bytes: segment, segment, is_closed }
    }

    /// The segment size; the last segment may be smaller.
    pub(super) const fn segment(&self) -> usize {
        self.segment
    }

    /// Adds the datagram if it can be sent in the same call.
    pub(super) fn join(&mut self, datagram: Bytes) -> Result<(), Bytes> {
        let length = datagram.len();
        let fits = !self.is_closed
            && (1..=self.segment).contains(&length)
            && self.datagrams.len() < SEGMENTS
            && self.bytes + length <= CALL;
        if !fits {
            return Err(datagram);
        }
        self.is_closed = length < self.segment;
        self.bytes += length;
        self.datagrams.push(datagram);
        Ok(())
    }

    /// Removes the first `count` datagrams.
    pub(super) fn forget(&mut self, count: usize) {
        self.datagrams.drain(..count.min(self.datagrams.len()));
        self.bytes = self.datagrams.iter().map(Bytes::len).sum();
    }

    /// Copies the datagrams into separate memory. They may be parts of large buffers, which a full
    /// socket would pin.
    pub(super) fn settle(&mut self) {
        for datagram in &mut self.datagrams {
            *datagram = Bytes::copy_from_slice(datagram);
        }
        self.is_closed = true;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut list = std::mem::take(&mut self.datagrams);
        list.clear();
        // The pool is destroyed when the thread ends.
        let _ = LISTS_KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < LISTS
            {
                kept.push(list);
            }
        });
    }
}

/// The batches of one socket.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) list: Vec<Batch>,
    most: usize,
}

impl Batches {
    pub(super) fn of_listener() -> Self {
        Self { list: Vec::new(), most: LISTENER }
    }

    /// A connected socket has one destination.
    pub(super) fn of_target() -> Self {
        let mut list = Vec::new();
        list.reserve_exact(1);
        Self { list, most: 1 }
    }

    /// Adds a datagram. Otherwise returns it with the index of the batch that must be sent first.
    pub(super) fn add(&mut self, route: Route, datagram: Bytes) -> Result<(), (usize, Bytes)> {
        match self.list.iter_mut().position(|batch| batch.route == route) {
            Some(index) => self.list[index].join(datagram).map_err(|datagram| (index, datagram)),
            None if self.list.len() >= self.most => Err((0, datagram)),
            None => {
                self.list.push(Batch::new(route, datagram));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(port: u16) -> Route {
        Route { peer: ([192, 0, 2, 1], port).into(), local: None, dscp: 0 }
    }

    fn sized(length: usize) -> Bytes {
        Bytes::from(vec![1; length])
    }

    /// The sizes of the batches, in the order in which they would be sent.
    fn batches(sizes: &[usize]) -> Vec<Vec<usize>> {
        let mut all = Batches::of_target();
        let mut left = Vec::new();
        let mut leave = |batch: Batch| left.push(batch.datagrams.iter().map(Bytes::len).collect());
        for &size in sizes {
            let mut next = Some(sized(size));
            while let Some(datagram) = next.take() {
                if let Err((index, again)) = all.add(route(1), datagram) {
                    leave(all.list.remove(index));
                    next = Some(again);
                }
            }
        }
        all.list.drain(..).for_each(leave);
        left
    }

    #[test]
    fn equal_sizes_leave_together_and_a_smaller_one_is_the_last() {
        assert_eq!(batches(&[9, 9, 9, 4, 9, 9]), [vec![9, 9, 9, 4], vec![9, 9]]);
        assert_eq!(batches(&[4, 9, 9]), [vec![4], vec![9, 9]]);
        assert_eq!(batches(&[9, 4, 4]), [vec![9, 4], vec![4]]);
    }

    #[test]
    fn an_empty_or_large_datagram_leaves_alone() {
        assert_eq!(batches(&[0, 0, 9, 0]), [vec![0], vec![0], vec![9], vec![0]]);
        assert_eq!(batches(&[1_453, 1_453]), [vec![1_453], vec![1_453]]);
        assert_eq!(batches(&[65_507]), [vec![65_507]]);
    }

    #[test]
    fn a_call_has_its_limits() {
        let small = batches(&[1; 150]);
        assert_eq!(small.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 22]);
        let large = batches(&[1_452; 100]);
        assert!(large.iter().all(|batch| batch.iter().sum::<usize>() <= CALL));
        assert_eq!(large[0].len(), 45);
    }

    #[test]
    fn mixed_destinations_have_their_own_batches_up_to_a_bound() {
        let mut all = Batches::of_listener();
        for turn in 0..3 {
            for port in 1..=8 {
                assert!(all.add(route(port), sized(5)).is_ok(), "{turn} {port}");
            }
        }
        assert_eq!(all.list.len(), 8);
        assert!(matches!(all.add(route(9), sized(5)), Err((0, _))), "the oldest leaves first");
    }

    #[test]
    fn what_was_sent_is_forgotten() {
        let mut batch = Batch::new(route(1), sized(5));
        batch.join(sized(5)).unwrap();
        batch.forget(1);
        assert_eq!((batch.datagrams.len(), batch.bytes), (1, 5));
        batch.settle();
        assert!(batch.join(sized(5)).is_err(), "a full socket takes no more");
    }
}
