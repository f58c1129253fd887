//! Keeps a link to another node on one worker: always on the first worker, and on another worker
//! while it is used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::link::client::{Client, Report, StandbyPath};
use ::link::{Link, Retry};
use node::session::Worker;
use proto::greeting::Features;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::owner::OutgoingOwner;
use super::paths::NodePaths;
use super::remote::Remote;
use super::trouble;
use crate::names::certificate_name;
use crate::shared::NodeShared;

/// A link without a stream and without a flow is kept for this time, because another visitor then
/// waits for no handshake.
const IDLE: Duration = Duration::from_secs(600);

/// The poll interval of a link. A stream that begins and ends between two polls is detected by its
/// bytes.
const LOOK: Duration = Duration::from_secs(30);

/// An attempt to make a link for visitors is given up after this time. They have left by then, and
/// the next visitor starts another attempt.
const GIVE_UP: Duration = Duration::from_secs(30);

/// The pause before a link that must always be there is made again after its end at this side.
const AGAIN: Duration = Duration::from_secs(1);

/// The pauses between attempts, each half of its bound at least. They stay below the time after
/// which the cluster hears of a link without a carrier (`news.rs`), and a node that is gone is
/// dialled for a minute or two.
const RETRY: Retry = Retry { min: Duration::from_millis(100), max: Duration::from_millis(1500) };

/// A task that keeps a link.
pub(super) struct LinkKeeper {
    task: AbortHandle,
    /// No more links are made.
    leaving: Arc<AtomicBool>,
}

impl LinkKeeper {
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Makes no more links. The present links end with their last streams, once they are asked to
    /// retire.
    pub(super) fn stop(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }
}

/// The present link of a keeper.
struct KeptLink {
    link: RefCell<Option<Link>>,
    /// When there last was a link, or when the keeper began.
    since: Cell<Instant>,
}

impl KeptLink {
    fn set(&self, link: Option<&Link>) {
        self.since.set(Instant::now());
        *self.link.borrow_mut() = link.cloned();
    }

    fn has_link(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| !link.has_ended())
    }

    /// Whether the link has a stream or a flow, and its bytes so far. A link that replaces another
    /// begins with no bytes.
    fn use_of_link(&self) -> (bool, u64) {
        let link = self.link.borrow();
        let Some(link) = &*link else { return (false, 0) };
        let (received, sent, _) = link.totals();
        let is_open = link.stream_count() > 0 || link.flow_count() > 0;
        (is_open, received.saturating_add(sent))
    }
}

/// Starts the task that keeps a link.
pub(super) fn start(
    worker: &Rc<Worker>,
    shared: &Arc<NodeShared>,
    remote: &Arc<Remote>,
    paths: NodePaths,
) -> LinkKeeper {
    let leaving = Arc::<AtomicBool>::default();
    let client = client(worker, shared, remote, (paths, &leaving));
    let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
    let (remote, stop) = (Arc::clone(remote), Arc::clone(&leaving));
    let task = spawn_local(async move {
        let kept = Rc::new(KeptLink { link: RefCell::default(), since: Cell::new(Instant::now()) });
        if worker.index > 0 {
            tokio::select! {
                () = keep(&worker, &shared, &remote, (client, &kept)) => {}
                () = until_idle(&kept, &stop, &remote) => {}
            }
            return;
        }
        while !stop.load(Ordering::Relaxed) {
            keep(&worker, &shared, &remote, (client.clone(), &kept)).await;
            sleep(AGAIN).await;
        }
    });
    LinkKeeper { task: task.abort_handle(), leaving }
}

/// The settings of a link.
fn client(
    worker: &Rc<Worker>,
    shared: &Arc<NodeShared>,
    remote: &Remote,
    (ways, leaving): (NodePaths, &Arc<AtomicBool>),
) -> Client {
    let NodePaths { paths, identity } = ways;
    Client {
        paths,
        standby: StandbyPath::Nowhere,
        choice: None,
        spreads: false,
        features: Features::OF_NODE,
        name: shared.name.clone(),
        identity,
        instance: shared.instance,
        logged_in: Arc::default(),
        shares: Arc::default(),
        leaving: Arc::clone(leaving),
        retry: RETRY,
        redial: Rc::clone(&worker.state.redial),
        link: shared.link_config(),
        // A node that takes nothing leaves memory to the streams to other nodes.
        budget: Rc::new(worker.state.portion.of_client(&certificate_name(&remote.node))),
        serials: Arc::clone(&shared.serials),
    }
}

/// Keeps a link until this end closes it or makes no more.
async fn keep(
    worker: &Rc<Worker>,
    shared: &Arc<NodeShared>,
    remote: &Arc<Remote>,
    (client, kept): (Client, &Rc<KeptLink>),
) {
    let owner = OutgoingOwner::new(worker, remote);
    let (begun, of_link) = (Rc::clone(&owner), Rc::clone(kept));
    let on_link = move |link: Option<&Link>| {
        of_link.set(link);
        begun.begin(link);
    };
    let (shared, of_report, remote) = (Arc::clone(shared), Rc::clone(kept), Arc::clone(remote));
    let report = move |report: Report<'_>| tell(&shared, &remote, &of_report, &report);
    ::link::client::run(client, owner, Rc::new(on_link), Rc::new(report)).await;
}

/// Lets an idle link retire. Returns when there was no link for too long.
async fn until_idle(kept: &KeptLink, leaving: &AtomicBool, remote: &Remote) {
    let (mut used, mut last) = (Instant::now(), kept.use_of_link());
    loop {
        sleep(LOOK).await;
        if !kept.has_link() && kept.since.get().elapsed() >= GIVE_UP {
            return;
        }
        let now = kept.use_of_link();
        let was_used = now.0 || now.1 != last.1;
        last = now;
        if was_used {
            used = Instant::now();
        } else if used.elapsed() >= IDLE && kept.has_link() {
            // No successor is made, and a stream that is opened meanwhile continues to its end.
            leaving.store(true, Ordering::Relaxed);
            if let Some(link) = &*kept.link.borrow() {
                let (serial, node) = (link.serial(), &remote.node);
                tracing::debug!(link = serial, %node, "link {serial} to node {node} retires: it is idle");
                link.go_away();
            }
            // The end of the link ends the keeper.
            return std::future::pending().await;
        }
    }
}

/// Logs a report of the keeper of a link.
fn tell(shared: &NodeShared, remote: &Remote, kept: &KeptLink, report: &Report<'_>) {
    let node = &remote.node;
    match report {
        Report::Unreachable { path, error, .. } => {
            let is_plain = path.url.starts_with("tcp://");
            let trouble = trouble::of(&shared.own, node, (error, is_plain));
            remote
                .fail(format!("{}: {}", path.url, trouble.text), trouble.lasts && !kept.has_link());
        }
        Report::Connected { link, path, resumed, reason } => {
            remote.succeed();
            let what = if *resumed { "goes on" } else { "is connected" };
            let why = reason.as_ref().map_or_else(String::new, |why| format!(", because {why}"));
            tracing::info!(
                link, %node,
                "link {link} to node {node} {what} over {}{why}", path.url
            );
        }
        Report::NotBetter { link, path, error, pause } => {
            let pause = pause.as_secs();
            tracing::debug!(link, %node, ?path, %error, pause, "a better path failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use ::link::{ProcessBudget, Settings};
    use cluster::names::NodeId;
    use node::memory;
    use node::session::{Session, State};
    use proto::{LinkConfig, Side, Unlimited};
    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A node, and the second of two workers.
    fn ground() -> (Arc<Remote>, Rc<Worker>) {
        let session = Session::of_node("node:b", 2, None);
        let remote = Remote::new(&NodeId::new("b").unwrap(), session, Arc::default());
        let lease = memory::lease(&ProcessBudget::new(64 << 20), NonZeroUsize::MIN);
        let worker = Worker { index: 1, peers: Arc::from([]), state: State::new(lease) };
        (remote, Rc::new(worker))
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_without_streams_retires_after_ten_minutes() {
        let story = async {
            let (remote, worker) = ground();
            let settings = Settings {
                side: Side::Client,
                config: LinkConfig { resume_timeout: HOUR, ..LinkConfig::default() },
                budget: Rc::new(Unlimited),
                serial: 1,
                features: Features::OF_NODE,
            };
            let link = Link::new(settings, OutgoingOwner::new(&worker, &remote));
            let kept = KeptLink { link: RefCell::default(), since: Cell::new(Instant::now()) };
            kept.set(Some(&link));
            let leaving = AtomicBool::new(false);
            let mut looking = std::pin::pin!(until_idle(&kept, &leaving, &remote));
            let goes = || (leaving.load(Ordering::Relaxed), link.is_going_away());
            assert!(timeout(IDLE - LOOK / 2, &mut looking).await.is_err());
            assert_eq!(goes(), (false, false));
            assert!(timeout(LOOK * 2, &mut looking).await.is_err());
            assert_eq!(goes(), (true, true));
        };
        LocalSet::new().run_until(story).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_for_visitors_is_given_up_after_half_a_minute() {
        let (remote, _) = ground();
        let kept = KeptLink { link: RefCell::default(), since: Cell::new(Instant::now()) };
        let begun = Instant::now();
        until_idle(&kept, &AtomicBool::new(false), &remote).await;
        assert_eq!(begun.elapsed(), GIVE_UP);
    }
}
