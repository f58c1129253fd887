//! Maintains a standby in addition to the active carrier: a carrier of another path, without
//! traffic, which takes over without a dial when the active carrier is lost or silent. The loss of
//! the standby affects no stream; the standby is redialled with growing pauses.

use std::time::Duration;

use proto::Attach;
use tokio::time::Instant;

use super::attempt::{Attempt, AttemptOutcome, Connected, Failed, JoinedLink, dismiss};
use super::keeper::Keeper;
use super::plan::{Client, SPREAD_MAX, StandbyPath};
use crate::backoff::{Backoff, Failure, Retry};
use crate::inner::Link;

/// The longest pause before the standby is redialled, unless that of the client is longer. The link
/// has an active carrier meanwhile.
const LONGEST: Duration = Duration::from_secs(15);

/// The dials of the standby.
pub(super) struct Standby {
    keeps: StandbyPath,
    /// The number of paths that may have the standby: all, or the first few ([`SPREAD_MAX`]).
    count: usize,
    /// The number of dials that have failed since a standby was attached. Each failure turns to the
    /// following path.
    failed: usize,
    /// The path of the standby that was attached last.
    attached: Option<usize>,
    /// The earliest time of the next dial.
    at: Instant,
    /// The time at which the last standby was attached.
    since: Instant,
    backoff: Backoff,
    /// The dial in progress, if any.
    pub(super) attempt: Vec<Attempt>,
}

impl Standby {
    pub(super) fn new(client: &Client, now: Instant) -> Self {
        let retry = Retry { max: client.retry.max.max(LONGEST), ..client.retry };
        let all = client.paths.len();
        Self {
            keeps: client.standby,
            count: if client.standby == StandbyPath::Next { all.min(SPREAD_MAX) } else { all },
            failed: 0,
            attached: None,
            at: now,
            since: now,
            backoff: Backoff::new(retry),
            attempt: Vec::new(),
        }
    }

    /// The earliest time of the next dial.
    pub(super) const fn at(&self) -> Instant {
        self.at
    }

    /// Dials the standby at once if it is lacking, because the network has changed.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.at = now;
    }

    /// Whether the link is configured with a standby.
    pub(super) const fn is_kept(&self) -> bool {
        self.count > 1 && !matches!(self.keeps, StandbyPath::Nowhere)
    }

    /// Whether the path of the active carrier is better than the last path, which is that of the
    /// standby.
    pub(super) fn is_behind(&self, active: usize) -> bool {
        self.keeps == StandbyPath::Last && active + 1 < self.count
    }

    /// Returns the path to dial, if the link has no standby in addition to the carrier of the path
    /// `active`.
    ///
    /// A carrier that has just taken over must have resumed first. Until then it is the standby at
    /// the server, and a further carrier would take its place there.
    pub(super) fn wanted(&self, link: &Link, active: usize) -> Option<usize> {
        let lacks = self.attempt.is_empty() && !link.has_standby();
        self.path_beside(active).filter(|_| lacks && link.is_live())
    }

    /// The path of the standby beside an active carrier of the path `active`.
    fn path_beside(&self, active: usize) -> Option<usize> {
        match self.keeps {
            StandbyPath::Nowhere => None,
            StandbyPath::Last => self.count.checked_sub(1).filter(|last| active < *last),
            StandbyPath::Next if active >= self.count => self.failed.checked_rem(self.count),
            StandbyPath::Next => {
                let skipped = self.failed.checked_rem(self.count - 1)?;
                Some((active + 1 + skipped) % self.count)
            }
        }
    }

    /// Dials the standby over a path.
    pub(super) fn dial(&mut self, path: usize, keeper: &Keeper, link: &Link, known: &JoinedLink) {
        if let Some(number) = known.claim(1).next() {
            self.attempt.push(keeper.try_standby(path, (link, known, number)));
        }
    }

    /// Handles the end of a dial. Returns the path of the carrier if it became the active carrier,
    /// because the active carrier was lost meanwhile.
    pub(super) async fn dialled(
        &mut self,
        outcome: Result<AttemptOutcome, Failed>,
        link: &Link,
        known: &JoinedLink,
    ) -> Option<usize> {
        match outcome {
            Ok(AttemptOutcome::Greeted(connected)) if connected.accepted.link == known.id => {
                let path = connected.path;
                return self.attach(*connected, link).then_some(path);
            }
            Ok(AttemptOutcome::Greeted(connected)) => {
                dismiss(*connected).await;
                self.failed(Failure::Refused);
            }
            // The active carrier is alive, so this answer is from another server.
            Ok(AttemptOutcome::Forgotten) => self.failed(Failure::Refused),
            Err((_, error)) => {
                tracing::debug!(link = link.serial(), %error, "no standby");
                self.failed(error.failure());
            }
        }
        None
    }

    /// Attaches the carrier. Returns whether it is the active carrier.
    fn attach(&mut self, connected: Connected, link: &Link) -> bool {
        let Connected { path, number, carrier, leftover, .. } = connected;
        self.since = Instant::now();
        self.failed = 0;
        self.attached = Some(path);
        let is_attached = link.attach(number, Attach::Adds, carrier, leftover);
        let is_active = is_attached && link.active_carrier() == Some(number);
        let (link, carrier) = (link.serial(), number.0);
        tracing::debug!(link, carrier, is_attached, is_active, "a standby was dialled");
        is_active
    }

    fn failed(&mut self, failure: Failure) {
        self.failed = self.failed.wrapping_add(1);
        self.at = Instant::now() + self.backoff.failed(failure);
    }

    /// Handles the loss of the standby, but not of the active carrier.
    pub(super) fn lost(&mut self, link: &Link) {
        if !link.has_standby() {
            tracing::debug!(link = link.serial(), "the standby is lost");
            let now = Instant::now();
            self.at = now + self.backoff.after(now - self.since);
        }
    }

    /// Returns the path of the standby, which is the active carrier now.
    pub(super) fn took_over(&mut self) -> Option<usize> {
        self.attempt.clear();
        self.attached.take()
    }
}
