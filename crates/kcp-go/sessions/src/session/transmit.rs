//! Builds datagrams in the caller's buffer: room for the head of the envelope, room for the head of
//! the shard, then the segments of the engine. Then the heads are filled in, and the datagram is
//! sealed in place.

use std::time::Instant;

use super::Session;
use super::protection::Shard;
use crate::engine::Purpose;
use crate::wire::{SHARD_HEAD, oob_head};

impl Session {
    /// Appends the next sealed datagram to `out`, and returns its length. `None` if nothing may be
    /// sent now. Then `out` is unchanged. `random` fills a buffer with random bytes.
    ///
    /// Full datagrams have the same length, so that a driver may gather them in one buffer and send
    /// them with one call.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        random: &mut impl FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if !self.rate.as_mut().is_none_or(|rate| rate.allows(now)) {
            return None;
        }
        let start = out.len();
        out.resize(start + self.seal.head(), 0);
        let is_made = self.put_shard(now, out) || self.put_oob(out) || self.put_segments(now, out);
        if !is_made {
            out.truncate(start);
            return None;
        }
        out.resize(out.len() + self.seal.tail(), 0);
        random(&mut self.nonce);
        if self.seal.seal(&self.nonce, &mut out[start..]).is_err() {
            // The envelope refused its own sizes. The datagram counts as lost.
            out.truncate(start);
            return None;
        }
        self.nonces.insert(&self.nonce);
        let length = out.len() - start;
        self.counters.datagrams_out += 1;
        self.counters.bytes_out += length as u64;
        if let Some(rate) = &mut self.rate {
            rate.sent(length);
        }
        self.touch(now);
        Some(length)
    }

    /// Appends a shard of parity, or a filler.
    fn put_shard(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(protection) = &mut self.protection else { return false };
        let cost = protection.parity_to_pay();
        if let (Some(budget), Some(bytes)) = (&mut self.budget, cost)
            && !budget.allows_parity(bytes)
        {
            self.counters.parity_dropped += protection.drop_parity() as u64;
            return false;
        }
        let start = out.len();
        match protection.poll(now, out) {
            Some(Shard::Parity) => {
                if let (Some(budget), Some(bytes)) = (&mut self.budget, cost) {
                    budget.spend(bytes as u64, now);
                }
                self.counters.parity_out += 1;
                let bytes = out.len() - start + self.seal.overhead();
                self.counters.parity_bytes_out += bytes as u64;
                true
            }
            Some(Shard::Filler) => {
                self.counters.fillers_out += 1;
                true
            }
            None => false,
        }
    }

    /// Appends a datagram out of band.
    fn put_oob(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(payload) = self.oob_out.pop() else { return false };
        let Some(head) = oob_head(self.conversation(), payload.len()) else { return false };
        out.extend_from_slice(&head);
        out.extend_from_slice(&payload);
        self.counters.oob_out += 1;
        true
    }

    /// Appends segments, as a shard if FEC is on and the segments have payload. A datagram with
    /// acknowledgements alone is no shard: a stock peer accepts it without a head, and groups are
    /// for data.
    fn put_segments(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let Some(budget) = &self.budget {
            let from = budget.repeats_from();
            self.engine.hold_repeats(from.is_some_and(|from| from > now));
        }
        let start = out.len();
        if let Some(protection) = &mut self.protection {
            let is_protected = protection.decide();
            self.engine.protect(is_protected);
            out.resize(start + SHARD_HEAD, 0);
        }
        let at = out.len();
        let repeated = self.engine.counters().repeated_bytes_out;
        let Some(purpose) = self.engine.poll_transmit(now, out) else { return false };
        if purpose == Purpose::Data
            && let Some(budget) = &mut self.budget
        {
            let repeated = self.engine.counters().repeated_bytes_out - repeated;
            let fresh = ((out.len() - at) as u64).saturating_sub(repeated);
            budget.earn(fresh);
            if repeated > 0 {
                budget.spend(repeated, now);
            }
        }
        let Some(protection) = &mut self.protection else { return true };
        let round_trip = self.engine.round_trip();
        let head = match purpose {
            Purpose::Data => protection.push(&out[at..], now, round_trip),
            Purpose::Control => None,
        };
        match head {
            Some(head) => out[start..at].copy_from_slice(&head),
            None => {
                out.copy_within(at.., start);
                out.truncate(out.len() - SHARD_HEAD);
            }
        }
        true
    }
}
