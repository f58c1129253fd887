//! Limits the number of lines that a peer may cause. A peer that repeatedly connects, registers or
//! breaks the protocol would fill a disk, or push all other lines out of a rotated file.
//!
//! The fields of an event identify the peer that caused it:
//!
//! | fields | the line costs a line of the quota of |
//! |---|---|
//! | `source` | the source, its network, and all strangers: peers that have not logged in, or came by `allow_any_client` |
//! | `client`, or on a client `server`; else `service`, `forward`, `link` or `host` | that peer, and all peers |
//! | an event of a library that parses bytes of peers | that library, and all peers |
//! | none of these | nobody: no peer can cause the event at will |
//!
//! When the shared quota runs short, members with few lines take precedence over members with many.
//! So a member with many lines suppresses no line about another member. An event beyond a quota is
//! suppressed and counted; [`tell_left_out`] writes the counts into the log.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use net::source::prefix;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::access::ACCESS;

/// The field with the address of an unauthenticated peer.
const SOURCE: &str = "source";

/// The fields that name a peer, in order of precedence.
const PEERS: [&str; 6] = ["client", "server", "service", "forward", "link", "host"];

/// The libraries that parse bytes of peers. Each has the quota of a peer, because a library does
/// not report which peer caused an event.
const LIBRARIES: [&str; 7] =
    ["quinn", "quinn_proto", "quinn_udp", "h2", "hyper", "hyper_util", "instant_acme"];

/// The quota of one client: a registration of 1,024 ports writes a line for each port.
const CLIENT: Rate = Rate { burst: 1_200.0, per_second: 1.0 };

/// The quota of all clients together: the clients of a large server that restarts log in within
/// seconds, and each of them should get a line. The rate is 432,000 lines (about 80 MB) a day.
const CLIENTS: Rate = Rate { burst: 20_000.0, per_second: 5.0 };

/// The quota of one source of unauthenticated peers: 30 clients behind one address that restart,
/// and then 2,880 lines a day.
const STRANGER: Rate = Rate { burst: 100.0, per_second: 1.0 / 30.0 };

/// The quota of the unauthenticated peers of one network: three times that of a source. A provider
/// assigns at most a network of this size to a customer, see [`network`].
const NETWORK: Rate = Rate { burst: 300.0, per_second: 0.1 };

/// The quota of all unauthenticated peers together: 43,200 lines (about 9 MB) a day.
const STRANGERS: Rate = Rate { burst: 1_000.0, per_second: 0.5 };

/// The part of the shared quota in which members with few lines take precedence: the more of its
/// own quota a member has used, the more of this part must be left.
const KEPT: f64 = 0.5;

/// The part of the shared quota that is reserved for the first line of members that were quiet for
/// [`QUIET`]. Otherwise members whose own quota refills would use up the refill of the shared
/// quota.
const KEPT_FOR_QUIET: f64 = 0.1;
const QUIET: Duration = Duration::from_secs(3600);

/// The largest number of members of one kind that are distinguished. The shared quota bounds
/// further members.
const MEMBERS: usize = 4_096;

/// The shortest time between two searches for members that can be evicted.
const SWEEP: Duration = Duration::from_secs(1);

/// The lines that were suppressed since the start of the process.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// The lines that were suppressed since the last report by [`tell_left_out`].
static UNTOLD: Mutex<Untold> = Mutex::new(Untold { clients: 0, strangers: 0, last: None });

/// The number of suppressed lines since the start of the process, because a client or
/// unauthenticated peers caused too many.
#[must_use]
pub fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Logs the number of suppressed lines since the last call; without such lines it logs nothing.
/// This line has no quota: the caller chooses the interval.
pub fn tell_left_out() {
    crate::requests::tell_lost();
    let none = Untold { clients: 0, strangers: 0, last: None };
    let unreported =
        std::mem::replace(&mut *UNTOLD.lock().unwrap_or_else(PoisonError::into_inner), none);
    if let Some(last) = &unreported.last {
        let (clients, strangers) = (unreported.clients, unreported.strangers);
        tracing::warn!(
            clients,
            strangers,
            "{} log lines were left out, because peers caused too many: {clients} about peers that \
             have logged in, {strangers} about strangers; the last was about {last}",
            clients + strangers
        );
    }
}

/// The suppressed lines, by the class of their cause.
#[derive(Debug)]
struct Untold {
    clients: u64,
    strangers: u64,
    /// The peer of the last suppressed line.
    last: Option<Cause>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The burst: lines allowed at once.
    burst: f64,
    /// The refill rate, in lines per second.
    per_second: f64,
}

/// A token bucket: it refills at the rate, and a line takes one token.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    lines: f64,
    since: Instant,
    /// When the last line passed.
    written: Option<Instant>,
}

impl Bucket {
    const fn full(rate: Rate, now: Instant) -> Self {
        Self { lines: rate.burst, since: now, written: None }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.lines = seconds.mul_add(rate.per_second, self.lines).min(rate.burst);
        self.since = now;
    }

    /// Takes one token if `kept` tokens are left afterwards.
    fn take(&mut self, rate: Rate, kept: f64, now: Instant) -> bool {
        self.refill(rate, now);
        let passes = self.lines >= 1.0 + kept;
        if passes {
            self.lines -= 1.0;
            self.written = Some(now);
        }
        passes
    }
}

/// The history of a member before a line.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// The used part of its own quota, from 0 to 1.
    used: f64,
    /// Whether it has caused no line for [`QUIET`].
    is_quiet: bool,
}

impl Past {
    /// The history of a member that cannot be distinguished from others.
    const UNKNOWN: Self = Self { used: 1.0, is_quiet: false };

    fn and(self, other: Self) -> Self {
        Self { used: self.used.max(other.used), is_quiet: self.is_quiet && other.is_quiet }
    }
}

/// The quotas of the members of one kind.
#[derive(Debug)]
struct Members<K> {
    rate: Rate,
    buckets: HashMap<K, Bucket>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash> Members<K> {
    fn new(rate: Rate) -> Self {
        Self { rate, buckets: HashMap::new(), swept: None }
    }

    /// Takes a token for a line of a member. `None`: the member has no token left.
    fn take(&mut self, key: K, now: Instant) -> Option<Past> {
        let Self { rate, buckets, swept } = self;
        if buckets.len() >= MEMBERS && !buckets.contains_key(&key) {
            if swept.is_none_or(|last| now.saturating_duration_since(last) >= SWEEP) {
                *swept = Some(now);
                buckets.retain(|_, bucket| {
                    bucket.refill(*rate, now);
                    bucket.lines < rate.burst
                });
            }
            if buckets.len() >= MEMBERS {
                // The member cannot be distinguished, because there are too many members.
                return Some(Past::UNKNOWN);
            }
        }
        let own = buckets.entry(key).or_insert_with(|| Bucket::full(*rate, now));
        own.refill(*rate, now);
        let last = own.written.map(|last| now.saturating_duration_since(last));
        let is_quiet = last.is_none_or(|last| last >= QUIET);
        let past = Past { used: 1.0 - own.lines / rate.burst, is_quiet };
        own.take(*rate, 0.0, now).then_some(past)
    }
}

/// The quota of all members together.
#[derive(Debug)]
struct Sum {
    rate: Rate,
    bucket: Bucket,
}

impl Sum {
    const fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, bucket: Bucket::full(rate, now) }
    }

    fn take(&mut self, past: Past, now: Instant) -> bool {
        let for_quiet = if past.is_quiet { 0.0 } else { KEPT_FOR_QUIET };
        // The square root gives the first lines of a member the largest effect.
        let kept = for_quiet + KEPT * past.used.max(0.0).sqrt();
        self.bucket.take(self.rate, kept * self.rate.burst, now)
    }
}

/// The network of a source: 48 bits for IPv6, the largest network that a provider assigns to a
/// customer, and 24 bits for IPv4.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) >> 8 << 8).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 80 << 80).into()),
    }
}

/// The peer that caused an event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// A peer that has logged in.
    Peer(String),
    /// A source of unauthenticated peers.
    Stranger(IpAddr),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(name) => f.write_str(name),
            Self::Stranger(source) => write!(f, "{source}"),
        }
    }
}

#[derive(Debug)]
struct Buckets {
    clients: Members<String>,
    of_clients: Sum,
    sources: Members<IpAddr>,
    networks: Members<IpAddr>,
    of_strangers: Sum,
}

impl Buckets {
    fn new(now: Instant) -> Self {
        Self {
            clients: Members::new(CLIENT),
            of_clients: Sum::new(CLIENTS, now),
            sources: Members::new(STRANGER),
            networks: Members::new(NETWORK),
            of_strangers: Sum::new(STRANGERS, now),
        }
    }

    fn pass(&mut self, cause: &Cause, now: Instant) -> bool {
        match cause {
            Cause::Peer(name) => {
                let past = self.clients.take(name.clone(), now);
                past.is_some_and(|past| self.of_clients.take(past, now))
            }
            Cause::Stranger(source) => {
                let source = prefix(*source);
                let own = self.sources.take(source, now);
                let of_network =
                    own.and_then(|own| Some(own.and(self.networks.take(network(source), now)?)));
                of_network.is_some_and(|past| self.of_strangers.take(past, now))
            }
        }
    }
}

/// The filter of a layer that writes lines.
#[derive(Debug)]
pub(crate) struct Quota(Mutex<Buckets>);

impl Quota {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Buckets::new(Instant::now())))
    }
}

impl<S: Subscriber> Filter<S> for Quota {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // The access log has its own switch and no quota.
        if metadata.target() == ACCESS {
            return true;
        }
        let Some(cause) = cause(event) else { return true };
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = buckets.pass(&cause, Instant::now());
        drop(buckets);
        if !passes {
            note(cause);
        }
        passes
    }
}

/// The peer that caused an event; `None` if no peer did.
fn cause(event: &Event<'_>) -> Option<Cause> {
    let metadata = event.metadata();
    let library = metadata.target().split("::").next().unwrap_or_default();
    if LIBRARIES.contains(&library) {
        return Some(Cause::Peer(library.to_owned()));
    }
    let has = |name: &&str| metadata.fields().field(*name).is_some();
    if !has(&SOURCE) && !PEERS.iter().any(has) {
        return None;
    }
    let mut found = Found::default();
    event.record(&mut found);
    found.cause()
}

/// Counts a suppressed line.
fn note(cause: Cause) {
    LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    let mut unreported = UNTOLD.lock().unwrap_or_else(PoisonError::into_inner);
    match cause {
        Cause::Peer(_) => unreported.clients += 1,
        Cause::Stranger(_) => unreported.strangers += 1,
    }
    unreported.last = Some(cause);
}

/// The fields of an event that identify the peer that caused it.
#[derive(Default)]
struct Found {
    source: Option<IpAddr>,
    /// The index of the field in [`PEERS`], and its value.
    peer: Option<(usize, String)>,
}

impl Found {
    fn cause(self) -> Option<Cause> {
        match self.source {
            Some(source) => Some(Cause::Stranger(source)),
            None => self.peer.map(|(_, name)| Cause::Peer(name)),
        }
    }

    /// Whether the value of this field takes precedence over the present result.
    fn place(&self, field: &Field) -> Option<usize> {
        let place = PEERS.iter().position(|name| *name == field.name())?;
        self.peer.as_ref().is_none_or(|(known, _)| place < *known).then_some(place)
    }
}

impl Visit for Found {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(place) = self.place(field) {
            self.peer = Some((place, value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == SOURCE {
            self.source = format!("{value:?}").parse().ok();
        } else if let Some(place) = self.place(field) {
            // The serial number is new for each link, and does not identify the peer.
            let value =
                if field.name() == "link" { "a link".to_owned() } else { format!("{value:?}") };
            self.peer = Some((place, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn client(name: &str) -> Cause {
        Cause::Peer(name.to_owned())
    }

    fn stranger(network: u32, host: u32) -> Cause {
        let ip = (10_u128 << 112) + (u128::from(network) << 80) + (u128::from(host) << 64);
        Cause::Stranger(IpAddr::V6(ip.into()))
    }

    fn passed(buckets: &mut Buckets, cause: &Cause, lines: usize, now: Instant) -> usize {
        (0..lines).filter(|_| buckets.pass(cause, now)).count()
    }

    #[test]
    fn a_client_has_its_own_lines_and_all_clients_have_theirs() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        assert_eq!(passed(&mut buckets, &client("loud"), 100_000, start), 1_200);
        assert_eq!(passed(&mut buckets, &client("calm"), 10, start), 10);
        let later = start + MINUTE;
        assert_eq!(passed(&mut buckets, &client("loud"), 100_000, later), 60);
        let many: usize =
            (0..100).map(|n| passed(&mut buckets, &client(&format!("c{n}")), 1_000, later)).sum();
        assert!((14_000..=20_000).contains(&many), "{many}");
        assert!(passed(&mut buckets, &client("new"), 10, later) >= 5, "a part is kept for it");
    }

    #[test]
    fn a_source_hides_no_line_about_another_source() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        assert_eq!(passed(&mut buckets, &stranger(1, 1), 100_000, start), 100);
        assert_eq!(passed(&mut buckets, &stranger(1, 2), 10, start), 10);
        // A customer with 65,536 prefixes is one network.
        let of_network: usize =
            (0..65_536).map(|n| passed(&mut buckets, &stranger(1, n), 2, start)).sum();
        assert!(of_network <= 200, "{of_network}");
        assert_eq!(passed(&mut buckets, &stranger(2, 1), 10, start), 10);
    }

    #[test]
    fn a_thousand_flooding_sources_do_not_hide_a_quiet_source() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        for second in 0..1_800 {
            let now = start + Duration::from_secs(second);
            for network in 100..200 {
                for host in 0..10 {
                    passed(&mut buckets, &stranger(network, host), 2, now);
                }
            }
            // A new source every minute.
            if second % 60 == 59 {
                let new = u32::try_from(1_000 + second).unwrap();
                assert!(buckets.pass(&stranger(new, 0), now), "{second}");
            }
        }
    }

    #[test]
    fn all_strangers_of_a_day_write_a_bounded_number_of_lines() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        let mut lines = 0;
        for minute in 0..24 * 60 {
            let now = start + MINUTE * minute;
            for n in 0..1_000 {
                lines += passed(&mut buckets, &stranger(n, minute), 1, now);
            }
        }
        assert!((40_000..=45_000).contains(&lines), "{lines}");
    }

    #[test]
    fn invented_names_and_sources_cost_no_memory() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        for n in 0..20_000 {
            buckets.pass(&client(&format!("c{n}")), start);
            buckets.pass(&stranger(n, n), start);
        }
        let most = |buckets: &Buckets| {
            let Buckets { clients, sources, networks, .. } = buckets;
            clients.buckets.len().max(sources.buckets.len()).max(networks.buckets.len())
        };
        assert!(most(&buckets) <= MEMBERS);
        // Members that wrote nothing for a while make room.
        let later = start + 60 * MINUTE;
        assert!(buckets.pass(&client("new"), later) && buckets.pass(&stranger(20_001, 1), later));
        assert_eq!(most(&buckets), 1);
    }

    #[test]
    fn ipv4_and_ipv6_have_networks_of_the_size_that_a_customer_gets() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.77"), "192.0.2.0");
        assert_eq!(of("2001:db8:1:2::"), "2001:db8:1::");
    }
}
