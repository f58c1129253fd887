//! The client's main loop: makes a link, waits until it needs a successor, makes the next link.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use proto::{Attach, Side};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::attempt::{Attempt, AttemptOutcome, Connected, JoinedLink, dismiss};
use super::keeper::Keeper;
use super::plan::{Client, OnLink, PathChange, Report, StandbyPath};
use super::preference::Preference;
use super::probing::Probing;
use super::rates::Rates;
use super::standby::Standby;
use super::watch::Watch;
use crate::backoff::{Backoff, Failure};
use crate::guard::guarded;
use crate::inner::{Link, Owner};
use crate::state::{End, Settings};

/// The maximum number of live links of one client: the link in use, and retiring links whose last
/// streams have not ended. At this limit the newest link stays in use until another link ends, so
/// that a server that repeatedly requests new links does not accumulate links. Daily upgrades for a
/// fortnight fit.
const LIVING_MAX: usize = 16;

/// Maintains a link until this end closes it, and retiring links until their last streams end.
/// `current` is called with the link to use. Dropping the future closes all links.
pub async fn run(
    client: Client,
    owner: Rc<dyn Owner>,
    current: Rc<OnLink>,
    report: Rc<dyn Fn(Report<'_>)>,
) {
    let keeper = Rc::new(Keeper { client, owner, report });
    let mut backoff = Backoff::new(keeper.client.retry);
    let mut living = JoinSet::new();
    // A retiring link that stays in use until it has a successor.
    let mut former: Option<Link> = None;
    loop {
        let Some(connected) = unless_closed(former.as_ref(), keeper.connect_new()).await else {
            return;
        };
        let Some((connected, trials)) = connected else { break };
        let began = Instant::now();
        let Some(watch) = keeper.begin(connected, trials, &*current) else { continue };
        let link = watch.link.clone();
        living.spawn_local(guarded(Rc::downgrade(&link.inner), watch.run()));
        if let Some(former) = former.take() {
            let (link, successor) = (former.serial(), link.serial());
            tracing::info!(
                link,
                successor,
                "link {link} takes no more streams and ends with its last stream; link {successor} \
                 takes its place"
            );
            former.go_away();
        }
        link.told_to_go().await;
        match link.ended() {
            Some(End::Closed) => return,
            Some(_) => current(None),
            None => former = Some(link),
        }
        if keeper.is_leaving() {
            break;
        }
        // If a server sends each link away at once, the client pauses before the next link.
        let pause = backoff.after(began.elapsed());
        let room = async {
            let looking = keeper.client.redial.looking();
            keeper.client.redial.pause(pause).await;
            drop(looking);
            while living.try_join_next().is_some() {}
            while living.len() >= LIVING_MAX {
                living.join_next().await;
            }
        };
        if unless_closed(former.as_ref(), room).await.is_none() {
            return;
        }
    }
    while living.join_next().await.is_some() {}
}

/// Returns the result of `work`. `None` if this end closes the link first; then no other link
/// follows.
async fn unless_closed<T>(link: Option<&Link>, work: impl Future<Output = T>) -> Option<T> {
    let Some(link) = link else { return Some(work.await) };
    tokio::select! {
        biased;
        () = link.closed_here() => None,
        done = work => Some(done),
    }
}

impl Keeper {
    /// Starts a link on its first carrier.
    fn begin(
        self: &Rc<Self>,
        connected: Connected,
        trials: Vec<Attempt>,
        current: &OnLink,
    ) -> Option<Watch> {
        let Connected { path, number, carrier, accepted, leftover, passed_over, .. } = connected;
        let secret = accepted.secret?;
        let known = JoinedLink {
            id: accepted.link,
            secret,
            claimed: Cell::new(number.0),
            early: Cell::new(true),
        };
        let mut config = self.client.link;
        config.resume_timeout = accepted.resume_timeout;
        config.keepalive = accepted.keepalive;
        let budget = Rc::clone(&self.client.budget);
        let serial = self.client.serials.fetch_add(1, Ordering::Relaxed);
        let features = accepted.features;
        let settings = Settings { side: Side::Client, config, budget, serial, features };
        let link = Link::new(settings, Rc::clone(&self.owner));
        let now = Instant::now();
        let watch = Watch {
            keeper: Rc::clone(self),
            link: link.clone(),
            known,
            path,
            trials,
            rates: Rates::default(),
            cause: None,
            preference: Preference::new(
                &self.client.paths,
                self.client.standby == StandbyPath::Last,
                now,
            ),
            standby: Standby::new(&self.client, now),
            moving: None,
            probing: Probing::default(),
            is_pinned: false,
            answer_by: None,
        };
        current(Some(&link));
        if let Some(path) = self.client.paths.get(path) {
            // The state is set only now, because the owner reports it together with the link.
            let reason = (!passed_over.is_empty()).then_some(PathChange::Failed(passed_over));
            (self.report)(Report::Connected { link: serial, path, resumed: false, reason });
        }
        link.attach(number, Attach::New, carrier, leftover);
        Some(watch)
    }

    /// Connects a new link, with endless retries. `None` when the process is about to exit.
    async fn connect_new(&self) -> Option<(Connected, Vec<Attempt>)> {
        let mut backoff = Backoff::new(self.client.retry);
        let _looking = self.client.redial.looking();
        while !self.is_leaving() {
            let pause = match self.connect(None).await {
                Ok((AttemptOutcome::Greeted(connected), _)) if self.is_leaving() => {
                    dismiss(*connected).await;
                    break;
                }
                Ok((AttemptOutcome::Greeted(connected), rest)) => {
                    self.client.logged_in.store(true, Ordering::Relaxed);
                    return Some((*connected, rest));
                }
                // This outcome cannot occur, because the greeting named no link.
                Ok((AttemptOutcome::Forgotten, _)) => backoff.failed(Failure::Network),
                Err((path, error)) => {
                    let pause = backoff.failed(error.failure());
                    self.report_failure(path, &error, pause);
                    pause
                }
            };
            self.client.redial.pause(pause).await;
        }
        None
    }
}
