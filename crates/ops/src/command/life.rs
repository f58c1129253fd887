//! The daemon itself: its status, its end, its configuration in force, its program.

use std::ops::Not;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_HERE, timely};
use super::contract::{About, Command, SLOW};
use super::response::ApiResponse;
use super::route::{get, post};
use crate::life::Phase;
use crate::role::Role;
use crate::upgrade::{UpgradeOrder, Upgraded};
use crate::{AUDIT, ConsoleLink, Reloaded, status};

/// The error of `restart` in a daemon that is not supervised by this program.
const NOT_SUPERVISED: &str = "this daemon is not one of `tunnel run`, and cannot start itself again \
                              (hint: `systemctl restart UNIT`, or `tunnel stop` and a new start)";

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadStatus {}

impl Command for ReadStatus {
    const ABOUT: About = About::new("status", "status")
        .help("Show links, services and figures of a running daemon")
        .routes(&[get("/status")]);
    type Answer = status::Status;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<status::Status> {
        Ok(timely(cx.daemon.status()).await?)
    }
}

/// Starts the drain of the daemon. During the drain, or with `now`, the remaining streams are reset
/// and the daemon ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stop {
    #[serde(default)]
    pub now: bool,
}

/// A daemon that is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    /// The process id of the daemon.
    pub pid: u32,
    /// Whether the remaining streams are reset.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub now: bool,
}

impl Command for Stop {
    const ABOUT: About = About::new("stop", "stopping")
        .help(
            "Make a running daemon refuse new visitors, finish its streams and end; and wait for \
             its end",
        )
        .routes(&[post("/stop")]);
    type Answer = Stopping;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Stopping> {
        let now = self.now || cx.life.phase() != Phase::Running;
        let how = if now { " at once" } else { "" };
        tracing::info!(target: AUDIT, "the daemon stops{how}, as asked over {}", cx.over);
        if now {
            cx.life.end();
        } else {
            cx.life.drain();
        }
        Ok(Stopping { pid: std::process::id(), now })
    }

    fn response(&self, stopping: &Stopping) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(202, &serde_json::json!({ "pid": stopping.pid }))
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reload {}

impl Command for Reload {
    const ABOUT: About = About::new("reload", "reloaded")
        .help("Make a running daemon read its configuration again and apply the changes")
        .routes(&[post("/reload")])
        .slow();
    type Answer = Reloaded;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reloaded> {
        let settings = cx.daemon.settings();
        settings.context("its configuration is read at its start only: restart it")?.reload().await
    }
}

/// Continues in a new process of a binary.
impl Command for UpgradeOrder {
    const ABOUT: About = About::new("upgrade", "upgraded").help(
        "Make a running daemon go on in a new process of its program, without an \
             interruption: open streams end in the former process, everything new comes to the \
             new one",
    );
    /// `None`: the daemon was started from another file.
    type Answer = Option<Upgraded>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<Upgraded>> {
        cx.audit("an upgrade");
        cx.daemon.upgrade().context(NOT_HERE)?.upgrade(self.clone()).await
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.timeout_millis) + SLOW
    }
}

/// Ends daemons of `tunnel run`, all or the named daemon, and starts them again. With `now` the
/// remaining streams are reset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restart {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub now: bool,
}

impl Command for Restart {
    const ABOUT: About = About::new("restart", "restarted")
        .of(&[Role::Run])
        .help("End daemons of `tunnel run`, and start them again");
    type Answer = status::Restarted;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<status::Restarted> {
        let supervision = cx.daemon.supervision().context(NOT_SUPERVISED)?;
        let restarted = timely(supervision.restart(self.name.clone(), self.now)).await??;
        let what = self.name.as_deref().unwrap_or("all daemons");
        cx.audit(format_args!("a restart of {what}"));
        Ok(restarted)
    }
}

/// Makes a link to the web console, which gives access to its holder.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OpenConsole {}

impl Command for OpenConsole {
    const ABOUT: About = About::new("console", "console").help(
        "Print a link to the web console of a running daemon, and open it in a browser on a \
             desktop; the link is good once, for a minute",
    );
    type Answer = ConsoleLink;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<ConsoleLink> {
        let link = cx.daemon.console().context(NOT_HERE)?.link()?;
        cx.audit("a link to the console");
        Ok(link)
    }
}
