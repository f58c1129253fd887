//! How many sessions an address may begin.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The most addresses that are remembered. Beyond it all others share one allowance: a flood of
/// forged addresses cannot fill the memory.
const MOST: usize = 4096;

/// The least time between two searches for addresses that can be forgotten.
const SWEEP: Duration = Duration::from_millis(100);

/// Half of the address of a host in IPv6 is its own choice.
const NETWORK: u128 = u128::MAX << 64;

/// Buckets that fill with time: an address may begin a second's worth at once.
#[derive(Debug)]
pub(super) struct Sources {
    pause: Duration,
    /// When an address would have an allowance that is full again.
    full: HashMap<IpAddr, Instant>,
    others: Option<Instant>,
    swept: Option<Instant>,
}

impl Sources {
    pub(super) fn new(per_second: u32) -> Self {
        let pause = Duration::from_secs(1) / per_second.max(1);
        Self { pause, full: HashMap::new(), others: None, swept: None }
    }

    /// Takes one session of the allowance of `source`; `false` where there is none.
    pub(super) fn admit(&mut self, now: Instant, source: IpAddr) -> bool {
        let source = network(source);
        let is_known = self.full.contains_key(&source);
        if !is_known && self.full.len() >= MOST {
            self.sweep(now);
        }
        if is_known || self.full.len() < MOST {
            let full = self.full.entry(source).or_insert(now);
            take(full, now, self.pause)
        } else {
            take(self.others.get_or_insert(now), now, self.pause)
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now >= swept + SWEEP) {
            self.swept = Some(now);
            self.full.retain(|_, full| *full > now);
        }
    }
}

fn take(full: &mut Instant, now: Instant, pause: Duration) -> bool {
    let next = (*full).max(now) + pause;
    let admits = next <= now + Duration::from_secs(1);
    if admits {
        *full = next;
    }
    admits
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(source) => source.into(),
        IpAddr::V6(source) => Ipv6Addr::from_bits(source.to_bits() & NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_begins_so_many_sessions_per_second() {
        let mut now = Instant::now();
        let mut sources = Sources::new(10);
        let admitted = |sources: &mut Sources, now, source: &str| {
            (0..100).filter(|_| sources.admit(now, source.parse().unwrap())).count()
        };
        assert_eq!(admitted(&mut sources, now, "10.0.0.1"), 10);
        assert_eq!(admitted(&mut sources, now, "::ffff:10.0.0.1"), 0);
        assert_eq!(admitted(&mut sources, now, "10.0.0.2"), 10);
        assert_eq!(admitted(&mut sources, now, "2001:db8::1"), 10);
        assert_eq!(admitted(&mut sources, now, "2001:db8::2"), 0, "the same network");
        assert_eq!(admitted(&mut sources, now, "2001:db8:0:1::2"), 10);
        now += Duration::from_millis(300);
        assert_eq!(admitted(&mut sources, now, "10.0.0.1"), 3);
    }

    #[test]
    fn forged_addresses_fill_no_memory_and_share_an_allowance() {
        let mut now = Instant::now();
        let mut sources = Sources::new(10);
        let mut admitted = 0;
        for source in 0..100_000_u32 {
            admitted += usize::from(sources.admit(now, IpAddr::V4(source.into())));
        }
        assert_eq!((admitted, sources.full.len()), (MOST + 10, MOST));
        now += Duration::from_secs(2);
        assert!(sources.admit(now, IpAddr::V4(u32::MAX.into())));
        assert_eq!(sources.full.len(), 1);
    }
}
