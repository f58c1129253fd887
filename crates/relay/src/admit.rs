//! Admission of streams: a [`Permit`] proves that a stream is within the limits. Dropping the
//! permit frees its slot. The permit also refers to the byte rates of the stream (`pace`), so a
//! changed rate applies at once to existing streams.
//!
//! All workers share a gate, because the limit of a service applies to the process, not to each
//! worker. An admission therefore costs atomic operations per opened stream, and a byte costs none
//! while no rate is set.
//!
//! ```text
//!   gate of an entrance ──> gate of its client ──> gate of the server     `outer`
//!      │ `more`: a gate for the stream and a gate for its source, where these have limits
//! ```

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use net::source::Source;
use proto::{Bounds, Limits};
use tokio::time::Instant;

use crate::bucket::Bucket;
use crate::shares::{HasEntrance, Holder};

/// A direction of the bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the visitor to the target.
    Up,
    /// From the target to the visitor.
    Down,
}

/// Limits the live streams, the new streams per second and the byte rates. A gate can be nested in
/// an outer gate, as a service is in its client.
#[derive(Debug)]
pub struct Gate {
    /// The limits: of a gate for all its streams, of the gate of a source or of a stream those that
    /// the gate around it has for each source or stream. `None`: the gate only groups other gates.
    own: Option<Arc<Values>>,
    /// The limits per source and per stream.
    each: Option<Box<Each>>,
    live: AtomicU32,
    rate: Rate,
    /// In the gate of a source: the HTTP requests.
    requests: Rate,
    up: Bucket,
    down: Bucket,
    outer: Option<Arc<Self>>,
    /// In the gate of a single stream: the gates of its source and of the stream itself.
    more: Box<[Arc<Self>]>,
    /// The holder for which the sockets behind the gate count.
    holder: Option<Arc<Holder>>,
    /// Set for a nested gate, which is that of an entrance.
    _entrance: Option<HasEntrance>,
}

/// [`Bounds`] that can change while streams are live. [`u32::MAX`] streams, or a rate of 0, means
/// no limit.
#[derive(Debug)]
struct Values {
    streams: AtomicU32,
    new_per_second: AtomicU32,
    up: AtomicU64,
    down: AtomicU64,
}

impl Default for Values {
    fn default() -> Self {
        let (new_per_second, up, down) = Default::default();
        Self { streams: AtomicU32::new(u32::MAX), new_per_second, up, down }
    }
}

impl Values {
    fn set(&self, bounds: Bounds) {
        let Bounds { streams, new_per_second, up, down } = bounds;
        let rate = |rate: Option<NonZeroU64>| rate.map_or(0, NonZeroU64::get);
        self.streams.store(streams.map_or(u32::MAX, NonZeroU32::get), Ordering::Relaxed);
        let new = new_per_second.map_or(0, NonZeroU32::get);
        self.new_per_second.store(new, Ordering::Relaxed);
        self.up.store(rate(up), Ordering::Relaxed);
        self.down.store(rate(down), Ordering::Relaxed);
    }

    fn rate(&self, way: Way) -> u64 {
        match way {
            Way::Up => self.up.load(Ordering::Relaxed),
            Way::Down => self.down.load(Ordering::Relaxed),
        }
    }

    fn streams(&self) -> u32 {
        self.streams.load(Ordering::Relaxed)
    }

    fn new_per_second(&self) -> u32 {
        self.new_per_second.load(Ordering::Relaxed)
    }
}

/// The limits of each source and of each stream.
#[derive(Debug, Default)]
struct Each {
    has_source: AtomicBool,
    source: Arc<Values>,
    has_stream: AtomicBool,
    stream: Arc<Values>,
    sources: Sources,
}

/// The gates of the sources that have streams, or that had streams which count for a rate.
#[derive(Debug, Default)]
struct Sources {
    #[expect(
        clippy::disallowed_types,
        reason = "taken once per stream or HTTP request where sources have limits"
    )]
    known: std::sync::Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    gates: HashMap<Source, Arc<Gate>>,
    /// The number of sources that the last purge has kept.
    kept: usize,
}

/// The minimum number of sources at which unused sources are purged.
const SOURCES: usize = 64;

/// The maximum number of sources that a purge keeps because of their rates. Anybody can send
/// datagrams with forged source addresses, so more sources without streams lose their rates.
const REMEMBERED: usize = 65_536;

impl Sources {
    /// The gate of a source whose streams have these limits.
    fn of(&self, source: &Source, limits: &Arc<Values>) -> Arc<Gate> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = known.gates.get(source) {
            return Arc::clone(of);
        }
        // The purge runs at twice the number of retained sources, so the cost of the scan is
        // amortized over the new sources.
        if known.gates.len() >= SOURCES.max(2 * known.kept) {
            // A gate that is purged too early would give the source another burst: the streams of a
            // source that reconnects would have no rate. The lock is held, so the gate of a source
            // without streams gets none meanwhile.
            let mut remembered = 0;
            known.gates.retain(|_, of| {
                Arc::strong_count(of) > 1
                    || !of.is_like_new() && {
                        remembered += 1;
                        remembered <= REMEMBERED
                    }
            });
            known.kept = known.gates.len();
        }
        let of = Arc::new(Gate::bare(Some(Arc::clone(limits))));
        known.gates.insert(source.clone(), Arc::clone(&of));
        of
    }
}

/// A limit of new streams or of requests per second, with a burst of one second. The algorithm is
/// the generic cell rate algorithm (ITU-T I.371): a token bucket in one number.
#[derive(Debug)]
struct Rate {
    started: Instant,
    /// The time at which the next one is due at an even rate, in nanoseconds since `started`.
    due: AtomicU64,
}

impl Rate {
    fn new() -> Self {
        Self { started: Instant::now(), due: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether a whole burst is admitted, as at the beginning.
    fn is_full(&self) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due == 0 || due <= self.now()
    }

    /// `per_second`: 0 means no limit.
    fn admit(&self, per_second: u32) -> bool {
        let Some(interval) = SECOND.checked_div(per_second.into()) else { return true };
        let now = self.now();
        let next = |due: u64| {
            let next = due.max(now).saturating_add(interval);
            (next - now <= SECOND).then_some(next)
        };
        self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// One second in nanoseconds.
const SECOND: u64 = Duration::from_secs(1).as_nanos() as u64;

impl Gate {
    fn bare(own: Option<Arc<Values>>) -> Self {
        Self {
            own,
            each: None,
            live: AtomicU32::new(0),
            rate: Rate::new(),
            requests: Rate::new(),
            up: Bucket::new(),
            down: Bucket::new(),
            outer: None,
            more: Box::default(),
            holder: None,
            _entrance: None,
        }
    }

    fn with_limits() -> Self {
        let each = Some(Box::default());
        Self { each, ..Self::bare(Some(Arc::default())) }
    }

    /// Makes a gate without an outer gate; `None` sets no limit.
    #[must_use]
    pub fn new(limit: Option<u32>) -> Arc<Self> {
        let gate = Self::with_limits();
        if let (Some(own), Some(limit)) = (&gate.own, limit) {
            own.streams.store(limit, Ordering::Relaxed);
        }
        Arc::new(gate)
    }

    /// Makes a gate with these limits. The sockets behind the gate count for `holder`.
    #[must_use]
    pub fn limited(
        limits: &Limits,
        holder: Option<Arc<Holder>>,
        outer: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let gate = Self { holder, outer, ..Self::with_limits() };
        gate.set(limits);
        Arc::new(gate)
    }

    /// Makes the gate of an entrance inside `outer`. A stream that this gate admits counts in both
    /// gates.
    #[must_use]
    pub fn within(outer: Arc<Self>, limit: Option<u32>) -> Arc<Self> {
        let holder = outer.holder.clone();
        let entrance = holder.as_ref().map(Holder::enter);
        let gate = Self { outer: Some(outer), holder, _entrance: entrance, ..Self::with_limits() };
        if let (Some(own), Some(limit)) = (&gate.own, limit) {
            own.streams.store(limit, Ordering::Relaxed);
        }
        Arc::new(gate)
    }

    /// Changes the limits. Streams above a new limit continue. New byte rates apply to live
    /// streams, too. Limits per source and per stream apply to streams that begin while such limits
    /// are set, whatever the values are later.
    pub fn set(&self, limits: &Limits) {
        let Limits { all, source, stream } = *limits;
        if let Some(own) = &self.own {
            for (way, rate) in [(Way::Up, all.up), (Way::Down, all.down)] {
                if own.rate(way) != rate.map_or(0, NonZeroU64::get) {
                    self.bucket(way).forget();
                }
            }
            own.set(all);
        }
        if let Some(each) = &self.each {
            each.source.set(source);
            each.has_source.store(source != Bounds::default(), Ordering::Relaxed);
            each.stream.set(stream);
            each.has_stream.store(stream != Bounds::default(), Ordering::Relaxed);
        }
    }

    /// The holder for which the sockets behind the gate count; `None`: they count for no share.
    #[must_use]
    pub fn holder(&self) -> Option<&Arc<Holder>> {
        self.holder.as_ref()
    }

    /// Admits one stream without a source. Returns `None` when this gate or an outer gate is full,
    /// or when the rate of new streams is above the limit.
    #[must_use]
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        self.admit_from(None::<Source>)
    }

    /// Admits one stream of a source, as [`Self::admit`] does. Without a source, no per-source
    /// limits apply.
    #[must_use]
    pub fn admit_from(self: &Arc<Self>, source: Option<impl Into<Source>>) -> Option<Permit> {
        if !self.enter() {
            return None;
        }
        let source = source.map(|source| source.into().prefix());
        let mut more = Vec::new();
        for gate in self.chain() {
            let Some(each) = &gate.each else { continue };
            if let Some(source) = &source
                && each.has_source.load(Ordering::Relaxed)
            {
                let of = each.sources.of(source, &each.source);
                if !of.enter() {
                    more.iter().for_each(|gate: &Arc<Self>| gate.leave());
                    self.leave();
                    return None;
                }
                more.push(of);
            }
            if each.has_stream.load(Ordering::Relaxed) {
                // The gate of a single stream needs no check of its count.
                let of = Arc::new(Self::bare(Some(Arc::clone(&each.stream))));
                of.live.store(1, Ordering::Relaxed);
                more.push(of);
            }
        }
        if more.is_empty() {
            return Some(Permit(Arc::clone(self)));
        }
        // All of these gates have counted the stream already.
        let (outer, more) = (Some(Arc::clone(self)), more.into());
        Some(Permit(Arc::new(Self { outer, more, ..Self::bare(None) })))
    }

    /// Admits one HTTP request of a source, of which this gate admits so many per second. The next
    /// request after a refused one is admitted within a second. The requests of a source count at
    /// this gate alone, and not at the outer gates.
    #[must_use]
    pub fn admit_request(&self, source: impl Into<Source>, per_second: NonZeroU32) -> bool {
        let Some(each) = &self.each else { return true };
        let of = each.sources.of(&source.into().prefix(), &each.source);
        of.requests.admit(per_second.get())
    }

    /// The gate for the rates of a stream that all these permits admit. A gate that several permits
    /// share counts the bytes once. `None`: there is no permit.
    pub(crate) fn of_all(permits: &[Permit]) -> Option<Arc<Self>> {
        let (first, others) = permits.split_first()?;
        let first = first.gate();
        let mut all: Vec<&Arc<Self>> = first.parts().collect();
        let own = all.len();
        for gate in others.iter().flat_map(|permit| permit.gate().parts()) {
            if !all.iter().any(|known| Arc::ptr_eq(known, gate)) {
                all.push(gate);
            }
        }
        let more: Box<[_]> = all.drain(own..).cloned().collect();
        if more.is_empty() {
            return Some(Arc::clone(first));
        }
        let outer = Some(Arc::clone(first));
        Some(Arc::new(Self { outer, more, ..Self::bare(None) }))
    }

    /// Whether the gate is that of a single stream, with its own rates.
    pub(crate) const fn is_of_one(&self) -> bool {
        self.own.is_none()
    }

    /// The number of live permits of this gate.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// This gate and all outer gates.
    fn chain(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |gate| gate.outer.as_ref())
    }

    /// The gates of [`Self::chain`] and the gates that they group.
    fn parts(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        self.chain().flat_map(|gate| std::iter::once(gate).chain(&gate.more))
    }

    fn streams(&self) -> u32 {
        self.own.as_ref().map_or(u32::MAX, |own| own.streams())
    }

    fn new_per_second(&self) -> u32 {
        self.own.as_ref().map_or(0, |own| own.new_per_second())
    }

    /// Bytes per second; 0 means no limit.
    pub(crate) fn bytes_per_second(&self, way: Way) -> u64 {
        self.own.as_ref().map_or(0, |own| own.rate(way))
    }

    /// Whether a new gate in the place of this one, which has no streams, would admit the same.
    fn is_like_new(&self) -> bool {
        self.rate.is_full() && self.requests.is_full() && self.up.is_open() && self.down.is_open()
    }

    pub(crate) const fn bucket(&self, way: Way) -> &Bucket {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    /// The buckets of this gate, of the gates that it groups and of all outer gates that have a
    /// rate now, with the rate in bytes per second.
    pub(crate) fn rates(&self, way: Way) -> impl Iterator<Item = (&Bucket, u64)> {
        let chain = std::iter::successors(Some(self), |gate| gate.outer.as_deref());
        let all = chain
            .flat_map(|gate| std::iter::once(gate).chain(gate.more.iter().map(|more| &**more)));
        all.map(move |gate| (gate.bucket(way), gate.bytes_per_second(way)))
            .filter(|(_, rate)| *rate > 0)
    }

    fn enter(&self) -> bool {
        if !self.outer.as_ref().is_none_or(|outer| outer.enter()) {
            return false;
        }
        let limit = self.streams();
        let next = |n: u32| (n < limit).then_some(n + 1);
        let has_room = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        let admitted = has_room && self.rate.admit(self.new_per_second());
        if !admitted {
            if has_room {
                self.live.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(outer) = &self.outer {
                outer.leave();
            }
        }
        admitted
    }

    fn leave(&self) {
        if self.own.is_none() {
            self.more.iter().for_each(|gate| gate.leave());
        } else {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(outer) = &self.outer {
            outer.leave();
        }
    }
}

/// The proof that one stream was admitted.
#[derive(Debug)]
pub struct Permit(Arc<Gate>);

impl Permit {
    /// The gate of the stream.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_full_gate_admits_again_after_a_drop() {
        let gate = Gate::new(Some(2));
        let first = gate.admit();
        let second = gate.admit();
        assert!(first.is_some() && second.is_some() && gate.admit().is_none());
        drop(first);
        assert!(gate.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_per_second_and_a_second_s_worth_at_once() {
        let all = Bounds {
            streams: NonZeroU32::new(1000),
            new_per_second: NonZeroU32::new(10),
            ..Bounds::default()
        };
        let gate = Gate::limited(&Limits { all, ..Limits::default() }, None, None);
        let pass = |gate: &Arc<Gate>| (0..100).filter(|_| gate.admit().is_some()).count();
        assert_eq!(pass(&gate), 10);
        assert_eq!(gate.live(), 0, "who is refused takes no place");
        tokio::time::advance(Duration::from_millis(99)).await;
        assert_eq!(pass(&gate), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(pass(&gate), 1);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(pass(&gate), 5);
        // However long the gate was idle, its burst is at most the streams of one second.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(pass(&gate), 10);
        let inner = Gate::within(Arc::clone(&gate), Some(5));
        assert!(inner.admit().is_none());
        assert_eq!((inner.live(), gate.live()), (0, 0));
    }

    #[test]
    fn a_source_has_its_own_limit_and_a_refusal_gives_every_place_back() {
        let source = Bounds { streams: NonZeroU32::new(2), ..Bounds::default() };
        let all = Bounds { streams: NonZeroU32::new(3), ..Bounds::default() };
        let client = Gate::limited(&Limits { all, source, ..Limits::default() }, None, None);
        let service = Gate::within(Arc::clone(&client), None);
        let from = |last: u8| service.admit_from(Some(IpAddr::from([192, 0, 2, last])));
        let held = [from(1), from(1)];
        assert!(held.iter().all(Option::is_some) && from(1).is_none());
        assert_eq!((client.live(), service.live()), (2, 2), "who is refused takes no place");
        let other = from(2);
        assert!(other.is_some() && from(3).is_none(), "three in all");
        // Streams without a source have no such limit.
        drop(other);
        assert!(service.admit().is_some());
        drop(held);
        assert_eq!((client.live(), service.live()), (0, 0));
        assert!(from(1).is_some());
        // A limit that is raised holds at once.
        let source = Bounds { streams: NonZeroU32::new(3), ..Bounds::default() };
        client.set(&Limits { all, source, ..Limits::default() });
        let held = [from(1), from(1), from(1)];
        assert!(held.iter().all(Option::is_some));
    }

    #[test]
    fn sources_without_streams_and_rates_are_forgotten() {
        let source = Bounds { streams: NonZeroU32::new(2), ..Bounds::default() };
        let gate = Gate::limited(&Limits { source, ..Limits::default() }, None, None);
        for n in 0..10_000_u32 {
            assert!(gate.admit_from(Some(IpAddr::from(n.to_be_bytes()))).is_some());
        }
        let each = gate.each.as_ref().unwrap();
        let known = each.sources.known.lock().unwrap().gates.len();
        assert!(known <= SOURCES, "{known}");
    }

    /// The limit of new streams of a source.
    fn new_of_source(per_second: u32) -> Limits {
        let new_per_second = NonZeroU32::new(per_second);
        let source = Bounds { new_per_second, ..Bounds::default() };
        Limits { source, ..Limits::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_reconnects_has_the_rate_that_it_had() {
        let gate = Gate::limited(&new_of_source(5), None, None);
        let from = |n: u32| gate.admit_from(Some(IpAddr::from(n.to_be_bytes())));
        let pass = || (0..20).filter(|_| from(0).is_some()).count();
        // Each stream ends before the next one begins.
        assert_eq!(pass(), 5);
        // Purges in between change nothing.
        assert!((1..1000).all(|n| from(n).is_some()));
        assert_eq!(pass(), 0);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(pass(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pass(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn sources_are_forgotten_once_their_rate_is_as_at_the_beginning() {
        let gate = Gate::limited(&new_of_source(10), None, None);
        let weak = Arc::downgrade(&gate);
        for n in 0..5_000_u32 {
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(gate.admit_from(Some(IpAddr::from(n.to_be_bytes()))).is_some());
        }
        // A stream counts for 100 ms, in which 100 sources come.
        let each = gate.each.as_ref().unwrap();
        let known = each.sources.known.lock().unwrap().gates.len();
        assert!((100..=2 * 101).contains(&known), "{known}");
        // A flood of forged sources is bounded.
        for n in 0..300_000_u32 {
            assert!(gate.admit_from(Some(IpAddr::from(n.to_be_bytes()))).is_some());
        }
        let known = gate.each.as_ref().unwrap().sources.known.lock().unwrap().gates.len();
        assert!((REMEMBERED..=2 * REMEMBERED).contains(&known), "{known}");
        drop(gate);
        assert!(weak.upgrade().is_none(), "a remembered source keeps its gate alive");
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_a_source_have_a_rate_of_their_own() {
        let outer = Gate::new(None);
        let gate = Gate::within(outer, None);
        let three = NonZeroU32::new(3).unwrap();
        let pass = |ip: &str| {
            let source: IpAddr = ip.parse().unwrap();
            (0..10).filter(|_| gate.admit_request(source, three)).count()
        };
        assert_eq!([pass("192.0.2.1"), pass("192.0.2.2")], [3, 3]);
        assert_eq!(
            [pass("2001:db8::1"), pass("2001:db8::ffff"), pass("2001:db8:0:1::1")],
            [3, 0, 3]
        );
        // Streams and requests count apart.
        let source = Bounds { new_per_second: Some(three), ..Bounds::default() };
        gate.set(&Limits { source, ..Limits::default() });
        let from = || gate.admit_from(Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!((0..10).filter(|_| from().is_some()).count(), 3);
        // The delay that a refused source is told.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pass("192.0.2.1"), 3);
        tokio::time::advance(Duration::from_millis(334)).await;
        assert_eq!(pass("192.0.2.1"), 1);
        // A changed limit holds at once.
        let source = IpAddr::from([192, 0, 2, 1]);
        let one = NonZeroU32::MIN;
        assert!(!gate.admit_request(source, one));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(gate.admit_request(source, one) && !gate.admit_request(source, one));
        // A source whose requests no longer count is forgotten.
        for n in 0..10_000_u32 {
            tokio::time::advance(Duration::from_millis(5)).await;
            assert!(gate.admit_request(IpAddr::from(n.to_be_bytes()), three));
        }
        let known = gate.each.as_ref().unwrap().sources.known.lock().unwrap().gates.len();
        assert!(known <= 2 * 70, "{known}");
    }

    #[test]
    fn a_refusal_by_the_inner_gate_gives_the_outer_place_back() {
        let client = Gate::new(Some(3));
        let service = Gate::within(Arc::clone(&client), Some(1));
        let held = service.admit();
        assert!(held.is_some() && service.admit().is_none());
        assert_eq!(client.live(), 1);
        drop(held);
        assert_eq!((client.live(), service.live()), (0, 0));
    }

    #[test]
    fn the_outer_limit_counts_over_all_inner_gates() {
        let client = Gate::new(Some(1));
        let (ssh, web) = (Gate::within(Arc::clone(&client), None), Gate::within(client, Some(5)));
        let held = ssh.admit();
        assert!(held.is_some() && web.admit().is_none());
        assert_eq!(web.live(), 0);
    }
}
