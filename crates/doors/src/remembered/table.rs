//! Which names are known, of which client, and since when the client is away. A plain value: the
//! time is an argument.

use std::collections::hash_map;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use termination::Wanted;
use tokio::time::Instant;

use super::file::Line;
use node::names::{Host, Kind, Known, Space};

/// The maximum number of names of one client. A client that publishes more is an exception, and its
/// additional names are known only while it is connected.
const MOST: usize = 1_000;

/// The maximum number of names of all clients.
const MOST_OF_ALL: usize = 20_000;

/// The maximum number of paths of one name.
const PATHS: usize = 16;

/// The maximum size of all names in the file, in bytes.
const BYTES: usize = 4 << 20;

/// A name: its space and its host.
pub(super) type Key = (Space, Arc<str>);

/// A path of a name; `None` is every path.
pub(super) type Path = Option<Arc<str>>;

/// The names that a client publishes.
#[derive(Clone, Debug, Default)]
pub struct Registered {
    /// The published names.
    published: Vec<(Host, Path)>,
    /// Names that are refused for a reason that may pass. They stay known if they were known.
    waiting: HashSet<(Key, Path)>,
}

impl Registered {
    /// Adds a published name.
    pub fn publish(&mut self, host: Host, path: Option<&str>) {
        self.published.push((host, path.map(Arc::from)));
    }

    /// Adds a name that the client requested and may get later.
    pub fn wait(&mut self, host: &Host, path: Option<&str>) {
        self.waiting.insert((key(host), path.map(Arc::from)));
    }
}

/// All known names.
#[derive(Debug, Default)]
pub(super) struct Table {
    clients: HashMap<Arc<str>, HashMap<Key, Entry>>,
    owners: HashMap<Key, Arc<str>>,
    /// The bytes of all names in the file.
    bytes: usize,
    /// The maximum absence of a client for which its names are known; zero: no name is known.
    pub(super) longest: Duration,
    /// The table differs from the file.
    pub(super) is_new: bool,
}

/// A known name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    paths: Vec<Path>,
    /// When its client left; `None` while the name is published.
    away: Option<Away>,
    /// Its need of a certificate.
    pub(super) wanted: Option<Wanted>,
}

/// An absence.
#[derive(Clone, Copy, Debug)]
struct Away {
    /// The time of absence before `from`, or before this process.
    aged: Duration,
    from: Instant,
}

impl Away {
    fn age(&self, now: Instant) -> Duration {
        self.aged + now.saturating_duration_since(self.from)
    }
}

/// A known name whose client is away.
#[derive(Clone, Debug)]
pub struct NameAway {
    pub host: Host,
    pub client: Arc<str>,
    pub age: Duration,
}

impl Entry {
    fn new(kind: Kind) -> Self {
        Self { kind, paths: Vec::new(), away: None, wanted: None }
    }

    fn cost(&self, client: &str, (_, name): &Key) -> usize {
        let paths = self.paths.iter().map(|path| path.as_ref().map_or(0, |path| path.len()));
        // The scheme, the seconds and the blanks of a line.
        paths.map(|path| client.len() + name.len() + path + 40).sum()
    }
}

fn key(host: &Host) -> Key {
    (host.kind.space(), Arc::clone(&host.name))
}

impl Table {
    /// Applies the registration of a client. Returns the names that have changed, and the number of
    /// names that did not fit.
    pub(super) fn register(
        &mut self,
        client: &str,
        names: &Registered,
        now: Instant,
    ) -> (Vec<Key>, usize) {
        if self.longest.is_zero() {
            return (Vec::new(), 0);
        }
        let mut paths: HashMap<Key, (Kind, Vec<Path>)> = HashMap::new();
        for (host, path) in &names.published {
            let (kind, all) = paths.entry(key(host)).or_insert((host.kind, Vec::new()));
            *kind = host.kind;
            if all.len() < PATHS && !all.contains(path) {
                all.push(path.clone());
            }
        }
        let (client, mut changed, mut left_out): (Arc<str>, _, _) = (client.into(), vec![], 0);
        for old in self.keys_of(&client) {
            let Some(mut entry) = self.take(&client, &old) else { continue };
            let before = (entry.kind, entry.paths.clone(), entry.away.is_none());
            let now_here = paths.remove(&old);
            let kind = now_here.as_ref().map_or(entry.kind, |(kind, _)| *kind);
            let here = now_here.map(|(_, paths)| paths).unwrap_or_default();
            let waits = |path: &Path| names.waiting.contains(&(old.clone(), path.clone()));
            entry.paths.retain(|path| kind == entry.kind && waits(path) && !here.contains(path));
            entry.away = if here.is_empty() {
                entry.away.or(Some(Away { aged: Duration::ZERO, from: now }))
            } else {
                None
            };
            entry.paths.extend(here);
            entry.kind = kind;
            let is_same = before == (entry.kind, entry.paths.clone(), entry.away.is_none());
            self.is_new |= !is_same;
            if !entry.paths.is_empty() {
                let (kind, paths, _) = before;
                if entry.paths.len() > paths.len() && !self.has_room(&client, &old, &entry) {
                    (entry.kind, entry.paths) = (kind, paths);
                    left_out += 1;
                }
                self.put(&client, old.clone(), entry);
            }
            if !is_same {
                changed.push(old);
            }
        }
        for (new, (kind, paths)) in paths {
            // The name passes from another client to this client.
            if let Some(other) = self.owners.get(&new).cloned() {
                drop(self.take(&other, &new));
            }
            let entry = Entry { paths, ..Entry::new(kind) };
            self.is_new = true;
            if self.has_room(&client, &new, &entry) {
                self.put(&client, new.clone(), entry);
            } else {
                left_out += 1;
            }
            changed.push(new);
        }
        (changed, left_out)
    }

    /// Records that a client is away, for all its names.
    pub(super) fn leave(&mut self, client: &str, now: Instant) {
        for entry in self.clients.get_mut(client).into_iter().flat_map(HashMap::values_mut) {
            if entry.away.is_none() {
                entry.away = Some(Away { aged: Duration::ZERO, from: now });
                self.is_new = true;
            }
        }
    }

    /// Forgets the names for which `keeps` is false. Returns them.
    pub(super) fn retain(&mut self, keeps: impl Fn(&str, &Host) -> bool) -> Vec<Key> {
        let all = self.clients.iter().flat_map(|(client, all)| {
            all.iter().map(move |(key, entry)| (client, key, entry.kind))
        });
        let gone = all.filter(|(client, (_, name), kind)| {
            !keeps(client, &Host { kind: *kind, name: Arc::clone(name) })
        });
        let gone: Vec<_> = gone.map(|(client, key, _)| (Arc::clone(client), key.clone())).collect();
        self.forget(gone)
    }

    /// Forgets the names whose clients have been away for too long. Returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Key> {
        let longest = self.longest;
        let all = self.clients.iter().flat_map(|(client, all)| {
            all.iter().map(move |(key, entry)| (client, key, entry.away))
        });
        let gone = all.filter(|(.., away)| {
            longest.is_zero() || away.is_some_and(|away| away.age(now) >= longest)
        });
        let gone: Vec<_> = gone.map(|(client, key, _)| (Arc::clone(client), key.clone())).collect();
        self.forget(gone)
    }

    fn forget(&mut self, gone: Vec<(Arc<str>, Key)>) -> Vec<Key> {
        self.is_new |= !gone.is_empty();
        let taken = gone.into_iter().map(|(client, key)| {
            drop(self.take(&client, &key));
            key
        });
        taken.collect()
    }

    /// A known name.
    pub(super) fn entry(&mut self, key: &Key) -> Option<(Arc<str>, &mut Entry)> {
        let owner = self.owners.get(key)?;
        Some((Arc::clone(owner), self.clients.get_mut(owner)?.get_mut(key)?))
    }

    /// The name as visitors see it.
    pub(super) fn known(client: &Arc<str>, entry: &Entry) -> Known {
        let paths = entry.paths.clone().into();
        Known { kind: entry.kind, client: Arc::clone(client), paths }
    }

    /// The names whose clients are away, in the order of client and host.
    pub(super) fn away(&self, now: Instant) -> Vec<NameAway> {
        let all = self.clients.iter().flat_map(|(client, all)| {
            all.iter().filter_map(move |((_, name), entry)| {
                let host = Host { kind: entry.kind, name: Arc::clone(name) };
                let age = entry.away?.age(now);
                Some(NameAway { host, client: Arc::clone(client), age })
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| {
            (&a.client, &a.host.name, a.host.kind.scheme()).cmp(&(
                &b.client,
                &b.host.name,
                b.host.kind.scheme(),
            ))
        });
        all
    }

    /// The lines of the file at the time `wall`, in seconds since 1970.
    pub(super) fn lines(&self, now: Instant, wall: u64) -> Vec<Line> {
        let all = self.clients.iter().flat_map(|(client, all)| {
            all.iter().flat_map(move |((_, name), entry)| {
                let since = entry.away.map(|away| wall.saturating_sub(away.age(now).as_secs()));
                entry.paths.iter().map(move |path| Line {
                    client: Arc::clone(client),
                    since,
                    host: Host { kind: entry.kind, name: Arc::clone(name) },
                    path: path.clone(),
                })
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| {
            (&a.client, &a.host.name, a.host.kind.scheme(), &a.path).cmp(&(
                &b.client,
                &b.host.name,
                b.host.kind.scheme(),
                &b.path,
            ))
        });
        all
    }

    /// Adds a line of the file. All clients are away. A line beyond a limit is dropped, which
    /// returns false.
    pub(super) fn load(&mut self, line: Line, now: Instant, wall: u64) -> bool {
        let Line { client, since, host, path } = line;
        let key = key(&host);
        if self.owners.get(&key).is_some_and(|owner| *owner != client) {
            return false;
        }
        let mut entry = self.take(&client, &key).unwrap_or_else(|| Entry::new(host.kind));
        let is_fit = entry.kind == host.kind && entry.paths.len() < PATHS;
        if is_fit {
            let aged = Duration::from_secs(wall.saturating_sub(since.unwrap_or(wall)));
            entry.away = Some(Away { aged, from: now });
            entry.paths.push(path);
            // A name that was published when the file was written is away from now on.
            self.is_new |= since.is_none();
        }
        let has_room = self.has_room(&client, &key, &entry);
        if has_room {
            self.put(&client, key, entry);
        }
        is_fit && has_room
    }

    fn keys_of(&self, client: &str) -> Vec<Key> {
        self.clients.get(client).map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }

    fn has_room(&self, client: &str, key: &Key, entry: &Entry) -> bool {
        self.clients.get(client).map_or(0, HashMap::len) < MOST
            && self.owners.len() < MOST_OF_ALL
            && self.bytes + entry.cost(client, key) <= BYTES
    }

    fn put(&mut self, client: &Arc<str>, key: Key, entry: Entry) {
        self.bytes += entry.cost(client, &key);
        self.owners.insert(key.clone(), Arc::clone(client));
        self.clients.entry(Arc::clone(client)).or_default().insert(key, entry);
    }

    fn take(&mut self, client: &Arc<str>, key: &Key) -> Option<Entry> {
        let hash_map::Entry::Occupied(mut all) = self.clients.entry(Arc::clone(client)) else {
            return None;
        };
        let entry = all.get_mut().remove(key)?;
        if all.get().is_empty() {
            all.remove();
        }
        self.owners.remove(key);
        self.bytes = self.bytes.saturating_sub(entry.cost(client, key));
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const WALL: u64 = 1_700_000_000;

    fn table() -> Table {
        Table { longest: 30 * DAY, ..Table::default() }
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    fn names(all: &[(&str, Option<&str>)]) -> Registered {
        let mut names = Registered::default();
        all.iter().for_each(|(text, path)| names.publish(host(text), *path));
        names
    }

    fn shown(table: &Table, now: Instant) -> Vec<String> {
        let lines = table.lines(now, WALL).into_iter();
        lines.map(|line| line.to_string()).collect()
    }

    #[test]
    fn names_that_get_more_paths_stay_within_the_bytes() {
        let (mut table, now) = (table(), Instant::now());
        let hosts: Vec<_> = (0..5_000).map(|n| format!("http://n{n}.example")).collect();
        let path = |n: usize| format!("/{n}{}", "x".repeat(100));
        for count in [1, PATHS] {
            for (client, some) in hosts.chunks(MOST).enumerate() {
                let mut names = Registered::default();
                for (name, n) in some.iter().flat_map(|name| (0..count).map(move |n| (name, n))) {
                    names.publish(host(name), Some(&path(n)));
                }
                table.register(&format!("client{client}"), &names, now);
                assert!(table.bytes <= BYTES, "{} bytes", table.bytes);
            }
        }
        assert_eq!(table.owners.len(), hosts.len(), "each name is still known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_known_until_its_client_withdraws_it_or_is_away_for_too_long() {
        let (mut table, now) = (table(), Instant::now());
        let (a, b) = (("https://a.example", None), ("http://b.example", Some("/api")));
        let (changed, left_out) = table.register("home", &names(&[a, b]), now);
        assert_eq!((changed.len(), left_out), (2, 0));
        assert_eq!(
            shown(&table, now),
            ["home - https://a.example", "home - http://b.example /api"]
        );
        assert!(table.register("home", &names(&[b, a]), now).0.is_empty(), "nothing has changed");

        // The client withdraws one name, and leaves.
        let (changed, _) = table.register("home", &names(&[a]), now);
        assert_eq!(changed, [key(&host(b.0))]);
        table.leave("home", now);
        let later = now + 29 * DAY;
        assert_eq!(
            shown(&table, later),
            [format!("home {} https://a.example", WALL - 29 * 86_400)]
        );
        assert!(table.expire(later).is_empty());
        assert_eq!(table.expire(now + 30 * DAY), [key(&host(a.0))]);
        assert!(table.clients.is_empty() && table.owners.is_empty());
        assert_eq!(table.bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_comes_back_is_not_away_and_an_absence_does_not_begin_anew() {
        let (mut table, now) = (table(), Instant::now());
        let a = ("https://a.example", None);
        table.register("home", &names(&[a]), now);
        table.leave("home", now);
        table.leave("home", now + 20 * DAY);
        assert_eq!(table.away(now + 20 * DAY)[0].age, 20 * DAY);
        table.register("home", &names(&[a]), now + 20 * DAY);
        assert!(table.away(now + 20 * DAY).is_empty());
        assert!(table.expire(now + 90 * DAY).is_empty(), "it is published");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_refused_for_a_moment_stays_known_and_another_refusal_ends_it() {
        let (mut table, now) = (table(), Instant::now());
        let (a, b) = (("https://a.example", None), ("https://b.example", None));
        table.register("home", &names(&[a, b]), now);
        let mut waiting = names(&[]);
        waiting.wait(&host(a.0), None);
        waiting.wait(&host("https://never.example"), None);
        let (changed, _) = table.register("home", &waiting, now);
        assert_eq!(changed.len(), 2);
        assert_eq!(table.away(now).len(), 1);
        assert_eq!(&*table.away(now)[0].host.name, "a.example");
    }

    #[tokio::test(start_paused = true)]
    async fn another_client_takes_a_name_and_no_other() {
        let (mut table, now) = (table(), Instant::now());
        table.register(
            "home",
            &names(&[("https://a.example", None), ("http://b.example", None)]),
            now,
        );
        table.leave("home", now);
        table.register("office", &names(&[("tls://a.example", None)]), now);
        let expected = [format!("home {WALL} http://b.example"), "office - tls://a.example".into()];
        assert_eq!(shown(&table, now), expected);
        // The first client has lost the name, and its next registration does not disturb the owner.
        table.register("home", &names(&[]), now);
        assert_eq!(shown(&table, now), ["office - tls://a.example"]);
        let gone = table.retain(|client, _| client != "office");
        assert_eq!((gone.len(), table.bytes), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_bounded_and_off_is_off() {
        let (mut table, now) = (table(), Instant::now());
        for client in 0..25 {
            let all: Vec<_> =
                (0..MOST + 5).map(|n| format!("http://n{n}.c{client}.example")).collect();
            let all: Vec<_> = all.iter().map(|name| (&**name, None)).collect();
            let (changed, left_out) = table.register(&format!("c{client}"), &names(&all), now);
            assert_eq!(changed.len(), MOST + 5);
            assert_eq!(left_out, if client < 20 { 5 } else { MOST + 5 });
        }
        assert_eq!(table.owners.len(), MOST_OF_ALL);
        let mut off = Table::default();
        off.register("home", &names(&[("http://a.example", None)]), now);
        assert!(off.owners.is_empty());
        table.longest = Duration::ZERO;
        assert_eq!(table.expire(now).len(), MOST_OF_ALL);
        assert_eq!(table.bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_come_back_as_they_were_and_a_jump_of_the_clock_ends_nothing() {
        let (mut table, now) = (table(), Instant::now());
        let lines = ["home 1699900000 https://a.example", "home - https://a.example /x y"];
        for line in lines {
            assert!(table.load(line.parse().unwrap(), now, WALL));
        }
        assert!(table.is_new, "the name was published when the server ended");
        assert!(!table.load("other - tls://a.example".parse().unwrap(), now, WALL), "taken");
        let known =
            Table::known(&"home".into(), table.entry(&key(&host("https://a.example"))).unwrap().1);
        assert!(known.takes("/"));
        // The clock goes back by an hour at the start: the absence is shorter, and no error.
        let mut early = self::table();
        assert!(early.load(lines[0].parse().unwrap(), now, 1_699_900_000 - 3600));
        assert_eq!(early.away(now)[0].age, Duration::ZERO);
    }
}
