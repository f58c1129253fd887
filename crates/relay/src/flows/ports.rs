//! How many sockets the targets of flows may have in this process. Each takes a local port that no
//! other UDP socket of the machine can have meanwhile (ip(7), `ip_local_port_range`), so the lookups
//! of names and QUIC need a part of them.

use std::sync::atomic::{AtomicU32, Ordering};

/// Three quarters of the ports that Linux has by default, 32,768 to 60,999. The setting of the
/// machine is in a file that the units for systemd hide; where it is smaller, the system refuses a
/// socket, which is a flow that is refused.
const LIMIT: u32 = 28_232 / 4 * 3;

static LIVE: AtomicU32 = AtomicU32::new(0);

/// The right to one local port. Dropping it returns the port.
#[derive(Debug)]
pub(super) struct Port(());

impl Port {
    /// `None`: the targets of flows have as many ports as they may have.
    pub(super) fn take() -> Option<Self> {
        let next = |live: u32| (live < LIMIT).then_some(live + 1);
        LIVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok().then_some(Self(()))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_comes_back() {
        let first = Port::take();
        assert!(first.is_some());
        drop(first);
        assert!(Port::take().is_some());
    }
}
