//! Read buffers of a worker: a small last-in-first-out pool per thread. Buffers stay in the cache
//! of the core, and an idle connection holds no buffer.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Capacities of the size classes: a first read, a busy stream, bulk streams that share a fast
/// link, a single bulk stream.
const CLASSES: [usize; 4] = [16 << 10, 64 << 10, 128 << 10, 512 << 10];

/// The maximum number of kept buffers per size class: about as many as one CREDIT returns. Buffers
/// beyond this number are freed at once; [`tidy`] frees unused buffers.
const KEPT: [usize; CLASSES.len()] = [64, 32, 32, 8];

/// The maximum number of bytes that the pool of a thread keeps, unless [`limit`] sets a lower
/// number.
pub const KEPT_BYTES: usize = {
    let (mut bytes, mut class) = (0, 0);
    while class < CLASSES.len() {
        bytes += KEPT[class] * CLASSES[class];
        class += 1;
    }
    bytes
};

struct Pool {
    classes: [Vec<BytesMut>; CLASSES.len()],
    /// The minimum number of buffers in each class since the last `tidy`.
    fewest: [usize; CLASSES.len()],
    kept: usize,
    limit: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool {
            classes: [const { Vec::new() }; CLASSES.len()],
            fewest: [0; CLASSES.len()],
            kept: 0,
            limit: KEPT_BYTES,
        })
    };
}

/// Limits the pool of this thread to `bytes`. A process with little memory cannot afford 11 MiB per
/// worker.
pub fn limit(bytes: usize) {
    POOL.with_borrow_mut(|pool| pool.limit = bytes);
}

/// Frees the buffers of this thread that were not used since the last call. The thread calls it
/// periodically: a daemon that was busy shrinks again, and a busy daemon keeps the buffers that it
/// uses.
pub fn tidy() {
    POOL.with_borrow_mut(|pool| {
        for (class, buffers) in pool.classes.iter_mut().enumerate() {
            let idle = pool.fewest[class];
            // The most recently returned buffers are at the end, and are warm in the cache.
            buffers.drain(..idle);
            pool.kept -= idle * CLASSES[class];
            pool.fewest[class] = buffers.len();
        }
    });
}

/// Returns an empty buffer of at least `capacity` bytes. The pool serves capacities up to 512 KiB.
#[must_use]
pub fn take(capacity: usize) -> BytesMut {
    let Some(class) = CLASSES.iter().position(|&c| c >= capacity) else {
        return BytesMut::with_capacity(capacity);
    };
    let pooled = POOL.with_borrow_mut(|pool| {
        let buffer = pool.classes[class].pop()?;
        pool.fewest[class] = pool.fewest[class].min(pool.classes[class].len());
        pool.kept -= CLASSES[class];
        Some(buffer)
    });
    pooled.unwrap_or_else(|| BytesMut::with_capacity(CLASSES[class]))
}

/// Returns a buffer to the pool. The pool keeps the buffer only if no other part of it is in use.
pub fn give(mut buffer: BytesMut) {
    buffer.clear();
    if !CLASSES.contains(&buffer.capacity()) {
        // A part reclaims the whole buffer, largest class first, if no other part is in use.
        let _ = CLASSES.iter().rev().any(|&c| buffer.try_reclaim(c));
    }
    let Some(class) = CLASSES.iter().position(|&c| c == buffer.capacity()) else { return };
    POOL.with_borrow_mut(|pool| {
        let kept = pool.kept + CLASSES[class];
        if pool.classes[class].len() < KEPT[class] && kept <= pool.limit {
            pool.kept = kept;
            pool.classes[class].push(buffer);
        }
    });
}

/// Returns the buffer of `bytes` to the pool, if `bytes` is its last remaining part.
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
    fn a_pool_with_a_limit_keeps_no_more() {
        limit(100 << 10);
        let buffers = [take(64 << 10), take(64 << 10), take(16 << 10), take(16 << 10)];
        let addresses = buffers.each_ref().map(|buffer| buffer.as_ptr());
        buffers.into_iter().for_each(give);
        assert_eq!(take(64 << 10).as_ptr(), addresses[0]);
        assert_eq!(take(16 << 10).as_ptr(), addresses[3]);
        assert_eq!(take(16 << 10).as_ptr(), addresses[2]);
        POOL.with_borrow(|pool| assert_eq!(pool.kept, 0));
    }

    #[test]
    fn what_was_not_taken_between_two_calls_is_freed() {
        let kept = || POOL.with_borrow(|pool| (pool.classes[1].len(), pool.kept));
        let buffers = [(); 5].map(|()| take(64 << 10));
        buffers.into_iter().for_each(give);
        tidy();
        assert_eq!(kept(), (5, 5 * (64 << 10)), "all of them were taken once");
        for _ in 0..3 {
            [(); 2].map(|()| take(64 << 10)).into_iter().for_each(give);
            tidy();
            assert_eq!(kept(), (2, 2 * (64 << 10)));
        }
        tidy();
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn the_last_buffer_given_is_the_first_taken() {
        let buffer = take(64 << 10);
        let address = buffer.as_ptr();
        give(buffer);
        assert_eq!(take(64 << 10).as_ptr(), address);
    }
}
