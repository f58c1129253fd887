//! The frame around a running role, which is the same for each role: signals, control
//! socket, systemd, drain and end.
//!
//! ```text
//!   catch signals -> bind control socket -> start the role -> READY -> … -> drain -> close -> gone
//! ```

mod clients;
mod follow;
mod lists;
mod running;
mod settings;
mod shares;
mod sharing;
#[cfg(test)]
mod tests;
mod upgrading;
mod visitors;
mod waits;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admin::AdminApi;
#[cfg(feature = "otlp")]
use admin::otlp::Push;
use anyhow::Context;
use config::Common;
use control::{ControlSocket, SocketPath};
use ops::status::FormerProcess;
use ops::{Life, Phase, Serving};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config_file::ConfigFile;
use crate::parent::{self, Guardian};
use crate::signals::Signals;
use crate::supervise::end_with_the_supervisor;
use crate::upgrade::{self, Binary, Deaths, Fate, Formers, Listed, Next};
use crate::{activation, inherit, notify, own};
use running::RunningDaemon;
pub(crate) use shares::Shares;

/// The longest time for writing the last lines of the log of requests to their file.
const LAST_LINES: Duration = Duration::from_secs(1);
/// The interval of checks of what a former process waits for.
const LOOK: Duration = Duration::from_secs(1);
/// The time in which a role must finish its start after it was asked to stop. A role without slow
/// name lookups starts within 0.1 s.
const LAST_STEPS: Duration = Duration::from_millis(500);

/// The settings of the frame.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The place of the control socket. `None`: the environment names no folder.
    pub(crate) control: Option<SocketPath>,
    /// Whether the daemon refuses to start without a control socket.
    pub(crate) is_needed: bool,
    /// The warnings about the configuration.
    pub(crate) warnings: Vec<String>,
    /// The targets that commands currently share.
    pub(crate) shares: Shares,
    /// The configuration file of the role, if there is one.
    pub(crate) configuration: Option<PathBuf>,
    /// The file from which this process was started.
    pub(crate) binary: Binary,
    /// The process that this process replaces.
    pub(crate) former: Option<upgrade::Inherited>,
    /// The phase of the daemon, which others may advance.
    pub(crate) life: Life,
}

/// Runs a role from start to end. Must run inside the slow runtime.
pub(crate) async fn run(
    frame: Frame,
    start: impl AsyncFnOnce() -> anyhow::Result<Arc<dyn Serving>>,
) -> anyhow::Result<()> {
    let life = frame.life.clone();
    let signals = Signals::catch().context("catching signals")?;
    signals.tell_terminal();
    let steering = tokio::spawn(signals.steer(life.clone()));
    let supervised = tokio::spawn(end_with_the_supervisor(life.clone()));
    let outcome = live(frame, &life, start).await;
    supervised.abort();
    steering.abort();
    outcome
}

/// The role that `start` returns, or nothing if the daemon is asked to stop earlier.
///
/// # Errors
/// The reason why the role does not start.
async fn started<T>(
    start: impl Future<Output = anyhow::Result<T>>,
    life: &Life,
) -> anyhow::Result<Option<T>> {
    let mut start = pin!(start);
    tokio::select! {
        biased;
        // A role that has started may have visitors, so it drains.
        role = &mut start => return role.map(Some).inspect_err(|_| activation::tell_unused()),
        // A stop request must also take effect while names resolve or ports bind.
        () = life.reached(Phase::Draining) => {}
    }
    // Some links may be up already. Only a role that has started notifies their peers, which would
    // otherwise wait for the resumption of the links.
    tokio::select! {
        role = start => role.map(Some).inspect_err(|_| activation::tell_unused()),
        () = tokio::time::sleep(LAST_STEPS) => Ok(None),
        () = life.reached(Phase::Ending) => Ok(None),
    }
}

/// The life of a daemon, from the start of its role to the end.
async fn live(
    frame: Frame,
    life: &Life,
    start: impl AsyncFnOnce() -> anyhow::Result<Arc<dyn Serving>>,
) -> anyhow::Result<()> {
    let socket = control_socket(&frame)?;
    let Some(role) = started(start(), life).await? else {
        tracing::info!("stopped before it had started");
        return Ok(());
    };
    let file = frame.configuration.clone();
    let running = Arc::new(RunningDaemon::new(
        Arc::clone(&role),
        life.clone(),
        file.clone().map(ConfigFile),
        frame.warnings.clone(),
        (frame.binary.clone(), frame.shares.clone()),
    ));
    let mut beside = match Beside::start(&running, frame.former, life).await {
        Ok(beside) => beside,
        Err(why) => {
            role.close().await;
            return Err(why);
        }
    };
    let former = Arc::clone(&beside.former);
    // Set once.
    let _ = running.formers.set(Arc::clone(&former));
    let following = follow_all(&running, &former, file);
    if let Some(socket) = &socket {
        notify::control(socket.path());
    }
    let serving = socket.map(|socket| {
        tokio::spawn(socket.serve(Arc::<RunningDaemon>::clone(&running), life.clone()))
    });

    let summary = role.summary();
    notify::ready(&summary);
    activation::close_unwanted(|place| role.will_listen(place));
    activation::store();
    let stored = tokio::spawn(activation::follow());
    tracing::info!("{summary}");
    let mut feeding = pin!(notify::feed_watchdog(async |limit| role.alive(limit).await));
    let next = tokio::select! {
        () = life.reached(Phase::Draining) => None,
        next = running.next.wait() => Some(Arc::clone(next)),
        never = &mut feeding => match never {},
    };
    following.iter().for_each(JoinHandle::abort);
    let drain_timeout = role.common().drain_timeout.duration();
    if let Some(next) = &next {
        // The next process has its port.
        drop(beside.api.take());
        tracing::info!("the next process serves; this process ends after its last stream");
        let by = (&*former, running.guardian.get());
        tokio::select! {
            () = hand_over(role.as_ref(), next, (drain_timeout, by), life) => {}
            () = life.reached(Phase::Ending) => {}
        }
    } else {
        tokio::select! {
            () = stop(&running, &former, drain_timeout) => {}
            // Streams continue as long as workers do.
            never = &mut feeding => match never {},
        }
    }
    #[cfg(feature = "otlp")]
    if let Some(push) = beside.push.take() {
        // The last push must come before `close`, while the workers still have their figures.
        push.finish().await;
    }
    role.close().await;
    stored.abort();
    activation::retire();
    // The last requests ended with the role.
    drop(tokio::task::spawn_blocking(|| logging::requests::flush(LAST_LINES)).await);
    drop(beside);
    if let Some(serving) = serving {
        serving.abort();
        // Waits until the socket file is removed.
        drop(serving.await);
    }
    tracing::info!("stopped");
    if let Some(guardian) = running.guardian.get().filter(|_| next.is_some()) {
        guardian.stay();
    }
    Ok(())
}

/// What runs beside a role.
struct Beside {
    api: Option<AdminApi>,
    #[cfg(feature = "otlp")]
    push: Option<Push>,
    /// The processes that this process has replaced.
    former: Arc<Formers>,
}

impl Beside {
    async fn start(
        running: &Arc<RunningDaemon>,
        former: Option<upgrade::Inherited>,
        life: &Life,
    ) -> anyhow::Result<Self> {
        let role = &running.role;
        let api = start_api(&role.common(), running, life)?;
        #[cfg(feature = "otlp")]
        let push = role.common().otlp;
        #[cfg(feature = "otlp")]
        let push =
            push.map(|to| Push::start(to, Arc::<RunningDaemon>::clone(running))).transpose()?;
        let former = match former {
            None => None,
            Some(former) => Some(former.serve(role.as_ref()).await?),
        };
        let taking_over = Arc::clone(role);
        let takes_over = async move { taking_over.takes_over().await };
        let former = Formers::accompany(former, takes_over, life.clone());
        Ok(Self {
            api,
            #[cfg(feature = "otlp")]
            push,
            former,
        })
    }
}

/// Starts the tasks that follow files, times and former processes.
fn follow_all(
    running: &Arc<RunningDaemon>,
    former: &Arc<Formers>,
    file: Option<PathBuf>,
) -> Vec<JoinHandle<()>> {
    let mut following = vec![
        tokio::spawn(follow::reload_when_asked(Arc::clone(running))),
        tokio::spawn(follow::renew_certificates(Arc::clone(running))),
        tokio::spawn(follow::renew_users(Arc::clone(running))),
        tokio::spawn(follow::end_services(Arc::clone(running))),
        tokio::spawn(follow::tell_left_out_lines()),
        tokio::spawn(visitors::follow_visitors(Arc::clone(running))),
        tokio::spawn(inherit::close_rest(former.ended())),
        tokio::spawn(follow::bound_formers(Arc::clone(running), Arc::clone(former))),
    ];
    following.extend(
        file.map(|file| tokio::spawn(follow::watch_configuration(Arc::clone(running), file))),
    );
    following
}

/// Refuses new visitors, and lets streams finish within `limit`.
async fn stop(running: &RunningDaemon, former: &Formers, limit: Duration) {
    let RunningDaemon { role, life, .. } = running;
    notify::stopping(limit);
    running.drains_until(tokio::time::Instant::now() + limit);
    tracing::info!(
        "stopping: new visitors are refused, and open streams may finish within {}; a second \
         signal or `tunnel stop --now` resets them",
        role.common().drain_timeout
    );
    let former = timeout(limit, former.ended_or(life.reached(Phase::Ending)));
    let ((), _) = tokio::join!(drain(role.as_ref(), limit, life), former);
}

/// Lets the streams of this process end, without a time limit until this process or the next
/// process is stopped. If the next process dies, another is started in its place.
async fn hand_over(
    role: &dyn Serving,
    next: &Arc<Next>,
    (limit, (formers, guardian)): (Duration, (&Formers, Option<&Guardian>)),
    life: &Life,
) {
    let (tell, end) = tokio::sync::oneshot::channel();
    let successor = Box::pin(async {
        // Without a next process the streams end as well.
        let _ = end.await;
    });
    let done = async {
        let is_over = tokio::select! {
            () = role.hand_over(successor) => true,
            () = life.reached(Phase::Draining) => false,
        };
        if !is_over {
            drain(role, limit, life).await;
        }
        // The processes end in order of age, because each follows its successor.
        formers.ended_or(life.reached(Phase::Draining)).await;
    };
    let reports = watch::Sender::new(Vec::new());
    let mut tell = Some(tell);
    let follow_next = async {
        let (mut next, mut deaths) = (Arc::clone(next), Deaths::default());
        loop {
            let takes_over = || {
                if let Some(tell) = tell.take() {
                    // Completes if the streams have ended earlier.
                    let _ = tell.send(());
                }
            };
            let fate = next.listen(life, takes_over, (formers, reports.subscribe())).await;
            if fate == Fate::Died && life.phase() == Phase::Running {
                tracing::error!("the next process has ended");
                // systemd starts the daemon again, after the end of all its processes.
                if notify::has_manager() && !parent::is_there() {
                    tracing::warn!(
                        "this process stops, so that the service manager starts the daemon"
                    );
                } else {
                    let by = (role, formers);
                    match deaths.replace(&next, by, guardian, life).await {
                        Ok(another) => {
                            next = another;
                            continue;
                        }
                        Err(why) => tracing::error!("this process stops as well: {why:#}"),
                    }
                }
            }
            // Nothing else tells the remaining streams when to end.
            life.drain();
            drop(tell.take());
            return std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = done => {}
        () = follow_next => {}
        () = report(role, formers, life, &reports) => {}
    }
}

/// Reports each second what this process and the former processes wait for, and at once when one of
/// these has ended: a message of the oldest process passes through all others. Never ready.
async fn report(
    role: &dyn Serving,
    formers: &Formers,
    life: &Life,
    to: &watch::Sender<Vec<Listed>>,
) {
    let (begun, slot) = (tokio::time::Instant::now(), net::udp::slot().0);
    let mut changes = formers.changes();
    loop {
        changes.mark_unchanged();
        let older = formers.listed();
        let (streams, waits_for) = waits::of(role, &older).await;
        let process = FormerProcess {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seconds: begun.elapsed().as_secs(),
            streams,
            waits_for,
            ending: life.phase() != Phase::Running,
        };
        let all: Vec<_> = [Listed { process, slot: Some(slot) }].into_iter().chain(older).collect();
        to.send_if_modified(|before| {
            // The reader counts the seconds itself.
            let same = |a: &Listed, b: &Listed| {
                let b = FormerProcess { seconds: a.process.seconds, ..b.process.clone() };
                a.process == b
            };
            let is_same = before.len() == all.len()
                && before.iter().zip(&all).all(|(before, now)| same(before, now));
            if !is_same {
                *before = all;
            }
            !is_same
        });
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            // The sender lives as long as the former processes are queried.
            _ = changes.changed() => {}
        }
    }
}

/// Binds the control socket. A daemon that does not need the socket only warns without it.
fn control_socket(frame: &Frame) -> anyhow::Result<Option<ControlSocket>> {
    let why = match frame.control.as_ref().map(ControlSocket::bind) {
        Some(Ok(socket)) => {
            tracing::debug!(path = %socket.path().display(), "control socket");
            return Ok(Some(socket));
        }
        Some(Err(why)) if frame.is_needed => return Err(why.into()),
        Some(Err(why)) => why.to_string(),
        None => "control socket: the environment names no folder for it".to_owned(),
    };
    tracing::warn!(
        "{why}; this process runs without it, and `tunnel status` and the other commands do not \
         reach this process (hint: --control SOCKET, in a folder that this process can write to)"
    );
    Ok(None)
}

fn start_api(
    common: &Common,
    running: &Arc<RunningDaemon>,
    life: &Life,
) -> anyhow::Result<Option<AdminApi>> {
    let Some(settings) = &common.admin else { return Ok(None) };
    // Without a folder, a restart ends the sessions of the console.
    let state = own::state_folder(common);
    let daemon = Arc::<RunningDaemon>::clone(running);
    let api = AdminApi::start_with(settings, daemon, life.clone(), state.as_deref())?;
    if api.is_bound() {
        tracing::info!("admin API on {}", api.url());
    }
    // The daemon has one API.
    let _ = running.console.set(api.console());
    Ok(Some(api))
}

/// The admin API of a role that runs without a frame, at a free port of this machine, with a token
/// that is not given out: only links lead to its web console.
pub(crate) fn console(role: Arc<dyn Serving>, life: &Life) -> anyhow::Result<AdminApi> {
    let token = config::Token { secret: config::Secret::new(ops::token()?), file: None };
    let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let (read_token, hosts, origin) = Default::default();
    let settings = config::Admin { listen, token, read_token, hosts, origin };
    let parts = (Binary::of_process(), Shares::default());
    let running = Arc::new(RunningDaemon::new(role, life.clone(), None, Vec::new(), parts));
    let api = AdminApi::start(&settings, Arc::<RunningDaemon>::clone(&running), life.clone())?;
    // The daemon has one API.
    let _ = running.console.set(api.console());
    Ok(api)
}

async fn drain(role: &dyn Serving, limit: Duration, life: &Life) {
    tokio::select! {
        done = timeout(limit, role.drain()) => if done.is_err() {
            tracing::warn!(seconds = limit.as_secs(), "streams did not finish in time; they are cut");
        },
        () = life.reached(Phase::Ending) => {}
    }
}
