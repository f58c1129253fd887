//! Segments to the peer: segments that wait for a number, and segments in flight.

use std::collections::VecDeque;

use super::window::Losses;
use crate::wire::{Millis, Sn};

/// After this number of transmissions a segment counts as dead. kcp-go sets a flag and goes on.
const DEAD_AFTER: u32 = 20;

/// A special value of the count of later acknowledgements: the segment was retransmitted early, and
/// is not retransmitted again before its time-out.
const LATCHED: u32 = u32::MAX;

/// The most fragments of a message.
const MOST_FRAGMENTS: usize = 255;

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The message is empty. An empty segment would block the reader of kcp-go.
    #[error("a message is empty")]
    Empty,
    /// More than 255 fragments are needed. In stream mode the last waiting segment was filled all
    /// the same, as kcp-go does it.
    #[error("a message needs more than 255 segments")]
    TooLong,
}

#[derive(Debug)]
struct Unsent {
    fragments: u8,
    payload: Vec<u8>,
}

/// A segment with a number.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) sn: Sn,
    pub(super) fragments: u8,
    pub(super) payload: Vec<u8>,
    /// When it was last sent.
    pub(super) sent: Millis,
    /// When it is sent again.
    deadline: Millis,
    /// The time-out of this segment in milliseconds. It grows with each transmission.
    timeout: u32,
    /// Acknowledgements of later segments, or [`LATCHED`].
    passed: u32,
    transmissions: u32,
    is_acknowledged: bool,
}

/// The rules of retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The time-out of the estimator, in milliseconds.
    pub(super) timeout: u32,
    /// The increase of the time-out at each transmission, in milliseconds.
    pub(super) back_off: u32,
    /// The threshold of the fast retransmission. `u32::MAX` if it is off.
    pub(super) resend: u32,
    /// Whether this flush gave no segment a number. Then one acknowledgement of a later segment
    /// suffices.
    pub(super) is_idle: bool,
}

/// The outcome of a flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transmitted {
    pub(super) losses: Losses,
    /// The milliseconds until the next deadline, if there is one in the future.
    pub(super) next: Option<u32>,
}

/// Both queues. The first segment in flight has the number `una`, the numbers of further segments
/// follow, and `next` is the number after the last segment.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<Unsent>,
    flying: VecDeque<Flying>,
    una: Sn,
    next: Sn,
    is_dead: bool,
}

impl Outgoing {
    /// Continues at another number. No segment may be in flight.
    pub(super) fn start_at(&mut self, next: Sn) {
        if self.flying.is_empty() {
            (self.una, self.next) = (next, next);
        }
    }

    pub(super) const fn una(&self) -> Sn {
        self.una
    }

    pub(super) const fn next(&self) -> Sn {
        self.next
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn flying(&self) -> usize {
        self.flying.len()
    }

    pub(super) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Queues a message in pieces of at most `payload` bytes.
    pub(super) fn push(
        &mut self,
        mut message: &[u8],
        payload: usize,
        is_stream: bool,
    ) -> Result<(), SendError> {
        if message.is_empty() {
            return Err(SendError::Empty);
        }
        if is_stream && let Some(last) = self.waiting.back_mut() {
            let room = payload.saturating_sub(last.payload.len()).min(message.len());
            let (now, later) = message.split_at(room);
            last.payload.extend_from_slice(now);
            message = later;
        }
        let count = message.len().div_ceil(payload);
        if count > MOST_FRAGMENTS {
            return Err(SendError::TooLong);
        }
        for (at, piece) in message.chunks(payload).enumerate() {
            let fragments = if is_stream { 0 } else { count - 1 - at };
            let fragments = u8::try_from(fragments).unwrap_or(u8::MAX);
            self.waiting.push_back(Unsent { fragments, payload: piece.to_vec() });
        }
        Ok(())
    }

    /// All segments before `una` have arrived. Returns whether one of them was in flight. A number
    /// that was never sent is ignored. kcp-go would drop all segments instead.
    pub(super) fn acknowledge_before(&mut self, una: Sn) -> bool {
        if self.next.is_before(una) {
            return false;
        }
        let before = self.flying.len();
        while self.flying.front().is_some_and(|segment| segment.sn.is_before(una)) {
            self.flying.pop_front();
        }
        self.una = self.flying.front().map_or(self.next, |segment| segment.sn);
        self.flying.len() != before
    }

    /// The segment `sn`, sent at `timestamp`, has arrived. Returns whether an earlier segment has
    /// to be retransmitted at `threshold`.
    pub(super) fn acknowledge(&mut self, sn: Sn, timestamp: Millis, threshold: u32) -> bool {
        if sn.is_before(self.una) || !sn.is_before(self.next) {
            return false;
        }
        let mut is_due = false;
        for segment in &mut self.flying {
            if segment.sn == sn {
                // The segment keeps its place until `una` passes it, but its bytes are no longer
                // needed.
                segment.is_acknowledged = true;
                segment.payload = Vec::new();
                break;
            }
            if segment.sent.since(timestamp) <= 0 && segment.passed != LATCHED {
                segment.passed += 1;
                is_due |= segment.passed >= threshold;
            }
        }
        is_due
    }

    /// Gives numbers to waiting segments while fewer than `window` are in flight. Returns whether a
    /// segment got a number.
    pub(super) fn admit(&mut self, window: u32) -> bool {
        let end = self.una.plus(window);
        let first = self.next;
        while self.next.is_before(end) {
            let Some(Unsent { fragments, payload }) = self.waiting.pop_front() else { break };
            self.flying.push_back(Flying {
                sn: self.next,
                fragments,
                payload,
                sent: Millis(0),
                deadline: Millis(0),
                timeout: 0,
                passed: 0,
                transmissions: 0,
                is_acknowledged: false,
            });
            self.next = self.next.plus(1);
        }
        self.next != first
    }

    /// Passes each due segment to `send`.
    pub(super) fn transmit(
        &mut self,
        now: Millis,
        rules: &Rules,
        mut send: impl FnMut(&Flying),
    ) -> Transmitted {
        let mut done = Transmitted::default();
        for segment in self.flying.iter_mut().filter(|segment| !segment.is_acknowledged) {
            if segment.is_due(now, rules, &mut done.losses) {
                segment.deadline = now.plus(segment.timeout);
                segment.transmissions = segment.transmissions.saturating_add(1);
                segment.sent = now;
                self.is_dead |= segment.transmissions >= DEAD_AFTER;
                send(segment);
            }
            if let Ok(rest @ 1..) = u32::try_from(segment.deadline.since(now)) {
                done.next = Some(done.next.map_or(rest, |next| next.min(rest)));
            }
        }
        done
    }
}

impl Flying {
    /// Whether the segment is to be sent now, and with which time-out.
    fn is_due(&mut self, now: Millis, rules: &Rules, losses: &mut Losses) -> bool {
        let can_be_early = self.passed != LATCHED;
        if self.transmissions == 0 {
            self.timeout = rules.timeout;
            true
        } else if can_be_early
            && (self.passed >= rules.resend || (self.passed > 0 && rules.is_idle))
        {
            self.passed = LATCHED;
            self.timeout = rules.timeout;
            losses.is_early = true;
            true
        } else if now.since(self.deadline) >= 0 {
            self.timeout = self.timeout.saturating_add(rules.back_off);
            self.passed = 0;
            losses.is_timeout = true;
            true
        } else {
            false
        }
    }
}
