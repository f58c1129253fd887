//! The bytes that `/bytes/N` sends and the fetcher expects. Every shifted, lost or swapped piece is
//! detected.

use std::sync::LazyLock;

/// Length of the repeated block, in bytes. It is a prime, so no buffer size divides it, and bytes
/// that are shifted by whole buffers differ.
const BLOCK: usize = 65_521;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // xorshift32 (Marsaglia 2003): no two parts are alike, and no dependency is needed.
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..BLOCK).map(|_| next()).collect()
});

/// The longest contiguous piece of the body from `offset` on, at most `limit` bytes.
pub(super) fn piece(offset: u64, limit: u64) -> &'static [u8] {
    let from = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
    let rest = &PATTERN[from..];
    &rest[..usize::try_from(limit).map_or(rest.len(), |limit| limit.min(rest.len()))]
}

/// Whether `data` equals the body at `offset`.
pub(super) fn matches(mut offset: u64, mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let expected = piece(offset, data.len() as u64);
        if data[..expected.len()] != *expected {
            return false;
        }
        data = &data[expected.len()..];
        offset += expected.len() as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_shift_is_seen() {
        let start = BLOCK as u64 - 10;
        let data: Vec<u8> = [piece(start, 100), piece(start + 10, 90)].concat();
        assert_eq!(data.len(), 100);
        assert!(matches(start, &data));
        assert!(!matches(start + 1, &data));
        assert!(!matches(start, &data[1..]));
    }
}
