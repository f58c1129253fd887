//! The carriers of a link and their phases.
//!
//! ```text
//!   attach, first of the link -----------------------------> Live
//!   attach, others (replaces; adds while none is live) --> Resuming --both RESUMEs--> Live
//!   attach, adds while one is live --> Standby --the active one is lost or silent--> Resuming
//!   detach, silence, replaced: removed from any phase
//! ```
//! Frames are sent on one carrier, the active one. There is at most one standby. A standby carries
//! only PINGs, so its loss is detected like that of an idle carrier. It takes over without a dial
//! when the active carrier is lost, does not answer while the standby answers (`doubt.rs`), or has
//! been silent for the time after which another path would be tried otherwise. It does not matter
//! which side detects the loss first: a RESUME that arrives on a standby means that the peer has
//! lost the active carrier.

use crate::Instant;
use std::collections::VecDeque;

use bytes::Bytes;

use super::decoder::Decoder;
use super::doubt::{Advice, Compared, Doubt};
use super::liveness::{Liveness, Verdict};
use super::{Event, LinkConfig};
use crate::CarrierNumber;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Standby,
    /// Our RESUME is queued in `resume`; the peer's has not arrived.
    Resuming,
    Live,
}

#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) number: CarrierNumber,
    pub(super) phase: Phase,
    pub(super) decoder: Decoder,
    pub(super) liveness: Liveness,
    /// The value of the latest unanswered PING. One value suffices: a flood of PINGs gets one PONG.
    pub(super) pong: Option<u64>,
    /// Frames of our RESUME that are still to be sent.
    pub(super) resume: VecDeque<Bytes>,
    /// Entries of the peer's RESUME for streams that this side does not know.
    pub(super) unknown_listed: usize,
    /// Whether streams of the peer have their own lanes on this carrier.
    pub(super) has_lanes: bool,
    /// Whether the carrier has native datagrams.
    pub(super) takes_packets: bool,
    /// Whether our RESUME was sent by a preview, before the carrier was attached.
    pub(super) was_previewed: bool,
}

impl Carrier {
    pub(super) fn new(number: CarrierNumber, phase: Phase, now: Instant) -> Self {
        Self {
            number,
            phase,
            decoder: Decoder::default(),
            liveness: Liveness::new(now),
            pong: None,
            resume: VecDeque::new(),
            unknown_listed: 0,
            has_lanes: false,
            takes_packets: false,
            was_previewed: false,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Records that bytes arrived.
    pub(super) fn received(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.liveness.received(now) && self.phase != Phase::Standby {
            events.push_back(Event::Heard);
        }
    }
}

/// The live carrier and its standby, if there are both.
fn pair(all: &[Carrier]) -> Option<Compared<'_>> {
    if all.len() < 2 {
        return None;
    }
    let standby = all.iter().find(|carrier| carrier.phase == Phase::Standby)?;
    let active = all.iter().find(|carrier| carrier.is_live())?;
    let carrier = active.number;
    Some(Compared { carrier, active: &active.liveness, standby: &standby.liveness })
}

/// All carriers of a link: at most one active carrier and one standby.
#[derive(Debug)]
pub(super) struct Carriers {
    all: Vec<Carrier>,
    /// The time since which there is no carrier.
    alone_since: Option<Instant>,
    expired: bool,
    doubt: Doubt,
}

impl Carriers {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: Vec::new(), alone_since: Some(now), expired: false, doubt: Doubt::default() }
    }

    pub(super) fn active(&self) -> Option<&Carrier> {
        self.all.iter().find(|carrier| carrier.phase != Phase::Standby)
    }

    /// Sends a PING on the active carrier.
    pub(super) fn ask(&mut self) {
        if let Some(active) = self.all.iter_mut().find(|carrier| carrier.phase != Phase::Standby) {
            active.liveness.ask();
        }
    }

    pub(super) fn get(&self, number: CarrierNumber) -> Option<&Carrier> {
        self.all.iter().find(|carrier| carrier.number == number)
    }

    pub(super) fn find(&mut self, number: CarrierNumber) -> Option<&mut Carrier> {
        self.all.iter_mut().find(|carrier| carrier.number == number)
    }

    pub(super) fn add(&mut self, carrier: Carrier) {
        self.alone_since = None;
        self.all.push(carrier);
    }

    /// Removes the carriers that match; the driver closes each of them.
    pub(super) fn remove(
        &mut self,
        events: &mut VecDeque<Event>,
        matches: impl Fn(&Carrier) -> bool,
    ) {
        self.all.retain(|carrier| {
            let gone = matches(carrier);
            if gone {
                events.push_back(Event::CarrierDead(carrier.number));
            }
            !gone
        });
    }

    /// Removes a lost carrier. Returns whether it was the active carrier.
    pub(super) fn lose(&mut self, number: CarrierNumber) -> bool {
        let was_active = self.active().is_some_and(|carrier| carrier.number == number);
        self.all.retain(|carrier| carrier.number != number);
        was_active
    }

    pub(super) fn standby(&self) -> Option<CarrierNumber> {
        let standby = self.all.iter().find(|carrier| carrier.phase == Phase::Standby);
        standby.map(|carrier| carrier.number)
    }

    /// Starts the timer of `resume_timeout` if no carrier is left.
    pub(super) fn note_absence(&mut self, now: Instant) {
        if self.all.is_empty() {
            self.alone_since.get_or_insert(now);
        }
    }

    pub(super) fn poll_timeout(&self, config: &LinkConfig) -> Option<Instant> {
        let expiry =
            self.alone_since.filter(|_| !self.expired).map(|since| since + config.resume_timeout);
        let silence =
            self.all.iter().map(|carrier| carrier.liveness.poll_timeout(config.keepalive)).min();
        let doubt = pair(&self.all).and_then(|pair| self.doubt.poll_timeout(pair));
        [expiry, silence, doubt].into_iter().flatten().min()
    }

    /// Gives up the active carrier, so that its standby takes over: the driver closes the carrier.
    pub(super) fn give_up(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        events: &mut VecDeque<Event>,
    ) {
        if self.standby().is_some() && self.get(number).is_some_and(Carrier::is_live) {
            self.doubt.gave_up(now);
            events.push_back(Event::CarrierDead(number));
        }
    }

    /// Compares a silent active carrier with its standby.
    fn compare(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        let Some(pair) = pair(&self.all) else { return };
        match self.doubt.handle_timeout(pair, now) {
            Advice::AskActive => self.ask(),
            Advice::AskBoth(active) => {
                self.all.iter_mut().for_each(|carrier| carrier.liveness.ask());
                events.push_back(Event::Doubted(active));
            }
            Advice::Unanswered(number) => events.push_back(Event::Unanswered(number)),
            Advice::Nothing => {}
        }
    }

    /// Only queues events: on `CarrierDead` the driver closes the carrier and calls
    /// [`super::Link::detach`].
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        config: &LinkConfig,
        events: &mut VecDeque<Event>,
    ) {
        let has_standby = self.standby().is_some();
        for carrier in &mut self.all {
            let was_silent = carrier.liveness.is_silent();
            let verdict = carrier.liveness.handle_timeout(now, config.keepalive);
            let is_standby = carrier.phase == Phase::Standby;
            if carrier.liveness.is_silent() && !was_silent && !is_standby {
                events.push_back(Event::Silent);
            }
            if verdict == Verdict::Dead || (verdict == Verdict::Probe && has_standby && !is_standby)
            {
                // Report the loss once: the next deadline is a full silence away.
                carrier.liveness.received(now);
                events.push_back(Event::CarrierDead(carrier.number));
            } else if verdict == Verdict::Probe && !is_standby {
                events.push_back(Event::ProbeNextPath);
            }
        }
        self.compare(now, events);
        let expired = self
            .alone_since
            .is_some_and(|since| now.saturating_duration_since(since) >= config.resume_timeout);
        if expired && !self.expired {
            self.expired = true;
            events.push_back(Event::Expired);
        }
    }
}
