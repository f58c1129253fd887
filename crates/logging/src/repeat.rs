//! Limits log lines that a hostile or broken peer can cause at will: one line per key and period
//! (10 s by default), with the number of suppressed lines.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Shortest time between two lines of one key: often enough to show that the event continues, and
/// rare enough not to fill a disk.
const PERIOD: Duration = Duration::from_secs(10);

/// The largest number of keys that are distinguished. An attacker may invent keys (addresses). If
/// the table is full of keys of the last period, new keys share one line; see also
/// [`RepeatLimit::with_quota`].
const KEYS: usize = 1024;

/// The shortest time between two searches of a full table, each of which visits all keys.
const SWEEP: Duration = Duration::from_millis(100);

/// The limit for one kind of line. Each thread has its own.
///
/// ```
/// # let limit = logging::RepeatLimit::new();
/// # let (source_ip, reason) = ("192.0.2.1", "no token");
/// # use std::time::Instant;
/// if let Some(suppressed) = limit.pass(source_ip, Instant::now()) {
///     tracing::warn!(%reason, suppressed, "greeting refused");
/// }
/// ```
#[derive(Debug)]
pub struct RepeatLimit<K> {
    /// The key `None` is shared by all keys for which the table had no room.
    seen: RefCell<HashMap<Option<K>, Seen>>,
    period: Duration,
    /// When a full table was last searched for keys that can be evicted.
    swept: Cell<Option<Instant>>,
    /// Whether a key passes for which the table has no room.
    has_quota: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    written: Instant,
    suppressed: u64,
}

impl<K: Hash + Eq> Default for RepeatLimit<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Hash + Eq> RepeatLimit<K> {
    /// A limit that has seen no key.
    pub fn new() -> Self {
        Self::every(PERIOD)
    }

    /// A limit of one line per key in this time.
    pub fn every(period: Duration) -> Self {
        let (seen, swept) = (RefCell::new(HashMap::new()), Cell::new(None));
        Self { seen, period, swept, has_quota: false }
    }

    /// The same limit for lines that have the field `source`: the quota of the source bounds the
    /// lines about invented keys. A key for which the table has no room passes here, so an attacker
    /// who fills the table hides no line about others.
    #[must_use]
    pub fn with_quota(self) -> Self {
        Self { has_quota: true, ..self }
    }

    /// Whether a line about `key` may be written at `now`. The value is the number of lines that
    /// were suppressed since the last line.
    pub fn pass(&self, key: K, now: Instant) -> Option<u64> {
        let mut seen = self.seen.borrow_mut();
        let mut key = Some(key);
        if seen.len() >= KEYS && !seen.contains_key(&key) {
            // The number of suppressed lines of an evicted key is lost; the next line of that key
            // starts at 0.
            if self.swept.get().is_none_or(|last| now.saturating_duration_since(last) >= SWEEP) {
                self.swept.set(Some(now));
                seen.retain(|_, s| now.duration_since(s.written) < self.period);
            }
            if seen.len() >= KEYS {
                if self.has_quota {
                    return Some(0);
                }
                key = None;
            }
        }
        let mut first = false;
        let entry = seen.entry(key).or_insert_with(|| {
            first = true;
            Seen { written: now, suppressed: 0 }
        });
        if first {
            return Some(0);
        }
        if now.duration_since(entry.written) < self.period {
            entry.suppressed += 1;
            return None;
        }
        entry.written = now;
        Some(std::mem::take(&mut entry.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_key_and_period_with_the_count_of_the_rest() {
        let (limit, start) = (RepeatLimit::new(), Instant::now());
        assert_eq!(limit.pass("a", start), Some(0));
        assert_eq!(limit.pass("a", start), None);
        assert_eq!(limit.pass("b", start), Some(0));
        assert_eq!(limit.pass("a", start + PERIOD / 2), None);
        assert_eq!(limit.pass("a", start + PERIOD), Some(2));
        assert_eq!(limit.pass("a", start + PERIOD * 2), Some(0));
    }

    #[test]
    fn the_owner_chooses_the_period() {
        let (limit, start) = (RepeatLimit::every(PERIOD * 6), Instant::now());
        assert_eq!(limit.pass("a", start), Some(0));
        assert_eq!(limit.pass("a", start + PERIOD * 6 - Duration::from_nanos(1)), None);
        assert_eq!(limit.pass("a", start + PERIOD * 6), Some(1));
    }

    #[test]
    fn invented_keys_cost_neither_memory_nor_lines() {
        let (limit, start) = (RepeatLimit::new(), Instant::now());
        let lines = (0..100_000).filter(|key| limit.pass(*key, start).is_some()).count();
        assert_eq!(lines, KEYS + 1);
        assert_eq!(limit.seen.borrow().len(), KEYS + 1);
        assert_eq!(limit.pass(-1, start + PERIOD), Some(0));
        assert_eq!(limit.seen.borrow().len(), 1);
    }

    #[test]
    fn invented_keys_hide_no_line_that_has_a_quota() {
        let (limit, start) = (RepeatLimit::new().with_quota(), Instant::now());
        assert!((0..100_000).all(|key| limit.pass(key, start).is_some()));
        assert_eq!(limit.seen.borrow().len(), KEYS);
        assert_eq!(limit.pass(0, start), None);
    }
}
