//! What a daemon records: its log, its events, the requests of visitors.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::context::{Context, NOT_HERE, News};
use super::contract::{About, Command};
use super::form::{Form, Misread};
use super::route::{Given, Method, get, post, put};
use crate::events::Heard;
use crate::requests::{RequestDetail, RequestFilter, SeenRequests};
use crate::role::Role;
use crate::{AUDIT, daemon};

/// The error of a server that is queried for requests.
const NO_REQUESTS: &str = "this is a server; the client that publishes a service keeps its requests: \
                           ask where `tunnel client` runs";

/// The reason for a request that is missing.
const GONE: &str = "no such request (any more): only the last ones are kept";

/// The idle time after which a listener for events gets a sign that the daemon is still running. A
/// listener that has left is noticed at this point.
const STILL_THERE: Duration = Duration::from_secs(15);

/// There are more listeners than the daemon allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many programs listen to the events of this daemon")]
pub struct TooMany;

/// A text that is not a log filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoFilter(pub String);

/// Sets the log filter. Without a filter, it only reads the current filter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetLog {
    pub filter: Option<String>,
}

/// The log filter in force from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFilter {
    pub filter: String,
}

impl Command for SetLog {
    const ABOUT: About = About::new("log", "log")
        .help(
            "Change the log level of a running daemon until its next reload or start; or show the \
             level",
        )
        .routes(&[
            get("/log"),
            put("/log").body(Form::object(r#"{"filter":"debug"}"#, &["filter"])),
        ]);
    type Answer = LogFilter;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<LogFilter> {
        let log = cx.daemon.log().context(NOT_HERE)?;
        if let Some(filter) = &self.filter {
            log.change(filter).map_err(NoFilter)?;
            let over = cx.over;
            tracing::info!(
                target: AUDIT, "the log level is {filter} from now on, as asked over {over}"
            );
        }
        Ok(LogFilter { filter: log.filter() })
    }

    /// `GET` has no query: it changes nothing.
    fn read(given: Given<'_>) -> Result<Self, Misread> {
        if given.route.method == Method::Get { Ok(Self { filter: None }) } else { given.read() }
    }
}

/// Reports changes from now on. The first message is [`News::Ok`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FollowEvents {}

impl Command for FollowEvents {
    const ABOUT: About = About::new("events", "")
        .help(
            "Print what changes in a running daemon, one JSON object per line: links, services, \
             clients, certificates, refused log-ins",
        )
        .routes(&[get("/events")])
        .endless();
    type Answer = ();

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<()> {
        let mut listener = cx.daemon.events().context(NOT_HERE)?.listen().ok_or(TooMany)?;
        let mut next = News::Ok;
        loop {
            if cx.news.send(next).await.is_err() {
                return Ok(());
            }
            let heard = tokio::select! {
                heard = timeout(STILL_THERE, listener.next()) => heard,
                () = cx.news.closed() => return Ok(()),
            };
            next = match heard {
                Ok(Some(Heard::Event(event))) => News::Event(event),
                Ok(Some(Heard::Lost(count))) => News::Lost(count),
                Ok(None) => return Ok(()),
                Err(_) => News::Ok,
            };
        }
    }

    /// Twice the period of 15 s in which nothing changes, plus one more.
    fn patience(&self) -> Duration {
        STILL_THERE * 3
    }
}

fn requests<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn daemon::Requests> {
    cx.daemon.requests().context(NO_REQUESTS)
}

/// Lists the kept requests of visitors, without secrets.
impl Command for RequestFilter {
    const ABOUT: About = About::new("requests", "requests")
        .of(&[Role::Client])
        .help("List the last requests of the visitors of a running client")
        .routes(&[get("/requests").query("since=7, where since is a number")])
        .private();
    type Answer = SeenRequests;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<SeenRequests> {
        Ok(requests(cx)?.list(self))
    }

    /// The API has the class of a status as `status=4xx`.
    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        given.query.retain(|(name, _)| name != "class");
        if let Some(text) = given.field("status")? {
            let class = text.strip_suffix("xx").and_then(|class| class.parse::<u8>().ok());
            let Some(class @ 1..=5) = class else {
                return Err(Misread::Query("`status` is 1xx, 2xx, 3xx, 4xx or 5xx".to_owned()));
            };
            given.set("class", &class.to_string());
        }
        given.read()
    }
}

/// The number of a request in a path.
fn check_id(given: &Given<'_>) -> Result<(), Misread> {
    let id = given.segment("id").parse::<u64>();
    id.map(drop).map_err(|_| Misread::Unknown("no such request: a number names one"))
}

/// One kept request in full.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowRequest {
    pub id: u64,
    /// Whether its secrets are included.
    #[serde(default)]
    pub secrets: bool,
}

impl Command for ShowRequest {
    const ABOUT: About = About::new("request", "request")
        .of(&[Role::Client])
        .help("Show one request of a visitor in full")
        .routes(&[get("/requests/{id}")])
        .missing(GONE)
        .private();
    /// `None`: the request is no longer kept.
    type Answer = Option<RequestDetail>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<RequestDetail>> {
        let requests = requests(cx)?;
        if self.secrets {
            cx.audit(format_args!("the secrets of request {}", self.id));
        }
        Ok(requests.one(self.id, self.secrets))
    }

    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        let secrets = match given.field("secrets")? {
            None | Some("0" | "false") => "false",
            Some("1" | "true") => "true",
            Some(_) => return Err(Misread::Query("`secrets` is 0 or 1".to_owned())),
        };
        given.query.clear();
        given.set("secrets", secrets);
        check_id(&given)?;
        given.read()
    }
}

/// Sends a kept request to its target again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Replay {
    pub id: u64,
}

impl Command for Replay {
    const ABOUT: About = About::new("replay", "request")
        .of(&[Role::Client])
        .help("Send a request of a visitor to its target again")
        .routes(&[post("/requests/{id}/replay")])
        .slow()
        .missing(GONE);
    /// The new request; `None`: the request is no longer kept.
    type Answer = Option<RequestDetail>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<RequestDetail>> {
        let replayed = requests(cx)?.replay(self.id).await?;
        if replayed.is_some() {
            cx.audit(format_args!("a replay of request {}", self.id));
        }
        Ok(replayed)
    }

    fn read(given: Given<'_>) -> Result<Self, Misread> {
        check_id(&given)?;
        given.read()
    }
}
