//! Log lines that a hostile or broken peer can cause at will: one per key and 10 s, with a count of
//! what was left out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Between two lines of one key: often enough to see that it goes on, seldom enough to fill no
/// disk.
const PERIOD: Duration = Duration::from_secs(10);

/// Keys that are told apart. An attacker may invent keys (addresses); past this many within a
/// period, the new ones share one line.
const KEYS: usize = 1024;

/// One per thread and kind of line.
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
    /// `None` is the key that those share who found the table full.
    seen: RefCell<HashMap<Option<K>, Seen>>,
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
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self { seen: RefCell::new(HashMap::new()) }
    }

    /// Whether a line about `key` may be written now, and how many were not since the last one.
    pub fn pass(&self, key: K, now: Instant) -> Option<u64> {
        let mut seen = self.seen.borrow_mut();
        let mut key = Some(key);
        if seen.len() >= KEYS && !seen.contains_key(&key) {
            // What was suppressed under a key that fell silent is told by nobody; the next line of
            // that key starts anew.
            seen.retain(|_, s| now.duration_since(s.written) < PERIOD);
            if seen.len() >= KEYS {
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
        if now.duration_since(entry.written) < PERIOD {
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
    fn invented_keys_cost_neither_memory_nor_lines() {
        let (limit, start) = (RepeatLimit::new(), Instant::now());
        let lines = (0..100_000).filter(|key| limit.pass(*key, start).is_some()).count();
        assert_eq!(lines, KEYS + 1);
        assert_eq!(limit.seen.borrow().len(), KEYS + 1);
        assert_eq!(limit.pass(-1, start + PERIOD), Some(0));
        assert_eq!(limit.seen.borrow().len(), 1);
    }
}
