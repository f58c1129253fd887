//! `GET /api/v1/events?topics=…`: lines of JSON, one per second and topic. A line is made when the
//! connection has room for it, so a slow reader gets fewer lines, but never outdated ones. With
//! `changes=true` a line of a list contains the changes since the last line of this reader: nothing
//! is queued for a reader, and a reader that has missed too much gets the whole list.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame};
use ops::Daemon;
use ops::requests::SeenRequests;
use serde_json::{Map, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch::Receiver;

use super::rows::line;
use super::streams::StreamsTold;
use super::{Live, VIEWERS, locked, unix_millis};
use crate::answer::problem;
use crate::events::UNBUFFERED;

/// The default and the largest number of streams in a line.
const STREAMS: usize = 200;
const STREAMS_MAX: usize = 1_000;

/// The default and the largest number of services in a line of `busiest`.
const BUSIEST: usize = 6;
const BUSIEST_MAX: usize = 100;

/// The number of log lines in one line of the topic.
const LOG_LINES: usize = 200;

/// The topics that a viewer requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics {
    totals: bool,
    services: bool,
    clients: bool,
    needs: bool,
    busiest: Option<usize>,
    streams: Option<usize>,
    log: bool,
    requests: bool,
    /// Lists contain only changes.
    changes: bool,
}

impl Topics {
    /// Whether the requests of visitors are among them.
    pub(crate) const fn has_requests(self) -> bool {
        self.requests
    }

    /// The same topics, with lists of changes.
    pub(crate) const fn with_changes(self, changes: bool) -> Self {
        Self { changes, ..self }
    }

    /// Reads `totals,services,clients,needs,busiest:6,streams:200,log,requests`.
    ///
    /// # Errors
    /// The text is not a list of topics.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut topics = Self::default();
        for topic in text.split(',') {
            match topic.split_once(':').map_or((topic, None), |(name, n)| (name, Some(n))) {
                ("totals", None) => topics.totals = true,
                ("services", None) => topics.services = true,
                ("clients", None) => topics.clients = true,
                ("needs", None) => topics.needs = true,
                ("log", None) => topics.log = true,
                ("requests", None) => topics.requests = true,
                ("busiest", number) => {
                    topics.busiest = Some(count("busiest", number, BUSIEST, BUSIEST_MAX)?);
                }
                ("streams", number) => {
                    topics.streams = Some(count("streams", number, STREAMS, STREAMS_MAX)?);
                }
                _ => {
                    let known = "totals, services, clients, needs, busiest:6, streams:200, log, \
                                 requests";
                    return Err(format!("a topic is one of: {known}"));
                }
            }
        }
        Ok(topics)
    }
}

/// The number after a topic.
fn count(topic: &str, number: Option<&str>, usual: usize, most: usize) -> Result<usize, String> {
    let number = number.map_or(Some(usual), |number| number.parse().ok());
    let number = number.filter(|number| *number <= most);
    number.ok_or_else(|| format!("`{topic}:N` takes a number up to {most}"))
}

/// The response whose body has the lines.
pub(crate) fn answer(live: &Live, daemon: &Arc<dyn Daemon>, topics: Topics) -> Response {
    let Ok(permit) = Arc::clone(&live.0.viewers).try_acquire_owned() else {
        let why = format!("{VIEWERS} programs look at this daemon; end one of them");
        return problem(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    live.look();
    let viewer = Viewer {
        live: live.clone(),
        daemon: Arc::clone(daemon),
        topics,
        looks: live.0.looks.subscribe(),
        services: 0,
        clients: 0,
        needs: None,
        streams: StreamsTold::default(),
        log: None,
        requests: 0,
        ready: VecDeque::new(),
        _permit: permit,
    };
    let body = Body::new(Lines(Box::pin(viewer.next())));
    ([(CONTENT_TYPE, "application/x-ndjson"), UNBUFFERED], body).into_response()
}

type Next = Pin<Box<dyn Future<Output = (Viewer, String)> + Send>>;

/// The lines of a viewer. The next line is made as soon as there is room for it.
struct Lines(Next);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.as_mut().poll(cx).map(|(viewer, line)| {
            self.0 = Box::pin(viewer.next());
            Some(Ok(Frame::data(line.into())))
        })
    }
}

struct Viewer {
    live: Live,
    daemon: Arc<dyn Daemon>,
    topics: Topics,
    looks: Receiver<u64>,
    /// The revisions of the last lines of services and clients; 0: none yet.
    services: u64,
    clients: u64,
    /// The fingerprint of the last line of `needs`.
    needs: Option<u64>,
    streams: StreamsTold,
    /// The number of the last log line that was sent.
    log: Option<u64>,
    /// The last revision of the requests that was sent.
    requests: u64,
    /// Topics of the current second that were not sent yet.
    ready: VecDeque<Topic>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug)]
enum Topic {
    Totals,
    Services,
    Clients,
    Needs,
    Busiest(usize),
    Streams(usize),
    Log,
    Requests,
}

impl Viewer {
    /// Makes the next line, including the line end.
    async fn next(mut self) -> (Self, String) {
        loop {
            let Some(topic) = self.ready.pop_front() else {
                self.second().await;
                continue;
            };
            let line = match topic {
                Topic::Streams(number) => self.streams_line(number).await,
                Topic::Log => self.log_line(),
                Topic::Requests => self.requests_line(),
                Topic::Totals
                | Topic::Services
                | Topic::Clients
                | Topic::Needs
                | Topic::Busiest(_) => self.board_line(topic),
            };
            if let Some(line) = line {
                return (self, line);
            }
        }
    }

    /// A line from the board.
    fn board_line(&mut self, topic: Topic) -> Option<String> {
        let live = self.live.clone();
        let kept = locked(&live.0.board);
        let board = kept.as_ref()?;
        let changes = self.topics.changes;
        let after =
            |revision: &mut u64| changes.then(|| std::mem::replace(revision, board.revision));
        match topic {
            Topic::Totals => board.totals_line(),
            Topic::Services => board.services_line(after(&mut self.services)),
            Topic::Clients => board.clients_line(after(&mut self.clients)),
            Topic::Needs => board.needs_line(&mut self.needs),
            Topic::Busiest(most) => board.busiest_line(most),
            Topic::Streams(_) | Topic::Log | Topic::Requests => None,
        }
    }

    /// Waits for the next second.
    async fn second(&mut self) {
        // The task that samples the daemon lives as long as the API.
        let _ = self.looks.changed().await;
        self.live.look();
        let Topics { totals, services, clients, needs, busiest, streams, log, requests, .. } =
            self.topics;
        let all = [
            totals.then_some(Topic::Totals),
            services.then_some(Topic::Services),
            clients.then_some(Topic::Clients),
            needs.then_some(Topic::Needs),
            busiest.map(Topic::Busiest),
            streams.map(Topic::Streams),
            log.then_some(Topic::Log),
            requests.then_some(Topic::Requests),
        ];
        self.ready.extend(all.into_iter().flatten());
    }

    /// The requests that have changed since the last line.
    fn requests_line(&mut self) -> Option<String> {
        let all = self.daemon.requests()?;
        let is_first = self.requests == 0;
        let (changed, revision) = all.since(self.requests);
        self.requests = revision;
        let SeenRequests { requests, lost, memory_bytes } = changed;
        if requests.is_empty() && !is_first {
            return None;
        }
        line(&json!({
            "topic": "requests", "unix_millis": unix_millis(), "whole": is_first, "list": requests,
            "lost": lost, "memory_bytes": memory_bytes,
        }))
    }

    async fn streams_line(&mut self, number: usize) -> Option<String> {
        let traffic = self.daemon.traffic()?;
        self.streams.line(traffic, number, self.topics.changes).await
    }

    /// The log lines since the last sample. `None`: no new lines.
    fn log_line(&mut self) -> Option<String> {
        let log = self.daemon.log()?;
        let lines = log.lines(self.log.unwrap_or(0), LOG_LINES);
        let is_first = self.log.replace(lines.last).is_none();
        if lines.lines.is_empty() && !is_first {
            return None;
        }
        let mut message = Map::new();
        message.insert("topic".into(), "log".into());
        message.insert("unix_millis".into(), unix_millis().into());
        // Lines from before the viewer connected are sent as well.
        if !is_first && lines.lost > 0 {
            message.insert("lost".into(), lines.lost.into());
        }
        message.insert("lines".into(), json!(lines.lines));
        line(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_or_refused() {
        let all = Topics {
            totals: true,
            services: true,
            clients: true,
            needs: true,
            busiest: Some(7),
            streams: Some(5),
            log: true,
            requests: true,
            changes: false,
        };
        let text = "log,clients,streams:5,needs,requests,services,busiest:7,totals";
        assert_eq!(Topics::parse(text), Ok(all));
        assert_eq!(Topics::parse("busiest").unwrap().busiest, Some(BUSIEST));
        assert_eq!(Topics::parse("streams").unwrap().streams, Some(STREAMS));
        for wrong in [
            "",
            "total",
            "log:1",
            "streams:1001",
            "streams:-1",
            "totals,",
            "a,log",
            "busiest:101",
            "needs:1",
        ] {
            assert!(Topics::parse(wrong).is_err(), "{wrong}");
        }
    }
}
