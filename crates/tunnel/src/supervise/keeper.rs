//! One daemon of `tunnel run`: starts its process, follows it, and starts it again.
//!
//! ```text
//!            ┌───────── pause, twice as long each time ◄── any other end ──┐
//!            ▼                                                             │
//!   start ─► starting ─ READY ─► running ─ order, signal ─► draining ─► (end)
//!            ▲                                                             │
//!            └──── a reload, `tunnel restart` ◄── code 2 (wrong), code 0 (ended)
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::Role;
use ops::socket_file::probe;
use ops::status::{Supervised, SupervisedState, Told, duration};
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::folder::Described;
use super::messages::{Message, Messages, SUFFIX};
use super::process::{End, Process};
use super::supervised::{NAME, SUPERVISOR};
use crate::{activation, load};

/// The pause before the first restart after an error, and the longest pause: each pause is twice as
/// long as the previous one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The run time after which the back-off starts again at the first pause.
const STEADY: Duration = Duration::from_secs(60);

/// The longest interval between two keep-alive messages of a daemon. It checks itself three times
/// as often.
const WATCHDOG: Duration = Duration::from_secs(30);

/// The timeout of a start, as `TimeoutStartSec` of systemd.
const START: Duration = Duration::from_secs(90);

/// The time in which a process must end after it was asked to reset its streams.
pub(super) const LAST: Duration = Duration::from_secs(10);

/// The exit code for an invalid configuration.
const WRONG: i32 = 2;

/// An order to a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Reloads its configuration, or starts if it is not running.
    Reload,
    /// Ends and starts again.
    Restart { now: bool },
    /// Ends for good.
    Stop { now: bool },
}

/// The state of a daemon that the supervisor knows.
#[derive(Debug)]
struct Known {
    state: Told<SupervisedState>,
    process: Option<(u32, Instant)>,
    starts: u64,
    summary: Option<String>,
    control: Option<PathBuf>,
}

/// How daemons are started.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Flags for each daemon.
    pub(super) flags: Vec<String>,
    /// The folder of the sockets to which daemons report their state.
    pub(super) folder: PathBuf,
}

/// A supervised daemon.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) described: Described,
    known: Arc<Mutex<Known>>,
    orders: mpsc::Sender<Order>,
    /// True after the daemon is ready, or has failed to start.
    settled: watch::Receiver<bool>,
}

impl Kept {
    /// Keeps a daemon running. `number` differs from those of all other daemons.
    pub(super) fn start(described: Described, program: Arc<Program>, number: u64) -> Self {
        let state = SupervisedState::Starting.into();
        let (process, summary, control) = Default::default();
        let known = Known { state, process, starts: 0, summary, control };
        let known = Arc::new(Mutex::new(known));
        let (orders, inbox) = mpsc::channel(8);
        let (settle, settled) = watch::channel(false);
        let socket = format!("run-{}-{number}{SUFFIX}", std::process::id());
        let socket = program.folder.join(socket);
        let keeper = Keeper {
            described: described.clone(),
            program,
            socket,
            known: Arc::clone(&known),
            settle,
            inbox,
        };
        tokio::spawn(keeper.keep());
        Self { described, known, orders, settled }
    }

    /// Sends an order. False: the daemon has ended for good.
    pub(super) fn order(&self, order: Order) -> impl Future<Output = bool> + use<> {
        let orders = self.orders.clone();
        async move { orders.send(order).await.is_ok() }
    }

    /// Completes when the daemon is ready, or has failed to start.
    pub(super) fn settles(&self) -> impl Future<Output = ()> + use<> {
        let mut settled = self.settled.clone();
        // An error means that the daemon has ended for good.
        async move { drop(settled.wait_for(|settled| *settled).await) }
    }

    /// Completes when the daemon has ended for good.
    pub(super) fn ends(&self) -> impl Future<Output = ()> + use<> {
        // The keeper has the only sender, and drops it at its end.
        let mut settled = self.settled.clone();
        async move { while settled.changed().await.is_ok() {} }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.settled.has_changed().is_err()
    }

    /// The process id and the control socket of a daemon that runs.
    pub(super) fn reach(&self) -> Option<(u32, PathBuf)> {
        let known = lock(&self.known);
        (known.state == SupervisedState::Running)
            .then(|| Some((known.process?.0, known.control.clone()?)))
            .flatten()
    }

    pub(super) fn state(&self) -> SupervisedState {
        lock(&self.known).state.state()
    }

    pub(super) fn status(&self) -> Supervised {
        let known = lock(&self.known);
        Supervised {
            name: self.described.name.clone(),
            file: self.described.path.display().to_string(),
            role: self.described.role.as_ref().ok().map(|role| match role {
                Role::Server => ops::Role::Server,
                Role::Client => ops::Role::Client,
                Role::Proxy => ops::Role::Proxy,
            }),
            state: known.state.clone(),
            pid: known.process.map(|(pid, _)| pid),
            uptime_seconds: known.process.map(|(_, since)| since.elapsed().as_secs()),
            restarts: known.starts.saturating_sub(1),
            summary: known.summary.clone(),
            control: known.control.as_ref().map(|path| path.display().to_string()),
            status: None,
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keeper {
    described: Described,
    program: Arc<Program>,
    socket: PathBuf,
    known: Arc<Mutex<Known>>,
    settle: watch::Sender<bool>,
    inbox: mpsc::Receiver<Order>,
}

/// The reason why a process has ended.
enum Next {
    /// It ended as it was asked to.
    Asked(Order),
    /// It ended by itself.
    Ended(End),
    /// It could not be started.
    NotStarted(String),
}

impl Keeper {
    async fn keep(mut self) {
        let name = self.described.name.clone();
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            let next = self.live().await;
            self.settle.send_replace(true);
            if began.elapsed() >= STEADY {
                pause = PAUSE;
            }
            let wait = match next {
                Next::Asked(Order::Stop { .. }) => return,
                Next::Asked(_) => {
                    pause = PAUSE;
                    continue;
                }
                Next::Ended(End::Code(0)) => {
                    tracing::info!(
                        "daemon {name} ended, and is not started again (hint: `tunnel restart {name}`)"
                    );
                    self.is(SupervisedState::Ended.into());
                    None
                }
                Next::Ended(End::Code(WRONG)) => {
                    let why = wrong(&self.described.path).await;
                    tracing::error!("daemon {name} does not start: {why}");
                    self.is(Told::because(SupervisedState::Wrong, why));
                    None
                }
                Next::Ended(end) => {
                    let why = match end {
                        End::Code(code) => format!("it ended with code {code}"),
                        End::Signal(signal) => format!("it ended by signal {signal}"),
                        End::Unknown => "it ended".to_owned(),
                    };
                    Some(why)
                }
                Next::NotStarted(why) => Some(why),
            };
            let resume = match wait {
                Some(why) => {
                    let after = duration(pause.as_secs());
                    tracing::error!("daemon {name}: {why}; it starts again in {after}");
                    self.is(Told::because(
                        SupervisedState::Failed,
                        format!("{why}; it starts again in {after}"),
                    ));
                    let until = Instant::now() + pause;
                    pause = (pause * 2).min(PAUSE_MAX);
                    timeout_at(until, self.inbox.recv()).await.unwrap_or(Some(Order::Reload))
                }
                None => self.next_start().await,
            };
            match resume {
                None | Some(Order::Stop { .. }) => return,
                Some(_) => {}
            }
        }
    }

    /// The next order that starts the daemon. A daemon that `tunnel stop` has ended is only started
    /// by `tunnel restart`.
    async fn next_start(&mut self) -> Option<Order> {
        let is_ended = lock(&self.known).state == SupervisedState::Ended;
        loop {
            match self.inbox.recv().await {
                Some(Order::Reload) if is_ended => {}
                order => return order,
            }
        }
    }

    fn is(&self, state: Told<SupervisedState>) {
        let mut known = lock(&self.known);
        if !matches!(state.state(), SupervisedState::Running | SupervisedState::Draining) {
            (known.process, known.summary) = (None, None);
        }
        known.state = state;
    }

    fn is_running(&self) -> bool {
        lock(&self.known).state == SupervisedState::Running
    }

    /// Runs one process from its start to its end.
    async fn live(&mut self) -> Next {
        let role = match &self.described.role {
            Ok(role) => *role,
            Err(_) => return Next::Ended(End::Code(WRONG)),
        };
        let messages = match Messages::bind(self.socket.clone()) {
            Ok(messages) => messages,
            Err(error) => return Next::NotStarted(format!("{}: {error}", self.socket.display())),
        };
        let command = self.command(role, messages.path());
        let process = match Process::start(command) {
            Ok(process) => process,
            Err(error) => {
                return Next::NotStarted(format!("{}: {error}", self.program.path.display()));
            }
        };
        {
            let mut known = lock(&self.known);
            known.state = SupervisedState::Starting.into();
            known.process = Some((process.number(), Instant::now()));
            (known.starts, known.control) = (known.starts + 1, None);
        }
        let mut asked = None;
        // A process that does not catch signals yet would die from SIGHUP.
        let mut is_changed = false;
        let mut has_supervisor = true;
        // The time of the kill: without a keep-alive message, or after the last order.
        let mut killed_at = Some(Instant::now() + START);
        loop {
            let kill = async {
                match killed_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                end = process.ended() => {
                    let control = lock(&self.known).control.take();
                    // A process that was killed leaves its socket behind.
                    if let Some(path) = control.filter(|path| matches!(probe(path), Ok(false))) {
                        drop(std::fs::remove_file(path));
                    }
                    return match (asked, end) {
                        (Some(order), _) => Next::Asked(order),
                        (None, end) => Next::Ended(end),
                    };
                }
                message = messages.next() => {
                    self.heard(message, &mut killed_at, asked.is_some());
                    if is_changed && self.is_running() {
                        is_changed = false;
                        process.signal(Signal::HUP);
                    }
                }
                order = self.inbox.recv(), if has_supervisor => match order {
                    Some(Order::Reload) if self.is_running() => process.signal(Signal::HUP),
                    Some(Order::Reload) => is_changed = true,
                    order => {
                        has_supervisor = order.is_some();
                        let order = order.unwrap_or(Order::Stop { now: true });
                        asked = self.ask(&process, order, asked, &mut killed_at);
                    }
                },
                () = kill => {
                    tracing::error!("daemon {} does not answer in time, and is killed", self.described.name);
                    process.signal(Signal::KILL);
                    killed_at = None;
                }
            }
        }
    }

    fn command(&self, role: Role, socket: &Path) -> Command {
        let mut command = Command::new(&self.program.path);
        command.arg(role.name());
        command.arg("--config").arg(&self.described.path).args(&self.program.flags);
        command.env("NOTIFY_SOCKET", socket);
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        // They name the process of the supervisor.
        for name in ["WATCHDOG_PID", activation::STORE].iter().chain(&activation::VARIABLES) {
            command.env_remove(name);
        }
        command.env(SUPERVISOR, std::process::id().to_string());
        command.env(NAME, &self.described.name);
        command
    }

    fn heard(&self, message: Message, killed_at: &mut Option<Instant>, is_asked: bool) {
        let Message { ready, stopping, alive, status, control } = message;
        if (ready || alive) && !is_asked {
            *killed_at = Some(Instant::now() + WATCHDOG);
        }
        if control.is_some() {
            lock(&self.known).control = control;
        }
        if stopping {
            if !is_asked {
                *killed_at = None;
            }
            self.is(SupervisedState::Draining.into());
        }
        if ready && !is_asked {
            self.is(SupervisedState::Running.into());
            self.settle.send_replace(true);
        }
        if let Some(status) = status
            && !stopping
        {
            lock(&self.known).summary = Some(status);
        }
    }

    /// Asks the process to end. The process treats a second signal as the order to reset its
    /// streams.
    fn ask(
        &self,
        process: &Process,
        order: Order,
        asked: Option<Order>,
        killed_at: &mut Option<Instant>,
    ) -> Option<Order> {
        let now = matches!(order, Order::Stop { now: true } | Order::Restart { now: true });
        if asked.is_none() {
            process.signal(Signal::TERM);
            *killed_at = None;
            self.is(SupervisedState::Draining.into());
        }
        if now {
            // Two equal signals may count as one.
            process.signal(Signal::INT);
            *killed_at = Some(Instant::now() + LAST);
        }
        // A stop takes precedence over a restart.
        match asked {
            Some(Order::Stop { .. }) => asked,
            _ => Some(order),
        }
    }
}

/// The reason why the file is invalid, in one line.
async fn wrong(file: &Path) -> String {
    let path = file.to_owned();
    let load = move || load::file_and_what_it_names(&path).err().map(|wrong| wrong.0.join("; "));
    let why = tokio::task::spawn_blocking(load).await.ok().flatten();
    why.unwrap_or_else(|| "its configuration is wrong; the log says why".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A shell script in the place of the program, in a folder of its own.
    fn kept(dir: &Path, script: &str) -> Kept {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\ncd {}\n{script}\n", dir.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program { path, flags: Vec::new(), folder: dir.join("run") };
        let path = dir.join("one.yaml");
        let described = Described { name: "one".to_owned(), path, role: Ok(Role::Proxy) };
        Kept::start(described, Arc::new(program), 0)
    }

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_process_that_starts_gets_no_signal_of_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        // A shell runs its traps in the order of the signals: SIGHUP comes before SIGTERM.
        let script = "trap 'echo > hup' HUP; trap 'exit 0' TERM; echo > begun\n\
                      while :; do sleep 0.01; done";
        let kept = kept(dir.path(), script);
        until(|| dir.path().join("begun").exists()).await;
        assert!(kept.order(Order::Reload).await && kept.order(Order::Stop { now: false }).await);
        kept.ends().await;
        assert!(!dir.path().join("hup").exists());
        assert!(!kept.order(Order::Reload).await, "it has ended for good");
    }

    #[tokio::test]
    async fn a_process_that_ends_with_code_0_starts_by_a_restart_alone() {
        let dir = tempfile::tempdir().unwrap();
        let kept = kept(dir.path(), "echo >> starts");
        let starts = || fs::read_to_string(dir.path().join("starts")).unwrap_or_default().len();
        until(|| kept.state() == SupervisedState::Ended).await;
        assert!(kept.order(Order::Reload).await && kept.order(Order::Restart { now: false }).await);
        until(|| starts() == 2 && kept.state() == SupervisedState::Ended).await;
        kept.order(Order::Stop { now: false }).await;
        kept.ends().await;
        assert_eq!(starts(), 2);
    }
}
