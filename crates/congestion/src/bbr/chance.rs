//! Loss by chance is the share of packets that the path loses regardless of the number in flight,
//! as a radio link does. A window that follows the delivery rate alone is too small on such a path,
//! because lost packets were in flight as well. Loss in a full queue is different: it grows with
//! the window, and neighbouring packets are late.

use std::time::Instant;

/// The upper limit of the share. If the cause of the loss is misjudged, a larger window would make
/// the loss worse.
const MOST: f64 = 0.25;

/// If a larger share is lost, no loss counts as chance. The bursts of a sender lose as much at a
/// queue of a few packets, and a usable radio link loses less.
const UNBELIEVED: f64 = 0.3;

/// A share is computed only from at least this number of packets.
const PACKETS: u64 = 100;

/// The weight of older cycles at the start of a cycle.
const KEPT: f64 = 7.0 / 8.0;

/// The factor by which additional loss during a probe reduces the share. At a bottleneck without a
/// queue, half of the loss of two senders outside of their probes would otherwise count as chance.
const DOUBT: f64 = 2.0;

/// Bytes of packets that arrived, and bytes of packets that were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    acked: f64,
    lost: f64,
}

impl Share {
    fn lost(self) -> f64 {
        self.lost / (self.acked + self.lost)
    }

    fn is_of(self, bytes: u64) -> bool {
        self.acked + self.lost >= bytes as f64
    }

    fn fade(&mut self) {
        self.acked *= KEPT;
        self.lost *= KEPT;
    }
}

/// Counts the losses of packets that were sent during a probe, and of packets that were sent after
/// the queue of the probe had drained.
#[derive(Clone, Debug, Default)]
pub(super) struct Chance {
    probed: Share,
    cruised: Share,
    /// The start and the end of the probe of this cycle, and the time since when the sender itself
    /// causes no queue.
    probe: Option<Instant>,
    probe_end: Option<Instant>,
    cruise_from: Option<Instant>,
}

impl Chance {
    /// A probe begins a new cycle.
    pub(super) fn probe_begins(&mut self, now: Instant) {
        self.probed.fade();
        self.cruised.fade();
        (self.probe, self.probe_end, self.cruise_from) = (Some(now), None, None);
    }

    pub(super) fn probe_ends(&mut self, now: Instant) {
        self.probe_end.get_or_insert(now);
    }

    /// The queue of the probe has drained.
    pub(super) fn cruise_begins(&mut self, now: Instant) {
        self.cruise_from.get_or_insert(now);
    }

    /// A packet that was sent at `sent` arrived. `is_late`: the packet met a queue.
    pub(super) fn acknowledged(&mut self, sent: Instant, bytes: u64, is_late: bool) {
        if let Some(share) = self.of(sent, is_late) {
            share.acked += bytes as f64;
        }
    }

    /// Packets that were sent at about `sent` were lost. `is_late`: neighbouring packets met a
    /// queue.
    pub(super) fn lost(&mut self, sent: Instant, bytes: u64, is_late: bool) {
        if let Some(share) = self.of(sent, is_late) {
            share.lost += bytes as f64;
        }
    }

    fn of(&mut self, sent: Instant, is_late: bool) -> Option<&mut Share> {
        let is_since = |at: Option<Instant>| at.is_some_and(|at| sent >= at);
        if is_since(self.cruise_from) {
            (!is_late).then_some(&mut self.cruised)
        } else if is_since(self.probe) && !is_since(self.probe_end) {
            Some(&mut self.probed)
        } else {
            None
        }
    }

    /// The share of loss by chance, from 0 to [`MOST`]. `mtu` is the size of a packet in bytes.
    pub(super) fn share(&self, mtu: u64) -> f64 {
        if !self.cruised.is_of(PACKETS * mtu) || !self.probed.is_of(PACKETS / 4 * mtu) {
            return 0.0;
        }
        let cruised = self.cruised.lost();
        if cruised > UNBELIEVED {
            return 0.0;
        }
        let more = (self.probed.lost() - cruised).max(0.0);
        (cruised - DOUBT * more).clamp(0.0, MOST)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::epoch;

    const MTU: u64 = 1_000;

    /// Ten cycles of 100 packets in a probe and 700 packets after it. The arguments are the lost
    /// packets of each hundred.
    fn after(probed: u64, calm: u64, is_late: bool) -> f64 {
        let mut chance = Chance::default();
        let mut now = epoch();
        let mut send = |chance: &mut Chance, packets: u64, lost: u64| {
            for turn in 0..packets {
                now += Duration::from_millis(1);
                if turn % 100 < lost {
                    chance.lost(now, MTU, is_late);
                } else {
                    chance.acknowledged(now, MTU, is_late);
                }
            }
            now
        };
        let mut at = epoch();
        for _ in 0..10 {
            chance.probe_begins(at);
            at = send(&mut chance, 100, probed);
            chance.probe_ends(at + Duration::from_micros(1));
            at = send(&mut chance, 100, 50) + Duration::from_micros(1);
            chance.cruise_begins(at);
            at = send(&mut chance, 700, calm) + Duration::from_micros(1);
        }
        chance.share(MTU)
    }

    #[test]
    fn what_is_lost_in_probes_and_between_them_is_lost_by_chance() {
        for percent in [0, 1, 5, 10, 20] {
            let share = after(percent, percent, false);
            assert!((share - percent as f64 / 100.0).abs() < 1e-9, "{percent} %: {share}");
        }
        assert_eq!(after(28, 28, false), MOST);
        assert_eq!(after(40, 40, false), 0.0);
    }

    #[test]
    fn loss_that_grows_with_the_window_is_no_chance() {
        assert_eq!(after(30, 5, false), 0.0);
        assert!((after(12, 10, false) - 0.06).abs() < 1e-9);
        assert!((after(8, 10, false) - 0.1).abs() < 1e-9, "less than between the probes");
    }

    #[test]
    fn loss_behind_a_queue_is_no_chance() {
        assert_eq!(after(20, 20, true), 0.0);
    }

    #[test]
    fn few_packets_say_nothing() {
        let mut chance = Chance::default();
        chance.probe_begins(epoch());
        chance.lost(epoch(), 50 * MTU, false);
        chance.probe_ends(epoch());
        chance.cruise_begins(epoch());
        chance.lost(epoch(), 50 * MTU, false);
        assert_eq!(chance.share(MTU), 0.0);
    }
}
