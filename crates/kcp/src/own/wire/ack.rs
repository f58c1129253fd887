//! Acknowledgements: the packets that have arrived (as in RFC 9000 section 19.3), the segments that
//! were rebuilt without their packets, and the window of the receiver.
//!
//! ```text
//! largest 4 (low half), delay (8 µs), una 4, window 2,
//! count of ranges 1, length of the first range - 1, then for each other: gap - 1, length - 1
//! count of rebuilt runs 1, then for each: distance of the first from the end before it, length - 1
//! [congestion marks]
//! ```
//!
//! Rebuilt runs count upwards from `una`, ranges downwards from `largest`. A packet whose segments
//! were rebuilt is not reported as arrived, so that the sender measures the loss of the path. The
//! count of congestion marks (CE of RFC 3168) is present if it has changed recently, which a flag
//! of the content shows.

use std::time::Duration;

use super::reader::{INTEGER_MAX, Reader, put_integer};
use super::{Malformed, PacketNumber};
use crate::Sn;

/// Maximum number of packet ranges in an acknowledgement.
pub const RANGES: usize = 32;

/// Maximum number of runs of rebuilt segments in an acknowledgement.
pub const REBUILT: usize = 32;

/// The unit of the delay.
const DELAY_UNIT: u32 = 8;

/// Runs of numbers, as `(distance, length)`. The users of this type define the start of the
/// distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<const N: usize> {
    runs: [(u32, u32); N],
    count: usize,
}

impl<const N: usize> Default for Ranges<N> {
    fn default() -> Self {
        Self { runs: [(0, 0); N], count: 0 }
    }
}

impl<const N: usize> Ranges<N> {
    /// Appends a run. `false` if there is no room.
    pub fn push(&mut self, distance: u32, length: u32) -> bool {
        let Some(slot) = self.runs.get_mut(self.count) else { return false };
        *slot = (distance, length);
        self.count += 1;
        true
    }

    /// The runs.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().take(self.count).copied()
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::try_from(self.count).unwrap_or(u8::MAX));
        for (distance, length) in self.iter() {
            put_integer(distance, to);
            put_integer(length.saturating_sub(1), to);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut ranges = Self::default();
        for _ in 0..from.byte()? {
            let (distance, length) = (from.integer()?, from.integer()? + 1);
            if !ranges.push(distance, length) {
                return Err(Malformed);
            }
        }
        Ok(ranges)
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The low half of the largest packet number that arrived.
    pub largest: u32,
    /// The delay of this acknowledgement since the arrival of that packet, in units of 8 µs.
    pub delay: u32,
    /// All segments before this one have arrived, or were rebuilt.
    pub una: Sn,
    /// Segments from `una` on for which there is room.
    pub window: u16,
    /// Packets that arrived, downwards: the first run ends with `largest` and has the distance 0,
    /// and the distance of another is the count of missing packets above it.
    pub arrived: Ranges<RANGES>,
    /// Segments from `una` on that were rebuilt, upwards: the distance is the count of segments
    /// between the end of the run before, or `una`, and this run.
    pub rebuilt: Ranges<REBUILT>,
    /// The low 30 bits of the count of packets that arrived with a congestion mark. `None` if the
    /// count has not changed recently.
    pub congested: Option<u32>,
}

impl Ack {
    /// Maximum length of an acknowledgement, in bytes.
    pub const LONGEST: usize = 20 + 8 * (RANGES + REBUILT);

    /// The delay in units of an acknowledgement.
    #[must_use]
    pub fn units(delay: Duration) -> u32 {
        let units = delay.as_micros() / u128::from(DELAY_UNIT);
        u32::try_from(units).unwrap_or(INTEGER_MAX).min(INTEGER_MAX)
    }

    /// The delay as time.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(u64::from(self.delay) * u64::from(DELAY_UNIT))
    }

    /// Appends the acknowledgement.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.largest.to_be_bytes());
        put_integer(self.delay, to);
        to.extend(self.una.0.to_be_bytes());
        to.extend(self.window.to_be_bytes());
        self.arrived.encode(to);
        self.rebuilt.encode(to);
        if let Some(congested) = self.congested {
            put_integer(congested & INTEGER_MAX, to);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>, has_congested: bool) -> Result<Self, Malformed> {
        Ok(Self {
            largest: u32::from_be_bytes(from.array()?),
            delay: from.integer()?,
            una: Sn(u32::from_be_bytes(from.array()?)),
            window: u16::from_be_bytes(from.array()?),
            arrived: Ranges::decode(from)?,
            rebuilt: Ranges::decode(from)?,
            congested: if has_congested { Some(from.integer()?) } else { None },
        })
    }

    /// The packets that arrived, as inclusive ranges with the newest first; `next` is the number of
    /// the next packet of the sender. The iterator ends at a number that would be negative or was
    /// never sent.
    pub fn packets(
        &self,
        next: PacketNumber,
    ) -> impl Iterator<Item = (PacketNumber, PacketNumber)> + '_ {
        let last = next.0.checked_sub(1).map(PacketNumber);
        let mut above = last.and_then(|last| last.last_with_low(self.largest)).map(|top| top.0 + 1);
        self.arrived.iter().map_while(move |(gap, length)| {
            let end = above?.checked_sub(gap.into())?;
            let start = end.checked_sub(length.into())?;
            above = Some(start);
            Some((PacketNumber(start), PacketNumber(end - 1)))
        })
    }

    /// The segments that were rebuilt, as `(first, count)`.
    pub fn segments(&self) -> impl Iterator<Item = (Sn, u32)> + '_ {
        let mut end = self.una;
        self.rebuilt.iter().map(move |(distance, count)| {
            let first = end.plus(distance);
            end = first.plus(count);
            (first, count)
        })
    }
}
