//! Transmissions: what is under way, what of it is lost, and when to ask.
//!
//! Each transmission of a segment has a number of its own. A transmission is lost when enough that
//! left after it has arrived: by count as in RFC 5681, or by time as in RACK (RFC 8985). Where the
//! path reorders, the count ends and the time grows. When nothing arrives at all, a probe leaves
//! (RFC 8985 section 7; RFC 9002 section 6.2), later and later.
//!
//! Work per acknowledgement is constant, amortised: transmissions stand in the order in which they
//! left, both criteria hold for all before the first one for which they do not, and whatever has
//! ended leaves the front.

mod rtt;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::fec::adaptive::Report;
use crate::wire::{Millis, Sn};

pub(crate) use rtt::Rtt;

/// The share of the round trip that a transmission may arrive late: RFC 9002 section 6.1.2.
const LATE: u32 = 8;

/// Rounds after which a path that was seen to reorder counts as one that does not: RFC 8985
/// section 6.2, step 4, has 16 recoveries.
const FORGET: u32 = 16;

/// A transmission was overtaken when one that left so many later arrived before it.
const OVERTAKEN: u64 = 3;

/// Probes doubled at most so often.
const BACKOFF_MAX: u32 = 8;

/// So many probes in a row without an answer: what was known of the path is void.
const PERSISTENT: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    pub(super) sn: Sn,
    pub(super) at: Instant,
    pub(super) stamp: Millis,
    pub(super) bytes: u32,
    /// The sender had nothing more to send.
    pub(super) is_limited: bool,
    /// It is this transmission that arrived, and not an earlier one of the same segment.
    pub(super) is_certain: bool,
    is_open: bool,
    is_protected: bool,
}

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) rtt: Rtt,
    /// Transmission `first + n` stands at `n`.
    log: VecDeque<Transmission>,
    first: u64,
    in_flight: u64,
    /// The newest transmission that has arrived, and when it left.
    newest: Option<(u64, Instant)>,
    /// Transmissions that may overtake; 0: any number.
    pub(super) overtake: u64,
    /// What leaves is in an FEC group with parity.
    pub(super) is_protected: bool,
    /// What became of transmissions.
    pub(super) report: Report,
    /// Eighths of the round trip that a transmission may be late.
    late: u32,
    /// Rounds until reordering is forgotten.
    reorders_for: u32,
    round_end: u64,
    last_sent: Option<Instant>,
    /// Probes since the last acknowledgement.
    probes: u32,
    /// When a transmission that was overtaken is lost by time.
    overdue: Option<Instant>,
}

impl Recovery {
    pub(super) fn new(resend: u16) -> Self {
        Self {
            rtt: Rtt::new(),
            log: VecDeque::new(),
            first: 0,
            in_flight: 0,
            newest: None,
            overtake: u64::from(resend),
            is_protected: false,
            report: Report::default(),
            late: 1,
            reorders_for: 0,
            round_end: 0,
            last_sent: None,
            probes: 0,
            overdue: None,
        }
    }

    /// A segment leaves; returns the number of the transmission.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        sn: Sn,
        stamp: Millis,
        bytes: u32,
        is_limited: bool,
    ) -> u64 {
        self.log.push_back(Transmission {
            sn,
            at: now,
            stamp,
            bytes,
            is_limited,
            is_certain: true,
            is_open: true,
            is_protected: self.is_protected,
        });
        self.in_flight += u64::from(bytes);
        self.last_sent = Some(now);
        self.first + self.log.len() as u64 - 1
    }

    /// Bytes under way.
    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn get(&mut self, number: u64) -> Option<&mut Transmission> {
        self.log.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A transmission has arrived, or an earlier one of the same segment; `is_certain` says that it is
    /// this one. Returns it unless it had ended before.
    pub(super) fn arrived(&mut self, number: u64, is_certain: bool) -> Option<Transmission> {
        let transmission = self.get(number)?;
        if !transmission.is_open {
            return None;
        }
        transmission.is_open = false;
        let mut transmission = *transmission;
        self.in_flight = self.in_flight.saturating_sub(u64::from(transmission.bytes));
        let tally = self.report.of(transmission.is_protected);
        tally.ended += 1;
        tally.overtaken +=
            u64::from(self.newest.is_some_and(|(newest, _)| newest >= number + OVERTAKEN));
        // Taken for this copy, an earlier one would make all that is under way overtaken.
        transmission.is_certain = is_certain;
        if transmission.is_certain && self.newest.is_none_or(|(newest, _)| newest < number) {
            self.newest = Some((number, transmission.at));
        }
        self.trim();
        Some(transmission)
    }

    /// A transmission does not count any more: its segment leaves again.
    pub(super) fn withdraw(&mut self, number: u64) {
        if let Some(transmission) = self.get(number)
            && transmission.is_open
        {
            transmission.is_open = false;
            let bytes = transmission.bytes;
            self.in_flight = self.in_flight.saturating_sub(u64::from(bytes));
            self.trim();
        }
    }

    /// The number of the next transmission.
    pub(super) fn next(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// The timestamp of a transmission that is still in the log.
    pub(super) fn stamp(&mut self, number: u64) -> Option<Millis> {
        self.get(number).map(|transmission| transmission.stamp)
    }

    /// A segment that was given up has arrived: the path reorders.
    pub(super) fn reordered(&mut self) {
        // At most a whole round trip late, as in RFC 8985 section 6.2, step 4.
        self.late = (self.late + 1).min(LATE);
        self.reorders_for = FORGET;
    }

    /// The peer has acknowledged something.
    pub(super) fn acknowledged(&mut self) {
        self.probes = 0;
        let next = self.next();
        if self.newest.is_some_and(|(newest, _)| newest >= self.round_end) {
            self.round_end = next;
            self.reorders_for = self.reorders_for.saturating_sub(1);
            if self.reorders_for == 0 {
                self.late = 1;
            }
        }
    }

    /// The next transmission that counts as lost now.
    pub(super) fn pop_lost(&mut self, now: Instant) -> Option<Transmission> {
        self.overdue = None;
        let (newest, newest_at) = self.newest?;
        let front = self.log.front_mut()?;
        // After `trim` the front is open.
        if self.first >= newest {
            return None;
        }
        let by_count =
            self.reorders_for == 0 && self.overtake > 0 && newest - self.first >= self.overtake;
        let longer = self.rtt.longer();
        let due = front.at + longer + (longer * self.late / LATE).max(Duration::from_millis(1));
        if !by_count && (due > now || front.at > newest_at) {
            self.overdue = Some(due);
            return None;
        }
        front.is_open = false;
        let lost = *front;
        self.in_flight = self.in_flight.saturating_sub(u64::from(lost.bytes));
        let tally = self.report.of(lost.is_protected);
        tally.ended += 1;
        tally.lost += 1;
        self.trim();
        Some(lost)
    }

    /// All that is under way is given up; the next one of it.
    pub(super) fn pop_any(&mut self) -> Option<Transmission> {
        let front = self.log.front_mut()?;
        front.is_open = false;
        let lost = *front;
        self.in_flight = self.in_flight.saturating_sub(u64::from(lost.bytes));
        let tally = self.report.of(lost.is_protected);
        tally.ended += 1;
        tally.lost += 1;
        self.trim();
        Some(lost)
    }

    /// Gives memory back.
    pub(super) fn rest(&mut self) {
        if self.log.is_empty() {
            self.log.shrink_to(8);
        }
    }

    fn trim(&mut self) {
        while self.log.front().is_some_and(|transmission| !transmission.is_open) {
            self.log.pop_front();
            self.first += 1;
        }
    }

    /// When an overtaken transmission is lost by time.
    pub(super) const fn overdue(&self) -> Option<Instant> {
        self.overdue
    }

    /// When a probe has to leave; `None` while nothing is under way.
    pub(super) fn probe_due(&self, interval: Duration, least: Duration) -> Option<Instant> {
        let sent = self.last_sent.filter(|_| self.in_flight > 0)?;
        let wait = self.rtt.timeout(interval, least);
        Some(sent + wait * 2_u32.pow(self.probes.min(BACKOFF_MAX)))
    }

    /// A probe leaves. Returns whether that many went unanswered that the path is a new one.
    pub(super) const fn probed(&mut self) -> bool {
        self.probes += 1;
        self.probes == PERSISTENT
    }
}
