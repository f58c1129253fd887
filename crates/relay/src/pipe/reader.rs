//! The size of the next read. Streams with little data use small buffers; a bulk stream that is
//! alone reads 512 KiB at once.

/// Sizes of the buffers of `net::pool`, head room included.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];

/// The read size: it grows while reads fill the buffer, and shrinks when reads leave most of it
/// empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadSize(u8);

impl ReadSize {
    /// The buffer size for the next read when at most `room` bytes of payload may be sent. A room
    /// of exactly a pooled size takes a buffer of that size, and the frame is shorter by its head.
    pub(super) fn wanted(self, room: usize) -> usize {
        SIZES[usize::from(self.0)].min(room.max(SIZES[0]))
    }

    /// Adapts the size to a read of `read` bytes into `space` bytes.
    pub(super) fn adapt(&mut self, read: usize, space: usize) {
        if read >= space {
            self.0 = (self.0 + 1).min(SIZES.len() as u8 - 1);
        } else if read < SIZES[usize::from(self.0)] / 4 {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_reads_grow_the_buffer_and_small_ones_shrink_it() {
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
    fn little_room_takes_a_small_buffer() {
        let mut size = ReadSize::default();
        size.adapt(1, 1);
        size.adapt(1, 1);
        assert_eq!(size.wanted(1), 16 << 10);
        assert_eq!(size.wanted(64 << 10), 64 << 10);
        assert_eq!(size.wanted(1 << 20), 512 << 10);
    }
}
