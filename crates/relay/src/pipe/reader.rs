//! The size of the next read. Streams with little data use small buffers; a single bulk stream
//! reads 512 KiB at once. A stream with several large reads in a row is bulk: its bytes may move as
//! pages.

use net::pages::{self, Rule};

/// Sizes of the buffers of `net::pool`, including head room.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];

/// The index of the largest size.
const LARGEST: u8 = SIZES.len() as u8 - 1;

/// A read of at least this number of bytes is large: a whole window of a `passage`, minus a header.
const LARGE: usize = 60 << 10;

/// The score of consecutive reads at which a stream becomes bulk.
const BULK: u8 = 16;

/// The score of a large read. Another read of at least [`SMALL`] bytes scores 1.
const OF_LARGE: u8 = 4;

/// The number of consecutive small moves of pages after which a stream is no longer bulk.
const SMALL_MOVES: u8 = 4;

/// A move or read of fewer bytes is small: copying it costs less than the system calls for pages.
const SMALL: usize = 16 << 10;

/// The bits of the index of the size.
const PLACE: u8 = 3;

/// The read size: it grows while reads fill the buffer, and shrinks when reads leave most of it
/// empty. Two bits are the index of the size. The others count: up to [`BULK`] the score of
/// consecutive reads, above it consecutive small moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSize(u8);

impl Default for ReadSize {
    fn default() -> Self {
        Self::new(0, if pages::rule() == Rule::Always { BULK } else { 0 })
    }
}

impl ReadSize {
    const fn new(place: u8, count: u8) -> Self {
        Self(place | count << PLACE.count_ones())
    }

    const fn place(self) -> u8 {
        self.0 & PLACE
    }

    const fn count(self) -> u8 {
        self.0 >> PLACE.count_ones()
    }

    /// Whether the stream is bulk.
    pub(super) const fn is_bulk(self) -> bool {
        self.count() >= BULK
    }

    /// Resets the score, so that the stream must become bulk again.
    pub(super) fn leave_bulk(&mut self) {
        if pages::rule() != Rule::Always {
            *self = Self::new(self.place(), 0);
        }
    }

    /// Records that a bulk stream moved `moved` bytes as pages, of at most `room`.
    pub(super) fn moved(&mut self, moved: usize, room: usize) {
        let is_small = moved < SMALL.min(room) && pages::rule() != Rule::Always;
        *self = match if is_small { self.count() + 1 } else { BULK } {
            count if count >= BULK + SMALL_MOVES => Self::new(1, 0),
            count => Self::new(self.place(), count),
        };
    }

    /// The buffer size for the next read when at most `room` bytes of payload may be sent. A `room`
    /// of exactly a pooled size takes a buffer of that size, and the payload is shorter by the
    /// header.
    pub(super) fn wanted(self, room: usize) -> usize {
        SIZES[usize::from(self.place())].min(room.max(SIZES[0]))
    }

    /// Adapts the size to a read of `read` bytes into `space` bytes, when `room` bytes could be
    /// sent.
    pub(super) fn adapt(&mut self, read: usize, space: usize, room: usize) {
        let place = self.place();
        let place = if read >= space {
            (place + 1).min(LARGEST)
        } else if read < SIZES[usize::from(place)] / 4 {
            place.saturating_sub(1)
        } else {
            place
        };
        let count = match pages::rule() {
            Rule::Never => 0,
            Rule::Always => BULK,
            Rule::Bulk if read >= LARGE => (self.count() + OF_LARGE).min(BULK),
            Rule::Bulk if read >= SMALL => (self.count() + 1).min(BULK),
            // The socket may have more bytes.
            Rule::Bulk if read >= room => self.count(),
            Rule::Bulk => 0,
        };
        *self = Self::new(place, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests apply to the default rule, without the environment variable for tests.
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
            size.adapt(space, space, space);
            assert_eq!(size.wanted(usize::MAX), expected);
        }
        size.adapt(200 << 10, 512 << 10, 512 << 10);
        assert_eq!(size.wanted(usize::MAX), 512 << 10);
        size.adapt(100, 512 << 10, 512 << 10);
        assert_eq!(size.wanted(usize::MAX), 64 << 10);
    }

    #[test]
    fn large_reads_in_a_row_make_bulk_and_small_moves_in_a_row_end_it() {
        if is_forced() {
            return;
        }
        let mut size = ReadSize::default();
        let read = |size: &mut ReadSize, bytes| size.adapt(bytes, 512 << 10, 512 << 10);
        (1..BULK / OF_LARGE).for_each(|_| read(&mut size, LARGE));
        read(&mut size, SMALL - 1);
        (1..BULK / OF_LARGE).for_each(|_| read(&mut size, LARGE));
        assert!(!size.is_bulk(), "the reads were not in a row");
        size.adapt(12, 16 << 10, 12);
        assert!(!size.is_bulk(), "there was no room for more");
        read(&mut size, 500 << 10);
        assert!(size.is_bulk());
        size.leave_bulk();
        (1..BULK).for_each(|_| read(&mut size, SMALL));
        assert!(!size.is_bulk(), "each of these is worth less");
        read(&mut size, SMALL);
        assert!(size.is_bulk());
        for _ in 0..10 {
            (1..SMALL_MOVES).for_each(|_| size.moved(1, SMALL));
            size.moved(SMALL - 1, SMALL - 1);
        }
        assert!(size.is_bulk(), "the small moves were not in a row");
        (0..SMALL_MOVES).for_each(|_| size.moved(1, SMALL));
        assert!(!size.is_bulk());
        assert_eq!(size.wanted(usize::MAX), 64 << 10);
    }

    #[test]
    fn little_room_takes_a_small_buffer() {
        let mut size = ReadSize::default();
        size.adapt(1, 1, 1);
        size.adapt(1, 1, 1);
        assert_eq!(size.wanted(1), 16 << 10);
        assert_eq!(size.wanted(64 << 10), 64 << 10);
        assert_eq!(size.wanted(1 << 20), 512 << 10);
    }
}
