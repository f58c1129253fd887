//! Counters of a session: sent and received datagrams and bytes.

use crate::{engine, envelope, fec};

/// Sums since the beginning of the session. Counters of several sessions can be added.
///
/// Sent datagrams have segments, parity, fillers, or out-of-band payload: `datagrams_out =
/// engine.datagrams_out + parity_out + fillers_out + oob_out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The reliable stream.
    pub engine: engine::Counters,
    /// The counters of the decoder.
    pub fec: fec::Counters,
    /// The counters of opened datagrams, and of datagrams that were dropped at once.
    pub envelope: envelope::Counters,
    /// Datagrams that were sent.
    pub datagrams_out: u64,
    /// Bytes of sent datagrams, envelopes included.
    pub bytes_out: u64,
    /// Received datagrams: opened, refused, malformed, or repeated.
    pub datagrams_in: u64,
    /// Bytes of received datagrams. A datagram that the caller opened counts with the bytes of its
    /// plaintext.
    pub bytes_in: u64,
    /// Datagrams whose nonce had been used before, by the peer or by this end.
    pub replayed: u64,
    /// Datagrams of parity that were sent, and their bytes.
    pub parity_out: u64,
    /// Bytes of the datagrams of `parity_out`.
    pub parity_bytes_out: u64,
    /// Parity shards that the budget did not allow.
    pub parity_dropped: u64,
    /// Datagrams that closed a group early.
    pub fillers_out: u64,
    /// Datagrams out of band that were sent.
    pub oob_out: u64,
    /// Datagrams out of band that arrived.
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
