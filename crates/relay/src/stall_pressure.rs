//! When many streams of a worker have not moved, the kernel buffers fewer bytes of each additional
//! stream for the programs of this machine ([`net::socket::bound_segments`]). A few hundred stalled
//! streams would otherwise push the machine into TCP memory pressure, in which every connection is
//! slow. A worker with few such streams pays nothing for the bound, except for one connection: a
//! bounded listener is released only after it has accepted the next connection.

use std::cell::Cell;

/// The number of unmoved streams from which the bound applies. This number of streams holds up to
/// 42 MB in the send buffers of programs on this machine, 2.6 MB at each end. With 24 of them, 400
/// unread streams and 400 streams to a target that does not read came close to the pressure of a
/// machine with 24 GB.
const PRESSURE: usize = 8;

thread_local! {
    static UNMOVED: Cell<usize> = const { Cell::new(0) };
}

/// The count of a stream of this worker whose bytes have not been taken yet. Dropping it ends the
/// count.
#[derive(Debug)]
pub(crate) struct Unmoved(());

impl Unmoved {
    pub(crate) fn new() -> Self {
        UNMOVED.set(UNMOVED.get() + 1);
        Self(())
    }
}

impl Drop for Unmoved {
    fn drop(&mut self) {
        UNMOVED.set(UNMOVED.get() - 1);
    }
}

/// Whether this worker has many streams that have not moved.
pub(crate) fn is_high() -> bool {
    UNMOVED.get() >= PRESSURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_ends_with_the_first_stream_that_moves() {
        let mut all: Vec<_> = (0..PRESSURE - 1).map(|_| Unmoved::new()).collect();
        assert!(!is_high());
        all.push(Unmoved::new());
        assert!(is_high());
        all.pop();
        assert!(!is_high());
    }
}
