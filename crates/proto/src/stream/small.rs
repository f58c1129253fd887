//! Where small frames are kept until they are acknowledged.

use bytes::{Bytes, BytesMut};

use crate::HEAD_ROOM;

/// Payloads below this are copied out of the read buffer, which is used again at once: a retained
/// small frame must not pin a large buffer.
pub(super) const COPY_BELOW: usize = 4 << 10;

/// Memory of small frames: they are packed into chunks, so that a request costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct SmallFrames(BytesMut);

/// Size of a chunk. A frame that is retained long pins one, which is no more than the largest small
/// frame takes itself.
const CHUNK: usize = COPY_BELOW + HEAD_ROOM;

impl SmallFrames {
    /// A copy of `frame`, which is empty afterwards.
    pub(super) fn keep(&mut self, frame: &mut BytesMut) -> Bytes {
        let left = self.0.capacity() - self.0.len();
        if left < frame.len() && !self.0.try_reclaim(CHUNK) {
            self.0 = BytesMut::with_capacity(CHUNK);
        }
        self.0.extend_from_slice(frame);
        frame.clear();
        self.0.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_share_a_chunk_and_keep_their_bytes() {
        let mut small = SmallFrames::default();
        let keep = |small: &mut SmallFrames, n: usize| {
            let mut frame = BytesMut::from(&vec![u8::try_from(n % 251).unwrap(); n][..]);
            let kept = small.keep(&mut frame);
            assert!(frame.is_empty());
            kept
        };
        let sizes = [1, 150, COPY_BELOW, 150, 3000, 150];
        let kept: Vec<Bytes> = sizes.iter().map(|&n| keep(&mut small, n)).collect();
        for (bytes, n) in kept.iter().zip(sizes) {
            assert_eq!(&bytes[..], &vec![u8::try_from(n % 251).unwrap(); n][..]);
        }
        assert_eq!(kept[0].as_ptr().wrapping_add(1), kept[1].as_ptr(), "one behind the other");
        drop(kept);
        let first = keep(&mut small, COPY_BELOW).as_ptr();
        assert_eq!(keep(&mut small, COPY_BELOW).as_ptr(), first, "the chunk is used again");
    }
}
