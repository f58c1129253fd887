//! Maintains a standby in addition to the active carrier: a carrier of the last path, without
//! traffic, which takes over without a dial when the active carrier is lost or silent. The loss of
//! the standby affects no stream; the standby is redialled with growing pauses.

use std::time::Duration;

use proto::Attach;
use tokio::time::Instant;

use super::attempt::{Attempt, AttemptOutcome, Connected, Failed, JoinedLink, dismiss};
use super::keeper::Keeper;
use super::plan::Client;
use crate::backoff::{Backoff, Failure, Retry};
use crate::inner::Link;

/// The longest pause before the standby is redialled, unless that of the client is longer. The link
/// has an active carrier meanwhile.
const LONGEST: Duration = Duration::from_secs(15);

/// The dials of the standby.
pub(super) struct Standby {
    /// The index of the path of the standby. `None`: the link has no standby.
    path: Option<usize>,
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
        let last = client.paths.len().checked_sub(1);
        let retry = Retry { max: client.retry.max.max(LONGEST), ..client.retry };
        Self {
            path: last.filter(|last| client.standby && *last > 0),
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

    /// Whether the link is configured with a standby.
    pub(super) const fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Whether the path of the active carrier is better than that of the standby.
    pub(super) fn is_behind(&self, active: usize) -> bool {
        self.path.is_some_and(|path| active < path)
    }

    /// Returns the path to dial, if the link has no standby in addition to the carrier of the path
    /// `active`.
    pub(super) fn wanted(&self, link: &Link, active: usize) -> Option<usize> {
        let lacks = self.attempt.is_empty() && !link.has_standby();
        let has_active = link.active_carrier().is_some();
        self.path.filter(|path| active < *path && lacks && has_active)
    }

    /// Dials the standby.
    pub(super) fn dial(&mut self, keeper: &Keeper, link: &Link, known: &JoinedLink) {
        if let (Some(path), Some(number)) = (self.path, known.claim(1).next()) {
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
                return self.path.filter(|_| self.attach(*connected, link));
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
        let Connected { number, carrier, leftover, .. } = connected;
        self.since = Instant::now();
        let is_attached = link.attach(number, Attach::Adds, carrier, leftover);
        let is_active = is_attached && link.active_carrier() == Some(number);
        let (link, carrier) = (link.serial(), number.0);
        tracing::debug!(link, carrier, is_attached, is_active, "a standby was dialled");
        is_active
    }

    fn failed(&mut self, failure: Failure) {
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
        self.path
    }
}
