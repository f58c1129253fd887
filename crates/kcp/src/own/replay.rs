//! Packet numbers that have arrived, so that no packet is accepted twice (as RFC 4303 section
//! 3.4.3).

use super::wire::PacketNumber;

/// The size of the window below the largest packet number. Older numbers are refused.
pub const REPLAY_WINDOW: u64 = 16_384;

/// The number of packet numbers in a word.
const WORD: u64 = 64;

/// A replay window: a bit for each of the last packet numbers.
///
/// Numbers below `floor` count as accepted. The floor rises with numbers that have all arrived, so
/// that the length of the ring depends on the reordering of the path: two words without loss, and
/// at most the window.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Word `n % len` has the numbers from `64 * n` on. The length is a power of two.
    ring: Vec<u64>,
    /// The first word of the window.
    floor: u64,
    /// The number after the largest number.
    next: u64,
}

impl Replay {
    /// Whether this number is larger than all accepted numbers.
    #[must_use]
    pub const fn is_newest(&self, number: PacketNumber) -> bool {
        number.0 >= self.next
    }

    /// Whether this number may be new.
    #[must_use]
    pub fn is_new(&self, number: PacketNumber) -> bool {
        let number = number.0;
        if number >= self.next {
            return true;
        }
        let is_seen =
            || self.ring.get(self.slot(number / WORD)).is_none_or(|word| word & bit(number) != 0);
        self.next - number <= REPLAY_WINDOW && number / WORD >= self.floor && !is_seen()
    }

    /// Accepts the number of a packet that was opened. `false` if the number had been accepted
    /// before, or is too old.
    pub fn take(&mut self, number: PacketNumber) -> bool {
        if !self.is_new(number) || number.0 == u64::MAX {
            return false;
        }
        let number = number.0;
        if number >= self.next {
            self.advance(number);
        }
        let slot = self.slot(number / WORD);
        if let Some(word) = self.ring.get_mut(slot) {
            *word |= bit(number);
        }
        // Numbers that have arrived without a gap need no memory.
        while self.floor < self.next / WORD
            && self.ring.get(self.slot(self.floor)).is_none_or(|word| *word == u64::MAX)
        {
            self.floor += 1;
        }
        true
    }

    /// Releases the memory. Numbers up to the largest number count as accepted from now on.
    pub fn rest(&mut self) {
        self.ring = Vec::new();
        // The word of the next number keeps the numbers that were not accepted yet.
        let word = self.next / WORD;
        let before = bit(self.next) - 1;
        self.floor = word;
        if before != 0 {
            self.ring = vec![before];
        }
    }

    /// Makes room up to `number`, which is the largest number from now on.
    fn advance(&mut self, number: u64) {
        let least = (number + 1).saturating_sub(REPLAY_WINDOW) / WORD;
        let old = self.next.div_ceil(WORD);
        self.floor = self.floor.max(least);
        let to = number / WORD;
        let length = usize::try_from(to - self.floor + 1).unwrap_or(usize::MAX);
        if length > self.ring.len() {
            self.grow(length.next_power_of_two(), old);
        }
        // Words that enter the window are cleared.
        for word in old.max(self.floor)..=to {
            let slot = self.slot(word);
            if let Some(word) = self.ring.get_mut(slot) {
                *word = 0;
            }
        }
        self.next = number + 1;
    }

    /// Moves the words from the floor to `end` into a longer ring.
    fn grow(&mut self, length: usize, end: u64) {
        let shorter = std::mem::replace(&mut self.ring, vec![0; length]);
        for word in self.floor..end {
            let (from, to) = (slot(&shorter, word), self.slot(word));
            if let Some((from, to)) = shorter.get(from).zip(self.ring.get_mut(to)) {
                *to = *from;
            }
        }
    }

    fn slot(&self, word: u64) -> usize {
        slot(&self.ring, word)
    }
}

fn slot(ring: &[u64], word: u64) -> usize {
    usize::try_from(word & (ring.len() as u64).wrapping_sub(1)).unwrap_or(usize::MAX)
}

const fn bit(number: u64) -> u64 {
    1 << (number % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_once_and_an_old_one_never() {
        let mut replay = Replay::default();
        for number in [0, 5, 3, 1_000, 64, 63, 900, 20_000, 20_001, 15_000, 4_000, 5_000_000] {
            assert!(replay.take(PacketNumber(number)), "{number}");
            assert!(!replay.take(PacketNumber(number)), "{number} again");
        }
        assert!(!replay.take(PacketNumber(5_000_000 - REPLAY_WINDOW)));
        assert!(!replay.take(PacketNumber(u64::MAX)), "nothing could follow it");
        assert!(replay.take(PacketNumber(5_000_001 - REPLAY_WINDOW)));
        assert!(!replay.take(PacketNumber(5_000_001 - REPLAY_WINDOW)));
        assert!(replay.ring.len() * 64 <= 2 * 16_384 + 64, "{}", replay.ring.len());
    }

    #[test]
    fn what_is_remembered_is_what_was_taken() {
        for (back, ahead) in [(150, 200), (17_000, 3_000), (20, 70)] {
            let mut replay = Replay::default();
            let mut taken = std::collections::BTreeSet::new();
            let mut state = 7_u64;
            let mut top = 0;
            let mut rested = 0;
            for n in 0..30_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (top + (state >> 40) % ahead).saturating_sub((state >> 20) % back);
                let is_young = number + REPLAY_WINDOW >= top && number >= rested;
                let is_new = !taken.contains(&number) && (is_young || number >= top);
                let was = replay.is_new(PacketNumber(number));
                let took = replay.take(PacketNumber(number));
                assert_eq!(was, took);
                // A word is forgotten as a whole.
                let is_edge = number + REPLAY_WINDOW < top + 128;
                assert!(took == is_new || (is_edge && !took), "{number} of {top}");
                if took {
                    taken.insert(number);
                    top = top.max(number + 1);
                }
                if n % 5_000 == 4_999 {
                    replay.rest();
                    rested = top;
                }
            }
            assert!(replay.ring.len() <= 512);
        }
    }

    #[test]
    fn an_orderly_session_pays_for_two_words() {
        let mut replay = Replay::default();
        for number in 0..100_000 {
            assert!(replay.take(PacketNumber(number)));
        }
        assert!(replay.ring.len() <= 2);
        assert!(replay.take(PacketNumber(100_500)));
        assert!(replay.ring.len() <= 16);
    }
}
