//! The flows of one listener, or of the targets of one service, on one worker: which flow a datagram
//! belongs to, which flow goes when there are too many, and which ones are idle. Every operation
//! takes constant time. The time comes in as an argument.
//!
//! A peer can forge its address, but it cannot make the target answer to an address that is not its
//! own:
//!
//! ```text
//!   the source has its share ──> its flow goes that was never answered and is unused for longest;
//!                                if all were answered, the one unused for longest; if even that
//!                                one was just used, the new flow is refused
//!   the table is full        ──> the flow goes that was never answered and is unused for longest;
//!                                if all were answered, the new flow is refused
//! ```

mod list;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use net::udp::Route;
use proto::control::FlowTimes;
use tokio::time::Instant;

use super::settings::{FlowCaps, end_of};
use list::{Links, List};

/// What the flows of one machine have in common: its IPv4 address, or the /64 of its IPv6 address,
/// of which a machine has as many addresses as it likes (RFC 4291 section 2.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    V4([u8; 4]),
    V6(u64),
}

impl Source {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => Self::V6((v6.to_bits() >> 64) as u64),
        }
    }
}

/// The place of a flow in its table. It does not name another flow after the end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    index: u32,
    serial: u64,
}

/// Why a new flow finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsFull {
    /// All flows of the table were answered.
    Table,
    /// All flows of the source were answered, and are in use.
    Source,
}

/// An answered flow that was used within this time is not ended for another one of its source. A
/// source with more busy flows than its share would otherwise lose all of them in turn.
const IN_USE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Entry<V> {
    serial: u64,
    /// `None`: nobody looks for it, it is the flow of a target.
    route: Option<Route>,
    source: Option<Source>,
    is_answered: bool,
    used: Instant,
    value: V,
}

/// The flows of one source.
#[derive(Debug, Default)]
struct Share {
    flows: usize,
    lists: Lists,
}

#[derive(Debug, Default)]
struct Lists {
    unanswered: List,
    answered: List,
}

impl Lists {
    const fn of(&mut self, is_answered: bool) -> &mut List {
        if is_answered { &mut self.answered } else { &mut self.unanswered }
    }
}

/// Flows with a value each.
#[derive(Debug)]
pub(super) struct Table<V> {
    caps: FlowCaps,
    entries: Vec<Option<Entry<V>>>,
    free: Vec<u32>,
    by_route: HashMap<Route, u32>,
    shares: HashMap<Source, Share>,
    lists: Lists,
    links: Links,
    links_of_source: Links,
    serial: u64,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self::new(FlowCaps::default())
    }
}

impl<V> Table<V> {
    pub(super) fn new(caps: FlowCaps) -> Self {
        Self {
            caps,
            entries: Vec::new(),
            free: Vec::new(),
            by_route: HashMap::new(),
            shares: HashMap::new(),
            lists: Lists::default(),
            links: Links::default(),
            links_of_source: Links::default(),
            serial: 0,
        }
    }

    /// Changes how many flows there may be. Flows that exist stay.
    pub(super) const fn set_caps(&mut self, caps: FlowCaps) {
        self.caps = caps;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn find(&self, route: &Route) -> Option<Slot> {
        let index = *self.by_route.get(route)?;
        let serial = self.entries.get(index as usize)?.as_ref()?.serial;
        Some(Slot { index, serial })
    }

    pub(super) fn value(&mut self, slot: Slot) -> Option<&mut V> {
        self.entry(slot).map(|entry| &mut entry.value)
    }

    #[cfg(test)]
    pub(super) fn is_answered(&mut self, slot: Slot) -> bool {
        self.entry(slot).is_some_and(|entry| entry.is_answered)
    }

    /// Whether a new flow of `source` finds a place, perhaps because another one has to go.
    pub(super) fn admits(&self, source: Option<Source>, now: Instant) -> Result<(), IsFull> {
        self.leaving(source, now).map(drop)
    }

    /// The flow that has to go for a new one of `source`.
    fn leaving(&self, source: Option<Source>, now: Instant) -> Result<Option<u32>, IsFull> {
        let share = source.and_then(|source| self.shares.get(&source));
        if let Some(share) = share.filter(|share| share.flows >= self.caps.per_source.max(1)) {
            let lists = &share.lists;
            let unused = || lists.answered.first().filter(|&index| !self.is_in_use(index, now));
            return lists.unanswered.first().or_else(unused).map(Some).ok_or(IsFull::Source);
        }
        if self.len() >= self.caps.total.max(1) {
            return self.lists.unanswered.first().map(Some).ok_or(IsFull::Table);
        }
        Ok(None)
    }

    fn is_in_use(&self, index: u32, now: Instant) -> bool {
        let entry = self.entries.get(index as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| now < entry.used + IN_USE)
    }

    /// Adds a flow. Another flow may have to go for it.
    ///
    /// # Errors
    /// The value, if there is no place.
    pub(super) fn insert(
        &mut self,
        route: Option<Route>,
        source: Option<Source>,
        value: V,
        now: Instant,
    ) -> Result<(Slot, Option<V>), V> {
        let is_taken = route.is_some_and(|route| self.by_route.contains_key(&route));
        let leaving = self.leaving(source, now);
        let Some(leaving) = leaving.ok().filter(|_| !is_taken) else { return Err(value) };
        let left = leaving.and_then(|index| self.take(index));
        self.serial += 1;
        let serial = self.serial;
        let entry = Entry { serial, route, source, is_answered: false, used: now, value };
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
        if let Some(route) = route {
            self.by_route.insert(route, index);
        }
        self.lists.unanswered.push(&mut self.links, index);
        if let Some(source) = source {
            let share = self.shares.entry(source).or_default();
            share.flows += 1;
            share.lists.unanswered.push(&mut self.links_of_source, index);
        }
        Ok((Slot { index, serial }, left))
    }

    /// A datagram of the flow has come, from either side.
    pub(super) fn touch(&mut self, slot: Slot, now: Instant) {
        let Some(entry) = self.entry(slot) else { return };
        entry.used = now;
        let (source, is_answered) = (entry.source, entry.is_answered);
        self.lists.of(is_answered).renew(&mut self.links, slot.index);
        if let Some(share) = source.and_then(|source| self.shares.get_mut(&source)) {
            share.lists.of(is_answered).renew(&mut self.links_of_source, slot.index);
        }
    }

    /// A datagram of the flow's target has come. Returns true for the first one.
    pub(super) fn answer(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(entry) = self.entry(slot) else { return false };
        if entry.is_answered {
            self.touch(slot, now);
            return false;
        }
        entry.is_answered = true;
        entry.used = now;
        let source = entry.source;
        self.lists.unanswered.remove(&mut self.links, slot.index);
        self.lists.answered.push(&mut self.links, slot.index);
        if let Some(share) = source.and_then(|source| self.shares.get_mut(&source)) {
            share.lists.unanswered.remove(&mut self.links_of_source, slot.index);
            share.lists.answered.push(&mut self.links_of_source, slot.index);
        }
        true
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<V> {
        self.entry(slot)?;
        self.take(slot.index)
    }

    /// Removes the flow that was never answered and is unused for longest, unless that is `spared`.
    pub(super) fn evict_unanswered(&mut self, spared: Slot) -> Option<V> {
        let index = self.lists.unanswered.first().filter(|&index| index != spared.index)?;
        self.take(index)
    }

    /// When the next flow is idle.
    pub(super) fn next_idle(&self, times: FlowTimes) -> Option<Instant> {
        let of = |list: List, is_answered| {
            let entry = self.entries.get(list.first()? as usize)?.as_ref()?;
            Some(end_of(entry.used, times, is_answered))
        };
        let (unanswered, answered) =
            (of(self.lists.unanswered, false), of(self.lists.answered, true));
        unanswered.into_iter().chain(answered).min()
    }

    /// Removes a flow that is idle at `now`.
    pub(super) fn take_idle(&mut self, now: Instant, times: FlowTimes) -> Option<V> {
        let index = [false, true].into_iter().find_map(|is_answered| {
            let index = self.lists.of(is_answered).first()?;
            let used = self.entries.get(index as usize)?.as_ref()?.used;
            (end_of(used, times, is_answered) <= now).then_some(index)
        })?;
        self.take(index)
    }

    /// Removes all flows.
    pub(super) fn drain(&mut self) -> Vec<V> {
        let all = std::mem::replace(self, Self { serial: self.serial, ..Self::new(self.caps) });
        all.entries.into_iter().flatten().map(|entry| entry.value).collect()
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry<V>> {
        let entry = self.entries.get_mut(slot.index as usize)?.as_mut();
        entry.filter(|entry| entry.serial == slot.serial)
    }

    fn take(&mut self, index: u32) -> Option<V> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        if let Some(route) = entry.route {
            self.by_route.remove(&route);
        }
        self.lists.of(entry.is_answered).remove(&mut self.links, index);
        if let Some(source) = entry.source
            && let Some(share) = self.shares.get_mut(&source)
        {
            share.lists.of(entry.is_answered).remove(&mut self.links_of_source, index);
            share.flows -= 1;
            if share.flows == 0 {
                self.shares.remove(&source);
            }
        }
        if self.len() == 0 {
            // The memory of a flood goes back.
            *self = Self { serial: self.serial, ..Self::new(self.caps) };
        }
        Some(entry.value)
    }
}
