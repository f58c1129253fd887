//! The settings of a session.

use crate::engine;
use crate::envelope::{Sizes, TooSmall};
use crate::fec::Ratio;

/// The settings of a [`Session`](super::Session). The two directions are independent: a peer that
/// sends without FEC may receive with it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine. Its `mtu` is set by the session, to what the heads leave of
    /// [`datagram`](Self::datagram).
    pub engine: engine::Config,
    /// The longest datagram, in bytes: the payload of UDP. kcp-go's `mtu`; at most 1,500.
    pub datagram: usize,
    /// FEC of what is sent; `None`: none.
    pub encode: Option<Ratio>,
    /// The ratio of the peer, as far as it is known. It is found by itself where another one is
    /// used. `None`: parity that arrives is not used.
    pub decode: Option<Ratio>,
    /// Groups that traffic does not fill are closed with fillers, for at most so many bytes per
    /// second. 0: never, as kcp-go does.
    pub close_early: u32,
    /// The most bytes of datagrams per second, all heads, parity and acknowledgements included.
    /// `None`: no limit but that of the engine.
    pub rate: Option<u32>,
    /// Parity is left out while parity and repeated segments together are above this share of the
    /// bytes that were sent for the first time. Repeated segments are never held back by it: the
    /// engine bounds them by what is lost.
    pub extra: f64,
}

impl Config {
    /// Settings without FEC and without limits.
    #[must_use]
    pub const fn new(engine: engine::Config, datagram: usize) -> Self {
        Self {
            engine,
            datagram,
            encode: None,
            decode: None,
            close_early: EARLY_RATE,
            rate: None,
            extra: 1.0,
        }
    }

    /// The room in datagrams where an envelope takes `overhead` bytes.
    ///
    /// # Errors
    ///
    /// There is no room for a byte of payload.
    pub fn sizes(&self, overhead: usize) -> Result<Sizes, TooSmall> {
        Sizes::new(self.datagram, overhead, self.encode.is_some())
    }
}

/// 128 kbit/s.
const EARLY_RATE: u32 = 16_000;
