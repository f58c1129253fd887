//! The back-off between attempts to reach the other client: increasing, and different for each
//! browser, because all browsers of a service lose it at the same moment.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(2);

/// Doublings of the pause: up to 16 s.
const DOUBLINGS: u32 = 3;

/// The number of pauses so far.
#[derive(Debug, Default)]
pub(super) struct Retry(u32);

impl Retry {
    /// The next pause is the first again.
    pub(super) const fn begin(&mut self) {
        self.0 = 0;
    }

    /// The next pause: 75 to 125 % of its length, by a random byte.
    pub(super) fn next(&mut self, random: [u8; 32]) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.0.min(DOUBLINGS));
        self.0 = self.0.saturating_add(1);
        let share = u32::from(random[0]);
        (whole * 3 / 4) + (whole / 2) * share / u32::from(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_spread() {
        let mut retry = Retry::default();
        let all = [0, 255, 0, 255, 0].map(|byte| retry.next([byte; 32]).as_millis());
        assert_eq!(all, [1500, 5000, 6000, 20_000, 12_000]);
        retry.begin();
        assert_eq!(retry.next([0; 32]).as_millis(), 1500);
    }
}
