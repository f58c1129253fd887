//! The settings of a session.

use std::time::Duration;

use crate::engine;
use crate::envelope::{LONGEST_DATAGRAM, Sizes};
use crate::fec::{LONGEST_PAUSE, Ratio};
use crate::wire::{Conversation, HEAD};

/// The settings of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct Config {
    /// The reliable stream. [`engine::Config::mtu`] is computed by the session.
    pub engine: engine::Config,
    /// The longest datagram in bytes, without the heads of IP and UDP; at most
    /// [`LONGEST_DATAGRAM`]. A value that is too small for a byte of payload (see [`Sizes::new`])
    /// is raised.
    pub datagram: usize,
    /// The FEC of sent data. `None`: no FEC. A stock peer has to be set to the same ratio: before
    /// it has detected another ratio, it may rebuild garbage that passes for segments.
    pub encode: Option<Ratio>,
    /// The known ratio of the peer. Without it, or if the ratio is another, nothing is rebuilt
    /// until the ratio is detected.
    pub decode: Option<Ratio>,
    /// Leaves room for the head of a shard while there is no `encode`, so that
    /// [`Session::set_encode`](super::Session::set_encode) can turn FEC on.
    pub reserve: bool,
    /// `true`: the sent parity adapts to the loss
    /// ([`fec::adaptive`](crate::fec::adaptive)). `false`: all parity is sent.
    pub adaptive: bool,
    /// A group gets no parity if the pause before its last data shard is this long. `None`: all
    /// groups get parity.
    pub pause: Option<Duration>,
    /// The budget for closing groups early in bytes per second, so that sparse traffic and the ends
    /// of transfers are protected. 0: groups are closed by traffic alone, as in kcp-go.
    pub fillers: u32,
    /// Bytes per second on the wire: all datagrams with their envelopes, without the heads of IP
    /// and UDP. `None`: only the engine's control limits.
    pub rate: Option<u64>,
    /// The budget of retransmissions and parity together, as a share of the bytes that are sent for
    /// the first time. `None`: no limit. The budget accumulates up to a window. Parity beyond the
    /// budget is not sent, and beyond it one retransmission is sent in 10 ms.
    pub budget: Option<f64>,
    /// The number of remembered nonces. A datagram that an attacker repeats, or sends back to its
    /// sender, is dropped. 0: no nonce. `None`: [`NONCES`](super::NONCES) if the envelope
    /// authenticates.
    pub nonces: Option<usize>,
}

impl Config {
    /// Settings for `conversation`: datagrams of 1,350 bytes as in kcptun, no FEC, adaptive parity
    /// once FEC is turned on, no rate limit, and a budget of repairs of 1.
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

    /// Bytes of segments in a datagram with an envelope of `overhead` bytes.
    pub(super) fn segments(&self, overhead: usize) -> u16 {
        let with_fec = self.encode.is_some() || self.reserve;
        let segments = Sizes::new(self.datagram.min(LONGEST_DATAGRAM), overhead, with_fec)
            .map_or(HEAD + 1, |sizes| sizes.segments);
        u16::try_from(segments).unwrap_or(u16::MAX)
    }
}
