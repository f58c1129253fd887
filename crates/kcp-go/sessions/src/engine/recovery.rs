//! The transmissions of segments, and their outcomes in FEC groups with and without parity.

use std::time::Instant;

use crate::fec::adaptive::Report;
use crate::wire::{Millis, Sn};
use kcp::stream::flight::{self, Flight};

/// A transmission was overtaken when a transmission that was sent this much later arrived before
/// it.
const OVERTAKEN: u64 = 3;

/// The segment of a transmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) sn: Sn,
    /// The timestamp, which distinguishes the copies of a segment.
    pub(super) stamp: Millis,
    is_protected: bool,
}

pub(super) type Transmission = flight::Transmission<Segment>;

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) flight: Flight<Segment>,
    /// Whether sent segments are in an FEC group with parity.
    pub(super) is_protected: bool,
    /// The outcomes of transmissions.
    pub(super) report: Report,
}

impl Recovery {
    pub(super) fn new(resend: u16) -> Self {
        let flight = Flight::new(resend.into());
        Self { flight, is_protected: false, report: Report::default() }
    }

    /// A segment is sent. Returns the number of the transmission.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        (sn, stamp): (Sn, Millis),
        bytes: u32,
        is_limited: bool,
    ) -> u64 {
        let segment = Segment { sn, stamp, is_protected: self.is_protected };
        self.flight.sent(now, bytes, segment, is_limited)
    }

    /// A transmission has arrived, or an earlier transmission of the same segment. `is_certain`: it
    /// is this transmission. Returns the transmission unless it had ended before.
    pub(super) fn arrived(&mut self, number: u64, is_certain: bool) -> Option<Transmission> {
        let is_overtaken = self.flight.is_overtaken(number, OVERTAKEN);
        let arrived = self.flight.arrived(number, is_certain)?;
        let tally = self.report.of(arrived.cargo.is_protected);
        tally.ended += 1;
        tally.overtaken += u64::from(is_overtaken);
        Some(arrived)
    }

    /// The next transmission that counts as lost now.
    pub(super) fn pop_lost(&mut self, now: Instant) -> Option<Transmission> {
        let (_, lost) = self.flight.pop_lost(now)?;
        self.note_lost(&lost);
        Some(lost)
    }

    /// Declares all transmissions in flight lost. Returns the next transmission.
    pub(super) fn pop_any(&mut self) -> Option<Transmission> {
        let (_, lost) = self.flight.pop_any()?;
        self.note_lost(&lost);
        Some(lost)
    }

    fn note_lost(&mut self, lost: &Transmission) {
        let tally = self.report.of(lost.cargo.is_protected);
        tally.ended += 1;
        tally.lost += 1;
    }
}
