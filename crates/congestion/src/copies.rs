//! Decides which packets are sent twice: packets of a sender that has little to send, over a path
//! that loses packets.
//!
//! If a packet of a request is lost, the request waits one and a half round-trip times for the
//! retransmission. A lost retransmission costs as much again, and all later bytes of the stream
//! wait as well. A sender with a few packets in flight uses little of the path. So it may send each
//! packet twice, as the same datagram: the receiver drops a datagram that it has received already
//! (RFC 9000 section 12.3). If the path loses a tenth of the packets, a hundredth of the pairs is
//! lost.
//!
//! At most [`SPARSE`] packets are in flight twice. So on a fully used path copies cost nearly
//! nothing, and packets of a bulk transfer are sent once.

/// With at most this number of packets in flight, each packet is sent twice. Any sender may send as
/// many packets into an unknown path (RFC 9002 section 7.2).
const SPARSE: u64 = 10;

/// The number of packets over which the loss is smoothed, and the share of lost packets above which
/// copies are sent. A single packet that a queue drops now and then stays below this share. Two
/// packets within this number exceed it.
const SMOOTH: f64 = 64.0;
const LOSSY: f64 = 0.02;

/// The number of packets for which copies are then sent. Few of the packets that are sent twice are
/// lost, so they provide no information about the path.
const HELD: u32 = 2_000;

/// The number of acknowledged packets before the first copy. A server that has not validated the
/// address of its client (RFC 9000 section 8) has sent fewer packets, and so sends no copies.
const KNOWN: u32 = 32;

/// Decides for the packets of one path.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    acknowledged: u32,
    /// The share of lost packets.
    loss: f64,
    /// The number of packets that are still sent twice.
    held: u32,
    /// Bytes in flight.
    in_flight: u64,
}

impl Copies {
    /// The peer has acknowledged a packet.
    pub fn on_ack(&mut self) {
        self.acknowledged = self.acknowledged.saturating_add(1);
        self.loss -= self.loss / SMOOTH;
    }

    /// Ends a batch of acknowledgements. `in_flight` is the number of bytes in flight after the
    /// batch.
    pub const fn on_end_acks(&mut self, in_flight: u64) {
        self.in_flight = in_flight;
    }

    /// Packets of at most `mtu` bytes, with `bytes` bytes in total, were lost.
    pub fn on_lost(&mut self, bytes: u64, mtu: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        for _ in 0..bytes.div_ceil(mtu.max(1)).min(SPARSE) {
            self.loss += (1.0 - self.loss) / SMOOTH;
        }
        if self.loss > LOSSY {
            self.held = HELD;
        }
    }

    /// Packets with `bytes` bytes in total are sent, which the peer will acknowledge. Returns
    /// whether the packets should be sent twice.
    pub const fn on_sent(&mut self, bytes: u64, mtu: u64) -> bool {
        self.in_flight += bytes;
        let is_sparse = self.in_flight <= SPARSE * mtu;
        if self.held == 0 || self.acknowledged < KNOWN || !is_sparse {
            return false;
        }
        self.held -= 1;
        true
    }

    /// The state for an unknown path. Even the address of the peer is not validated.
    #[must_use]
    pub fn of_new_path(&self) -> Self {
        Self { in_flight: self.in_flight, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_452;

    /// A path on which every `n`th packet is lost and each other packet is acknowledged alone.
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
