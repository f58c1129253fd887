//! The frame around a running role, the same for server and client: signals, control socket,
//! systemd, drain and end.
//!
//! ```text
//!   catch signals -> bind control socket -> start the role -> READY -> … -> drain -> close -> gone
//! ```

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use config::Common;
use config::edit::Operation;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin::AdminApi;
use crate::config_file::{self, ConfigFile, Shown};
use crate::control::{ControlSocket, Place};
use crate::enroll::{Opened, Order};
use crate::life::{Life, Phase};
use crate::logging::AUDIT;
use crate::measure::Meter;
use crate::notify;
#[cfg(feature = "otlp")]
use crate::otlp::Push;
use crate::reload::Reloaded;
use crate::session::Handle;
use crate::signals::Signals;
use crate::status::{SendFuture, Status, StatusSource};
use crate::watch::{self, Seen};
use crate::{descriptors, logging};

/// Longest pause between attempts at certificates that do not work.
const RENEW_MAX: Duration = Duration::from_secs(60);

/// What runs between start and end: the wiring of a server or of a client.
pub(crate) trait Role: StatusSource {
    /// One line for `systemctl status` and the log: what it serves.
    fn summary(&self) -> String;

    /// Ready when the role cannot go on, with the reason; most never are.
    fn failed(&self) -> SendFuture<'_, anyhow::Error> {
        Box::pin(std::future::pending())
    }

    /// Whether it lets a client of this name in.
    fn knows(&self, _name: &str) -> bool {
        false
    }

    /// Whether a start with this text in the place of the configuration's file would be good.
    fn check(&self, _text: String) -> anyhow::Result<()> {
        anyhow::bail!(config_file::NONE)
    }

    /// Of what is in force.
    fn common(&self) -> Common;

    /// The certificates and keys that it was given.
    fn certificates(&self) -> Vec<PathBuf>;

    /// Reads these again, for connections from now on. After an error those of before stay.
    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>>;

    /// Closes the listeners at once, lets streams finish, and is ready when the last one did.
    /// Dropped at the deadline.
    fn drain(&self) -> SendFuture<'_, ()>;

    /// Cuts what is left, tells the peers, and stops the workers.
    fn close(&self) -> SendFuture<'_, ()>;
}

/// What the frame itself must know.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Where to listen for commands.
    pub(crate) control: Place,
    /// The file that the role was started with, if there is one.
    pub(crate) configuration: Option<PathBuf>,
}

/// Runs a role from start to end. Inside the slow runtime.
pub(crate) async fn run(
    frame: Frame,
    start: impl AsyncFnOnce(Life) -> anyhow::Result<Arc<dyn Role>>,
) -> anyhow::Result<()> {
    let life = Life::new();
    let signals = Signals::catch().context("catching signals")?;
    let steering = tokio::spawn(signals.steer(life.clone()));
    let outcome = live(&frame, &life, start).await;
    steering.abort();
    outcome
}

async fn live(
    frame: &Frame,
    life: &Life,
    start: impl AsyncFnOnce(Life) -> anyhow::Result<Arc<dyn Role>>,
) -> anyhow::Result<()> {
    let socket = ControlSocket::bind(&frame.control)?;
    tracing::debug!(path = %socket.path().display(), "control socket");
    let role = tokio::select! {
        started = start(life.clone()) => started?,
        // Whoever asked for the end while names resolve or ports bind shall have it.
        () = life.reached(Phase::Draining) => {
            tracing::info!("stopped before it had started");
            return Ok(());
        }
    };
    let file = frame.configuration.clone();
    let told = Arc::new(Told::new(Arc::clone(&role), life.clone(), file.clone().map(ConfigFile)));
    let api = match start_api(&role.common(), &told) {
        Ok(api) => api,
        Err(why) => {
            role.close().await;
            return Err(why);
        }
    };
    #[cfg(feature = "otlp")]
    let push =
        match role.common().otlp.map(|to| Push::start(to, Arc::<Told>::clone(&told))).transpose() {
            Ok(push) => push,
            Err(why) => {
                role.close().await;
                return Err(why);
            }
        };
    let mut following = vec![
        tokio::spawn(reload_when_asked(Arc::clone(&told))),
        tokio::spawn(renew_certificates(Arc::clone(&told))),
    ];
    following.extend(file.map(|file| tokio::spawn(watch_configuration(Arc::clone(&told), file))));
    let serving = tokio::spawn(socket.serve(told, life.clone()));

    let summary = role.summary();
    notify::ready(&summary);
    tracing::info!("{summary}");
    let outcome = tokio::select! {
        () = life.reached(Phase::Draining) => Ok(()),
        reason = role.failed() => Err(reason),
        never = notify::feed_watchdog(async |limit| role.alive(limit).await) => match never {},
    };
    following.iter().for_each(JoinHandle::abort);
    let drain_timeout = role.common().drain_timeout.duration();
    notify::stopping(drain_timeout);
    if outcome.is_ok() {
        drain(role.as_ref(), drain_timeout, life).await;
    }
    #[cfg(feature = "otlp")]
    if let Some(push) = push {
        // The workers still know their figures.
        push.finish().await;
    }
    role.close().await;
    drop(api);
    serving.abort();
    // Waits until the socket's file is gone.
    drop(serving.await);
    tracing::info!("stopped");
    outcome
}

fn start_api(common: &Common, told: &Arc<Told>) -> anyhow::Result<Option<AdminApi>> {
    let Some(settings) = &common.admin else { return Ok(None) };
    let api = AdminApi::start(settings, Arc::<Told>::clone(told))?;
    tracing::info!("admin API on {}", api.url());
    Ok(Some(api))
}

async fn drain(role: &dyn Role, limit: Duration, life: &Life) {
    tokio::select! {
        done = timeout(limit, role.drain()) => if done.is_err() {
            tracing::warn!(seconds = limit.as_secs(), "streams did not finish in time; they are cut");
        },
        () = life.reached(Phase::Ending) => {}
    }
}

/// By SIGHUP. The outcome is in the log and in the status.
async fn reload_when_asked(told: Arc<Told>) {
    loop {
        told.life.reload_asked().await;
        let _ = told.reload().await;
    }
}

/// Reloads when the configuration's file has changed, if that is wanted.
async fn watch_configuration(told: Arc<Told>, file: PathBuf) {
    let look = || Seen::look(vec![file.clone()]);
    let mut seen = look().await;
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(watch::LOOK).await;
        let now = look().await;
        // Twice the same: nobody is in the middle of writing it.
        if now == last && now != seen {
            seen = now.clone();
            if told.role.common().watch {
                let _ = told.reload().await;
            }
        }
        last = now;
    }
}

/// Looks for certificates that somebody has put in the place of those that are shown.
async fn renew_certificates(told: Arc<Told>) {
    let mut seen = Seen::look(told.role.certificates()).await;
    let (mut tried, mut reloads, mut pause) = (None, 0, watch::LOOK);
    let mut said = None;
    loop {
        tokio::time::sleep(pause).await;
        pause = watch::LOOK;
        let now = Seen::look(told.role.certificates()).await;
        let turn = told.turn.lock().await;
        // A reload has read them, but perhaps before they were replaced: they are looked at as ever.
        if std::mem::replace(&mut reloads, *turn) != reloads {
            tried = None;
        }
        if now == seen {
            continue;
        }
        match told.role.renew().await {
            Ok(()) => {
                tracing::info!(target: AUDIT, "the certificates have changed; new connections get the new ones");
                (seen, tried, said) = (now, None, None);
            }
            // The key may follow its certificate in a moment. Until then it is said once, and where
            // nothing changes any more it is tried less and less often.
            Err(why) => {
                let why = format!("{why:#}");
                if said.as_ref() != Some(&why) {
                    tracing::warn!(
                        "the certificates have changed, and those of before stay: {why}"
                    );
                }
                said = Some(why);
                let (last, waited) = tried.unwrap_or_else(|| (Seen::default(), watch::LOOK));
                pause = if last == now { (waited * 2).min(RENEW_MAX) } else { watch::LOOK };
                tried = Some((now, pause));
            }
        }
    }
}

/// The role's own account, completed with what only the frame knows.
struct Told {
    role: Arc<dyn Role>,
    life: Life,
    file: Option<ConfigFile>,
    /// One reload at a time; how many were good.
    turn: tokio::sync::Mutex<u64>,
    /// Why the last one changed nothing.
    reload_error: Mutex<Option<String>>,
}

impl Told {
    fn new(role: Arc<dyn Role>, life: Life, file: Option<ConfigFile>) -> Self {
        let (turn, reload_error) = Default::default();
        Self { role, life, file, turn, reload_error }
    }

    fn reload_error(&self) -> MutexGuard<'_, Option<String>> {
        self.reload_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In one's turn, of which the count of good reloads is the sign.
    async fn reload_now(&self, turn: &mut u64) -> anyhow::Result<Reloaded> {
        // systemd has been told that we stop, and is not to hear that we are ready again.
        anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
        notify::reloading();
        let outcome = self.role.reload().await;
        // Nor that it is ready after that it stops.
        if self.life.phase() == Phase::Running {
            notify::ready(&self.role.summary());
        }
        // Problems of a file are a line each.
        let why = outcome.as_ref().err().map(|why| format!("{why:#}").replace('\n', "; "));
        if let Ok(reloaded) = &outcome {
            *turn += 1;
            logging::follow(self.role.common().log_level.name());
            if reloaded.failed.is_empty() {
                tracing::info!(target: AUDIT, "reloaded: {reloaded}");
            } else {
                tracing::error!(target: AUDIT, "reloaded: {reloaded}");
            }
        } else if let Some(why) = &why {
            tracing::error!(target: AUDIT, "not reloaded, nothing has changed: {why}");
        }
        *self.reload_error() = why;
        outcome
    }

    async fn amend_now(&self, operations: Vec<Operation>) -> anyhow::Result<Reloaded> {
        // No other change and no reload comes between the reading and the end.
        let mut turn = self.turn.lock().await;
        let file = self.file.clone().context(config_file::NONE)?;
        file.writable()?;
        let asked: Vec<_> = operations.iter().map(ToString::to_string).collect();
        let (before, editor) = (file.read()?, file.clone());
        let text = before.clone();
        // Of a large file it takes its time.
        let edit = move || editor.edit(&text, &operations);
        let after = tokio::task::spawn_blocking(edit).await??;
        self.role.check(after.clone())?;
        let is_other = after != before;
        if is_other {
            file.replace(&before, &after)?;
        }
        let former_error = self.reload_error().clone();
        let outcome = self.reload_now(&mut turn).await;
        match outcome {
            Ok(reloaded) => {
                if is_other {
                    tracing::info!(
                        target: AUDIT,
                        "the configuration was changed over the admin API: {}", asked.join(", ")
                    );
                }
                Ok(reloaded)
            }
            // What is in force and what is in the file stay one.
            Err(why) if is_other => Err(match file.replace(&after, &before) {
                Ok(()) => {
                    *self.reload_error() = former_error;
                    why.context("it cannot be put in force, and the file is as it was")
                }
                Err(worse) => why.context(format!(
                    "it cannot be put in force, and the file has it all the same ({worse:#})"
                )),
            }),
            Err(why) => Err(why),
        }
    }
}

impl StatusSource for Told {
    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        self.role.alive(limit)
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let mut status = self.role.status().await;
            env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
            status.pid = std::process::id();
            status.descriptors = descriptors::survey();
            status.reload_error = self.reload_error().clone();
            if self.life.phase() != Phase::Running {
                "draining".clone_into(&mut status.state);
            }
            status
        })
    }

    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async {
            let mut turn = self.turn.lock().await;
            self.reload_now(&mut turn).await
        })
    }

    fn configuration(&self) -> anyhow::Result<Shown> {
        Ok(self.file.as_ref().context(config_file::NONE)?.show()?)
    }

    fn amend(&self, operations: Vec<Operation>) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.amend_now(operations))
    }

    fn workers(&self) -> &[Handle] {
        self.role.workers()
    }

    fn enroll(&self, order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        self.role.enroll(order)
    }

    fn revoke(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        self.role.revoke(name)
    }

    fn meter(&self) -> Option<&dyn Meter> {
        self.role.meter()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use tokio::sync::Notify;

    use super::*;
    use crate::control;

    #[derive(Default)]
    struct Recorded {
        seen: Mutex<Vec<&'static str>>,
        up: Notify,
        drained: Notify,
        api: Option<std::net::SocketAddr>,
    }

    impl Recorded {
        fn note(&self, what: &'static str) {
            self.seen.lock().unwrap().push(what);
        }
    }

    impl StatusSource for Recorded {
        fn status(&self) -> SendFuture<'_, Status> {
            Box::pin(async { Status { state: "running".into(), ..Status::default() } })
        }
        fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
            self.note("reload");
            Box::pin(async { Ok(Reloaded::default()) })
        }
    }

    impl Role for Recorded {
        fn summary(&self) -> String {
            self.up.notify_one();
            "recording".into()
        }
        fn common(&self) -> Common {
            let api = self.api.map(|at| format!("admin: {{ listen: {at}, token_file: t }}\n"));
            let text = "listen: tcp://[::1]:1\nclients: [{ name: a, token_file: t }]\n";
            let text = format!("{text}{}", api.unwrap_or_default());
            let text = Some(config::Text { name: "server.yaml", text: &text });
            let read = |_: &Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
            let sources = config::Sources { env: &|_| None, read: &read };
            let loaded = config::load_server(text, &config::ServerFlags::default(), &sources);
            loaded.unwrap().config.common
        }
        fn certificates(&self) -> Vec<PathBuf> {
            Vec::new()
        }
        fn renew(&self) -> SendFuture<'_, anyhow::Result<()>> {
            Box::pin(async { Ok(()) })
        }
        fn drain(&self) -> SendFuture<'_, ()> {
            self.note("drain");
            Box::pin(async {
                self.drained.notified().await;
                self.note("drained");
            })
        }
        fn close(&self) -> SendFuture<'_, ()> {
            self.note("close");
            Box::pin(async {})
        }
    }

    fn frame(dir: &Path) -> Frame {
        let control = Place { path: dir.join("c.sock"), fixed: true };
        Frame { control, configuration: None }
    }

    #[tokio::test]
    async fn a_stop_over_the_socket_drains_then_closes_and_shows_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let role = Arc::new(Recorded::default());
        let (started, frame): (Arc<dyn Role>, _) = (role.clone(), frame(dir.path()));
        let path = frame.control.path.clone();
        let asked = path.clone();
        let asks = async {
            role.up.notified().await;
            let talk = tokio::task::spawn_blocking(move || {
                let connect = || control::Instance::connect(&asked).unwrap();
                let before = control::status(&connect()).unwrap();
                connect().begin_stop().unwrap();
                (before, control::status(&connect()).unwrap())
            });
            let (before, after) = talk.await.unwrap();
            role.drained.notify_one();
            (before, after)
        };
        let life = Life::new();
        let running = live(&frame, &life, async |_| Ok(started));
        let (outcome, (before, after)) = tokio::join!(running, asks);
        outcome.unwrap();
        assert_eq!((&*before.state, before.pid), ("running", std::process::id()));
        assert_eq!(after.state, "draining");
        assert_eq!(*role.seen.lock().unwrap(), ["drain", "drained", "close"]);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn who_is_stopping_does_not_reload() {
        let (role, life) = (Arc::new(Recorded::default()), Life::new());
        let told = Told::new(role.clone(), life.clone(), None);
        told.reload().await.unwrap();
        life.drain();
        assert_eq!(told.reload().await.unwrap_err().to_string(), "it is stopping");
        assert_eq!(*role.seen.lock().unwrap(), ["reload"]);
    }

    #[tokio::test]
    async fn a_second_wish_to_end_cuts_the_drain() {
        let dir = tempfile::tempdir().unwrap();
        let (role, life) = (Arc::new(Recorded::default()), Life::new());
        let (started, frame): (Arc<dyn Role>, _) = (role.clone(), frame(dir.path()));
        let ends = async {
            role.up.notified().await;
            life.drain();
            life.end();
        };
        let (outcome, ()) = tokio::join!(live(&frame, &life, async |_| Ok(started)), ends);
        outcome.unwrap();
        assert_eq!(role.seen.lock().unwrap().last(), Some(&"close"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_at_its_deadline() {
        let (role, life) = (Recorded::default(), Life::new());
        let started = tokio::time::Instant::now();
        drain(&role, Duration::from_secs(120), &life).await;
        assert_eq!(started.elapsed().as_secs(), 120);
    }

    #[tokio::test]
    async fn a_role_whose_api_cannot_start_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let api = Some(taken.local_addr().unwrap());
        let role = Arc::new(Recorded { api, ..Recorded::default() });
        let started: Arc<dyn Role> = role.clone();
        let outcome = live(&frame(dir.path()), &Life::new(), async |_| Ok(started)).await;
        assert!(outcome.unwrap_err().to_string().contains("admin API on 127.0.0.1"));
        assert_eq!(*role.seen.lock().unwrap(), ["close"]);
    }

    #[tokio::test]
    async fn a_role_that_cannot_start_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let frame = frame(dir.path());
        let start = async |_| Err::<Arc<dyn Role>, _>(anyhow::anyhow!("port taken"));
        let error = live(&frame, &Life::new(), start).await.unwrap_err();
        assert_eq!(error.to_string(), "port taken");
        assert!(!frame.control.path.exists());
    }
}
