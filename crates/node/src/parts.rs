//! The parts of the memory budget: the memory that each source of visitors and each client holds. A
//! large holder leaves room for the others.
//!
//! The bound is a dynamic threshold (Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", 1998): a holder may take more while it holds at most a factor
//! times the free budget. [`Portion`] is the budget as a holder sees it: it reports less than the
//! actual free budget, so that all rules about the free budget ([`proto::Budget::left`]) apply to
//! each holder as well.
//!
//! | holder | factor | a single holder may take |
//! |---|---|---|
//! | a source of visitors: an IPv4 address or an IPv6 /64; behind a trusted reverse proxy the visitor that the proxy names | 4 | seven tenths |
//! | a client, over all its links: windows, replay, data that visitors have not read | 16 | eight tenths |
//!
//! A source may take less than its client, so the client's other visitors are still served. The
//! last part of the budget is reserved for small holders: other streams may fill the budget up to
//! it while they make progress, and then stall.
//!
//! A holder that has used up its part may open a few more streams (`Parting::beyond`): the memory
//! of streams grows after they begin, and the next visitor behind a NAT is served beside the
//! stalled ones.
//!
//! All workers share the table. Links and streams report their use in steps, so a frame costs no
//! atomic operation on shared memory; the table is locked when a connection or a stream begins.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use link::{Lease, ProcessBudget};
use net::source::prefix;
use proto::{Budget, Share};

use crate::limits;

/// How the budget is divided among the holders of a kind.
#[derive(Clone, Copy, Debug)]
struct Parting {
    /// A holder may hold this multiple of the free budget.
    factor: u64,
    /// The streams that a holder may open beyond its part may take, by their expected size, the
    /// budget divided by this number.
    beyond: u64,
}

/// The visitors behind a NAT or an unconfigured proxy share a source: with 32 MiB, 800 unread
/// streams leave enough for its next visitor, although they take 29 MiB at the sending end.
const OF_SOURCE: Parting = Parting { factor: 4, beyond: 64 };

/// A source leaves half of the client's extra streams to the client's other visitors.
const OF_CLIENT: Parting = Parting { factor: 16, beyond: 32 };

/// Connections and requests leave the budget divided by this number free ([`web::Account`],
/// [`relay::Held`]), as do new streams of a source or a client that holds more than [`little`].
const RESERVE: u64 = 8;

/// Small holders leave the budget divided by this number free, for memory that cannot be refused.
/// It is half of what streams in progress leave free.
const LAST: u64 = 32;

/// The expected memory of a new stream, in bytes: its state and its implicit window.
const STREAM: u64 = 18 << 10;

/// The maximum use of a small holder, in bytes: the buffers and the requests of a page.
const LITTLE: u64 = 256 << 10;

/// The maximum use of a small holder with this budget: less with a small budget.
fn little(total: u64) -> u64 {
    (total / 128).min(LITTLE)
}

/// The parts of one budget.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    sources: Table<IpAddr>,
    clients: Table<String>,
}

/// The memory that one source or one client holds.
#[derive(Debug, Default)]
struct Part {
    /// Bytes.
    held: AtomicI64,
    /// The number of streams that were opened beyond the part of the holder.
    beyond: AtomicU64,
}

impl Part {
    fn add(&self, bytes: i64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn held(&self) -> u64 {
        // A link reports its use with a delay, so the sum may be negative.
        u64::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// A stream of a holder that had used up its part when the stream began.
#[derive(Debug)]
struct Beyond(Arc<Part>);

impl Beyond {
    fn of(part: &Arc<Part>) -> Self {
        part.beyond.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(part))
    }
}

impl Drop for Beyond {
    fn drop(&mut self) {
        self.0.beyond.fetch_sub(1, Ordering::Relaxed);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The part of a client, as seen by one of its links. The use of a link changes with each frame, so
/// the link reports it in steps of [`STEP`].
#[derive(Debug)]
struct OfLink {
    part: Arc<Part>,
    unreported: Cell<i64>,
}

/// The maximum change that a link leaves unreported, in bytes.
const STEP: u64 = 64 << 10;

impl OfLink {
    const fn new(part: Arc<Part>) -> Self {
        Self { part, unreported: Cell::new(0) }
    }

    fn add(&self, bytes: i64) {
        let unreported = self.unreported.get().saturating_add(bytes);
        if unreported.unsigned_abs() >= STEP {
            self.part.add(unreported);
            self.unreported.set(0);
        } else {
            self.unreported.set(unreported);
        }
    }
}

impl Clone for OfLink {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.part))
    }
}

impl Drop for OfLink {
    fn drop(&mut self) {
        self.part.add(self.unreported.get());
    }
}

/// The live holders, by their names.
struct Table<K>(Mutex<HashMap<K, Weak<Part>>>);

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> fmt::Debug for Table<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

impl<K: Eq + Hash> Table<K> {
    fn part(&self, of: K) -> Arc<Part> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = all.get(&of).and_then(Weak::upgrade) {
            return part;
        }
        // The table is purged before it grows, so its memory is proportional to the number of
        // holders.
        if all.len() == all.capacity() {
            all.retain(|_, part| part.strong_count() > 0);
        }
        let part = Arc::<Part>::default();
        all.insert(of, Arc::downgrade(&part));
        part
    }
}

impl Parts {
    /// The parts of a budget, shared by all workers. A test process has several budgets.
    pub(crate) fn of(budget: &Arc<ProcessBudget>) -> Arc<Self> {
        type OfBudget = (Weak<ProcessBudget>, Arc<Parts>);
        static ALL: LazyLock<Mutex<Vec<OfBudget>>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _)| of.strong_count() > 0);
        let known = all.iter().find(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(budget)));
        if let Some((_, parts)) = known {
            return Arc::clone(parts);
        }
        let parts = Arc::<Self>::default();
        all.push((Arc::downgrade(budget), Arc::clone(&parts)));
        parts
    }
}

/// The budget of a worker, as seen by a source, a client or no particular holder.
#[derive(Clone, Debug)]
pub struct Portion {
    lease: Rc<Lease>,
    parts: Arc<Parts>,
    source: Option<Arc<Part>>,
    client: Option<OfLink>,
}

impl Portion {
    /// The budget of a worker.
    pub fn new(lease: &Rc<Lease>) -> Self {
        let parts = Parts::of(lease.shared());
        Self { lease: Rc::clone(lease), parts, source: None, client: None }
    }

    /// The budget as the source of this visitor sees it. A trusted reverse proxy is not a source.
    pub fn of(&self, visitor: Option<SocketAddr>) -> Self {
        let source = limits::source(visitor).map(|ip| self.parts.sources.part(prefix(ip)));
        Self { source, ..self.clone() }
    }

    /// The budget as a client sees it.
    pub fn of_client(&self, name: &str) -> Self {
        let client = OfLink::new(self.parts.clients.part(name.to_owned()));
        Self { client: Some(client), ..self.clone() }
    }

    fn holders(&self) -> impl Iterator<Item = (&Arc<Part>, Parting)> {
        let source = self.source.as_ref().map(|part| (part, OF_SOURCE));
        source.into_iter().chain(self.client.as_ref().map(|link| (&link.part, OF_CLIENT)))
    }

    /// Whether the rules about the free budget let a new stream begin.
    fn is_within(&self) -> bool {
        self.left() >= (self.lease.total() / RESERVE).saturating_add(STREAM)
    }

    /// The holders whose part has no room for a new stream.
    fn full(&self) -> impl Iterator<Item = (&Arc<Part>, Parting)> {
        let (left, least) = (self.lease.left(), self.lease.total() / RESERVE + STREAM);
        let of = move |(part, kind): &(&Arc<Part>, Parting)| part.held() / kind.factor;
        self.holders().filter(move |holder| left.saturating_sub(of(holder)) < least)
    }

    fn add(&self, bytes: i64) {
        if let Some(source) = &self.source {
            source.add(bytes);
        }
        if let Some(client) = &self.client {
            client.add(bytes);
        }
    }
}

impl Budget for Portion {
    fn draw(&self, bytes: u64) -> bool {
        let is_drawn = self.lease.draw(bytes);
        if is_drawn {
            self.add(signed(bytes));
        }
        is_drawn
    }

    fn charge(&self, bytes: u64) {
        self.lease.charge(bytes);
        self.add(signed(bytes));
    }

    fn release(&self, bytes: u64) {
        self.lease.release(bytes);
        self.add(-signed(bytes));
    }

    fn left(&self) -> u64 {
        let (left, total) = (self.lease.left(), self.lease.total());
        let (reserve, last) = (total / RESERVE, total / LAST);
        let mut seen = left;
        let (mut has_holder, mut is_little) = (false, true);
        for (part, kind) in self.holders() {
            let held = part.held();
            has_holder = true;
            is_little &= held <= little(total);
            // Existing streams continue: they keep their implicit windows.
            seen = seen.min(left.saturating_sub(held / kind.factor).max(left.min(reserve)));
        }
        // The rules about the free budget keep the reserve free; a small holder may use all but the
        // last part of it.
        if has_holder && is_little && left > last { seen + (reserve - last) } else { seen }
    }

    fn total(&self) -> u64 {
        self.lease.total()
    }

    fn share(&self, visitor: SocketAddr) -> Option<Rc<dyn Share>> {
        let portion = self.of(Some(visitor));
        portion.source.as_ref()?;
        Some(Rc::new(OfStream { portion, beyond: OnceCell::new() }))
    }

    fn of_visitor(&self, visitor: SocketAddr) -> Option<Rc<dyn Budget>> {
        let source = self.of(Some(visitor));
        source.source.is_some().then(|| Rc::new(source) as Rc<dyn Budget>)
    }
}

/// The budget as a stream of a source sees it. The link charges the stream to the budget and to the
/// client; this type charges it to the source.
#[derive(Debug)]
struct OfStream {
    portion: Portion,
    /// The holders that had used up their part when the stream began.
    beyond: OnceCell<Vec<Beyond>>,
}

impl Share for OfStream {
    fn change(&self, before: u64, now: u64) {
        let portion = &self.portion;
        self.beyond.get_or_init(|| {
            let full = (!portion.is_within())
                .then(|| portion.full().map(|(part, _)| Beyond::of(part)).collect());
            full.unwrap_or_default()
        });
        if let Some(source) = &portion.source {
            source.add(signed(now) - signed(before));
        }
    }

    fn has_room(&self) -> bool {
        let (portion, total) = (&self.portion, self.portion.lease.total());
        let has_few = |(part, kind): (&Arc<Part>, Parting)| {
            part.beyond.load(Ordering::Relaxed) < total / kind.beyond / STREAM
        };
        portion.is_within()
            || portion.lease.left() >= (total / LAST).saturating_add(STREAM)
                && portion.full().all(has_few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TOTAL: u64 = 64 * MIB;

    fn budget() -> Portion {
        Portion::new(&Rc::new(Lease::new(ProcessBudget::new(TOTAL))))
    }

    fn visitor(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().unwrap(), 5))
    }

    /// Takes pieces as connections and requests do, until the budget refuses.
    fn fill(portion: &Portion) -> u64 {
        const PIECE: u64 = 16 << 10;
        let mut taken = 0;
        while portion.left() >= TOTAL / RESERVE + PIECE && portion.draw(PIECE) {
            taken += PIECE;
        }
        taken
    }

    /// A new stream, if the budget allows it.
    fn stream(link: &Portion, at: SocketAddr) -> Option<Rc<dyn Share>> {
        let one = link.share(at).unwrap();
        one.has_room().then(|| {
            link.charge(STREAM);
            one.change(0, STREAM);
            one
        })
    }

    #[test]
    fn a_source_whose_streams_stall_has_room_for_a_few_streams_more() {
        let total = 32 * MIB;
        let all = Portion::new(&Rc::new(Lease::new(ProcessBudget::new(total))));
        let link = all.of_client("home");
        let at = visitor("192.0.2.1").unwrap();
        let stalled: Vec<_> = (0..800).map(|_| stream(&link, at).unwrap()).collect();
        // The sending end holds an unsent frame of each stream.
        let more = 29 * MIB - 800 * STREAM;
        link.charge(more);
        stalled[0].change(STREAM, STREAM + more);
        let few: Vec<_> = std::iter::from_fn(|| stream(&link, at)).collect();
        assert_eq!(few.len() as u64, total / OF_SOURCE.beyond / STREAM);
        let beside: Vec<_> =
            std::iter::from_fn(|| stream(&link, visitor("192.0.2.2").unwrap())).collect();
        assert_eq!(few.len() + beside.len(), 56, "another visitor of the client");
        let other = all.of_client("good").share(visitor("192.0.2.3").unwrap()).unwrap();
        assert!(other.has_room(), "a visitor of another client");
        few[0].change(STREAM, 0);
        link.release(STREAM);
        drop(few);
        assert!(stream(&link, at).is_some(), "the streams have ended");
    }

    #[test]
    fn a_source_leaves_a_part_of_the_budget_to_each_other_one() {
        let all = budget();
        let loud = all.of(visitor("2001:db8::1"));
        let of_loud = fill(&loud);
        assert!((44 * MIB..=45 * MIB).contains(&of_loud), "{of_loud}");
        let same = all.of(visitor("2001:db8::2"));
        assert!(!same.is_within(), "the same 64 bits");
        assert!(same.left() >= TOTAL / RESERVE, "what it has goes on");
        let other = all.of(visitor("192.0.2.1"));
        assert!(other.is_within());
        assert!(fill(&other) >= 8 * MIB);
        loud.release(of_loud);
        assert!(fill(&same) > 13 * MIB, "the memory comes back");
    }

    #[test]
    fn a_client_leaves_room_to_other_clients_and_one_source_leaves_room_to_others_of_its_client() {
        let all = budget();
        let link = all.of_client("home");
        let source = |text| visitor(text).unwrap();
        let mut open = Vec::new();
        while let Some(one) = stream(&link, source("192.0.2.1")) {
            open.push(one);
        }
        let held = u64::try_from(open.len()).unwrap() * STREAM;
        assert!((45 * MIB..=47 * MIB).contains(&held), "{held}");
        let quiet = link.share(source("192.0.2.2")).unwrap();
        assert!(quiet.has_room(), "another visitor of the client");
        // Visitors of many sources.
        for n in 0..250 {
            let at = SocketAddr::from(([198, 51, 100, n], 9));
            open.extend((0..20).filter_map(|_| stream(&link, at)));
        }
        let held = u64::try_from(open.len()).unwrap() * STREAM;
        assert!((53 * MIB..=56 * MIB).contains(&held), "{held}");
        let other = all.of_client("good").share(visitor("192.0.2.3").unwrap()).unwrap();
        assert!(other.has_room(), "a visitor of another client");
    }

    #[test]
    fn holders_of_little_have_what_moving_streams_leave() {
        let all = budget();
        all.charge(TOTAL - TOTAL / 16);
        let newcomer = all.of(visitor("192.0.2.1"));
        assert!(newcomer.is_within());
        let taken = fill(&newcomer);
        assert!((256 << 10..MIB).contains(&taken), "{taken}");
        assert!(all.of(visitor("192.0.2.2")).is_within(), "the next newcomer");
    }

    #[test]
    fn a_stream_counts_for_its_source_until_it_is_forgotten() {
        let all = budget();
        let share = all.of_client("home").share(visitor("192.0.2.1").unwrap()).unwrap();
        share.change(0, 240 * MIB);
        let source = all.of(visitor("192.0.2.1"));
        assert!(!source.is_within());
        share.change(240 * MIB, 0);
        assert!(source.is_within());
        drop((share, source));
        let live = |parts: &Parts| {
            let all = parts.sources.0.lock().unwrap();
            all.values().filter(|part| part.strong_count() > 0).count()
        };
        assert_eq!(live(&all.parts), 0);
    }
}
