//! The links of a client. Links that were made together share their settings. When the settings
//! change, new links are made, and the old links retire: their streams continue until they end.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use config::{Choose, ClientConfig, PathSpread, ServerPaths};
use link::Retry;
use link::client::{SPREAD_MAX, StandbyPath};
use proto::LinkConfig;
use proto::greeting::{Identity, Name, Token};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::path_order::PathsInOrder;
use families::Way;
use node::session::{Handle, Session, Worker};

/// The minimum number of links when nothing is configured. The default is one link per worker; with
/// at least two links, a lost packet on one carrier does not delay all streams.
const LINKS_MIN: usize = 2;

/// The time in which a new link must become live; otherwise the working links are kept. The caller
/// of a reload waits a little longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Links that were made together.
pub(super) struct Links {
    pub(super) session: Arc<Session>,
    /// The settings.
    pub(super) plan: Plan,
    /// The number of links that were begun.
    begun: AtomicUsize,
    /// The order in which the paths are tried, where they are chosen by measurement.
    pub(super) choice: Option<PathsInOrder>,
    /// The configured paths to the server.
    pub(super) paths: Vec<PathName>,
    /// No more links are made; live links continue.
    pub(super) leaving: Arc<AtomicBool>,
    /// Other links have replaced these links. Messages of the server to retired links concern only
    /// their streams.
    retired: AtomicBool,
    keepers: Mutex<Vec<AbortHandle>>,
    /// The trial of links that are to replace others.
    trial: watch::Sender<Trial>,
}

/// The state of links that are to replace others.
#[derive(Clone, Debug)]
enum Trial {
    None,
    UnderWay,
    Failed(String),
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Links({})", self.session.name)
    }
}

/// How commands and messages name a path.
pub(super) struct PathName {
    /// The URL as configured.
    pub(super) url: String,
    /// The URL with what distinguishes the path from other paths with this URL.
    pub(super) label: String,
}

/// The checked settings of links.
pub(super) struct Plan {
    /// The name of the server for people.
    label: String,
    pub(super) ways: Vec<Way>,
    pub(super) name: Name,
    pub(super) identity: Identity,
    pub(super) count: usize,
    pub(super) spread: PathSpread,
    /// Whether the path is chosen by measurement.
    measures: bool,
    pub(super) retry: Retry,
    pub(super) link: LinkConfig,
}

impl Plan {
    /// Checks the settings of the links to one server of `config`, and reads certificates and pins.
    pub(super) fn new(
        config: &ClientConfig,
        server: &ServerPaths,
        link: LinkConfig,
        workers: usize,
    ) -> anyhow::Result<Self> {
        let ways: anyhow::Result<Vec<Way>> =
            server.paths.iter().map(|path| Way::new(path, &config.common)).collect();
        Ok(Self {
            label: server.label(),
            ways: ways?,
            name: Name::new(&config.name).context("name")?,
            identity: match server.token.as_ref().or(config.token.as_ref()) {
                Some(token) => {
                    let token = Token::new(token.secret.reveal()).context("token")?;
                    if config.introduce {
                        Identity::Introducing(token)
                    } else {
                        Identity::Token(token)
                    }
                }
                None => Identity::Certificate,
            },
            count: match config.connections {
                Some(count) => count.into(),
                // Each worker has a link over each path.
                None if config.spread == PathSpread::ByStream => {
                    (workers * spread_over(server.paths.len())).max(LINKS_MIN)
                }
                None => workers.max(LINKS_MIN),
            },
            spread: config.spread,
            measures: config.choose == Choose::Measured,
            retry: Retry { min: config.retry_min.duration(), max: config.retry_max.duration() },
            link,
        })
    }

    /// The paths of the `nth` link, of which each of the workers gets every `workers`th, in order
    /// of preference.
    pub(super) fn ways_of(&self, nth: usize, workers: usize) -> impl Iterator<Item = &Way> {
        let count = spread_over(self.ways.len());
        let first = match self.spread {
            PathSpread::ByStream => first_path(nth, workers, count),
            PathSpread::Off | PathSpread::Backup => 0,
        };
        let spread = (first..first + count).filter_map(move |n| self.ways.get(n % count));
        spread.chain(self.ways.iter().skip(count))
    }

    /// The path of the standby of each link.
    pub(super) const fn standby(&self) -> StandbyPath {
        match self.spread {
            PathSpread::Off => StandbyPath::Nowhere,
            PathSpread::ByStream | PathSpread::Backup => StandbyPath::Next,
        }
    }

    /// The server's host, as configured. The public addresses of services have this host.
    pub(super) fn host(&self) -> &str {
        self.ways.first().map_or("", Way::host)
    }
}

impl PathName {
    fn of(way: &Way) -> Self {
        Self { url: way.url().to_owned(), label: way.label().to_owned() }
    }
}

/// The number of paths over which links are spread, of so many configured paths.
fn spread_over(paths: usize) -> usize {
    paths.min(SPREAD_MAX)
}

/// The index of the path that the `nth` link prefers where the links take turns over `paths` paths.
/// Each worker has every `workers`th link. The links of a worker have different paths, and so have
/// the first links of the workers.
fn first_path(nth: usize, workers: usize, paths: usize) -> usize {
    let (round, worker) = (nth / workers.max(1), nth % workers.max(1));
    (round + worker).checked_rem(paths).unwrap_or(0)
}

impl Links {
    /// Makes a set without links. Attempts to make its links are repeated until they succeed,
    /// unless the set is on trial.
    pub(super) fn of(plan: Plan, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            session: Session::new(&plan.label, workers),
            choice: plan.measures.then(PathsInOrder::default),
            paths: plan.ways.iter().map(PathName::of).collect(),
            plan,
            begun: AtomicUsize::new(0),
            leaving: Arc::default(),
            retired: AtomicBool::new(false),
            keepers: Mutex::default(),
            trial: watch::Sender::new(Trial::None),
        })
    }

    /// Whether no link was begun.
    pub(super) fn are_new(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == 0
    }

    /// Raises the number of links that were begun to `count`, at most the configured number.
    /// Returns the numbers of the links to begin.
    pub(super) fn begin(&self, count: usize) -> std::ops::Range<usize> {
        let count = count.min(self.plan.count);
        self.begun.fetch_max(count, Ordering::Relaxed)..count
    }

    /// Puts the set on trial: the first failure ends the trial, because the old links still work.
    /// To be called before the links are made.
    pub(super) fn on_trial(&self) {
        self.trial.send_replace(Trial::UnderWay);
    }

    /// Ends the trial: failures are logged again.
    pub(super) fn end_trial(&self) {
        self.trial.send_replace(Trial::None);
    }

    /// Whether the set is on trial.
    pub(super) fn are_on_trial(&self) -> bool {
        !matches!(*self.trial.borrow(), Trial::None)
    }

    /// Records why a link could not be made. False when the set is not on trial, so the caller logs
    /// the failure.
    pub(super) fn fail(&self, why: &str) -> bool {
        let mut is_on_trial = false;
        self.trial.send_if_modified(|trial| {
            is_on_trial = !matches!(trial, Trial::None);
            let is_first = matches!(trial, Trial::UnderWay);
            if is_first {
                *trial = Trial::Failed(why.to_owned());
            }
            is_first
        });
        is_on_trial
    }

    /// Records the task that keeps a link.
    pub(super) fn note_keeper(&self, keeper: AbortHandle) {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).push(keeper);
    }

    /// Waits until a link accepts streams.
    ///
    /// # Errors
    /// The reason why no link does, after the first failure or [`PATIENCE`].
    pub(super) async fn come_alive(&self) -> Result<(), String> {
        let live = async {
            loop {
                let revived = self.session.revived.notified();
                if self.session.live() > 0 {
                    return;
                }
                revived.await;
            }
        };
        let mut trial = self.trial.subscribe();
        let failed = async {
            loop {
                let now = trial.borrow_and_update().clone();
                if let Trial::Failed(why) = now {
                    return why;
                }
                // Fails only when the sender is dropped, but `self` holds the sender.
                let _ = trial.changed().await;
            }
        };
        let outcome = tokio::select! {
            // One live link is enough, and may have visitors already.
            biased;
            () = live => Ok(()),
            why = failed => Err(why),
            () = tokio::time::sleep(PATIENCE) => Err("no answer in time".to_owned()),
        };
        // After a failure, later failures of these links are not logged.
        self.trial.send_replace(match &outcome {
            Ok(()) => Trial::None,
            Err(why) => Trial::Failed(why.clone()),
        });
        outcome
    }

    /// Retires the links, because other links have replaced them. They accept no more streams, and
    /// each link ends with its last stream.
    pub(super) async fn retire(&self, handles: &[Handle]) {
        self.leaving.store(true, Ordering::Relaxed);
        self.retired.store(true, Ordering::Relaxed);
        let id = self.session.id;
        for handle in handles {
            let go_away = move |worker: &Rc<Worker>| {
                let all = worker.state.all_links();
                all.iter().filter(|(of, _)| of.id == id).for_each(|(_, link)| link.go_away());
            };
            // A worker that has stopped has no links.
            let _ = handle.call(go_away).await;
        }
    }

    /// Whether other links have replaced these links.
    pub(super) fn are_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Ends the attempts to make links that have never had a carrier, if none of the links has
    /// streams: a retired link that is live ends with its last stream.
    pub(super) fn give_up_waiting(&self) {
        if !self.session.has_links() {
            self.give_up();
        }
    }

    /// Ends these links and the attempts to make them.
    pub(super) fn give_up(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        self.retired.store(true, Ordering::Relaxed);
        let keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::first_path;

    #[test]
    fn the_links_of_each_worker_take_turns_over_the_paths() {
        for workers in 1..=8 {
            for paths in 1..=4 {
                for worker in 0..workers {
                    let links = (0..paths).map(|round| round * workers + worker);
                    let mut firsts: Vec<_> =
                        links.map(|nth| first_path(nth, workers, paths)).collect();
                    firsts.sort_unstable();
                    assert_eq!(firsts, (0..paths).collect::<Vec<_>>(), "{worker} of {workers}");
                }
            }
        }
    }

    #[test]
    fn few_links_on_several_workers_use_several_paths() {
        let firsts = |count| (0..count).map(|nth| first_path(nth, 2, 2)).collect::<Vec<_>>();
        assert_eq!(firsts(2), [0, 1]);
        assert_eq!(firsts(3), [0, 1, 1]);
    }
}
