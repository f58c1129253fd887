//! Which packets leave twice: those of a sender that has little to send, over a path that loses
//! packets.
//!
//! A request whose packet is lost waits for its retransmission for one and a half round trips, and
//! for the retransmission of that one again, and everything behind it in the stream waits as well.
//! A sender with a few packets under way uses little of the path. So it may send each of them
//! twice, as the same datagram: the receiver drops what it has received (RFC 9000 section 12.3).
//! Of a path that loses a tenth of the packets, a hundredth is left.
//!
//! No more than [`SPARSE`] packets are under way twice, so a copy costs a full path next to
//! nothing, and bulk leaves once.

/// Packets under way up to which each leaves twice. Any sender may send as many into a path that
/// nothing is known of (RFC 9002 section 7.2).
const SPARSE: u64 = 10;

/// Packets that the loss is smoothed over, and the share above which copies are sent: one packet of
/// a burst that a queue drops now and then is no such loss, two within this many are.
const SMOOTH: f64 = 64.0;
const LOSSY: f64 = 0.02;

/// For so many packets copies are sent after that. Of packets that left twice few are lost, which
/// says nothing of the path.
const HELD: u32 = 2_000;

/// Packets that must have been acknowledged before. Until a server knows that its client is where
/// it says (RFC 9000 section 8), it has sent fewer than this, and no copies.
const KNOWN: u32 = 32;

/// Decides for the packets of one path.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    acknowledged: u32,
    /// The share that is lost.
    loss: f64,
    /// Packets that still leave twice.
    held: u32,
    /// Bytes under way.
    in_flight: u64,
}

impl Copies {
    /// The peer has acknowledged a packet.
    pub fn on_ack(&mut self) {
        self.acknowledged = self.acknowledged.saturating_add(1);
        self.loss -= self.loss / SMOOTH;
    }

    /// Ends a batch of acknowledgements; `in_flight` bytes are under way after it.
    pub const fn on_end_acks(&mut self, in_flight: u64) {
        self.in_flight = in_flight;
    }

    /// Packets of `mtu` bytes at most, with `bytes` together, were lost.
    pub fn on_lost(&mut self, bytes: u64, mtu: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        for _ in 0..bytes.div_ceil(mtu.max(1)).min(SPARSE) {
            self.loss += (1.0 - self.loss) / SMOOTH;
        }
        if self.loss > LOSSY {
            self.held = HELD;
        }
    }

    /// Packets leave that the peer will acknowledge, `bytes` together. Returns whether they are to
    /// leave twice.
    pub const fn on_sent(&mut self, bytes: u64, mtu: u64) -> bool {
        self.in_flight += bytes;
        let is_sparse = self.in_flight <= SPARSE * mtu;
        if self.held == 0 || self.acknowledged < KNOWN || !is_sparse {
            return false;
        }
        self.held -= 1;
        true
    }

    /// The state for a path that nothing is known of, not even that the peer is there.
    #[must_use]
    pub fn of_new_path(&self) -> Self {
        Self { in_flight: self.in_flight, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_452;

    /// A path whose packets are acknowledged one by one, but for every `n`th.
    fn after(packets: u32, lost: impl Fn(u32) -> bool) -> Copies {
        let mut copies = Copies::default();
        for turn in 1..=packets {
            copies.on_sent(100, MTU);
            if lost(turn) {
                copies.on_lost(100, MTU);
            } else {
                copies.on_ack();
            }
            copies.on_end_acks(0);
        }
        copies
    }

    #[test]
    fn little_is_sent_twice_where_much_is_lost() {
        assert!(after(100, |turn| turn % 10 == 0).on_sent(1_000, MTU));
        assert!(!after(100, |_| false).on_sent(1_000, MTU), "nothing was lost");
        assert!(!after(10_000, |turn| turn % 1_000 == 0).on_sent(1_000, MTU), "one in a thousand");
    }

    #[test]
    fn a_sender_with_much_to_send_sends_it_once() {
        let mut copies = after(100, |turn| turn % 10 == 0);
        let twice = (0..100).filter(|_| copies.on_sent(MTU, MTU)).count();
        assert_eq!(twice, SPARSE as usize);
        copies.on_end_acks(50 * MTU);
        assert!(!copies.on_sent(MTU, MTU));
        copies.on_end_acks(0);
        assert!(copies.on_sent(MTU, MTU), "the tail of what it had");
    }

    #[test]
    fn copies_end_some_time_after_the_last_loss() {
        let mut copies = after(100, |turn| turn % 10 == 0);
        let mut sent = 0;
        while copies.on_sent(100, MTU) {
            copies.on_ack();
            copies.on_end_acks(0);
            sent += 1;
        }
        assert_eq!(sent, HELD);
    }

    #[test]
    fn a_peer_that_may_be_elsewhere_gets_no_copies() {
        assert!(!after(20, |turn| turn % 4 == 0).on_sent(100, MTU), "few acknowledgements");
        assert!(!after(100, |turn| turn % 4 == 0).of_new_path().on_sent(100, MTU));
    }
}
