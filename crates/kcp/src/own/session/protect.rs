//! Assigns sent data to groups, and decides when parity is sent.

use std::time::{Duration, Instant};

use super::Session;
use super::flight::Cargo;
use crate::own::fec::Load;
use crate::own::wire::{Body, PARITY_HEAD, Shard};

/// The time for which a group waits for more data before parity covers it.
const FLUSH: Duration = Duration::from_millis(2);

/// The number of packets with data without a pause after which traffic counts as a bulk transfer.
pub(super) const BULK: u32 = 16;

impl Session {
    /// Adds a body to the open group or to a new group, if parity is useful.
    pub(super) fn protect(&mut self, now: Instant, load: Load, body: &[u8]) -> Option<Shard> {
        self.policy.sent(body.len() + self.overhead());
        let shard = self.shard(load, body)?;
        let old = self.groups.data_sent(now, shard.group);
        self.lost.extend(old);
        if self.flush.is_none() {
            self.flush = Some(now + FLUSH);
        }
        // For sparse traffic the timer or the next packet requests parity.
        if self.encoder.is_full() && (self.planned.is_some() || self.busy >= BULK) {
            self.complete_group();
        }
        Some(shard)
    }

    /// Requests parity for data without parity. Returns whether parity will be sent.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        self.flush = None;
        let uncovered = self.encoder.uncovered();
        if uncovered > 0 {
            let bytes = PARITY_HEAD + self.encoder.length() + self.overhead();
            self.ends_group = self.planned.is_some() || self.encoder.is_full();
            let is_last = self.planned.is_none() && self.ends_group;
            let wanted = self.policy.sparse(now, uncovered, bytes, is_last);
            self.owed = wanted.min(self.encoder.left());
        }
        if self.owed == 0 && (self.planned.is_some() || self.encoder.is_full()) {
            self.end_group();
        }
        self.owed > 0
    }

    pub(super) fn put_parity(
        &mut self,
        now: Instant,
        body: &mut Vec<u8>,
    ) -> (Cargo, Body<'static>) {
        self.owed = self.owed.saturating_sub(1);
        let made = self.encoder.take(self.ends_group, body);
        let result = made.map_or((Cargo::Nothing, Body::Empty), |made| {
            self.groups.parity_sent(now, made.shard.group, made.k);
            let (shard, k, is_final) = (made.shard, made.k, made.is_final);
            (Cargo::Parity(shard), Body::Parity { shard, k, is_final, parity: &[] })
        });
        if self.owed == 0 && (self.ends_group || self.encoder.is_full()) {
            self.end_group();
        }
        result
    }

    pub(super) fn end_group(&mut self) {
        self.encoder.close();
        (self.owed, self.ends_group, self.planned, self.flush) = (0, false, None, None);
    }

    fn shard(&mut self, load: Load, body: &[u8]) -> Option<Shard> {
        // No data can follow in a group after the parity that ends the group.
        if self.owed > 0 && (self.ends_group || self.encoder.is_full()) {
            return None;
        }
        if self.encoder.is_full() || !self.encoder.takes(body.len()) {
            self.end_group();
        }
        if !self.encoder.is_open() {
            let is_bulk = self.busy >= BULK || self.policy.is_fixed();
            let (data, parity) =
                if is_bulk { self.policy.bulk() } else { self.policy.sparse_group() }?;
            self.encoder.open(data, parity);
            self.planned = u8::try_from(parity).ok().filter(|_| is_bulk);
        }
        self.encoder.push(load, body)
    }

    /// Completes the open group, which is full.
    fn complete_group(&mut self) {
        let wanted = match self.planned {
            Some(planned) => planned.saturating_sub(self.encoder.made()),
            None => self.policy.share(self.encoder.uncovered()),
        };
        self.owed = wanted.min(self.encoder.left());
        self.ends_group = true;
        self.flush = None;
        if self.owed == 0 {
            self.end_group();
        }
    }
}
