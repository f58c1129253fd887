//! A session: all layers between a UDP socket and a stream, with the layout of kcp-go.
//!
//! ```text
//!  write, send ──> Engine ── segments ──> Protection ── shard ──> Seal ──> poll_transmit
//!                    ^                    (FEC encoder)
//!  read <────────────┤
//!                    └── segments <── Decoder <── shard ── Seal <── handle_datagram
//!  send_oob, read_oob: datagrams beside the stream
//! ```
//!
//! | module | content |
//! |---|---|
//! | `config`, `counters` | what is set, and what is counted |
//! | `transmit` | datagrams out: what leaves next, and in which buffer |
//! | `receive` | datagrams in |
//! | `protection` | the encoder: how much parity, and when a group is closed |
//! | `rate` | the limit of bytes on the wire |
//! | `budget` | the cap of retransmissions and parity |
//! | `nonces` | datagrams that somebody sends again |
//! | `oob` | datagrams beside the stream |
//! | `fuzz` | the harness of a fuzz target |
//!
//! It is a plain value. After any input or command, the driver calls
//! [`poll_transmit`](Session::poll_transmit) until it returns `None`, then sets a timer to
//! [`timeout`](Session::timeout), after which it calls [`handle_timeout`](Session::handle_timeout).
//! An idle session has no timer, and has released as much memory as possible.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use bytes::Bytes;
//! use kcp_go::envelope::Null;
//! use kcp_go::session::{Config, Session};
//! use kcp_go::wire::Conversation;
//!
//! let now = Instant::now();
//! let config = Config::new(Conversation(7));
//! let mut client = Session::new(config.clone(), Arc::new(Null), now);
//! let mut server = Session::new(config, Arc::new(Null), now);
//!
//! client.write(now, &mut Bytes::from_static(b"hello"));
//! let mut random = |bytes: &mut [u8]| bytes.fill(4); // Null needs none.
//! let mut out = Vec::new();
//! while let Some(length) = client.poll_transmit(now, &mut random, &mut out) {
//!     let at = out.len() - length;
//!     server.handle_datagram(now, &mut out[at..]);
//! }
//! assert_eq!(server.read(100).as_deref(), Some(&b"hello"[..]));
//! ```

mod budget;
mod config;
mod counters;
#[doc(hidden)]
pub mod fuzz;
mod nonces;
mod oob;
mod protection;
mod rate;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::Engine;
use crate::envelope::{self, Seal};
use crate::fec::{Decoder, Ratio};
use crate::wire::{Conversation, OOB_HEAD};

pub use config::Config;
pub use counters::Counters;
pub use nonces::{NONCES, Nonces};
pub use oob::TooLong;

use budget::Budget;
use protection::{Former, Protection};
use rate::Rate;

/// The time of silence after which memory is released.
const REST: Duration = Duration::from_secs(1);

/// One end of a session with one peer.
#[derive(Debug)]
pub struct Session {
    config: Config,
    seal: Arc<dyn Seal>,
    /// The random bytes of a datagram.
    nonce: Box<[u8]>,
    engine: Engine,
    /// Bytes of segments in a datagram.
    segments: u16,
    protection: Option<Protection>,
    /// The former encoder. Set once FEC was changed.
    former: Option<Former>,
    /// The decoder is made for the first received shard.
    decoder: Option<Box<Decoder>>,
    nonces: Nonces,
    rate: Option<Rate>,
    budget: Option<Budget>,
    oob_out: oob::Queue,
    oob_in: oob::Queue,
    /// The time of the last sent or received datagram, or of the last write.
    active: Instant,
    /// There may be memory to release.
    is_awake: bool,
    counters: Counters,
}

impl Session {
    /// A new session. Both ends begin in the same state.
    #[must_use]
    pub fn new(mut config: Config, seal: Arc<dyn Seal>, now: Instant) -> Self {
        let segments = config.segments(seal.overhead());
        config.engine.mtu = segments;
        let nonces = match (config.nonces, seal.nonce(), seal.tail()) {
            (_, 0, _) | (None, _, 0) => 0,
            (most, _, _) => most.unwrap_or(NONCES),
        };
        let window = usize::from(config.engine.send_window) * usize::from(segments);
        let mut session = Self {
            nonce: vec![0; seal.nonce()].into(),
            engine: Engine::new(config.engine.clone(), now),
            segments,
            protection: None,
            former: None,
            decoder: None,
            nonces: Nonces::new(nonces),
            rate: config.rate.map(|rate| Rate::new(rate, now)),
            budget: config.budget.map(|share| Budget::new(share, window)),
            oob_out: oob::Queue::default(),
            oob_in: oob::Queue::default(),
            active: now,
            is_awake: false,
            counters: Counters::default(),
            seal,
            config,
        };
        session.protect(now);
        session
    }

    /// Starts the encoder of the settings.
    fn protect(&mut self, now: Instant) {
        let sizes = (self.segments, self.seal.overhead());
        self.protection = self
            .config
            .encode
            .map(|ratio| Protection::new(&self.config, ratio, self.former, sizes, now));
        // A shard that parity repairs arrives late, so the count of overtaking packets must not
        // declare it lost.
        let resend = if self.protection.is_some() { 0 } else { self.config.engine.resend };
        self.engine.set_resend(resend);
        self.engine.protect(false);
    }

    /// Changes the FEC of further sent data, or turns it off. A stock peer rebuilds nothing for a
    /// while when the ratio changes, because it has to detect the ratio first. The first groups
    /// have no parity, because the peer would rebuild garbage from it. `false`: datagrams have no
    /// room for FEC ([`Config::reserve`]), and nothing was changed.
    pub fn set_encode(&mut self, now: Instant, ratio: Option<Ratio>) -> bool {
        let has_room = self.config.reserve || self.config.encode.is_some();
        if ratio.is_some() && !has_room {
            return false;
        }
        self.config.reserve = has_room;
        self.config.encode = ratio;
        self.former = match self.protection.take() {
            Some(mut protection) => Some(protection.end()),
            None => Some(self.former.unwrap_or_default()),
        };
        self.protect(now);
        true
    }

    /// Changes [`Config::rate`].
    pub fn set_rate(&mut self, now: Instant, rate: Option<u64>) {
        self.rate = rate.map(|rate| Rate::new(rate, now));
    }

    /// The number of the conversation.
    #[must_use]
    pub const fn conversation(&self) -> Conversation {
        self.config.engine.conversation
    }

    /// Bytes that [`write`](Self::write) takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.engine.room()
    }

    /// Writes bytes to the stream. Bytes without room stay in `bytes`. Returns the number of bytes
    /// that were taken.
    pub fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize {
        self.touch(now);
        self.engine.write(now, bytes)
    }

    /// Sends a message as a whole. `false`: there is no room, or the message is empty or needs more
    /// than 255 segments.
    #[must_use]
    pub fn send(&mut self, now: Instant, message: Bytes) -> bool {
        self.touch(now);
        self.engine.send(now, message)
    }

    /// The next bytes of the stream, at most `most`, or the next message of any length. `None` if
    /// none has arrived.
    pub fn read(&mut self, most: usize) -> Option<Bytes> {
        self.engine.read(most)
    }

    /// Queues a datagram beside the stream. It is sent once, and may be lost. Peers before kcp-go
    /// v5.6.60 do not know such datagrams and misread them. If too many datagrams wait, the oldest
    /// is dropped.
    ///
    /// # Errors
    ///
    /// The datagram is longer than [`oob_room`](Self::oob_room).
    pub fn send_oob(&mut self, payload: Bytes) -> Result<(), TooLong> {
        let (length, room) = (payload.len(), self.oob_room());
        if length > room {
            return Err(TooLong { length, room });
        }
        let is_dropped = self.oob_out.push(payload);
        self.counters.oob_dropped += u64::from(is_dropped);
        Ok(())
    }

    /// The longest payload of a datagram beside the stream, in bytes.
    #[must_use]
    pub fn oob_room(&self) -> usize {
        let datagram = self.config.datagram.min(envelope::LONGEST_DATAGRAM);
        datagram.saturating_sub(self.seal.overhead() + OOB_HEAD)
    }

    /// The next datagram that arrived beside the stream.
    pub fn read_oob(&mut self) -> Option<Bytes> {
        self.oob_in.pop()
    }

    /// Whether a read has opened the window, so that there is something to transmit. Other reads
    /// need no call of [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub const fn opens_window(&self) -> bool {
        self.engine.opens_window()
    }

    /// Whether all written bytes are acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.engine.is_flushed()
    }

    /// Whether the peer has been silent for
    /// [`dead_after`](crate::engine::Config::dead_after) while an answer was due.
    #[must_use]
    pub fn is_dead(&self, now: Instant) -> bool {
        self.engine.is_dead(now)
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.engine.round_trip()
    }

    /// Bytes in flight, including heads of segments.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }

    /// The counters of the session.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let fec = self.decoder.as_ref().map(|decoder| decoder.counters()).unwrap_or_default();
        Counters { engine: *self.engine.counters(), fec, ..self.counters }
    }

    /// The time of the next event. `None` while the session is idle.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        // Nothing may be sent before this time.
        if let Some(held) = self.rate.as_ref().and_then(Rate::held) {
            return Some(held);
        }
        [self.engine.timeout(), self.closes(), self.repeats_from(), self.rests()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.closes())
            && let Some(protection) = &mut self.protection
        {
            protection.close(now);
        }
        if is_due(self.rests()) {
            // A session with unacknowledged bytes becomes active again.
            self.is_awake = false;
            self.rest();
        }
    }

    /// When the open group is closed early. If all packets are acknowledged, the group needs no
    /// parity.
    fn closes(&self) -> Option<Instant> {
        self.protection.as_ref().filter(|_| self.engine.in_flight() > 0)?.closes()
    }

    /// When the budget allows a waiting retransmission.
    fn repeats_from(&self) -> Option<Instant> {
        let budget = self.budget.as_ref().filter(|_| self.engine.waits_to_repeat())?;
        budget.repeats_from()
    }

    fn rests(&self) -> Option<Instant> {
        self.is_awake.then(|| self.active + REST)
    }

    const fn touch(&mut self, now: Instant) {
        self.active = now;
        self.is_awake = true;
    }

    fn rest(&mut self) {
        if self.engine.is_flushed()
            && let Some(protection) = &mut self.protection
        {
            protection.rest();
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.rest();
        }
        self.engine.rest();
        self.nonces.rest();
        self.oob_in.rest();
        self.oob_out.rest();
    }
}
