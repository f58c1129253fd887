//! `tunnel run`: a daemon for each file of a folder, each in a separate process that is restarted
//! after an error.
//!
//! | module | content |
//! |---|---|
//! | `folder` | the files, their names and roles |
//! | `keeper` | one daemon: starts, follows and restarts its process |
//! | `process` | a process, and how it ends |
//! | `messages` | what a daemon says of itself |
//! | `supervised` | the side of the daemon |
//!
//! One socket answers `tunnel status`, `reload`, `restart` and `stop` for all daemons. Each daemon
//! has its own control socket as well, for all commands.

mod folder;
mod keeper;
mod messages;
mod process;
mod supervised;

use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use control::{ControlSocket, Instance, SocketPath};
use folder::{described, nothing_in};
use keeper::{Kept, Order, Program};
use logging::AUDIT;
use ops::command::{ReadStatus, Reload};
use ops::revision::{Checked, NewConfig};
use ops::shown::{self, Shown};
use ops::state::Places;
use ops::status::{DaemonState, Restarted, Status, Supervised, SupervisedState};
use ops::{Daemon, Life, Phase, Reloaded, Role, SendFuture, Settings, Supervision, term};
use tokio::time::timeout;

use crate::cli::{LogArgs, RunArgs};
use crate::input::absolute;
use crate::load::{self, Either};
use crate::runtime;
use crate::signals::Signals;
use crate::{activation, notify};

pub(crate) use process::descriptor;
pub(crate) use supervised::{SUPERVISOR, end_with_the_supervisor, is_supervised};

/// The longest wait for the first start of all daemons, before `tunnel run` itself is ready.
const START: Duration = Duration::from_secs(15);

/// The error of a request that comes too late.
const STOPPING: &str = "`tunnel run` is stopping";

/// Runs the daemons until a signal or `tunnel stop`.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    activation::take();
    let (level, format) = (args.log.log_level.as_deref(), args.log.log_format.map(Into::into));
    logging::start(&logging::Settings::choose(level, args.log.verbose, None, format)?, None)?;
    activation::refuse("`tunnel run`");
    let path = absolute(&args.config)?;
    let places = Places::of_process();
    let socket = SocketPath::choose(args.control.as_deref(), None, Role::Run.name(), &places)?;
    runtime::run(live(args, path, &socket))
}

async fn live(args: &RunArgs, path: PathBuf, socket: &SocketPath) -> anyhow::Result<()> {
    let life = Life::new();
    let signals = Signals::catch().context("catching signals")?;
    signals.tell_terminal();
    let steering = tokio::spawn(signals.steer(life.clone()));
    let all = described(&path)?;
    if all.is_empty() {
        return Err(nothing_in(&path));
    }
    let socket = ControlSocket::bind(socket)?;
    let folder = socket.path().parent().map(PathBuf::from).unwrap_or_default();
    messages::sweep(&folder);
    let program = Program { path: program()?, flags: flags(args), folder };
    let supervisor = Arc::new(Supervisor::new(path, program));
    let serving = tokio::spawn(socket.serve(Arc::<Supervisor>::clone(&supervisor), life.clone()));
    supervisor.keep(all);
    tokio::select! {
        _ = timeout(START, supervisor.settled()) => {}
        () = life.reached(Phase::Draining) => {}
    }
    let summary = supervisor.summary();
    notify::ready(&summary);
    tracing::info!("{summary}");
    let reloading = async {
        loop {
            life.reload_asked().await;
            // The log has the outcome.
            let _ = supervisor.reload().await;
        }
    };
    // The turn of this thread is the check: the daemons have separate watchdogs.
    let mut feeding = std::pin::pin!(notify::feed_watchdog(async |_| true));
    tokio::select! {
        () = life.reached(Phase::Draining) => {}
        () = reloading => {}
        never = &mut feeding => match never {},
    }
    notify::stopping(supervisor.longest_drain().await);
    tracing::info!(
        "stopping: the daemons finish their streams, as their drain_timeout says; a second signal or \
         `tunnel stop --now` resets the streams"
    );
    tokio::select! {
        () = supervisor.stop(&life) => {}
        never = &mut feeding => match never {},
    }
    serving.abort();
    // Waits until the socket file is removed.
    drop(serving.await);
    steering.abort();
    tracing::info!("stopped");
    Ok(())
}

/// The path of this program. After an update has replaced the program, /proc shows a different
/// name.
fn program() -> anyhow::Result<PathBuf> {
    let path = env::current_exe().context("the path of this program")?;
    let name = path.as_os_str().to_string_lossy();
    Ok(name.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from))
}

/// The flags of `tunnel run` that apply to each daemon.
fn flags(args: &RunArgs) -> Vec<String> {
    let LogArgs { verbose, log_level, log_format } = &args.log;
    let mut flags = vec!["-v".to_owned(); usize::from(*verbose)];
    if let Some(level) = log_level {
        flags.extend(["--log-level".to_owned(), level.clone()]);
    }
    if let Some(format) = log_format {
        flags.extend(["--log-format".to_owned(), format.name().to_owned()]);
    }
    flags
}

struct Supervisor {
    path: PathBuf,
    program: Arc<Program>,
    started: Instant,
    number: AtomicU64,
    daemons: Mutex<Daemons>,
    /// Permits one reload at a time.
    turn: tokio::sync::Mutex<()>,
    reload_error: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Daemons {
    kept: Vec<Kept>,
    /// The daemons whose files were removed, until they have ended.
    leaving: Vec<Kept>,
    /// All daemons end, and none is started any more.
    is_stopping: bool,
}

impl Supervisor {
    fn new(path: PathBuf, program: Program) -> Self {
        let (number, daemons, turn, reload_error) = Default::default();
        let (program, started) = (Arc::new(program), Instant::now());
        Self { path, program, started, number, daemons, turn, reload_error }
    }

    fn daemons(&self) -> MutexGuard<'_, Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, all: Vec<folder::Described>) {
        let mut daemons = self.daemons();
        if daemons.is_stopping {
            return;
        }
        for described in all {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            daemons.kept.push(Kept::start(described, Arc::clone(&self.program), number));
        }
    }

    async fn settled(&self) {
        let waits: Vec<_> = self.daemons().kept.iter().map(Kept::settles).collect();
        for wait in waits {
            wait.await;
        }
    }

    fn summary(&self) -> String {
        let daemons = self.daemons();
        let running =
            daemons.kept.iter().filter(|one| one.state() == SupervisedState::Running).count();
        let all = term::count(u64::try_from(daemons.kept.len()).unwrap_or(u64::MAX), "daemon");
        format!("{running} of {all} running")
    }

    /// The longest `drain_timeout` of the files, plus the time in which the last process must end.
    async fn longest_drain(&self) -> Duration {
        let files: Vec<_> =
            self.daemons().kept.iter().map(|one| one.described.path.clone()).collect();
        let drain = |file: PathBuf| {
            let common = match load::file(&file).ok()? {
                Either::Server(loaded) => loaded.config.common,
                Either::Client(loaded) => loaded.config.common,
                Either::Proxy(loaded) => loaded.config.common,
            };
            Some(common.drain_timeout.duration())
        };
        let longest = move || files.into_iter().filter_map(drain).max().unwrap_or_default();
        tokio::task::spawn_blocking(longest).await.unwrap_or_default() + keeper::LAST
    }

    /// Ends all daemons.
    async fn stop(&self, life: &Life) {
        self.daemons().is_stopping = true;
        self.order_all(Order::Stop { now: life.phase() == Phase::Ending }).await;
        let ends: Vec<_> = self.daemons().all().map(Kept::ends).collect();
        let gone = async {
            for end in ends {
                end.await;
            }
        };
        let mut gone = std::pin::pin!(gone);
        tokio::select! {
            () = &mut gone => return,
            () = life.reached(Phase::Ending) => self.order_all(Order::Stop { now: true }).await,
        }
        gone.await;
    }

    async fn order_all(&self, order: Order) {
        let orders: Vec<_> = self.daemons().all().map(|one| one.order(order)).collect();
        for order in orders {
            order.await;
        }
    }

    /// Scans the folder again: starts, ends and reloads daemons.
    async fn reload_now(&self) -> anyhow::Result<Reloaded> {
        let path = self.path.clone();
        let all = tokio::task::spawn_blocking(move || described(&path)).await??;
        if all.is_empty() {
            return Err(nothing_in(&self.path));
        }
        let mut reloaded = Reloaded::default();
        let (mut new, mut asked, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut daemons = self.daemons();
            ensure!(!daemons.is_stopping, STOPPING);
            let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut daemons.kept)
                .into_iter()
                .partition(|one| all.contains(&one.described));
            daemons.kept = stay;
            for one in gone {
                orders.push(one.order(Order::Stop { now: false }));
                reloaded.applied.push(format!("{} stops", one.described.name));
                daemons.leaving.push(one);
            }
            daemons.leaving.retain(|one| !one.is_gone());
            for one in all {
                match daemons.kept.iter().find(|kept| kept.described == one) {
                    Some(kept) => match kept.reach() {
                        Some(reach) => asked.push((one.name, reach)),
                        None => orders.push(kept.order(Order::Reload)),
                    },
                    None => new.push(one),
                }
            }
        }
        for order in orders {
            order.await;
        }
        reloaded.applied.extend(new.iter().map(|one| format!("{} starts", one.name)));
        self.keep(new);
        for (name, (pid, socket)) in asked {
            let ask = move || -> anyhow::Result<Reloaded> {
                let status = control::ask(&Instance::connect(&socket)?, ReadStatus {})?;
                ensure!(status.pid == pid, "another process answers");
                control::ask(&Instance::connect(&socket)?, Reload {})
            };
            match tokio::task::spawn_blocking(ask).await? {
                Ok(one) => add(&mut reloaded, &name, one),
                Err(why) => reloaded.failed.push(format!("{name}: not reloaded: {why:#}")),
            }
        }
        if timeout(START, self.settled()).await.is_err() {
            reloaded.warnings.push("some daemons are not ready yet".to_owned());
        }
        let daemons = self.daemons();
        for one in daemons.kept.iter().map(Kept::status) {
            if matches!(one.state.state(), SupervisedState::Wrong | SupervisedState::Failed) {
                reloaded.failed.push(format!("{}: {}", one.name, one.state));
            }
        }
        Ok(reloaded)
    }
}

impl Daemons {
    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().chain(&self.leaving)
    }
}

/// Adds the outcome of one daemon.
fn add(all: &mut Reloaded, name: &str, one: Reloaded) {
    let named = |lines: Vec<String>| {
        lines.into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    all.applied.extend(named(one.applied));
    all.restart.extend(named(one.restart));
    all.failed.extend(named(one.failed));
    all.warnings.extend(named(one.warnings));
    all.refused.extend(one.refused);
    all.published.extend(one.published);
}

impl Daemon for Supervisor {
    fn role(&self) -> Role {
        Role::Run
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let daemons = self.daemons();
            let is_there = |one: &&Kept| !one.is_gone();
            let mut all: Vec<Supervised> =
                daemons.all().filter(is_there).map(Kept::status).collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            let is_stopping = daemons.is_stopping;
            let state = if is_stopping { DaemonState::Draining } else { DaemonState::Running };
            Status {
                role: self.role(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                uptime_seconds: self.started.elapsed().as_secs(),
                state: state.into(),
                reload_error: self
                    .reload_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
                log_lines_left_out: logging::left_out(),
                daemons: all,
                ..Status::default()
            }
        })
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }

    fn supervision(&self) -> Option<&dyn Supervision> {
        Some(self)
    }
}

impl Settings for Supervisor {
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async {
            let _turn = self.turn.lock().await;
            ensure!(!self.daemons().is_stopping, STOPPING);
            notify::reloading();
            let outcome = self.reload_now().await;
            // systemd already knows of the stop, and must not be told that the daemons are ready.
            if !self.daemons().is_stopping {
                notify::ready(&self.summary());
            }
            let why = outcome.as_ref().err().map(|why| format!("{why:#}").replace('\n', "; "));
            match (&outcome, &why) {
                (Ok(done), _) => tracing::info!(target: AUDIT, "reloaded: {done}"),
                (Err(_), Some(why)) => {
                    tracing::error!(target: AUDIT, "not reloaded, nothing has changed: {why}");
                }
                (Err(_), None) => {}
            }
            *self.reload_error.lock().unwrap_or_else(PoisonError::into_inner) = why;
            outcome
        })
    }

    fn configuration(&self) -> anyhow::Result<Shown> {
        bail!(shown::NONE)
    }

    fn foresee(&self, _: NewConfig) -> SendFuture<'_, anyhow::Result<Checked>> {
        Box::pin(async { bail!(shown::NONE) })
    }

    fn amend(&self, _: NewConfig, _: Option<String>) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { bail!(shown::NONE) })
    }

    fn undo(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { bail!(shown::NONE) })
    }
}

impl Supervision for Supervisor {
    fn restart(
        &self,
        name: Option<String>,
        now: bool,
    ) -> SendFuture<'_, anyhow::Result<Restarted>> {
        Box::pin(async move {
            let orders: Vec<_> = {
                let daemons = self.daemons();
                ensure!(!daemons.is_stopping, STOPPING);
                let is_meant =
                    |kept: &&Kept| name.as_ref().is_none_or(|name| kept.described.name == *name);
                let order =
                    |kept: &Kept| (kept.described.name.clone(), kept.order(Order::Restart { now }));
                let orders: Vec<_> = daemons.kept.iter().filter(is_meant).map(order).collect();
                if let (Some(name), true) = (&name, orders.is_empty()) {
                    let known = daemons.kept.iter().map(|kept| kept.described.name.as_str());
                    let known = known.collect::<Vec<_>>().join(", ");
                    bail!("no daemon `{name}` (`tunnel run` has {known})");
                }
                orders
            };
            let mut names = Vec::new();
            for (name, order) in orders {
                if order.await {
                    names.push(name);
                }
            }
            Ok(Restarted { names })
        })
    }
}
