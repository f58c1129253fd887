//! The flows of one listener, of one SOCKS5 association, or of the targets of one service, on one
//! worker: the flow of a datagram, the flow to evict when there are too many, and the idle flows.
//! Every operation takes constant time. The time is an argument.
//!
//! The value of a flow grows with its state:
//!
//! ```text
//!   Pending ──the target answers──> Answered ──the peer sends again──> Lasting
//! ```
//!
//! The peer of a pending flow waits, as for the answer to a DNS query. An answered flow is probably
//! over when it is quiet. A lasting flow is a conversation, which a peer with a spoofed address
//! cannot have. The flow evicted for a new flow is the first in this order, and among equals the
//! least recently used:
//!
//! ```text
//!   the source has its share    pending for 5 s; answered and quiet for 1 s; lasting and quiet for
//!                               5 s; answered and quiet for 10 ms; pending; lasting and quiet for
//!                               1 s; otherwise the new flow is refused
//!   there is no room for any    pending for 5 s; answered and quiet for 1 s, lasting and quiet for
//!                               30 s (neither while half of the flows are pending: a flood of
//!                               spoofed sources evicts no other flows); pending; otherwise
//!                               the new flow is refused
//! ```
//!
//! Pending flows that are younger than 5 s are evicted at a bounded rate (`pace`): a flood with
//! spoofed sources would otherwise make the process begin and end flows as fast as datagrams
//! arrive, and no flow would last until its answer.

mod list;
mod pace;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use net::source::{Share as OfSource, Source};
use net::udp::Route;
use proto::control::FlowTimes;
use tokio::time::Instant;

use super::bounds::{FlowBounds, Held};
use super::settings::end_of;
use crate::eviction::Candidate;
use list::{Links, List};
use pace::{LATE, Pace};

/// The handle of a flow in its table. After the end of the flow it refers to no other flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    index: u32,
    serial: u64,
}

/// Why a new flow is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsFull {
    /// The limit of flows is reached, and no flow of the table may be evicted.
    Table,
    /// The limit of flows of the source is reached, and all of its flows are in use.
    Source,
}

/// The rank of flows whose peers may still wait for an answer.
const WAITED_FOR: u8 = 3;

/// An answered flow counts as over when it is quiet for this time: a peer that continues sends
/// after a round trip.
const OVER: Duration = Duration::from_secs(1);

/// As [`OVER`], for a source with more outstanding queries than its share permits: the datagrams of
/// one answer follow each other more quickly.
const JUST_OVER: Duration = Duration::from_millis(10);

/// A lasting flow that is quiet for this time may be evicted for another flow of its source: games
/// and calls send many datagrams each second.
const PAUSED: Duration = Duration::from_secs(5);

/// A lasting flow that was used within this time is not evicted. A source with more busy flows than
/// its share would otherwise lose all of them in turn.
const IN_USE: Duration = Duration::from_secs(1);

/// A lasting flow that is quiet for this time may be evicted for a flow of another source.
/// Keepalives are sent more often (WireGuard: 25 s).
const LEFT: Duration = Duration::from_secs(30);

/// The states of a flow, from the least to the most valuable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The target has not answered.
    Pending,
    /// The target has answered, and the peer has not sent since.
    Answered,
    /// The peer has sent after an answer.
    Lasting,
}

impl State {
    const ALL: [Self; 3] = [Self::Pending, Self::Answered, Self::Lasting];

    const fn is_answered(self) -> bool {
        !matches!(self, Self::Pending)
    }
}

#[derive(Debug)]
struct Entry<V, K> {
    serial: u64,
    /// `None`: the flow is that of a target, and no other flow takes its socket over.
    key: Option<K>,
    source: Option<Source>,
    state: State,
    used: Instant,
    value: V,
    /// Its slots in the bounds, which are shared with other tables.
    held: (Held, OfSource),
}

/// The slots in the bounds of a flow that goes to another table, also of another worker.
#[derive(Debug)]
pub(super) struct BoundSlots {
    source: Option<Source>,
    held: (Held, OfSource),
}

/// The flows of one source.
#[derive(Debug, Default)]
struct Share {
    flows: usize,
    lists: Lists,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Lists([List; State::ALL.len()]);

impl Lists {
    const fn of(&mut self, state: State) -> &mut List {
        &mut self.0[state as usize]
    }

    const fn first(&self, state: State) -> Option<u32> {
        self.0[state as usize].first()
    }
}

/// Flows, each with a value, indexed by key.
#[derive(Debug)]
pub(super) struct Table<V, K = Route> {
    bounds: Arc<FlowBounds>,
    entries: Vec<Option<Entry<V, K>>>,
    free: Vec<u32>,
    by_key: HashMap<K, u32>,
    shares: HashMap<Source, Share>,
    lists: Lists,
    pending: usize,
    pace: Pace,
    links: Links,
    links_of_source: Links,
    serial: u64,
}

impl<V, K: Clone + Eq + Hash> Default for Table<V, K> {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl<V, K: Clone + Eq + Hash> Table<V, K> {
    pub(super) fn new(bounds: Arc<FlowBounds>) -> Self {
        Self {
            bounds,
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            shares: HashMap::new(),
            lists: Lists::default(),
            pending: 0,
            pace: Pace::default(),
            links: Links::default(),
            links_of_source: Links::default(),
            serial: 0,
        }
    }

    /// Changes the limits of the number of flows. Existing flows stay.
    pub(super) fn set_bounds(&mut self, bounds: &Arc<FlowBounds>) {
        if !Arc::ptr_eq(&self.bounds, bounds) {
            self.bounds = Arc::clone(bounds);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn find<Q>(&self, key: &Q) -> Option<Slot>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let index = *self.by_key.get(key)?;
        let serial = self.entries.get(index as usize)?.as_ref()?.serial;
        Some(Slot { index, serial })
    }

    pub(super) fn value(&mut self, slot: Slot) -> Option<&mut V> {
        self.entry(slot).map(|entry| &mut entry.value)
    }

    #[cfg(test)]
    pub(super) fn is_answered(&mut self, slot: Slot) -> bool {
        self.entry(slot).is_some_and(|entry| entry.state.is_answered())
    }

    /// All flows.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().flatten().map(|entry| &entry.value)
    }

    /// Whether a new flow of `source` is admitted, if necessary by an eviction.
    pub(super) fn admits(&self, source: Option<&Source>, now: Instant) -> Result<(), IsFull> {
        let source = source.cloned().map(Source::prefix);
        let source = source.as_ref();
        if self.bounds.has_share(source) {
            let has_room = self.bounds.has_room() || self.leaving(now).is_some();
            return has_room.then_some(()).ok_or(IsFull::Table);
        }
        self.leaving_of(source, now).map(drop).ok_or(IsFull::Source)
    }

    /// The flow that is evicted for a new flow when there is no room.
    fn leaving(&self, now: Instant) -> Option<Candidate> {
        let candidate = self.candidate(None, now)?;
        let may_go = candidate.rank != WAITED_FOR || self.pace.permits(self.pending, now);
        may_go.then_some(candidate)
    }

    /// The flow of a source that is evicted for a new flow of the same source.
    fn leaving_of(&self, source: Option<&Source>, now: Instant) -> Option<u32> {
        let Share { flows, lists, pace } = self.shares.get(source?)?;
        let quiet = |state, time| self.quiet(lists, state, now, time);
        quiet(State::Pending, LATE)
            .or_else(|| quiet(State::Answered, OVER))
            .or_else(|| quiet(State::Lasting, PAUSED))
            .or_else(|| quiet(State::Answered, JUST_OVER))
            .or_else(|| match quiet(State::Pending, Duration::ZERO) {
                // A conversation is not evicted instead of a query that may not be evicted yet.
                Some(young) => pace.permits(*flows, now).then_some(young),
                None => quiet(State::Lasting, IN_USE),
            })
            .map(|(_, index)| index)
    }

    /// The flow that is evicted first when there is no room for a flow of any source, except
    /// `spared`.
    pub(super) fn candidate(&self, spared: Option<Slot>, now: Instant) -> Option<Candidate> {
        let is_flood = self.pending * 2 >= self.len();
        let quiet = |rank, state, time| {
            let (used, index) = self.quiet(&self.lists, state, now, time)?;
            let spared = spared.is_some_and(|spared| spared.index == index);
            (!spared).then_some(Candidate { rank, used, index })
        };
        let over = || quiet(1, State::Answered, OVER).or_else(|| quiet(2, State::Lasting, LEFT));
        quiet(0, State::Pending, LATE)
            .or_else(|| if is_flood { None } else { over() })
            .or_else(|| quiet(WAITED_FOR, State::Pending, Duration::ZERO))
    }

    /// The least recently used flow in this state, if it was unused for at least `time`.
    fn quiet(
        &self,
        lists: &Lists,
        state: State,
        now: Instant,
        time: Duration,
    ) -> Option<(Instant, u32)> {
        let index = lists.first(state)?;
        let used = self.entries.get(index as usize)?.as_ref()?.used;
        (used + time <= now).then_some((used, index))
    }

    /// Adds a flow. The flows that are evicted for it are added to `gone`, whatever the outcome.
    ///
    /// # Errors
    /// The value, if there is no room or the key exists.
    pub(super) fn insert(
        &mut self,
        key: Option<K>,
        source: Option<Source>,
        value: V,
        now: Instant,
        gone: &mut Vec<V>,
    ) -> Result<Slot, V> {
        if key.as_ref().is_some_and(|key| self.by_key.contains_key(key)) {
            return Err(value);
        }
        let source = source.map(Source::prefix);
        // Another worker may take the slot that an eviction frees.
        let of_source = loop {
            if let Some(share) = self.bounds.share(source.as_ref()) {
                break share;
            }
            let Some(index) = self.leaving_of(source.as_ref(), now) else { return Err(value) };
            if self.is_waited_for(index, now)
                && let Some(share) = source.as_ref().and_then(|source| self.shares.get_mut(source))
            {
                share.pace.spend(share.flows, now);
            }
            gone.extend(self.take(index));
        };
        let held = loop {
            if let Some(held) = self.bounds.hold() {
                break held;
            }
            let Some(candidate) = self.leaving(now) else { return Err(value) };
            if candidate.rank == WAITED_FOR {
                self.pace.spend(self.pending, now);
            }
            gone.extend(self.take(candidate.index));
        };
        Ok(self.put(key, source, value, now, (held, of_source)))
    }

    /// Adds a flow that comes from another table with its slots in the bounds, so that it counts
    /// once. Evicts nothing.
    ///
    /// # Errors
    /// The value, if the key exists.
    pub(super) fn insert_moved(
        &mut self,
        key: K,
        slots: BoundSlots,
        value: V,
        now: Instant,
    ) -> Result<Slot, V> {
        if self.by_key.contains_key(&key) {
            return Err(value);
        }
        let BoundSlots { source, held } = slots;
        Ok(self.put(Some(key), source, value, now, held))
    }

    /// Whether the peer may still wait for the answer to a flow.
    fn is_waited_for(&self, index: u32, now: Instant) -> bool {
        let entry = self.entries.get(index as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.state == State::Pending && now < entry.used + LATE)
    }

    fn put(
        &mut self,
        key: Option<K>,
        source: Option<Source>,
        value: V,
        now: Instant,
        held: (Held, OfSource),
    ) -> Slot {
        self.serial += 1;
        let (serial, state) = (self.serial, State::Pending);
        let of = source.clone();
        let entry = Entry { serial, key: key.clone(), source: of, state, used: now, value, held };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        if let Some(key) = key {
            self.by_key.insert(key, index);
        }
        self.pending += 1;
        self.lists.of(state).push(&mut self.links, index);
        if let Some(source) = source {
            let share = self.shares.entry(source).or_default();
            share.flows += 1;
            share.lists.of(state).push(&mut self.links_of_source, index);
        }
        Slot { index, serial }
    }

    /// Records a datagram from the peer of the flow.
    pub(super) fn touch(&mut self, slot: Slot, now: Instant) {
        let Some(state) = self.entry(slot).map(|entry| entry.state) else { return };
        let next = if state.is_answered() { State::Lasting } else { State::Pending };
        self.used(slot, next, now);
    }

    /// Records a datagram from the target of the flow. Returns true for the first one.
    pub(super) fn answer(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(state) = self.entry(slot).map(|entry| entry.state) else { return false };
        self.used(slot, state.max(State::Answered), now);
        !state.is_answered()
    }

    /// Moves a flow to the end of the lists of its state.
    fn used(&mut self, slot: Slot, next: State, now: Instant) {
        let entry = self.entries.get_mut(slot.index as usize).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.serial == slot.serial) else { return };
        entry.used = now;
        let before = std::mem::replace(&mut entry.state, next);
        let of_source = entry.source.as_ref().and_then(|source| self.shares.get_mut(source));
        let of_source = of_source.map(|share| (&mut share.lists, &mut self.links_of_source));
        for (lists, links) in [(&mut self.lists, &mut self.links)].into_iter().chain(of_source) {
            if before == next {
                lists.of(next).renew(links, slot.index);
            } else {
                lists.of(before).remove(links, slot.index);
                lists.of(next).push(links, slot.index);
            }
        }
        if before == State::Pending && next != State::Pending {
            self.pending -= 1;
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<V> {
        self.entry(slot)?;
        self.take(slot.index)
    }

    /// Removes a flow that goes to another table, and keeps its slots in the bounds.
    pub(super) fn release(&mut self, slot: Slot) -> Option<(V, BoundSlots)> {
        self.entry(slot)?;
        let Entry { source, held, value, .. } = self.take_entry(slot.index)?;
        Some((value, BoundSlots { source, held }))
    }

    /// Removes a flow that [`Self::candidate`] returned.
    pub(super) fn evict(&mut self, candidate: Candidate) -> Option<V> {
        self.take(candidate.index)
    }

    /// The time at which the next flow becomes idle.
    pub(super) fn next_idle(&self, times: FlowTimes) -> Option<Instant> {
        let of = |state: State| {
            let entry = self.entries.get(self.lists.first(state)? as usize)?.as_ref()?;
            Some(end_of(entry.used, times, state.is_answered()))
        };
        State::ALL.into_iter().filter_map(of).min()
    }

    /// Removes a flow that is idle at `now`.
    pub(super) fn take_idle(&mut self, now: Instant, times: FlowTimes) -> Option<V> {
        let index = State::ALL.into_iter().find_map(|state| {
            let index = self.lists.first(state)?;
            let used = self.entries.get(index as usize)?.as_ref()?.used;
            (end_of(used, times, state.is_answered()) <= now).then_some(index)
        })?;
        self.take(index)
    }

    /// Removes all flows.
    pub(super) fn drain(&mut self) -> Vec<V> {
        let all = std::mem::replace(self, self.emptied());
        all.entries.into_iter().flatten().map(|entry| entry.value).collect()
    }

    fn emptied(&self) -> Self {
        Self { serial: self.serial, ..Self::new(Arc::clone(&self.bounds)) }
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry<V, K>> {
        let entry = self.entries.get_mut(slot.index as usize)?.as_mut();
        entry.filter(|entry| entry.serial == slot.serial)
    }

    fn take(&mut self, index: u32) -> Option<V> {
        self.take_entry(index).map(|entry| entry.value)
    }

    fn take_entry(&mut self, index: u32) -> Option<Entry<V, K>> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        if let Some(key) = &entry.key {
            self.by_key.remove(key);
        }
        self.lists.of(entry.state).remove(&mut self.links, index);
        self.pending -= usize::from(entry.state == State::Pending);
        if let Some(source) = &entry.source
            && let Some(share) = self.shares.get_mut(source)
        {
            share.lists.of(entry.state).remove(&mut self.links_of_source, index);
            share.flows -= 1;
            if share.flows == 0 {
                self.shares.remove(source);
            }
        }
        if self.len() == 0 {
            // Free the memory that a flood of flows took.
            *self = self.emptied();
        }
        Some(entry)
    }
}
