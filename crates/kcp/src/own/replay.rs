//! Packet numbers that have arrived, so that none is taken twice (as RFC 4303 section 3.4.3).

use super::wire::PacketNumber;

/// Packet numbers up to the largest that are told apart. Older ones are refused.
pub const REPLAY_WINDOW: u64 = 1_024;

/// One more would do: a word that begins anew must be older than the window as a whole.
const WORDS: u64 = 32;

/// A bit for each of the last packet numbers.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    seen: [u64; 32],
    /// The number behind the largest one.
    next: u64,
}

impl Replay {
    /// Whether this number is larger than all that were taken.
    #[must_use]
    pub const fn is_newest(&self, number: PacketNumber) -> bool {
        number.0 >= self.next
    }

    /// Whether this number may be new.
    #[must_use]
    pub fn is_new(&self, number: PacketNumber) -> bool {
        let number = number.0;
        let is_seen = self.seen.get(slot(number)).is_some_and(|word| word & bit(number) != 0);
        number >= self.next || (self.next - number <= REPLAY_WINDOW && !is_seen)
    }

    /// Takes the number of a packet that was opened; `false` where it had been taken, or is too old.
    pub fn take(&mut self, number: PacketNumber) -> bool {
        if !self.is_new(number) || number.0 == u64::MAX {
            return false;
        }
        let number = number.0;
        if number >= self.next {
            // Words that the window moves into begin anew.
            let (from, to) = (self.next.div_ceil(64), number / 64);
            for word in from.max((to + 1).saturating_sub(WORDS))..=to {
                if let Some(word) = self.seen.get_mut(slot(word * 64)) {
                    *word = 0;
                }
            }
            self.next = number + 1;
        }
        if let Some(word) = self.seen.get_mut(slot(number)) {
            *word |= bit(number);
        }
        true
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number / 64 % WORDS).unwrap_or(0)
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_once_and_an_old_one_never() {
        let mut replay = Replay::default();
        for number in [0, 5, 3, 1_000, 64, 63, 900, 2_000, 2_001, 1_500, 5_000_000] {
            assert!(replay.take(PacketNumber(number)), "{number}");
            assert!(!replay.take(PacketNumber(number)), "{number} again");
        }
        assert!(!replay.take(PacketNumber(5_000_000 - 1_024)));
        assert!(!replay.take(PacketNumber(u64::MAX)), "nothing could follow it");
        assert!(replay.take(PacketNumber(5_000_000 - 900)));
    }

    #[test]
    fn what_is_remembered_is_what_was_taken() {
        let mut replay = Replay::default();
        let mut taken = std::collections::BTreeSet::new();
        let mut state = 7_u64;
        let mut top = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (top + (state >> 40) % 200).saturating_sub((state >> 20) % 150);
            let is_new = !taken.contains(&number) && number + REPLAY_WINDOW >= top;
            assert_eq!(replay.take(PacketNumber(number)), is_new, "{number} of {top}");
            taken.insert(number);
            top = top.max(number + 1);
            let old = PacketNumber(top.saturating_sub((state >> 30) % 1_100));
            assert!(old.0 == top || !replay.take(old) || taken.insert(old.0), "{old:?} of {top}");
        }
    }
}
