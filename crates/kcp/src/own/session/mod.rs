//! A session over the project's own packets: a reliable stream, or messages, and datagrams.
//!
//! A session is a plain value. Inputs are [`handle_datagram`](Session::handle_datagram) and
//! [`handle_timeout`](Session::handle_timeout), commands are [`challenge`](Session::challenge),
//! [`path_changed`](Session::path_changed), [`write`](Session::write), [`send`](Session::send),
//! [`finish`](Session::finish), [`read`](Session::read), [`send_datagram`](Session::send_datagram)
//! and [`read_datagram`](Session::read_datagram), outputs are
//! [`poll_transmit`](Session::poll_transmit) and [`timeout`](Session::timeout). The one rule for a
//! driver: after any input or command, call `poll_transmit` until it returns `None`, then set a
//! timer to `timeout`.
//!
//! # Loss
//!
//! The receiver acknowledges the packets that have arrived, and reports rebuilt segments
//! separately. So the sender knows the loss of the path. The congestion controller and the parity
//! adapt to this loss, whether it was repaired or not: parity must not hide from the controller
//! that a queue overflows. [`Control::Bbr`](crate::Control::Bbr) does not slow down for random
//! loss.
//!
//! A lost packet of a group is retransmitted only if the parity of the group does not suffice
//! (`groups`). It keeps its position in the group, so that one retransmission has the effect of one
//! more parity shard. In a bulk transfer parity and retransmissions together exceed the loss only
//! slightly.

mod close;
mod config;
mod counters;
mod datagrams;
mod flight;
mod groups;
mod look;
mod loss;
mod mtu;
mod parts;
mod paths;
mod protect;
mod put;
mod receive;
mod received;
mod rest;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::fec::{Decoder, Encoder, Policy, Rebuilt, SIZE};
use super::{Keys, Replay};
use crate::Sn;
use crate::stream::control::{Controller, Pacer};
use crate::stream::incoming::Incoming;
use crate::stream::outgoing::Outgoing;
use crate::stream::probe::WindowProbe;

pub use close::Closed;
pub use config::Config;
pub use counters::Counters;
pub use datagrams::Unsent;
pub use paths::{Heard, PathUse, Transmit};

use close::Closing;
use datagrams::Datagrams;
use flight::Flight;
use groups::{Groups, Sequence};
use mtu::Search;
use parts::{Parts, Piece};
use received::Received;

/// The window of the peer, in segments, until its first acknowledgement.
const FIRST_WINDOW: u16 = 64;

/// The state of the close of the sending direction.
///
/// ```text
///   Open --finish--> Wanted --all before it left--> Sent
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Open,
    Wanted,
    /// The segment that ends the stream.
    Sent(Sn),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    keys: Box<dyn Keys>,
    replay: Replay,
    outgoing: Outgoing,
    incoming: Incoming,
    finish: Finish,
    /// The segment that ends the peer's direction.
    end: Option<Sn>,
    received: Received,
    flight: Flight,
    groups: Groups,
    controller: Controller,
    pacer: Pacer,
    policy: Policy,
    encoder: Encoder,
    decoder: Decoder,
    /// Memory for the shards that the decoder rebuilds.
    rebuilt: Rebuilt,
    /// Sequences that wait for retransmission.
    lost: VecDeque<Sequence>,
    /// Sequences that are sent without permission of the controller.
    probes: VecDeque<Sequence>,
    /// Parts of segments that are larger than a packet.
    parts_out: VecDeque<Piece>,
    parts_in: Parts,
    /// The search for the size of packets. `config.datagram` has the current size.
    mtu: Search,
    /// Whether a packet that requests an acknowledgement must be sent.
    ping: bool,
    /// The number of parity shards of the open group that must be sent, and whether the group ends
    /// with them.
    owed: u8,
    ends_group: bool,
    /// The parity of the open group once the group is full. For sparse traffic it is decided later.
    planned: Option<u8>,
    /// The time at which data without parity gets parity.
    flush: Option<Instant>,
    /// The number of packets with data since there was last no data to send.
    busy: u32,
    datagrams_out: Datagrams,
    datagrams_in: Datagrams,
    peer_window: u16,
    /// The number of the packet that reported `peer_window`.
    told_by: u64,
    window_probe: WindowProbe,
    paced: Option<Instant>,
    /// Whether packets are sent as ECT(0).
    is_ect: bool,
    /// The number of packets since the last packet that requires an acknowledgement.
    unasked: u32,
    /// The first packet that was sent on the current path.
    path_begin: u64,
    /// A path challenge that must be sent, and the response to the last challenge that arrived.
    challenge: Option<[u8; 8]>,
    answer: Option<[u8; 8]>,
    closing: Closing,
    heard: Option<Instant>,
    /// The time of the last activity. `None` if there is no memory to release.
    active: Option<Instant>,
    /// Whether the peer is dead. Nothing is sent until a packet of the peer arrives.
    is_silent: bool,
    is_limited: bool,
    /// The content of a packet that is being built.
    body: Vec<u8>,
    counters: Counters,
}

impl Session {
    /// A new session. Both ends begin in the same state, with keys and ids that belong together.
    #[must_use]
    pub fn new(config: Config, keys: Box<dyn Keys>, now: Instant) -> Self {
        let tag = keys.tag();
        let payload = config.payload(tag);
        Self {
            outgoing: Outgoing::new(payload, config.send_window, config.stream),
            incoming: Incoming::new(config.receive_window, config.stream),
            finish: Finish::Open,
            end: None,
            replay: Replay::default(),
            received: Received::default(),
            flight: Flight::new(),
            groups: Groups::default(),
            controller: Controller::new(config.control, now, config.datagram),
            pacer: Pacer::new(now),
            policy: Policy::new(config.protection, now),
            encoder: Encoder::new(config.body(tag)),
            decoder: Decoder::new(config.decode_memory),
            rebuilt: Rebuilt::default(),
            lost: VecDeque::new(),
            probes: VecDeque::new(),
            parts_out: VecDeque::new(),
            parts_in: Parts::default(),
            mtu: Search::new(config.datagram, config.datagram_most),
            ping: false,
            owed: 0,
            ends_group: false,
            planned: None,
            flush: None,
            busy: 0,
            datagrams_out: Datagrams::default(),
            datagrams_in: Datagrams::default(),
            peer_window: FIRST_WINDOW,
            told_by: 0,
            window_probe: WindowProbe::default(),
            paced: None,
            is_ect: true,
            unasked: 0,
            path_begin: 0,
            challenge: None,
            answer: None,
            closing: Closing::default(),
            heard: None,
            active: None,
            is_silent: false,
            is_limited: true,
            body: Vec::new(),
            counters: Counters::default(),
            config,
            keys,
        }
    }

    /// The number of bytes that [`write`](Self::write) takes now. 0 after [`finish`](Self::finish).
    #[must_use]
    pub fn room(&self) -> usize {
        if self.finish == Finish::Open { self.outgoing.room() } else { 0 }
    }

    /// Writes bytes to the stream. Bytes without room stay in `bytes`. Returns the number of bytes
    /// that were taken, which is 0 after [`finish`](Self::finish).
    pub fn write(&mut self, _now: Instant, bytes: &mut Bytes) -> usize {
        if self.finish == Finish::Open { self.outgoing.write(bytes) } else { 0 }
    }

    /// Sends a message as a whole. `false`: there is no room, or the message is empty or needs more
    /// than 255 segments, or the direction was ended.
    #[must_use]
    pub fn send(&mut self, _now: Instant, message: Bytes) -> bool {
        self.finish == Finish::Open && self.outgoing.message(message)
    }

    /// Ends the sending direction after all written bytes. The other direction stays open.
    pub fn finish(&mut self, _now: Instant) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
        }
    }

    /// Whether the peer has ended its direction and all of its bytes were read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.incoming.is_read() && self.end.is_some_and(|end| end.is_before(self.incoming.next()))
    }

    /// The next bytes of the stream, at most `most`, or the next message of any length. `None` if
    /// none has arrived.
    pub fn read(&mut self, most: usize) -> Option<Bytes> {
        self.incoming.read(most)
    }

    /// Raises the limits for an authenticated peer. From now on this end holds at least
    /// `receive_window` segments and `decode_memory` bytes of shards, and [`Config::unread`] does
    /// not apply. A session begins with low limits, because its peer is unknown.
    pub fn raise_limits(&mut self, receive_window: u16, decode_memory: usize) {
        self.incoming.widen(receive_window);
        self.config.unread = usize::MAX;
        if decode_memory > self.config.decode_memory {
            self.config.decode_memory = decode_memory;
            self.decoder.set_most(decode_memory);
        }
    }

    /// Whether all written bytes are acknowledged, including the end of the direction if it was
    /// ended.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        !self.has_fresh() && self.outgoing.outstanding() == 0
    }

    fn has_fresh(&self) -> bool {
        self.outgoing.has_fresh() || self.finish == Finish::Wanted
    }

    /// Whether the peer has been silent for [`Config::dead_after`] while an acknowledgement was
    /// due. From then on nothing is sent and no timer runs, until a packet of the peer arrives.
    #[must_use]
    pub fn is_dead(&self, now: Instant) -> bool {
        let owes = self.flight.packets.in_flight() > 0 || self.outgoing.outstanding() > 0;
        owes && self.heard.is_some_and(|heard| now >= heard + self.config.dead_after)
    }

    /// The memory of buffers of received data, of shards, and of sums, in bytes. Written bytes are
    /// shared with the writer and not counted.
    #[must_use]
    pub fn held(&self) -> usize {
        self.incoming.held()
            + self.decoder.memory()
            + self.encoder.held()
            + self.body.capacity()
            + self.parts_in.held()
            + self.datagrams_in.held()
    }

    /// The counters of the session.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The current limit of the size of packets in bytes, between [`Config::datagram`] and
    /// [`Config::datagram_most`].
    #[must_use]
    pub const fn datagram(&self) -> u16 {
        self.mtu.size()
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.flight.packets.rtt.smoothed()
    }

    /// The measured share of packets that the path loses, 0 to 1.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.policy.loss()
    }

    /// Bytes of packets in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.flight.packets.in_flight()
    }

    /// The time of the next event. `None` while nothing is in flight or due, and once the peer is
    /// dead.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        if self.is_silent || self.closing.is_over() {
            return None;
        }
        let probe = self.probe_due();
        let dead = self.heard.filter(|_| probe.is_some()).map(|at| at + self.config.dead_after);
        [
            self.received.due(),
            self.flight.packets.overdue(),
            self.groups.due(self.patience()),
            probe,
            dead,
            self.paced,
            // Parity has no separate deadline while other content is queued.
            self.flush.filter(|_| self.is_limited),
            self.window_probe.due(),
            self.rest_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.is_silent = self.is_dead(now);
        if self.is_silent || self.closing.is_over() {
            return;
        }
        if self.flight.packets.overdue().is_some_and(|at| at <= now) {
            self.find_lost(now);
        }
        self.give_up_overdue(now);
        if self.probe_due().is_some_and(|at| at <= now) {
            self.probe(now);
        }
        if self.rest_due().is_some_and(|at| at <= now) {
            self.rest();
        }
    }
}
