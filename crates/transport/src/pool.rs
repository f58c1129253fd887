//! Read buffers of a worker: a small last-in-first-out pool per thread, so that bytes stay in the
//! core's cache and an idle connection holds no buffer.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Buffers kept per size class. More are in flight at most; a burst's surplus is freed.
const KEPT: usize = 8;

/// Capacities of the size classes: a first read, a busy stream, a bulk stream alone.
const CLASSES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];

thread_local! {
    static POOL: RefCell<[Vec<BytesMut>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// An empty buffer with at least `capacity` bytes (at most 512 KiB are pooled).
#[must_use]
pub fn take(capacity: usize) -> BytesMut {
    let Some(class) = CLASSES.iter().position(|&c| c >= capacity) else {
        return BytesMut::with_capacity(capacity);
    };
    POOL.with_borrow_mut(|pool| pool[class].pop())
        .unwrap_or_else(|| BytesMut::with_capacity(CLASSES[class]))
}

/// Gives a buffer back. Kept only if it is whole again: nobody else holds a part of it.
pub fn give(mut buffer: BytesMut) {
    buffer.clear();
    if !CLASSES.contains(&buffer.capacity()) {
        // A part reclaims the whole, largest class first, if nobody else uses the rest.
        let _ = CLASSES.iter().rev().any(|&c| buffer.try_reclaim(c));
    }
    let Some(class) = CLASSES.iter().position(|&c| c == buffer.capacity()) else { return };
    POOL.with_borrow_mut(|pool| {
        if pool[class].len() < KEPT {
            pool[class].push(buffer);
        }
    });
}

/// Gives back the buffer that `bytes` was cut from, if this was its last part.
pub fn recycle(bytes: Bytes) {
    if let Ok(buffer) = bytes.try_into_mut() {
        give(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_buffer_brings_the_whole_back() {
        let mut buffer = take(512 << 10);
        let address = buffer.as_ptr();
        buffer.resize(100_000, 1);
        let first = buffer.split().freeze();
        buffer.resize(50_000, 2);
        let second = buffer.split().freeze();
        give(buffer);
        recycle(first);
        assert_ne!(take(512 << 10).as_ptr(), address, "the second part is in use");
        recycle(second);
        let again = take(512 << 10);
        assert_eq!((again.as_ptr(), again.capacity()), (address, 512 << 10));
    }

    #[test]
    fn a_buffer_in_use_elsewhere_is_not_handed_out_again() {
        let mut buffer = take(1000);
        buffer.extend_from_slice(b"abc");
        let held = buffer.split().freeze();
        give(buffer);
        let mut other = take(1000);
        other.extend_from_slice(b"xyz");
        assert_eq!(&held[..], b"abc");
    }

    #[test]
    fn the_last_buffer_given_is_the_first_taken() {
        let buffer = take(64 << 10);
        let address = buffer.as_ptr();
        give(buffer);
        assert_eq!(take(64 << 10).as_ptr(), address);
    }
}
