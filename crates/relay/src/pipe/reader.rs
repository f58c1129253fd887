//! The size of the next read. Streams with little data use small buffers; a bulk stream that is
//! alone reads 512 KiB at once. A stream of whose reads several in a row are full is bulk: its bytes
//! may move as pages.

use net::pages::{self, Rule};

/// Sizes of the buffers of `net::pool`, head room included.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];

/// The place of the largest size.
const LARGEST: u8 = SIZES.len() as u8 - 1;

/// Full reads of the largest size in a row until a stream is bulk.
const FULL: u8 = 4;

/// From here on a stream is bulk.
const BULK: u8 = LARGEST + FULL;

/// Moves of pages that are small, in a row, until a bulk stream is none any more.
const SMALL_MOVES: u8 = 4;

/// A move of fewer bytes is small: the copies of it cost less than the calls for its pages.
const SMALL: usize = 16 << 10;

/// The read size: it grows while reads fill the buffer, and shrinks when reads leave most of it
/// empty. From [`BULK`] on it counts the small moves in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSize(u8);

impl Default for ReadSize {
    fn default() -> Self {
        Self(if pages::rule() == Rule::Always { BULK } else { 0 })
    }
}

impl ReadSize {
    /// Whether the stream has shown that it is bulk.
    pub(super) const fn is_bulk(self) -> bool {
        self.0 >= BULK
    }

    /// The stream has to show again that it is bulk.
    pub(super) fn calm(&mut self) {
        if pages::rule() != Rule::Always {
            self.0 = self.0.min(LARGEST);
        }
    }

    /// A bulk stream has moved `moved` bytes as pages.
    pub(super) fn moved(&mut self, moved: usize) {
        self.0 = if moved >= SMALL { BULK } else { self.0 + 1 };
        if self.0 >= BULK + SMALL_MOVES {
            self.0 = match pages::rule() {
                Rule::Always => BULK,
                Rule::Never | Rule::Bulk => 1,
            };
        }
    }

    /// The buffer size for the next read when at most `room` bytes of payload may be sent. A room
    /// of exactly a pooled size takes a buffer of that size, and the frame is shorter by its head.
    pub(super) fn wanted(self, room: usize) -> usize {
        SIZES[usize::from(self.0.min(LARGEST))].min(room.max(SIZES[0]))
    }

    /// Adapts the size to a read of `read` bytes into `space` bytes.
    pub(super) fn adapt(&mut self, read: usize, space: usize) {
        let size = self.0.min(LARGEST);
        let most = if pages::rule() == Rule::Never { LARGEST } else { BULK };
        if read >= space {
            self.0 = (self.0 + 1).min(most);
        } else if pages::rule() == Rule::Always {
            self.0 = BULK;
        } else if read < SIZES[usize::from(size)] / 4 {
            self.0 = size.saturating_sub(1);
        } else {
            self.0 = size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests are about the rule that is in force without the variable of tests.
    fn is_forced() -> bool {
        pages::rule() != Rule::Bulk
    }

    #[test]
    fn full_reads_grow_the_buffer_and_small_ones_shrink_it() {
        if is_forced() {
            return;
        }
        let mut size = ReadSize::default();
        assert_eq!(size.wanted(usize::MAX), 16 << 10);
        for expected in [64 << 10, 512 << 10, 512 << 10] {
            let space = size.wanted(usize::MAX);
            size.adapt(space, space);
            assert_eq!(size.wanted(usize::MAX), expected);
        }
        size.adapt(200 << 10, 512 << 10);
        assert_eq!(size.wanted(usize::MAX), 512 << 10);
        size.adapt(100, 512 << 10);
        assert_eq!(size.wanted(usize::MAX), 64 << 10);
    }

    #[test]
    fn full_reads_in_a_row_make_bulk_and_small_moves_in_a_row_end_it() {
        if is_forced() {
            return;
        }
        let mut size = ReadSize(0);
        let full = |size: &mut ReadSize| size.adapt(64 << 10, 64 << 10);
        for _ in 0..LARGEST + FULL - 1 {
            full(&mut size);
        }
        assert!(!size.is_bulk());
        size.adapt(200 << 10, 512 << 10);
        for _ in 0..FULL - 1 {
            full(&mut size);
        }
        assert!(!size.is_bulk(), "the reads were not in a row");
        full(&mut size);
        assert!(size.is_bulk());
        for _ in 0..10 {
            (1..SMALL_MOVES).for_each(|_| size.moved(1));
            size.moved(SMALL);
        }
        assert!(size.is_bulk(), "the small moves were not in a row");
        (0..SMALL_MOVES).for_each(|_| size.moved(1));
        assert!(!size.is_bulk());
        assert_eq!(size.wanted(usize::MAX), 64 << 10);
    }

    #[test]
    fn little_room_takes_a_small_buffer() {
        let mut size = ReadSize::default();
        size.adapt(1, 1);
        size.adapt(1, 1);
        assert_eq!(size.wanted(1), 16 << 10);
        assert_eq!(size.wanted(64 << 10), 64 << 10);
        assert_eq!(size.wanted(1 << 20), 512 << 10);
    }
}
