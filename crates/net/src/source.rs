//! Limits by the source of a connection. A [`Source`] is an address prefix as assigned by a
//! provider ([`prefix`]), or the client that visits a private service. [`Shares`] limits the number
//! of items (connections, flows, log-ins in progress) that one source holds, and [`Rates`] the
//! number of items that one source begins per second.
//!
//! A reverse proxy is not a source: its connections carry the requests of many visitors. The caller
//! passes the visitor that the proxy names, or `None` if it names none. `None` is not limited.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reverse proxies in front of this process.
#[derive(Clone)]
pub struct Proxies(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Proxies {
    /// Creates the set of the addresses for which `include` returns true. `include` gets canonical
    /// addresses (no IPv4-mapped IPv6).
    pub fn new(include: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(include))
    }

    /// Whether an address belongs to a reverse proxy.
    #[must_use]
    pub fn include(&self, ip: IpAddr) -> bool {
        (self.0)(ip.to_canonical())
    }

    /// The source of a connection from `ip`. A reverse proxy is not a source.
    #[must_use]
    pub fn source(&self, ip: IpAddr) -> Option<IpAddr> {
        (!self.include(ip)).then_some(ip)
    }
}

impl Default for Proxies {
    /// No address belongs to a reverse proxy.
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxies")
    }
}

/// The source to which a connection, a stream, a flow or a password counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The address of the sender.
    Address(IpAddr),
    /// The client that visits a private service. The client itself reports the addresses of its
    /// programs and may report any address, so all its programs are one source.
    Client(Arc<str>),
}

impl Source {
    /// The source with the [`prefix`] of its address.
    #[must_use]
    pub fn prefix(self) -> Self {
        match self {
            Self::Address(ip) => Self::Address(prefix(ip)),
            Self::Client(name) => Self::Client(name),
        }
    }
}

impl From<IpAddr> for Source {
    fn from(ip: IpAddr) -> Self {
        Self::Address(ip)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => ip.fmt(f),
            Self::Client(name) => write!(f, "client {name}"),
        }
    }
}

/// The smallest address prefix of a provider's customer: 64 bits for IPv6, the whole address for
/// IPv4.
#[must_use]
pub fn prefix(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
    }
}

/// The number of shards of the table, each with its own lock, so that workers rarely contend.
const PARTS: usize = 32;

/// The number of items that each source holds. The table has an entry for each source with at least
/// one item, so the number of items bounds its size.
#[derive(Debug)]
pub struct Shares {
    most: AtomicU32,
    hasher: RandomState,
    parts: [Mutex<HashMap<Source, u32>>; PARTS],
}

/// The permit for one item of a source. Dropping the share returns it.
#[derive(Debug)]
pub struct Share(Option<(Arc<Shares>, Source)>);

impl Shares {
    /// Creates a table in which each source holds at most `most` items.
    #[must_use]
    pub fn new(most: u32) -> Arc<Self> {
        let parts = std::array::from_fn(|_| Mutex::default());
        Arc::new(Self { most: AtomicU32::new(most), hasher: RandomState::new(), parts })
    }

    /// Replaces the limit. Shares beyond a lower limit stay until they are dropped.
    pub fn set_most(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// The limit of one source.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most.load(Ordering::Relaxed)
    }

    /// Takes a share of a source; `None` if the source has reached its limit.
    #[must_use]
    pub fn take(self: &Arc<Self>, source: Option<impl Into<Source>>) -> Option<Share> {
        self.take_within(source, self.most())
    }

    /// As [`Self::take`], with a limit that the caller computes from the current load.
    #[must_use]
    pub fn take_within(
        self: &Arc<Self>,
        source: Option<impl Into<Source>>,
        most: u32,
    ) -> Option<Share> {
        let Some(source) = source else { return Some(Share(None)) };
        let source = source.into().prefix();
        let mut part = self.part(&source).lock().unwrap_or_else(PoisonError::into_inner);
        let held = part.get(&source).copied().unwrap_or(0);
        if held >= most {
            return None;
        }
        part.insert(source.clone(), held + 1);
        Some(Share(Some((Arc::clone(self), source))))
    }

    /// The number of items that a source holds.
    #[must_use]
    pub fn held(&self, source: impl Into<Source>) -> u32 {
        let source = source.into().prefix();
        let part = self.part(&source).lock().unwrap_or_else(PoisonError::into_inner);
        part.get(&source).copied().unwrap_or(0)
    }

    fn part(&self, source: &Source) -> &Mutex<HashMap<Source, u32>> {
        let [low, ..] = self.hasher.hash_one(source).to_le_bytes();
        &self.parts[usize::from(low) % PARTS]
    }

    fn give_back(&self, source: &Source) {
        let mut part = self.part(source).lock().unwrap_or_else(PoisonError::into_inner);
        match part.get_mut(source) {
            Some(held) if *held > 1 => *held -= 1,
            _ => {
                part.remove(source);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some((shares, source)) = self.0.take() {
            shares.give_back(&source);
        }
    }
}

/// The number of counters in each of two rows, which take 64 KiB together. A flood of forged
/// sources affects other sources only if it begins almost `COUNTERS` times the limit of a source in
/// one second.
const COUNTERS: usize = 8_192;

/// The number of items that each source has begun in the current second.
///
/// Forged sources would fill a table with an entry per source, which would then lose the sources
/// that have begun too many. So each source has a counter in each of two rows, and sources may
/// share a counter. The lower counter of a source is used: it is never below the number of items
/// that the source has begun (a count-min sketch with conservative update, Estan and Varghese
/// 2002).
#[derive(Debug)]
pub struct Rates {
    most: u32,
    since: Option<Instant>,
    hasher: RandomState,
    /// Empty until the first call of [`Self::take`].
    rows: [Vec<u32>; 2],
}

impl Rates {
    /// Creates a table in which each source begins at most `most` items per second.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { most, since: None, hasher: RandomState::new(), rows: Default::default() }
    }

    /// Counts one item; `false` if its source has begun too many.
    pub fn take(&mut self, now: Instant, source: Option<IpAddr>) -> bool {
        source.is_none_or(|source| self.take_of(now, prefix(source)))
    }

    /// As [`Self::take`], for a source with a finer key than an address.
    pub fn take_of(&mut self, now: Instant, source: impl Hash) -> bool {
        let is_over =
            |since: Instant| now.saturating_duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            for row in &mut self.rows {
                row.clear();
                row.resize(COUNTERS, 0);
            }
        }
        let [a, b, c, d, ..] = self.hasher.hash_one(source).to_le_bytes();
        let places = [[a, b], [c, d]].map(|bytes| usize::from(u16::from_le_bytes(bytes)));
        let [first, second] = &mut self.rows;
        let [at, also] = places.map(|place| place % COUNTERS);
        // Both rows have `COUNTERS` counters.
        let (Some(first), Some(second)) = (first.get_mut(at), second.get_mut(also)) else {
            return true;
        };
        let begun = (*first).min(*second);
        if begun >= self.most {
            return false;
        }
        *first = (*first).max(begun + 1);
        *second = (*second).max(begun + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_customer_has_one_address_of_ipv4_and_64_bits_of_ipv6() {
        for (source, of_all) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(prefix(ip(source)), ip(of_all));
        }
    }

    #[test]
    fn a_source_holds_as_many_as_it_may_and_others_do_not_notice() {
        let shares = Shares::new(2);
        let first = shares.take(Some(ip("2001:db8::1")));
        let second = shares.take(Some(ip("2001:db8::2")));
        assert!(first.is_some() && second.is_some());
        assert!(shares.take(Some(ip("2001:db8::3"))).is_none());
        assert!(shares.take(Some(ip("192.0.2.1"))).is_some(), "another source");
        assert!((0..9).all(|_| shares.take(None::<IpAddr>).is_some()), "no source, no bound");
        drop(first);
        assert!(shares.take(Some(ip("2001:db8::3"))).is_some());
        drop(second);
        assert_eq!(shares.held(ip("2001:db8::9")), 0);
        assert!(shares.parts.iter().all(|part| part.lock().unwrap().is_empty()));
    }

    #[test]
    fn a_lower_bound_counts_from_the_next_share_on() {
        let shares = Shares::new(2);
        let held = [(); 2].map(|()| shares.take(Some(ip("192.0.2.1"))));
        shares.set_most(1);
        assert_eq!(shares.held(ip("192.0.2.1")), 2);
        let [first, second] = held;
        drop(first);
        assert!(shares.take(Some(ip("192.0.2.1"))).is_none());
        drop(second);
        assert!(shares.take(Some(ip("192.0.2.1"))).is_some());
    }

    #[test]
    fn a_source_that_begins_too_many_things_in_a_second_delays_itself_alone() {
        let mut rates = Rates::new(250);
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let taken = |rates: &mut Rates, at| {
            let sources = (0..2_500).map(|n| ip(&format!("2001:db8::{}", n % 100)));
            sources.filter(|source| rates.take(at, Some(*source))).count()
        };
        assert_eq!(taken(&mut rates, now), 250, "one prefix is one source");
        assert!(rates.take(now, Some(ip("192.0.2.1"))));
        assert!((0..999).all(|_| rates.take(now, None)), "no source, no bound");
        assert_eq!(taken(&mut rates, now + second / 2), 0);
        assert_eq!(taken(&mut rates, now + second), 250);
    }

    #[test]
    fn forged_sources_neither_reset_the_bound_of_a_source_nor_delay_others() {
        let (mut rates, now) = (Rates::new(100), Instant::now());
        let loud = Some(ip("198.51.100.1"));
        assert_eq!((0..1_000).filter(|_| rates.take(now, loud)).count(), 100);
        for n in 0..100_000_u32 {
            rates.take(now, Some(IpAddr::from((0x0a00_0000 + n).to_be_bytes())));
        }
        assert!(!rates.take(now, loud), "the same second");
        assert!(rates.take(now, Some(ip("192.0.2.1"))), "another source");
        assert!(rates.rows.iter().all(|row| row.len() == COUNTERS));
    }
}
