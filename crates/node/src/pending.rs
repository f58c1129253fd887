//! Pending connections: their log-in or their first bytes have not arrived yet. A server holds a
//! bounded number of them. When there are too many, the oldest connection of the source with the
//! most connections is evicted. So a source that opens connections and stays silent evicts only its
//! own connections.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;

use net::source::prefix;
use tokio::task::{AbortHandle, spawn_local, yield_now};

/// The tasks of pending connections.
#[derive(Debug, Default)]
pub struct PendingSet(Rc<RefCell<Crowd>>);

#[derive(Debug, Default)]
struct Crowd {
    /// The tasks of each source by their number, oldest first. `None`: reverse proxies, whose
    /// connections carry many visitors, so each connection counts as a separate source.
    sources: HashMap<Option<IpAddr>, BTreeMap<u64, AbortHandle>>,
    /// The tasks of all sources.
    count: usize,
    /// The number of the next task.
    next: u64,
}

impl PendingSet {
    /// The number of pending connections.
    pub fn count(&self) -> usize {
        self.0.borrow().count
    }

    /// Spawns the task of a pending connection from `source`; `None` is a reverse proxy. The task
    /// holds the place of the connection.
    pub fn run<F: Future<Output = ()> + 'static>(
        &self,
        source: Option<IpAddr>,
        decision: impl FnOnce(PendingGuard) -> F,
    ) -> AbortHandle {
        let source = source.map(prefix);
        let number = self.0.borrow().next;
        let place = PendingGuard { crowd: Rc::clone(&self.0), source, number };
        let task = spawn_local(decision(place)).abort_handle();
        let mut crowd = self.0.borrow_mut();
        crowd.next += 1;
        crowd.count += 1;
        crowd.sources.entry(source).or_default().insert(number, task.clone());
        task
    }

    /// Closes the oldest connection of the source with the most. The newest connection overall
    /// always stays. The future completes when the socket is closed. False: there is no such
    /// connection.
    pub(crate) async fn one_leaves(&self) -> bool {
        if !self.abort_one() {
            return false;
        }
        yield_now().await;
        true
    }

    /// Whether a new connection gets a place although all places of the worker's listener are
    /// taken: the place of an evicted connection, or an additional place if this worker has none to
    /// evict. So each worker accepts visitors while other workers hold all places.
    pub fn gives_way(&self) -> bool {
        self.abort_one() || self.count() < 2
    }

    /// Aborts the oldest connection of the source with the most; its socket is closed in the next
    /// turn of the runtime.
    pub fn abort_one(&self) -> bool {
        let mut crowd = self.0.borrow_mut();
        if crowd.count < 2 {
            return false;
        }
        let Some((source, number)) = crowd.greediest() else { return false };
        let Some(task) = crowd.remove(source, number) else { return false };
        drop(crowd);
        task.abort();
        true
    }
}

impl Crowd {
    /// The source with the most connections, and its oldest connection. Among equal sources, the
    /// one with the oldest connection.
    fn greediest(&self) -> Option<(Option<IpAddr>, u64)> {
        let sources = self.sources.iter().filter_map(|(source, tasks)| {
            let (oldest, _) = tasks.first_key_value()?;
            let weight = if source.is_some() { tasks.len() } else { 1 };
            Some((weight, Reverse(*oldest), *source))
        });
        let (_, Reverse(oldest), source) =
            sources.max_by_key(|(weight, oldest, _)| (*weight, *oldest))?;
        Some((source, oldest))
    }

    fn remove(&mut self, source: Option<IpAddr>, number: u64) -> Option<AbortHandle> {
        let tasks = self.sources.get_mut(&source)?;
        let task = tasks.remove(&number)?;
        if tasks.is_empty() {
            self.sources.remove(&source);
        }
        self.count -= 1;
        Some(task)
    }
}

/// The place of a connection, owned by its task. Dropping it frees the place.
#[derive(Debug)]
pub struct PendingGuard {
    crowd: Rc<RefCell<Crowd>>,
    source: Option<IpAddr>,
    number: u64,
}

impl PendingGuard {
    /// Moves the connection to the source that its reverse proxy reports.
    pub fn belongs_to(&mut self, source: IpAddr) {
        let mut crowd = self.crowd.borrow_mut();
        let Some(task) = crowd.remove(self.source, self.number) else { return };
        self.source = Some(prefix(source));
        crowd.sources.entry(self.source).or_default().insert(self.number, task);
        crowd.count += 1;
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.crowd.borrow_mut().remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// A task that never completes.
    async fn silent(place: PendingGuard) {
        let _place = place;
        pending::<()>().await;
    }

    fn ip(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test(flavor = "local")]
    async fn whoever_is_alone_among_those_that_are_decided_stays() {
        let waiting = PendingSet::default();
        for _ in 0..3 {
            waiting.run(ip(1), async |_place| {});
        }
        yield_now().await;
        assert_eq!(waiting.count(), 0, "the list holds no decided connection");
        let oldest = waiting.run(ip(1), silent);
        assert!(!waiting.one_leaves().await && !oldest.is_finished());
        waiting.run(ip(1), silent);
        assert!(waiting.one_leaves().await);
        assert!(oldest.is_finished() && waiting.count() == 1);
        assert!(!waiting.one_leaves().await);
    }

    #[tokio::test(flavor = "local")]
    async fn a_greedy_source_displaces_itself_and_neither_others_nor_a_reverse_proxy() {
        let waiting = PendingSet::default();
        let honest = waiting.run(ip(1), silent);
        let proxied: Vec<_> = (0..5).map(|_| waiting.run(None, silent)).collect();
        let greedy: Vec<_> = (0..1_000_u16)
            .map(|n| {
                let source = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
                let task = waiting.run(Some(source), silent);
                while waiting.count() > 10 {
                    assert!(waiting.abort_one());
                }
                task
            })
            .collect();
        // A turn of the runtime ends a few dozen tasks.
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(!honest.is_finished() && proxied.iter().all(|task| !task.is_finished()));
        let left: Vec<_> = greedy.iter().map(|task| !task.is_finished()).collect();
        assert!(left[996..].iter().all(|left| *left), "the newest stay, and can log in");
        assert_eq!(left.iter().filter(|left| **left).count(), 4);
    }

    #[tokio::test(flavor = "local")]
    async fn a_worker_without_connections_takes_some_while_others_hold_all_places() {
        let waiting = PendingSet::default();
        let mut tasks = Vec::new();
        for _ in 0..4 {
            assert!(waiting.gives_way());
            tasks.push(waiting.run(ip(1), silent));
        }
        yield_now().await;
        let left: Vec<_> = tasks.iter().map(|task| !task.is_finished()).collect();
        assert_eq!(left, [false, false, true, true], "two at most, and the newest stay");
    }

    #[tokio::test(flavor = "local")]
    async fn among_equals_the_oldest_leaves() {
        let waiting = PendingSet::default();
        let tasks: Vec<_> = [ip(1), None, None, ip(2)]
            .map(|source| waiting.run(source, silent))
            .into_iter()
            .collect();
        for (left, gone) in [1, 2, 3].into_iter().enumerate() {
            assert!(waiting.one_leaves().await);
            assert_eq!(tasks.iter().filter(|task| task.is_finished()).count(), gone);
            assert!(tasks[left].is_finished(), "{left}");
        }
        assert!(!waiting.one_leaves().await);
    }

    #[tokio::test(flavor = "local")]
    async fn a_client_that_a_reverse_proxy_names_counts_as_a_source() {
        let waiting = PendingSet::default();
        let honest = waiting.run(None, silent);
        let greedy: Vec<_> = (0..3)
            .map(|_| {
                waiting.run(None, async |mut place: PendingGuard| {
                    place.belongs_to(IpAddr::from([192, 0, 2, 1]));
                    silent(place).await;
                })
            })
            .collect();
        yield_now().await;
        assert!(waiting.one_leaves().await && waiting.one_leaves().await);
        assert!(!honest.is_finished() && !greedy[2].is_finished() && waiting.count() == 2);
    }
}
