//! The decoder keeps the shards of the newest groups, and rebuilds missing data as soon as a group
//! has as many shards as data shards. It agrees with the decoder of kcp-go bit for bit.

use super::Ratio;
use super::code::interpolate;
use super::group::Shards;
use super::numbering::{Group, Numbering};
use super::tune::Tuner;
use crate::wire::{Content, ShardId, sized};

/// A received shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard<'a> {
    /// The number of the shard.
    pub id: ShardId,
    /// Whether the shard is marked as data.
    pub is_data: bool,
    /// Of a data shard the size and the segments, of a parity shard all bytes after the kind.
    pub body: &'a [u8],
}

impl<'a> Shard<'a> {
    /// The shard in a datagram. `None` if the datagram has another content.
    #[must_use]
    pub const fn of(content: &Content<'a>) -> Option<Self> {
        match *content {
            Content::Data { id, body, .. } => Some(Self { id, is_data: true, body }),
            Content::Parity { id, body } => Some(Self { id, is_data: false, body }),
            Content::Segments(_) | Content::OutOfBand { .. } => None,
        }
    }
}

/// The counters of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Groups whose data shards all arrived.
    pub whole: u64,
    /// Groups whose missing data was rebuilt.
    pub rebuilt_groups: u64,
    /// Data shards that were rebuilt.
    pub rebuilt: u64,
    /// Groups that were dropped before they had enough shards. A decoded group counts again if
    /// further shards of it arrived.
    pub expired: u64,
    /// Shards that were not used: the id is above the last group, the shard had arrived before, or
    /// the body is too long.
    pub refused: u64,
    /// Shards that arrived while the ratio of the sender was unknown.
    pub untuned: u64,
    /// The number of changes of the ratio.
    pub tuned: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self { whole, rebuilt_groups, rebuilt, expired, refused, untuned, tuned } = other;
        self.whole += whole;
        self.rebuilt_groups += rebuilt_groups;
        self.rebuilt += rebuilt;
        self.expired += expired;
        self.refused += refused;
        self.untuned += untuned;
        self.tuned += tuned;
    }
}

/// Rebuilds the shards of one direction of a session.
///
/// The driver feeds the segments of data shards to the session itself, and passes data and parity
/// to [`handle_shard`](Self::handle_shard). Rebuilt segments are passed to the session as well,
/// marked as recovered. Only the check sums of the original shards cover them.
///
/// The decoder keeps at most five groups, each with fewer than `data` received shards. A group is
/// not kept longer because the peer announces more shards.
#[derive(Debug)]
pub struct Decoder {
    ratio: Ratio,
    ids: Numbering,
    longest: usize,
    tuner: Tuner,
    /// The ratio contradicts a received shard.
    is_untuned: bool,
    /// Samples before a contradiction are void.
    is_cautious: bool,
    newest: Option<Group>,
    groups: Vec<(Group, Shards)>,
    /// Free buffers of former groups.
    spare: Vec<Shards>,
    work: Work,
    counters: Counters,
}

/// Buffers of a decode, which keep their capacity.
#[derive(Debug, Default)]
struct Work {
    known: Vec<u8>,
    missing: Vec<u8>,
    columns: Vec<u8>,
    bodies: Vec<u8>,
}

impl Decoder {
    /// A decoder that starts with `ratio`, and drops bodies of more than `longest` bytes. kcp-go
    /// starts with 1/1 if no ratio is set.
    #[must_use]
    pub fn new(ratio: Ratio, longest: usize) -> Self {
        Self {
            ratio,
            ids: Numbering::new(ratio),
            longest,
            tuner: Tuner::default(),
            is_untuned: false,
            is_cautious: false,
            newest: None,
            groups: Vec::new(),
            spare: Vec::new(),
            work: Work::default(),
            counters: Counters::default(),
        }
    }

    /// A decoder that rebuilds nothing while its ratio may be wrong: before it has detected the
    /// ratio if none is given, and once a shard contradicts the ratio.
    ///
    /// The rows of the matrix add up to 1. So a shard that is rebuilt with a wrong ratio keeps the
    /// fields that all segments share (conversation, command and length), passes for a segment, and
    /// corrupts the stream. kcp-go has this risk. It begins with 1/1, and after a contradiction it
    /// may detect the former ratio in its samples and use it again.
    #[must_use]
    pub fn cautious(ratio: Option<Ratio>, longest: usize) -> Self {
        let is_untuned = ratio.is_none();
        let ratio = ratio.unwrap_or(Ratio { data: 1, parity: 1 });
        Self { is_untuned, is_cautious: true, ..Self::new(ratio, longest) }
    }

    /// The assumed ratio of the sender.
    #[must_use]
    pub const fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// The number of groups that are kept.
    #[must_use]
    pub fn open_groups(&self) -> usize {
        self.groups.len()
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Releases the memory that no shard uses. An idle session calls it.
    pub fn rest(&mut self) {
        self.spare = Vec::new();
        self.work = Work::default();
        for (_, shards) in self.groups.iter_mut().filter(|(_, shards)| shards.len() == 0) {
            *shards = Shards::default();
        }
    }

    /// Takes a shard, and returns the data that can be rebuilt now.
    pub fn handle_shard(&mut self, shard: Shard<'_>) -> Rebuilt<'_> {
        let Shard { id, is_data, body } = shard;
        self.tuner.sample(id, is_data);
        if !self.ids.contains(id) || body.len() > self.longest {
            self.counters.refused += 1;
            return Rebuilt::NOTHING;
        }
        if is_data != self.ids.is_data(id) && !self.is_untuned {
            self.is_untuned = true;
            if self.is_cautious {
                self.tuner.restart();
                self.tuner.sample(id, is_data);
                self.forget();
            }
        }
        if self.is_untuned {
            self.counters.untuned += 1;
            self.tune();
            return Rebuilt::NOTHING;
        }
        let Ok(position) = u8::try_from(self.ids.position(id)) else { return Rebuilt::NOTHING };
        let group = self.ids.group(id);
        let length = self.insert(group, position, body);
        self.expire(group);
        match length {
            Some(length) => Rebuilt { bodies: &self.work.bodies, length },
            None => Rebuilt::NOTHING,
        }
    }

    /// The length of the bodies that the shard completed. `None` if no body was rebuilt.
    fn insert(&mut self, group: Group, position: u8, body: &[u8]) -> Option<usize> {
        let at = self.groups.iter().position(|(open, _)| *open == group);
        let at = at.unwrap_or_else(|| {
            self.groups.push((group, self.spare.pop().unwrap_or_default()));
            self.groups.len() - 1
        });
        let (_, shards) = self.groups.get_mut(at)?;
        if !shards.insert(position, body) {
            self.counters.refused += 1;
        }
        if shards.len() < self.ratio.data() {
            return None;
        }
        let length = self.work.rebuild(shards, self.ratio.data());
        shards.clear();
        match length {
            Some(_) => {
                self.counters.rebuilt_groups += 1;
                self.counters.rebuilt += u64::try_from(self.work.missing.len()).unwrap_or(0);
            }
            None => self.counters.whole += 1,
        }
        length
    }

    /// Drops groups that are too old relative to the newest group.
    fn expire(&mut self, group: Group) {
        let newest = self.newest.filter(|newest| !group.is_after(*newest)).unwrap_or(group);
        self.newest = Some(newest);
        while let Some(at) =
            self.groups.iter().position(|(group, _)| !self.ids.is_open(*group, newest))
        {
            let (_, mut shards) = self.groups.swap_remove(at);
            self.counters.expired += u64::from(shards.len() > 0);
            shards.clear();
            self.spare.push(shards);
        }
    }

    /// Adopts the ratio that the samples show, if they show a ratio.
    fn tune(&mut self) {
        let Some(ratio) = self.tuner.ratio() else { return };
        self.is_untuned = false;
        if ratio != self.ratio {
            self.counters.tuned += 1;
            self.ratio = ratio;
            self.ids = Numbering::new(ratio);
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.groups.clear();
        self.spare.clear();
        self.newest = None;
    }
}

impl Work {
    /// Rebuilds the missing data of a group with enough shards, in the order of positions. `None`
    /// if no data is missing.
    fn rebuild(&mut self, shards: &Shards, data: usize) -> Option<usize> {
        self.missing.clear();
        self.missing.extend((0..=u8::MAX).take(data).filter(|position| !shards.has(*position)));
        if self.missing.is_empty() {
            return None;
        }
        self.known.clear();
        self.known.extend(shards.positions());
        interpolate(&self.known, &self.missing, &mut self.columns);
        let length = shards.longest();
        self.bodies.clear();
        self.bodies.resize(self.missing.len() * length, 0);
        for (column, body) in self.columns.chunks_exact(self.missing.len()).zip(shards.bodies()) {
            gf256::multiply_add(column, body, &mut self.bodies, length);
        }
        Some(length)
    }
}

/// Data shards that were rebuilt, in the order of their ids.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilt<'a> {
    bodies: &'a [u8],
    length: usize,
}

impl<'a> Rebuilt<'a> {
    const NOTHING: Self = Self { bodies: &[], length: 0 };

    /// The bodies: size, segments, and zeros up to the longest shard of the group.
    pub fn bodies(self) -> impl Iterator<Item = &'a [u8]> {
        self.bodies.chunks_exact(self.length.max(1))
    }

    /// The segments of each shard. A shard with an impossible size is left out.
    pub fn segments(self) -> impl Iterator<Item = &'a [u8]> {
        self.bodies().filter_map(sized)
    }
}
