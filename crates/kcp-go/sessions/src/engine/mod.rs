//! The engine: a reliable stream, or messages, over unreliable datagrams, with the layout of
//! kcp-go.
//!
//! It is a plain value. Inputs are [`handle_datagram`](Engine::handle_datagram) and
//! [`handle_timeout`](Engine::handle_timeout), commands are [`write`](Engine::write),
//! [`send`](Engine::send) and [`read`](Engine::read), outputs are
//! [`poll_transmit`](Engine::poll_transmit) and [`timeout`](Engine::timeout). The one rule for a
//! driver: after any input or command, call `poll_transmit` until it returns `None`, then set a
//! timer to `timeout`.
//!
//! It differs from the machine of kcp-go in ways that a peer cannot see:
//!
//! | | kcp-go | here |
//! |---|---|---|
//! | an acknowledgement | two scans of all that is under way | constant time: rings by `sn` and by transmission |
//! | loss | one acknowledgement may repeat a segment, once | by count and by time of what arrived (RACK), repeatedly |
//! | a lost acknowledgement | the segment is sent again for nothing | acknowledgements behind a gap are told three times |
//! | tail | a timeout | a probe after a timeout, doubled each time |
//! | timers | a flush each interval | the next event, none when idle |
//! | rate | a window as one burst | paced, by [`Control`] |
//! | a full queue | drops silently | [`write`](Engine::write) takes less |

mod acks;
mod config;
mod counters;
mod recovery;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::fec::adaptive::Report;
use crate::wire::{Command, Malformed, Millis, Segments, Sn};
use kcp::stream::control::{Controller, Pacer};
use kcp::stream::incoming::{Arrival, Incoming};
use kcp::stream::outgoing::{Outgoing, State};
use kcp::stream::probe::WindowProbe;

pub use config::Config;
pub use counters::Counters;
pub use kcp::Control;

use acks::{Ack, Acks};
use recovery::{Recovery, Transmission};

/// The window of a peer before its first segment, in segments. kcp-go assumes the same.
const FIRST_WINDOW: u16 = 32;

/// The purpose of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The datagram holds no payload, so FEC need not protect it.
    Control,
    /// The datagram holds payload.
    Data,
}

/// One end of a conversation.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    /// Timestamps count from here.
    epoch: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    acks: Acks,
    recovery: Recovery,
    controller: Controller,
    pacer: Pacer,
    /// Segments that wait to be sent again.
    lost: VecDeque<Sn>,
    /// Segments that are sent without permission of the controller.
    probes: VecDeque<Sn>,
    /// The number of segments after the last `una` for which the peer has room.
    peer_window: u16,
    window_probe: WindowProbe,
    /// When the pacer allows the next segment. Set while the pacer holds a segment back.
    paced: Option<Instant>,
    /// Written bytes wait until this time.
    delayed: Option<Instant>,
    /// The time of the last datagram of the peer, or of the first segment that was sent after it.
    heard: Option<Instant>,
    /// The peer is dead. Nothing is sent until a datagram of the peer arrives.
    is_silent: bool,
    /// There is no data to send beyond the data in flight.
    is_limited: bool,
    /// Lost segments wait, and probes do not wait.
    holds_repeats: bool,
    counters: Counters,
}

impl Engine {
    /// A new conversation. Both ends begin in the same state.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            epoch: now,
            outgoing: Outgoing::new(config.payload(), config.send_window, config.stream),
            incoming: Incoming::new(config.receive_window, config.stream),
            acks: Acks::default(),
            recovery: Recovery::new(config.resend),
            controller: Controller::new(config.control, now, config.mtu),
            pacer: Pacer::new(now),
            lost: VecDeque::new(),
            probes: VecDeque::new(),
            peer_window: FIRST_WINDOW,
            window_probe: WindowProbe::default(),
            paced: None,
            delayed: None,
            heard: None,
            is_silent: false,
            is_limited: true,
            holds_repeats: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Bytes that [`write`](Self::write) takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.outgoing.room()
    }

    /// Writes bytes to the stream. Bytes without room stay in `bytes`. Returns the number of bytes
    /// that were taken.
    pub fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize {
        let taken = self.outgoing.write(bytes);
        if taken > 0 {
            self.wait_for_company(now);
        }
        taken
    }

    /// Sends a message as a whole. `false`: there is no room, or the message is empty or needs more
    /// than 255 segments.
    #[must_use]
    pub fn send(&mut self, now: Instant, message: Bytes) -> bool {
        let sent = self.outgoing.message(message);
        if sent {
            self.wait_for_company(now);
        }
        sent
    }

    fn wait_for_company(&mut self, now: Instant) {
        if self.config.write_delay && self.delayed.is_none() {
            self.delayed = Some(now + self.config.interval);
        }
    }

    /// The next bytes of the stream, at most `most`, or the next message of any length. `None` if
    /// none has arrived.
    pub fn read(&mut self, most: usize) -> Option<Bytes> {
        self.incoming.read(most)
    }

    /// Whether a read has opened the window, so that there is something to transmit. Other reads
    /// need no call of [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub const fn opens_window(&self) -> bool {
        self.incoming.opens_window()
    }

    /// Whether all written bytes are acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        !self.outgoing.has_fresh() && self.outgoing.outstanding() == 0
    }

    /// Whether the peer has been silent for [`Config::dead_after`] while an answer was due. From
    /// then on nothing is sent and no timer runs, until a datagram of the peer arrives.
    #[must_use]
    pub fn is_dead(&self, now: Instant) -> bool {
        let owes = self.recovery.flight.in_flight() > 0 || self.outgoing.outstanding() > 0;
        owes && self.heard.is_some_and(|heard| now >= heard + self.config.dead_after)
    }

    /// The counters of the engine.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.recovery.flight.rtt.smoothed()
    }

    /// Bytes in flight, including heads of segments.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.recovery.flight.in_flight()
    }

    /// Releases the memory that an idle conversation does not need. The state does not change. A
    /// driver calls this after a while without activity, because rings have to grow again.
    pub fn rest(&mut self) {
        if self.incoming.is_idle() && self.acks.due().is_none() {
            self.incoming.rest();
            self.acks.rest();
        }
        if self.is_flushed() {
            self.outgoing.rest();
            self.recovery.flight.rest();
            self.controller.rest();
            self.lost.shrink_to(8);
            self.probes.shrink_to(8);
        }
    }

    /// Sets whether lost segments wait. A driver with a budget decides it before each datagram.
    /// Probes are sent in any case.
    pub const fn hold_repeats(&mut self, holds: bool) {
        self.holds_repeats = holds;
    }

    /// Whether [`hold_repeats`](Self::hold_repeats) keeps segments from being sent again. Segments
    /// that wait for the controller do not count, because they wait for an acknowledgement.
    #[must_use]
    pub fn waits_to_repeat(&self) -> bool {
        !self.is_silent && self.holds_repeats && !self.lost.is_empty()
    }

    /// Changes [`Config::resend`].
    pub fn set_resend(&mut self, resend: u16) {
        self.recovery.flight.overtake = u64::from(resend);
    }

    /// Sets whether segments that are sent from now on are in FEC groups with parity.
    pub const fn protect(&mut self, is_protected: bool) {
        self.recovery.is_protected = is_protected;
    }

    /// The outcomes of transmissions since the last call.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.recovery.report)
    }

    fn stamp(&self, now: Instant) -> Millis {
        let millis = now.saturating_duration_since(self.epoch).as_millis();
        // Timestamps wrap.
        Millis((millis & u128::from(u32::MAX)) as u32)
    }

    /// Reads the segments of a datagram. `is_repaired`: FEC has rebuilt the datagram. It is late,
    /// so its window and its timestamps are ignored.
    ///
    /// # Errors
    ///
    /// The datagram is malformed. Segments before the malformed one count.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        is_repaired: bool,
    ) -> Result<(), Malformed> {
        let mut batch = Batch::default();
        let mut result = Ok(());
        for segment in Segments::new(self.config.conversation, datagram) {
            let segment = match segment {
                Ok(segment) => segment,
                Err(malformed) => {
                    self.counters.malformed += 1;
                    result = Err(malformed);
                    break;
                }
            };
            self.heard = Some(now);
            self.is_silent = false;
            self.counters.segments_in += 1;
            let head = segment.head;
            if !is_repaired {
                self.peer_window = head.window;
            }
            if head.command == Command::Ack {
                // This precedes `una`, which usually covers the segment as well: the timestamp
                // shows which transmission has arrived.
                self.acknowledge(now, head.sn, head.timestamp, &mut batch);
            }
            self.acknowledge_before(now, head.una, &mut batch);
            match head.command {
                Command::Push => {
                    let delay = if self.config.ack_no_delay {
                        Duration::ZERO
                    } else {
                        self.config.interval
                    };
                    let ack = Ack { sn: head.sn, timestamp: head.timestamp };
                    let what = (head.fragments, segment.payload);
                    match self.acks.push(&mut self.incoming, now, ack, what, delay) {
                        Arrival::New => self.counters.bytes_in += segment.payload.len() as u64,
                        Arrival::Again => self.counters.repeated_in += 1,
                        Arrival::Beyond => self.counters.beyond_in += 1,
                    }
                }
                Command::AskWindow => self.incoming.tell_window(),
                Command::Ack | Command::TellWindow => {}
            }
        }
        self.end_batch(now, &batch, is_repaired);
        result
    }

    /// All segments before `una` have arrived.
    fn acknowledge_before(&mut self, now: Instant, una: Sn, batch: &mut Batch) {
        // A peer cannot have a segment that was never sent.
        if self.outgoing.next().is_before(una) {
            return;
        }
        while let Some((_, sent)) = self.outgoing.pop_before(una) {
            batch.progress = true;
            let is_certain = sent.transmissions == 1;
            if sent.state == State::Flying
                && let Some(transmission) = self.recovery.arrived(sent.transmission, is_certain)
                && is_certain
            {
                batch.arrived(self, now, sent.transmission, &transmission);
            }
        }
    }

    fn acknowledge(&mut self, now: Instant, sn: Sn, timestamp: Millis, batch: &mut Batch) {
        let Some(sent) = self.outgoing.sent(sn) else { return };
        let (state, number, times) = (sent.state, sent.transmission, sent.transmissions);
        if state == State::Done {
            return;
        }
        sent.state = State::Done;
        sent.payload = Bytes::new();
        batch.progress = true;
        if state == State::Lost {
            // The segment was only late.
            self.recovery.flight.reordered();
            self.counters.spurious += 1;
        } else {
            let is_latest = times == 1
                || self.recovery.flight.cargo(number).is_some_and(|it| it.stamp == timestamp);
            if let Some(transmission) = self.recovery.arrived(number, is_latest) {
                if is_latest {
                    batch.arrived(self, now, number, &transmission);
                    batch.sample(number, now.saturating_duration_since(transmission.at));
                } else {
                    self.recovery.flight.reordered();
                    self.counters.spurious += 1;
                }
            }
        }
        self.outgoing.trim();
    }

    fn end_batch(&mut self, now: Instant, batch: &Batch, is_repaired: bool) {
        if !batch.progress {
            return;
        }
        if let Some((_, took)) = batch.sample
            && !is_repaired
        {
            self.recovery.flight.rtt.sample(took);
        }
        self.recovery.flight.acknowledged();
        self.find_lost(now);
        let in_flight = self.recovery.flight.in_flight();
        self.controller.batch_ends(now, in_flight, self.is_limited, batch.newest);
    }

    /// Declares transmissions lost.
    fn find_lost(&mut self, now: Instant) {
        let mut bytes = 0;
        let mut newest = 0;
        let mut sent = now;
        while let Some(transmission) = self.recovery.pop_lost(now) {
            bytes += u64::from(transmission.bytes);
            sent = transmission.at;
            newest = self.give_up(transmission).unwrap_or(newest);
        }
        if bytes > 0 {
            let next = self.recovery.flight.next();
            self.controller.lost(now, (sent, bytes), (newest, next));
        }
    }

    /// A transmission is lost, so its segment has to be sent again. Returns the number of the
    /// transmission.
    fn give_up(&mut self, transmission: Transmission) -> Option<u64> {
        let sent = self.outgoing.sent(transmission.cargo.sn)?;
        if sent.state == State::Flying {
            sent.state = State::Lost;
            self.lost.push_back(transmission.cargo.sn);
            self.counters.lost += 1;
        }
        Some(sent.transmission)
    }

    /// The time of the next event. `None` while nothing is in flight or due, and once the peer is
    /// dead.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        if self.is_silent {
            return None;
        }
        let probe = self.recovery.flight.probe_due(self.config.interval, self.config.least_timeout);
        let dead = self.heard.filter(|_| probe.is_some()).map(|at| at + self.config.dead_after);
        [
            self.acks.due(),
            self.recovery.flight.overdue(),
            probe,
            dead,
            self.paced,
            self.delayed,
            self.window_probe.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.is_silent = self.is_dead(now);
        if self.is_silent {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.recovery.flight.overdue()) {
            self.find_lost(now);
        }
        if is_due(self.recovery.flight.probe_due(self.config.interval, self.config.least_timeout)) {
            self.probe(now);
        }
        if is_due(self.delayed) {
            self.delayed = None;
        }
    }

    /// Nothing has arrived for a timeout. The oldest and the newest segment are sent again: the
    /// answer shows which other segments are lost.
    fn probe(&mut self, now: Instant) {
        self.counters.probes += 1;
        if self.recovery.flight.probed() {
            self.controller.path_is_void(now);
            while let Some(transmission) = self.recovery.pop_any() {
                self.give_up(transmission);
            }
        }
        if let Some((oldest, newest)) = self.outgoing.ends() {
            self.probes.clear();
            self.probes.push_back(oldest);
            if oldest != newest {
                self.probes.push_back(newest);
            }
        }
    }
}

/// The combined result of the acknowledgements of a datagram.
#[derive(Debug, Default)]
struct Batch {
    progress: bool,
    /// The newest transmission that arrived.
    newest: Option<u64>,
    /// The round trip of the newest transmission with a known round trip. Its acknowledgement has
    /// the shortest delay at the peer.
    sample: Option<(u64, Duration)>,
}

impl Batch {
    /// Reports an arrived transmission to the controller. An earlier copy is not reported, because
    /// the time of its transmission is not known any more, and the time of the later copy would
    /// make the round trip too short.
    fn arrived(
        &mut self,
        engine: &mut Engine,
        now: Instant,
        number: u64,
        transmission: &Transmission,
    ) {
        self.newest = self.newest.max(Some(number));
        let round_trip = engine.recovery.flight.rtt.smoothed();
        let Transmission { at, bytes, is_limited, .. } = *transmission;
        engine.controller.arrived(now, (at, u64::from(bytes), is_limited), round_trip);
    }

    fn sample(&mut self, number: u64, took: Duration) {
        if self.sample.is_none_or(|(newest, _)| newest < number) {
            self.sample = Some((number, took));
        }
    }
}
