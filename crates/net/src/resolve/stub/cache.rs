//! The short-lived cache of names.
//!
//! An answer is cached for its TTL, at most [`MOST`]. A restarted container has a new address at
//! once, but Docker's DNS server sets a TTL of 600 s; programs that use the C library see the new
//! address at once, and the daemon almost at once. The cache only has to reduce the queries for
//! many visitors of a name, for which a few seconds suffice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of cached names. With all their addresses they take at most 1 MiB.
const NAMES: usize = 1024;

/// The maximum time for which an answer is cached.
pub(super) const MOST: Duration = Duration::from_secs(10);

/// The minimum time, also for failures and for an answer without a TTL: visitors that arrive
/// together get the same answer.
pub(super) const LEAST: Duration = Duration::from_secs(1);

/// The answers by name. `A` is the type of an answer.
#[derive(Debug)]
pub(super) struct Cache<A>(HashMap<Arc<str>, KeptAnswer<A>>);

#[derive(Debug)]
struct KeptAnswer<A> {
    answer: A,
    since: Instant,
    until: Instant,
}

impl<A> Default for Cache<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A> Cache<A> {
    pub(super) fn get(&self, host: &str, now: Instant) -> Option<&A> {
        self.0.get(host).filter(|kept| now < kept.until).map(|kept| &kept.answer)
    }

    pub(super) fn put(&mut self, host: Arc<str>, answer: A, ttl: Duration, now: Instant) {
        if self.0.len() >= NAMES && !self.0.contains_key(&host) {
            self.0.retain(|_, kept| now < kept.until);
        }
        // Names that a client invents evict names that would expire within seconds anyway.
        while self.0.len() >= NAMES
            && !self.0.contains_key(&host)
            && let Some(next) =
                self.0.iter().min_by_key(|(_, kept)| kept.until).map(|(host, _)| Arc::clone(host))
        {
            self.0.remove(&next);
        }
        self.0.insert(host, KeptAnswer { answer, since: now, until: now + ttl.clamp(LEAST, MOST) });
    }

    /// Drops an answer that led to no connection, unless it is so new that the next would be the
    /// same.
    pub(super) fn forget(&mut self, host: &str, now: Instant) {
        if self.0.get(host).is_some_and(|kept| now >= kept.since + LEAST) {
            self.0.remove(host);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::resolve::answer::Answer;

    fn here() -> Answer {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }

    #[test]
    fn an_answer_is_kept_for_its_time_within_bounds() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for (host, ttl, kept) in [("zero", 0, 1), ("five", 5, 5), ("day", 86_400, 10)] {
            cache.put(host.into(), here(), Duration::from_secs(ttl), now);
            let at = |seconds: u64| now + Duration::from_secs(seconds);
            assert!(cache.get(host, at(kept) - Duration::from_millis(1)).is_some(), "{host}");
            assert!(cache.get(host, at(kept)).is_none(), "{host}");
        }
    }

    #[test]
    fn an_answer_that_led_nowhere_is_dropped_a_second_after_it_came() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.put("app".into(), here(), MOST, now);
        for (after, kept) in [(999, true), (1_000, false)] {
            let at = now + Duration::from_millis(after);
            cache.forget("app", at);
            assert_eq!(cache.get("app", at).is_some(), kept, "{after}");
        }
    }

    #[test]
    fn a_flood_of_names_leaves_the_cache_bounded_and_the_newest_in_it() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for number in 0..3 * NAMES {
            let at = now + Duration::from_micros(u64::try_from(number).unwrap());
            cache.put(format!("n{number}").into(), here(), MOST, at);
            assert!(cache.get(&format!("n{number}"), at).is_some());
        }
        assert_eq!(cache.0.len(), NAMES);
    }
}
