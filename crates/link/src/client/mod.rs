//! The client's half: one link after another for ever, each kept alive over carriers that come
//! and go.
//!
//! ```text
//!   connect --> greet, new link --> supervise --carrier lost--> connect, greet, attach --+
//!      ^                               |  ^-------------------------------------------- -+
//!      +--ended, expired, forgotten----+  |--silence of 3 s: the next path replaces it
//!                                         +--every 60 s: a preferred path replaces it
//! ```

mod attempt;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::greeting::{Identity, Name};
use proto::{Attach, Budget, CarrierNumber, InstanceId, LinkConfig, Side};
use tokio::time::Instant;

pub use attempt::DialError;

use crate::backoff::{Backoff, Failure};
use crate::owner::{End, Notice};
use crate::{Link, Owner, Path, Retry, Settings};
use attempt::{Answer, Attempt, Connected, Known, Won, dismiss, finished};

/// How often a preferred path is tried while another one carries the link.
const PREFER_EVERY: Duration = Duration::from_secs(60);

/// What a client needs to keep one link to one server.
#[derive(Clone, Debug)]
pub struct Client {
    /// Ways to the server, preferred first; at least one.
    pub paths: Vec<Path>,
    /// Who we are.
    pub name: Name,
    /// How we show it.
    pub identity: Identity,
    /// Random per process, the same for all its links.
    pub instance: InstanceId,
    /// Whether this process has logged in before; shared by all its links.
    pub logged_in: Arc<AtomicBool>,
    /// Pauses between attempts.
    pub retry: Retry,
    /// Windows and times. `resume_timeout` and `keepalive` are the server's to say.
    pub link: LinkConfig,
    /// The worker's lease.
    pub budget: Rc<dyn Budget>,
    /// The first serial; counts up by `serials` with each new link.
    pub serial: u64,
    /// How many links of this process count beside this one.
    pub serials: u64,
}

/// Something worth telling a person.
#[derive(Debug)]
pub enum Report<'a> {
    /// No path led to the server. Tried again after the pause.
    Unreachable {
        /// The path whose error is told.
        path: &'a Path,
        /// Why.
        error: &'a DialError,
        /// Until the next attempt.
        pause: Duration,
    },
    /// A carrier was greeted.
    Connected {
        /// Over this path.
        path: &'a Path,
        /// It continues a link that had lost its carrier, or moves one.
        resumed: bool,
    },
}

/// Told which link is in use; `None` between two.
pub type OnLink = dyn Fn(Option<&Link>);

/// Keeps a link until this end closes it. `current` always holds the link in use. Dropping the
/// future closes it.
pub async fn run(
    client: Client,
    owner: Rc<dyn Owner>,
    current: Rc<OnLink>,
    report: Rc<dyn Fn(Report<'_>)>,
) {
    let keeper = Keeper { client, owner, report };
    let mut serial = keeper.client.serial;
    let mut backoff = Backoff::new(keeper.client.retry);
    loop {
        let (connected, trials) = keeper.connect_new().await;
        let began = Instant::now();
        let Some(secret) = connected.accepted.secret.clone() else { continue };
        let claimed = Cell::new(connected.number.0);
        let known = Known { id: connected.accepted.link, secret, claimed };
        let mut config = keeper.client.link;
        config.resume_timeout = connected.accepted.resume_timeout;
        config.keepalive = connected.accepted.keepalive;
        let budget = Rc::clone(&keeper.client.budget);
        let settings = Settings { side: Side::Client, config, budget, serial };
        serial += keeper.client.serials;
        let link = Link::new(settings, Rc::clone(&keeper.owner));
        let _closed_on_drop = CloseOnDrop(link.clone());
        current(Some(&link));
        if let Some(path) = keeper.client.paths.get(connected.path) {
            // Not before: the owner tells it with the link.
            (keeper.report)(Report::Connected { path, resumed: false });
        }
        link.attach(connected.number, Attach::New, connected.carrier, connected.leftover);
        keeper.supervise(&link, &known, connected.path, trials).await;
        current(None);
        if link.ended() == Some(End::Closed) {
            return;
        }
        tokio::time::sleep(backoff.after(began.elapsed())).await;
    }
}

struct CloseOnDrop(Link);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Keeper {
    client: Client,
    owner: Rc<dyn Owner>,
    report: Rc<dyn Fn(Report<'_>)>,
}

impl Keeper {
    /// Until the link has ended.
    async fn supervise(
        &self,
        link: &Link,
        known: &Known,
        mut path: usize,
        mut trials: Vec<Attempt>,
    ) {
        let mut backoff = Backoff::new(self.client.retry);
        let mut attached = Instant::now();
        let mut prefer_at = attached + PREFER_EVERY;
        while !link.has_ended() {
            let answer = tokio::select! {
                notice = link.notice() => match notice {
                    Notice::Ended(_) => return,
                    Notice::GoingAway => {
                        leave(link);
                        continue;
                    }
                    Notice::CarrierLost => {
                        // Later numbers win over whatever becomes of these.
                        trials.clear();
                        let pause = backoff.after(attached.elapsed());
                        let Some((answer, rest)) = self.reattach(link, known, pause).await else {
                            return;
                        };
                        trials = rest;
                        answer
                    }
                    Notice::Probe => {
                        // The present carrier may yet wake up: until another one is greeted.
                        let next = (path + 1) % self.client.paths.len().max(1);
                        self.try_beside(&mut trials, next, link, known);
                        continue;
                    }
                },
                Ok(answer) = finished(&mut trials), if !trials.is_empty() => answer,
                () = tokio::time::sleep_until(prefer_at), if path > 0 => {
                    prefer_at = Instant::now() + PREFER_EVERY;
                    self.try_beside(&mut trials, 0, link, known);
                    continue;
                }
            };
            match answer {
                Answer::Forgotten => return link.inner.end(End::Forgotten),
                Answer::Greeted(connected) if connected.accepted.link != known.id => {
                    dismiss(*connected).await;
                }
                Answer::Greeted(connected) => {
                    path = connected.path;
                    attached = Instant::now();
                    prefer_at = attached + PREFER_EVERY;
                    attach(link, *connected);
                }
            }
        }
    }

    fn try_beside(&self, trials: &mut Vec<Attempt>, path: usize, link: &Link, known: &Known) {
        if trials.is_empty() {
            let claim = known.claim(1).next().map(|number| (link, known, number));
            trials.push(self.try_path(path, claim));
        }
    }

    /// Finds a new carrier for a link that has none; `None` when the link is over.
    async fn reattach(&self, link: &Link, known: &Known, pause: Duration) -> Option<Won> {
        let mut backoff = Backoff::new(self.client.retry);
        while_alive(link, tokio::time::sleep(pause)).await?;
        loop {
            match while_alive(link, self.connect(Some((link, known)))).await? {
                Ok(won) => return Some(won),
                Err((path, error)) => {
                    let pause = backoff.failed(error.failure());
                    self.tell_failure(path, &error, pause);
                    while_alive(link, tokio::time::sleep(pause)).await?;
                }
            }
        }
    }

    fn tell_failure(&self, path: usize, error: &DialError, pause: Duration) {
        if let Some(path) = self.client.paths.get(path) {
            (self.report)(Report::Unreachable { path, error, pause });
        }
    }

    /// Retries for ever.
    async fn connect_new(&self) -> (Connected, Vec<Attempt>) {
        let mut backoff = Backoff::new(self.client.retry);
        loop {
            let pause = match self.connect(None).await {
                Ok((Answer::Greeted(connected), rest)) => {
                    self.client.logged_in.store(true, Ordering::Relaxed);
                    return (*connected, rest);
                }
                // Of no meaning: no link was named.
                Ok((Answer::Forgotten, _)) => backoff.failed(Failure::Network),
                Err((path, error)) => {
                    let pause = backoff.failed(error.failure());
                    self.tell_failure(path, &error, pause);
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// The server takes no more streams: the link ends when its last stream does.
fn leave(link: &Link) {
    if link.stream_count() > 0 {
        return;
    }
    if link.inner.closing.get() {
        // We said goodbye ourselves: no other link follows.
        link.inner.end(End::Closed);
    } else {
        tracing::info!(link = link.serial(), "the server is going away");
        link.inner.end(End::ByPeer);
    }
}

fn attach(link: &Link, connected: Connected) {
    let Connected { number, carrier, leftover, .. } = connected;
    let last = CarrierNumber(number.0.saturating_sub(1));
    if !link.attach(number, Attach::Replaces(last), carrier, leftover) {
        tracing::debug!(link = link.serial(), carrier = number.0, "a late carrier is dropped");
    }
}

/// Works on until the link is over; then `None`.
async fn while_alive<T>(link: &Link, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (!link.has_ended()).then_some(done),
            notice = link.notice() => match notice {
                Notice::Ended(_) => return None,
                Notice::GoingAway => leave(link),
                Notice::CarrierLost | Notice::Probe => {}
            },
        }
    }
}
