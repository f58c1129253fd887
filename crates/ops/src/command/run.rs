//! Runs a command: finds the capability that the command needs, and calls it.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Answer, Command};
use crate::clients::Change;
use crate::daemon::Daemon;
use crate::events::Heard;
use crate::life::{Life, Phase};
use crate::measure::{LONGEST, PATIENCE_MAX};
use crate::revision::NewConfig;
use crate::share::{self, ShareOrder, Told};
use crate::shown;
use crate::status::StreamNumber;
use crate::{AUDIT, SendFuture};

/// Timeout for an answer of the workers. A healthy worker answers within one turn of its event
/// loop, so a longer wait is reported as an error.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// The error of a command that only a server can carry out.
const NOT_A_SERVER: &str =
    "this is a client; clients are let in, and get their rights, where `tunnel server` runs";

/// The error of a command that only a client can carry out.
const NOT_A_CLIENT: &str =
    "this is a server; services and forwards are added where `tunnel client` runs";

/// The error of a connection that only a client can make.
const NO_OTHER_SIDE: &str = "this is a server; its side is reached from where `tunnel client` runs";

/// The error of a server that is queried for requests.
const NO_REQUESTS: &str = "this is a server; the client that publishes a service keeps its requests: \
                           ask where `tunnel client` runs";

/// The error of `restart` in a daemon that is not supervised by this program.
const NOT_SUPERVISED: &str = "this daemon is not one of `tunnel run`, and cannot start itself again \
                              (hint: `systemctl restart UNIT`, or `tunnel stop` and a new start)";

/// The error of a speed test at a server.
const NO_SPEED_TEST: &str =
    "this is a server; a client tests the speed: run it where `tunnel client` runs";

/// The error of a server that is queried for its NAT.
const NO_NAT: &str = "this is a server; a client asks what stands between it and other clients: run \
                      it where `tunnel client` runs";

/// The error of a server when the client whose connections should end is not named.
const RECONNECT_WHOM: &str =
    "this is a server: name the client whose connections end (hint: tunnel reconnect NAME)";

/// The error of a client that receives the name of a client.
const RECONNECT_ITSELF: &str =
    "this is a client, which has one server (hint: leave the name away: tunnel reconnect)";

/// The error of a daemon that lacks a capability of every role.
const NOT_HERE: &str = "it cannot do that";

/// A worker did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a worker does not answer")]
pub struct NoAnswer;

/// The idle time after which a listener for events gets a sign that the daemon is still running. A
/// listener that has left is noticed at this point.
const STILL_THERE: Duration = Duration::from_secs(15);

/// The interval at which the command that shares a target gets a sign that the daemon is still
/// running. The share ends within this time after the command exits.
const STILL_SHARED: Duration = Duration::from_secs(1);

/// There are more listeners than the daemon allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many programs listen to the events of this daemon")]
pub struct TooMany;

/// A text that is not a log filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoFilter(pub String);

/// A command with the channel from which it came.
#[derive(Debug)]
pub struct Request<'a> {
    pub command: Command,
    /// For the log: `the control socket`, `the admin API`.
    pub over: &'static str,
    /// The phase of the daemon, which `stop` advances.
    pub life: &'a Life,
    /// Receives the messages before the answer: events, the progress of a speed test. When the
    /// channel is closed, the recipient has left, and the command ends.
    pub news: mpsc::Sender<Answer>,
}

/// Carries out a command. A command that changes state must not be dropped before its end.
///
/// # Errors
/// The reason for a missing answer: [`NoAnswer`], [`TooMany`], [`NoFilter`], a
/// [`WrongConfig`](crate::WrongConfig), an [`EditError`](config::edit::EditError) or a text.
pub async fn run(daemon: &dyn Daemon, request: Request<'_>) -> anyhow::Result<Answer> {
    let Request { command, over, life, news } = request;
    let traffic = || daemon.traffic().context(NOT_HERE);
    let settings =
        || daemon.settings().context("its configuration is read at its start only: restart it");
    let enrolment = || daemon.enrolment().context(NOT_A_SERVER);
    let clients = || daemon.clients().context(NOT_A_SERVER);
    let visitors = || daemon.visitors().context(NOT_A_CLIENT);
    // The effects are logged in separate lines, which do not know the channel.
    let audit = |what: &str| tracing::info!(target: AUDIT, "{over} asked for {what}");
    Ok(match command {
        Command::Status => Answer::Status(Box::new(timely(daemon.status()).await?)),
        Command::Stop { now } => {
            let now = now || life.phase() != Phase::Running;
            let how = if now { " at once" } else { "" };
            tracing::info!(target: AUDIT, "the daemon stops{how}, as asked over {over}");
            if now {
                life.end();
            } else {
                life.drain();
            }
            Answer::Stopping { pid: std::process::id(), now }
        }
        Command::Restart { name, now } => {
            let supervision = daemon.supervision().context(NOT_SUPERVISED)?;
            let what = name.clone().unwrap_or_else(|| "all daemons".to_owned());
            let restarted = timely(supervision.restart(name, now)).await??;
            audit(&format!("a restart of {what}"));
            Answer::Restarted(restarted)
        }
        Command::Reload => Answer::Reloaded(settings()?.reload().await?),
        Command::Upgrade(order) => {
            audit("an upgrade");
            Answer::Upgraded(daemon.upgrade().context(NOT_HERE)?.upgrade(order).await?)
        }
        Command::Console => {
            let link = daemon.console().context(NOT_HERE)?.link()?;
            audit("a link to the console");
            Answer::Console(link)
        }
        Command::Configuration => {
            let settings = daemon.settings().context(shown::NONE)?;
            Answer::Configuration(Box::new(settings.configuration()?))
        }
        Command::Foresee { operations, text } => {
            let settings = daemon.settings().context(shown::NONE)?;
            let change = text.map_or(NewConfig::Patch(operations.0), NewConfig::Text);
            Answer::Foreseen(Box::new(settings.foresee(change).await?))
        }
        Command::Undo => {
            let settings = daemon.settings().context(shown::NONE)?;
            let reloaded = settings.undo().await?;
            audit("the configuration before the last change");
            Answer::Reloaded(reloaded)
        }
        Command::Amend { operations, text, tag } => {
            let settings = daemon.settings().context(shown::NONE)?;
            let change = text.map_or(NewConfig::Patch(operations.0), NewConfig::Text);
            let reloaded = settings.amend(change, tag).await?;
            audit("a change of the configuration");
            Answer::Reloaded(reloaded)
        }
        Command::Enroll(order) => Answer::Opened(enrolment()?.enroll(order).await?),
        Command::Revoke { name } => Answer::Revoked(enrolment()?.revoke(name).await?),
        Command::Kick { name } => {
            let was_connected = clients()?.kick(name.clone()).await?;
            if was_connected {
                audit(&format!("the end of the links of client {name}"));
            }
            Answer::Kicked(was_connected)
        }
        Command::Allow(order) => {
            let what = format!("more rights for client {}", order.name);
            let allowed = clients()?.change(Change::Allow(order)).await?.allowed;
            audit(&what);
            Answer::Allowed(allowed)
        }
        Command::Deny(order) => {
            let what = format!("fewer rights for client {}", order.name);
            let allowed = clients()?.change(Change::Deny(order)).await?.allowed;
            audit(&what);
            Answer::Allowed(allowed)
        }
        Command::Limit(order) => {
            let what = format!("other limits for client {}", order.name);
            let limits = clients()?.change(Change::Limit(order)).await?.limits;
            audit(&what);
            Answer::Limited(limits)
        }
        Command::Hold(order) => {
            let (name, is_off) = (order.name.clone(), order.off);
            let held = clients()?.hold(order).await?;
            let what = if is_off { "the end of a hold" } else { "a hold" };
            audit(&format!("{what} of client {name}"));
            Answer::Held(held)
        }
        Command::Clients => Answer::Clients(timely(clients()?.all()).await??),
        Command::Client { name } => {
            Answer::Client(timely(clients()?.one(name)).await??.map(Box::new))
        }
        Command::Lists(change) => {
            let lists = daemon.lists().context(NOT_A_CLIENT)?;
            let reloaded = lists.change(change).await?;
            audit("a change of services and forwards");
            Answer::Reloaded(reloaded)
        }
        Command::Share(order) => share(daemon, order, &news).await?,
        Command::Requests(filter) => {
            Answer::Requests(daemon.requests().context(NO_REQUESTS)?.list(&filter))
        }
        Command::Request { id, secrets } => {
            let requests = daemon.requests().context(NO_REQUESTS)?;
            if secrets {
                audit(&format!("the secrets of request {id}"));
            }
            Answer::Request(requests.one(id, secrets).map(Box::new))
        }
        Command::Replay { id } => {
            let replayed = daemon.requests().context(NO_REQUESTS)?.replay(id).await?;
            if replayed.is_some() {
                audit(&format!("a replay of request {id}"));
            }
            Answer::Request(replayed.map(Box::new))
        }
        Command::Invite(order) => {
            let invitation = visitors()?.invite(order).await?;
            audit(&format!("a code for {} to visit {}", invitation.visitor, invitation.service));
            Answer::Invitation(invitation)
        }
        Command::Visitors => Answer::Visitors(visitors()?.all().await?),
        Command::Uninvite { visitor } => {
            let what = format!("no more visits of {visitor}");
            let uninvited = visitors()?.uninvite(visitor).await?;
            if !uninvited.services.is_empty() {
                audit(&what);
            }
            Answer::Uninvited(uninvited)
        }
        Command::Streams { service, limit } => {
            Answer::Streams(timely(traffic()?.streams(service, limit)).await?)
        }
        Command::Kill { link, stream, kind } => {
            let number = StreamNumber { link, kind, number: stream };
            let killed = timely(traffic()?.kill(number)).await?;
            if killed {
                tracing::info!(
                    target: AUDIT, link, stream,
                    "{} {number} was reset, as asked over {over}", kind.name()
                );
            }
            Answer::Killed(killed)
        }
        Command::Reconnect { client } => {
            match (&client, daemon.clients()) {
                (None, Some(_)) => anyhow::bail!(RECONNECT_WHOM),
                (Some(_), None) => anyhow::bail!(RECONNECT_ITSELF),
                (Some(name), Some(clients)) => {
                    let is_known = timely(clients.one(name.clone())).await??.is_some();
                    anyhow::ensure!(
                        is_known,
                        "the server knows no client `{name}` (hint: `tunnel clients` lists all)"
                    );
                }
                (None, None) => {}
            }
            let links = timely(traffic()?.reconnect(client.clone())).await?;
            let of = client.map(|name| format!(" of client {name}")).unwrap_or_default();
            audit(&format!("new connections{of}"));
            Answer::Reconnected(links)
        }
        Command::Log { filter } => {
            let log = daemon.log().context(NOT_HERE)?;
            if let Some(filter) = filter {
                log.change(&filter).map_err(NoFilter)?;
                tracing::info!(
                    target: AUDIT, "the log level is {filter} from now on, as asked over {over}"
                );
            }
            Answer::Log { filter: log.filter() }
        }
        Command::Ping { timeout_millis } => {
            let meter = daemon.meter().context("nothing to measure here")?;
            let patience = Duration::from_millis(timeout_millis).min(PATIENCE_MAX);
            let ping = timeout(patience + PATIENCE, meter.ping(patience)).await;
            Answer::Pong(ping.map_err(|_| NoAnswer)?)
        }
        Command::Events => listen(daemon, &news).await?,
        Command::Nat => {
            let probe = daemon.nat_probe().context(NO_NAT)?;
            Answer::Nat(timeout(PATIENCE + PATIENCE, probe.probe()).await.map_err(|_| NoAnswer)??)
        }
        Command::Test { service, client } => {
            let tester = daemon.tester().context(NOT_HERE)?;
            Answer::Tested(Box::new(tester.test(service, client).await?))
        }
        Command::Speedtest { millis } => speed_test(daemon, millis, &news).await?,
        Command::Connect { .. } => anyhow::bail!("`connect` takes a connection for itself"),
    })
}

/// Connects a local socket to a target on the server's side, as described at
/// [`Connector::connect`](crate::Connector::connect).
///
/// # Errors
/// The text is not a target, the daemon is a server, or the connection fails.
pub async fn connect(daemon: &dyn Daemon, target: &str, socket: UnixStream) -> anyhow::Result<()> {
    let target = crate::connect::target(target)?;
    daemon.connector().context(NO_OTHER_SIDE)?.connect(target, socket).await
}

async fn timely<T>(answer: SendFuture<'_, T>) -> Result<T, NoAnswer> {
    timeout(PATIENCE, answer).await.map_err(|_| NoAnswer)
}

/// Sends events until the listener leaves or the daemon ends. The first message is [`Answer::Ok`].
async fn listen(daemon: &dyn Daemon, news: &mpsc::Sender<Answer>) -> anyhow::Result<Answer> {
    let mut listener = daemon.events().context(NOT_HERE)?.listen().ok_or(TooMany)?;
    let mut next = Answer::Ok;
    loop {
        if news.send(next).await.is_err() {
            return Ok(Answer::Ok);
        }
        let heard = tokio::select! {
            heard = timeout(STILL_THERE, listener.next()) => heard,
            () = news.closed() => return Ok(Answer::Ok),
        };
        next = match heard {
            Ok(Some(Heard::Event(event))) => Answer::Event(event),
            Ok(Some(Heard::Lost(count))) => Answer::Lost(count),
            Ok(None) => return Ok(Answer::Ok),
            Err(_) => Answer::Ok,
        };
    }
}

/// Shares a target until the listener leaves or the daemon ends. The first message is
/// [`Answer::Shared`].
async fn share(
    daemon: &dyn Daemon,
    order: ShareOrder,
    news: &mpsc::Sender<Answer>,
) -> anyhow::Result<Answer> {
    let sharer = daemon.sharer().context(NOT_A_CLIENT)?;
    let (visits, mut reader) = share::visits();
    let (shared, _sharing) = tokio::select! {
        shared = sharer.share(order, visits) => shared?,
        () = news.closed() => return Ok(Answer::Ok),
    };
    let mut next = Answer::Shared(shared);
    loop {
        if news.send(next).await.is_err() {
            return Ok(Answer::Ok);
        }
        let item = tokio::select! {
            item = timeout(STILL_SHARED, reader.next()) => item,
            () = news.closed() => return Ok(Answer::Ok),
        };
        next = match item {
            Ok(Some(Told::Visit(visit))) => Answer::Visit(visit),
            Ok(Some(Told::Lost(count))) => Answer::Lost(count),
            Ok(None) => anyhow::bail!("the service is published no more"),
            Err(_) => Answer::Ok,
        };
    }
}

/// Runs a speed test until its end, or until the recipient of the result leaves.
async fn speed_test(
    daemon: &dyn Daemon,
    millis: u64,
    news: &mpsc::Sender<Answer>,
) -> anyhow::Result<Answer> {
    let test = daemon.speed_test().context(NO_SPEED_TEST)?;
    let span = Duration::from_millis(millis).min(LONGEST);
    let (sender, mut inbox) = mpsc::channel(1);
    let mut test = test.run(span, sender);
    loop {
        tokio::select! {
            outcome = &mut test => {
                let speed = outcome.map_err(anyhow::Error::msg)?;
                return Ok(Answer::Speed(Box::new(speed)));
            }
            Some(progress) = inbox.recv() => {
                // A slow reader misses progress messages, but does not slow the test down.
                let _ = news.try_send(Answer::Progress(progress));
            }
            () = news.closed() => anyhow::bail!("nobody waits for the result"),
        }
    }
}
