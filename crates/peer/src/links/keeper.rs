//! Keeps a link to a private service on one worker, while it is used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::link::client::{Client, Report, StandbyPath};
use ::link::{Link, Path, Retry};
use config::{PeerPath, Proof, Visit};
use proto::greeting::{Features, Identity, Name, Token};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use super::dialer::Relayed;
use super::owner::VisitorOwner;
use super::{Keeper, Peer, trouble};
use crate::direct::seek::{Direct, Over, Seeker};
use crate::home::Home;
use node::memory;
use node::session::Worker;

/// A link without a stream and without a flow is kept for this time, because another visit then
/// costs no handshake.
const IDLE: Duration = Duration::from_secs(300);

/// The poll interval of a link. A stream that begins and ends between two polls is detected by its
/// bytes.
const LOOK: Duration = Duration::from_secs(30);

/// The poll interval of a link whose path to the server retires.
const HASTE: Duration = Duration::from_millis(200);

/// An attempt that fails for a transient reason is given up after this time without a link, unless
/// the link is always kept. Visitors that wait for a link have left by then.
const GIVE_UP: Duration = Duration::from_secs(30);

/// The link of a keeper, and the state of the keeper.
pub(super) struct Kept {
    link: RefCell<Option<Link>>,
    /// Notified when the keeper must end.
    over: Notify,
    /// When there last was a link, or when the keeper began.
    since: Cell<Instant>,
    /// The link uses a link to the server that retires.
    way_retires: Cell<bool>,
}

impl Kept {
    pub(super) fn set(&self, link: Option<&Link>) {
        self.since.set(Instant::now());
        *self.link.borrow_mut() = link.cloned();
    }

    fn has_link(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| !link.has_ended())
    }

    /// The values that polls compare. A link that replaces another begins with no bytes.
    fn seen(&self) -> Seen {
        let link = self.link.borrow();
        let Some(link) = &*link else { return Seen::default() };
        let (received, sent, _) = link.totals();
        let is_open = link.stream_count() > 0 || link.flow_count() > 0;
        Seen { is_open, bytes: (received, sent) }
    }
}

/// The use of a link at a poll.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// There is a stream or a flow.
    is_open: bool,
    /// Payload received and sent.
    bytes: (u64, u64),
}

impl Seen {
    /// Whether the link was used since the poll `before`.
    fn is_used_since(self, before: Self) -> bool {
        self.is_open || self.bytes != before.bytes
    }
}

/// Starts the task that keeps a link.
pub(super) fn start(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    peer: &Arc<Peer>,
    visit: &Visit,
) -> Keeper {
    let leaving = Arc::<AtomicBool>::default();
    let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
    let (peer, visit, stop) = (Arc::clone(peer), visit.clone(), Arc::clone(&leaving));
    let task = spawn_local(async move {
        while keep_one(&worker, &shared, &peer, (&visit, &stop)).await == Then::Another {
            stop.store(false, Ordering::SeqCst);
            // A process that stops sets this first and `stop` after it.
            if shared.is_leaving() {
                return;
            }
        }
    });
    Keeper { task: task.abort_handle(), leaving }
}

/// The next step after a link has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The link is always kept, and only its path has retired.
    Another,
}

/// Keeps one link with its carriers.
async fn keep_one(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    peer: &Arc<Peer>,
    (visit, leaving): (&Visit, &Arc<AtomicBool>),
) -> Then {
    let over = match visit.p2p {
        PeerPath::Auto | PeerPath::Direct => Some(Over::Quic),
        PeerPath::Webrtc => Some(Over::Channels),
        PeerPath::Relay => None,
    };
    let of = visit.service.client.as_str();
    let seeker = over.map(|over| Seeker::new(shared, (of, &peer.session), over));
    let client = client(worker, shared, visit, (seeker.as_ref(), leaving));
    let owner = VisitorOwner::new(worker, peer, seeker.as_ref(), visit);
    match client {
        Some(client) => keep(owner, client, peer).await,
        None => Then::Nothing,
    }
}

/// The settings of the link. `None`: name or token are invalid, which the configuration has
/// excluded.
fn client(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    visit: &Visit,
    (seeker, leaving): (Option<&Rc<Seeker>>, &Arc<AtomicBool>),
) -> Option<Client> {
    let config = shared.config().load();
    let identity = match &visit.proof {
        Proof::Token(token) => Identity::Token(Token::new(token.secret.reveal()).ok()?),
        Proof::Certificate(_) => Identity::Certificate,
    };
    let relayed = Relayed {
        worker: Rc::clone(worker),
        shared: Arc::clone(shared),
        service: visit.service.clone(),
        proof: visit.proof.clone(),
    };
    // The paths in order of preference. The direct path is dialled by means of the relayed carrier.
    let direct = seeker.map(|seeker| Path {
        url: format!("direct://{}", visit.service),
        dialer: Rc::new(Direct(Rc::clone(seeker))),
    });
    let url = format!("relay://{}", visit.service);
    let relayed = Path { url, dialer: Rc::new(relayed) };
    Some(Client {
        paths: direct.into_iter().chain([relayed]).collect(),
        standby: StandbyPath::Last,
        choice: None,
        spreads: false,
        features: Features::ALONE,
        name: Name::new(&config.name).ok()?,
        identity,
        instance: shared.instance(),
        logged_in: Arc::default(),
        shares: Arc::default(),
        leaving: Arc::clone(leaving),
        retry: Retry { min: config.retry_min.duration(), max: config.retry_max.duration() },
        link: memory::link_config(&config.common),
        budget: Rc::new(worker.state.portion.clone()),
        serials: shared.serials(),
        redial: Rc::clone(&worker.state.redial),
    })
}

/// Keeps a link until it is no longer used, or cannot be made.
async fn keep(owner: Rc<VisitorOwner>, client: Client, peer: &Arc<Peer>) -> Then {
    let kept = Rc::new(Kept {
        link: RefCell::default(),
        over: Notify::new(),
        since: Cell::new(Instant::now()),
        way_retires: Cell::new(false),
    });
    let leaving = Arc::clone(&client.leaving);
    let (begun, of_link) = (Rc::clone(&owner), Rc::clone(&kept));
    let on_link = move |link: Option<&Link>| {
        of_link.set(link);
        begun.begin(link);
    };
    let (reporter, of_report) = (Arc::clone(peer), Rc::clone(&kept));
    let moved = Rc::clone(&owner);
    let report = move |report: Report<'_>| tell(&reporter, (&of_report, &moved), &report);
    let running = ::link::client::run(client, owner, Rc::new(on_link), Rc::new(report));
    tokio::select! {
        () = running => {}
        () = kept.over.notified() => {}
        () = look_after(&kept, &leaving, peer) => {}
    }
    if kept.way_retires.get() && peer.state().is_kept { Then::Another } else { Then::Nothing }
}

/// Lets an idle link retire. Returns when the keeper must end.
async fn look_after(kept: &Kept, leaving: &AtomicBool, peer: &Peer) {
    let (mut used, mut last) = (Instant::now(), kept.seen());
    let mut moves = peer.links.upgrade().map(|links| links.moves.subscribe());
    loop {
        tokio::select! {
            () = sleep(if kept.way_retires.get() { HASTE } else { LOOK }) => {}
            () = moved(&mut moves) => {
                if !kept.has_link() {
                    // The link will be dialled over a link that stays.
                    continue;
                }
                kept.way_retires.set(true);
            }
        }
        let now = kept.seen();
        let was_used = now.is_used_since(std::mem::replace(&mut last, now));
        let is_idle = used.elapsed() >= IDLE && !peer.state().is_kept && !was_used;
        let is_to_leave = kept.way_retires.get() && !now.is_open;
        if !is_idle && !is_to_leave {
            if peer.state().is_kept || was_used {
                used = Instant::now();
            }
        } else if kept.has_link() {
            // No successor is made, and a stream that is opened meanwhile continues to its end.
            leaving.store(true, Ordering::Relaxed);
            if let Some(link) = &*kept.link.borrow() {
                let why = if is_idle { "it is idle" } else { "its link to the server retires" };
                tracing::debug!(service = %peer.service, "the link of the visit retires: {why}");
                link.go_away();
            }
            // The end of the link ends the keeper.
            return std::future::pending().await;
        }
    }
}

/// Waits until a link to the server begins to retire. Cancel-safe.
async fn moved(moves: &mut Option<watch::Receiver<u64>>) {
    let changed = match moves {
        Some(moves) => moves.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending().await
    }
}

/// Logs a report of the keeper of the link, and ends attempts that cannot succeed.
fn tell(peer: &Peer, (kept, owner): (&Kept, &VisitorOwner), report: &Report<'_>) {
    let service = &peer.service;
    match report {
        Report::Unreachable { error, .. } => {
            let lasting = trouble::lasting(service, owner.by_certificate(), error);
            if kept.has_link() && lasting.is_none() {
                tracing::debug!(%service, "the link to a private service is not resumed: {error}");
                return;
            }
            let is_over = lasting.is_some() || kept.since.get().elapsed() >= GIVE_UP;
            if is_over && !kept.has_link() {
                peer.fail(lasting.unwrap_or_else(|| trouble::passing(service, error)));
                if !peer.state().is_kept {
                    kept.over.notify_one();
                }
            }
        }
        Report::Connected { link, path, resumed, reason } => {
            peer.succeed();
            if let Some(link) = &*kept.link.borrow() {
                owner.moved(link);
            }
            let what = if *resumed { "goes on" } else { "is connected" };
            let how = if path.url.starts_with("direct://") {
                "over a direct path"
            } else {
                "through the server"
            };
            match reason {
                Some(reason) if *resumed => tracing::info!(
                    link, %service, %reason,
                    "link {link} to the private service {service} {what} {how}, because {reason}"
                ),
                Some(_) | None => tracing::info!(
                    link, %service,
                    "link {link} to the private service {service} {what} {how}"
                ),
            }
        }
        Report::NotBetter { link, error, pause, .. } => {
            let seconds = pause.as_secs();
            if owner.only_direct() {
                peer.fail(format!("no direct path: {error}"));
            } else {
                tracing::info!(
                    link, %service,
                    "link {link} to the private service {service} stays relayed: {error}; a direct \
                     path is tried again in {seconds} s"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_come_and_go_between_two_looks_are_a_use() {
        let seen = |is_open, received, sent| Seen { is_open, bytes: (received, sent) };
        assert!(!seen(false, 7, 9).is_used_since(seen(true, 7, 9)));
        assert!(seen(false, 7, 10).is_used_since(seen(false, 7, 9)));
        assert!(seen(false, 8, 9).is_used_since(seen(false, 7, 9)));
        assert!(seen(true, 7, 9).is_used_since(seen(false, 7, 9)));
        assert!(seen(false, 0, 1).is_used_since(Seen { is_open: false, bytes: (7, 9) }));
    }
}
