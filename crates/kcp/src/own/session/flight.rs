//! Packets that are under way, what of them is lost, and when to ask.
//!
//! As the engine's `Recovery`, by packet numbers: loss by count and by time of what arrived later
//! (RFC 9002 section 6.1, RFC 8985), a probe when nothing arrives. An acknowledgement names packets,
//! so that nothing is ambiguous.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::groups::Sequence;
use crate::engine::recovery::Rtt;
use crate::own::wire::{PacketNumber, Shard};

/// Eighths of the round trip that a packet may be late at most: RFC 8985 section 6.2, step 4.
const LATE: u32 = 8;

/// Rounds after which a path that was seen to reorder counts as one that does not.
const FORGET: u32 = 16;

/// Packets that may overtake: RFC 9002 section 6.1.1.
const OVERTAKE: u64 = 3;

/// Probes doubled at most so often.
const BACKOFF_MAX: u32 = 8;

/// So many probes in a row without an answer: what was known of the path is void.
const PERSISTENT: u32 = 3;

/// Lost packets that are remembered, to see that they were late.
const REMEMBERED: usize = 512;

/// What a packet carries that somebody has to know when it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// Nothing that is acknowledged.
    Nothing,
    Segments(Sequence),
    Parity(Shard),
    /// What nobody repeats.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) at: Instant,
    pub(super) bytes: u32,
    pub(super) cargo: Cargo,
    /// The sender had nothing more to send.
    pub(super) is_limited: bool,
    is_open: bool,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) rtt: Rtt,
    least: Option<Duration>,
    /// Packet `first + n` stands at `n`.
    log: VecDeque<Packet>,
    first: u64,
    in_flight: u64,
    newest: Option<(u64, Instant)>,
    late: u32,
    reorders_for: u32,
    round_end: u64,
    last_sent: Option<Instant>,
    probes: u32,
    overdue: Option<Instant>,
    lost: VecDeque<(u64, Instant, Cargo)>,
}

impl Flight {
    pub(super) const fn new() -> Self {
        Self {
            rtt: Rtt::new(),
            least: None,
            log: VecDeque::new(),
            first: 0,
            in_flight: 0,
            newest: None,
            late: 1,
            reorders_for: 0,
            round_end: 0,
            last_sent: None,
            probes: 0,
            overdue: None,
            lost: VecDeque::new(),
        }
    }

    /// The number of the next packet.
    pub(super) fn next(&self) -> PacketNumber {
        PacketNumber(self.first + self.log.len() as u64)
    }

    /// Bytes under way.
    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Packets before this one have ended.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The next packet leaves.
    pub(super) fn sent(&mut self, now: Instant, bytes: u32, cargo: Cargo, is_limited: bool) {
        let is_open = cargo != Cargo::Nothing;
        self.log.push_back(Packet { at: now, bytes, cargo, is_limited, is_open });
        if is_open {
            self.in_flight += u64::from(bytes);
            self.last_sent = Some(now);
        } else {
            self.trim();
        }
    }

    /// A packet has arrived; `None` where that was known.
    pub(super) fn arrived(&mut self, number: u64) -> Option<Packet> {
        let slot = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let packet = self.log.get_mut(slot)?;
        if !packet.is_open {
            return None;
        }
        packet.is_open = false;
        let packet = *packet;
        self.in_flight = self.in_flight.saturating_sub(packet.bytes.into());
        if self.newest.is_none_or(|(newest, _)| newest < number) {
            self.newest = Some((number, packet.at));
        }
        self.trim();
        Some(packet)
    }

    /// The newest packet took `took` there and back, of which the peer has waited for `delay`.
    pub(super) fn sample(&mut self, took: Duration, delay: Duration) {
        let least = self.least.map_or(took, |least| least.min(took));
        self.least = Some(least);
        // As RFC 9002 section 5.3: a delay that makes a round trip too short is not believed.
        let without = took.saturating_sub(delay);
        self.rtt.sample(if without >= least { without } else { took });
    }

    /// Lost packets of which `arrived` says that they were only late.
    pub(super) fn late_ones(&mut self, arrived: impl Fn(u64) -> bool) -> Vec<Cargo> {
        let mut late = Vec::new();
        self.lost.retain(|&(number, _, cargo)| {
            let is_late = arrived(number);
            if is_late {
                late.push(cargo);
            }
            !is_late
        });
        if !late.is_empty() {
            self.late = (self.late + 1).min(LATE);
            self.reorders_for = FORGET;
        }
        late
    }

    /// Something new was acknowledged.
    pub(super) fn acknowledged(&mut self, now: Instant) {
        self.probes = 0;
        if self.newest.is_some_and(|(newest, _)| newest >= self.round_end) {
            self.round_end = self.next().0;
            self.reorders_for = self.reorders_for.saturating_sub(1);
            if self.reorders_for == 0 {
                self.late = 1;
            }
        }
        let old = self.rtt.longer() * 2;
        while self.lost.front().is_some_and(|(_, at, _)| now.duration_since(*at) > old) {
            self.lost.pop_front();
        }
    }

    /// The next packet that counts as lost now.
    pub(super) fn pop_lost(&mut self, now: Instant) -> Option<(u64, Packet)> {
        self.overdue = None;
        let (newest, newest_at) = self.newest?;
        let front = self.log.front()?;
        if self.first >= newest {
            return None;
        }
        let by_count = self.reorders_for == 0 && newest - self.first >= OVERTAKE;
        let longer = self.rtt.longer();
        let due = front.at + longer + (longer * self.late / LATE).max(Duration::from_millis(1));
        if !by_count && (due > now || front.at > newest_at) {
            self.overdue = Some(due);
            return None;
        }
        let lost = self.pop_any()?;
        if self.lost.len() >= REMEMBERED {
            self.lost.pop_front();
        }
        self.lost.push_back((lost.0, now, lost.1.cargo));
        Some(lost)
    }

    /// All that is under way is given up; the next one of it.
    pub(super) fn pop_any(&mut self) -> Option<(u64, Packet)> {
        let front = self.log.front_mut()?;
        front.is_open = false;
        let lost = (self.first, *front);
        self.in_flight = self.in_flight.saturating_sub(lost.1.bytes.into());
        self.trim();
        Some(lost)
    }

    fn trim(&mut self) {
        while self.log.front().is_some_and(|packet| !packet.is_open) {
            self.log.pop_front();
            self.first += 1;
        }
    }

    /// When an overtaken packet is lost by time.
    pub(super) const fn overdue(&self) -> Option<Instant> {
        self.overdue
    }

    /// When a probe has to leave; `None` while nothing is under way.
    pub(super) fn probe_due(&self, ack_delay: Duration, least: Duration) -> Option<Instant> {
        let sent = self.last_sent.filter(|_| self.in_flight > 0)?;
        let wait = self.rtt.timeout(ack_delay, least);
        Some(sent + wait * 2_u32.pow(self.probes.min(BACKOFF_MAX)))
    }

    /// No probe waits for an answer.
    pub(super) const fn is_answered(&self) -> bool {
        self.probes == 0
    }

    /// A probe leaves. Returns whether so many went unanswered that the path is a new one.
    pub(super) const fn probed(&mut self) -> bool {
        self.probes += 1;
        self.probes == PERSISTENT
    }
}
