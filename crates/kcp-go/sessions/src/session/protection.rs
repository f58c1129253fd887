//! The sending half of FEC: decides the parity of a group, and when the group is closed.

use std::time::{Duration, Instant};

use super::Config;
use crate::fec::adaptive::{Controller, EarlyClose, Limits, Report};
use crate::fec::{Encoder, Ratio, Settings};
use crate::wire::{SHARD_HEAD, ShardId, data_head};

/// The share of the round trip after which an open group is closed, so that parity arrives well
/// before a retransmission could.
const CLOSED_AFTER: u32 = 4;

/// The shortest time that an open group waits for traffic.
const SHORTEST: Duration = Duration::from_millis(2);

/// The number of data shards at places where the peer expects parity. At least one of them has to
/// arrive before parity of another ratio. At 20 % loss all of them are lost with a probability of
/// 10^-6.
const WARNINGS: usize = 9;

/// The number of shards, allowing for loss, after which a stock peer has dropped its 258 samples of
/// the former ratio. It would detect the former ratio in them again.
const FORGOTTEN: usize = 400;

/// The number of further data shards with all parity, because the peer detects the ratio in ids
/// without a hole. At 10 % loss it takes 150 ids on average until 26 successive ids arrive.
const TAUGHT: usize = 2000;

/// A former encoder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Former {
    /// The first unused id.
    next: ShardId,
    /// The ratio that the peer expects. `None`: it is unknown.
    ratio: Option<Ratio>,
    /// The number of data shards that the next encoder has to send before its parity, because this
    /// encoder ended while the peer still expected an earlier ratio. 0: the peer expects no earlier
    /// ratio.
    doubt: usize,
}

impl Former {
    /// The number of data shards without parity after which the peer rebuilds nothing by a ratio
    /// other than `ratio`.
    fn bare(self, ratio: Ratio) -> usize {
        if self.ratio == Some(ratio) {
            return self.doubt;
        }
        let (shards, parity) = self.ratio.map_or((2, 1), |it| (it.shards(), it.parity()));
        (WARNINGS * shards).div_ceil(parity).max(FORGOTTEN).max(self.doubt)
    }
}

#[derive(Debug)]
pub(super) struct Protection {
    encoder: Encoder,
    settings: Settings,
    /// `None` if all parity is sent.
    controller: Option<Controller>,
    early: Option<EarlyClose>,
    /// Bytes around a shard.
    overhead: usize,
    /// The number of data shards until the encoder begins, and the id of the next of these shards.
    /// Their ids have no gap, so that a peer receives data where it expects parity, whatever ratio
    /// it knows, and stops rebuilding. Otherwise it would rebuild garbage from the new parity.
    bare: usize,
    /// The value of `bare` at the start.
    doubt: usize,
    next: ShardId,
    /// The number of further data shards until parity may be left out.
    full: usize,
    /// The next group's parity was decided.
    is_decided: bool,
    /// The open group, or the next one, gets parity.
    is_protected: bool,
    /// The group was closed early, so its fillers and parity are charged to the budget of `early`.
    is_early: bool,
}

/// A shard that was put into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shard {
    Parity,
    Filler,
}

impl Protection {
    pub(super) fn new(
        config: &Config,
        ratio: Ratio,
        former: Option<Former>,
        (segments, overhead): (u16, usize),
        now: Instant,
    ) -> Self {
        let bare = former.map_or(0, |former| former.bare(ratio));
        let settings = Settings { ratio, longest: segments.into(), pause: config.pause };
        let early = EarlyClose::new(SHORTEST, config.fillers, now);
        let mut protection = Self {
            encoder: Encoder::new(settings),
            settings,
            controller: config.adaptive.then(|| Controller::new(ratio, Limits::default())),
            early: (config.fillers > 0).then_some(early),
            overhead,
            bare,
            doubt: bare,
            next: former.map_or(ShardId(0), |former| former.next),
            full: if bare > 0 { TAUGHT } else { 0 },
            is_decided: false,
            is_protected: true,
            is_early: false,
        };
        if bare == 0 {
            protection.begin();
        }
        protection
    }

    /// Starts the encoder. No id is used twice, and a group begins at a multiple of its size.
    fn begin(&mut self) {
        let shards = u32::try_from(self.settings.ratio.shards()).unwrap_or(u32::MAX);
        // The id after the last id is 0. The encoder handles this.
        let first = self.next.0.checked_next_multiple_of(shards).unwrap_or(0);
        self.encoder = Encoder::starting_at(self.settings, ShardId(first));
    }

    /// Ends the encoder.
    pub(super) fn end(&mut self) -> Former {
        self.encoder.drop_parity();
        let next = if self.bare > 0 { self.next } else { self.encoder.next() };
        let doubt = if self.bare > 0 { self.doubt } else { 0 };
        Former { next, ratio: Some(self.settings.ratio), doubt }
    }

    /// Decides whether the next segments get parity. Called before a datagram is built.
    pub(super) fn decide(&mut self) -> bool {
        if self.bare > 0 {
            return false;
        }
        if self.encoder.opened().is_none() && !self.is_decided {
            self.is_decided = true;
            let parity = match &mut self.controller {
                Some(controller) if self.full == 0 => controller.next_group(),
                _ => self.settings.ratio.parity(),
            };
            self.is_protected = parity > 0;
            self.encoder.set_parity(parity);
        }
        self.is_protected
    }

    /// Takes the segments of a datagram, and returns the head in front of them. `None` if they are
    /// too long for a shard.
    pub(super) fn push(
        &mut self,
        segments: &[u8],
        now: Instant,
        round_trip: Duration,
    ) -> Option<[u8; SHARD_HEAD]> {
        if self.bare > 0 {
            return self.push_bare(segments);
        }
        let head = self.encoder.push(segments, now).ok()?;
        if let Some(early) = &mut self.early {
            early.set_delay((round_trip / CLOSED_AFTER).max(SHORTEST));
        }
        self.full = self.full.saturating_sub(1);
        self.is_decided = false;
        self.is_early = false;
        Some(head)
    }

    fn push_bare(&mut self, segments: &[u8]) -> Option<[u8; SHARD_HEAD]> {
        let head = data_head(self.next, segments.len())?;
        self.next = ShardId(self.next.0.checked_add(1).unwrap_or(0));
        self.bare -= 1;
        if self.bare == 0 {
            self.begin();
        }
        Some(head)
    }

    /// Appends the next filler or parity shard to `out`.
    pub(super) fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Shard> {
        if let Some(filler) = self.encoder.poll_filler(now) {
            out.extend_from_slice(&filler);
            self.is_decided = false;
            return Some(Shard::Filler);
        }
        let length = self.encoder.parity_length()?;
        let start = out.len();
        out.resize(start + length, 0);
        if self.encoder.poll_parity(&mut out[start..]).is_none() {
            out.truncate(start);
            return None;
        }
        Some(Shard::Parity)
    }

    /// The bytes of the next parity shard if it is charged to the budget of repairs.
    pub(super) fn parity_to_pay(&self) -> Option<usize> {
        let length = self.encoder.parity_length().filter(|_| !self.is_early)?;
        Some(length + self.overhead)
    }

    /// Drops the parity that was not polled. Returns the number of dropped shards.
    pub(super) fn drop_parity(&mut self) -> usize {
        self.encoder.drop_parity()
    }

    /// When the open group is closed. `None` if it is not closed early.
    pub(super) fn closes(&self) -> Option<Instant> {
        let early = self.early.as_ref().filter(|_| !self.is_early)?;
        let cost = self.encoder.cost_of_closing(self.overhead)?;
        early.deadline(self.encoder.opened()?, cost)
    }

    /// Closes the open group.
    pub(super) fn close(&mut self, now: Instant) {
        if let Some(cost) = self.encoder.cost_of_closing(self.overhead)
            && let Some(early) = &mut self.early
        {
            early.spend(cost, now);
            self.encoder.close_early();
            self.is_early = true;
        }
    }

    /// Takes the report of an acknowledgement about the loss.
    pub(super) fn report(&mut self, report: Report) {
        if let Some(controller) = &mut self.controller {
            controller.handle_report(report);
        }
    }

    pub(super) const fn is_adaptive(&self) -> bool {
        self.controller.is_some()
    }

    /// Releases memory. All sent packets are acknowledged, so an open group needs no parity.
    pub(super) fn rest(&mut self) {
        self.encoder.abandon();
        self.is_decided = false;
        self.encoder.rest();
    }
}
