//! The settings of a session.

use std::time::Duration;

use crate::compat::engine;
use crate::compat::envelope::{LONGEST_DATAGRAM, Sizes};
use crate::compat::fec::{LONGEST_PAUSE, Ratio};
use crate::compat::wire::{Conversation, HEAD};

/// The settings of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct Config {
    /// The reliable stream. [`engine::Config::mtu`] is computed by the session.
    pub engine: engine::Config,
    /// The longest datagram in bytes, without the heads of IP and UDP; at most
    /// [`LONGEST_DATAGRAM`]. What is too small for a byte of payload (see [`Sizes::new`]) is exceeded.
    pub datagram: usize,
    /// The FEC of what is sent; `None`: there is none. A stock peer has to be set to the same ratio:
    /// before it has found another one, it may rebuild garbage and take it for segments.
    pub encode: Option<Ratio>,
    /// The ratio that the peer is known to send with. Without it, or where it turns out to be another
    /// one, nothing is rebuilt until the ratio is found.
    pub decode: Option<Ratio>,
    /// Leaves room for the head of a shard while there is no `encode`, so that
    /// [`Session::set_encode`](super::Session::set_encode) can turn FEC on.
    pub reserve: bool,
    /// `true`: the parity that is sent follows the loss ([`fec::adaptive`](crate::compat::fec::adaptive)).
    /// `false`: all parity is sent.
    pub adaptive: bool,
    /// A group gets no parity when the pause in front of its last data shard is this long; `None`:
    /// all groups get it.
    pub pause: Option<Duration>,
    /// Bytes per second that closing groups early may cost, so that sparse traffic and tails are
    /// protected; 0: groups are closed by traffic alone, as in kcp-go.
    pub fillers: u32,
    /// Bytes per second on the wire: all datagrams with their envelopes, without the heads of IP
    /// and UDP. `None`: only the engine's control limits.
    pub rate: Option<u64>,
    /// What retransmissions and parity may have together, as a share of the bytes that are sent for
    /// the first time; `None`: whatever they need. A window of them may be saved up. Parity beyond it
    /// is not sent, and retransmissions beyond it leave one in 10 ms.
    pub budget: Option<f64>,
    /// Nonces that are remembered, so that a datagram that is sent again by somebody else, or back
    /// to its sender, is dropped; 0: none. `None`: [`NONCES`](super::NONCES) where the envelope
    /// authenticates.
    pub nonces: Option<usize>,
}

impl Config {
    /// Settings for `conversation`: datagrams of 1,350 bytes as kcptun has them, no FEC, and for the
    /// time when FEC is turned on, adaptive parity; no rate limit; repairs may cost as much as what
    /// they repair.
    #[must_use]
    pub const fn new(conversation: Conversation) -> Self {
        Self {
            engine: engine::Config::new(conversation, 1350),
            datagram: 1350,
            encode: None,
            decode: None,
            reserve: false,
            adaptive: true,
            pause: Some(LONGEST_PAUSE),
            fillers: 16_000,
            rate: None,
            budget: Some(1.0),
            nonces: None,
        }
    }

    /// Bytes of segments in a datagram, where an envelope takes `overhead` bytes.
    pub(super) fn segments(&self, overhead: usize) -> u16 {
        let with_fec = self.encode.is_some() || self.reserve;
        let segments = Sizes::new(self.datagram.min(LONGEST_DATAGRAM), overhead, with_fec)
            .map_or(HEAD + 1, |sizes| sizes.segments);
        u16::try_from(segments).unwrap_or(u16::MAX)
    }
}
