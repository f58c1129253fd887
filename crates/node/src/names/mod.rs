//! The names that clients publish: they map a host, for visitors of HTTP or of TLS, to an entrance.
//!
//! Workers look up a name once per connection (per request if the server proxies HTTP). The table
//! consists of immutable shards, so a lookup takes no lock, and a change copies one shard: a server
//! with 50,000 names copies about 200 entries per change.
//!
//! Each change of the table or of the rules of its entrances increments a generation
//! ([`Names::generation`]). A keep-alive connection compares the generation, and is admitted again
//! when it differs.
//!
//! A name whose client is disconnected may be known ([`Known`]): its visitors get a response that
//! says so, and are not directed to the service of a wildcard.
//!
//! In a cluster, a name that is absent here may be published at another node ([`NameSeeker`]).
//! [`Names::wait`] looks for it first.
//!
//! A withdrawn name may be published again shortly, because its client logs in again or because the
//! server has just started. [`Names::wait`] lets a visitor wait for that.

mod host;
mod seek;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::entrance::Entrance;

pub use host::{Host, Kind, Space, candidates};
use seek::Seeking;
pub use seek::{NameSeeker, Sought};

/// Number of shards for each space.
const SHARDS: usize = 256;

/// How long visitors of an absent name wait, counted from the withdrawal of the name or the start
/// of the server. A client that lost its server reconnects at least every 1.5 s.
const RECONNECT: Duration = Duration::from_secs(10);

/// The part of this time after a start in which a visitor is not directed to the service of a
/// wildcard, because the more specific name may be published shortly. Visitors of wildcards should
/// not wait longer after each start.
const SETTLED: Duration = Duration::from_secs(3);

/// The maximum number of visitors that wait for absent names.
const WAITING_MAX: u32 = 1024;

/// The number of withdrawn names that a shard remembers. Names beyond this number are absent at
/// once. If 8,192 names are withdrawn at the same time, a shard has 32 on average, and practically
/// never more than 64.
const LOST_MAX: usize = 64;

/// All published names.
#[derive(Debug)]
pub struct Names {
    hasher: RandomState,
    /// The shards of the space of HTTP, then those of TLS.
    shards: Box<[ArcSwap<Shard>]>,
    /// Held during a change, so that two changes do not copy the same shard.
    writer: Mutex<()>,
    /// Notified when a name is added.
    added: Notify,
    waiting: AtomicU32,
    generation: AtomicU64,
    born: Instant,
    seeking: Seeking,
}

/// A part of the names of a space. One shard has all the state of a name.
#[derive(Clone, Debug, Default)]
struct Shard {
    services: HashMap<Arc<str>, Services>,
    /// The names that are known whether or not their clients are connected.
    known: HashMap<Arc<str>, Arc<Known>>,
    /// The time at which each absent name was withdrawn.
    lost: HashMap<Arc<str>, Instant>,
}

/// An entrance under a name.
#[derive(Clone, Debug)]
pub struct Published {
    /// The kind of the name.
    pub kind: Kind,
    /// The path at or below which the entrance takes requests; `None`: any path.
    pub path: Option<Arc<str>>,
    /// The entrance.
    pub entrance: Arc<Entrance>,
}

/// The services of the `http://` name and of the `https://` name of a host.
type WithoutTls = (Option<Services>, Option<Services>);

/// A name that the server knows while its client is disconnected.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The kind of the name.
    pub kind: Kind,
    /// The client that published it last.
    pub client: Arc<str>,
    /// The paths of its services; `None`: every path.
    pub paths: Box<[Option<Arc<str>>]>,
}

impl Known {
    /// Whether a service of the name takes requests of this path.
    pub fn takes(&self, path: &str) -> bool {
        let takes =
            |one: &Option<Arc<str>>| one.as_ref().is_none_or(|own| web::is_below(own, path));
        self.paths.iter().any(takes)
    }
}

/// The services of a host, the longest path first.
pub type Services = Arc<[Published]>;

impl Default for Names {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..2 * SHARDS).map(|_| ArcSwap::default()).collect(),
            writer: Mutex::default(),
            added: Notify::new(),
            waiting: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            born: Instant::now(),
            seeking: Seeking::default(),
        }
    }
}

impl Names {
    fn shard(&self, space: Space, host: &str) -> &ArcSwap<Shard> {
        // The remainder is below `SHARDS`.
        let nth = (self.hasher.hash_one(host) % SHARDS as u64) as usize;
        &self.shards[space as usize * SHARDS + nth]
    }

    /// The number of changes so far: of names, of the rules of their entrances, and of the settings
    /// of doors. While it is unchanged since before a lookup, the lookup would have the same
    /// result.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Increments the generation, after a change is in force.
    pub fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn exactly(&self, space: Space, host: &str) -> Option<Services> {
        self.shard(space, host).load().services.get(host).cloned()
    }

    /// The services of a host: under its own name, else under the longest wildcard that covers it,
    /// else under `*`. `host` is normalised: lower case, no port, no trailing dot. `None` also if
    /// the closest name is known and its client is disconnected ([`Self::away`]).
    pub fn find(&self, space: Space, host: &str) -> Option<Services> {
        self.closest(space, host)?.ok()
    }

    /// The closest name of a host, if it is known and its client is disconnected.
    pub fn away(&self, space: Space, host: &str) -> Option<Arc<Known>> {
        self.closest(space, host)?.err()
    }

    fn closest(&self, space: Space, host: &str) -> Option<Result<Services, Arc<Known>>> {
        candidates(host).find_map(|name| {
            let shard = self.shard(space, &name).load();
            let services = shard.services.get(&*name).map(|services| Ok(Arc::clone(services)));
            services.or_else(|| shard.known.get(&*name).map(|known| Err(Arc::clone(known))))
        })
    }

    /// The services under a host for visitors over HTTP without TLS, the closest name first: those
    /// of its `http://` name and those of its `https://` name, of which at least one is present.
    pub fn without_tls(&self, host: &str) -> impl Iterator<Item = WithoutTls> {
        self.pairs(host).map_while(Result::ok)
    }

    /// The closest name of a host for visitors over HTTP without TLS, if its client is
    /// disconnected: its `http://` name, or its `https://` name if neither has a service.
    pub fn away_without_tls(&self, host: &str) -> Option<Arc<Known>> {
        self.pairs(host).next()?.err()
    }

    /// For visitors over HTTP without TLS: the services of the names that cover a host, or the
    /// known state of a name whose client is disconnected.
    fn pairs(&self, host: &str) -> impl Iterator<Item = Result<WithoutTls, Arc<Known>>> {
        candidates(host).filter_map(|name| {
            let known = |space| self.shard(space, &name).load().known.get(&*name).cloned();
            let http = self.exactly(Space::Http, &name);
            if http.is_none()
                && let Some(known) = known(Space::Http)
            {
                return Some(Err(known));
            }
            let https = self.exactly(Space::Tls, &name).filter(is_https);
            if http.is_some() || https.is_some() {
                return Some(Ok((http, https)));
            }
            known(Space::Tls).filter(|known| known.kind == Kind::Https).map(Err)
        })
    }

    /// As [`Self::find`], but waits for a name that is closer to the host and only briefly absent,
    /// so that a visitor does not reach the service of a wildcard while the service of the name
    /// itself is reconnecting.
    pub async fn wait(&self, space: Space, host: &str) -> Option<Services> {
        self.seek(space, host).await;
        if self.may_come(space, host).is_none() {
            return self.find(space, host);
        }
        let Some(_place) = self.place() else { return self.find(space, host) };
        loop {
            let added = self.added.notified();
            let Some(until) = self.may_come(space, host) else { return self.find(space, host) };
            tokio::select! {
                () = added => {}
                () = tokio::time::sleep_until(until) => {}
                () = self.seek_again(space, host) => {}
            }
        }
    }

    /// Whether [`Self::wait`] would wait.
    pub fn is_awaited(&self, space: Space, host: &str) -> bool {
        self.may_come(space, host).is_some() || self.is_sought(space, host)
    }

    /// Looks for absent names at other nodes from now on.
    pub fn seek_by(&self, seeker: Arc<dyn NameSeeker>) {
        self.seeking.begin(seeker);
    }

    /// The names that cover a host more closely than all services of this node. Visitors over HTTP
    /// are redirected to the `https://` name of the host, so it counts for them as well.
    fn absent(&self, space: Space, host: &str) -> Vec<(Space, Arc<str>)> {
        let spaces: &[Space] = match space {
            Space::Http => &[Space::Http, Space::Tls],
            Space::Tls => &[Space::Tls],
        };
        let is_present = |name: &str| {
            spaces.iter().any(|space| self.shard(*space, name).load().services.contains_key(name))
        };
        let absent = candidates(host).take_while(|name| !is_present(name));
        absent.flat_map(|name| spaces.iter().map(move |space| (*space, (&*name).into()))).collect()
    }

    /// Whether the host is about to be looked for at other nodes.
    fn is_sought(&self, space: Space, host: &str) -> bool {
        self.seeking.seeker().is_some()
            && !self.absent(space, host).is_empty()
            && self.seeking.is_due(space, host)
    }

    /// Looks for a host at the other nodes of the cluster, unless a service of this node has it.
    async fn seek(&self, space: Space, host: &str) {
        let Some(seeker) = self.seeking.seeker() else { return };
        let absent = self.absent(space, host);
        if absent.is_empty() || !self.seeking.is_due(space, host) {
            return;
        }
        if let Some(_place) = self.place() {
            seeker.seek(absent).await;
            self.seeking.note(space, host);
        }
    }

    /// The deadline by which a name may appear that is closer to the host than all present names.
    fn may_come(&self, space: Space, host: &str) -> Option<Instant> {
        let now = Instant::now();
        // Just after the start it is not known which names the clients have.
        let is_covered = now < self.born + RECONNECT
            && (self.find(space, host).is_some()
                || space == Space::Http && self.without_tls(host).next().is_some());
        let known = self.born + if is_covered { SETTLED } else { RECONNECT };
        if now < known {
            return self.exactly(space, host).is_none().then_some(known);
        }
        for name in candidates(host) {
            let shard = self.shard(space, &name).load();
            if shard.services.contains_key(&*name) {
                return None;
            }
            let until = shard.lost.get(&*name).map(|at| *at + RECONNECT);
            if let Some(until) = until.filter(|until| *until > now) {
                // Visitors over HTTP are redirected to the current `https://` name of the host.
                let moved = space == Space::Http
                    && self.exactly(Space::Tls, &name).is_some_and(|all| is_https(&all));
                return (!moved).then_some(until);
            }
            // The client of the closest name has been disconnected for longer.
            if shard.known.contains_key(&*name) {
                return None;
            }
        }
        None
    }

    /// Looks for a host at the other nodes again, after a while. Never completes without a cluster.
    async fn seek_again(&self, space: Space, host: &str) {
        if self.seeking.seeker().is_none() {
            return std::future::pending().await;
        }
        tokio::time::sleep(seek::AGAIN).await;
        self.seek(space, host).await;
    }

    fn place(&self) -> Option<Waiter<'_>> {
        let place = Waiter(&self.waiting);
        (self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }

    /// Adds an entrance under a host. The services of a client of this node replace those that were
    /// found at other nodes, because a name belongs to one client.
    pub fn add(&self, host: &Host, published: Published) {
        let is_elsewhere = |one: &Published| one.entrance.backends.are_at_other_nodes();
        self.change(host, true, |services| {
            services.retain(|one| one.entrance.id != published.entrance.id);
            if !is_elsewhere(&published) {
                services.retain(|one| !is_elsewhere(one));
            } else if services.iter().any(|one| !is_elsewhere(one)) {
                return;
            }
            services.push(published);
        });
        self.added.notify_waiters();
    }

    /// Removes an entrance from a host. The host counts as briefly absent, unless `is_final`.
    pub fn remove(&self, host: &Host, entrance: u64, is_final: bool) {
        self.change(host, is_final, |services| services.retain(|one| one.entrance.id != entrance));
    }

    /// Sets the known state of a name; `None` removes it.
    pub fn set_known(&self, space: Space, name: &Arc<str>, known: Option<Arc<Known>>) {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = self.shard(space, name);
        let before = shard.load();
        if before.known.get(name) == known.as_ref() {
            return;
        }
        let mut changed = Shard::clone(&before);
        match known {
            Some(known) => drop(changed.known.insert(Arc::clone(name), known)),
            None => drop(changed.known.remove(name)),
        }
        shard.store(Arc::new(changed));
        self.note_change();
    }

    /// Changes the services of a host. A host left without a service is recorded as lost, unless
    /// `is_final`.
    fn change(&self, host: &Host, is_final: bool, change: impl FnOnce(&mut Vec<Published>)) {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = self.shard(host.kind.space(), &host.name);
        let Shard { mut services, known, mut lost } = Shard::clone(&shard.load());
        let mut own = services.remove(&host.name).map(|all| all.to_vec()).unwrap_or_default();
        change(&mut own);
        let length = |one: &Published| one.path.as_ref().map_or(0, |path| path.len());
        own.sort_by_key(|one| std::cmp::Reverse(length(one)));
        if !own.is_empty() {
            lost.remove(&host.name);
            services.insert(Arc::clone(&host.name), own.into());
        } else if !is_final {
            let now = Instant::now();
            if lost.len() >= LOST_MAX {
                lost.retain(|_, at| *at + RECONNECT > now);
            }
            if lost.len() < LOST_MAX {
                lost.insert(Arc::clone(&host.name), now);
            }
        }
        shard.store(Arc::new(Shard { services, known, lost }));
        self.note_change();
    }
}

/// Whether the TLS of these services ends at the server. All services of a name have the same kind.
fn is_https(services: &Services) -> bool {
    services.first().is_some_and(|first| first.kind == Kind::Https)
}

/// A slot among the waiting visitors.
struct Waiter<'a>(&'a AtomicU32);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use proto::Target;
    use proto::control::ServiceTerms;
    use relay::Gate;
    use tokio::task::JoinSet;

    use super::*;
    use crate::aim::Aim;
    use crate::backends::Backends;
    use crate::entrance::next_id;
    use crate::session::Session;

    fn published(host: &Host) -> Published {
        let aim = Aim {
            name: host.to_string(),
            target: Target::Service("web".into()),
            terms: ServiceTerms::default(),
            rules: None,
            proxy: None,
        };
        let session = Session::new("home", NonZeroUsize::MIN.get());
        let entrance = Arc::new(Entrance {
            id: next_id(),
            address: host.to_string(),
            backends: Backends::new(aim, &session, Gate::new(None)),
            steering: None,
            bounds: Arc::default(),
            announcers: crate::entrance::Announcers::Nobody,
        });
        Published { kind: host.kind, path: None, entrance }
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    /// The name under which a host is found.
    fn found(services: Option<Services>) -> Option<String> {
        services.map(|services| services[0].entrance.address.clone())
    }

    /// A seeker that publishes one name when it is asked for it, and records the questions.
    #[derive(Debug)]
    struct Elsewhere {
        names: std::sync::OnceLock<Arc<Names>>,
        has: Host,
        asked: Mutex<Vec<String>>,
    }

    /// The entrance of a client of another node.
    fn at_other_node(host: &Host) -> Published {
        #[derive(Debug)]
        struct Nobody;
        impl crate::backends::Locator for Nobody {
            fn moved(&self, _: &proto::Hop, _: u64) {}
            fn awaited(&self) {}
            fn is_away(&self) -> bool {
                false
            }
        }
        let mut published = published(host);
        let entrance = Arc::get_mut(&mut published.entrance).unwrap();
        let aim = Aim {
            name: host.to_string(),
            target: Target::Service("web".into()),
            terms: ServiceTerms::default(),
            rules: None,
            proxy: None,
        };
        let session = Session::new("node:b", 1);
        let gate = Gate::new(None);
        entrance.backends = Backends::at_other_nodes(aim, &session, gate, Arc::new(Nobody));
        published
    }

    impl NameSeeker for Elsewhere {
        fn seek(&self, names: Vec<(Space, Arc<str>)>) -> Sought<'_> {
            Box::pin(async move {
                let is_it = |(space, name): &(Space, Arc<str>)| {
                    (*space, &**name) == (self.has.kind.space(), &*self.has.name)
                };
                if names.iter().any(is_it) {
                    self.names.get().unwrap().add(&self.has, at_other_node(&self.has));
                }
                let texts = names.iter().map(|(space, name)| format!("{space:?} {name}"));
                self.asked.lock().unwrap().extend(texts);
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_of_another_node_is_found_when_a_visitor_comes() {
        let (names, has) = (Arc::new(Names::default()), host("tls://b.example"));
        tokio::time::advance(RECONNECT).await;
        let asked = Mutex::default();
        let seeker = Arc::new(Elsewhere { names: std::sync::OnceLock::new(), has, asked });
        seeker.names.set(Arc::clone(&names)).unwrap();
        names.seek_by(Arc::clone(&seeker) as Arc<dyn NameSeeker>);
        let asked = || std::mem::take(&mut *seeker.asked.lock().unwrap());
        // Visitors over HTTP are redirected to the name over TLS, and each wildcard counts.
        assert!(names.is_awaited(Space::Http, "a.example"));
        assert!(names.wait(Space::Http, "a.example").await.is_none());
        assert_eq!(
            asked(),
            [
                "Http a.example",
                "Tls a.example",
                "Http *.example",
                "Tls *.example",
                "Http *",
                "Tls *"
            ]
        );
        // What was looked for in vain is not looked for at once again.
        assert!(!names.is_awaited(Space::Http, "a.example"));
        assert!(names.wait(Space::Http, "a.example").await.is_none());
        assert!(asked().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(names.is_awaited(Space::Http, "a.example"));
        let found_name = || async { found(names.wait(Space::Tls, "b.example").await) };
        assert_eq!(found_name().await.as_deref(), Some("tls://b.example"));
        assert_eq!(asked(), ["Tls b.example", "Tls *.example", "Tls *"]);
        // A name that is present is not looked for, and a client of this node replaces it.
        assert_eq!(found_name().await.as_deref(), Some("tls://b.example"));
        assert!(asked().is_empty());
        let own = host("tls://b.example");
        names.add(&own, published(&own));
        let services = names.find(Space::Tls, "b.example").unwrap();
        assert_eq!(services.len(), 1);
        assert!(!services[0].entrance.backends.are_at_other_nodes());
        let other = at_other_node(&own);
        names.add(&own, other.clone());
        assert_eq!(names.find(Space::Tls, "b.example").unwrap().len(), 1);
        // When the client of this node is gone, the entrance that was left out is added once.
        names.remove(&own, services[0].entrance.id, true);
        assert!(names.find(Space::Tls, "b.example").is_none());
        for _ in 0..2 {
            names.add(&own, other.clone());
            let services = names.find(Space::Tls, "b.example").unwrap();
            assert_eq!((services.len(), services[0].entrance.id), (1, other.entrance.id));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_closest_name_wins() {
        let names = Names::default();
        tokio::time::advance(RECONNECT).await;
        let find = |text| found(names.find(Space::Http, text));
        assert_eq!(find("a.example.com"), None);
        for text in
            ["http://*", "http://*.example.com", "http://a.example.com", "tls://b.example.com"]
        {
            let host = host(text);
            names.add(&host, published(&host));
        }
        assert_eq!(find("a.example.com").as_deref(), Some("http://a.example.com"));
        assert_eq!(find("b.example.com").as_deref(), Some("http://*.example.com"));
        assert_eq!(find("x.b.example.com").as_deref(), Some("http://*.example.com"));
        assert_eq!(find("example.com").as_deref(), Some("http://*"));
        assert_eq!(find("[::1]").as_deref(), Some("http://*"));
        assert_eq!(found(names.find(Space::Tls, "a.example.com")), None);
        assert_eq!(
            found(names.find(Space::Tls, "b.example.com")).as_deref(),
            Some("tls://b.example.com")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_just_coming_back_is_waited_for() {
        let names = Arc::new(Names::default());
        let (all, own) = (host("http://*"), host("http://a.example.com"));
        names.add(&all, published(&all));
        let mut asked = JoinSet::new();
        let ask = |asked: &mut JoinSet<_>| {
            let names = Arc::clone(&names);
            asked.spawn(async move { found(names.wait(Space::Http, "a.example.com").await) });
        };
        // The server has just started.
        ask(&mut asked);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(asked.try_join_next().is_none());
        let first = published(&own);
        let id = first.entrance.id;
        names.add(&own, first);
        let answer = asked.join_next().await.unwrap().unwrap();
        assert_eq!(answer.as_deref(), Some("http://a.example.com"));

        tokio::time::advance(RECONNECT).await;
        names.remove(&own, id, false);
        ask(&mut asked);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(asked.try_join_next().is_none());
        names.add(&own, published(&own));
        let answer = asked.join_next().await.unwrap().unwrap();
        assert_eq!(answer.as_deref(), Some("http://a.example.com"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_does_not_wait_for_a_change() {
        let names = Names::default();
        tokio::time::advance(RECONNECT).await;
        let own = host("http://a.example.com");
        let one = published(&own);
        let id = one.entrance.id;
        names.add(&own, one);
        let change = names.writer.lock().unwrap();
        let service = found(names.find(Space::Http, "a.example.com"));
        assert_eq!(service.as_deref(), Some("http://a.example.com"));
        assert!(!names.is_awaited(Space::Http, "b.example.com"));
        drop(change);
        names.remove(&own, id, false);
        let _change = names.writer.lock().unwrap();
        assert!(names.is_awaited(Space::Http, "a.example.com"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_of_a_wildcard_waits_only_for_a_moment_after_the_start() {
        let names = Names::default();
        let all = host("http://*");
        names.add(&all, published(&all));
        let began = Instant::now();
        let service = found(names.wait(Space::Http, "a.example.com").await);
        assert_eq!((service.as_deref(), began.elapsed()), (Some("http://*"), SETTLED));
    }

    #[tokio::test(start_paused = true)]
    async fn visitors_without_tls_find_the_closest_name_of_both_kinds() {
        let names = Names::default();
        for text in ["http://*", "https://a.example.com", "http://b.example.com"] {
            let host = host(text);
            names.add(&host, published(&host));
        }
        for text in ["https://b.example.com", "tls://c.example.com", "https://*.d.example.com"] {
            let host = host(text);
            names.add(&host, published(&host));
        }
        let rest = ["http://*".to_owned(), String::new()];
        let of = |text: &str| {
            let mut all = Vec::new();
            for (http, https) in names.without_tls(text) {
                all.push([found(http), found(https)].map(Option::unwrap_or_default));
            }
            all
        };
        assert_eq!(
            of("a.example.com"),
            [[String::new(), "https://a.example.com".into()], rest.clone()]
        );
        let both = ["http://b.example.com".into(), "https://b.example.com".into()];
        assert_eq!(of("b.example.com"), [both, rest.clone()]);
        assert_eq!(of("c.example.com"), std::slice::from_ref(&rest));
        let wild = [String::new(), "https://*.d.example.com".into()];
        assert_eq!(of("x.d.example.com"), [wild, rest]);
        // A visitor without TLS waits only briefly for an http:// name.
        let names = Names::default();
        let own = host("https://a.example.com");
        names.add(&own, published(&own));
        let began = Instant::now();
        assert_eq!(found(names.wait(Space::Http, "a.example.com").await), None);
        assert_eq!(began.elapsed(), SETTLED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_has_moved_to_https_is_not_waited_for() {
        let names = Names::default();
        tokio::time::advance(RECONNECT).await;
        let (former, own) = (host("http://a.example.com"), host("https://a.example.com"));
        let service = published(&former);
        let id = service.entrance.id;
        names.add(&former, service);
        names.remove(&former, id, false);
        assert!(names.is_awaited(Space::Http, "a.example.com"));
        names.add(&own, published(&own));
        assert!(!names.is_awaited(Space::Http, "a.example.com"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_name_is_waited_for_no_longer_than_a_client_needs() {
        let names = Names::default();
        let own = host("http://a.example.com");
        let began = Instant::now();
        assert_eq!(found(names.wait(Space::Http, "a.example.com").await), None);
        assert_eq!(began.elapsed(), RECONNECT);
        // Now the server knows its names.
        let began = Instant::now();
        assert_eq!(found(names.wait(Space::Http, "a.example.com").await), None);
        assert_eq!(began.elapsed(), Duration::ZERO);
        let one = published(&own);
        let id = one.entrance.id;
        names.add(&own, one);
        names.remove(&own, id, true);
        assert_eq!(found(names.wait(Space::Http, "a.example.com").await), None);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_name_whose_client_is_away_is_closer_than_a_wildcard() {
        let names = Names::default();
        tokio::time::advance(RECONNECT).await;
        let (all, own) = (host("http://*"), host("http://a.example.com"));
        names.add(&all, published(&all));
        let known = |paths: &[Option<&str>]| Known {
            kind: Kind::Http,
            client: "home".into(),
            paths: paths.iter().map(|path| path.map(Arc::from)).collect(),
        };
        let set = |known: Option<Known>| {
            names.set_known(Space::Http, &own.name, known.map(Arc::new));
        };
        let find = |text| found(names.find(Space::Http, text));
        let is_away = |text| names.away(Space::Http, text).is_some();
        let generation = names.generation();
        set(Some(known(&[None])));
        assert_ne!(names.generation(), generation, "kept connections are judged again");
        assert_eq!((find("a.example.com"), is_away("a.example.com")), (None, true));
        assert_eq!(
            (find("b.example.com").as_deref(), is_away("b.example.com")),
            (Some("http://*"), false)
        );
        assert!(!names.is_awaited(Space::Http, "a.example.com"), "its client is away for longer");
        let generation = names.generation();
        set(Some(known(&[None])));
        assert_eq!(names.generation(), generation, "nothing has changed");

        // Its client connects, disconnects, and is awaited.
        let one = published(&own);
        let id = one.entrance.id;
        names.add(&own, one);
        assert_eq!((find("a.example.com").is_some(), is_away("a.example.com")), (true, false));
        names.remove(&own, id, false);
        assert!(is_away("a.example.com"));
        let began = Instant::now();
        assert!(names.wait(Space::Http, "a.example.com").await.is_none());
        assert_eq!(began.elapsed(), RECONNECT);
        assert!(names.wait(Space::Http, "a.example.com").await.is_none());
        assert_eq!(began.elapsed(), RECONNECT, "it is answered at once from now on");
        set(None);
        assert_eq!(find("a.example.com").as_deref(), Some("http://*"));

        let paths = known(&[Some("/api"), Some("/files")]);
        assert!(paths.takes("/api/v1") && paths.takes("/files") && !paths.takes("/"));
    }

    #[tokio::test(start_paused = true)]
    async fn visitors_that_wait_are_counted() {
        let names = Names::default();
        names.waiting.store(WAITING_MAX, Ordering::Relaxed);
        let began = Instant::now();
        assert_eq!(found(names.wait(Space::Http, "a.example.com").await), None);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(names.waiting.load(Ordering::Relaxed), WAITING_MAX);
    }
}
