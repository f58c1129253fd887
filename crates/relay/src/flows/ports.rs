//! How many sockets the targets of flows may have in this process. Each takes a local port that no
//! other UDP socket of the machine can have meanwhile (ip(7), `ip_local_port_range`), so the lookups
//! of names and QUIC need a part of them.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of ports by default: 32,768 to 60,999.
const USUAL: u32 = 28_232;

static LIVE: AtomicU32 = AtomicU32::new(0);
static LIMIT: OnceLock<u32> = OnceLock::new();

/// The right to one local port. Dropping it returns the port.
#[derive(Debug)]
pub(super) struct Port(());

impl Port {
    /// `None`: the targets of flows have three quarters of the machine's ports.
    pub(super) fn take() -> Option<Self> {
        let limit = *LIMIT.get_or_init(|| {
            let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
            share(&range.unwrap_or_default())
        });
        let next = |live: u32| (live < limit).then_some(live + 1);
        LIVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok().then_some(Self(()))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Three quarters of the ports in `range`, two numbers with white space between.
fn share(range: &str) -> u32 {
    let mut bounds = range.split_whitespace().map(str::parse::<u32>);
    let ports = match (bounds.next(), bounds.next()) {
        (Some(Ok(first)), Some(Ok(last))) if first <= last => last - first + 1,
        _ => USUAL,
    };
    ports - ports / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_ports_is_left_to_others() {
        assert_eq!(share("32768\t60999\n"), 21_174);
        assert_eq!(share("1000 1003"), 3);
        assert_eq!(share("5 5"), 1);
        for broken in ["", "a b", "9 1", "7"] {
            assert_eq!(share(broken), 21_174, "{broken:?}");
        }
    }

    #[test]
    fn a_port_comes_back() {
        let first = Port::take();
        assert!(first.is_some());
        drop(first);
        assert!(Port::take().is_some());
    }
}
