//! Streams, links and the connections to targets.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_HERE, timely, within};
use super::contract::{About, Command};
use super::form::Misread;
use super::route::{Given, delete, get, post};
use crate::daemon::{self, Daemon};
use crate::moving::MovedLinks;
use crate::role::Role;
use crate::status::{self, StreamKind, StreamNumber};
use crate::{AUDIT, Reconnected};

/// The default limit of listed streams in the API.
const STREAMS: &str = "100";

/// The highest permitted limit of listed streams in the API.
const STREAMS_MAX: usize = 1_000_000;

/// The error of a connection that only a client can make.
const NO_OTHER_SIDE: &str = "this is a server; its side is reached from where `tunnel client` runs";

/// The error of a server that is asked to reconnect without the name of a client.
const RECONNECT_WHOM: &str =
    "this is a server: name the client whose connections end (hint: tunnel reconnect NAME)";

/// The error of a client that receives the name of a client.
const RECONNECT_ITSELF: &str =
    "this is a client, which has one server (hint: leave the name away: tunnel reconnect)";

/// The error of a daemon that does not choose paths.
const NO_PATHS: &str =
    "this is a server, whose clients choose their paths: run it where `tunnel client` runs";

/// The longest wait for a move: a dial and a log-in have 10 s each.
const MOVE: Duration = Duration::from_secs(30);

fn traffic<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn daemon::Traffic> {
    cx.daemon.traffic().context(NOT_HERE)
}

/// Lists at most `limit` streams and flows, of all services or of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListStreams {
    pub service: Option<String>,
    pub limit: usize,
}

impl Command for ListStreams {
    const ABOUT: About = About::new("streams", "streams")
        .help("List the open streams of a running daemon")
        .routes(&[get("/streams").query("service=web&limit=100, where limit is a number")]);
    type Answer = status::Streams;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<status::Streams> {
        Ok(timely(traffic(cx)?.streams(self.service.clone(), self.limit)).await?)
    }

    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        let read: Self = given.read_or("limit", STREAMS)?;
        if read.limit > STREAMS_MAX {
            return Err(Misread::Query(format!("limit: at most {STREAMS_MAX}")));
        }
        Ok(read)
    }
}

/// Resets a stream, or ends a flow.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Kill {
    pub link: u64,
    pub stream: u32,
    /// A daemon of an earlier version, which has no flows, ignores the field of a stream.
    #[serde(default)]
    pub kind: StreamKind,
}

impl From<StreamNumber> for Kill {
    fn from(StreamNumber { link, kind, number }: StreamNumber) -> Self {
        Self { link, stream: number, kind }
    }
}

impl Command for Kill {
    const ABOUT: About = About::new("kill", "killed")
        .help("Reset a stream, or end a flow")
        .routes(&[delete("/streams/{link}/{stream}")])
        .missing("no such stream (any more)");
    /// Whether the link had such a stream or flow.
    type Answer = bool;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<bool> {
        let &Self { link, stream, kind } = self;
        let number = StreamNumber { link, kind, number: stream };
        let killed = timely(traffic(cx)?.kill(number)).await?;
        if killed {
            tracing::info!(
                target: AUDIT, link, stream,
                "{} {number} was reset, as asked over {}", kind.name(), cx.over
            );
        }
        Ok(killed)
    }

    fn read(given: Given<'_>) -> Result<Self, Misread> {
        let text = format!("{}/{}", given.segment("link"), given.segment("stream"));
        let unknown = "no such stream: two numbers name one, with a `u` before that of a flow";
        text.parse::<StreamNumber>().map(Self::from).map_err(|_| Misread::Unknown(unknown))
    }
}

/// Ends the carriers of a client's links, which then reconnect. On a server, `client` selects a
/// client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reconnect {
    #[serde(default)]
    pub client: Option<String>,
}

impl Command for Reconnect {
    const ABOUT: About = About::new("reconnect", "reconnected")
        .help(
            "End the connections of a running client, or on a server those of one client, and \
             dial anew; streams go on",
        )
        .routes(&[post("/reconnect")]);
    /// The numbers of links that reconnect.
    type Answer = Reconnected;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reconnected> {
        match (&self.client, cx.daemon.clients()) {
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
        let links = timely(traffic(cx)?.reconnect(self.client.clone())).await?;
        let of = self.client.as_ref().map(|name| format!(" of client {name}")).unwrap_or_default();
        cx.audit(format_args!("new connections{of}"));
        Ok(links)
    }
}

/// Moves the links of a client to another path to its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveLinks {
    /// The URL of the path; `None`: for each link the path behind its present path.
    #[serde(default)]
    pub to: Option<String>,
}

impl Command for MoveLinks {
    const ABOUT: About = About::new("move", "moved")
        .of(&[Role::Client])
        .help(
            "Move the links of a running client to another path to its server: the new \
             connections are made before the old ones end, and streams go on",
        )
        .routes(&[post("/move").query("to=quic://server.example:7000")])
        .slow();
    /// The links that have moved, and those that have not.
    type Answer = MovedLinks;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<MovedLinks> {
        let mover = cx.daemon.mover().context(NO_PATHS)?;
        let moved = within(MOVE, mover.move_links(self.to.clone())).await??;
        let to = self.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
        cx.audit(format_args!("a move of the links{to}"));
        Ok(moved)
    }
}

/// Turns the connection into the byte stream to a target on the server's side. The line `ok`
/// precedes the bytes of the target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connect {
    pub target: String,
}

impl Command for Connect {
    const ABOUT: About = About::new("connect", "")
        .of(&[Role::Client])
        .help(
            "Connect standard input and output with a target on the server's side of a running \
             client",
        )
        .routes(&[post("/connect").query("target=127.0.0.1:22")])
        .slow();
    type Answer = ();

    /// The channel itself carries the command out by [`Self::connect`], because it owns the
    /// connection.
    async fn run(&self, _: &Context<'_>) -> anyhow::Result<()> {
        anyhow::bail!("`connect` takes a connection for itself")
    }
}

impl Connect {
    /// Connects a local socket to the target, as described at
    /// [`Connector::connect`](crate::Connector::connect).
    ///
    /// # Errors
    /// The text is not a target, the daemon is a server, or the connection fails.
    pub async fn connect(&self, daemon: &dyn Daemon, socket: UnixStream) -> anyhow::Result<()> {
        let target = crate::connect::target(&self.target)?;
        daemon.connector().context(NO_OTHER_SIDE)?.connect(target, socket).await
    }
}
