//! What a session counts.

use crate::{engine, fec};

/// Sums since the begin of a session. Counters of several sessions add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The reliable stream.
    pub engine: engine::Counters,
    /// What FEC rebuilt.
    pub fec: fec::Counters,
    /// Datagrams that were sent, and their bytes.
    pub datagrams_out: u64,
    /// The bytes of those datagrams.
    pub wire_out: u64,
    /// Datagrams that arrived and could be opened, and their bytes.
    pub datagrams_in: u64,
    /// The bytes of those datagrams.
    pub wire_in: u64,
    /// Datagrams that were not sealed with this key.
    pub refused: u64,
    /// Datagrams that were sealed, and hold nothing that is known.
    pub malformed: u64,
    /// Parity shards that were sent.
    pub parity_out: u64,
    /// Shards that only filled a group up.
    pub fillers_out: u64,
    /// Groups whose parity was left out, to keep within
    /// [`Config::extra`](super::Config::extra).
    pub parity_saved: u64,
    /// Datagrams out of band that were sent.
    pub oob_out: u64,
    /// Datagrams out of band that arrived.
    pub oob_in: u64,
    /// Datagrams out of band that were dropped for newer ones, or belong to another conversation.
    pub oob_dropped: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.engine += other.engine;
        let fec::Counters { whole, rebuilt_groups, rebuilt, expired, refused, untuned, tuned } =
            other.fec;
        self.fec.whole += whole;
        self.fec.rebuilt_groups += rebuilt_groups;
        self.fec.rebuilt += rebuilt;
        self.fec.expired += expired;
        self.fec.refused += refused;
        self.fec.untuned += untuned;
        self.fec.tuned += tuned;
        self.datagrams_out += other.datagrams_out;
        self.wire_out += other.wire_out;
        self.datagrams_in += other.datagrams_in;
        self.wire_in += other.wire_in;
        self.refused += other.refused;
        self.malformed += other.malformed;
        self.parity_out += other.parity_out;
        self.fillers_out += other.fillers_out;
        self.parity_saved += other.parity_saved;
        self.oob_out += other.oob_out;
        self.oob_in += other.oob_in;
        self.oob_dropped += other.oob_dropped;
    }
}
