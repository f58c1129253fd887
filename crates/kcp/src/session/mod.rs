//! A session as kcp-go has it: the [engine](crate::engine), [FEC](crate::fec) and an
//! [envelope](crate::envelope), from bytes to sealed datagrams and back.
//!
//! It is a plain value like the engine: after any input or command, the driver calls
//! [`poll_transmit`](Session::poll_transmit) until it returns `None`, then sets a timer to
//! [`timeout`](Session::timeout).
//!
//! What a datagram passes through:
//!
//! ```text
//! write ─ engine ─ encoder ─ seal ─► datagram ─► open ─ decoder ─ engine ─ read
//!                     └ parity ─ seal ─►                   └ rebuilt segments
//! ```
//!
//! Segments are written once, behind room for the heads, and sealed in place. Datagrams that only
//! acknowledge get no shard's head: a stock peer takes them, and no parity is spent on them.

mod config;
mod counters;
mod limit;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::{Engine, Purpose};
use crate::envelope::{Seal, Sizes, TooSmall};
use crate::fec::adaptive::EarlyClose;
use crate::fec::{Decoder, Encoder, LONGEST_PAUSE, Ratio, Settings, Shard};
use crate::wire::{Content, Conversation, HEAD, OOB_HEAD, SHARD_HEAD, ShardId, oob_head};

pub use config::Config;
pub use counters::Counters;

use limit::{Extra, Rate};

/// The most datagrams out of band that wait in each direction. A newer one drops the oldest.
pub const OOB_QUEUE: usize = 64;

/// Nonces are shorter.
const LONGEST_NONCE: usize = 32;

/// Heads of IPv4 and UDP, which closing a group early costs as well.
const IP_HEADS: usize = 28;

/// The shards without parity after a change of the ratio: the peer's 258 samples are new then, even
/// where half of them get lost.
pub const SILENT_SHARDS: u32 = 600;

/// A datagram out of band is longer than [`Session::longest_oob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes do not fit into a datagram out of band, which holds {longest}")]
pub struct OobTooLong {
    /// The length that was wanted, in bytes.
    pub length: usize,
    /// The most, in bytes; 0 without FEC.
    pub longest: usize,
}

/// One end of a conversation with a stock peer.
#[derive(Debug)]
pub struct Session {
    conversation: Conversation,
    engine: Engine,
    seal: Arc<dyn Seal>,
    sizes: Sizes,
    encoder: Option<Encoder>,
    decoder: Option<Decoder>,
    early: EarlyClose,
    rate: Option<Rate>,
    extra: Extra,
    /// The parity of the present group is left out or sent, as a whole.
    parity: Parity,
    /// Shards that go without parity after a change of the ratio.
    silent: u32,
    /// Until then the rate holds back what there is to send.
    held: Option<Instant>,
    oob_out: VecDeque<Bytes>,
    oob_in: VecDeque<Bytes>,
    counters: Counters,
}

/// What happens to the parity of the group that was finished last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parity {
    Undecided,
    Sent,
    Saved,
}

impl Session {
    /// A new session. Both ends begin in the same state.
    ///
    /// # Errors
    ///
    /// [`Config::datagram`] leaves no room for a byte of payload.
    pub fn new(config: Config, seal: Arc<dyn Seal>, now: Instant) -> Result<Self, TooSmall> {
        let sizes = config.sizes(seal.overhead())?;
        let mut engine = config.engine;
        engine.mtu = u16::try_from(sizes.segments).unwrap_or(u16::MAX);
        let longest = sizes.datagram;
        Ok(Self {
            conversation: engine.conversation,
            engine: Engine::new(engine, now),
            encoder: config.encode.map(|ratio| Encoder::new(settings(ratio, &sizes))),
            decoder: config.decode.map(|ratio| Decoder::new(ratio, longest)),
            early: EarlyClose::new(Duration::ZERO, config.close_early, now),
            rate: config.rate.map(|rate| Rate::new(rate, now)),
            extra: Extra::new(config.extra),
            parity: Parity::Undecided,
            silent: 0,
            held: None,
            oob_out: VecDeque::new(),
            oob_in: VecDeque::new(),
            counters: Counters::default(),
            seal,
            sizes,
        })
    }

    /// Changes the shards of groups that are sent from now on, and returns whether it did: the
    /// session must have been made with FEC in this direction.
    ///
    /// A stock peer finds the ratio by itself, by its last 258 shards. As long as those of the ratio
    /// before are among them it may rebuild by that one, and takes wrong bytes for segments: all
    /// shards begin with the same bytes, so any code rebuilds those. Hence the next
    /// [`SILENT_SHARDS`] get no parity: without it nothing can be rebuilt.
    pub fn set_ratio(&mut self, ratio: Ratio) -> bool {
        let Some(encoder) = &mut self.encoder else { return false };
        let shards = u32::try_from(ratio.shards()).unwrap_or(1);
        // Numbers go on with the next one at which a group begins, or from 0 where they wrap.
        let first = (encoder.next().0 / shards + 1).checked_mul(shards).unwrap_or(0);
        *encoder = Encoder::starting_at(settings(ratio, &self.sizes), ShardId(first));
        encoder.set_parity(0);
        self.parity = Parity::Undecided;
        self.silent = SILENT_SHARDS;
        true
    }

    /// Bytes that [`write`](Self::write) takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.engine.room()
    }

    /// Writes bytes to the stream. What there is no room for stays in `bytes`; returns how many were
    /// taken.
    pub fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize {
        self.engine.write(now, bytes)
    }

    /// Sends a message as a whole. `false`: there is no room, or the message is empty or needs more
    /// than 255 segments.
    #[must_use]
    pub fn send(&mut self, now: Instant, message: Bytes) -> bool {
        self.engine.send(now, message)
    }

    /// The next bytes of the stream, at most `most`, or the next message; `None` where none has
    /// arrived.
    pub fn read(&mut self, most: usize) -> Option<Bytes> {
        self.engine.read(most)
    }

    /// The longest payload of a datagram out of band, in bytes; 0 without FEC in this direction.
    #[must_use]
    pub const fn longest_oob(&self) -> usize {
        self.sizes.out_of_band
    }

    /// Sends a datagram beside the stream, which may get lost.
    ///
    /// # Errors
    ///
    /// It is longer than [`longest_oob`](Self::longest_oob).
    pub fn send_oob(&mut self, payload: Bytes) -> Result<(), OobTooLong> {
        let (length, longest) = (payload.len(), self.longest_oob());
        if length > longest || longest == 0 {
            return Err(OobTooLong { length, longest });
        }
        self.counters.oob_dropped += push(&mut self.oob_out, payload);
        Ok(())
    }

    /// The next datagram that came beside the stream.
    pub fn read_oob(&mut self) -> Option<Bytes> {
        self.oob_in.pop_front()
    }

    /// Whether all that was written is acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.engine.is_flushed()
    }

    /// Whether the peer has been silent for too long while it owed an answer.
    #[must_use]
    pub fn is_dead(&self, now: Instant) -> bool {
        self.engine.is_dead(now)
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.engine.round_trip()
    }

    /// Bytes under way, heads of segments included.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            engine: *self.engine.counters(),
            fec: self.decoder.as_ref().map(Decoder::counters).unwrap_or_default(),
            ..self.counters
        }
    }

    /// Gives the memory back that an idle session does not need.
    pub fn rest(&mut self) {
        self.engine.rest();
        if let Some(encoder) = &mut self.encoder {
            encoder.rest();
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.rest();
        }
    }

    /// Takes a datagram of the peer. What cannot be opened or read is counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        let Ok(plaintext) = self.seal.open(datagram) else {
            self.counters.refused += 1;
            return;
        };
        let Some(content) = datagram.get(plaintext).and_then(Content::of) else {
            self.counters.malformed += 1;
            return;
        };
        self.handle_content(now, &content, datagram.len());
    }

    /// Takes what was in a datagram of `wire` bytes that a listener has opened.
    pub fn handle_opened(&mut self, now: Instant, plaintext: &[u8], wire: usize) {
        match Content::of(plaintext) {
            Some(content) => self.handle_content(now, &content, wire),
            None => self.counters.malformed += 1,
        }
    }

    fn handle_content(&mut self, now: Instant, content: &Content<'_>, wire: usize) {
        self.counters.datagrams_in += 1;
        self.counters.wire_in += u64::try_from(wire).unwrap_or(0);
        match *content {
            Content::Segments(segments) => self.handle_segments(now, segments),
            // Anything shorter only fills a group up.
            Content::Data { segments, .. } if segments.len() >= HEAD => {
                self.handle_segments(now, segments);
            }
            Content::Data { .. } | Content::Parity { .. } => {}
            Content::OutOfBand { conversation, payload } => {
                if conversation == self.conversation {
                    self.counters.oob_in += 1;
                    let payload = Bytes::copy_from_slice(payload);
                    self.counters.oob_dropped += push(&mut self.oob_in, payload);
                } else {
                    self.counters.oob_dropped += 1;
                }
            }
        }
        if let (Some(decoder), Some(shard)) = (&mut self.decoder, Shard::of(content)) {
            for segments in decoder.handle_shard(shard).segments() {
                if segments.len() >= HEAD {
                    // The engine counts what is malformed.
                    let _ = self.engine.handle_datagram(now, segments, true);
                }
            }
        }
    }

    fn handle_segments(&mut self, now: Instant, segments: &[u8]) {
        // The engine counts what is malformed.
        let _ = self.engine.handle_datagram(now, segments, false);
    }

    /// The time of the next event; `None` while nothing is under way or due.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        if self.held.is_some() {
            return self.held;
        }
        [self.engine.timeout(), self.closes()].into_iter().flatten().min()
    }

    /// When the open group is closed early. A group whose packets all arrived needs no parity.
    fn closes(&self) -> Option<Instant> {
        let encoder = self.encoder.as_ref()?;
        let opened = encoder.opened().filter(|_| self.engine.in_flight() > 0)?;
        let cost = encoder.cost_of_closing(self.seal.overhead() + IP_HEADS)?;
        self.early.deadline(opened, cost)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.held.is_some_and(|at| at <= now) {
            self.held = None;
        }
        self.engine.handle_timeout(now);
        if self.closes().is_some_and(|at| at <= now)
            && let Some(encoder) = &mut self.encoder
            && !encoder.is_closing()
        {
            let cost = encoder.cost_of_closing(self.seal.overhead() + IP_HEADS).unwrap_or(0);
            self.early.spend(cost, now);
            encoder.close_early();
        }
    }

    /// Appends the next datagram to `out`, sealed, and returns its length; `None` where nothing may
    /// leave now, and `out` is as it was. `random` fills a slice with bytes that never repeat: the
    /// nonce.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        random: &mut impl FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.held = self.rate.as_ref().and_then(|rate| rate.wait(now));
        if self.held.is_some() {
            return None;
        }
        let start = out.len();
        out.resize(start + self.seal.head(), 0);
        if !self.put_content(now, out) {
            out.truncate(start);
            return None;
        }
        out.resize(out.len() + self.seal.tail(), 0);
        let mut nonce = [0; LONGEST_NONCE];
        let nonce = nonce.get_mut(..self.seal.nonce()).unwrap_or_default();
        random(nonce);
        let datagram = out.get_mut(start..).unwrap_or_default();
        let length = datagram.len();
        if self.seal.seal(nonce, datagram).is_err() {
            // It cannot happen: the room is what the envelope asked for.
            out.truncate(start);
            return None;
        }
        self.counters.datagrams_out += 1;
        self.counters.wire_out += u64::try_from(length).unwrap_or(0);
        if let Some(rate) = &mut self.rate {
            rate.sent(now, length);
        }
        Some(length)
    }

    /// Appends what the next datagram holds; `false` where there is nothing.
    fn put_content(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.put_parity(out)
            || self.put_filler(now, out)
            || self.put_oob(out)
            || self.put_segments(now, out)
    }

    fn put_parity(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(encoder) = self.encoder.as_mut().filter(|encoder| encoder.has_parity()) else {
            return false;
        };
        if self.parity == Parity::Saved {
            return false;
        }
        let start = out.len();
        out.resize(start + self.sizes.segments + SHARD_HEAD, 0);
        let length = encoder.poll_parity(out.get_mut(start..).unwrap_or_default());
        let Some(length) = length else {
            out.truncate(start);
            return false;
        };
        if self.parity == Parity::Undecided {
            if !self.extra.allows(length * encoder.ratio().parity()) {
                // The next shard drops what was not asked for.
                self.parity = Parity::Saved;
                self.counters.parity_saved += 1;
                out.truncate(start);
                return false;
            }
            self.parity = Parity::Sent;
        }
        out.truncate(start + length);
        self.extra.spend(length);
        self.counters.parity_out += 1;
        true
    }

    fn put_filler(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(filler) = self.encoder.as_mut().and_then(|encoder| encoder.poll_filler(now))
        else {
            return false;
        };
        self.parity = Parity::Undecided;
        out.extend_from_slice(&filler);
        self.counters.fillers_out += 1;
        true
    }

    fn put_oob(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(payload) = self.oob_out.pop_front() else { return false };
        let Some(head) = oob_head(self.conversation, payload.len()) else { return false };
        out.extend_from_slice(&head);
        out.extend_from_slice(&payload);
        self.counters.oob_out += 1;
        debug_assert!(payload.len() + OOB_HEAD <= self.sizes.segments + SHARD_HEAD);
        true
    }

    fn put_segments(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let with_head = if self.encoder.is_some() { SHARD_HEAD } else { 0 };
        out.resize(start + with_head, 0);
        let before = *self.engine.counters();
        let Some(purpose) = self.engine.poll_transmit(now, out) else {
            out.truncate(start);
            return false;
        };
        let after = self.engine.counters();
        let length = out.len() - start - with_head;
        let fresh = after.bytes_out - before.bytes_out;
        let is_repeat = after.repeated_out > before.repeated_out;
        let repeated = if is_repeat { u64::try_from(length).unwrap_or(0) } else { 0 };
        self.extra.sent(fresh, repeated.saturating_sub(fresh));
        let Some(encoder) = &mut self.encoder else { return true };
        let segments = out.get(start + SHARD_HEAD..).unwrap_or_default();
        let head = match purpose {
            Purpose::Data => encoder.push(segments, now).ok(),
            Purpose::Control => None,
        };
        if let Some(head) = head {
            self.parity = Parity::Undecided;
            if self.silent > 0 {
                self.silent -= 1;
                if self.silent == 0 {
                    encoder.set_parity(encoder.ratio().parity());
                }
            }
            self.early.set_delay(self.engine.round_trip() / 4);
            if let Some(place) = out.get_mut(start..start + SHARD_HEAD) {
                place.copy_from_slice(&head);
            }
        } else {
            out.copy_within(start + SHARD_HEAD.., start);
            out.truncate(start + length);
        }
        true
    }
}

fn settings(ratio: Ratio, sizes: &Sizes) -> Settings {
    Settings { ratio, longest: sizes.segments, pause: Some(LONGEST_PAUSE) }
}

/// Appends to a bounded queue; returns how many were dropped.
fn push(queue: &mut VecDeque<Bytes>, payload: Bytes) -> u64 {
    let dropped = if queue.len() >= OOB_QUEUE { queue.pop_front() } else { None };
    queue.push_back(payload);
    u64::from(dropped.is_some())
}
