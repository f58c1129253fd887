//! The client's half: one link after another for ever, each kept alive over carriers that come
//! and go.
//!
//! ```text
//!   connect --> greet, new link --> supervise --carrier lost--> connect, greet, attach --+
//!      ^                               |  ^-------------------------------------------- -+
//!      +--ended, expired, forgotten----+  |--silence of 3 s: the next path replaces it
//!                                         +--every 60 s: a preferred path replaces it
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use proto::greeting::{
    Attach as Claim, AttachMode, ClientAccepted, ClientSetup, Features, Identity, LinkSecret,
    NONCE_LENGTH, Name, Refusal, Versions,
};
use proto::{Attach, Budget, CarrierNumber, InstanceId, LinkConfig, LinkId, Side};
use transport::{Carrier, CarrierError, LocalFuture};

use crate::backoff::{Backoff, Failure};
use crate::dial::dial;
use crate::handle::{End, Notice};
use crate::{GreetError, Link, Owner, Path, Retry, Settings, greet};

/// Head start of a path before the next one is tried beside it.
const PATH_STAGGER: Duration = Duration::from_secs(2);

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

/// Why a path did not lead to the server.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No connection.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// A connection, but no log-in.
    #[error(transparent)]
    Greet(#[from] GreetError),
}

impl DialError {
    fn failure(&self) -> Failure {
        match self {
            Self::Carrier(error) if error.is_network() => Failure::Network,
            Self::Carrier(_) => Failure::Refused,
            Self::Greet(error) => match error.refusal() {
                Some(Refusal::Superseded) => Failure::Superseded,
                Some(Refusal::UnknownLink | Refusal::Unavailable) => Failure::Network,
                Some(_) => Failure::Refused,
                None => match error {
                    GreetError::Io(_) | GreetError::Timeout => Failure::Network,
                    GreetError::Greeting(_) => Failure::Refused,
                },
            },
        }
    }
}

/// A greeted carrier, and by which path it came.
struct Connected {
    path: usize,
    number: CarrierNumber,
    carrier: Carrier,
    accepted: ClientAccepted,
    leftover: BytesMut,
}

/// The link that a carrier is to join.
#[derive(Clone)]
struct Known {
    id: LinkId,
    secret: LinkSecret,
}

/// Told which link is in use; `None` between two.
pub type OnLink = dyn Fn(Option<&Link>);

/// Keeps a link until this end closes it. `current` always holds the link in use. Dropping the future closes it.
pub async fn run(
    client: Client,
    owner: Rc<dyn Owner>,
    current: Rc<OnLink>,
    report: Rc<dyn Fn(Report<'_>)>,
) {
    let keeper = Keeper { client, owner, report };
    let serial = Cell::new(keeper.client.serial);
    loop {
        let connected = keeper.connect_new().await;
        let Some(secret) = connected.accepted.secret.clone() else { continue };
        let known = Known { id: connected.accepted.link, secret };
        let mut config = keeper.client.link;
        config.resume_timeout = connected.accepted.resume_timeout;
        config.keepalive = connected.accepted.keepalive;
        let settings = Settings {
            side: Side::Client,
            config,
            budget: Rc::clone(&keeper.client.budget),
            serial: serial.get(),
        };
        serial.set(serial.get() + keeper.client.serials);
        let link = Link::new(settings, Rc::clone(&keeper.owner));
        let _closed_on_drop = CloseOnDrop(link.clone());
        current(Some(&link));
        link.attach(connected.number, Attach::New, connected.carrier, connected.leftover);
        keeper.supervise(&link, &known, connected.path).await;
        current(None);
        if link.ended() == Some(End::Closed) {
            return;
        }
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
    async fn supervise(&self, link: &Link, known: &Known, mut path: usize) {
        loop {
            tokio::select! {
                notice = link.notice() => match notice {
                    Notice::Ended(_) => return,
                    Notice::GoingAway => self.leave(link),
                    Notice::CarrierLost => match self.reattach(link, known).await {
                        Some(new) => path = new,
                        None => return,
                    },
                    Notice::Probe => {
                        // The present carrier may yet wake up: whoever answers first carries on.
                        let next = (path + 1) % self.client.paths.len();
                        if let Some(new) = self.replace(link, known, next).await {
                            path = new;
                        }
                    }
                },
                () = tokio::time::sleep(PREFER_EVERY), if path > 0 => {
                    if let Some(new) = self.replace(link, known, 0).await {
                        path = new;
                    }
                }
            }
            if link.has_ended() {
                return;
            }
        }
    }

    /// The server takes no more streams: the link ends when its last stream does.
    fn leave(&self, link: &Link) {
        tracing::info!(link = link.serial(), "the server is going away");
        if link.stream_count() == 0 {
            link.close();
        }
    }

    /// Finds a new carrier for a link that has none; `None` when the link is over.
    async fn reattach(&self, link: &Link, known: &Known) -> Option<usize> {
        let mut backoff = Backoff::new(self.client.retry);
        loop {
            let attempt = self.connect(Some((link, known)));
            let outcome = tokio::select! {
                outcome = attempt => outcome,
                notice = link.notice() => match notice {
                    Notice::Ended(_) => return None,
                    Notice::CarrierLost | Notice::Probe | Notice::GoingAway => continue,
                },
            };
            match outcome {
                Ok(connected) => return self.attach(link, connected),
                Err((_, DialError::Greet(error)))
                    if error.refusal() == Some(Refusal::UnknownLink) =>
                {
                    link.inner.end(End::Forgotten);
                    return None;
                }
                Err((path, error)) => {
                    if !self.pause(link, &mut backoff, path, &error).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Waits before the next attempt. False: the link ended meanwhile.
    async fn pause(
        &self,
        link: &Link,
        backoff: &mut Backoff,
        path: usize,
        error: &DialError,
    ) -> bool {
        let pause = backoff.failed(error.failure());
        self.tell_failure(path, error, pause);
        tokio::time::sleep(pause).await;
        !link.has_ended()
    }

    fn tell_failure(&self, path: usize, error: &DialError, pause: Duration) {
        if let Some(path) = self.client.paths.get(path) {
            (self.report)(Report::Unreachable { path, error, pause });
        }
    }

    fn attach(&self, link: &Link, connected: Connected) -> Option<usize> {
        let Connected { path, number, carrier, leftover, .. } = connected;
        let last = CarrierNumber(number.0.saturating_sub(1));
        let attached = link.attach(number, Attach::Replaces(last), carrier, leftover);
        attached.then_some(path)
    }

    /// Moves a live link to another path; on failure nothing has changed.
    async fn replace(&self, link: &Link, known: &Known, path: usize) -> Option<usize> {
        let connected = self.try_path(path, Some((link, known)), link.next_carrier());
        let connected = connected.await.ok()?;
        self.attach(link, connected)
    }

    /// Retries for ever.
    async fn connect_new(&self) -> Connected {
        let mut backoff = Backoff::new(self.client.retry);
        loop {
            match self.connect(None).await {
                Ok(connected) => {
                    self.client.logged_in.store(true, Ordering::Relaxed);
                    return connected;
                }
                Err((path, error)) => {
                    let pause = backoff.failed(error.failure());
                    self.tell_failure(path, &error, pause);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// One round over all paths, each with a head start. The first to be greeted wins.
    async fn connect(&self, link: Option<(&Link, &Known)>) -> Result<Connected, Failed> {
        let first = link.map_or(CarrierNumber(1), |(link, _)| link.next_carrier());
        // Each attempt has a number of its own: the last one to be greeted is the carrier.
        let ways = (0..self.client.paths.len()).zip(first.0..).collect();
        let start = |(path, number)| -> LocalFuture<'static, _> {
            Box::pin(self.try_path(path, link, CarrierNumber(number)))
        };
        transport::race::race(ways, PATH_STAGGER, start, worse).await.unwrap_or_else(|| {
            let error = CarrierError::Config("no path to the server".to_owned());
            Err((0, error.into()))
        })
    }

    /// Dials and greets over one path; owns all it needs, so that it can run as a task.
    fn try_path(
        &self,
        index: usize,
        link: Option<(&Link, &Known)>,
        number: CarrierNumber,
    ) -> impl Future<Output = Result<Connected, Failed>> + use<> {
        let path = self.client.paths.get(index).cloned();
        let client = self.client.clone();
        let report = Rc::clone(&self.report);
        let claim = link.map(|(link, known)| {
            let mode = AttachMode::Replaces(link.last_carrier());
            (Claim { link: known.id, carrier: number, mode }, known.secret.clone())
        });
        async move {
            let Some(path) = path else {
                return Err((index, CarrierError::Config("no such path".to_owned()).into()));
            };
            let connected = async {
                let mut carrier = dial(&path).await?;
                let resumed = claim.is_some();
                let setup = ClientSetup {
                    binding: greet::binding(&carrier.peer),
                    name: client.name,
                    identity: client.identity,
                    instance: client.instance,
                    takeover: !client.logged_in.load(Ordering::Relaxed),
                    attach: claim,
                    versions: Versions::OURS,
                    features: Features(0),
                    nonce: crate::random::<NONCE_LENGTH>(),
                };
                let (accepted, leftover) = greet::greet_server(&mut carrier, setup).await?;
                report(Report::Connected { path: &path, resumed });
                let number = accepted.carrier;
                Ok(Connected { path: index, number, carrier, accepted, leftover })
            };
            connected.await.map_err(|error: DialError| (index, error))
        }
    }
}

/// A failure and the path it befell.
type Failed = (usize, DialError);

/// The error that says more: a refusal is news, an unreachable fallback is not.
fn worse(known: Failed, error: Failed) -> Failed {
    if error.1.failure() == Failure::Network { known } else { error }
}
