//! `GET /api/v1/events?topics=…`: lines of JSON, once a second a line for each topic. A line is made
//! when the connection has room for it, so a reader that is slow gets fewer lines and never older
//! ones.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame};
use ops::Daemon;
use ops::command::PATIENCE;
use ops::requests::SeenRequests;
use ops::status::{Carrier, ServiceState, Session, SessionState, Stream};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout};

use super::history::{Bytes as Moved, Rate, rate};
use super::{Figures, Live, VIEWERS, moved, services, unix_millis};
use crate::answer::problem;

/// Most services and clients of a line.
const LISTED: usize = 1_000;

/// Streams of a line without another number, and most.
const STREAMS: usize = 200;
const STREAMS_MAX: usize = 1_000;

/// The streams among which the busiest are found.
const STREAMS_SEEN: usize = 5_000;

/// Lines of the log in one line of the topic.
const LOG_LINES: usize = 200;

/// What a viewer asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics {
    totals: bool,
    services: bool,
    clients: bool,
    streams: Option<usize>,
    log: bool,
    requests: bool,
}

impl Topics {
    /// Whether the requests of visitors are among them.
    pub(crate) const fn has_requests(self) -> bool {
        self.requests
    }

    /// Reads `totals,services,clients,streams:200,log,requests`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut topics = Self::default();
        for topic in text.split(',') {
            match topic.split_once(':').map_or((topic, None), |(name, n)| (name, Some(n))) {
                ("totals", None) => topics.totals = true,
                ("services", None) => topics.services = true,
                ("clients", None) => topics.clients = true,
                ("log", None) => topics.log = true,
                ("requests", None) => topics.requests = true,
                ("streams", number) => {
                    let number = number.map_or(Some(STREAMS), |number| number.parse().ok());
                    let number = number.filter(|number| *number <= STREAMS_MAX);
                    let wrong = || format!("`streams:N` takes a number up to {STREAMS_MAX}");
                    topics.streams = Some(number.ok_or_else(wrong)?);
                }
                _ => {
                    let known = "totals, services, clients, streams:200, log, requests";
                    return Err(format!("a topic is one of: {known}"));
                }
            }
        }
        Ok(topics)
    }
}

/// The answer whose body has the lines.
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
        figures: live.0.figures.subscribe(),
        streams: HashMap::new(),
        streams_at: None,
        log: None,
        requests: 0,
        ready: VecDeque::new(),
        _permit: permit,
    };
    let body = Body::new(Lines(Box::pin(viewer.next())));
    ([(CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

type Next = Pin<Box<dyn Future<Output = (Viewer, String)> + Send>>;

/// The lines of a viewer. The next one is made as soon as there is room for it.
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
    figures: Receiver<Option<Arc<Figures>>>,
    /// The bytes of each listed stream, and when they were read.
    streams: HashMap<String, Moved>,
    streams_at: Option<Instant>,
    /// The number of the last line of the log that was told.
    log: Option<u64>,
    /// The revision of the requests that were told.
    requests: u64,
    /// Topics of the present second that were not told yet.
    ready: VecDeque<Topic>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug)]
enum Topic {
    Totals,
    Services,
    Clients,
    Streams(usize),
    Log,
    Requests,
}

impl Viewer {
    /// Makes the next line, with the end of the line.
    async fn next(mut self) -> (Self, String) {
        loop {
            let Some(topic) = self.ready.pop_front() else {
                self.second().await;
                continue;
            };
            let figures = self.figures.borrow().clone();
            let line = match (topic, figures) {
                (Topic::Totals, Some(figures)) => Some(totals(&figures)),
                (Topic::Services, Some(figures)) => Some(services_line(&figures)),
                (Topic::Clients, Some(figures)) => Some(clients_line(&figures)),
                (Topic::Totals | Topic::Services | Topic::Clients, None) => None,
                (Topic::Streams(number), _) => self.streams_line(number).await,
                (Topic::Log, _) => self.log_line(),
                (Topic::Requests, _) => self.requests_line(),
            };
            if let Some(line) = line {
                return (self, format!("{line}\n"));
            }
        }
    }

    /// Waits for the next second.
    async fn second(&mut self) {
        // The task that looks at the daemon lives as long as the API.
        let _ = self.figures.changed().await;
        self.live.look();
        let Topics { totals, services, clients, streams, log, requests } = self.topics;
        let all = [
            totals.then_some(Topic::Totals),
            services.then_some(Topic::Services),
            clients.then_some(Topic::Clients),
            streams.map(Topic::Streams),
            log.then_some(Topic::Log),
            requests.then_some(Topic::Requests),
        ];
        self.ready.extend(all.into_iter().flatten());
    }

    /// The requests that have changed since the last line.
    fn requests_line(&mut self) -> Option<Value> {
        let all = self.daemon.requests()?;
        let is_first = self.requests == 0;
        let (changed, revision) = all.since(self.requests);
        self.requests = revision;
        let SeenRequests { requests, lost, memory_bytes } = changed;
        if requests.is_empty() && !is_first {
            return None;
        }
        Some(json!({
            "topic": "requests", "unix_millis": unix_millis(), "whole": is_first, "list": requests,
            "lost": lost, "memory_bytes": memory_bytes,
        }))
    }

    async fn streams_line(&mut self, number: usize) -> Option<Value> {
        let traffic = self.daemon.traffic()?;
        let seen = if number == 0 { 0 } else { STREAMS_SEEN };
        let streams = timeout(PATIENCE, traffic.streams(None, seen)).await.ok()?;
        let now = Instant::now();
        let last = self.streams_at.replace(now);
        let of = |stream: Stream| -> (Rate, Stream) {
            let read = (stream.bytes_in, stream.bytes_out);
            let before = last.zip(self.streams.get(&stream.id));
            let rate = before.map(|(at, before)| rate((at, *before), (now, read)));
            (rate.unwrap_or_default(), stream)
        };
        let mut all: Vec<_> = streams.list.into_iter().map(of).collect();
        self.streams = all
            .iter()
            .map(|(_, stream)| (stream.id.clone(), (stream.bytes_in, stream.bytes_out)))
            .collect();
        all.sort_by(|((a, b), _), ((c, d), _)| (c + d).total_cmp(&(a + b)));
        let list: Vec<_> =
            all.iter().take(number).map(|(rate, stream)| rated(object(stream), *rate)).collect();
        let (topic, total) = ("streams", streams.total);
        Some(json!({ "topic": topic, "unix_millis": unix_millis(), "total": total, "list": list }))
    }

    /// The lines of the log since the last look. `None`: there are none.
    fn log_line(&mut self) -> Option<Value> {
        let log = self.daemon.log()?;
        let lines = log.lines(self.log.unwrap_or(0), LOG_LINES);
        let is_first = self.log.replace(lines.last).is_none();
        if lines.lines.is_empty() && !is_first {
            return None;
        }
        let mut line = Map::new();
        line.insert("topic".into(), "log".into());
        line.insert("unix_millis".into(), unix_millis().into());
        // What was there before the viewer is not lost to it.
        if !is_first && lines.lost > 0 {
            line.insert("lost".into(), lines.lost.into());
        }
        line.insert("lines".into(), json!(lines.lines));
        Some(Value::Object(line))
    }
}

/// A value as an object; a value of the daemon is one.
fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Adds the rates to an entry.
fn rated(mut entry: Map<String, Value>, (incoming, outgoing): Rate) -> Value {
    entry.insert("in_bytes_per_second".into(), whole(incoming).into());
    entry.insert("out_bytes_per_second".into(), whole(outgoing).into());
    Value::Object(entry)
}

fn whole(rate: f64) -> u64 {
    // The conversion keeps to the range, and a rate is never negative.
    rate.round() as u64
}

fn totals(figures: &Figures) -> Value {
    let status = &figures.status;
    let mut line = object(&status.state);
    let mut put = |key: &str, value: Value| {
        line.insert(key.to_owned(), value);
    };
    put("topic", "totals".into());
    put("unix_millis", figures.unix_millis.into());
    put("role", json!(status.role));
    put("name", status.name.as_str().into());
    put("version", status.version.as_str().into());
    put("uptime_seconds", status.uptime_seconds.into());
    put("bytes_in", figures.carried.0.into());
    put("bytes_out", figures.carried.1.into());
    let links = || status.sessions.iter().flat_map(|session| &session.links);
    let (mut visitors, mut flows, mut refused, mut up, mut all) = (0, 0, 0, 0, 0_u64);
    for (_, service) in services(status) {
        visitors += service.streams;
        flows += service.flows;
        refused += service.refused.values().sum::<u64>();
        all += 1;
        up += u64::from(service.state.state() == ServiceState::Up);
    }
    put("streams", visitors.max(links().map(|link| link.streams).sum()).into());
    put("flows", flows.into());
    let own = || status.sessions.iter().filter(|session| !session.private);
    let is_up = |session: &&Session| session.state.state() == SessionState::Up;
    let (peers_up, peers) = match &figures.clients {
        Some(clients) => (clients.iter().filter(|client| client.links > 0).count(), clients.len()),
        None => (own().filter(is_up).count(), own().count()),
    };
    put("peers_up", peers_up.into());
    put("peers", peers.into());
    put("services", all.into());
    put("services_up", up.into());
    put("refused", refused.into());
    put("memory_used_bytes", status.memory.used_bytes.into());
    put("memory_budget_bytes", status.memory.budget_bytes.into());
    put("descriptors_open", status.descriptors.open.into());
    if let Some(limit) = status.descriptors.limit {
        put("descriptors_limit", limit.into());
    }
    put("log_lines_left_out", status.log_lines_left_out.into());
    if let Some(error) = &status.reload_error {
        put("reload_error", error.as_str().into());
    }
    if let Some(seconds) = status.drain_seconds {
        put("drain_seconds", seconds.into());
    }
    rated(line, figures.rate)
}

fn services_line(figures: &Figures) -> Value {
    let mut all: Vec<_> = services(&figures.status)
        .map(|(key, service)| (figures.rates.get(&key).copied().unwrap_or_default(), key, service))
        .collect();
    let total = all.len();
    if total > LISTED {
        // Those that carry most are worth a look.
        all.sort_by(|((a, b), ..), ((c, d), ..)| (c + d).total_cmp(&(a + b)));
    }
    let one = |(rate, (kind, peer, ..), service): &(Rate, super::Key, _)| {
        let mut entry = object(service);
        entry.insert("kind".into(), (*kind).into());
        entry.insert("peer".into(), peer.as_str().into());
        rated(entry, *rate)
    };
    let list: Vec<_> = all.iter().take(LISTED).map(one).collect();
    let unix_millis = figures.unix_millis;
    json!({ "topic": "services", "unix_millis": unix_millis, "total": total, "list": list })
}

fn clients_line(figures: &Figures) -> Value {
    let mut by_peer: HashMap<&str, Peer<'_>> = HashMap::new();
    for session in &figures.status.sessions {
        by_peer.entry(&session.peer).or_default().sessions.push(session);
    }
    for (key, service) in services(&figures.status) {
        let Some(peer) = by_peer.get_mut(key.1.as_str()) else { continue };
        let (bytes, rate) = (moved(service), figures.rates.get(&key).copied().unwrap_or_default());
        peer.services += 1;
        peer.bytes = (peer.bytes.0 + bytes.0, peer.bytes.1 + bytes.1);
        peer.rate = (peer.rate.0 + rate.0, peer.rate.1 + rate.1);
    }
    let none = Peer::default();
    let (total, list): (usize, Vec<Value>) = match &figures.clients {
        Some(clients) => {
            let entry = |client: &ops::clients::Client| {
                let peer = by_peer.get(client.name.as_str()).unwrap_or(&none);
                peer.fill(object(client))
            };
            (clients.len(), clients.iter().take(LISTED).map(entry).collect())
        }
        None => {
            let mut names: Vec<_> = by_peer.keys().copied().collect();
            names.sort_unstable();
            let entry = |name: &&str| {
                let peer = by_peer.get(name).unwrap_or(&none);
                let newest = peer.sessions.last();
                let mut entry = newest.map(|one| object(&one.state)).unwrap_or_default();
                entry.insert("name".into(), (*name).into());
                entry.insert("links".into(), peer.links().into());
                peer.fill(entry)
            };
            (names.len(), names.iter().take(LISTED).map(entry).collect())
        }
    };
    let unix_millis = figures.unix_millis;
    json!({ "topic": "clients", "unix_millis": unix_millis, "total": total, "list": list })
}

/// What is known of one other side.
#[derive(Default)]
struct Peer<'a> {
    sessions: Vec<&'a Session>,
    services: u64,
    bytes: Moved,
    rate: Rate,
}

impl Peer<'_> {
    fn links(&self) -> usize {
        self.sessions.iter().map(|session| session.links.len()).sum()
    }

    fn fill(&self, mut entry: Map<String, Value>) -> Value {
        let links = || self.sessions.iter().flat_map(|session| &session.links);
        let streams: u64 = links().map(|link| link.streams).sum();
        entry.insert("streams".into(), streams.into());
        entry.insert("services".into(), self.services.into());
        entry.insert("bytes_in".into(), self.bytes.0.into());
        entry.insert("bytes_out".into(), self.bytes.1.into());
        let carriers: Vec<&Carrier> = links().flat_map(|link| &link.carriers).collect();
        if !carriers.is_empty() {
            entry.insert("carriers".into(), json!(carriers));
        }
        rated(entry, self.rate)
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
            streams: Some(5),
            log: true,
            requests: true,
        };
        assert_eq!(Topics::parse("log,clients,streams:5,requests,services,totals"), Ok(all));
        assert_eq!(Topics::parse("streams").unwrap().streams, Some(STREAMS));
        for wrong in ["", "total", "log:1", "streams:1001", "streams:-1", "totals,", "a,log"] {
            assert!(Topics::parse(wrong).is_err(), "{wrong}");
        }
    }
}
