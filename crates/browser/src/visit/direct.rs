//! The data channel from the page directly to the other client, as a further carrier of the inner
//! link.
//!
//! ```text
//!   Idle ── the link lives by the server ──> Asked ── offer ──> Offered ── answer ──> Answered
//!    ^                                                                                   │ opens
//!    └──────────── lost, refused, or too late ─────────────────────────────── Open <─────┘
//! ```

use std::time::Duration;

use bytes::Bytes;
use proto::control::{ControlDecoder, ControlMessage};
use proto::greeting::{Binding, GREETING_TIMEOUT};
use proto::{Instant, Violation, ViolationCode};

use super::{DIRECT, Visit};
use crate::news::{News, Path};
use crate::signal::{self, Said};

/// The timeout of an attempt: a second for the browser's addresses, name lookups for the other
/// client's STUN servers, checks of 10 s, the handshake.
const TRIAL: Duration = Duration::from_secs(25);

/// The first pause between attempts, and the number of doublings: up to 16 minutes.
const PAUSE: Duration = Duration::from_secs(15);
const DOUBLINGS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// The page prepares an offer.
    Asked,
    /// The offer with this certificate was sent.
    Offered([u8; 32]),
    /// The channel is opening; its greeting is bound to both certificates.
    Answered([u8; 32]),
    /// The channel carries bytes.
    Open,
}

/// The attempts to open a data channel.
#[derive(Debug)]
pub(super) struct Seek {
    stage: Stage,
    round: u32,
    /// When the next attempt begins. `None`: the other client wants no attempt.
    at: Option<Instant>,
    /// When the attempt times out.
    until: Option<Instant>,
    failures: u32,
    /// The ports at which the server answers STUN.
    stun: Vec<u16>,
    outer: ControlDecoder,
    inner: ControlDecoder,
    /// Whether the channel may be dead.
    pub(super) is_suspect: bool,
}

impl Seek {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Idle,
            round: 0,
            at: Some(now),
            until: None,
            failures: 0,
            stun: Vec::new(),
            outer: ControlDecoder::new(),
            inner: ControlDecoder::new(),
            is_suspect: false,
        }
    }

    /// The control stream of the outer link was opened anew.
    pub(super) fn outer_begins(&mut self) {
        self.outer = ControlDecoder::new();
    }

    pub(super) fn poll_timeout(&self, relayed: bool) -> Option<Instant> {
        let next = self.at.filter(|_| relayed && self.stage == Stage::Idle);
        next.into_iter().chain(self.until).min()
    }
}

impl Visit {
    /// The page offers a data channel: its session description, or nothing if it cannot offer one.
    pub fn offer(&mut self, now: Instant, text: &str) {
        if self.seek.stage == Stage::Asked && self.offered(text).is_none() {
            self.seek_failed(now);
        }
        self.drive(now);
    }

    fn offered(&mut self, text: &str) -> Option<()> {
        let certificate = signal::fingerprint(text)?;
        let signal = signal::offer(self.seek.round, text)?;
        let message = ControlMessage::Signal(signal.into()).encode().ok()?;
        self.inner.link()?.send_control(&message).then_some(())?;
        self.seek.stage = Stage::Offered(certificate);
        Some(())
    }

    /// Starts an attempt if one is due. Returns whether it did.
    pub(super) fn seek(&mut self, now: Instant) -> bool {
        let is_time = self.seek.at.is_some_and(|at| at <= now) && self.seek.stage == Stage::Idle;
        if !is_time || !self.is_relayed() || self.is_over() {
            return false;
        }
        self.seek.round = self.seek.round.saturating_add(1);
        self.seek.stage = Stage::Asked;
        self.seek.until = Some(now + TRIAL);
        self.news.push_back(News::Seek(self.seek.stun.clone()));
        true
    }

    /// Whether the inner link runs through the server.
    pub(super) fn is_relayed(&self) -> bool {
        self.inner.is_live() && self.inner.active() == Some(Path::Relay)
    }

    /// The channel is open.
    pub(super) fn channel_opened(&mut self, now: Instant) {
        let Stage::Answered(binding) = self.seek.stage else {
            return self.news.push_back(News::Close(DIRECT));
        };
        self.seek.stage = Stage::Open;
        let (nonce, until) = (self.entropy.next(), now + GREETING_TIMEOUT);
        self.inner.dial(until, Path::Direct, nonce, Binding::Exporter(binding), false);
    }

    /// The inner link has moved to the channel.
    pub(super) fn found_direct(&mut self) {
        self.seek.until = None;
        self.seek.failures = 0;
    }

    /// There is no channel, or it was lost.
    pub(super) fn seek_failed(&mut self, now: Instant) {
        if self.seek.stage == Stage::Idle {
            return;
        }
        self.seek.stage = Stage::Idle;
        self.seek.until = None;
        self.seek.is_suspect = false;
        self.news.push_back(News::Close(DIRECT));
        let doublings = self.seek.failures.min(DOUBLINGS);
        self.seek.failures += 1;
        self.seek.at = Some(now + PAUSE.saturating_mul(1 << doublings));
    }

    /// Abandons an attempt that takes too long.
    pub(super) fn seek_timeout(&mut self, now: Instant) {
        if self.seek.until.is_some_and(|until| until <= now) {
            self.seek_failed(now);
            self.inner.lost(now, Path::Direct);
        }
    }

    /// The inner link has ended, and its successor starts through the server.
    pub(super) fn seek_anew(&mut self, now: Instant) {
        self.seek_failed(now);
        self.seek.inner = ControlDecoder::new();
        self.seek.at = Some(now);
    }

    pub(super) fn outer_control(&mut self, mut bytes: Bytes) {
        // All other messages of the server concern services. Malformed messages are ignored.
        while let Ok(Some(message)) = self.seek.outer.decode(&mut bytes) {
            if let ControlMessage::Stun(ports) = message {
                self.seek.stun = ports.0;
            }
        }
    }

    pub(super) fn inner_control(&mut self, now: Instant, mut bytes: Bytes) {
        loop {
            match self.seek.inner.decode(&mut bytes) {
                Ok(Some(ControlMessage::Signal(signal))) => self.signalled(now, &signal),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    if let Some(link) = self.inner.link() {
                        link.abort(Violation::link(ViolationCode::Malformed));
                    }
                    return;
                }
            }
        }
    }

    fn signalled(&mut self, now: Instant, bytes: &[u8]) {
        let Stage::Offered(ours) = self.seek.stage else { return };
        match signal::read(bytes, self.seek.round) {
            Some(Said::Answer(text)) => match signal::fingerprint(&text) {
                Some(theirs) => {
                    self.seek.stage = Stage::Answered(signal::binding(&ours, &theirs));
                    self.news.push_back(News::Answer(text));
                }
                None => self.seek_failed(now),
            },
            Some(Said::Decline(lasts)) => {
                self.seek_failed(now);
                if lasts {
                    self.seek.at = None;
                }
            }
            None => {}
        }
    }
}
