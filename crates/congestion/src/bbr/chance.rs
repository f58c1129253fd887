//! Loss by chance: the share of packets that the path loses however few are under way, as a radio
//! link does. A window by the delivery rate alone holds too little on such a path, because lost
//! packets were under way as well. Loss of a full queue looks different: it grows with the window,
//! and the packets around it were late.

use std::time::Instant;

/// The share at most. A larger window would make a loss that was misjudged worse.
const MOST: f64 = 0.25;

/// Of a larger share of losses none counts as chance: bursts of a sender at a queue of a few packets
/// lose as much, and no radio link that is of use.
const UNBELIEVED: f64 = 0.3;

/// A share of fewer packets than this is no share.
const PACKETS: u64 = 100;

/// What is kept of older cycles at the begin of a cycle.
const KEPT: f64 = 7.0 / 8.0;

/// A share that the path loses more of during a probe counts this much less: at a bottleneck
/// without a queue half of what two senders lose while they do not probe would pass for chance.
const DOUBT: f64 = 2.0;

/// Bytes of packets that arrived and that were lost.
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

/// Counts losses of packets that were sent during a probe, and after the queue of the probe had
/// drained.
#[derive(Clone, Debug, Default)]
pub(super) struct Chance {
    probed: Share,
    calm: Share,
    /// The probe of this cycle, from and to, and the time since when there is no queue of our own.
    probe: Option<Instant>,
    probe_end: Option<Instant>,
    calm_from: Option<Instant>,
}

impl Chance {
    /// A probe begins, and a cycle with it.
    pub(super) fn probe_begins(&mut self, now: Instant) {
        self.probed.fade();
        self.calm.fade();
        (self.probe, self.probe_end, self.calm_from) = (Some(now), None, None);
    }

    pub(super) fn probe_ends(&mut self, now: Instant) {
        self.probe_end.get_or_insert(now);
    }

    /// The queue of the probe has drained.
    pub(super) fn calm_begins(&mut self, now: Instant) {
        self.calm_from.get_or_insert(now);
    }

    /// A packet that left at `sent` arrived. `is_late`: it met a queue.
    pub(super) fn acknowledged(&mut self, sent: Instant, bytes: u64, is_late: bool) {
        if let Some(share) = self.of(sent, is_late) {
            share.acked += bytes as f64;
        }
    }

    /// Packets that left at about `sent` were lost. `is_late`: those around it met a queue.
    pub(super) fn lost(&mut self, sent: Instant, bytes: u64, is_late: bool) {
        if let Some(share) = self.of(sent, is_late) {
            share.lost += bytes as f64;
        }
    }

    fn of(&mut self, sent: Instant, is_late: bool) -> Option<&mut Share> {
        let is_since = |at: Option<Instant>| at.is_some_and(|at| sent >= at);
        if is_since(self.calm_from) {
            (!is_late).then_some(&mut self.calm)
        } else if is_since(self.probe) && !is_since(self.probe_end) {
            Some(&mut self.probed)
        } else {
            None
        }
    }

    /// From 0 to [`MOST`]. `mtu`: bytes of a packet.
    pub(super) fn share(&self, mtu: u64) -> f64 {
        if !self.calm.is_of(PACKETS * mtu) || !self.probed.is_of(PACKETS / 4 * mtu) {
            return 0.0;
        }
        let calm = self.calm.lost();
        if calm > UNBELIEVED {
            return 0.0;
        }
        let more = (self.probed.lost() - calm).max(0.0);
        (calm - DOUBT * more).clamp(0.0, MOST)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::epoch;

    const MTU: u64 = 1_000;

    /// Ten cycles of 100 packets in a probe and 700 after it. Of every hundred so many are lost.
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
            chance.calm_begins(at);
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
        chance.calm_begins(epoch());
        chance.lost(epoch(), 50 * MTU, false);
        assert_eq!(chance.share(MTU), 0.0);
    }
}
