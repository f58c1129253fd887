//! Supervises one link until it has ended. The supervisor finds a new carrier after a loss, another
//! path during silence, and a better path when one is available. A retiring link is supervised in
//! parallel with its successor.

use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use proto::greeting::GREETING_TIMEOUT;
use proto::{Attach, CarrierNumber};
use tokio::time::Instant;

use super::attempt::{
    Attempt, AttemptOutcome, Connected, Failed, JoinedLink, Won, dismiss, finished,
};
use super::error::DialError;
use super::keeper::Keeper;
use super::moving::Moving;
use super::plan::{PathChange, Report};
use super::preference::Preference;
use super::probing::Probing;
use super::rates::{Rates, TrialResult};
use super::standby::Standby;
use crate::backoff::Backoff;
use crate::inner::Link;
use crate::notices::{LowRate, Notice};
use crate::state::End;

/// The age at which a carrier was certainly accepted by the server, even after early data.
const LET_IN: Duration = GREETING_TIMEOUT;

/// The time by which the end of a carrier may arrive before the greeting of the carrier that
/// replaces it, because they use different paths.
const ARRIVES: Duration = Duration::from_millis(500);

/// The time in which the peer has to answer after a change of the network, unless three round trips
/// are longer.
const ANSWER: Duration = Duration::from_secs(1);

/// The age from which a report of a low rate is about the present carrier. A report of the peer may
/// have been on its way when the carrier was attached.
const ABOUT_THIS: Duration = Duration::from_secs(2);

/// The silence after which a link leaves its path in any case.
const SILENT: Duration = Duration::from_secs(3);

/// The supervisor of one link. Dropping it closes the link.
pub(super) struct Watch {
    pub(super) keeper: Rc<Keeper>,
    pub(super) link: Link,
    pub(super) known: JoinedLink,
    /// The index of the path of the active carrier.
    pub(super) path: usize,
    /// Attempts in progress.
    pub(super) trials: Vec<Attempt>,
    pub(super) rates: Rates,
    /// The reason why the current attempt uses another path.
    pub(super) cause: Option<PathChange>,
    pub(super) preference: Preference,
    pub(super) standby: Standby,
    /// The move that a command has begun.
    pub(super) moving: Option<Moving>,
    /// The probe that a command has begun.
    pub(super) probing: Probing,
    /// Whether a command has selected the path, so that the paths before it are not preferred.
    pub(super) is_pinned: bool,
    /// After a change of the network: until when the peer has to answer, and the time of the
    /// change.
    pub(super) answer_by: Option<(Instant, Instant)>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // After a panic the link ends once the task is unwound.
        if !std::thread::panicking() {
            self.link.close();
        }
    }
}

impl Watch {
    /// Runs until the link has ended.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(self.keeper.client.retry);
        let mut attached = Instant::now();
        while !self.link.has_ended() {
            let is_free = self.trials.is_empty();
            let better = if is_free && !self.is_chosen() { self.path } else { 0 };
            // A trial has its carrier number already. A standby with a higher number would make the
            // carrier of the trial too late.
            let wanted = self.standby.wanted(&self.link, self.path).filter(|_| is_free);
            let standby_at = self.standby.at();
            let answer = tokio::select! {
                notice = self.link.inner.notices.next() => match notice {
                    Notice::Ended(_) => return,
                    Notice::CarrierLost => if let Some(answer) = self.arriving().await {
                        answer
                    } else {
                        // A carrier with a higher number replaces those of these attempts.
                        self.trials.clear();
                        self.standby.attempt.clear();
                        self.probing.cancel();
                        self.cause = None;
                        self.moving = None;
                        self.rates.forget_trial();
                        self.note_life(attached);
                        self.note_loss(attached);
                        let pause = backoff.after(attached.elapsed());
                        let Some((answer, rest)) = self.reattach(pause).await else { return };
                        self.trials = rest;
                        answer
                    },
                    Notice::Probe => {
                        self.rates.forget_trial();
                        self.note_life(attached);
                        // The current carrier may recover until another carrier is greeted.
                        let next = self.keeper.after(self.path);
                        self.try_beside(next, PathChange::Silent(self.url()));
                        continue;
                    }
                    Notice::TookOver => {
                        self.note_life(attached);
                        self.note_loss(attached);
                        if let Some(path) = self.standby.took_over() {
                            attached = self.took_over(path);
                        }
                        continue;
                    }
                    notice @ (Notice::StandbyLost
                    | Notice::Resumed
                    | Notice::Strained(_)
                    | Notice::ProbePath
                    | Notice::Move
                    | Notice::NetworkChanged) => {
                        self.heed(notice, attached);
                        continue;
                    }
                },
                () = until(self.answer_by.map(|(time, _)| time)) => {
                    self.check_answer();
                    continue;
                }
                () = until(self.rates.next()) => {
                    let count = self.keeper.client.paths.len();
                    match self.rates.look(&self.link, count, Instant::now()) {
                        Some(TrialResult::Quicker(kept)) => {
                            self.preference.keep(kept, Instant::now());
                        }
                        Some(TrialResult::NotQuicker(path)) => {
                            self.try_beside(path, PathChange::NotQuicker(self.url()));
                        }
                        Some(TrialResult::Nothing) | None => {}
                    }
                    continue;
                }
                outcome = finished(&mut self.trials), if !is_free => match outcome {
                    Ok(answer) => answer,
                    Err(failed) => {
                        self.trial_failed(failed);
                        continue;
                    }
                },
                () = tokio::time::sleep_until(self.preference.at()), if better > 0 => {
                    let path = self.preference.choose(self.path, Instant::now());
                    self.try_beside(path, PathChange::Preferred);
                    continue;
                }
                path = self.preference.asked(better, wanted) => {
                    self.preference.heard(path, &self.keeper.client.paths);
                    if path < better {
                        self.try_beside(path, PathChange::Preferred);
                    } else {
                        self.standby.dial(path, &self.keeper, &self.link, &self.known);
                    }
                    continue;
                }
                outcome = finished(&mut self.standby.attempt),
                    if !self.standby.attempt.is_empty() =>
                {
                    let active = self.standby.dialled(outcome, &self.link, &self.known).await;
                    if let Some(path) = active {
                        self.note_loss(attached);
                        attached = self.took_over(path);
                    }
                    continue;
                }
                outcome = finished(&mut self.probing.attempt),
                    if !self.probing.attempt.is_empty() =>
                {
                    self.probing.ended(outcome, self.known.id).await;
                    continue;
                }
                path = at(standby_at, wanted) => {
                    self.standby.dial(path, &self.keeper, &self.link, &self.known);
                    continue;
                }
            };
            if self.answered(answer, &mut attached).await.is_break() {
                return;
            }
        }
    }

    /// Whether a command or the choice by measurement has selected the path.
    fn is_chosen(&self) -> bool {
        self.is_pinned || self.keeper.client.choice.is_some()
    }

    /// Handles a notice after which the active carrier stays.
    fn heed(&mut self, notice: Notice, attached: Instant) {
        match notice {
            Notice::StandbyLost => self.standby.lost(&self.link),
            Notice::Strained(low_rate) if attached.elapsed() >= ABOUT_THIS => {
                self.try_quicker(low_rate);
            }
            Notice::Strained(_) => {}
            Notice::ProbePath => self.begin_probe(),
            Notice::Move => self.begin_move(),
            Notice::NetworkChanged => self.network_changed(),
            // The main loop has handled these, and dials a standby after a resume.
            Notice::Resumed
            | Notice::Ended(_)
            | Notice::CarrierLost
            | Notice::Probe
            | Notice::TookOver => {}
        }
    }

    /// Applies the outcome of an attempt to reach the server. A break: the link has ended.
    async fn answered(
        &mut self,
        answer: AttemptOutcome,
        attached: &mut Instant,
    ) -> ControlFlow<()> {
        match answer {
            // The current carrier is alive, so a server that does not know the link is another
            // server.
            AttemptOutcome::Forgotten if self.rates.is_asking() => {
                let others = self.keeper.client.paths.len().saturating_sub(1);
                self.rates.unanswered(others, Instant::now());
            }
            AttemptOutcome::Forgotten if self.moving.is_some() => {
                self.cause = None;
                self.fail_move("this server does not know the link");
            }
            AttemptOutcome::Forgotten => {
                self.link.inner.end(End::Forgotten);
                return ControlFlow::Break(());
            }
            AttemptOutcome::Greeted(connected) if connected.accepted.link != self.known.id => {
                self.fail_move("this server has made another link");
                dismiss(*connected).await;
            }
            AttemptOutcome::Greeted(mut connected) => {
                // The standby may have taken over meanwhile, with a carrier of the same path.
                let moving = self.moving.take().filter(|to| to.index() == connected.path);
                let stays = self.is_pinned && connected.path == self.path;
                self.is_pinned = moving.as_ref().is_some_and(|to| stays || !to.renews());
                let passed_over = std::mem::take(&mut connected.passed_over);
                let reason = self.change(connected.path, passed_over);
                self.path = connected.path;
                *attached = Instant::now();
                self.preference.attached(*attached);
                if !connected.accepted.early {
                    self.known.early.set(true);
                }
                if attach(&self.link, *connected) {
                    moving.into_iter().for_each(Moving::end);
                    self.report(reason);
                }
                self.rates.moved(self.path, &self.link, *attached);
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the outcome of an attempt with another path that was in progress when the carrier
    /// was lost. The far end closes the old carrier as soon as it has greeted the new one.
    async fn arriving(&mut self) -> Option<AttemptOutcome> {
        let is_awaited = self.standby.is_kept() || self.moving.is_some();
        if self.trials.is_empty() || !is_awaited {
            return None;
        }
        let outcome = tokio::time::timeout(ARRIVES, finished(&mut self.trials));
        while_alive(&self.link, outcome).await?.ok()?.ok()
    }

    /// Permits early data again if the lost or silent carrier was old enough.
    fn note_life(&self, attached: Instant) {
        if attached.elapsed() >= LET_IN {
            self.known.early.set(true);
        }
    }

    /// Records the loss of the active carrier. With a standby, the paths before the last path are
    /// the better ones.
    fn note_loss(&mut self, attached: Instant) {
        if self.standby.is_behind(self.path) {
            self.preference.lost(attached.elapsed());
        }
    }

    /// Records that the standby, a carrier of this path, became the active carrier. Returns the
    /// time.
    fn took_over(&mut self, path: usize) -> Instant {
        self.rates.forget_trial();
        let reason = PathChange::TookOver(self.url());
        self.path = path;
        self.is_pinned = false;
        self.report(Some(reason));
        let now = Instant::now();
        self.preference.attached(now);
        now
    }

    /// Handles a failed attempt that ran in parallel with the active carrier.
    fn trial_failed(&mut self, (path, error): Failed) {
        let moving = self.moving.as_mut().filter(|to| to.index() == path);
        if let Some((next, cause)) = moving.and_then(|to| to.next(&self.keeper, &error.to_string()))
        {
            return self.try_beside(next, cause);
        }
        self.fail_move(&error.to_string());
        if !self.trials.is_empty() || self.cause.take() != Some(PathChange::Preferred) {
            return;
        }
        let pause = self.preference.failed(Instant::now());
        if let Some(path) = self.keeper.client.paths.get(path) {
            let (link, error) = (self.link.serial(), &error);
            (self.keeper.report)(Report::NotBetter { link, path, error, pause });
        }
    }

    /// Begins the move that was commanded. A trial in progress ends.
    fn begin_move(&mut self) {
        let Some(order) = self.link.inner.orders.take() else { return };
        self.moving = Moving::begin(order, &self.keeper, self.path);
        let Some(moving) = &self.moving else { return };
        let to = moving.index();
        self.rates.forget_trial();
        self.trials.clear();
        self.try_beside(to, PathChange::Commanded);
    }

    /// Begins the probe that was commanded. A probe has a carrier number, and another attempt with
    /// a lower number would come too late, so a link with such an attempt probes nothing.
    fn begin_probe(&mut self) {
        let Some(order) = self.link.inner.orders.take_probe() else { return };
        let is_free = self.trials.is_empty()
            && self.standby.attempt.is_empty()
            && self.moving.is_none()
            && self.link.active_carrier().is_some();
        self.probing.begin(order, is_free, (&self.keeper, &self.link, &self.known));
    }

    /// Waits for the answer of the peer after a change of the network, and dials the paths that are
    /// missing.
    fn network_changed(&mut self) {
        let now = Instant::now();
        let answer = self.link.round_trip().map_or(ANSWER, |time| ANSWER.max(time * 3)).min(SILENT);
        // A further change does not prolong the wait.
        self.answer_by.get_or_insert((now + answer, now));
        self.standby.hurry(now);
        self.preference.hurry(now);
    }

    /// Leaves the path if the peer has not answered since the change of the network.
    fn check_answer(&mut self) {
        let Some((_, change)) = self.answer_by.take() else { return };
        let Some(active) = self.link.active_carrier() else { return };
        if self.link.inner.machine.borrow().has_heard_since(change.into()) {
            return;
        }
        if self.link.has_standby() {
            self.link.inner.carrier_ended(active);
        } else {
            self.link.inner.notices.add(Notice::Probe);
        }
    }

    /// Answers the command to move, because its attempt has failed. The link keeps its carrier.
    fn fail_move(&mut self, why: &str) {
        if let Some(moving) = self.moving.take() {
            moving.fail(why);
        }
    }

    /// The URL of the path of the active carrier.
    fn url(&self) -> String {
        self.keeper.client.paths.get(self.path).map_or_else(String::new, |path| path.url.clone())
    }

    /// Returns why the next carrier has the path `to`; `None` if it is the path of the previous
    /// carrier.
    fn change(&mut self, to: usize, passed_over: Vec<String>) -> Option<PathChange> {
        let cause = self.cause.take();
        if to == self.path {
            return None;
        }
        // A path that answered after the winner of its round precedes the winner in the list.
        let of_round = if self.keeper.precedes(to, self.path) {
            PathChange::Preferred
        } else {
            PathChange::Failed(passed_over)
        };
        Some(cause.unwrap_or(of_round))
    }

    /// Reports the new carrier.
    fn report(&self, reason: Option<PathChange>) {
        if let Some(path) = self.keeper.client.paths.get(self.path) {
            let link = self.link.serial();
            (self.keeper.report)(Report::Connected { link, path, resumed: true, reason });
        }
    }

    fn try_beside(&mut self, path: usize, cause: PathChange) {
        if self.trials.is_empty() {
            self.cause = Some(cause);
            let (link, known) = (&self.link, &self.known);
            let claim = known.claim(1).next().map(|number| (link, known, number));
            self.trials.push(self.keeper.try_path(path, claim));
        }
    }

    /// Starts a trial of a faster path, because the active carrier has a low rate.
    fn try_quicker(&mut self, low_rate: LowRate) {
        let count = self.keeper.client.paths.len();
        // The choice by measurement has trials of its own.
        if !self.trials.is_empty() || self.keeper.client.choice.is_some() {
            return;
        }
        if let Some(path) = self.rates.choose(self.path, count, low_rate, Instant::now()) {
            let (link, way) = (self.link.serial(), low_rate.direction);
            let bytes_a_second = low_rate.rate;
            let (from, to) = (self.url(), self.keeper.client.paths.get(path));
            let to = to.map_or("", |path| &path.url);
            tracing::info!(
                link,
                ?way,
                bytes_a_second,
                "link {link} tries {to}, because {from} carries only {bytes_a_second} bytes per second"
            );
            self.try_beside(path, PathChange::LowRate(from, bytes_a_second));
        }
    }

    /// Finds a new carrier for a link that has none; `None` when the link has ended.
    async fn reattach(&self, pause: Duration) -> Option<Won> {
        let (link, known) = (&self.link, &self.known);
        let mut backoff = Backoff::new(self.keeper.client.retry);
        let redial = &self.keeper.client.redial;
        let _looking = redial.looking();
        while_alive(link, redial.pause(pause)).await?;
        loop {
            match while_alive(link, self.keeper.connect(Some((link, known)))).await? {
                Ok(won) => return Some(won),
                Err((path, error)) => {
                    if let DialError::Carrier(_) = &error {
                        known.early.set(true);
                    }
                    let pause = backoff.failed(error.failure());
                    self.keeper.report_failure(path, &error, pause);
                    while_alive(link, redial.pause(pause)).await?;
                }
            }
        }
    }
}

/// Attaches the next carrier to the link. Returns false if the carrier is too late.
fn attach(link: &Link, connected: Connected) -> bool {
    let Connected { number, carrier, accepted, since, leftover, .. } = connected;
    let last = CarrierNumber(number.0.saturating_sub(1));
    // The server's preview of the link is outdated by changes since the dial.
    let is_stale = accepted.early && since != Some(link.standing());
    let (serial, early) = (link.serial(), accepted.early);
    if is_stale || !link.attach(number, Attach::Replaces(last), carrier, leftover) {
        tracing::debug!(link = serial, carrier = number.0, "a late carrier is dropped");
        false
    } else {
        tracing::debug!(link = serial, carrier = number.0, early, "streams go on");
        true
    }
}

/// Sleeps until `end`, or forever if there is no end.
async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Returns the path at this time; never without a path.
async fn at(time: Instant, path: Option<usize>) -> usize {
    match path {
        Some(path) => {
            tokio::time::sleep_until(time).await;
            path
        }
        None => std::future::pending().await,
    }
}

/// Returns the result of `work`; `None` if the link ends first.
async fn while_alive<T>(link: &Link, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (!link.has_ended()).then_some(done),
            notice = link.inner.notices.next() => match notice {
                Notice::Ended(_) => return None,
                // The attempt in progress has no path of the command's choice.
                Notice::Move => drop(link.inner.orders.take()),
                Notice::ProbePath => drop(link.inner.orders.take_probe()),
                Notice::CarrierLost
                | Notice::TookOver
                | Notice::Resumed
                | Notice::StandbyLost
                | Notice::Probe
                | Notice::NetworkChanged
                | Notice::Strained(_) => {}
            },
        }
    }
}
