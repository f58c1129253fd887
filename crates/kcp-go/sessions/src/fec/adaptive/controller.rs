//! Decides the parity of each group by the inferred loss.

use crate::fec::Ratio;

/// One group of this number has no parity, so that reordering can be distinguished from repair.
pub const PROBE: u32 = 32;

/// The number of acknowledged or lost packets in a window of the estimate. With fewer packets the
/// estimate would vary: at 5 % loss the count in 100 packets has a deviation of 2.
const WINDOW: u64 = 100;

/// The weights of a window with more loss than the estimate, and of a window with less loss.
const RISE: f64 = 0.5;
const FALL: f64 = 0.125;

/// Parity falls by one when less parity has sufficed for this multiple of the loss during
/// [`PATIENCE`] windows.
const CAUTION: f64 = 1.5;
const PATIENCE: u32 = 4;

/// The upper limit of the loss. A path with more loss is useless, and the formulas need a value
/// below 1.
const WORST: f64 = 0.99;

/// The targets of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The share of packets that may stay lost and be sent again, 0 to 1.
    pub residual: f64,
    /// The redundancy above `loss / (1 - loss)` that parity may have, as a share of the data.
    pub margin: f64,
}

impl Default for Limits {
    /// One packet of 200 is sent again. The margin allows one parity shard for 10 data shards from
    /// the first loss on.
    fn default() -> Self {
        Self { residual: 0.005, margin: 0.15 }
    }
}

/// Packets that were acknowledged or declared lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of packets. A packet that is sent again counts as another packet.
    pub ended: u64,
    /// The number of lost packets.
    pub lost: u64,
    /// The number of packets that were acknowledged after a packet that was sent at least three
    /// packets later.
    pub overtaken: u64,
}

/// The report of an acknowledgement. A driver that does not know the groups of its packets counts
/// all packets as protected. Reordering then looks like loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Packets of groups with parity.
    pub protected: Tally,
    /// Packets of groups without parity.
    pub bare: Tally,
}

impl Report {
    /// The tally of packets with parity, or without.
    pub const fn of(&mut self, is_protected: bool) -> &mut Tally {
        if is_protected { &mut self.protected } else { &mut self.bare }
    }
}

/// Decides the parity of each group.
#[derive(Clone, Debug)]
pub struct Controller {
    ratio: Ratio,
    limits: Limits,
    window: Report,
    /// The share of packets that the path loses, and the share that it reorders.
    loss: f64,
    reordering: f64,
    parity: usize,
    /// The number of successive windows that needed less parity.
    lower: u32,
    groups: u32,
}

impl Controller {
    /// A new controller, which begins with all parity.
    #[must_use]
    pub fn new(ratio: Ratio, limits: Limits) -> Self {
        Self {
            ratio,
            limits,
            window: Report::default(),
            loss: 0.0,
            reordering: 0.0,
            parity: ratio.parity(),
            lower: 0,
            groups: 0,
        }
    }

    /// The estimated share of packets that the path loses, 0 to 1.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// The present parity of most groups.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.parity
    }

    /// The parity of a new group. One group of [`PROBE`] gets none.
    pub fn next_group(&mut self) -> usize {
        self.groups = (self.groups + 1) % PROBE;
        if self.groups == 0 { 0 } else { self.parity }
    }

    /// Takes the report of an acknowledgement.
    pub fn handle_report(&mut self, report: Report) {
        self.window.protected.add(report.protected);
        self.window.bare.add(report.bare);
        if self.window.protected.ended.saturating_add(self.window.bare.ended) >= WINDOW {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        let Report { protected, bare } = std::mem::take(&mut self.window);
        if let Some(reordered) = share(bare.overtaken, bare.ended) {
            // One group without parity says little, so each group counts by its size.
            let weight = (share(bare.ended, WINDOW).unwrap_or(0.0)).min(1.0) * RISE;
            self.reordering += (reordered - self.reordering) * weight;
        }
        let all = protected.ended.saturating_add(bare.ended);
        let lost = share(protected.lost.saturating_add(bare.lost), all).unwrap_or(0.0);
        let overtaken = share(protected.overtaken, all).unwrap_or(0.0);
        let reordered = self.reordering * share(protected.ended, all).unwrap_or(0.0);
        let seen = (lost + (overtaken - reordered).max(0.0)).min(1.0);
        let weight = if seen > self.loss { RISE } else { FALL };
        self.loss += (seen - self.loss) * weight;
        self.decide();
    }

    fn decide(&mut self) {
        let most = self.most();
        self.parity = self.parity.max(self.needed(self.loss).min(most));
        if self.needed(self.loss * CAUTION).min(most) >= self.parity {
            self.lower = 0;
            return;
        }
        self.lower += 1;
        if self.lower == PATIENCE {
            self.lower = 0;
            self.parity -= 1;
        }
    }

    /// The smallest parity that leaves at most the residual loss.
    fn needed(&self, loss: f64) -> usize {
        let enough = |parity: &u8| self.residual(*parity, loss.min(WORST)) <= self.limits.residual;
        (0..self.ratio.parity).find(enough).unwrap_or(self.ratio.parity).into()
    }

    /// The parity that the loss allows.
    fn most(&self) -> usize {
        let loss = self.loss.min(WORST);
        let most = f64::from(self.ratio.data) * (loss / (1.0 - loss) + self.limits.margin);
        (1..=self.ratio.parity).take_while(|parity| f64::from(*parity) <= most).count()
    }

    /// The share of packets that stay lost. A packet stays lost if at least `parity` other packets
    /// of its group are lost with it.
    fn residual(&self, parity: u8, loss: f64) -> f64 {
        let others = u32::from(self.ratio.data) + u32::from(parity) - 1;
        // The probability that `n` other packets are lost, for each `n` below `parity`.
        let mut chance = (1.0 - loss).powi(others.cast_signed());
        let mut fewer = 0.0;
        for n in 0..u32::from(parity).min(others + 1) {
            fewer += chance;
            chance *= f64::from(others - n) / f64::from(n + 1) * loss / (1.0 - loss);
        }
        loss * (1.0 - fewer).max(0.0)
    }
}

impl Tally {
    const fn add(&mut self, other: Self) {
        self.ended = self.ended.saturating_add(other.ended);
        self.lost = self.lost.saturating_add(other.lost);
        self.overtaken = self.overtaken.saturating_add(other.overtaken);
    }
}

/// `None` for an empty window.
fn share(part: u64, whole: u64) -> Option<f64> {
    // The count of packets in a window fits into 32 bits. A larger count has the same meaning.
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (whole > 0).then(|| number(part) / number(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> Controller {
        Controller::new(Ratio::new(10, 3).unwrap(), Limits::default())
    }

    fn tally(ended: u64, lost: u64, overtaken: u64) -> Tally {
        Tally { ended, lost, overtaken }
    }

    /// Windows with parity in all groups.
    fn protected(controller: &mut Controller, windows: usize, lost: u64, overtaken: u64) {
        for _ in 0..windows {
            let protected = tally(WINDOW, lost, overtaken);
            controller.handle_report(Report { protected, ..Report::default() });
        }
    }

    #[test]
    fn a_clean_path_ends_without_parity() {
        let mut controller = controller();
        assert_eq!(controller.parity(), 3);
        protected(&mut controller, 3, 0, 0);
        assert_eq!(controller.parity(), 3, "a peer has 258 samples to find the ratio");
        protected(&mut controller, 9, 0, 0);
        assert_eq!(controller.parity(), 0);
    }

    #[test]
    fn parity_follows_the_loss_and_stays_below_the_cap() {
        for (lost, parity) in [(0, 0), (1, 1), (5, 2), (10, 2), (20, 3), (60, 3)] {
            let mut controller = controller();
            protected(&mut controller, 60, lost, 0);
            assert_eq!(controller.parity(), parity, "{lost} of 100 lost");
            let loss = controller.loss();
            assert!(f64::from(u8::try_from(parity).unwrap()) / 10.0 <= loss / (1.0 - loss) + 0.15);
        }
    }

    #[test]
    fn parity_rises_at_once_and_falls_by_one_after_a_while() {
        let mut controller = controller();
        protected(&mut controller, 30, 0, 0);
        protected(&mut controller, 1, 20, 0);
        assert_eq!(controller.parity(), 2);
        protected(&mut controller, 1, 20, 0);
        assert_eq!(controller.parity(), 3);
        let mut before = 3;
        let mut windows = Vec::new();
        for window in 0..100 {
            protected(&mut controller, 1, 0, 0);
            assert!(before - controller.parity() <= 1);
            if controller.parity() < before {
                before = controller.parity();
                windows.push(window);
            }
        }
        assert_eq!(before, 0);
        assert!(windows.windows(2).all(|pair| pair[1] - pair[0] >= 4), "{windows:?}");
    }

    /// A loss that varies around a threshold does not make the parity vary.
    #[test]
    fn alternating_windows_keep_one_parity() {
        let mut controller = controller();
        for _ in 0..20 {
            protected(&mut controller, 1, 4, 0);
            protected(&mut controller, 1, 6, 0);
        }
        let parity = controller.parity();
        for _ in 0..50 {
            protected(&mut controller, 1, 4, 0);
            assert_eq!(controller.parity(), parity);
            protected(&mut controller, 1, 6, 0);
            assert_eq!(controller.parity(), parity);
        }
    }

    #[test]
    fn what_is_overtaken_was_rebuilt_unless_the_path_reorders() {
        let mut rebuilt = controller();
        let mut reordered = controller();
        for _ in 0..100 {
            // The same observations except for the groups without parity.
            let protected = tally(97, 0, 10);
            let bare = tally(3, 0, 0);
            rebuilt.handle_report(Report { protected, bare });
            let bare = tally(30, 0, 3);
            reordered.handle_report(Report { protected, bare });
        }
        assert!(rebuilt.loss() > 0.08 && rebuilt.parity() >= 2, "{rebuilt:?}");
        assert!(reordered.loss() < 0.01 && reordered.parity() == 0, "{reordered:?}");
    }

    #[test]
    fn one_group_of_many_goes_bare() {
        let mut controller = controller();
        let bare = (0..PROBE * 10).filter(|_| controller.next_group() == 0).count();
        assert_eq!(bare, 10);
    }

    #[test]
    fn no_report_breaks_the_estimate() {
        let mut controller = Controller::new(Ratio::new(1, 255).unwrap(), Limits::default());
        for tally in [
            tally(u64::MAX, u64::MAX, u64::MAX),
            tally(100, u64::MAX, 0),
            tally(0, 0, u64::MAX),
            tally(100, 0, 0),
        ] {
            for _ in 0..20 {
                controller.handle_report(Report { protected: tally, bare: tally });
                assert!((0.0..=1.0).contains(&controller.loss()), "{controller:?}");
                assert!(controller.parity() <= 255);
            }
        }
    }
}
