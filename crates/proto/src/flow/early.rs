//! Datagrams that arrived before the FlowOpen of their flow. On a carrier with native datagrams
//! they may overtake the control stream.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::AHEAD_MAX;
use crate::FlowId;

/// Maximum bytes that are queued on a link. Each datagram counts [`OVERHEAD`] additional bytes.
const BYTES_MAX: usize = 64 << 10;

/// Memory of a datagram in addition to its payload, in bytes.
const OVERHEAD: usize = 64;

/// The early datagrams of a link.
#[derive(Debug, Default)]
pub(crate) struct Early {
    waiting: BTreeMap<FlowId, VecDeque<Bytes>>,
    bytes: usize,
}

impl Early {
    /// Queues a copy of a datagram, so that it does not pin the buffer of which it is a slice.
    /// Returns `false` if there is no room, or if too many datagrams of the flow are queued.
    #[must_use]
    pub(crate) fn put(&mut self, id: FlowId, payload: &[u8]) -> bool {
        let cost = payload.len() + OVERHEAD;
        if self.bytes + cost > BYTES_MAX {
            return false;
        }
        let queue = self.waiting.entry(id).or_default();
        if queue.len() >= usize::from(AHEAD_MAX) {
            return false;
        }
        queue.push_back(Bytes::copy_from_slice(payload));
        self.bytes += cost;
        true
    }

    /// Removes and returns the datagrams of a flow.
    pub(crate) fn take(&mut self, id: FlowId) -> VecDeque<Bytes> {
        let queue = self.waiting.remove(&id).unwrap_or_default();
        self.bytes -= queue.iter().map(|payload| payload.len() + OVERHEAD).sum::<usize>();
        queue
    }

    /// Drops the datagrams of all flows with a lower id. Returns their number.
    pub(crate) fn forget_below(&mut self, id: FlowId) -> u64 {
        let mut dropped = 0;
        while let Some((&first, _)) = self.waiting.first_key_value() {
            if first >= id {
                break;
            }
            dropped += crate::offset::length(self.take(first).len());
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_datagrams_of_a_flow_and_64_kib_of_a_link_wait() {
        let mut early = Early::default();
        let [first, second, third] = [2, 4, 6].map(FlowId::new);
        assert_eq!((0..9).filter(|_| early.put(first, &[1])).count(), 8);
        assert!(!early.put(second, &[0; BYTES_MAX]), "it would fill all of the room");
        assert!(early.put(second, &[0; 60_000]));
        assert!(!early.put(third, &[0; 6_000]));
        assert_eq!(early.forget_below(second), 8);
        assert!(early.put(third, &[0; 5_000]));
        assert_eq!(early.take(second).len(), 1);
        assert_eq!(early.take(second).len(), 0);
        assert_eq!(early.forget_below(FlowId::new(100)), 1);
        assert_eq!((early.bytes, early.waiting.len()), (0, 0));
    }
}
