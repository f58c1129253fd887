//! The encoder numbers the data shards, and computes the parity while they are sent.
//!
//! kcp-go keeps a copy of each shard of a group and multiplies all of them at the end. This encoder
//! adds each shard to the parity when the shard is sent, while it is in the cache, and keeps no
//! shard.

use std::time::{Duration, Instant};

use super::Ratio;
use super::code::Code;
use super::numbering::Numbering;
use crate::wire::{SHARD_HEAD, ShardId, data_head, parity_head};

/// If the pause before the last shard of a group is this long, kcp-go sends no parity for the
/// group.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A shard that only fills a group. Its segments are four zero bytes, which no receiver accepts as
/// a segment. Shorter datagrams would be dropped before they count.
pub const FILLER: usize = SHARD_HEAD + FILLER_SEGMENTS.len();

const FILLER_SEGMENTS: [u8; 4] = [0; 4];

/// The bytes of the size in front of the segments. The code covers the size as well.
const SIZE: usize = 2;

/// The head of a parity shard.
const PARITY_HEAD: usize = SHARD_HEAD - SIZE;

/// The bytes of a cache line. A vector that straddles two of them costs twice as much.
const LINE: usize = 64;

/// The settings of an [`Encoder`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The shards of a group. A stock peer stops decoding for a while when the ratio changes.
    pub ratio: Ratio,
    /// The longest segments of a shard, in bytes.
    pub longest: usize,
    /// A group gets no parity when the pause in front of its last data shard is this long, as
    /// [`LONGEST_PAUSE`] is. `None` makes parity for all groups. Groups that are closed early
    /// always get parity.
    pub pause: Option<Duration>,
}

/// The segments are longer than [`Settings::longest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a shard is longer than the encoder has room for")]
pub struct TooLong;

/// Makes the shards of one direction of a session.
///
/// The driver passes the segments of each datagram to [`push`](Self::push), before they are sealed,
/// and puts the head that it returns in front of them. Then it asks for parity until there is none
/// ([`poll_parity`](Self::poll_parity)). The next shard drops the remaining parity.
#[derive(Debug)]
pub struct Encoder {
    settings: Settings,
    code: Code,
    ids: Numbering,
    /// The next id.
    next: ShardId,
    /// The parity shards, each of `stride` bytes, from the offset `at` on. Empty before the first
    /// group, and after a rest.
    parity: Vec<u8>,
    at: usize,
    stride: usize,
    /// The used bytes of each parity shard of this group: the length of the longest body.
    length: usize,
    /// The number of sent parity shards from the next group on, and of this group.
    wanted: usize,
    made: usize,
    /// The number of polled parity shards of this group. `None` while the group is open.
    polled: Option<usize>,
    /// When the last shard was pushed, and when the first shard of an open group was pushed.
    last: Option<Instant>,
    opened: Option<Instant>,
    closes_early: bool,
}

impl Encoder {
    /// An encoder whose first shard has id 0.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::starting_at(settings, ShardId(0))
    }

    /// An encoder whose first shard has the id `first`, or 0 if no group begins at this id.
    #[must_use]
    pub fn starting_at(settings: Settings, first: ShardId) -> Self {
        let Settings { ratio, longest, .. } = settings;
        let ids = Numbering::new(ratio);
        let begins = ids.contains(first) && ids.position(first) == 0;
        let stride = (SIZE + longest).next_multiple_of(LINE);
        Self {
            settings,
            code: Code::new(ratio),
            ids,
            next: if begins { first } else { ShardId(0) },
            parity: Vec::new(),
            at: 0,
            stride,
            length: 0,
            wanted: ratio.parity(),
            made: ratio.parity(),
            polled: None,
            last: None,
            opened: None,
            closes_early: false,
        }
    }

    /// The next shard's number.
    #[must_use]
    pub const fn next(&self) -> ShardId {
        self.next
    }

    /// The shards of a group.
    #[must_use]
    pub const fn ratio(&self) -> Ratio {
        self.settings.ratio
    }

    /// Sends only the first `count` parity shards of each group, from the next group on. The ids of
    /// the others stay unused, which the receiver cannot distinguish from loss.
    pub fn set_parity(&mut self, count: usize) {
        self.wanted = count.min(self.settings.ratio.parity());
    }

    /// When the first shard of the open group was pushed; `None` while no group is open.
    #[must_use]
    pub const fn opened(&self) -> Option<Instant> {
        self.opened
    }

    /// The number of shards that the open group lacks. 0 while no group is open.
    #[must_use]
    pub fn missing(&self) -> usize {
        let position = usize::try_from(self.ids.position(self.next)).unwrap_or(0);
        if self.opened.is_some() { self.settings.ratio.data().saturating_sub(position) } else { 0 }
    }

    /// The bytes of all fillers and parity shards that close the open group. Each datagram has
    /// `overhead` bytes around its shard. `None` while no group is open, and if the group gets no
    /// parity.
    #[must_use]
    pub fn cost_of_closing(&self, overhead: usize) -> Option<usize> {
        let parity = self.made * (PARITY_HEAD + self.length + overhead);
        let fillers = self.missing() * (FILLER + overhead);
        (self.opened.is_some() && self.made > 0).then_some(fillers + parity)
    }

    /// Takes the segments of a datagram, and returns the head to put in front of them.
    ///
    /// # Errors
    ///
    /// The segments are longer than [`Settings::longest`]. Nothing was taken.
    pub fn push(&mut self, segments: &[u8], now: Instant) -> Result<[u8; SHARD_HEAD], TooLong> {
        if segments.len() > self.settings.longest {
            return Err(TooLong);
        }
        self.pass_parity();
        let head = data_head(self.next, segments.len()).ok_or(TooLong)?;
        let position = usize::try_from(self.ids.position(self.next)).unwrap_or(0);
        if self.opened.is_none() {
            self.begin(now);
        }
        self.add(position, &head, segments);
        self.next = self.ids.after(self.next, 1);
        if position + 1 == self.settings.ratio.data() {
            self.finish(now);
        }
        self.last = Some(now);
        Ok(head)
    }

    /// Begins to fill the open group. The driver asks for the fillers, then for the parity. Without
    /// an open group the call has no effect.
    pub const fn close_early(&mut self) {
        self.closes_early = self.opened.is_some();
    }

    /// Whether the open group is being filled.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.closes_early
    }

    /// Whether [`poll_parity`](Self::poll_parity) has a shard.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        self.polled.is_some_and(|polled| polled < self.made)
    }

    /// The next filler, without an envelope.
    pub fn poll_filler(&mut self, now: Instant) -> Option<[u8; FILLER]> {
        if !self.closes_early {
            return None;
        }
        let head = self.push(&FILLER_SEGMENTS, now).ok()?;
        let mut filler = [0; FILLER];
        filler[..SHARD_HEAD].copy_from_slice(&head);
        Some(filler)
    }

    /// Writes the next parity shard of the latest finished group to `buffer`, and returns its
    /// length, which is the length of the longest data shard. `None` when there is none, or when
    /// `buffer` is shorter.
    pub fn poll_parity(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let nth = self.polled.filter(|nth| *nth < self.made)?;
        let parity = self.parity.get(self.at + nth * self.stride..)?.get(..self.length)?;
        let shard = buffer.get_mut(..PARITY_HEAD + self.length)?;
        let (head, body) = shard.split_at_mut(PARITY_HEAD);
        head.copy_from_slice(&parity_head(self.next));
        body.copy_from_slice(parity);
        self.next = self.ids.after(self.next, 1);
        self.polled = Some(nth + 1);
        Some(PARITY_HEAD + self.length)
    }

    /// The length of the next parity shard. `None` if there is none to send.
    #[must_use]
    pub fn parity_length(&self) -> Option<usize> {
        self.polled.filter(|nth| *nth < self.made).map(|_| PARITY_HEAD + self.length)
    }

    /// Drops the parity that was not polled. Returns the number of dropped shards.
    pub fn drop_parity(&mut self) -> usize {
        let left = self.polled.map_or(0, |polled| self.made.saturating_sub(polled));
        self.pass_parity();
        left
    }

    /// Ends the open group without parity. The ids of its other shards stay unused.
    pub fn abandon(&mut self) {
        if self.opened.take().is_some() {
            self.closes_early = false;
            let shards = u32::try_from(self.settings.ratio.shards()).unwrap_or(u32::MAX);
            self.next = self.ids.after(self.next, shards - self.ids.position(self.next));
        }
    }

    /// Releases the memory unless a group is open. An idle session calls it.
    pub fn rest(&mut self) {
        if self.opened.is_none() {
            self.pass_parity();
            self.parity = Vec::new();
            self.length = 0;
        }
    }

    /// Continues at the id after the parity that was not polled.
    fn pass_parity(&mut self) {
        if let Some(polled) = self.polled.take() {
            let rest = self.settings.ratio.parity() - polled;
            self.next = self.ids.after(self.next, u32::try_from(rest).unwrap_or(0));
        }
    }

    fn begin(&mut self, now: Instant) {
        if self.parity.is_empty() {
            self.allocate();
        }
        for parity in self.parity[self.at..].chunks_exact_mut(self.stride) {
            parity[..self.length].fill(0);
        }
        self.length = 0;
        self.made = self.wanted;
        self.opened = Some(now);
    }

    /// Aligns the buffer so that the segments begin at a cache line.
    fn allocate(&mut self) {
        let length = self.settings.ratio.parity() * self.stride;
        self.parity = vec![0; length + 2 * LINE];
        let to_line = self.parity.as_ptr().align_offset(LINE);
        // An unknown alignment, which is allowed, costs speed only.
        self.at = if to_line < LINE { to_line + LINE - SIZE } else { 0 };
    }

    fn add(&mut self, position: usize, head: &[u8; SHARD_HEAD], segments: &[u8]) {
        let column = &self.code.column(position)[..self.made];
        self.length = self.length.max(SIZE + segments.len());
        let parity = &mut self.parity[self.at..];
        for (parity, &by) in parity.chunks_exact_mut(self.stride).zip(column) {
            for (sum, &byte) in parity.iter_mut().zip(&head[SHARD_HEAD - SIZE..]) {
                *sum ^= gf256::multiply(by, byte);
            }
        }
        gf256::multiply_add(column, segments, &mut parity[SIZE..], self.stride);
    }

    fn finish(&mut self, now: Instant) {
        // kcp-go does the same: it knows no shard before the first shard, so the pause before the
        // first shard is infinite.
        let paused = |longest| self.last.is_none_or(|last| now.duration_since(last) >= longest);
        if !self.closes_early && self.settings.pause.is_some_and(paused) {
            self.made = 0;
        }
        self.polled = Some(0);
        self.opened = None;
        self.closes_early = false;
        if self.made == 0 {
            self.pass_parity();
        }
    }
}
