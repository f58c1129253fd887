//! Gathered writes: one system call writes many small buffers.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// The maximum number of buffers per call. More gain nothing, and the slices are on the stack (1
/// KiB).
pub const MOST: usize = 64;

/// Fills `slices` from the front of `pieces`. Returns the number of filled slices and the sum of
/// their bytes.
pub fn gather<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    slices: &mut [IoSlice<'a>; MOST],
) -> (usize, usize) {
    let (mut filled, mut total) = (0, 0);
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(piece);
        filled += 1;
        total += piece.len();
    }
    (filled, total)
}

/// Removes `written` bytes from the front of `pieces`. Each piece that becomes empty is removed and
/// passed to `done`. Returns by how many bytes `written` exceeds the sum of all pieces.
pub fn advance(
    pieces: &mut VecDeque<Bytes>,
    mut written: usize,
    mut done: impl FnMut(Bytes),
) -> usize {
    while let Some(front) = pieces.front_mut() {
        if front.len() > written {
            front.advance(written);
            return 0;
        }
        written -= front.len();
        pieces.pop_front().into_iter().for_each(&mut done);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_taken_at_every_cut() {
        let parts: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        for cut in 0..=6 {
            let mut pieces: VecDeque<Bytes> = parts.map(Bytes::from_static).into();
            let mut slices = [IoSlice::new(&[]); MOST];
            assert_eq!(gather(pieces.iter().map(|p| &p[..]), &mut slices), (4, 6));
            let mut gone = 0;
            assert_eq!(advance(&mut pieces, cut, |_| gone += 1), 0);
            assert_eq!(pieces.iter().flatten().copied().collect::<Vec<u8>>(), &b"abcdef"[cut..]);
            assert_eq!(gone + pieces.len(), 4);
            let left: usize = pieces.iter().map(Bytes::len).sum();
            assert_eq!(advance(&mut pieces, left + 3, drop), 3);
        }
    }
}
