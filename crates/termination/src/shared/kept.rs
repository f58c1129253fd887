//! What was looked up in the store of a cluster, in memory of bounded size, and the look-ups that
//! are under way.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::rate::Lock;

/// The most certificates that are kept: 80 MB with 4 KB each.
const KEPT: usize = 20_000;

/// The most names whose last look-up is remembered.
const ASKED: usize = 40_000;

/// The most look-ups at once. The store takes 16 in one request, and answers within milliseconds.
const FLIGHTS: usize = 64;

/// A table of bounded size in two parts: a part that is full replaces the older part, and what is
/// asked for moves to the younger part. So names without visitors leave first.
#[derive(Debug)]
struct Generations<T> {
    young: HashMap<Box<str>, T>,
    old: HashMap<Box<str>, T>,
    /// The most entries of a part.
    most: usize,
}

impl<T: Clone> Generations<T> {
    fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most: most / 2 }
    }

    fn get(&mut self, host: &str) -> Option<T> {
        if let Some((host, value)) = self.old.remove_entry(host) {
            self.insert(host, value);
        }
        self.young.get(host).cloned()
    }

    fn insert(&mut self, host: Box<str>, value: T) {
        if self.young.len() >= self.most && !self.young.contains_key(&host) {
            self.old = mem::take(&mut self.young);
        }
        self.old.remove(&host);
        self.young.insert(host, value);
    }
}

/// The certificates (`T`) that were looked up. A handshake takes the lock for the time of two
/// look-ups in a table.
#[derive(Debug)]
pub(crate) struct LookedUp<T> {
    certificates: Lock<Generations<T>>,
    /// When each name was looked up last.
    asked: Lock<Generations<Instant>>,
}

impl<T: Clone> Default for LookedUp<T> {
    fn default() -> Self {
        Self {
            certificates: Lock::new(Generations::new(KEPT)),
            asked: Lock::new(Generations::new(ASKED)),
        }
    }
}

fn lock<T>(table: &Lock<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Clone> LookedUp<T> {
    /// The certificate that was found for a name, or for a wildcard.
    pub(crate) fn get(&self, host: &str) -> Option<T> {
        lock(&self.certificates).get(host)
    }

    pub(crate) fn keep(&self, host: &str, shown: T) {
        lock(&self.certificates).insert(host.into(), shown);
    }

    /// Whether the pause since the last look-up of the name is over. The next pause begins now.
    pub(crate) fn begins(&self, host: &str, pause: Duration) -> bool {
        let mut asked = lock(&self.asked);
        if asked.get(host).is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        asked.insert(host.into(), Instant::now());
        true
    }
}

/// The look-ups that are under way. Visitors of the same name wait for one look-up.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    hosts: Lock<HashSet<Box<str>>>,
    landed: Notify,
}

/// A look-up that is under way until it is dropped.
#[derive(Debug)]
pub(crate) struct Flight<'a>(&'a Flights, &'a str);

impl Flights {
    /// Whether a look-up of the name is under way.
    pub(crate) fn has(&self, host: &str) -> bool {
        lock(&self.hosts).contains(host)
    }

    /// Begins a look-up. `None`: one is under way, or too many are.
    pub(crate) fn begin<'a>(&'a self, host: &'a str) -> Option<Flight<'a>> {
        let mut hosts = lock(&self.hosts);
        (hosts.len() < FLIGHTS && hosts.insert(host.into())).then(|| Flight(self, host))
    }

    /// Waits until no look-up of the name is under way.
    pub(crate) async fn end(&self, host: &str) {
        loop {
            let landed = self.landed.notified();
            if !self.has(host) {
                return;
            }
            landed.await;
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        lock(&self.0.hosts).remove(self.1);
        self.0.landed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const ABSENT: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn a_table_is_bounded_and_keeps_what_is_asked_for() {
        let mut table = Generations::new(20);
        table.insert("kept".into(), 0);
        for n in 1..1_000 {
            table.insert(format!("n{n}").into(), n);
            assert!(table.young.len() <= 10 && table.old.len() <= 10);
            assert_eq!(table.get("kept"), Some(0), "{n}");
        }
        assert_eq!(table.get("n999"), Some(999));
        assert_eq!(table.get("n900"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn visitors_of_a_name_wait_for_one_look_up() {
        let flights = Flights::default();
        let flight = flights.begin("a").unwrap();
        assert!(flights.begin("a").is_none() && flights.begin("b").is_some());
        assert!(timeout(PATIENCE, flights.end("a")).await.is_err());
        let (_, ended) = tokio::join!(async { drop(flight) }, timeout(PATIENCE, flights.end("a")));
        assert!(ended.is_ok());
        let hosts: Vec<_> = (0..FLIGHTS).map(|n| format!("n{n}")).collect();
        let all: Vec<_> = hosts.iter().map(|host| flights.begin(host).unwrap()).collect();
        assert!(flights.begin("late").is_none());
        drop(all);
        assert!(flights.begin("late").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_certificate_is_not_asked_for_at_once_again() {
        let table = LookedUp::<()>::default();
        assert!(table.begins("a", ABSENT) && !table.begins("a", ABSENT));
        tokio::time::advance(ABSENT).await;
        assert!(!table.begins("a", 5 * ABSENT) && table.begins("a", ABSENT));
    }
}
