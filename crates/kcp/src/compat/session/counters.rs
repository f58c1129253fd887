//! What a session has sent and received.

use crate::compat::{engine, envelope, fec};

/// Sums since the beginning of the session. Counters of several sessions add up.
///
/// Datagrams that are sent are those with segments, parity, fillers, and out of band:
/// `datagrams_out = engine.datagrams_out + parity_out + fillers_out + oob_out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The reliable stream.
    pub engine: engine::Counters,
    /// What the decoder did.
    pub fec: fec::Counters,
    /// What was opened, and what was dropped before it was looked at.
    pub envelope: envelope::Counters,
    /// Datagrams that were sent.
    pub datagrams_out: u64,
    /// Their bytes, envelopes included.
    pub bytes_out: u64,
    /// Datagrams that came in: opened, refused, malformed, or repeated.
    pub datagrams_in: u64,
    /// Their bytes. Of a datagram that was opened by the caller: those of the plaintext.
    pub bytes_in: u64,
    /// Datagrams whose nonce had been used before, by the peer or by this end.
    pub replayed: u64,
    /// Datagrams of parity that were sent, and their bytes.
    pub parity_out: u64,
    /// See `parity_out`.
    pub parity_bytes_out: u64,
    /// Parity shards that the budget did not allow.
    pub parity_dropped: u64,
    /// Datagrams that closed a group early.
    pub fillers_out: u64,
    /// Datagrams out of band that were sent.
    pub oob_out: u64,
    /// Datagrams out of band that came.
    pub oob_in: u64,
    /// Datagrams out of band that were dropped: a queue was full, or they were for another session.
    pub oob_dropped: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            engine,
            fec,
            envelope,
            datagrams_out,
            bytes_out,
            datagrams_in,
            bytes_in,
            replayed,
            parity_out,
            parity_bytes_out,
            parity_dropped,
            fillers_out,
            oob_out,
            oob_in,
            oob_dropped,
        } = other;
        self.engine += engine;
        self.fec += fec;
        self.envelope += envelope;
        self.datagrams_out += datagrams_out;
        self.bytes_out += bytes_out;
        self.datagrams_in += datagrams_in;
        self.bytes_in += bytes_in;
        self.replayed += replayed;
        self.parity_out += parity_out;
        self.parity_bytes_out += parity_bytes_out;
        self.parity_dropped += parity_dropped;
        self.fillers_out += fillers_out;
        self.oob_out += oob_out;
        self.oob_in += oob_in;
        self.oob_dropped += oob_dropped;
    }
}
